/* SPDX-License-Identifier: Apache-2.0
 *
 * Signs and block Hadamard transforms, AVX-512. Runs of up to 256 numbers are transformed in
 * registers; longer strides pass over memory. Blocks below one vector are left to AVX2. */
#include "kernels/rotate.h"

#include <immintrin.h>
#include <math.h>

#include "base/compiler.h"

enum { LANES = 16 };

/* Strides 1, 2, 4 and 8: each lane becomes its partner plus itself, itself negated in the upper of
 * the two. a + -b is a - b to the bit. */
static PL_ALWAYS_INLINE __m512 butterfly_lanes(__m512 v)
{
    const __m512 minus = _mm512_set1_ps(-0.f);
    v = _mm512_add_ps(_mm512_permute_ps(v, 0xb1), _mm512_mask_xor_ps(v, 0xaaaa, v, minus));
    v = _mm512_add_ps(_mm512_permute_ps(v, 0x4e), _mm512_mask_xor_ps(v, 0xcccc, v, minus));
    v = _mm512_add_ps(_mm512_shuffle_f32x4(v, v, 0xb1), _mm512_mask_xor_ps(v, 0xf0f0, v, minus));
    return _mm512_add_ps(_mm512_shuffle_f32x4(v, v, 0x4e), _mm512_mask_xor_ps(v, 0xff00, v, minus));
}

/* A run of `count` vectors (1, 2, 4, 8 or 16): signs before, all strides inside the run, then a
 * factor and signs after. */
static PL_ALWAYS_INLINE void run_in_registers(float *x, const float *before, const float *after,
                                              __m512 factor, int count)
{
    __m512 v[16];
    for (int i = 0; i < count; i++) {
        v[i] = _mm512_loadu_ps(x + LANES * i);
        if (before) v[i] = _mm512_mul_ps(v[i], _mm512_loadu_ps(before + LANES * i));
        v[i] = butterfly_lanes(v[i]);
    }
    for (int stride = 1; stride < count; stride *= 2)
        for (int i = 0; i < count; i++)
            if (!(i & stride)) {
                __m512 a = v[i], b = v[i + stride];
                v[i] = _mm512_add_ps(a, b);
                v[i + stride] = _mm512_sub_ps(a, b);
            }
    for (int i = 0; i < count; i++) {
        v[i] = _mm512_mul_ps(v[i], factor);
        if (after) v[i] = _mm512_mul_ps(v[i], _mm512_loadu_ps(after + LANES * i));
        _mm512_storeu_ps(x + LANES * i, v[i]);
    }
}

static PL_ALWAYS_INLINE void runs(float *x, const float *before, const float *after, __m512 factor,
                                  size_t n, int count)
{
    for (size_t i = 0; i < n; i += (size_t)(LANES * count))
        run_in_registers(x + i, before ? before + i : NULL, after ? after + i : NULL, factor,
                         count);
}

/* One stride of at least a vector, over a whole block; the last stride takes factor and signs. */
static void stride_in_memory(float *x, const float *after, __m512 factor, size_t block,
                             size_t stride)
{
    for (size_t start = 0; start < block; start += 2 * stride)
        for (size_t i = start; i < start + stride; i += LANES) {
            __m512 a = _mm512_loadu_ps(x + i), b = _mm512_loadu_ps(x + i + stride);
            __m512 sum = _mm512_mul_ps(_mm512_add_ps(a, b), factor);
            __m512 difference = _mm512_mul_ps(_mm512_sub_ps(a, b), factor);
            if (after) {
                sum = _mm512_mul_ps(sum, _mm512_loadu_ps(after + i));
                difference = _mm512_mul_ps(difference, _mm512_loadu_ps(after + i + stride));
            }
            _mm512_storeu_ps(x + i, sum);
            _mm512_storeu_ps(x + i + stride, difference);
        }
}

static void transform(float *x, const float *before, const float *after, size_t n, size_t block)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 scale = _mm512_set1_ps(1.0f / sqrtf((float)block));
    switch (block) {
    case 16:
        runs(x, before, after, scale, n, 1);
        return;
    case 32:
        runs(x, before, after, scale, n, 2);
        return;
    case 64:
        runs(x, before, after, scale, n, 4);
        return;
    case 128:
        runs(x, before, after, scale, n, 8);
        return;
    case 256:
        runs(x, before, after, scale, n, 16);
        return;
    }
    for (size_t start = 0; start < n; start += block) {
        runs(x + start, before ? before + start : NULL, NULL, one, block, 16);
        for (size_t stride = 256; stride < block / 2; stride *= 2)
            stride_in_memory(x + start, NULL, one, block, stride);
        stride_in_memory(x + start, after ? after + start : NULL, scale, block, block / 2);
    }
}

void pl_rotate_avx512(float *x, const float *signs, size_t n, size_t block)
{
    if (block < LANES)
        pl_rotate_avx2(x, signs, n, block);
    else
        transform(x, signs, NULL, n, block);
}

void pl_unrotate_avx512(float *x, const float *signs, size_t n, size_t block)
{
    if (block < LANES)
        pl_unrotate_avx2(x, signs, n, block);
    else
        transform(x, NULL, signs, n, block);
}

void pl_kernels_init_rotate_avx512(pl_kernels *k)
{
    k->rotate = pl_rotate_avx512;
    k->unrotate = pl_unrotate_avx512;
}
