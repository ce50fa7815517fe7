/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products for x86: the part that AVX2 and AVX-512 share. The including file defines vec (a
 * register of LANES 32-bit integers) and the operations on it.
 *
 * Blocks are decoded in the order of their bits: number t of a block of T is at u = T - 1 - t. Each
 * lane owns eight neighbours, k bytes of code: step i of lane l of span s is u = (s LANES + l) 8 + i.
 * All windows of one lane start inside its k bytes, so a window is a load or a byte shuffle, a shift
 * by a constant and a mask. Sums stay in the order [s][i][l] until all are done.
 *
 * Codes are first copied to scratch memory ("staged"), each block with its last bytes before it and
 * its first bytes after it: windows then wrap by themselves, and nothing outside the matrix is read.
 *
 * The four bytes of the congruence sum to y + 510; the surplus 510 * sum(q) is taken off the integer
 * sums, which wrap modulo 2^32 on the way and fit at the end. */
#ifndef PL_KERNELS_TRELLIS_BODY_H
#define PL_KERNELS_TRELLIS_BODY_H

#include <immintrin.h>
#include <string.h>

#include "base/compiler.h"
#include "kernels/kernels.h"
#include "transpose.h"

enum { SPAN = 8 * LANES, MARGIN = 16 };

/* ---- staging --------------------------------------------------------------------------------- */

static PL_ALWAYS_INLINE size_t slot_bytes(size_t T, int k)
{
    return (MARGIN + pl_span_round(T) * (size_t)k / 8 + 127) / 64 * 64;
}

static PL_ALWAYS_INLINE void copy_32(uint8_t *dst, const uint8_t *src)
{
    _mm256_storeu_si256((__m256i *)(void *)dst, _mm256_loadu_si256((const void *)src));
}

static PL_ALWAYS_INLINE void stage(uint8_t *slot, const uint8_t *block, size_t bytes)
{
    uint8_t *dst = slot + MARGIN;
    memcpy(dst - 8, block + bytes - 8, 8);
    if (bytes < 32) {
        memcpy(dst, block, bytes);
    } else {
        for (size_t i = 0; i + 32 <= bytes; i += 32) copy_32(dst + i, block + i);
        if (bytes % 32) copy_32(dst + bytes - 32, block + bytes - 32);
    }
    memcpy(dst + bytes, block, 8);
}

/* Rows of one block, `row_bytes` apart; what comes `ahead` bytes later is fetched into the cache. */
static PL_ALWAYS_INLINE void stage_rows(uint8_t *slots, const uint8_t *codes, size_t row_bytes,
                                        size_t rows, size_t T, int k, size_t ahead)
{
    size_t bytes = T * (size_t)k / 8, slot = slot_bytes(T, k);
    for (size_t r = 0; r < rows; r++) {
        const uint8_t *block = codes + r * row_bytes;
        for (size_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)block + ahead + i, _MM_HINT_T0);
        stage(slots + r * slot, block, bytes);
    }
}

/* ---- order ----------------------------------------------------------------------------------- */

/* out[t] for t < T from sums in the order [s][i][l]. Eight lanes at a time: steps 7 to 0 of one lane
 * are eight neighbouring outputs. */
static PL_NOINLINE void sort_outputs(float *out, const float *sums, size_t T)
{
    for (size_t l = 0; 8 * l < T; l += 8) {
        __m256 v[8];
        const float *from = sums + l / LANES * SPAN + l % LANES;
        for (size_t i = 0; i < 8; i++) v[i] = _mm256_loadu_ps(from + (7 - i) * LANES);
        transpose_8x8(v);
        for (size_t i = 0; i < 8 && 8 * (l + i) < T; i++)
            _mm256_storeu_ps(out + T - 8 - 8 * (l + i), v[i]);
    }
}

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
    case 3: multiply_strip(p, m, 3); break;
    case 2: multiply_strip(p, m, 2); break;
    case 1: multiply_strip(p, m, 1); break;
    }
}

/* ---- axis 0 ---------------------------------------------------------------------------------- */

static int32_t surplus(const int16_t *q, size_t n)
{
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += q[i];
    return -510 * sum;
}

/* Rows of one group, all of it on one activation row: eight steps of a span stay in registers. */
static PL_ALWAYS_INLINE void axis0_group_one(float *sums, const uint8_t *slots, size_t rows,
                                             size_t T, const int16_t *q, float step, int k, int L)
{
    size_t slot = slot_bytes(T, k), pairs = (rows + 1) / 2;
    int32_t words[PL_GROUP_AXIS0 / 2 * PAIR_WORDS];
    spread_pairs(words, q, pairs);
    int32_t bias = surplus(q, 2 * pairs);
    for (size_t s = 0; s * SPAN < T; s++) {
        const uint8_t *code = slots + MARGIN + s * LANES * (size_t)k;
        vec sum[8];
        for (int i = 0; i < 8; i++) sum[i] = splat(bias);
        for (size_t r = 0, i = 0; r < 2 * pairs; r += STEP_ROWS, i++)
            add_rows(sum, code + r * slot, slot, words[i], k, L);
        for (int i = 0; i < 8; i++) add_scaled(sums + s * SPAN + i * LANES, sum[i], step);
    }
}

/* Rows of one group as a tile of 16-bit pairs, strip after strip. */
static PL_ALWAYS_INLINE void axis0_tile(vec *tile, const uint8_t *slots, size_t pairs, size_t T,
                                        int k, int L)
{
    size_t slot = slot_bytes(T, k);
    for (size_t s = 0; s * SPAN < T; s++)
        for (size_t r = 0; r < pairs; r++) {
            const uint8_t *code = slots + MARGIN + s * LANES * (size_t)k + 2 * r * slot;
            windows a = open_windows(code, k), b = open_windows(code + slot, k);
            vec *to = tile + (s * 4 * pairs + r) * 2;
            for (int i = 0; i < 8; i++)
                to[(size_t)(i / 2) * pairs * 2 + i % 2] =
                    join(number(a, k, L, i), number(b, k, L, i));
        }
}

static PL_ALWAYS_INLINE void axis0_group(const pl_trellis_product *p, float *sums, vec *tile,
                                         const uint8_t *slots, size_t r0, size_t rows, int k, int L)
{
    size_t T = p->block, pairs = (rows + 1) / 2, outputs = pl_span_round(T);
    const int16_t *q = (const int16_t *)p->q + r0;
    const float *steps = p->steps + r0 / PL_GROUP_AXIS0;
    if (p->M == 1) {
        axis0_group_one(sums, slots, rows, T, q, steps[0], k, L);
        return;
    }
    int32_t bias[PL_PRODUCT_ROWS];
    for (size_t m = 0; m < p->M; m++) bias[m] = surplus(q + m * p->q_stride, 2 * pairs);
    axis0_tile(tile, slots, pairs, T, k, L);
    for (size_t strip = 0; strip * 2 * LANES < (T + SPAN - 1) / SPAN * SPAN; strip++) {
        strip_product s = {tile + strip * pairs * 2, pairs, q, p->q_stride, bias, 1, steps,
                           p->step_stride, sums + strip * 2 * LANES, outputs};
        multiply_strip_rows(&s, p->M);
    }
}

static PL_ALWAYS_INLINE void axis0(const pl_trellis_product *p, int k, int L)
{
    size_t T = p->block, slot = slot_bytes(T, k), outputs = pl_span_round(T);
    float *total = p->scratch, *part = total + p->M * outputs; /* [M][outputs] */
    vec *tile = (vec *)(void *)(part + p->M * outputs);
    uint8_t *slots = (uint8_t *)tile + (p->M > 1 ? PL_GROUP_AXIS0 * outputs * 2 : 0);
    memset(total, 0, p->M * outputs * sizeof *total);
    for (size_t first = 0; first < p->rows; first += p->split) {
        size_t end = PL_MIN(first + p->split, p->rows);
        memset(part, 0, p->M * outputs * sizeof *part);
        for (size_t r = first; r < end; r += PL_GROUP_AXIS0) {
            size_t rows = PL_MIN(end - r, PL_GROUP_AXIS0);
            stage_rows(slots, p->codes + r * p->row_bytes, p->row_bytes, rows, T, k,
                       PL_GROUP_AXIS0 * p->row_bytes);
            if (rows % 2) memset(slots + rows * slot, 0, slot);
            axis0_group(p, part, tile, slots, r, rows, k, L);
        }
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

/* Up to LANES stored rows on one activation row. */
static PL_ALWAYS_INLINE void axis1_one(const pl_trellis_product *p, size_t r0, int k, int L)
{
    size_t T = p->block, slot = slot_bytes(T, k), groups = pl_block_groups(T);
    size_t rows = PL_MIN(p->rows - r0, LANES), words = pl_span_round(T) / 2 * PAIR_WORDS;
    const int32_t *bias = prepared_biases(p);
    uint8_t *slots = p->scratch;
    float sums[LANES] = {0};
    vec lanes[LANES];
    for (int r = 0; r < LANES; r++) lanes[r] = splat(0);
    for (size_t b = 0; b < p->blocks; b++) {
        const int32_t *q = (const int32_t *)p->q + b * words;
        size_t bytes = T * (size_t)k / 8;
        stage_rows(slots, p->codes + r0 * p->row_bytes + b * bytes, p->row_bytes, rows, T, k,
                   p->row_bytes * LANES);
        for (size_t g = 0; g < groups; g++) {
            size_t spans = (PL_MIN(T - g * PL_GROUP_AXIS1, PL_GROUP_AXIS1) + SPAN - 1) / SPAN;
            const uint8_t *code = slots + MARGIN + g * PL_GROUP_AXIS1 * (size_t)k / 8;
            for (size_t r = 0; r < rows; r++)
                lanes[r] = dot_row(code + r * slot, q + g * PL_GROUP_AXIS1 / 2 * PAIR_WORDS, spans,
                                   k, L);
            vec sum = add_vec(sum_lanes(lanes), splat(bias[b * groups + g]));
            add_scaled(sums, sum, p->steps[b * groups + g]);
        }
    }
    memcpy(p->out + r0, sums, rows * sizeof *sums);
}

/* One group of LANES rows as half a strip: pairs along u, rows in lanes. */
static PL_ALWAYS_INLINE void axis1_half_strip(vec *strip, vec *turned, const uint8_t *code,
                                              size_t rows, size_t slot, size_t spans, int k, int L)
{
    for (size_t s = 0; s < spans; s++) {
        for (size_t r = 0; r < rows; r++) {
            windows w = open_windows(code + r * slot + s * LANES * (size_t)k, k);
            for (int j = 0; j < 4; j++)
                turned[(size_t)j * LANES + r] =
                    join(number(w, k, L, 2 * j), number(w, k, L, 2 * j + 1));
        }
        for (size_t j = 0; j < 4; j++) {
            transpose(turned + j * LANES);
            for (size_t l = 0; l < LANES; l++)
                strip[(s * SPAN / 2 + 4 * l + j) * 2] = turned[j * LANES + l];
        }
    }
}

/* Up to 2 LANES stored rows on M activation rows. */
static PL_ALWAYS_INLINE void axis1_many(const pl_trellis_product *p, size_t r0, int k, int L)
{
    size_t T = p->block, slot = slot_bytes(T, k), groups = pl_block_groups(T);
    size_t rows = PL_MIN(p->rows - r0, 2 * LANES), row = p->blocks * pl_span_round(T);
    vec turned[4 * LANES];
    vec *strip = p->scratch; /* [64 pairs][2] */
    float *sums = (float *)(void *)(strip + PL_GROUP_AXIS1); /* [M][2 LANES] */
    uint8_t *slots = (uint8_t *)(sums + p->M * 2 * LANES);
    memset(turned, 0, sizeof turned);
    memset(sums, 0, p->M * 2 * LANES * sizeof *sums);
    for (size_t b = 0; b < p->blocks; b++) {
        stage_rows(slots, p->codes + r0 * p->row_bytes + b * T * (size_t)k / 8, p->row_bytes, rows,
                   T, k, p->row_bytes * 2 * LANES);
        for (size_t g = 0; g < groups; g++) {
            size_t n = PL_MIN(T - g * PL_GROUP_AXIS1, PL_GROUP_AXIS1);
            for (size_t h = 0; h < 2; h++) {
                size_t left = rows > h * LANES ? PL_MIN(rows - h * LANES, LANES) : 0;
                axis1_half_strip(strip + h, turned,
                                 slots + MARGIN + g * PL_GROUP_AXIS1 * (size_t)k / 8 +
                                     h * LANES * slot,
                                 left, slot, (n + SPAN - 1) / SPAN, k, L);
            }
            strip_product s = {strip, n / 2,
                               (const int16_t *)p->q + b * pl_span_round(T) + g * PL_GROUP_AXIS1,
                               row, prepared_biases(p) + b * groups + g, p->blocks * groups,
                               p->steps + b * groups + g, p->step_stride, sums, 2 * LANES};
            multiply_strip_rows(&s, p->M);
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
                    steps[j] = reversed(q, T,
                                        s * SPAN + j / 2 % LANES * 8 + j / (2 * LANES) * 2 + j % 2);
                spread_steps(to + s * SPAN / 2 * PAIR_WORDS, steps);
            }
        }
    }
}

/* ---- instances ------------------------------------------------------------------------------- */

#define TRELLIS_KERNELS(isa, k, L)                                                                 \
    static void axis0_k##k##_l##L##_##isa(const pl_trellis_product *p) { axis0(p, k, L); }         \
    static void axis1_k##k##_l##L##_##isa(const pl_trellis_product *p) { axis1(p, k, L); }

#define SET_TRELLIS_KERNELS(table, isa, k, L)                                                      \
    (table)->product.axis0[k - 2][L == 16] = axis0_k##k##_l##L##_##isa;                            \
    (table)->product.axis1[k - 2][L == 16] = axis1_k##k##_l##L##_##isa

#endif
