/* SPDX-License-Identifier: Apache-2.0
 *
 * Signs and block Hadamard transforms: the part that the levels with vectors share. The including
 * file defines fvec (a register of LANES floats), its operations, the transform of one register,
 * and how many registers a run may fill. Runs are transformed in registers; longer strides pass
 * over memory. */
#ifndef PL_KERNELS_ROTATE_BODY_H
#define PL_KERNELS_ROTATE_BODY_H

#include <math.h>

/* A run of `count` vectors: signs before, all strides inside it, a factor and signs after. */
static PL_ALWAYS_INLINE void run_in_registers(float *x, const float *before, const float *after,
                                              fvec factor, int count)
{
    fvec v[RUN];
    for (int i = 0; i < count; i++) {
        v[i] = f_load(x + LANES * i);
        if (before) v[i] = f_mul(v[i], f_load(before + LANES * i));
        v[i] = butterfly_lanes(v[i]);
    }
    for (int stride = 1; stride < count; stride *= 2)
        for (int i = 0; i < count; i++)
            if (!(i & stride)) {
                fvec a = v[i], b = v[i + stride];
                v[i] = f_add(a, b);
                v[i + stride] = f_sub(a, b);
            }
    for (int i = 0; i < count; i++) {
        v[i] = f_mul(v[i], factor);
        if (after) v[i] = f_mul(v[i], f_load(after + LANES * i));
        f_store(x + LANES * i, v[i]);
    }
}

static PL_ALWAYS_INLINE void runs(float *x, const float *before, const float *after, fvec factor,
                                  size_t n, int count)
{
    for (size_t i = 0; i < n; i += (size_t)(LANES * count))
        run_in_registers(x + i, before ? before + i : NULL, after ? after + i : NULL, factor,
                         count);
}

/* One stride of at least a vector, over a whole block; the last stride takes factor and signs. */
static void stride_in_memory(float *x, const float *after, fvec factor, size_t block, size_t stride)
{
    for (size_t start = 0; start < block; start += 2 * stride)
        for (size_t i = start; i < start + stride; i += LANES) {
            fvec a = f_load(x + i), b = f_load(x + i + stride);
            fvec sum = f_mul(f_add(a, b), factor);
            fvec difference = f_mul(f_sub(a, b), factor);
            if (after) {
                sum = f_mul(sum, f_load(after + i));
                difference = f_mul(difference, f_load(after + i + stride));
            }
            f_store(x + i, sum);
            f_store(x + i + stride, difference);
        }
}

static void transform(float *x, const float *before, const float *after, size_t n, size_t block)
{
    const fvec one = f_splat(1.0f), scale = f_splat(1.0f / sqrtf((float)block));
    switch (block / LANES) {
    case 1:
        runs(x, before, after, scale, n, 1);
        return;
    case 2:
        runs(x, before, after, scale, n, 2);
        return;
    case 4:
        runs(x, before, after, scale, n, 4);
        return;
    case 8:
        runs(x, before, after, scale, n, 8);
        return;
    case 16:
        if (RUN < 16) break;
        runs(x, before, after, scale, n, RUN); /* 16, where it is compiled to be reached */
        return;
    }
    for (size_t start = 0; start < n; start += block) {
        runs(x + start, before ? before + start : NULL, NULL, one, block, RUN);
        for (size_t stride = LANES * RUN; stride < block / 2; stride *= 2)
            stride_in_memory(x + start, NULL, one, block, stride);
        stride_in_memory(x + start, after ? after + start : NULL, scale, block, block / 2);
    }
}

#endif
