/* SPDX-License-Identifier: Apache-2.0
 *
 * Signs and block Hadamard transforms, portable. Defines the bits of every other version. */
#include "kernels/rotate.h"

#include <math.h>

#include "base/compiler.h"

static void butterflies(float *PL_RESTRICT low, float *PL_RESTRICT high, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float a = low[i], b = high[i];
        low[i] = a + b;
        high[i] = a - b;
    }
}

/* One block, stride 1 first. */
static void hadamard(float *x, size_t block)
{
    for (size_t stride = 1; stride < block; stride *= 2)
        for (size_t start = 0; start < block; start += 2 * stride)
            butterflies(x + start, x + start + stride, stride);
}

void pl_rotate_c(float *x, const float *signs, size_t n, size_t block)
{
    float scale = 1.0f / sqrtf((float)block);
    for (size_t i = 0; signs && i < n; i++) x[i] *= signs[i];
    for (size_t start = 0; start < n; start += block) hadamard(x + start, block);
    for (size_t i = 0; i < n; i++) x[i] *= scale;
}

void pl_unrotate_c(float *x, const float *signs, size_t n, size_t block)
{
    float scale = 1.0f / sqrtf((float)block);
    for (size_t start = 0; start < n; start += block) hadamard(x + start, block);
    for (size_t i = 0; i < n; i++) x[i] *= scale;
    for (size_t i = 0; signs && i < n; i++) x[i] *= signs[i];
}

void pl_kernels_init_rotate_c(pl_kernels *k)
{
    k->rotate = pl_rotate_c;
    k->unrotate = pl_unrotate_c;
}
