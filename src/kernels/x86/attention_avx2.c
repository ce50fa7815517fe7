/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention for AVX2 with FMA. Dot products keep eight lanes over the head's
 * dimensions; weighted sums add position after position. Rows and keys are taken several at a time
 * only to reuse loads, so no order depends on it. */
#include "kernels/kernels.h"
#include "softmax_avx2.h"

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
