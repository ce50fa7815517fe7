/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products in integers for x86: the part that AVX2 and AVX-512 share. Codes are walked as
 * trellis_codes.h says; sums stay in its order of steps until all are done.
 *
 * Numbers are multiplied as 32-bit words of one, two or four of them: of neighbouring stored rows
 * (axis 0) or steps (axis 1). The including file defines
 *   keep, splat, add_vec, load_vec, add_scaled, sum_lanes, transpose
 *   word_numbers(i8, M)        how many numbers a word holds
 *   word_of(a, b, c, d, i8, n) the word of n numbers' congruences
 *   add_words(sum, w, q, i8)   the product of such a word with a word of activations
 *   finish(sum, bias, i8)      the integer sum, given -510 or -1017 sum(q)
 *   DIRECT_SUMS, STRIP_ROWS    how many sums fit in registers
 *
 * Up to DIRECT_M activation rows may meet the words in registers. Else words are decoded once to a
 * tile in the first-level cache. */
#ifndef PL_KERNELS_TRELLIS_BODY_H
#define PL_KERNELS_TRELLIS_BODY_H

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"
#include "kernels/kernels.h"
#include "trellis_codes.h"

enum {
    GROUP_SPANS = PL_GROUP_AXIS1 / SPAN,
    GROUP_WORDS =
        32, /* of axis 0: most words of a group and activation row, unless that is alone */
    LINE = 64
};

/* ---- codes ----------------------------------------------------------------------------------- */

/* Blocks of several rows are copied together: rows of a matrix lie a power of two apart more often
 * than not, where they push each other out of the first-level cache. Each block is followed by its
 * own first bytes and follows its last ones, as it wraps. */
static PL_ALWAYS_INLINE size_t copy_stride(size_t T, int k)
{
    return (T * (size_t)k / 8 + 16 + LINE - 1) / LINE * LINE;
}

static PL_ALWAYS_INLINE void copy_block(uint8_t *to, const uint8_t *block, size_t bytes)
{
    const size_t step = sizeof(vec);
    if (bytes >= step) {
        for (size_t i = 0; i + step <= bytes; i += step) store_vec(to + i, load_vec(block + i));
        store_vec(to + bytes - step, load_vec(block + bytes - step));
    } else {
        memcpy(to, block, bytes);
    }
    memcpy(to - 8, block + bytes - 8, 8);
    memcpy(to + bytes, block, 8);
}

/* Copies at `to` + LINE, copy_stride apart. */
static PL_ALWAYS_INLINE const uint8_t *copy_rows(uint8_t *to, const uint8_t *codes,
                                                 size_t row_bytes, size_t rows, size_t T, int k)
{
    const size_t stride = copy_stride(T, k);
    for (size_t r = 0; r < rows; r++)
        copy_block(to + LINE + r * stride, codes + r * row_bytes, T * (size_t)k / 8);
    return to + LINE;
}

/* The step i of up to four rows' windows. */
static PL_ALWAYS_INLINE vec word_of_rows(const windows *w, int k, int L, int i, int i8, int n)
{
    vec a = number(w[0], k, L, i), b = n > 1 ? number(w[1], k, L, i) : a;
    vec c = n > 2 ? number(w[2], k, L, i) : a, d = n > 2 ? number(w[3], k, L, i) : a;
    return word_of(a, b, c, d, i8, n);
}

/* Word j of one row's steps. */
static PL_ALWAYS_INLINE vec word_of_steps(windows w, int k, int L, int j, int i8, int n)
{
    vec a = number(w, k, L, n * j), b = n > 1 ? number(w, k, L, n * j + 1) : a;
    vec c = n > 2 ? number(w, k, L, n * j + 2) : a, d = n > 2 ? number(w, k, L, n * j + 3) : a;
    return word_of(a, b, c, d, i8, n);
}

/* ---- activations ----------------------------------------------------------------------------- */

/* One word of n activations. */
static PL_ALWAYS_INLINE int32_t activation_word(const int16_t *q, int n)
{
    uint32_t word;
    if (n == 4)
        return (int32_t)((q[0] & 255u) | (q[1] & 255u) << 8 | (q[2] & 255u) << 16 |
                         (uint32_t)q[3] << 24);
    if (n == 1) return (int32_t)((uint16_t)q[0] * 0x10001u);
    memcpy(&word, q, sizeof word);
    return (int32_t)word;
}

/* What makes the sum of q times the bytes of the congruence, or times 8 h, one of q times y or w.
 */
static int32_t surplus(const int16_t *q, size_t n, int i8)
{
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += q[i];
    return (i8 ? -1017 : -510) * sum;
}

/* ---- the product of a tile ------------------------------------------------------------------- */

/* A strip is 2 LANES outputs of a tile: `words` words of weights each, [words][2][LANES]. */
typedef struct strip_product {
    const vec *strip;
    size_t words;
    const int32_t *q; /* [n][q_stride] */
    size_t q_stride;
    const int32_t *bias; /* [n][bias_stride] */
    size_t bias_stride;
    const float *steps; /* [n][step_stride] */
    size_t step_stride;
    float *sums; /* [n][sum_stride] += */
    size_t sum_stride;
} strip_product;

static PL_ALWAYS_INLINE void multiply_strip(const strip_product *p, size_t m0, int n, int i8)
{
    const vec *strip = p->strip;
    const size_t words = p->words;
    vec sum[STRIP_ROWS][2];
    const int32_t *q[STRIP_ROWS];
    for (int m = 0; m < n; m++) {
        q[m] = p->q + (m0 + (size_t)m) * p->q_stride;
        sum[m][0] = sum[m][1] = splat(0);
    }
    for (size_t i = 0; i < words; i++) {
        vec w0 = keep(strip[2 * i]), w1 = keep(strip[2 * i + 1]);
        for (int m = 0; m < n; m++) {
            vec word = keep(splat(q[m][i]));
            sum[m][0] = add_words(sum[m][0], w0, word, i8);
            sum[m][1] = add_words(sum[m][1], w1, word, i8);
        }
    }
    for (int m = 0; m < n; m++) {
        float *to = p->sums + (m0 + (size_t)m) * p->sum_stride;
        float step = p->steps[(m0 + (size_t)m) * p->step_stride];
        vec bias = splat(p->bias[(m0 + (size_t)m) * p->bias_stride]);
        add_scaled(to, finish(sum[m][0], bias, i8), step);
        add_scaled(to + LANES, finish(sum[m][1], bias, i8), step);
    }
}

static PL_NOINLINE void multiply_strip_i16(const strip_product *p, size_t m0)
{
    multiply_strip(p, m0, STRIP_ROWS, 0);
}

static PL_NOINLINE void multiply_strip_i8(const strip_product *p, size_t m0)
{
    multiply_strip(p, m0, STRIP_ROWS, 1);
}

static PL_NOINLINE void multiply_strip_rest(const strip_product *p, size_t m, size_t n, int i8)
{
    if (n >= 4) {
        i8 ? multiply_strip(p, m, 4, 1) : multiply_strip(p, m, 4, 0);
        m += 4;
        n -= 4;
    }
    for (; n; m++, n--) i8 ? multiply_strip(p, m, 1, 1) : multiply_strip(p, m, 1, 0);
}

static PL_NOINLINE void multiply_strip_rows(const strip_product *p, size_t M, int i8)
{
    size_t m = 0;
    for (; m + STRIP_ROWS <= M; m += STRIP_ROWS)
        (i8 ? multiply_strip_i8 : multiply_strip_i16)(p, m);
    if (m < M) multiply_strip_rest(p, m, M - m, i8);
}

/* ---- axis 0 ---------------------------------------------------------------------------------- */

/* The rows of one group in one block column. */
typedef struct axis0_group {
    const uint8_t *codes;            /* copies, code_stride apart */
    size_t code_stride, rows, block; /* rows: a multiple of 4 */
    const uint8_t *next;             /* what will be read after it, next_stride apart */
    size_t next_stride;
    const int32_t *words; /* [M][GROUP_WORDS] of activations */
    const int32_t *bias;  /* [M] */
    const float *steps;   /* [M][step_stride] */
    size_t step_stride, M;
    float *sums; /* as sums_at says */
    vec *tile;
} axis0_group;

/* The sums of axis 0 are [s][i / 2][m][i % 2][l]: what a strip adds to lies together, and the rows
 * not a power of two apart. */
static PL_ALWAYS_INLINE size_t sums_at(size_t s, size_t i, size_t m, size_t M)
{
    return (((s * 4 + i / 2) * M + m) * 2 + i % 2) * LANES;
}

/* Where the next codes of this span end: rows are too far apart for the processor to see them
 * coming, and all of them asked for at once would be too many. */
static PL_ALWAYS_INLINE const uint8_t *next_span(const axis0_group *p, size_t s, int k)
{
    return p->next + PL_MIN((s + 1) * SPAN, p->block) * (size_t)k / 8 - 1;
}

/* Steps i0 .. i0 + S - 1 of span s on M activation rows (M >= p->M), sums in registers. */
static PL_ALWAYS_INLINE void axis0_pass(const axis0_group *p, size_t s, int k, int L, int i8, int M,
                                        int i0, int S)
{
    const int n = word_numbers(i8, M);
    const uint8_t *next = next_span(p, s, k), *code = p->codes + s * LANES * (size_t)k;
    const size_t rows = p->rows, stride = p->code_stride, next_stride = p->next_stride;
    const int32_t *words = p->words;
    vec sum[8][DIRECT_M];
    for (int i = 0; i < S; i++)
        for (int m = 0; m < M; m++) sum[i][m] = splat(0);
    for (size_t r = 0; r < rows; r += (size_t)n) {
        windows w[4];
        for (int j = 0; j < n; j++, code += stride, next += next_stride) {
            w[j] = open_windows(code, k, 0);
            if (i0 == 0) prefetch(next);
        }
        PL_UNROLL
        for (int i = 0; i < S; i++) {
            vec word = keep(word_of_rows(w, k, L, i0 + i, i8, n));
            PL_UNROLL
            for (int m = 0; m < M; m++) {
                vec q = splat(words[(size_t)m * GROUP_WORDS + r / (size_t)n]);
                sum[i][m] = add_words(sum[i][m], word, q, i8);
            }
        }
    }
    for (int m = 0; m < M && (size_t)m < p->M; m++)
        for (int i = 0; i < S; i++)
            add_scaled(p->sums + sums_at(s, (size_t)(i0 + i), (size_t)m, p->M),
                       finish(sum[i][m], splat(p->bias[m]), i8),
                       p->steps[(size_t)m * p->step_stride]);
}

static PL_ALWAYS_INLINE void axis0_direct(const axis0_group *p, size_t s, int k, int L, int i8,
                                          int M)
{
    const int S = PL_MIN(DIRECT_SUMS / M, 8);
    axis0_pass(p, s, k, L, i8, M, 0, S);
    if (S < 8) axis0_pass(p, s, k, L, i8, M, S, S);
    if (S < 4) {
        axis0_pass(p, s, k, L, i8, M, 2 * S, S);
        axis0_pass(p, s, k, L, i8, M, 3 * S, S);
    }
}

/* One span as four strips of words, and their product. */
static PL_ALWAYS_INLINE void axis0_tile(const axis0_group *p, size_t s, int k, int L, int i8)
{
    const int n = word_numbers(i8, PL_PRODUCT_ROWS);
    const size_t words = p->rows / (size_t)n;
    const uint8_t *next = next_span(p, s, k), *code = p->codes + s * LANES * (size_t)k;
    vec *tile = p->tile;
    for (size_t r = 0; r < p->rows; r += (size_t)n, tile += 2) {
        windows w[4];
        for (int j = 0; j < n; j++, code += p->code_stride, next += p->next_stride) {
            w[j] = open_windows(code, k, 0);
            prefetch(next);
        }
        PL_UNROLL
        for (int i = 0; i < 8; i++)
            tile[(size_t)(i / 2) * words * 2 + i % 2] = word_of_rows(w, k, L, i, i8, n);
    }
    for (size_t i = 0; i < 4; i++) {
        strip_product strip = {p->tile + i * words * 2,
                               words,
                               p->words,
                               GROUP_WORDS,
                               p->bias,
                               1,
                               p->steps,
                               p->step_stride,
                               p->sums + sums_at(s, 2 * i, 0, p->M),
                               2 * LANES};
        multiply_strip_rows(&strip, p->M, i8);
    }
}

/* One span of a group for a class of M: 1, 2, up to DIRECT_M, or by a tile. */
typedef void axis0_span_fn(const axis0_group *p, size_t s);
enum { M_CLASSES = 4 };

/* A single row never is worth a tile. */
static bool by_tile(size_t M, bool tile)
{
    return M > DIRECT_M || (tile && M > 1);
}

static size_t class_of(const pl_trellis_product *p)
{
    return by_tile(p->M, p->tile) ? 3 : p->M <= 2 ? p->M - 1 : 2;
}

static PL_ALWAYS_INLINE void axis0_span(const axis0_group *p, size_t s, int k, int L, int i8, int M)
{
    if (M > DIRECT_M)
        axis0_tile(p, s, k, L, i8);
    else
        axis0_direct(p, s, k, L, i8, M);
}

/* Row m in the order of the outputs. Eight lanes at a time: steps 7 to 0 of one lane are eight
 * neighbouring outputs. */
static PL_NOINLINE void sort_sums(float *out, const float *sums, size_t T, size_t m, size_t M)
{
    for (size_t l = 0; 8 * l < T; l += 8) {
        __m256 v[8];
        for (size_t i = 0; i < 8; i++)
            v[i] = _mm256_loadu_ps(sums + sums_at(l / LANES, 7 - i, m, M) + l % LANES);
        transpose_8x8(v);
        for (size_t i = 0; i < 8 && 8 * (l + i) < T; i++)
            _mm256_storeu_ps(out + T - 8 - 8 * (l + i), v[i]);
    }
}

static PL_ALWAYS_INLINE void axis0_words(const pl_trellis_product *p, int32_t *words, int32_t *bias,
                                         size_t r0, size_t rows, int i8, int n)
{
    for (size_t m = 0; m < p->M; m++) {
        const int16_t *q = (const int16_t *)p->q + m * p->q_stride + r0;
        bias[m] = surplus(q, rows, i8);
        for (size_t i = 0; i < rows / (size_t)n; i++)
            words[m * GROUP_WORDS + i] = activation_word(q + i * (size_t)n, n);
    }
}

static PL_ALWAYS_INLINE void axis0(const pl_trellis_product *p, int k, int i8,
                                   axis0_span_fn *const spans[M_CLASSES])
{
    axis0_span_fn *run_span = spans[class_of(p)];
    size_t T = p->block, outputs = pl_span_round(T), bytes = T * (size_t)k / 8;
    float *total = p->scratch, *part = total + p->M * outputs; /* [M][outputs] */
    vec *tile = (vec *)(void *)(part + p->M * outputs);        /* [4][words][2] */
    uint8_t *copies = (uint8_t *)(tile + PL_GROUP_AXIS0 * 4);
    const size_t stride = copy_stride(T, k);
    int32_t words[PL_PRODUCT_ROWS * GROUP_WORDS], bias[PL_PRODUCT_ROWS];
    if (!by_tile(p->M, p->tile)) memset(words, 0, DIRECT_M * GROUP_WORDS * sizeof *words);
    memset(total, 0, p->M * outputs * sizeof *total);
    for (size_t first = 0; first < p->rows; first += p->split) {
        size_t end = PL_MIN(first + p->split, p->rows);
        float *sums = p->split >= p->rows ? total : part;
        if (sums == part) memset(part, 0, p->M * outputs * sizeof *part);
        for (size_t r = first; r < end; r += PL_GROUP_AXIS0) {
            const uint8_t *codes = p->codes + r * p->row_bytes;
            size_t rows = PL_MIN(end - r, PL_GROUP_AXIS0);
            /* After the last group comes, as a rule, the first of the block beside it. */
            const uint8_t *next = r + PL_GROUP_AXIS0 < p->rows
                                      ? codes + PL_GROUP_AXIS0 * p->row_bytes
                                      : p->codes + bytes;
            codes = copy_rows(copies, codes, p->row_bytes, rows, T, k);
            /* Numbers of no row meet activations of zero. */
            for (; rows % 4; rows++) memset(copies + LINE + rows * stride, 0, stride);
            if (p->M == 1)
                axis0_words(p, words, bias, r, rows, i8, word_numbers(i8, 1));
            else
                axis0_words(p, words, bias, r, rows, i8, word_numbers(i8, 2));
            axis0_group group = {codes,
                                 stride,
                                 rows,
                                 T,
                                 next,
                                 p->row_bytes,
                                 words,
                                 bias,
                                 p->steps + r / PL_GROUP_AXIS0,
                                 p->step_stride,
                                 p->M,
                                 sums,
                                 tile};
            for (size_t s = 0; s * SPAN < T; s++) run_span(&group, s);
        }
        if (sums == part)
            for (size_t i = 0; i < p->M * outputs; i++) total[i] += part[i];
    }
    for (size_t m = 0; m < p->M; m++) sort_sums(p->out + m * p->out_stride, total, T, m, p->M);
}

/* ---- axis 1 ---------------------------------------------------------------------------------- */

/* Prepared activations: words of each row, in the order [s][j][l] of what word_of_steps gives for
 * rows in registers, else along u; then the biases [M][blocks][groups]. */
static PL_ALWAYS_INLINE size_t prepared_row(size_t T, size_t blocks, size_t M, int i8)
{
    return blocks * pl_span_round(T) / (size_t)word_numbers(i8, (int)M);
}

/* One group of one stored row on M activation rows, M >= those there are: sum[m]. */
static PL_ALWAYS_INLINE void axis1_dots(vec *sum, size_t sum_stride, const uint8_t *code,
                                        const int32_t *const *q, size_t spans, int k, int L, int i8,
                                        int M)
{
    const int n = word_numbers(i8, M), W = 8 / n;
    vec lane[DIRECT_M][2];
    for (int m = 0; m < M; m++) lane[m][0] = lane[m][1] = splat(0);
    for (size_t s = 0, at_word = 0; s < spans; s++, at_word += (size_t)W * LANES) {
        windows w = open_windows(code + s * LANES * (size_t)k, k, 0);
        PL_UNROLL
        for (int j = 0; j < W; j++) {
            vec word = keep(word_of_steps(w, k, L, j, i8, n));
            PL_UNROLL
            for (int m = 0; m < M; m++) {
                vec x = load_vec(q[m] + at_word + (size_t)j * LANES);
                lane[m][j % 2] = add_words(lane[m][j % 2], word, x, i8);
            }
        }
    }
    for (int m = 0; m < M; m++) sum[(size_t)m * sum_stride] = add_vec(lane[m][0], lane[m][1]);
}

/* What a row reads two blocks later, or LANES rows below after its last: there are more rows side
 * by side than the processor follows. */
static PL_ALWAYS_INLINE void prefetch_block(const pl_trellis_product *p, size_t row, size_t b,
                                            size_t bytes)
{
    bool below = b + 2 >= p->blocks;
    const uint8_t *to = p->codes + (row + below * LANES) * p->row_bytes;
    to += (below ? (b + 2 - p->blocks) % p->blocks : b + 2) * bytes;
    for (size_t i = 0; i < bytes; i += LINE) prefetch(to + i);
}

/* Up to LANES stored rows on p->M <= M activation rows. */
static PL_ALWAYS_INLINE void axis1_direct(const pl_trellis_product *p, size_t r0, int k, int L,
                                          int i8, int M)
{
    size_t T = p->block, groups = pl_block_groups(T), bytes = T * (size_t)k / 8;
    size_t rows = PL_MIN(p->rows - r0, LANES), row = prepared_row(T, p->blocks, p->M, i8);
    const int32_t *q0 = p->q, *bias = q0 + p->M * row, *q[DIRECT_M];
    const size_t stride = copy_stride(T, k);
    float sums[DIRECT_M][LANES] = {{0}};
    vec lanes[DIRECT_M][LANES];
    memset(lanes, 0, sizeof lanes);
    for (size_t b = 0; b < p->blocks; b++) {
        const uint8_t *codes = copy_rows(p->scratch, p->codes + r0 * p->row_bytes + b * bytes,
                                         p->row_bytes, rows, T, k);
        for (size_t g = 0; g < groups; g++) {
            size_t first = g * GROUP_SPANS;
            size_t spans = PL_MIN(GROUP_SPANS, (T + SPAN - 1) / SPAN - first);
            for (int m = 0; m < M; m++)
                q[m] = q0 + PL_MIN((size_t)m, p->M - 1) * row +
                       (b * pl_span_round(T) + g * PL_GROUP_AXIS1) / (size_t)word_numbers(i8, M);
            for (size_t r = 0; r < rows; r++) {
                if (g == 0) prefetch_block(p, r0 + r, b, bytes);
                axis1_dots(&lanes[0][r], LANES, codes + r * stride + first * LANES * (size_t)k, q,
                           spans, k, L, i8, M);
            }
            for (size_t m = 0; m < p->M; m++) {
                size_t i = m * p->blocks * groups + b * groups + g;
                add_scaled(sums[m], finish(sum_lanes(lanes[m]), splat(bias[i]), i8),
                           p->steps[m * p->step_stride + b * groups + g]);
            }
        }
    }
    for (size_t m = 0; m < p->M; m++)
        memcpy(p->out + m * p->out_stride + r0, sums[m], rows * sizeof(float));
}

/* The words of one row's span, LANES vectors apart. */
static PL_ALWAYS_INLINE void join_steps(vec *to, const uint8_t *code, int k, int L, int i8)
{
    const int n = word_numbers(i8, PL_PRODUCT_ROWS);
    windows w = open_windows(code, k, 0);
    PL_UNROLL
    for (int j = 0; j < 8 / n; j++) to[(size_t)j * LANES] = word_of_steps(w, k, L, j, i8, n);
}

/* One span of LANES rows as half a strip: words along u, rows in lanes. */
static PL_ALWAYS_INLINE void axis1_half_strip(vec *strip, vec *turned, const uint8_t *code,
                                              size_t stride, size_t rows, int k, int L, int i8)
{
    const size_t W = 8 / (size_t)word_numbers(i8, PL_PRODUCT_ROWS);
    for (size_t r = 0; r < rows; r++) join_steps(turned + r, code + r * stride, k, L, i8);
    for (size_t j = 0; j < W; j++) {
        transpose(turned + j * LANES);
        for (size_t l = 0; l < LANES; l++) strip[(W * l + j) * 2] = turned[j * LANES + l];
    }
}

/* Up to 2 LANES stored rows on M activation rows. */
static PL_ALWAYS_INLINE void axis1_many(const pl_trellis_product *p, size_t r0, int k, int L,
                                        int i8)
{
    const size_t numbers = (size_t)word_numbers(i8, PL_PRODUCT_ROWS);
    size_t T = p->block, groups = pl_block_groups(T), bytes = T * (size_t)k / 8;
    size_t rows = PL_MIN(p->rows - r0, 2 * LANES), row = prepared_row(T, p->blocks, p->M, i8);
    const int32_t *q = p->q, *bias = q + p->M * row;
    vec turned[4 * LANES];
    vec *strip = p->scratch;                                 /* [words][2] */
    float *sums = (float *)(void *)(strip + PL_GROUP_AXIS1); /* [M][2 LANES] */
    uint8_t *copies = (uint8_t *)(sums + p->M * 2 * LANES);
    const size_t stride = copy_stride(T, k);
    memset(turned, 0, sizeof turned);
    memset(sums, 0, p->M * 2 * LANES * sizeof *sums);
    for (size_t b = 0; b < p->blocks; b++) {
        const uint8_t *codes =
            copy_rows(copies, p->codes + r0 * p->row_bytes + b * bytes, p->row_bytes, rows, T, k);
        for (size_t g = 0; g < groups; g++) {
            size_t n = PL_MIN(T - g * PL_GROUP_AXIS1, PL_GROUP_AXIS1);
            for (size_t i = 0; i < 2 * ((n + SPAN - 1) / SPAN); i++) {
                size_t s = i / 2, skip = i % 2 * LANES; /* lower, upper half of the rows */
                axis1_half_strip(strip + s * SPAN / numbers * 2 + i % 2, turned,
                                 codes + skip * stride + (g * GROUP_SPANS + s) * LANES * (size_t)k,
                                 stride, rows > skip ? PL_MIN(rows - skip, LANES) : 0, k, L, i8);
            }
            strip_product product = {strip,
                                     n / numbers,
                                     q + (b * pl_span_round(T) + g * PL_GROUP_AXIS1) / numbers,
                                     row,
                                     bias + b * groups + g,
                                     p->blocks * groups,
                                     p->steps + b * groups + g,
                                     p->step_stride,
                                     sums,
                                     2 * LANES};
            multiply_strip_rows(&product, p->M, i8);
        }
    }
    for (size_t m = 0; m < p->M; m++)
        memcpy(p->out + m * p->out_stride + r0, sums + m * 2 * LANES, rows * sizeof *sums);
}

static PL_ALWAYS_INLINE void axis1_class(const pl_trellis_product *p, int k, int L, int i8, int M)
{
    if (M > DIRECT_M)
        for (size_t r = 0; r < p->rows; r += 2 * LANES) axis1_many(p, r, k, L, i8);
    else
        for (size_t r = 0; r < p->rows; r += LANES) axis1_direct(p, r, k, L, i8, M);
}

/* Number u of a block, 0 beyond its end. */
static PL_ALWAYS_INLINE int16_t reversed(const int16_t *q, size_t T, size_t u)
{
    return u < T ? q[T - 1 - u] : 0;
}

/* Row m of block b, as `prepared_row` says. */
static PL_ALWAYS_INLINE void prepare_block(int32_t *to, const int16_t *q, size_t T, bool tile, int n)
{
    const size_t W = 8 / (size_t)n; /* words of a lane */
    for (size_t i = 0; i < pl_span_round(T) / (size_t)n; i++) {
        size_t lane = i / W, word = i % W; /* along u */
        size_t at = lane / LANES * W * LANES + word * LANES + lane % LANES;
        int16_t a[4];
        for (int j = 0; j < n; j++) a[j] = reversed(q, T, i * (size_t)n + (size_t)j);
        to[tile ? i : at] = activation_word(a, n);
    }
}

static PL_ALWAYS_INLINE void prepare_rows(void *dst, const int16_t *q, size_t T, size_t blocks,
                                          size_t M, bool tile, int i8)
{
    size_t groups = pl_block_groups(T), row = prepared_row(T, blocks, M, i8);
    tile = by_tile(M, tile);
    int32_t *words = dst, *bias = words + M * row;
    for (size_t i = 0; i < M * blocks; i++, q += T, words += row / blocks) {
        for (size_t g = 0; g < groups; g++) {
            size_t n = PL_MIN(T - g * PL_GROUP_AXIS1, PL_GROUP_AXIS1);
            bias[i * groups + g] = surplus(q + T - g * PL_GROUP_AXIS1 - n, n, i8);
        }
        if (M == 1)
            prepare_block(words, q, T, tile, word_numbers(i8, 1));
        else
            prepare_block(words, q, T, tile, word_numbers(i8, 2));
    }
}

static void prepare(void *dst, const int16_t *q, size_t T, size_t blocks, size_t M, bool tile)
{
    prepare_rows(dst, q, T, blocks, M, tile, 0);
}

static void prepare_i8(void *dst, const int16_t *q, size_t T, size_t blocks, size_t M, bool tile)
{
    prepare_rows(dst, q, T, blocks, M, tile, 1);
}

/* ---- instances ------------------------------------------------------------------------------- */

/* One function for each class of M: they are large. */
#define TRELLIS_CLASS(name, k, L, i8, M)                                                           \
    static void axis0##name##_m##M(const axis0_group *p, size_t s)                                 \
    {                                                                                              \
        axis0_span(p, s, k, L, i8, M);                                                             \
    }                                                                                              \
    static void axis1##name##_m##M(const pl_trellis_product *p)                                    \
    {                                                                                              \
        axis1_class(p, k, L, i8, M);                                                               \
    }

#define TRELLIS_KERNEL(name, k, L, i8)                                                             \
    TRELLIS_CLASS(name, k, L, i8, 1)                                                               \
    TRELLIS_CLASS(name, k, L, i8, 2)                                                               \
    TRELLIS_CLASS(name, k, L, i8, 4)                                                               \
    TRELLIS_CLASS(name, k, L, i8, 64)                                                              \
    static void axis0##name(const pl_trellis_product *p)                                           \
    {                                                                                              \
        static axis0_span_fn *const spans[M_CLASSES] = {axis0##name##_m1, axis0##name##_m2,        \
                                                        axis0##name##_m4, axis0##name##_m64};      \
        axis0(p, k, i8, spans);                                                                    \
    }                                                                                              \
    static void axis1##name(const pl_trellis_product *p)                                           \
    {                                                                                              \
        static pl_trellis_product_fn *const products[M_CLASSES] = {                                \
            axis1##name##_m1, axis1##name##_m2, axis1##name##_m4, axis1##name##_m64};              \
        products[class_of(p)](p);                                                               \
    }

#define TRELLIS_KERNELS(isa, k, L)                                                                 \
    TRELLIS_KERNEL(_k##k##_l##L##_##isa, k, L, 0)                                                  \
    TRELLIS_KERNEL(_i8_k##k##_l##L##_##isa, k, L, 1)

#define SET_TRELLIS_KERNELS(table, isa, k, L)                                                      \
    (table)->product.axis0[k - 2][L == 16] = axis0_k##k##_l##L##_##isa;                            \
    (table)->product.axis1[k - 2][L == 16] = axis1_k##k##_l##L##_##isa;                            \
    (table)->product.axis0_i8[k - 2][L == 16] = axis0_i8_k##k##_l##L##_##isa;                      \
    (table)->product.axis1_i8[k - 2][L == 16] = axis1_i8_k##k##_l##L##_##isa;

#endif
