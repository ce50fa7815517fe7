/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products for x86: the part that AVX2 and AVX-512 share. The including file defines vec (a
 * register of LANES 32-bit integers) and the operations on it.
 *
 * Blocks are walked as trellis_codes.h says. Sums stay in its order [s][i][l] until all are done.
 *
 * The four bytes of the congruence sum to y + 510; the surplus 510 * sum(q) is taken off the
 * integer sums, which wrap modulo 2^32 on the way and fit at the end. */
#ifndef PL_KERNELS_TRELLIS_BODY_H
#define PL_KERNELS_TRELLIS_BODY_H

#include <immintrin.h>
#include <string.h>

#include "base/compiler.h"
#include "kernels/kernels.h"
#include "trellis_codes.h"

enum { GROUP_SPANS = PL_GROUP_AXIS1 / SPAN };

/* ---- the integer product --------------------------------------------------------------------- */

/* A strip is 2 LANES outputs of a tile: `pairs` pairs of 16-bit weights each, [pairs][2][LANES]. */
typedef struct strip_product {
    const vec *strip;
    size_t pairs;
    const int16_t *q; /* [n][q_stride], pairs along q */
    size_t q_stride;
    const int32_t *bias; /* [n][bias_stride]: -510 sum(q) */
    size_t bias_stride;
    const float *steps; /* [n][step_stride] */
    size_t step_stride;
    float *sums; /* [n][sum_stride] += */
    size_t sum_stride;
} strip_product;

static PL_ALWAYS_INLINE void multiply_strip(const strip_product *p, size_t m0, int n)
{
    vec sum[STRIP_ROWS][2];
    const int16_t *q[STRIP_ROWS];
    for (int m = 0; m < n; m++) {
        q[m] = p->q + (m0 + (size_t)m) * p->q_stride;
        sum[m][0] = sum[m][1] = splat(p->bias[(m0 + (size_t)m) * p->bias_stride]);
    }
    for (size_t i = 0; i < p->pairs; i++) {
        vec w0 = p->strip[2 * i], w1 = p->strip[2 * i + 1];
        for (int m = 0; m < n; m++) {
            vec pair = splat_pair(q[m] + 2 * i);
            sum[m][0] = add_pairs(sum[m][0], w0, pair);
            sum[m][1] = add_pairs(sum[m][1], w1, pair);
        }
    }
    for (int m = 0; m < n; m++) {
        float *to = p->sums + (m0 + (size_t)m) * p->sum_stride;
        float step = p->steps[(m0 + (size_t)m) * p->step_stride];
        add_scaled(to, sum[m][0], step);
        add_scaled(to + LANES, sum[m][1], step);
    }
}

static PL_NOINLINE void multiply_strip_full(const strip_product *p, size_t m0)
{
    multiply_strip(p, m0, STRIP_ROWS);
}

static PL_NOINLINE void multiply_strip_rows(const strip_product *p, size_t M)
{
    size_t m = 0;
    for (; m + STRIP_ROWS <= M; m += STRIP_ROWS) multiply_strip_full(p, m);
    if (m + 4 <= M && STRIP_ROWS > 4) {
        multiply_strip(p, m, 4);
        m += 4;
    }
    switch (M - m) {
    case 3:
        multiply_strip(p, m, 3);
        break;
    case 2:
        multiply_strip(p, m, 2);
        break;
    case 1:
        multiply_strip(p, m, 1);
        break;
    }
}

/* ---- axis 0 ---------------------------------------------------------------------------------- */

static int32_t surplus(const int16_t *q, size_t n)
{
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += q[i];
    return -510 * sum;
}

/* One span of a group's rows on one activation row: its eight steps stay in registers. `next` is
 * where the next group's codes will be read, a row at a time: rows are too far apart for the
 * processor to see it coming, and all of them asked for at once would be too many. */
static PL_ALWAYS_INLINE void axis0_span_one(float *sums, span_codes codes, size_t rows,
                                            const int32_t *words, int32_t bias, float step,
                                            const uint8_t *next, size_t row_bytes, int k, int L,
                                            int first)
{
    vec sum[8];
    for (int i = 0; i < 8; i++) sum[i] = splat(bias);
    for (size_t r = 0; r < rows; r += STEP_ROWS) {
        for (size_t i = 0; i < STEP_ROWS; i++) prefetch(next + (r + i) * row_bytes);
        add_rows(sum, codes.code + r * codes.stride, codes.stride, words[r / STEP_ROWS], k, L,
                 first);
    }
    for (int i = 0; i < 8; i++) add_scaled(sums + i * LANES, sum[i], step);
}

/* One span of a group's rows as strips of 16-bit pairs. */
static PL_ALWAYS_INLINE void axis0_span_tile(vec *tile, span_codes codes, size_t pairs,
                                             const uint8_t *next, size_t row_bytes, int k, int L,
                                             int first)
{
    for (size_t r = 0; r < pairs; r++, tile += 2) {
        const uint8_t *code = codes.code + 2 * r * codes.stride;
        prefetch(next + 2 * r * row_bytes);
        prefetch(next + (2 * r + 1) * row_bytes);
        windows a = open_windows(code, k, first), b = open_windows(code + codes.stride, k, first);
        for (int i = 0; i < 8; i++)
            tile[(size_t)(i / 2) * pairs * 2 + i % 2] =
                join(number(a, k, L, i), number(b, k, L, i));
    }
}

/* An even number of stored rows of one group. */
static PL_ALWAYS_INLINE void axis0_group(const pl_trellis_product *p, float *sums, vec *tile,
                                         const uint8_t *codes, size_t row_bytes,
                                         const uint8_t *tails, size_t r0, size_t rows, int k, int L)
{
    size_t T = p->block, pairs = rows / 2, outputs = pl_span_round(T);
    const int16_t *q = (const int16_t *)p->q + r0;
    const float *steps = p->steps + r0 / PL_GROUP_AXIS0;
    int32_t words[PL_GROUP_AXIS0], bias[PL_PRODUCT_ROWS];
    if (p->M == 1) spread_pairs(words, q, pairs);
    for (size_t m = 0; m < p->M; m++) bias[m] = surplus(q + m * p->q_stride, rows);
    for (size_t s = 0; s * SPAN < T; s++) {
        span_codes at = span_of(codes, row_bytes, tails, s, T, k);
        float *to = sums + s * SPAN;
        size_t end = PL_MIN((s + 1) * SPAN, T) * (size_t)k / 8;
        const uint8_t *next = codes + PL_GROUP_AXIS0 * row_bytes + end - 1;
        if (p->M == 1) {
            if (k == 4 && at.first)
                axis0_span_one(to, at, rows, words, bias[0], steps[0], next, row_bytes, k, L, 1);
            else
                axis0_span_one(to, at, rows, words, bias[0], steps[0], next, row_bytes, k, L, 0);
            continue;
        }
        if (k == 4 && at.first)
            axis0_span_tile(tile, at, pairs, next, row_bytes, k, L, 1);
        else
            axis0_span_tile(tile, at, pairs, next, row_bytes, k, L, 0);
        for (size_t i = 0; i < 4; i++) {
            strip_product strip = {
                tile + i * pairs * 2, pairs,  q, p->q_stride, bias, 1, steps, p->step_stride,
                to + i * 2 * LANES,   outputs};
            multiply_strip_rows(&strip, p->M);
        }
    }
}

/* An odd number of rows is copied and gets a partner of zeros, whose activation is zero. */
static PL_ALWAYS_INLINE const uint8_t *make_even(uint8_t *copies, const uint8_t *codes,
                                                 size_t row_bytes, size_t rows, size_t bytes)
{
    for (size_t r = 0; r < rows; r++) memcpy(copies + r * bytes, codes + r * row_bytes, bytes);
    memset(copies + rows * bytes, 0, bytes);
    return copies;
}

static PL_ALWAYS_INLINE void axis0(const pl_trellis_product *p, int k, int L)
{
    size_t T = p->block, outputs = pl_span_round(T), bytes = T * (size_t)k / 8;
    float *total = p->scratch, *part = total + p->M * outputs; /* [M][outputs] */
    vec *tile = (vec *)(void *)(part + p->M * outputs);        /* [4][32 pairs][2] */
    uint8_t *tails = (uint8_t *)(tile + PL_GROUP_AXIS0 * 4), *copies = tails + 64 * TAIL_BYTES;
    memset(total, 0, p->M * outputs * sizeof *total);
    for (size_t first = 0; first < p->rows; first += p->split) {
        size_t end = PL_MIN(first + p->split, p->rows);
        float *sums = p->split >= p->rows ? total : part;
        if (sums == part) memset(part, 0, p->M * outputs * sizeof *part);
        for (size_t r = first; r < end; r += PL_GROUP_AXIS0) {
            const uint8_t *codes = p->codes + r * p->row_bytes;
            size_t rows = PL_MIN(end - r, PL_GROUP_AXIS0), row_bytes = p->row_bytes;
            make_tails(tails, codes, row_bytes, rows, T, k);
            if (rows % 2) {
                codes = make_even(copies, codes, row_bytes, rows, bytes);
                row_bytes = bytes;
                memset(tails + rows * TAIL_BYTES, 0, TAIL_BYTES);
            }
            axis0_group(p, sums, tile, codes, row_bytes, tails, r, rows + rows % 2, k, L);
        }
        if (sums == part)
            for (size_t i = 0; i < p->M * outputs; i++) total[i] += part[i];
    }
    for (size_t m = 0; m < p->M; m++)
        sort_outputs(p->out + m * p->out_stride, total + m * outputs, T);
}

/* ---- axis 1 ---------------------------------------------------------------------------------- */

static const int32_t *prepared_biases(const pl_trellis_product *p)
{
    size_t row = p->blocks * pl_span_round(p->block);
    return (const int32_t *)p->q + (p->M == 1 ? row : p->M * row / 2);
}

/* One group of one stored row and one activation row. */
static PL_ALWAYS_INLINE vec axis1_dot(const uint8_t *codes, const uint8_t *tail,
                                      const int32_t *words, size_t first, size_t end, size_t T,
                                      int k, int L)
{
    vec sum[2] = {splat(0), splat(0)};
    for (size_t s = first; s < end; s++, words += SPAN / 2 * PAIR_WORDS) {
        span_codes at = span_of(codes, 0, tail, s, T, k);
        if (k == 4 && at.first)
            dot_span(sum, at.code, words, k, L, 1);
        else
            dot_span(sum, at.code, words, k, L, 0);
    }
    return add_vec(sum[0], sum[1]);
}

/* Up to LANES stored rows on one activation row. */
static PL_ALWAYS_INLINE void axis1_one(const pl_trellis_product *p, size_t r0, int k, int L)
{
    size_t T = p->block, groups = pl_block_groups(T), bytes = T * (size_t)k / 8;
    size_t rows = PL_MIN(p->rows - r0, LANES), words = pl_span_round(T) / 2 * PAIR_WORDS;
    const int32_t *bias = prepared_biases(p);
    uint8_t *tails = p->scratch;
    float sums[LANES] = {0};
    vec lanes[LANES];
    for (int r = 0; r < LANES; r++) lanes[r] = splat(0);
    for (size_t b = 0; b < p->blocks; b++) {
        const uint8_t *codes = p->codes + r0 * p->row_bytes + b * bytes;
        make_tails(tails, codes, p->row_bytes, rows, T, k);
        for (size_t g = 0; g < groups; g++) {
            size_t first = g * GROUP_SPANS,
                   end = PL_MIN(first + GROUP_SPANS, (T + SPAN - 1) / SPAN);
            const int32_t *q =
                (const int32_t *)p->q + b * words + g * PL_GROUP_AXIS1 / 2 * PAIR_WORDS;
            for (size_t r = 0; r < rows; r++)
                lanes[r] = axis1_dot(codes + r * p->row_bytes, tails + r * TAIL_BYTES, q, first,
                                     end, T, k, L);
            vec sum = add_vec(sum_lanes(lanes), splat(bias[b * groups + g]));
            add_scaled(sums, sum, p->steps[b * groups + g]);
        }
    }
    memcpy(p->out + r0, sums, rows * sizeof *sums);
}

/* Four pairs of steps of one row, LANES vectors apart. */
static PL_ALWAYS_INLINE void join_steps(vec *to, const uint8_t *code, int k, int L, int first)
{
    windows w = open_windows(code, k, first);
    for (int j = 0; j < 4; j++)
        to[(size_t)j * LANES] = join(number(w, k, L, 2 * j), number(w, k, L, 2 * j + 1));
}

/* One span of LANES rows as half a strip: pairs along u, rows in lanes. */
static PL_ALWAYS_INLINE void axis1_half_strip(vec *strip, vec *turned, span_codes at, size_t rows,
                                              int k, int L)
{
    for (size_t r = 0; r < rows; r++) {
        if (k == 4 && at.first)
            join_steps(turned + r, at.code + r * at.stride, k, L, 1);
        else
            join_steps(turned + r, at.code + r * at.stride, k, L, 0);
    }
    for (size_t j = 0; j < 4; j++) {
        transpose(turned + j * LANES);
        for (size_t l = 0; l < LANES; l++) strip[(4 * l + j) * 2] = turned[j * LANES + l];
    }
}

/* Up to 2 LANES stored rows on M activation rows. */
static PL_ALWAYS_INLINE void axis1_many(const pl_trellis_product *p, size_t r0, int k, int L)
{
    size_t T = p->block, groups = pl_block_groups(T), bytes = T * (size_t)k / 8;
    size_t rows = PL_MIN(p->rows - r0, 2 * LANES), row = p->blocks * pl_span_round(T);
    vec turned[4 * LANES];
    vec *strip = p->scratch;                                 /* [64 pairs][2] */
    float *sums = (float *)(void *)(strip + PL_GROUP_AXIS1); /* [M][2 LANES] */
    uint8_t *tails = (uint8_t *)(sums + p->M * 2 * LANES);
    memset(turned, 0, sizeof turned);
    memset(sums, 0, p->M * 2 * LANES * sizeof *sums);
    for (size_t b = 0; b < p->blocks; b++) {
        const uint8_t *codes = p->codes + r0 * p->row_bytes + b * bytes;
        make_tails(tails, codes, p->row_bytes, rows, T, k);
        for (size_t g = 0; g < groups; g++) {
            size_t n = PL_MIN(T - g * PL_GROUP_AXIS1, PL_GROUP_AXIS1);
            for (size_t i = 0; i < 2 * ((n + SPAN - 1) / SPAN); i++) {
                size_t s = i / 2, skip = i % 2 * LANES; /* lower, upper half of the rows */
                span_codes at = span_of(codes, p->row_bytes, tails, g * GROUP_SPANS + s, T, k);
                at.code += skip * at.stride;
                axis1_half_strip(strip + s * SPAN + i % 2, turned, at,
                                 rows > skip ? PL_MIN(rows - skip, LANES) : 0, k, L);
            }
            strip_product product = {strip,
                                     n / 2,
                                     (const int16_t *)p->q + b * pl_span_round(T) +
                                         g * PL_GROUP_AXIS1,
                                     row,
                                     prepared_biases(p) + b * groups + g,
                                     p->blocks * groups,
                                     p->steps + b * groups + g,
                                     p->step_stride,
                                     sums,
                                     2 * LANES};
            multiply_strip_rows(&product, p->M);
        }
    }
    for (size_t m = 0; m < p->M; m++)
        memcpy(p->out + m * p->out_stride + r0, sums + m * 2 * LANES, rows * sizeof *sums);
}

static PL_ALWAYS_INLINE void axis1(const pl_trellis_product *p, int k, int L)
{
    if (p->M == 1)
        for (size_t r = 0; r < p->rows; r += LANES) axis1_one(p, r, k, L);
    else
        for (size_t r = 0; r < p->rows; r += 2 * LANES) axis1_many(p, r, k, L);
}

/* Number u of a block, 0 beyond its end. */
static PL_ALWAYS_INLINE int16_t reversed(const int16_t *q, size_t T, size_t u)
{
    return u < T ? q[T - 1 - u] : 0;
}

static void prepare(void *dst, const int16_t *q, size_t T, size_t blocks, size_t M)
{
    size_t span = pl_span_round(T), groups = pl_block_groups(T), row = blocks * span;
    int32_t *bias = (int32_t *)dst + (M == 1 ? row : M * row / 2);
    for (size_t i = 0; i < M * blocks; i++, q += T) {
        for (size_t g = 0; g < groups; g++) {
            size_t n = PL_MIN(T - g * PL_GROUP_AXIS1, PL_GROUP_AXIS1);
            bias[i * groups + g] = surplus(q + T - g * PL_GROUP_AXIS1 - n, n);
        }
        if (M > 1) {
            int16_t *to = (int16_t *)dst + i * span;
            for (size_t u = 0; u < T; u++) to[u] = q[T - 1 - u];
            memset(to + T, 0, (span - T) * sizeof *to);
        } else {
            int32_t *to = (int32_t *)dst + i * (span / 2 * PAIR_WORDS);
            int16_t steps[SPAN];
            for (size_t s = 0; s < span / SPAN; s++) {
                for (size_t j = 0; j < SPAN; j++) /* [i/2][l][i%2] */
                    steps[j] =
                        reversed(q, T, s * SPAN + j / 2 % LANES * 8 + j / (2 * LANES) * 2 + j % 2);
                spread_steps(to + s * SPAN / 2 * PAIR_WORDS, steps);
            }
        }
    }
}

/* ---- instances ------------------------------------------------------------------------------- */

#define TRELLIS_KERNELS(isa, k, L)                                                                 \
    static void axis0_k##k##_l##L##_##isa(const pl_trellis_product *p)                             \
    {                                                                                              \
        axis0(p, k, L);                                                                            \
    }                                                                                              \
    static void axis1_k##k##_l##L##_##isa(const pl_trellis_product *p)                             \
    {                                                                                              \
        axis1(p, k, L);                                                                            \
    }

#define SET_TRELLIS_KERNELS(table, isa, k, L)                                                      \
    (table)->product.axis0[k - 2][L == 16] = axis0_k##k##_l##L##_##isa;                            \
    (table)->product.axis1[k - 2][L == 16] = axis1_k##k##_l##L##_##isa

#endif
