/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention for AVX2 with FMA. Dot products keep eight lanes over the head's
 * dimensions; weighted sums add position after position. Rows and keys are taken several at a time
 * only to reuse loads, so no order depends on it. */
#include <immintrin.h>
#include <math.h>

#include "base/compiler.h"
#include "kernels/kernels.h"

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

/* ---- scores ---------------------------------------------------------------------------------- */

/* The four sums of four vectors' lanes. */
static PL_ALWAYS_INLINE __m128 sum4(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

/* scores[r][j] for R rows and all j < n, four keys at a time. The last group repeats the last key
 * and its surplus lands in slots that softmax masks. */
static PL_ALWAYS_INLINE void scores_rows(size_t R, const float *q, const float *keys, size_t n,
                                         size_t dim, float *scores)
{
    for (size_t j = 0; j < n; j += 4) {
        const float *k[4];
        for (size_t i = 0; i < 4; i++) k[i] = keys + PL_MIN(j + i, n - 1) * dim;
        __m256 acc[2][4];
        for (size_t r = 0; r < R; r++)
            for (size_t i = 0; i < 4; i++) acc[r][i] = _mm256_setzero_ps();
        for (size_t d = 0; d < dim; d += 8) {
            __m256 key[4];
            for (size_t i = 0; i < 4; i++) key[i] = _mm256_loadu_ps(k[i] + d);
            for (size_t r = 0; r < R; r++) {
                __m256 x = _mm256_loadu_ps(q + r * dim + d);
                for (size_t i = 0; i < 4; i++) acc[r][i] = _mm256_fmadd_ps(x, key[i], acc[r][i]);
            }
        }
        for (size_t r = 0; r < R; r++)
            _mm_storeu_ps(scores + r * PL_ATTEND_BLOCK + j,
                          sum4(acc[r][0], acc[r][1], acc[r][2], acc[r][3]));
    }
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* Turns a row of scores into exp(score - max), 0 outside [lo, hi), over the whole block; updates
 * max and sum. Returns what earlier sums are multiplied by. */
static float softmax_row(float *scores, size_t lo, size_t hi, float *max, float *sum)
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

/* ---- weighted values ------------------------------------------------------------------------- */

/* out[r][d .. d+8V) += sum over lo <= j < hi of scores[r][j] * values[j][d ..] for R rows. */
static PL_ALWAYS_INLINE void values_chunk(size_t R, size_t V, float *out, const float *scores,
                                          const float *values, size_t lo, size_t hi, size_t dim)
{
    __m256 acc[4][4];
    for (size_t r = 0; r < R; r++)
        for (size_t i = 0; i < V; i++) acc[r][i] = _mm256_loadu_ps(out + r * dim + 8 * i);
    for (size_t j = lo; j < hi; j++) {
        __m256 v[4];
        for (size_t i = 0; i < V; i++) v[i] = _mm256_loadu_ps(values + j * dim + 8 * i);
        for (size_t r = 0; r < R; r++) {
            __m256 p = _mm256_broadcast_ss(scores + r * PL_ATTEND_BLOCK + j);
            for (size_t i = 0; i < V; i++) acc[r][i] = _mm256_fmadd_ps(p, v[i], acc[r][i]);
        }
    }
    for (size_t r = 0; r < R; r++)
        for (size_t i = 0; i < V; i++) _mm256_storeu_ps(out + r * dim + 8 * i, acc[r][i]);
}

/* V vectors at a time: R * V sums are what the registers hold. */
static PL_ALWAYS_INLINE void values_rows(size_t R, size_t V, const pl_attend_tile *t, size_t r,
                                         const float *values)
{
    size_t D = t->dim, lo = t->lo[r], hi = t->hi[r], d = 0;
    for (size_t i = 1; i < R; i++) { /* a weight is 0 where a row sees less */
        lo = PL_MIN(lo, t->lo[r + i]);
        hi = PL_MAX(hi, t->hi[r + i]);
    }
    float *out = t->out + r * D;
    const float *scores = t->scores + r * PL_ATTEND_BLOCK;
    for (; d + 8 * V <= D; d += 8 * V)
        values_chunk(R, V, out + d, scores, values + d, lo, hi, D);
    for (; d < D; d += 8) values_chunk(R, 1, out + d, scores, values + d, lo, hi, D);
}

static void scale_row(float *x, float factor, size_t n)
{
    __m256 f = _mm256_set1_ps(factor);
    for (size_t i = 0; i < n; i += 8)
        _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), f));
}

static void attend_avx2(const pl_attend_tile *t, const float *keys, const float *values, size_t n)
{
    size_t D = t->dim, rows = t->rows, r = 0;
    if (n == 0) return;
    for (; r + 2 <= rows; r += 2)
        scores_rows(2, t->q + r * D, keys, n, D, t->scores + r * PL_ATTEND_BLOCK);
    if (r < rows) scores_rows(1, t->q + r * D, keys, n, D, t->scores + r * PL_ATTEND_BLOCK);
    for (r = 0; r < rows; r++) {
        float *scores = t->scores + r * PL_ATTEND_BLOCK;
        if (t->lo[r] == t->hi[r]) {
            for (size_t j = 0; j < n; j++) scores[j] = 0;
            continue;
        }
        float keep = softmax_row(scores, t->lo[r], t->hi[r], &t->max[r], &t->sum[r]);
        if (keep != 1.0f) scale_row(t->out + r * D, keep, D);
    }
    for (r = 0; r + 4 <= rows; r += 4) values_rows(4, 2, t, r, values);
    for (; r + 2 <= rows; r += 2) values_rows(2, 4, t, r, values);
    if (r < rows) values_rows(1, 4, t, r, values);
}

/* Head sizes in use are multiples of 8; others take the plain kernel. */
static void attend_any_avx2(const pl_attend_tile *t, const float *keys, const float *values,
                            size_t n)
{
    if (t->dim % 8 == 0) attend_avx2(t, keys, values, n);
    else pl_attend_c(t, keys, values, n);
}

void pl_kernels_init_attention_avx2(pl_kernels *k) { k->attend = attend_any_avx2; }
