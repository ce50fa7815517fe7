/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products in 8-bit integers with the dot product instruction, which multiplies four signed
 * bytes a lane: h - 128 and q. Of the integer sum 8 sum(q h) - 1017 sum(q) that leaves 8 times the
 * dot product and 7 sum(q). Axis 1 with one activation row needs no order of its own; strips have
 * eight outputs, in a lane of which lie four weights that follow each other in the sum. */
#include "trellis_codes.h"
#include "trellis_neon.h"

enum { STRIP_ROWS = 8, BIAS = 7 };

/* Bytes h - 128 of two steps or rows, one after the other. */
static PL_ALWAYS_INLINE int8x16_t narrow(uint16x8_t a, uint16x8_t b)
{
    uint8x16_t h = vshrn_high_n_u16(vshrn_n_u16(a, 2), b, 2);
    return vreinterpretq_s8_u8(veorq_u8(h, vdupq_n_u8(128)));
}

/* Four registers of bytes side by side: lanes 0 .. 3 and 4 .. 7 as [lane][v]. */
static PL_ALWAYS_INLINE void interleave(int8x16_t out[2], const uint16x8_t v[4])
{
    int8x16_t a = narrow(v[0], v[2]), b = narrow(v[1], v[3]);
    int16x8_t low = vreinterpretq_s16_s8(vzip1q_s8(a, b));
    int16x8_t high = vreinterpretq_s16_s8(vzip2q_s8(a, b));
    out[0] = vreinterpretq_s8_s16(vzip1q_s16(low, high));
    out[1] = vreinterpretq_s8_s16(vzip2q_s16(low, high));
}

/* ---- strips ---------------------------------------------------------------------------------- */

/* Eight outputs: [n / 4] pairs of registers, n a multiple of 16. */
typedef struct strip_product {
    const int8x16_t *strip;
    size_t n;
    const int8_t *q; /* [M][q_stride] */
    size_t q_stride;
    const int32_t *bias; /* [M][bias_stride] */
    size_t bias_stride;
    const float *steps; /* [M][step_stride] */
    size_t step_stride;
    float *sums; /* [M][sum_stride] += */
    size_t sum_stride;
} strip_product;

#define MULTIPLY_WEIGHTS(j)                                                                        \
    do {                                                                                           \
        int8x16_t w0 = p->strip[i / 2 + 2 * j], w1 = p->strip[i / 2 + 2 * j + 1];                  \
        PL_UNROLL                                                                                  \
        for (int m = 0; m < M; m++) {                                                              \
            sum[m][0] = vdotq_laneq_s32(sum[m][0], w0, q[m], j);                                   \
            sum[m][1] = vdotq_laneq_s32(sum[m][1], w1, q[m], j);                                   \
        }                                                                                          \
    } while (0)

static PL_ALWAYS_INLINE void multiply_strip(const strip_product *p, size_t m0, int M)
{
    int32x4_t sum[STRIP_ROWS][2];
    PL_UNROLL
    for (int m = 0; m < M; m++) sum[m][0] = sum[m][1] = vdupq_n_s32(0);
    for (size_t i = 0; i < p->n; i += 16) {
        int8x16_t q[STRIP_ROWS];
        PL_UNROLL
        for (int m = 0; m < M; m++) q[m] = vld1q_s8(p->q + (m0 + (size_t)m) * p->q_stride + i);
        MULTIPLY_WEIGHTS(0);
        MULTIPLY_WEIGHTS(1);
        MULTIPLY_WEIGHTS(2);
        MULTIPLY_WEIGHTS(3);
    }
    PL_UNROLL
    for (int m = 0; m < M; m++) {
        size_t row = m0 + (size_t)m;
        float *to = p->sums + row * p->sum_stride, step = p->steps[row * p->step_stride];
        int32x4_t bias = vdupq_n_s32(p->bias[row * p->bias_stride]);
        add_scaled(to, sum[m][0], bias, step, 1);
        add_scaled(to + 4, sum[m][1], bias, step, 1);
    }
}

static PL_NOINLINE void multiply_rows(const strip_product *p, size_t M)
{
    size_t m = 0;
    for (; m + STRIP_ROWS <= M; m += STRIP_ROWS) multiply_strip(p, m, STRIP_ROWS);
    if (m + 4 <= M) {
        multiply_strip(p, m, 4);
        m += 4;
    }
    if (m + 2 <= M) {
        multiply_strip(p, m, 2);
        m += 2;
    }
    if (m < M) multiply_strip(p, m, 1);
}

/* ---- axis 0 ---------------------------------------------------------------------------------- */

/* One span of a group's rows as strips, four rows at a time; the last row stands in for rows that
 * are not there, and meets activations of 0. */
static PL_ALWAYS_INLINE void axis0_span_tile(int8x16_t *tile, span_codes codes, size_t rows,
                                             const uint8_t *next, size_t row_bytes, int k, int L)
{
    for (size_t r = 0; r < rows; r += 4) {
        uint16x8_t y[8][4];
        for (size_t j = 0; j < 4; j++) {
            size_t row = PL_MIN(r + j, rows - 1);
            uint16x8_t pair[6];
            PL_PREFETCH(next + row * row_bytes);
            open_windows(pair, codes.code + row * codes.stride, k);
            PL_UNROLL
            for (int i = 0; i < 8; i++) y[i][j] = sums_of_bytes(state(pair, k, L, i));
        }
        PL_UNROLL
        for (int i = 0; i < 8; i++) interleave(tile + i * PL_GROUP_AXIS0 / 2 + r / 2, y[i]);
    }
}

static PL_ALWAYS_INLINE void axis0_group(const pl_trellis_product *p, float *sums, int8x16_t *tile,
                                         const uint8_t *tails, size_t r0, size_t rows, int k, int L)
{
    size_t T = p->block;
    const uint8_t *codes = p->codes + r0 * p->row_bytes;
    int8_t q[PL_PRODUCT_ROWS * PL_GROUP_AXIS0];
    int32_t bias[PL_PRODUCT_ROWS];
    for (size_t m = 0; m < p->M; m++) {
        const int16_t *from = (const int16_t *)p->q + m * p->q_stride + r0;
        for (size_t i = 0; i < PL_GROUP_AXIS0; i++) q[m * PL_GROUP_AXIS0 + i] = (int8_t)from[i];
        bias[m] = bias_of(from, rows, BIAS);
    }
    for (size_t s = 0; s * SPAN < T; s++) {
        span_codes at = span_of(codes, p->row_bytes, tails, s, T, k);
        size_t end = PL_MIN((s + 1) * SPAN, T) * (size_t)k / 8;
        const uint8_t *next = codes + PL_GROUP_AXIS0 * p->row_bytes + end - 1;
        axis0_span_tile(tile, at, rows, next, p->row_bytes, k, L);
        for (size_t i = 0; i < 8; i++) {
            strip_product strip = {tile + i * PL_GROUP_AXIS0 / 2,
                                   (rows + 15) / 16 * 16,
                                   q,
                                   PL_GROUP_AXIS0,
                                   bias,
                                   1,
                                   p->steps + r0 / PL_GROUP_AXIS0,
                                   p->step_stride,
                                   sums + s * SPAN + i * LANES,
                                   pl_span_round(T)};
            multiply_rows(&strip, p->M);
        }
    }
}

static PL_ALWAYS_INLINE void axis0(const pl_trellis_product *p, int k, int L)
{
    size_t T = p->block, outputs = pl_span_round(T);
    float *total = p->scratch, *part = total + p->M * outputs;      /* [M][outputs] */
    int8x16_t *tile = (int8x16_t *)(void *)(part + p->M * outputs); /* [8][64 / 4][2] */
    uint8_t *tails = (uint8_t *)(tile + 4 * PL_GROUP_AXIS0);
    memset(total, 0, p->M * outputs * sizeof *total);
    for (size_t first = 0; first < p->rows; first += p->split) {
        size_t end = PL_MIN(first + p->split, p->rows);
        float *sums = p->split >= p->rows ? total : part;
        if (sums == part) memset(part, 0, p->M * outputs * sizeof *part);
        for (size_t r = first; r < end; r += PL_GROUP_AXIS0) {
            size_t rows = PL_MIN(end - r, PL_GROUP_AXIS0);
            make_tails(tails, p->codes + r * p->row_bytes, p->row_bytes, rows, T, k);
            axis0_group(p, sums, tile, tails, r, rows, k, L);
        }
        if (sums == part)
            for (size_t i = 0; i < p->M * outputs; i++) total[i] += part[i];
    }
    for (size_t m = 0; m < p->M; m++)
        sort_outputs(p->out + m * p->out_stride, total + m * outputs, T);
}

/* ---- axis 1 ---------------------------------------------------------------------------------- */

/* Prepared activations: 8 bits a number, blocks padded to spans, then the groups' biases. With one
 * row in the order [s][i][l], with more in that of the bits. */
static void prepare(void *dst, const int16_t *q, size_t T, size_t blocks, size_t M, bool tile)
{
    (void)tile;
    size_t width = pl_span_round(T), groups = pl_block_groups(T);
    int32_t *bias = (int32_t *)dst + M * blocks * width / 4;
    memset(dst, 0, M * blocks * width);
    for (size_t i = 0; i < M * blocks; i++, q += T) {
        int8_t *to = (int8_t *)dst + i * width;
        for (size_t g = 0; g < groups; g++) {
            size_t n = PL_MIN(T - g * PL_GROUP_AXIS1, PL_GROUP_AXIS1);
            bias[i * groups + g] = bias_of(q + T - g * PL_GROUP_AXIS1 - n, n, BIAS);
        }
        for (size_t u = 0; u < T; u++) to[M == 1 ? place(u) : u] = (int8_t)q[T - 1 - u];
    }
}

static const int32_t *prepared_biases(const pl_trellis_product *p)
{
    return (const int32_t *)p->q + p->M * p->blocks * pl_span_round(p->block) / 4;
}

/* One group of one stored row and one activation row. */
static PL_ALWAYS_INLINE int32x4_t axis1_dot(const uint8_t *codes, const uint8_t *tail,
                                            const int8_t *q, size_t first, size_t end, size_t T,
                                            int k, int L)
{
    int32x4_t sum[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    for (size_t s = first; s < end; s++, q += SPAN) {
        uint16x8_t pair[6];
        open_windows(pair, span_of(codes, 0, tail, s, T, k).code, k);
        PL_UNROLL
        for (int i = 0; i < 8; i += 2) {
            int8x16_t w = narrow(sums_of_bytes(state(pair, k, L, i)),
                                 sums_of_bytes(state(pair, k, L, i + 1)));
            sum[i / 2 % 2] = vdotq_s32(sum[i / 2 % 2], w, vld1q_s8(q + i * LANES));
        }
    }
    return vaddq_s32(sum[0], sum[1]);
}

/* Up to four stored rows on one activation row. */
static PL_ALWAYS_INLINE void axis1_one(const pl_trellis_product *p, size_t r0, int k, int L)
{
    size_t T = p->block, groups = pl_block_groups(T), bytes = T * (size_t)k / 8;
    size_t rows = PL_MIN(p->rows - r0, 4), spans = (T + SPAN - 1) / SPAN;
    const int32_t *bias = prepared_biases(p);
    uint8_t *tails = p->scratch;
    float sums[4] = {0};
    int32x4_t dot[4];
    for (int r = 0; r < 4; r++) dot[r] = vdupq_n_s32(0);
    for (size_t b = 0; b < p->blocks; b++) {
        const uint8_t *codes = p->codes + r0 * p->row_bytes + b * bytes;
        const int8_t *q = (const int8_t *)p->q + b * pl_span_round(T);
        make_tails(tails, codes, p->row_bytes, rows, T, k);
        for (size_t g = 0; g < groups; g++) {
            size_t first = g * GROUP_SPANS, end = PL_MIN(first + GROUP_SPANS, spans);
            for (size_t r = 0; r < rows; r++)
                dot[r] = axis1_dot(codes + r * p->row_bytes, tails + r * TAIL_BYTES,
                                   q + first * SPAN, first, end, T, k, L);
            int32x4_t sum = vpaddq_s32(vpaddq_s32(dot[0], dot[1]), vpaddq_s32(dot[2], dot[3]));
            add_scaled(sums, sum, vdupq_n_s32(bias[b * groups + g]), p->steps[b * groups + g], 1);
        }
    }
    memcpy(p->out + r0, sums, rows * sizeof *sums);
}

/* Four rows of four quads become four quads of four rows; `stride` from a quad to the next. */
static PL_ALWAYS_INLINE void transpose_quads(int8x16_t *to, size_t stride, const int8x16_t v[4])
{
    int32x4_t a[4], b[4];
    for (int r = 0; r < 4; r++) a[r] = vreinterpretq_s32_s8(v[r]);
    for (int r = 0; r < 4; r += 2) {
        b[r] = vtrn1q_s32(a[r], a[r + 1]);
        b[r + 1] = vtrn2q_s32(a[r], a[r + 1]);
    }
    for (size_t c = 0; c < 2; c++) {
        int64x2_t low = vreinterpretq_s64_s32(b[c]), high = vreinterpretq_s64_s32(b[c + 2]);
        to[c * stride] = vreinterpretq_s8_s64(vtrn1q_s64(low, high));
        to[(c + 2) * stride] = vreinterpretq_s8_s64(vtrn2q_s64(low, high));
    }
}

/* One span of up to eight rows as a piece of a strip: outputs are rows, weights go along u. */
static PL_ALWAYS_INLINE void axis1_strip(int8x16_t *strip, span_codes at, size_t rows, int k, int L)
{
    int8x16_t quads[2][2][LANES]; /* steps 0 .. 3, 4 .. 7; lanes 0 .. 3, 4 .. 7; [row] */
    memset(quads, 0, sizeof quads);
    for (size_t r = 0; r < rows; r++) {
        uint16x8_t pair[6], y[8];
        open_windows(pair, at.code + r * at.stride, k);
        PL_UNROLL
        for (int i = 0; i < 8; i++) y[i] = sums_of_bytes(state(pair, k, L, i));
        for (int h = 0; h < 2; h++) {
            int8x16_t two[2];
            interleave(two, y + 4 * h);
            quads[h][0][r] = two[0];
            quads[h][1][r] = two[1];
        }
    }
    for (size_t i = 0; i < 8; i++) { /* quad h of lane l is quad 2 l + h of the span */
        size_t h = i / 4, l = i / 2 % 2 * 4, upper = i % 2;
        transpose_quads(strip + 2 * (2 * l + h) + upper, 4, quads[h][l / 4] + 4 * upper);
    }
}

/* Up to eight stored rows on M activation rows. */
static PL_ALWAYS_INLINE void axis1_many(const pl_trellis_product *p, size_t r0, int k, int L)
{
    size_t T = p->block, groups = pl_block_groups(T), bytes = T * (size_t)k / 8;
    size_t rows = PL_MIN(p->rows - r0, LANES), width = pl_span_round(T);
    int8x16_t strip[PL_GROUP_AXIS1 / 2];
    float sums[PL_PRODUCT_ROWS * LANES] = {0}; /* [M][8] */
    uint8_t *tails = p->scratch;
    for (size_t b = 0; b < p->blocks; b++) {
        const uint8_t *codes = p->codes + r0 * p->row_bytes + b * bytes;
        make_tails(tails, codes, p->row_bytes, rows, T, k);
        for (size_t g = 0; g < groups; g++) {
            size_t n = PL_MIN(T - g * PL_GROUP_AXIS1, PL_GROUP_AXIS1);
            for (size_t s = 0; s * SPAN < n; s++)
                axis1_strip(strip + s * SPAN / 2,
                            span_of(codes, p->row_bytes, tails, g * GROUP_SPANS + s, T, k), rows, k,
                            L);
            strip_product product = {strip,
                                     n,
                                     (const int8_t *)p->q + b * width + g * PL_GROUP_AXIS1,
                                     p->blocks * width,
                                     prepared_biases(p) + b * groups + g,
                                     p->blocks * groups,
                                     p->steps + b * groups + g,
                                     p->step_stride,
                                     sums,
                                     LANES};
            multiply_rows(&product, p->M);
        }
    }
    for (size_t m = 0; m < p->M; m++)
        memcpy(p->out + m * p->out_stride + r0, sums + m * LANES, rows * sizeof *sums);
}

static PL_ALWAYS_INLINE void axis1(const pl_trellis_product *p, int k, int L)
{
    if (p->M == 1)
        for (size_t r = 0; r < p->rows; r += 4) axis1_one(p, r, k, L);
    else
        for (size_t r = 0; r < p->rows; r += LANES) axis1_many(p, r, k, L);
}

/* ---- instances ------------------------------------------------------------------------------- */

/* With one activation row on axis 0, bytes of four rows would have to be brought together for a
 * single use: NEON's product is as good. */
#define TRELLIS_KERNELS(k, L)                                                                      \
    static void axis0_i8_k##k##_l##L##_dotprod(const pl_trellis_product *p)                        \
    {                                                                                              \
        if (p->M == 1)                                                                             \
            pl_axis0_i8_k##k##_l##L##_neon(p);                                                     \
        else                                                                                       \
            axis0(p, k, L);                                                                        \
    }                                                                                              \
    static void axis1_i8_k##k##_l##L##_dotprod(const pl_trellis_product *p)                        \
    {                                                                                              \
        axis1(p, k, L);                                                                            \
    }

PL_EACH_CODE(TRELLIS_KERNELS)

void pl_kernels_init_trellis_dotprod(pl_kernels *table)
{
    table->product.prepare_i8 = prepare;
#define SET(k, L)                                                                                  \
    table->product.axis0_i8[k - 2][L == 16] = axis0_i8_k##k##_l##L##_dotprod;                      \
    table->product.axis1_i8[k - 2][L == 16] = axis1_i8_k##k##_l##L##_dotprod;
    PL_EACH_CODE(SET)
#undef SET
}
