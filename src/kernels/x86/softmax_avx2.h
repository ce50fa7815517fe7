/* SPDX-License-Identifier: Apache-2.0
 *
 * What the attention kernels for AVX2 share: the running softmax of a row. */
#ifndef PL_KERNELS_SOFTMAX_AVX2_H
#define PL_KERNELS_SOFTMAX_AVX2_H

#include <immintrin.h>
#include <math.h>

#include "base/compiler.h"
#include "kernels/attention.h"

/* exp(x) as in vector.h, with fused multiply-adds. */
static PL_ALWAYS_INLINE __m256 exp_avx2(__m256 x)
{
    const __m256 lowest = _mm256_set1_ps(-87.0f);
    __m256 tiny = _mm256_cmp_ps(x, lowest, _CMP_LT_OQ);
    /* The second operand is returned for NaN, which so passes on. */
    x = _mm256_min_ps(_mm256_set1_ps(88.0f), _mm256_max_ps(lowest, x));
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    __m256i e = _mm256_slli_epi32(
        _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_andnot_ps(tiny, _mm256_mul_ps(p, _mm256_castsi256_ps(e)));
}

static PL_ALWAYS_INLINE float sum_avx2(__m256 a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static PL_ALWAYS_INLINE float max_avx2(__m256 a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* Turns a row of scores into exp(score - max), 0 outside [lo, hi), over the whole block; updates
 * max and sum. Returns what earlier sums are multiplied by. */
static inline float softmax_row(float *scores, size_t lo, size_t hi, float *max, float *sum)
{
    for (size_t j = 0; j < lo; j++) scores[j] = -INFINITY;
    for (size_t j = hi; j < PL_ATTEND_BLOCK; j++) scores[j] = -INFINITY;
    __m256 top = _mm256_set1_ps(*max), nan = _mm256_setzero_ps();
    for (size_t j = 0; j < PL_ATTEND_BLOCK; j += 8) {
        __m256 s = _mm256_loadu_ps(scores + j);
        top = _mm256_max_ps(top, s);
        nan = _mm256_or_ps(nan, _mm256_cmp_ps(s, s, _CMP_UNORD_Q));
    }
    float m = _mm256_movemask_ps(nan) ? NAN : max_avx2(top);
    __m256 total = _mm256_setzero_ps();
    for (size_t j = 0; j < PL_ATTEND_BLOCK; j += 8) {
        __m256 p = exp_avx2(_mm256_sub_ps(_mm256_loadu_ps(scores + j), _mm256_set1_ps(m)));
        _mm256_storeu_ps(scores + j, p);
        total = _mm256_add_ps(total, p);
    }
    float keep = _mm256_cvtss_f32(exp_avx2(_mm256_set1_ps(*max - m)));
    *sum = *sum * keep + sum_avx2(total);
    *max = m;
    return keep;
}

static inline void scale_row(float *x, float factor, size_t n)
{
    __m256 f = _mm256_set1_ps(factor);
    for (size_t i = 0; i < n; i += 8)
        _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), f));
}

#endif
