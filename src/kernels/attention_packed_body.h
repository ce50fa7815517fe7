/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on packed pages, around what a level includes before it:
 *
 *   vec, LANES       numbers side by side, with v_load, v_store, v_splat, v_mul, v_load_fp16 and
 *                    v_fma(a, b, c) = a * b + c
 *   V                vectors of sums that each of four rows keeps in registers
 *   STEP             positions whose keys are arranged at a time, by arrange
 *   scores_step      scores of up to four rows at STEP positions
 *   look_up          LANES centroids from their codes; PLAIN "bits" are f32 already
 *   softmax_row, scale_row
 *
 * Keys are arranged so that a register has neighbouring positions side by side: a score is a sum in
 * one lane, over the numbers in order. Values are taken as they lie, numbers of one position in a
 * register. Rows are taken up to four at a time to share what was unpacked; no order of a sum
 * depends on it. */
#include <string.h>

#include "codec/turboquant.h"
#include "kernels/kernels.h"

/* ---- scores ---------------------------------------------------------------------------------- */

/* All rows' scores of the positions [first, end), rounded out to steps. */
static PL_ALWAYS_INLINE void scores_bits(uint32_t bits, const pl_attend_tile *t,
                                         const uint8_t *keys, size_t first, size_t end)
{
    uint32_t words[PL_TURBOQUANT_MAX_DIM / 4][STEP] PL_ALIGNED(64);
    const uint32_t b = lane_bits(bits);
    const float bias = bits == 8 ? 128 : 0;
    size_t D = t->dim, stride = D * bits / 8, row = D + PL_ATTEND_SUMS;
    const uint16_t *scales = (const uint16_t *)(keys + P * stride);
    const uint16_t *zeros = scales + (D + GROUP - 1) / GROUP * P;
    for (size_t j = first / STEP * STEP; j < end; j += STEP) {
        arrange(words, keys + j * stride, stride, D, bits);
        size_t r = 0;
        for (; r + 4 <= t->rows; r += 4)
            scores_step(4, b, bias, t->q + r * row, D, words, scales + j, zeros + j,
                        t->scores + r * P + j);
        for (; r + 2 <= t->rows; r += 2)
            scores_step(2, b, bias, t->q + r * row, D, words, scales + j, zeros + j,
                        t->scores + r * P + j);
        if (r < t->rows)
            scores_step(1, b, bias, t->q + r * row, D, words, scales + j, zeros + j,
                        t->scores + r * P + j);
    }
}

static void scores_k2(const pl_attend_tile *t, const uint8_t *keys, size_t first, size_t end)
{
    scores_bits(2, t, keys, first, end);
}

static void scores_k4(const pl_attend_tile *t, const uint8_t *keys, size_t first, size_t end)
{
    scores_bits(4, t, keys, first, end);
}

static void scores_k5(const pl_attend_tile *t, const uint8_t *keys, size_t first, size_t end)
{
    scores_bits(5, t, keys, first, end);
}

static void scores_k8(const pl_attend_tile *t, const uint8_t *keys, size_t first, size_t end)
{
    scores_bits(8, t, keys, first, end);
}

static void add_scores(uint32_t bits, const pl_attend_tile *t, const uint8_t *keys, size_t first,
                       size_t end)
{
    switch (bits) {
    case 2:
        scores_k2(t, keys, first, end);
        return;
    case 4:
        scores_k4(t, keys, first, end);
        return;
    case 5:
        scores_k5(t, keys, first, end);
        return;
    default:
        scores_k8(t, keys, first, end);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* One group of the values of a page. */
typedef struct group {
    const uint8_t *codes; /* of position 0 */
    size_t stride, n;     /* bytes between positions; numbers */
    const uint16_t *scales;
    const float *table;
} group;

/* out[r][0 .. LANES*V) += sum over lo <= j < hi of weights[r][j] * centroid. */
static PL_ALWAYS_INLINE void values_chunk(size_t R, size_t V, uint32_t bits, float *out, size_t D,
                                          const float (*weights)[P], const group *g, size_t at,
                                          size_t lo, size_t hi)
{
    vec acc[4][4];
    for (size_t r = 0; r < R; r++)
        for (size_t i = 0; i < V; i++) acc[r][i] = v_load(out + r * D + at + LANES * i);
    const uint8_t *codes = g->codes + lo * g->stride + at * bits / 8;
    for (size_t j = lo; j < hi; j++, codes += g->stride) {
        vec v[4];
        for (size_t i = 0; i < V; i++) v[i] = look_up(bits, codes + LANES * i * bits / 8, g->table);
        for (size_t r = 0; r < R; r++) {
            vec p = v_splat(weights[r] + j);
            for (size_t i = 0; i < V; i++) acc[r][i] = v_fma(p, v[i], acc[r][i]);
        }
    }
    for (size_t r = 0; r < R; r++)
        for (size_t i = 0; i < V; i++) v_store(out + r * D + at + LANES * i, acc[r][i]);
}

/* weights = exp(score - max) * scale where the row looks, 0 elsewhere. */
static void weigh(float *weights, const float *p, const uint16_t *scales, size_t lo, size_t hi)
{
    for (size_t j = 0; j < P; j += LANES)
        v_store(weights + j, v_mul(v_load(p + j), v_load_fp16(scales + j)));
    for (size_t j = 0; j < lo; j++) weights[j] = 0;
    for (size_t j = hi; j < P; j++) weights[j] = 0;
}

/* Rows r .. r + R of the tile. R * V sums are what the registers hold. */
static PL_ALWAYS_INLINE void values_rows(size_t R, uint32_t bits, const pl_attend_tile *t, size_t r,
                                         const group *g, float *out)
{
    float weights[4][P] PL_ALIGNED(64);
    size_t lo = P, hi = 0;
    for (size_t i = 0; i < R; i++) {
        size_t l = t->lo[r + i], h = t->hi[r + i];
        weigh(weights[i], t->scores + (r + i) * P, g->scales, l, h);
        lo = l < h ? PL_MIN(lo, l) : lo;
        hi = l < h ? PL_MAX(hi, h) : hi;
    }
    const float(*w)[P] = (const float(*)[P])weights;
    size_t at = 0, D = t->dim;
    for (; at + V * LANES <= g->n; at += V * LANES)
        values_chunk(R, V, bits, out + r * D, D, w, g, at, lo, hi);
    for (; at < g->n; at += LANES) values_chunk(R, 1, bits, out + r * D, D, w, g, at, lo, hi);
}

static PL_ALWAYS_INLINE void values_tile(uint32_t bits, const pl_attend_tile *t, const group *g,
                                         float *out)
{
    size_t r = 0;
    for (; r + 4 <= t->rows; r += 4) values_rows(4, bits, t, r, g, out);
    if (r + 2 <= t->rows) {
        values_rows(2, bits, t, r, g, out);
        r += 2;
    }
    if (r < t->rows) values_rows(1, bits, t, r, g, out);
}

static void values_plain(const pl_attend_tile *t, const group *g, float *out)
{
    values_tile(PLAIN, t, g, out);
}

/* More than four rows read centroids from a table of the group that is filled once. */
static PL_ALWAYS_INLINE void values_bits(uint32_t bits, const pl_attend_tile *t, const group *g,
                                         float *out, size_t first, size_t end)
{
    if (t->rows <= 4) {
        values_tile(bits, t, g, out);
        return;
    }
    float found[P][GROUP] PL_ALIGNED(64);
    for (size_t j = first; j < end; j++)
        for (size_t i = 0; i < g->n; i += LANES)
            v_store(found[j] + i, look_up(bits, g->codes + j * g->stride + i * bits / 8, g->table));
    group plain = *g;
    plain.codes = (const uint8_t *)found;
    plain.stride = sizeof found[0];
    values_plain(t, &plain, out);
}

static void values_v2(const pl_attend_tile *t, const group *g, float *out, size_t first, size_t end)
{
    values_bits(2, t, g, out, first, end);
}

static void values_v3(const pl_attend_tile *t, const group *g, float *out, size_t first, size_t end)
{
    values_bits(3, t, g, out, first, end);
}

static void values_v4(const pl_attend_tile *t, const group *g, float *out, size_t first, size_t end)
{
    values_bits(4, t, g, out, first, end);
}

static void values_v5(const pl_attend_tile *t, const group *g, float *out, size_t first, size_t end)
{
    values_bits(5, t, g, out, first, end);
}

static void values_v8(const pl_attend_tile *t, const group *g, float *out, size_t first, size_t end)
{
    values_bits(8, t, g, out, first, end);
}

typedef void values_fn(const pl_attend_tile *t, const group *g, float *out, size_t first,
                       size_t end);

static void add_values(uint32_t bits, const pl_attend_tile *t, const uint8_t *values, size_t first,
                       size_t end)
{
    static values_fn *const by_bits[] = {[2] = values_v2, [3] = values_v3, [4] = values_v4,
                                         [5] = values_v5, [8] = values_v8};
    size_t D = t->dim, stride = D * bits / 8;
    group g = {.codes = values,
               .stride = stride,
               .scales = (const uint16_t *)(values + P * stride),
               .table = pl_turboquant_centroids(bits)};
    for (size_t at = 0; at < D; at += GROUP, g.codes += 4 * bits, g.scales += P) {
        g.n = PL_MIN(D - at, (size_t)GROUP);
        by_bits[bits](t, &g, t->out + at, first, end);
    }
}

/* ---- together -------------------------------------------------------------------------------- */

static void softmax(const pl_attend_tile *t)
{
    for (size_t r = 0; r < t->rows; r++) {
        if (t->lo[r] == t->hi[r]) continue;
        float keep = softmax_row(t->scores + r * P, t->lo[r], t->hi[r], &t->max[r], &t->sum[r]);
        if (keep != 1.0f) scale_row(t->out + r * t->dim, keep, t->dim);
    }
}

static void attend_packed_body(const pl_attend_tile *t, const pl_turboquant *type,
                               const uint8_t *keys, const uint8_t *values, size_t n)
{
    (void)n;
    size_t first = P, end = 0;
    for (size_t r = 0; r < t->rows; r++)
        if (t->lo[r] < t->hi[r]) {
            first = PL_MIN(first, t->lo[r]);
            end = PL_MAX(end, t->hi[r]);
        }
    if (first >= end) return;
    add_scores(type->key_bits, t, keys, first, end);
    softmax(t);
    add_values(type->value_bits, t, values, first, end);
}
