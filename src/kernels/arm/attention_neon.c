/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention for NEON. Dot products keep four lanes over the head's dimensions; weighted sums add
 * position after position. Rows and keys are taken several at a time only to reuse loads, so no
 * order depends on it. Rotary embedding stays with C, whose loop the compiler turns into NEON. */
#include "kernels/kernels.h"
#include "softmax_neon.h"

/* ---- scores ---------------------------------------------------------------------------------- */

/* The four sums of four vectors' lanes. */
static PL_ALWAYS_INLINE float32x4_t sum4(const float32x4_t v[4])
{
    return vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3]));
}

/* scores[r][j] for R rows and all j < n, four keys at a time. The last group repeats the last key
 * and its surplus lands in slots that softmax masks. */
static PL_ALWAYS_INLINE void scores_rows(size_t R, const float *q, const float *keys, size_t n,
                                         size_t dim, float *scores)
{
    for (size_t j = 0; j < n; j += 4) {
        const float *k[4];
        for (size_t i = 0; i < 4; i++) k[i] = keys + PL_MIN(j + i, n - 1) * dim;
        float32x4_t acc[4][4];
        for (size_t r = 0; r < R; r++)
            for (size_t i = 0; i < 4; i++) acc[r][i] = vdupq_n_f32(0);
        for (size_t d = 0; d < dim; d += 4) {
            float32x4_t key[4];
            for (size_t i = 0; i < 4; i++) key[i] = vld1q_f32(k[i] + d);
            for (size_t r = 0; r < R; r++) {
                float32x4_t x = vld1q_f32(q + r * dim + d);
                for (size_t i = 0; i < 4; i++) acc[r][i] = vfmaq_f32(acc[r][i], x, key[i]);
            }
        }
        for (size_t r = 0; r < R; r++) vst1q_f32(scores + r * PL_ATTEND_BLOCK + j, sum4(acc[r]));
    }
}

/* ---- weighted values ------------------------------------------------------------------------- */

/* out[r][d .. d+4V) += sum over lo <= j < hi of scores[r][j] * values[j][d ..] for R rows. */
static PL_ALWAYS_INLINE void values_chunk(size_t R, size_t V, float *out, const float *scores,
                                          const float *values, size_t lo, size_t hi, size_t dim)
{
    float32x4_t acc[4][8];
    for (size_t r = 0; r < R; r++)
        for (size_t i = 0; i < V; i++) acc[r][i] = vld1q_f32(out + r * dim + 4 * i);
    for (size_t j = lo; j < hi; j++) {
        float32x4_t v[8];
        for (size_t i = 0; i < V; i++) v[i] = vld1q_f32(values + j * dim + 4 * i);
        for (size_t r = 0; r < R; r++)
            for (size_t i = 0; i < V; i++)
                acc[r][i] = vfmaq_n_f32(acc[r][i], v[i], scores[r * PL_ATTEND_BLOCK + j]);
    }
    for (size_t r = 0; r < R; r++)
        for (size_t i = 0; i < V; i++) vst1q_f32(out + r * dim + 4 * i, acc[r][i]);
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
    for (; d + 4 * V <= D; d += 4 * V)
        values_chunk(R, V, out + d, scores, values + d, lo, hi, D);
    for (; d < D; d += 4) values_chunk(R, 1, out + d, scores, values + d, lo, hi, D);
}

static void attend_fours(const pl_attend_tile *t, const float *keys, const float *values, size_t n)
{
    size_t D = t->dim, rows = t->rows, r = 0;
    if (n == 0) return;
    for (; r + 4 <= rows; r += 4)
        scores_rows(4, t->q + r * D, keys, n, D, t->scores + r * PL_ATTEND_BLOCK);
    for (; r < rows; r++)
        scores_rows(1, t->q + r * D, keys, n, D, t->scores + r * PL_ATTEND_BLOCK);
    for (r = 0; r < rows; r++) {
        float *scores = t->scores + r * PL_ATTEND_BLOCK;
        if (t->lo[r] == t->hi[r]) {
            for (size_t j = 0; j < n; j++) scores[j] = 0;
            continue;
        }
        float keep = softmax_row(scores, t->lo[r], t->hi[r], &t->max[r], &t->sum[r]);
        if (keep != 1.0f) scale_row(t->out + r * D, keep, D);
    }
    for (r = 0; r + 4 <= rows; r += 4) values_rows(4, 4, t, r, values);
    for (; r + 2 <= rows; r += 2) values_rows(2, 8, t, r, values);
    if (r < rows) values_rows(1, 8, t, r, values);
}

/* Head sizes in use are multiples of 4; others take the plain kernel. */
static void attend_neon(const pl_attend_tile *t, const float *keys, const float *values, size_t n)
{
    if (t->dim % 4 == 0)
        attend_fours(t, keys, values, n);
    else
        pl_attend_c(t, keys, values, n);
}

void pl_kernels_init_attention_neon(pl_kernels *k)
{
    k->attend = attend_neon;
}
