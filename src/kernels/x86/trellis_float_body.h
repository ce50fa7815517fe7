/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products in floating point for x86: the part that all levels share. The including file
 * has the windows of its level (trellis_windows_*.h) and defines
 *   fvec          LANES floats, with f_load, f_store, f_splat, f_mul, f_fma(a, b, c), f_sum4
 *   real(x)       the y of LANES numbers as f32
 *   anchored(x)   1.5 * 2^23 + y as f32
 *   PAIR          numbers that are multiplied at a time in a 32-bit lane: 1 (f32) or 2 (bf16)
 *   mvec          what is multiplied, with m_load, m_store, m_splat and mac(sum, weights, x)
 *   round_weight  PAIR 1: rounds f32 weights to bf16, none of which is half-way between two
 *   pair_rows, pair_steps  PAIR 2: two weights side by side, in lane order; any order will do for
 *                 steps that agrees with activations of the first, then the second step's lanes
 *   DIRECT_SUMS, STRIP_ROWS, TILE_X  how many sums fit in registers
 *
 * Codes are walked as trellis_codes.h says. Up to DIRECT_M activation rows may meet the numbers
 * in registers; else numbers are decoded once to a tile in the caches. Every sum takes its terms
 * in one order on either way. */
#ifndef PL_KERNELS_TRELLIS_FLOAT_BODY_H
#define PL_KERNELS_TRELLIS_FLOAT_BODY_H

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/half.h"
#include "codec/trellis.h"
#include "kernels/kernels.h"
#include "trellis_codes.h"
#include "trellis_expand_body.h"

enum {
    DIRECT_M = PL_MOST_REGISTER_ROWS,
    GROUPS = 8 / PAIR,                /* multiplications of a span and activation row */
    TILE0_ROWS = PAIR * 1024 / LANES, /* of axis 0 decoded at a time: 64 rows of AVX-512 ... */
    TILE1_ROWS = 32,                  /* of axis 1 */
    BLOCK_X = PL_MAX(9 / TILE_X, 1) * TILE_X, /* activation rows whose chunks stay in L1 */
    CHUNK = 512 * PAIR,         /* numbers of a partial sum of axis 1, at least a block */
    MOST_BLOCKS = CHUNK / SPAN, /* of a chunk */
    LINE = 64
};

/* A single row never is worth a tile. */
static bool by_tile(const pl_float_product *p)
{
    return p->M > DIRECT_M || (p->tile && p->M > 1);
}

/* ---- weights --------------------------------------------------------------------------------- */

static PL_ALWAYS_INLINE fvec weight(windows w, row_scale r, int k, int L, int type, int i)
{
    vec x = number(w, k, L, i);
    return type == PL_FLOAT_F32 ? real(x) : round_weight(times_factor(anchored(x), r));
}

static PL_ALWAYS_INLINE row_scale scale_of(const float *scales, size_t row, int type)
{
    return by_factor(type == PL_FLOAT_F32 ? 1 : scales[row]);
}

/* PAIR stored rows of axis 0 at one span. */
typedef struct row_pair {
    windows w[PAIR];
    row_scale scale[PAIR];
} row_pair;

/* Rows r and, with PAIR 2, r + 1: if there is none, row r again, whose activation is zero. */
static PL_ALWAYS_INLINE row_pair open_rows(span_codes at, size_t r, size_t rows,
                                           const float *scales, int k, int type)
{
    row_pair p;
    for (size_t j = 0; j < PAIR; j++) {
        size_t row = PL_MIN(r + j, rows - 1);
        p.w[j] = open_windows(at.code + row * at.stride, k, at.first);
        p.scale[j] = scale_of(scales, row, type);
    }
    return p;
}

static PL_ALWAYS_INLINE mvec weights_of_rows(row_pair p, int k, int L, int type, int i)
{
#if PAIR == 2
    return pair_rows(weight(p.w[0], p.scale[0], k, L, type, i),
                     weight(p.w[1], p.scale[1], k, L, type, i));
#else
    return weight(p.w[0], p.scale[0], k, L, type, i);
#endif
}

/* Steps g (or 2 g and 2 g + 1) of one stored row. */
static PL_ALWAYS_INLINE mvec weights_of_steps(windows w, row_scale scale, int k, int L, int type,
                                              int g)
{
#if PAIR == 2
    return pair_steps(weight(w, scale, k, L, type, 2 * g), weight(w, scale, k, L, type, 2 * g + 1));
#else
    return weight(w, scale, k, L, type, g);
#endif
}

/* ---- axis 0 ---------------------------------------------------------------------------------- */

/* A run of rows of one block column. */
typedef struct axis0_run {
    const uint8_t *codes;
    size_t row_bytes, rows, block;
    const float *scales;
    const uint8_t *x; /* of the first row; 4 bytes for PAIR rows */
    size_t x_bytes, M;
    bool by_tile;
    float *sums; /* [M][outputs], in the order [s][i][l] */
    size_t outputs;
    uint8_t *tails;
    mvec *tile;
} axis0_run;

/* Steps i0 .. i0 + S - 1 of span s of all rows on M activation rows (M >= p->M; the last one of
 * those serves for the missing), sums in registers. Rows are too far apart for the processor to see
 * the next ones coming. */
static PL_ALWAYS_INLINE void axis0_pass(const axis0_run *p, size_t s, span_codes at, int k, int L,
                                        int type, int M, int i0, int S)
{
    fvec sum[DIRECT_M][8];
    const uint8_t *x[DIRECT_M];
    const uint8_t *next = at.code;
    float *to = p->sums + s * SPAN + i0 * LANES;
    if (at.stride == p->row_bytes) next += TILE0_ROWS * p->row_bytes;
    for (int m = 0; m < M; m++) {
        size_t row = PL_MIN((size_t)m, p->M - 1);
        x[m] = p->x + row * p->x_bytes;
        for (int i = 0; i < S; i++) sum[m][i] = f_load(to + row * p->outputs + i * LANES);
    }
    for (size_t r = 0; r < p->rows; r += PAIR) {
        mvec a[DIRECT_M];
        row_pair rows = open_rows(at, r, p->rows, p->scales, k, type);
        if (i0 == 0)
            for (size_t j = 0; j < PAIR; j++) prefetch(next + (r + j) * at.stride);
        for (int m = 0; m < M; m++) a[m] = m_splat(x[m] + r * 4 / PAIR);
        for (int i = 0; i < S; i++) {
            mvec w = weights_of_rows(rows, k, L, type, i0 + i);
            for (int m = 0; m < M; m++) sum[m][i] = mac(sum[m][i], w, a[m]);
        }
    }
    for (int m = M - 1; m >= 0; m--) {
        size_t row = PL_MIN((size_t)m, p->M - 1);
        for (int i = 0; i < S; i++) f_store(to + row * p->outputs + i * LANES, sum[m][i]);
    }
}

static PL_ALWAYS_INLINE void axis0_direct(const axis0_run *p, size_t s, span_codes at, int k, int L,
                                          int type, int M)
{
    const int S = PL_MIN(DIRECT_SUMS / M, 8); /* 2, 4 or 8 */
    axis0_pass(p, s, at, k, L, type, M, 0, S);
    if (S < 8) axis0_pass(p, s, at, k, L, type, M, S, S);
    if (S < 4) {
        axis0_pass(p, s, at, k, L, type, M, 2 * S, S);
        axis0_pass(p, s, at, k, L, type, M, 3 * S, S);
    }
}

/* One span of all rows to four strips of two steps: [4][rows / PAIR][2]. */
static PL_ALWAYS_INLINE void axis0_decode(const axis0_run *p, span_codes at, int k, int L, int type)
{
    size_t n = (p->rows + PAIR - 1) / PAIR;
    mvec *tile = p->tile;
    for (size_t r = 0; r < p->rows; r += PAIR, tile += 2) {
        row_pair rows = open_rows(at, r, p->rows, p->scales, k, type);
        for (int i = 0; i < 8; i++)
            m_store(tile + (size_t)(i / 2) * n * 2 + i % 2, weights_of_rows(rows, k, L, type, i));
    }
}

/* Two registers of outputs on N activation rows: sums += strip * x, over n terms. The activation
 * rows are addressed in threes, for want of registers. */
static PL_ALWAYS_INLINE void strip_tile(float *sums, size_t sum_stride, const mvec *strip, size_t n,
                                        const uint8_t *x, size_t x_bytes, int N)
{
    fvec sum[STRIP_ROWS][2];
    const uint8_t *base[(STRIP_ROWS + 2) / 3];
    for (int m = 0; m < N; m += 3) base[m / 3] = x + (size_t)m * x_bytes;
    for (int m = 0; m < N; m++) {
        sum[m][0] = f_load(sums + (size_t)m * sum_stride);
        sum[m][1] = f_load(sums + (size_t)m * sum_stride + LANES);
    }
    for (size_t j = 0; j < n; j++) {
        mvec w0 = m_load(strip + 2 * j), w1 = m_load(strip + 2 * j + 1);
        for (int m = 0; m < N; m++) {
            mvec a = m_splat(base[m / 3] + (size_t)(m % 3) * x_bytes + 4 * j);
            sum[m][0] = mac(sum[m][0], w0, a);
            sum[m][1] = mac(sum[m][1], w1, a);
        }
    }
    for (int m = 0; m < N; m++) {
        f_store(sums + (size_t)m * sum_stride, sum[m][0]);
        f_store(sums + (size_t)m * sum_stride + LANES, sum[m][1]);
    }
}

static PL_NOINLINE void multiply_strip(float *sums, size_t sum_stride, const mvec *strip, size_t n,
                                       const uint8_t *x, size_t x_bytes, size_t M)
{
    for (; M >= STRIP_ROWS; M -= STRIP_ROWS) {
        strip_tile(sums, sum_stride, strip, n, x, x_bytes, STRIP_ROWS);
        sums += STRIP_ROWS * sum_stride;
        x += STRIP_ROWS * x_bytes;
    }
    for (; M >= 4; M -= 4) {
        strip_tile(sums, sum_stride, strip, n, x, x_bytes, 4);
        sums += 4 * sum_stride;
        x += 4 * x_bytes;
    }
    switch (M) {
    case 3:
        strip_tile(sums, sum_stride, strip, n, x, x_bytes, 3);
        break;
    case 2:
        strip_tile(sums, sum_stride, strip, n, x, x_bytes, 2);
        break;
    case 1:
        strip_tile(sums, sum_stride, strip, n, x, x_bytes, 1);
        break;
    }
}

static PL_ALWAYS_INLINE void axis0_span(const axis0_run *p, size_t s, span_codes at, int k, int L,
                                        int type)
{
    if (p->M == 1) {
        axis0_direct(p, s, at, k, L, type, 1);
    } else if (p->M == 2 && !p->by_tile) {
        axis0_direct(p, s, at, k, L, type, 2);
    } else if (!p->by_tile) {
        axis0_direct(p, s, at, k, L, type, DIRECT_M);
    } else {
        size_t n = (p->rows + PAIR - 1) / PAIR;
        axis0_decode(p, at, k, L, type);
        for (size_t i = 0; i < 4; i++)
            multiply_strip(p->sums + s * SPAN + i * 2 * LANES, p->outputs, p->tile + i * n * 2, n,
                           p->x, p->x_bytes, p->M);
    }
}

static PL_ALWAYS_INLINE void axis0_rows(const axis0_run *p, int k, int L, int type)
{
    make_tails(p->tails, p->codes, p->row_bytes, p->rows, p->block, k);
    for (size_t s = 0; s * SPAN < p->block; s++) {
        span_codes at = span_of(p->codes, p->row_bytes, p->tails, s, p->block, k);
        if (k == 4 && at.first) {
            at.first = 1; /* a constant from here on */
            axis0_span(p, s, at, k, L, type);
        } else {
            at.first = 0;
            axis0_span(p, s, at, k, L, type);
        }
    }
}

static PL_ALWAYS_INLINE void axis0(const pl_float_product *p, int k, int L, int type)
{
    size_t outputs = pl_span_round(p->block), n = p->M * outputs;
    float *total = p->scratch, *part = total + n;
    axis0_run run = {.row_bytes = p->row_bytes,
                     .block = p->block,
                     .x_bytes = p->x_bytes,
                     .M = p->M,
                     .by_tile = by_tile(p),
                     .sums = total,
                     .outputs = outputs,
                     .tile = (mvec *)(void *)(part + n)};
    run.tails = (uint8_t *)(run.tile + TILE0_ROWS / PAIR * 8);
    for (size_t first = 0; first < p->rows; first += p->split) {
        size_t end = PL_MIN(first + p->split, p->rows);
        memset(run.sums, 0, n * sizeof *run.sums);
        for (size_t r = first; r < end; r += TILE0_ROWS) {
            run.codes = p->codes + r * p->row_bytes;
            run.rows = PL_MIN(end - r, TILE0_ROWS);
            run.scales = p->scales ? p->scales + r : NULL;
            run.x = (const uint8_t *)p->x + (p->first + r) * 4 / PAIR;
            axis0_rows(&run, k, L, type);
        }
        for (size_t i = 0; first && i < n; i++) total[i] += part[i];
        run.sums = part;
    }
    for (size_t m = 0; m < p->M; m++)
        sort_outputs(p->out + m * p->out_stride, total + m * outputs, p->block);
}

/* ---- axis 1 ---------------------------------------------------------------------------------- */

/* Four stored rows (the last one again for those missing) along a chunk of blocks. */
typedef struct axis1_quad {
    const uint8_t *codes[4]; /* of the chunk's first block */
    float scales[4];
    const uint8_t *tails; /* [4][MOST_BLOCKS][TAIL_BYTES] */
    size_t block, blocks;
    size_t ahead; /* bytes to the codes that come next in this place */
} axis1_quad;

/* One span of two rows on M activation rows. */
static PL_ALWAYS_INLINE void axis1_span(fvec sum[2][DIRECT_M], const span_codes at[2],
                                        const row_scale scale[2], const uint8_t *const *x,
                                        size_t x_at, int k, int L, int type, int first, int M)
{
    windows w[2] = {open_windows(at[0].code, k, first), open_windows(at[1].code, k, first)};
    for (int g = 0; g < GROUPS; g++) {
        mvec a[DIRECT_M];
        for (int m = 0; m < M; m++) a[m] = m_load(x[m] + x_at + (size_t)g * sizeof(mvec));
        for (int r = 0; r < 2; r++) {
            mvec v = weights_of_steps(w[r], scale[r], k, L, type, g);
            for (int m = 0; m < M; m++) sum[r][m] = mac(sum[r][m], v, a[m]);
        }
    }
}

/* Rows r and r + 1 of a quad. */
static PL_ALWAYS_INLINE void axis1_direct(fvec sums[DIRECT_M][4], const axis1_quad *q,
                                          const uint8_t *const *x, int k, int L, int type, int M,
                                          int r)
{
    size_t T = q->block, bytes = T * (size_t)k / 8, x_at = 0;
    fvec sum[2][DIRECT_M];
    row_scale scale[2];
    for (int j = 0; j < 2; j++) {
        scale[j] = scale_of(q->scales, (size_t)(r + j), type);
        for (int m = 0; m < M; m++) sum[j][m] = f_splat(0);
    }
    for (size_t b = 0; b < q->blocks; b++) {
        for (size_t i = 0; i < bytes; i += LINE) {
            prefetch(q->codes[r] + q->ahead + b * bytes + i);
            prefetch(q->codes[r + 1] + q->ahead + b * bytes + i);
        }
        for (size_t s = 0; s * SPAN < T; s++, x_at += GROUPS * sizeof(mvec)) {
            span_codes at[2];
            for (int j = 0; j < 2; j++)
                at[j] =
                    span_of(q->codes[r + j] + b * bytes, 0,
                            q->tails + ((size_t)(r + j) * MOST_BLOCKS + b) * TAIL_BYTES, s, T, k);
            if (k == 4 && at[0].first)
                axis1_span(sum, at, scale, x, x_at, k, L, type, 1, M);
            else
                axis1_span(sum, at, scale, x, x_at, k, L, type, 0, M);
        }
    }
    for (int j = 0; j < 2; j++)
        for (int m = 0; m < M; m++) sums[m][r + j] = sum[j][m];
}

/* out[0..n) = or += the sums of four vectors. */
static PL_ALWAYS_INLINE void add_sums(float *out, const fvec v[4], size_t n, bool set)
{
    float sums[4];
    _mm_storeu_ps(sums, f_sum4(v));
    for (size_t r = 0; r < n; r++) out[r] = set ? sums[r] : out[r] + sums[r];
}

static PL_ALWAYS_INLINE axis1_quad open_quad(const pl_float_product *p, size_t r0, size_t b0,
                                             size_t blocks, uint8_t *tails, int k, int type)
{
    size_t T = p->block, bytes = T * (size_t)k / 8;
    axis1_quad q = {.tails = tails, .block = T, .blocks = blocks, .ahead = 4 * p->row_bytes};
    for (size_t r = 0; r < 4; r++) {
        size_t row = PL_MIN(r0 + r, p->rows - 1);
        q.codes[r] = p->codes + row * p->row_bytes + b0 * bytes;
        q.scales[r] = type == PL_FLOAT_F32 ? 1 : p->scales[row];
        for (size_t b = 0; b < blocks; b++)
            make_tail(tails + (r * MOST_BLOCKS + b) * TAIL_BYTES, q.codes[r] + b * bytes, T, k);
    }
    return q;
}

/* T rounded up to this level's spans. */
static PL_ALWAYS_INLINE size_t span_round(size_t T)
{
    return (T + SPAN - 1) / SPAN * SPAN;
}

static PL_ALWAYS_INLINE size_t chunk_blocks(size_t T)
{
    return PL_MAX(CHUNK / span_round(T), 1);
}

/* Bytes of a row's numbers of one block, in the order [s][i][l]. */
static PL_ALWAYS_INLINE size_t block_bytes(size_t T)
{
    return span_round(T) * 4 / PAIR;
}

static PL_ALWAYS_INLINE void axis1_few(const pl_float_product *p, int k, int L, int type, int M)
{
    size_t n = chunk_blocks(p->block);
    for (size_t r = 0; r < p->rows; r += 4)
        for (size_t b = 0; b < p->blocks; b += n) {
            fvec sums[DIRECT_M][4];
            const uint8_t *x[DIRECT_M];
            axis1_quad q = open_quad(p, r, b, PL_MIN(p->blocks - b, n), p->scratch, k, type);
            for (int m = 0; m < M; m++)
                x[m] = (const uint8_t *)p->x + PL_MIN((size_t)m, p->M - 1) * p->x_bytes +
                       b * block_bytes(p->block);
            axis1_direct(sums, &q, x, k, L, type, M, 0);
            axis1_direct(sums, &q, x, k, L, type, M, 2);
            for (size_t m = 0; m < p->M; m++)
                add_sums(p->out + m * p->out_stride + r, sums[m], PL_MIN(p->rows - r, 4), b == 0);
        }
}

/* One row's chunk decoded, in the order [b][s][g][l]. */
static PL_ALWAYS_INLINE void axis1_decode(uint8_t *to, const axis1_quad *q, size_t r, int k, int L,
                                          int type)
{
    size_t T = q->block, bytes = T * (size_t)k / 8;
    row_scale scale = scale_of(q->scales, r, type);
    for (size_t b = 0; b < q->blocks; b++) {
        uint8_t *block = to + b * block_bytes(T);
        for (size_t s = 0; s * SPAN < T; s++, block += GROUPS * sizeof(mvec)) {
            span_codes at = span_of(q->codes[r] + b * bytes, 0,
                                    q->tails + (r * MOST_BLOCKS + b) * TAIL_BYTES, s, T, k);
            windows w;
            if (k == 4 && at.first) {
                w = open_windows(at.code, k, 1);
                for (int g = 0; g < GROUPS; g++)
                    m_store(block + (size_t)g * sizeof(mvec),
                            weights_of_steps(w, scale, k, L, type, g));
            } else {
                w = open_windows(at.code, k, 0);
                for (int g = 0; g < GROUPS; g++)
                    m_store(block + (size_t)g * sizeof(mvec),
                            weights_of_steps(w, scale, k, L, type, g));
            }
        }
    }
}

/* out[m][0..rows) of N activation rows and four decoded ones. */
static PL_ALWAYS_INLINE void dot_tile(float *out, size_t out_stride, const uint8_t *w,
                                      size_t w_bytes, const uint8_t *x, size_t x_bytes, size_t n,
                                      size_t rows, bool set, int N)
{
    fvec sum[TILE_X][4];
    for (int m = 0; m < N; m++)
        for (int r = 0; r < 4; r++) sum[m][r] = f_splat(0);
    const uint8_t *x3 = x + 3 * x_bytes;
    for (size_t i = 0; i < n; i += sizeof(mvec)) {
        mvec v[4];
        for (int r = 0; r < 4; r++) v[r] = m_load(w + (size_t)r * w_bytes + i);
        for (int m = 0; m < N; m++) {
            mvec a = m_load((m < 3 ? x : x3) + (size_t)(m % 3) * x_bytes + i);
            for (int r = 0; r < 4; r++) sum[m][r] = mac(sum[m][r], v[r], a);
        }
    }
    for (int m = 0; m < N; m++) add_sums(out + (size_t)m * out_stride, sum[m], rows, set);
}

/* Up to BLOCK_X activation rows on all decoded ones. */
static PL_NOINLINE void multiply_tile(float *out, size_t out_stride, const uint8_t *w,
                                      size_t w_bytes, size_t rows, const uint8_t *x, size_t x_bytes,
                                      size_t M, size_t n, bool set)
{
    for (size_t r = 0; r < rows; r += 4, w += 4 * w_bytes) {
        size_t some = PL_MIN(rows - r, 4), m = 0;
        float *to = out + r;
        for (; m + TILE_X <= M; m += TILE_X)
            dot_tile(to + m * out_stride, out_stride, w, w_bytes, x + m * x_bytes, x_bytes, n, some,
                     set, TILE_X);
        for (; m + 2 <= M; m += 2)
            dot_tile(to + m * out_stride, out_stride, w, w_bytes, x + m * x_bytes, x_bytes, n, some,
                     set, 2);
        if (m < M)
            dot_tile(to + m * out_stride, out_stride, w, w_bytes, x + m * x_bytes, x_bytes, n, some,
                     set, 1);
    }
}

static PL_ALWAYS_INLINE void axis1_many(const pl_float_product *p, int k, int L, int type)
{
    size_t blocks = chunk_blocks(p->block), whole = blocks * block_bytes(p->block);
    uint8_t *tails = p->scratch, *tile = tails + 4 * MOST_BLOCKS * TAIL_BYTES;
    size_t w_bytes = whole + LINE; /* a multiple of 4096 would have all rows in one set */
    for (size_t r0 = 0; r0 < p->rows; r0 += TILE1_ROWS)
        for (size_t b = 0; b < p->blocks; b += blocks) {
            size_t rows = PL_MIN(p->rows - r0, TILE1_ROWS), n = PL_MIN(p->blocks - b, blocks);
            for (size_t r = 0; r < rows; r += 4) {
                axis1_quad q = open_quad(p, r0 + r, b, n, tails, k, type);
                for (size_t i = 0; i < 4; i++)
                    axis1_decode(tile + (r + i) * w_bytes, &q, i, k, L, type);
            }
            const uint8_t *x = (const uint8_t *)p->x + b * block_bytes(p->block);
            for (size_t m = 0; m < p->M; m += BLOCK_X)
                multiply_tile(p->out + m * p->out_stride + r0, p->out_stride, tile, w_bytes, rows,
                              x + m * p->x_bytes, p->x_bytes, PL_MIN(p->M - m, BLOCK_X),
                              n * block_bytes(p->block), b == 0);
        }
}

static PL_ALWAYS_INLINE void axis1(const pl_float_product *p, int k, int L, int type)
{
    if (by_tile(p))
        axis1_many(p, k, L, type);
    else if (p->M == 1)
        axis1_few(p, k, L, type, 1);
    else if (p->M == 2)
        axis1_few(p, k, L, type, 2);
    else
        axis1_few(p, k, L, type, DIRECT_M);
}

/* ---- activations ----------------------------------------------------------------------------- */

static PL_ALWAYS_INLINE float round_bf16(float x)
{
    return pl_bf16_to_f32(pl_f32_to_bf16(x));
}

static PL_ALWAYS_INLINE void prepare0(void *dst, const float *x, const float *scales, size_t n,
                                      int type)
{
#if PAIR == 2
    uint16_t *to = dst;
    (void)scales, (void)type;
    for (size_t i = 0; i < n; i++) to[i] = pl_f32_to_bf16(x[i]);
    if (n % 2) to[n] = 0;
#else
    float *to = dst;
    for (size_t i = 0; i < n; i++)
        to[i] = type == PL_FLOAT_F32 ? x[i] * scales[i] : round_bf16(x[i]);
#endif
}

/* The numbers of one block and zeros before it, to the order [s][i][l]: eight lanes at a time,
 * whose numbers are neighbours. */
static PL_NOINLINE void sort_inputs(uint8_t *dst, const float *x, size_t padded)
{
    for (size_t l = 0; 8 * l < padded; l += 8) {
        __m256 v[8];
        for (size_t j = 0; j < 8; j++) v[j] = _mm256_loadu_ps(x + padded - 8 - 8 * (l + j));
        transpose_8x8(v);
        for (size_t i = 0; i < 8; i++) {
            uint8_t *to = dst + (l / LANES * SPAN + i * LANES + l % LANES) * (4 / PAIR);
#if PAIR == 2
            __m256i h = _mm256_srli_epi32(_mm256_castps_si256(v[7 - i]), 16);
            __m128i low = _mm256_castsi256_si128(h), high = _mm256_extracti128_si256(h, 1);
            _mm_storeu_si128((__m128i *)(void *)to, _mm_packus_epi32(low, high));
#else
            _mm256_storeu_ps((float *)(void *)to, v[7 - i]);
#endif
        }
    }
}

static PL_ALWAYS_INLINE void prepare1(void *dst, const float *x, size_t n, size_t block,
                                      size_t blocks, int type)
{
    float padded[PL_TRELLIS_MAX_BLOCK];
    size_t width = span_round(block), before = width - block;
    memset(padded, 0, before * sizeof *padded);
    for (size_t b = 0; b < blocks; b++) {
        size_t some = n > b * block ? PL_MIN(n - b * block, block) : 0;
        for (size_t i = 0; i < some; i++)
            padded[before + i] =
                type == PL_FLOAT_F32 ? x[b * block + i] : round_bf16(x[b * block + i]);
        memset(padded + before + some, 0, (block - some) * sizeof *padded);
        sort_inputs((uint8_t *)dst + b * block_bytes(block), padded, width);
    }
}

/* ---- instances ------------------------------------------------------------------------------- */

#define FLOAT_PRODUCT(isa, name, type, k, L)                                                       \
    static void axis0_##name##_k##k##_l##L##_##isa(const pl_float_product *p)                      \
    {                                                                                              \
        axis0(p, k, L, type);                                                                      \
    }                                                                                              \
    static void axis1_##name##_k##k##_l##L##_##isa(const pl_float_product *p)                      \
    {                                                                                              \
        axis1(p, k, L, type);                                                                      \
    }

#define FLOAT_PRODUCTS(isa, name, type)                                                            \
    PL_EACH_CODE_OF(FLOAT_PRODUCT, isa, name, type)                                                \
    static void prepare0_##name##_##isa(void *dst, const float *x, const float *scales, size_t n)  \
    {                                                                                              \
        prepare0(dst, x, scales, n, type);                                                         \
    }                                                                                              \
    static void prepare1_##name##_##isa(void *dst, const float *x, size_t n, size_t block,         \
                                        size_t blocks)                                             \
    {                                                                                              \
        prepare1(dst, x, n, block, blocks, type);                                                  \
    }

#define SET_FLOAT_PRODUCT(f, isa, name, type, k, L)                                                \
    (f)->axis0[type][k - 2][L == 16] = axis0_##name##_k##k##_l##L##_##isa;                         \
    (f)->axis1[type][k - 2][L == 16] = axis1_##name##_k##k##_l##L##_##isa;

#define SET_FLOAT_PRODUCTS(f, isa, name, type)                                                     \
    PL_EACH_CODE_OF(SET_FLOAT_PRODUCT, f, isa, name, type)                                         \
    (f)->prepare0[type] = prepare0_##name##_##isa;                                                 \
    (f)->prepare1[type] = prepare1_##name##_##isa

#endif
