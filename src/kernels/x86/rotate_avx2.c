/* SPDX-License-Identifier: Apache-2.0
 *
 * Signs and block Hadamard transforms, AVX2. Runs of up to 64 numbers are transformed in registers;
 * longer strides pass over memory. Blocks below one vector are left to the portable version. */
#include "kernels/rotate.h"

#include <immintrin.h>
#include <math.h>

#include "base/compiler.h"

enum { LANES = 8 };

/* Strides 1, 2 and 4: each lane becomes its partner plus itself, itself negated in the upper of the
 * two. a + -b is a - b to the bit. */
static PL_ALWAYS_INLINE __m256 butterfly_lanes(__m256 v)
{
    const __m256 odd1 = _mm256_setr_ps(0, -0.f, 0, -0.f, 0, -0.f, 0, -0.f);
    const __m256 odd2 = _mm256_setr_ps(0, 0, -0.f, -0.f, 0, 0, -0.f, -0.f);
    const __m256 odd4 = _mm256_setr_ps(0, 0, 0, 0, -0.f, -0.f, -0.f, -0.f);
    v = _mm256_add_ps(_mm256_permute_ps(v, 0xb1), _mm256_xor_ps(v, odd1));
    v = _mm256_add_ps(_mm256_permute_ps(v, 0x4e), _mm256_xor_ps(v, odd2));
    return _mm256_add_ps(_mm256_permute2f128_ps(v, v, 1), _mm256_xor_ps(v, odd4));
}

/* A run of `count` vectors (1, 2, 4 or 8): signs before, all strides inside the run, then a factor
 * and signs after. */
static PL_ALWAYS_INLINE void run_in_registers(float *x, const float *before, const float *after,
                                              __m256 factor, int count)
{
    __m256 v[8];
    for (int i = 0; i < count; i++) {
        v[i] = _mm256_loadu_ps(x + LANES * i);
        if (before) v[i] = _mm256_mul_ps(v[i], _mm256_loadu_ps(before + LANES * i));
        v[i] = butterfly_lanes(v[i]);
    }
    for (int stride = 1; stride < count; stride *= 2)
        for (int i = 0; i < count; i++)
            if (!(i & stride)) {
                __m256 a = v[i], b = v[i + stride];
                v[i] = _mm256_add_ps(a, b);
                v[i + stride] = _mm256_sub_ps(a, b);
            }
    for (int i = 0; i < count; i++) {
        v[i] = _mm256_mul_ps(v[i], factor);
        if (after) v[i] = _mm256_mul_ps(v[i], _mm256_loadu_ps(after + LANES * i));
        _mm256_storeu_ps(x + LANES * i, v[i]);
    }
}

static PL_ALWAYS_INLINE void runs(float *x, const float *before, const float *after, __m256 factor,
                                  size_t n, int count)
{
    for (size_t i = 0; i < n; i += (size_t)(LANES * count))
        run_in_registers(x + i, before ? before + i : NULL, after ? after + i : NULL, factor,
                         count);
}

/* One stride of at least a vector, over a whole block; the last stride takes factor and signs. */
static void stride_in_memory(float *x, const float *after, __m256 factor, size_t block,
                             size_t stride)
{
    for (size_t start = 0; start < block; start += 2 * stride)
        for (size_t i = start; i < start + stride; i += LANES) {
            __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + stride);
            __m256 sum = _mm256_mul_ps(_mm256_add_ps(a, b), factor);
            __m256 difference = _mm256_mul_ps(_mm256_sub_ps(a, b), factor);
            if (after) {
                sum = _mm256_mul_ps(sum, _mm256_loadu_ps(after + i));
                difference = _mm256_mul_ps(difference, _mm256_loadu_ps(after + i + stride));
            }
            _mm256_storeu_ps(x + i, sum);
            _mm256_storeu_ps(x + i + stride, difference);
        }
}

static void transform(float *x, const float *before, const float *after, size_t n, size_t block)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 scale = _mm256_set1_ps(1.0f / sqrtf((float)block));
    switch (block) {
    case 8:
        runs(x, before, after, scale, n, 1);
        return;
    case 16:
        runs(x, before, after, scale, n, 2);
        return;
    case 32:
        runs(x, before, after, scale, n, 4);
        return;
    case 64:
        runs(x, before, after, scale, n, 8);
        return;
    }
    for (size_t start = 0; start < n; start += block) {
        runs(x + start, before ? before + start : NULL, NULL, one, block, 8);
        for (size_t stride = 64; stride < block / 2; stride *= 2)
            stride_in_memory(x + start, NULL, one, block, stride);
        stride_in_memory(x + start, after ? after + start : NULL, scale, block, block / 2);
    }
}

void pl_rotate_avx2(float *x, const float *signs, size_t n, size_t block)
{
    if (block < LANES)
        pl_rotate_c(x, signs, n, block);
    else
        transform(x, signs, NULL, n, block);
}

void pl_unrotate_avx2(float *x, const float *signs, size_t n, size_t block)
{
    if (block < LANES)
        pl_unrotate_c(x, signs, n, block);
    else
        transform(x, NULL, signs, n, block);
}

void pl_kernels_init_rotate_avx2(pl_kernels *k)
{
    k->rotate = pl_rotate_avx2;
    k->unrotate = pl_unrotate_avx2;
}
