/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products in integers, NEON. Numbers are decoded to 16 bits, y + 510 or h, and multiplied
 * with 16-bit activations by widening multiply-adds. The integer sums, which wrap modulo 2^32 on
 * the way and fit at the end, are put right afterwards: less 510 sum(q), or 8 times them less
 * 1017 sum(q). With one activation row numbers go straight from decoding into the product; with
 * more they make strips of eight outputs, multiplied with up to eight activation rows at a time. */
#include "trellis_codes.h"
#include "trellis_neon.h"

enum { STRIP_ROWS = 8 };

/* ---- strips ---------------------------------------------------------------------------------- */

/* A strip is eight outputs: [n] registers of one weight each, n a multiple of 8. */
typedef struct strip_product {
    const int16x8_t *strip;
    size_t n;
    const int16_t *q; /* [M][q_stride] */
    size_t q_stride;
    const int32_t *bias; /* [M][bias_stride] */
    size_t bias_stride;
    const float *steps; /* [M][step_stride] */
    size_t step_stride;
    float *sums; /* [M][sum_stride] += */
    size_t sum_stride;
} strip_product;

#define MULTIPLY_WEIGHT(j)                                                                         \
    do {                                                                                           \
        int16x8_t w = p->strip[i + j];                                                             \
        PL_UNROLL                                                                                  \
        for (int m = 0; m < M; m++) {                                                              \
            sum[m][0] = vmlal_laneq_s16(sum[m][0], vget_low_s16(w), q[m], j);                      \
            sum[m][1] = vmlal_high_laneq_s16(sum[m][1], w, q[m], j);                               \
        }                                                                                          \
    } while (0)

static PL_ALWAYS_INLINE void multiply_strip(const strip_product *p, size_t m0, int M, int i8)
{
    int32x4_t sum[STRIP_ROWS][2];
    PL_UNROLL
    for (int m = 0; m < M; m++) sum[m][0] = sum[m][1] = vdupq_n_s32(0);
    for (size_t i = 0; i < p->n; i += 8) {
        int16x8_t q[STRIP_ROWS];
        PL_UNROLL
        for (int m = 0; m < M; m++) q[m] = vld1q_s16(p->q + (m0 + (size_t)m) * p->q_stride + i);
        MULTIPLY_WEIGHT(0);
        MULTIPLY_WEIGHT(1);
        MULTIPLY_WEIGHT(2);
        MULTIPLY_WEIGHT(3);
        MULTIPLY_WEIGHT(4);
        MULTIPLY_WEIGHT(5);
        MULTIPLY_WEIGHT(6);
        MULTIPLY_WEIGHT(7);
    }
    PL_UNROLL
    for (int m = 0; m < M; m++) {
        size_t row = m0 + (size_t)m;
        float *to = p->sums + row * p->sum_stride, step = p->steps[row * p->step_stride];
        int32x4_t bias = vdupq_n_s32(p->bias[row * p->bias_stride]);
        add_scaled(to, sum[m][0], bias, step, i8);
        add_scaled(to + 4, sum[m][1], bias, step, i8);
    }
}

static PL_ALWAYS_INLINE void multiply_strip_rows(const strip_product *p, size_t M, int i8)
{
    size_t m = 0;
    for (; m + STRIP_ROWS <= M; m += STRIP_ROWS) multiply_strip(p, m, STRIP_ROWS, i8);
    if (m + 4 <= M) {
        multiply_strip(p, m, 4, i8);
        m += 4;
    }
    if (m + 2 <= M) {
        multiply_strip(p, m, 2, i8);
        m += 2;
    }
    if (m < M) multiply_strip(p, m, 1, i8);
}

static PL_NOINLINE void multiply_i16(const strip_product *p, size_t M)
{
    multiply_strip_rows(p, M, 0);
}

static PL_NOINLINE void multiply_i8(const strip_product *p, size_t M)
{
    multiply_strip_rows(p, M, 1);
}

/* ---- axis 0 ---------------------------------------------------------------------------------- */

/* One span of a group's rows on one activation row: its sums stay in registers. `next` is where the
 * next group's codes will be read, a row at a time: rows are too far apart for the processor to see
 * it coming, and all of them asked for at once would be too many. */
static PL_ALWAYS_INLINE void axis0_span_one(float *sums, span_codes codes, size_t rows,
                                            const int16_t *q, int32_t bias, float step,
                                            const uint8_t *next, size_t row_bytes, int k, int L,
                                            int i8)
{
    int32x4_t sum[8][2];
    PL_UNROLL
    for (int i = 0; i < 8; i++) sum[i][0] = sum[i][1] = vdupq_n_s32(0);
    for (size_t r = 0; r < rows; r++) {
        uint16x8_t pair[6];
        PL_PREFETCH(next + r * row_bytes);
        open_windows(pair, codes.code + r * codes.stride, k);
        PL_UNROLL
        for (int i = 0; i < 8; i++) {
            int16x8_t w = number(pair, k, L, i, i8);
            sum[i][0] = vmlal_n_s16(sum[i][0], vget_low_s16(w), q[r]);
            sum[i][1] = vmlal_high_n_s16(sum[i][1], w, q[r]);
        }
    }
    PL_UNROLL
    for (int i = 0; i < 8; i++) {
        add_scaled(sums + LANES * i, sum[i][0], vdupq_n_s32(bias), step, i8);
        add_scaled(sums + LANES * i + 4, sum[i][1], vdupq_n_s32(bias), step, i8);
    }
}

/* One span of a group's rows as strips; rows up to the next multiple of 8 meet activations of 0. */
static PL_ALWAYS_INLINE void axis0_span_tile(int16x8_t *tile, span_codes codes, size_t rows,
                                             const uint8_t *next, size_t row_bytes, int k, int L,
                                             int i8)
{
    for (size_t r = 0; r < rows; r++) {
        uint16x8_t pair[6];
        PL_PREFETCH(next + r * row_bytes);
        open_windows(pair, codes.code + r * codes.stride, k);
        PL_UNROLL
        for (int i = 0; i < 8; i++)
            tile[(size_t)i * PL_GROUP_AXIS0 + r] = number(pair, k, L, i, i8);
    }
}

static PL_ALWAYS_INLINE void axis0_group(const pl_trellis_product *p, float *sums, int16x8_t *tile,
                                         const uint8_t *tails, size_t r0, size_t rows, int k, int L,
                                         int i8)
{
    size_t T = p->block, outputs = pl_span_round(T);
    const uint8_t *codes = p->codes + r0 * p->row_bytes;
    const int16_t *q = (const int16_t *)p->q + r0;
    const float *steps = p->steps + r0 / PL_GROUP_AXIS0;
    int32_t bias[PL_PRODUCT_ROWS];
    for (size_t m = 0; m < p->M; m++)
        bias[m] = bias_of(q + m * p->q_stride, rows, i8 ? -1017 : -510);
    for (size_t s = 0; s * SPAN < T; s++) {
        span_codes at = span_of(codes, p->row_bytes, tails, s, T, k);
        float *to = sums + s * SPAN;
        size_t end = PL_MIN((s + 1) * SPAN, T) * (size_t)k / 8;
        const uint8_t *next = codes + PL_GROUP_AXIS0 * p->row_bytes + end - 1;
        if (p->M == 1) {
            axis0_span_one(to, at, rows, q, bias[0], steps[0], next, p->row_bytes, k, L, i8);
            continue;
        }
        axis0_span_tile(tile, at, rows, next, p->row_bytes, k, L, i8);
        for (size_t i = 0; i < 8; i++) {
            strip_product strip = {tile + i * PL_GROUP_AXIS0,
                                   (rows + 7) / 8 * 8,
                                   q,
                                   p->q_stride,
                                   bias,
                                   1,
                                   steps,
                                   p->step_stride,
                                   to + i * LANES,
                                   outputs};
            (i8 ? multiply_i8 : multiply_i16)(&strip, p->M);
        }
    }
}

static PL_ALWAYS_INLINE void axis0(const pl_trellis_product *p, int k, int L, int i8)
{
    size_t T = p->block, outputs = pl_span_round(T);
    float *total = p->scratch, *part = total + p->M * outputs;      /* [M][outputs] */
    int16x8_t *tile = (int16x8_t *)(void *)(part + p->M * outputs); /* [8][64] */
    uint8_t *tails = (uint8_t *)(tile + 8 * PL_GROUP_AXIS0);
    memset(total, 0, p->M * outputs * sizeof *total);
    for (size_t first = 0; first < p->rows; first += p->split) {
        size_t end = PL_MIN(first + p->split, p->rows);
        float *sums = p->split >= p->rows ? total : part;
        if (sums == part) memset(part, 0, p->M * outputs * sizeof *part);
        for (size_t r = first; r < end; r += PL_GROUP_AXIS0) {
            size_t rows = PL_MIN(end - r, PL_GROUP_AXIS0);
            make_tails(tails, p->codes + r * p->row_bytes, p->row_bytes, rows, T, k);
            axis0_group(p, sums, tile, tails, r, rows, k, L, i8);
        }
        if (sums == part)
            for (size_t i = 0; i < p->M * outputs; i++) total[i] += part[i];
    }
    for (size_t m = 0; m < p->M; m++)
        sort_outputs(p->out + m * p->out_stride, total + m * outputs, T);
}

/* ---- axis 1 ---------------------------------------------------------------------------------- */

/* Prepared activations: 16 bits a number, blocks padded to spans, then the groups' biases. With one
 * row in the order [s][i][l], with more in that of the bits. */
static const int32_t *prepared_biases(const pl_trellis_product *p)
{
    return (const int32_t *)p->q + p->M * p->blocks * pl_span_round(p->block) / 2;
}

static PL_ALWAYS_INLINE void prepare(void *dst, const int16_t *q, size_t T, size_t blocks, size_t M,
                                     int i8)
{
    size_t width = pl_span_round(T), groups = pl_block_groups(T);
    int32_t *bias = (int32_t *)dst + M * blocks * width / 2;
    memset(dst, 0, M * blocks * width * sizeof *q);
    for (size_t i = 0; i < M * blocks; i++, q += T) {
        int16_t *to = (int16_t *)dst + i * width;
        for (size_t g = 0; g < groups; g++) {
            size_t n = PL_MIN(T - g * PL_GROUP_AXIS1, PL_GROUP_AXIS1);
            bias[i * groups + g] = bias_of(q + T - g * PL_GROUP_AXIS1 - n, n, i8 ? -1017 : -510);
        }
        for (size_t u = 0; u < T; u++) to[M == 1 ? place(u) : u] = q[T - 1 - u];
    }
}

static void prepare_i16(void *dst, const int16_t *q, size_t T, size_t blocks, size_t M, bool tile)
{
    (void)tile;
    prepare(dst, q, T, blocks, M, 0);
}

static void prepare_i8(void *dst, const int16_t *q, size_t T, size_t blocks, size_t M, bool tile)
{
    (void)tile;
    prepare(dst, q, T, blocks, M, 1);
}

/* One group of one stored row and one activation row. */
static PL_ALWAYS_INLINE int32x4_t axis1_dot(const uint8_t *codes, const uint8_t *tail,
                                            const int16_t *q, size_t first, size_t end, size_t T,
                                            int k, int L, int i8)
{
    int32x4_t sum[4];
    PL_UNROLL
    for (int i = 0; i < 4; i++) sum[i] = vdupq_n_s32(0);
    for (size_t s = first; s < end; s++, q += SPAN) {
        uint16x8_t pair[6];
        open_windows(pair, span_of(codes, 0, tail, s, T, k).code, k);
        PL_UNROLL
        for (int i = 0; i < 8; i++) {
            int16x8_t w = number(pair, k, L, i, i8), a = vld1q_s16(q + i * LANES);
            int at = i % 2 * 2;
            sum[at] = vmlal_s16(sum[at], vget_low_s16(w), vget_low_s16(a));
            sum[at + 1] = vmlal_high_s16(sum[at + 1], w, a);
        }
    }
    return vaddq_s32(vaddq_s32(sum[0], sum[1]), vaddq_s32(sum[2], sum[3]));
}

/* Up to four stored rows on one activation row. */
static PL_ALWAYS_INLINE void axis1_one(const pl_trellis_product *p, size_t r0, int k, int L, int i8)
{
    size_t T = p->block, groups = pl_block_groups(T), bytes = T * (size_t)k / 8;
    size_t rows = PL_MIN(p->rows - r0, 4), spans = (T + SPAN - 1) / SPAN;
    const int32_t *bias = prepared_biases(p);
    uint8_t *tails = p->scratch;
    float sums[4] = {0};
    int32x4_t dot[4];
    PL_UNROLL
    for (int r = 0; r < 4; r++) dot[r] = vdupq_n_s32(0);
    for (size_t b = 0; b < p->blocks; b++) {
        const uint8_t *codes = p->codes + r0 * p->row_bytes + b * bytes;
        const int16_t *q = (const int16_t *)p->q + b * pl_span_round(T);
        make_tails(tails, codes, p->row_bytes, rows, T, k);
        for (size_t g = 0; g < groups; g++) {
            size_t first = g * GROUP_SPANS, end = PL_MIN(first + GROUP_SPANS, spans);
            for (size_t r = 0; r < rows; r++)
                dot[r] = axis1_dot(codes + r * p->row_bytes, tails + r * TAIL_BYTES,
                                   q + first * SPAN, first, end, T, k, L, i8);
            int32x4_t sum = vpaddq_s32(vpaddq_s32(dot[0], dot[1]), vpaddq_s32(dot[2], dot[3]));
            add_scaled(sums, sum, vdupq_n_s32(bias[b * groups + g]), p->steps[b * groups + g], i8);
        }
    }
    memcpy(p->out + r0, sums, rows * sizeof *sums);
}

/* One span of up to eight rows as a piece of a strip: outputs are rows, weights go along u. */
static PL_ALWAYS_INLINE void axis1_strip(int16x8_t *strip, span_codes at, size_t rows, int k, int L,
                                         int i8)
{
    int16x8_t turned[8][LANES]; /* [i][row] */
    memset(turned, 0, sizeof turned);
    for (size_t r = 0; r < rows; r++) {
        uint16x8_t pair[6];
        open_windows(pair, at.code + r * at.stride, k);
        PL_UNROLL
        for (int i = 0; i < 8; i++) turned[i][r] = number(pair, k, L, i, i8);
    }
    PL_UNROLL
    for (int i = 0; i < 8; i++) {
        transpose_8x8(turned[i]);
        PL_UNROLL
        for (int l = 0; l < LANES; l++) strip[8 * l + i] = turned[i][l];
    }
}

/* Up to eight stored rows on M activation rows. */
static PL_ALWAYS_INLINE void axis1_many(const pl_trellis_product *p, size_t r0, int k, int L,
                                        int i8)
{
    size_t T = p->block, groups = pl_block_groups(T), bytes = T * (size_t)k / 8;
    size_t rows = PL_MIN(p->rows - r0, LANES), row = p->blocks * pl_span_round(T);
    int16x8_t strip[PL_GROUP_AXIS1];
    float sums[PL_PRODUCT_ROWS * LANES] = {0}; /* [M][8] */
    uint8_t *tails = p->scratch;
    for (size_t b = 0; b < p->blocks; b++) {
        const uint8_t *codes = p->codes + r0 * p->row_bytes + b * bytes;
        make_tails(tails, codes, p->row_bytes, rows, T, k);
        for (size_t g = 0; g < groups; g++) {
            size_t n = PL_MIN(T - g * PL_GROUP_AXIS1, PL_GROUP_AXIS1);
            for (size_t s = 0; s * SPAN < n; s++)
                axis1_strip(strip + s * SPAN,
                            span_of(codes, p->row_bytes, tails, g * GROUP_SPANS + s, T, k), rows, k,
                            L, i8);
            strip_product product = {strip,
                                     n,
                                     (const int16_t *)p->q + b * pl_span_round(T) +
                                         g * PL_GROUP_AXIS1,
                                     row,
                                     prepared_biases(p) + b * groups + g,
                                     p->blocks * groups,
                                     p->steps + b * groups + g,
                                     p->step_stride,
                                     sums,
                                     LANES};
            (i8 ? multiply_i8 : multiply_i16)(&product, p->M);
        }
    }
    for (size_t m = 0; m < p->M; m++)
        memcpy(p->out + m * p->out_stride + r0, sums + m * LANES, rows * sizeof *sums);
}

static PL_ALWAYS_INLINE void axis1(const pl_trellis_product *p, int k, int L, int i8)
{
    if (p->M == 1)
        for (size_t r = 0; r < p->rows; r += 4) axis1_one(p, r, k, L, i8);
    else
        for (size_t r = 0; r < p->rows; r += LANES) axis1_many(p, r, k, L, i8);
}

/* ---- instances ------------------------------------------------------------------------------- */

#define PRODUCT(name, axis, k, L, i8)                                                              \
    void pl_##name##_k##k##_l##L##_neon(const pl_trellis_product *p)                               \
    {                                                                                              \
        axis(p, k, L, i8);                                                                         \
    }
#define TRELLIS_KERNELS(k, L)                                                                      \
    PRODUCT(axis0, axis0, k, L, 0)                                                                 \
    PRODUCT(axis1, axis1, k, L, 0)                                                                 \
    PRODUCT(axis0_i8, axis0, k, L, 1)                                                              \
    PRODUCT(axis1_i8, axis1, k, L, 1)

PL_EACH_CODE(TRELLIS_KERNELS)

void pl_kernels_init_trellis_neon(pl_kernels *table)
{
    table->product.prepare = prepare_i16;
    table->product.prepare_i8 = prepare_i8;
#define SET(k, L)                                                                                  \
    table->product.axis0[k - 2][L == 16] = pl_axis0_k##k##_l##L##_neon;                            \
    table->product.axis1[k - 2][L == 16] = pl_axis1_k##k##_l##L##_neon;                            \
    table->product.axis0_i8[k - 2][L == 16] = pl_axis0_i8_k##k##_l##L##_neon;                      \
    table->product.axis1_i8[k - 2][L == 16] = pl_axis1_i8_k##k##_l##L##_neon;
    PL_EACH_CODE(SET)
#undef SET
}
