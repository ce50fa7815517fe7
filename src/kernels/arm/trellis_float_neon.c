/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products in floating point, NEON. Numbers are decoded once for all activation rows, a
 * group of stored rows by a span at a time, to strips of eight f32 outputs that lie in the cache,
 * and multiplied by fused multiply-adds. bf16 rounds weights and activations and then does the
 * same: products of two bf16 are exact in f32. */
#include <math.h>
#include <stdbool.h>

#include "base/half.h"
#include "trellis_codes.h"

enum {
    STRIP_ROWS = 8,  /* activation rows on one strip: 16 sums, 8 activations, 2 weights */
    GROUP_ROWS = 64, /* of axis 0 decoded at a time */
    OUTPUTS = 8      /* of a strip */
};

/* ---- weights --------------------------------------------------------------------------------- */

/* Eight numbers y + 510 as weights, by two registers of scales. */
static PL_ALWAYS_INLINE void weights(float *to, int16x8_t y, const float32x4_t scale[2], int type)
{
    y = vsubq_s16(y, vdupq_n_s16(510));
    int16x4_t half[2] = {vget_low_s16(y), vget_high_s16(y)};
    PL_UNROLL
    for (int h = 0; h < 2; h++) {
        float32x4_t w = vcvtq_f32_s32(vmovl_s16(half[h]));
        if (type == PL_FLOAT_BF16)
            w = vreinterpretq_f32_u32(
                vbicq_u32(rounded(expanded(half[h], scale[h])), vdupq_n_u32(0xffff)));
        vst1q_f32(to + 4 * h, w);
    }
}

static PL_ALWAYS_INLINE float scale_of(const pl_float_product *p, size_t row, int type)
{
    float scale = type == PL_FLOAT_BF16 ? p->scales[row] : 0;
    return isnan(scale) ? NAN : scale;
}

/* ---- strips ---------------------------------------------------------------------------------- */

#define MULTIPLY_WEIGHT(j)                                                                         \
    do {                                                                                           \
        float32x4_t w0 = vld1q_f32(strip + (i + j) * OUTPUTS);                                     \
        float32x4_t w1 = vld1q_f32(strip + (i + j) * OUTPUTS + 4);                                 \
        PL_UNROLL                                                                                  \
        for (int m = 0; m < M; m++) {                                                              \
            sum[m][0] = vfmaq_laneq_f32(sum[m][0], w0, a[m], j);                                   \
            sum[m][1] = vfmaq_laneq_f32(sum[m][1], w1, a[m], j);                                   \
        }                                                                                          \
    } while (0)

/* sums[m][0..8) += strip[n][8] * x[m][n], term by term, n a multiple of 4. */
static PL_ALWAYS_INLINE void multiply_strip(float *sums, size_t sum_stride, const float *strip,
                                            size_t n, const uint8_t *x, size_t x_bytes, int M)
{
    float32x4_t sum[STRIP_ROWS][2];
    PL_UNROLL
    for (int m = 0; m < M; m++) {
        sum[m][0] = vld1q_f32(sums + (size_t)m * sum_stride);
        sum[m][1] = vld1q_f32(sums + (size_t)m * sum_stride + 4);
    }
    for (size_t i = 0; i < n; i += 4) {
        float32x4_t a[STRIP_ROWS];
        PL_UNROLL
        for (int m = 0; m < M; m++)
            a[m] = vld1q_f32((const float *)(const void *)(x + (size_t)m * x_bytes) + i);
        MULTIPLY_WEIGHT(0);
        MULTIPLY_WEIGHT(1);
        MULTIPLY_WEIGHT(2);
        MULTIPLY_WEIGHT(3);
    }
    PL_UNROLL
    for (int m = 0; m < M; m++) {
        vst1q_f32(sums + (size_t)m * sum_stride, sum[m][0]);
        vst1q_f32(sums + (size_t)m * sum_stride + 4, sum[m][1]);
    }
}

static PL_NOINLINE void multiply_rows(float *sums, size_t sum_stride, const float *strip, size_t n,
                                      const uint8_t *x, size_t x_bytes, size_t M)
{
    for (; M >= STRIP_ROWS; M -= STRIP_ROWS) {
        multiply_strip(sums, sum_stride, strip, n, x, x_bytes, STRIP_ROWS);
        sums += STRIP_ROWS * sum_stride;
        x += STRIP_ROWS * x_bytes;
    }
    for (; M >= 4; M -= 4) {
        multiply_strip(sums, sum_stride, strip, n, x, x_bytes, 4);
        sums += 4 * sum_stride;
        x += 4 * x_bytes;
    }
    for (; M >= 2; M -= 2) {
        multiply_strip(sums, sum_stride, strip, n, x, x_bytes, 2);
        sums += 2 * sum_stride;
        x += 2 * x_bytes;
    }
    if (M) multiply_strip(sums, sum_stride, strip, n, x, x_bytes, 1);
}

/* ---- axis 0 ---------------------------------------------------------------------------------- */

/* One span of up to GROUP_ROWS stored rows added to the sums of all activation rows. Whole fours of
 * rows go through the strips; what is left goes row by row, in the same order. */
static PL_ALWAYS_INLINE void axis0_span(const pl_float_product *p, float *sums, float *tile,
                                        const uint8_t *tails, size_t s, size_t r0, size_t rows,
                                        int k, int L, int type)
{
    size_t T = p->block, outputs = pl_span_round(T), whole = rows / 4 * 4;
    const uint8_t *x = (const uint8_t *)p->x + (p->first + r0) * sizeof(float);
    span_codes at = span_of(p->codes + r0 * p->row_bytes, p->row_bytes, tails, s, T, k);
    for (size_t r = 0; r < rows; r++) {
        float32x4_t scale = vdupq_n_f32(scale_of(p, r0 + r, type));
        const float32x4_t scales[2] = {scale, scale};
        uint16x8_t pair[6];
        open_windows(pair, at.code + r * at.stride, k);
        PL_UNROLL
        for (int i = 0; i < 8; i++)
            weights(tile + ((size_t)i * GROUP_ROWS + r) * OUTPUTS, number(pair, k, L, i, 0), scales,
                    type);
    }
    for (size_t i = 0; i < 8; i++) {
        float *to = sums + s * SPAN + i * LANES, *strip = tile + i * GROUP_ROWS * OUTPUTS;
        multiply_rows(to, outputs, strip, whole, x, p->x_bytes, p->M);
        for (size_t r = whole; r < rows; r++)
            for (size_t m = 0; m < p->M; m++) {
                float a, *sum = to + m * outputs;
                memcpy(&a, x + m * p->x_bytes + r * sizeof a, sizeof a);
                for (size_t h = 0; h < OUTPUTS; h += 4)
                    vst1q_f32(sum + h, vfmaq_n_f32(vld1q_f32(sum + h),
                                                   vld1q_f32(strip + r * OUTPUTS + h), a));
            }
    }
}

static PL_ALWAYS_INLINE void axis0(const pl_float_product *p, int k, int L, int type)
{
    size_t T = p->block, outputs = pl_span_round(T), n = p->M * outputs;
    float *total = p->scratch, *part = total + n, *tile = part + n; /* [8][64][8] */
    uint8_t *tails = (uint8_t *)(tile + 8 * GROUP_ROWS * OUTPUTS);
    for (size_t first = 0; first < p->rows; first += p->split) {
        size_t end = PL_MIN(first + p->split, p->rows);
        float *sums = first ? part : total;
        memset(sums, 0, n * sizeof *sums);
        for (size_t r = first; r < end; r += GROUP_ROWS) {
            size_t rows = PL_MIN(end - r, GROUP_ROWS);
            make_tails(tails, p->codes + r * p->row_bytes, p->row_bytes, rows, T, k);
            for (size_t s = 0; s * SPAN < T; s++)
                axis0_span(p, sums, tile, tails, s, r, rows, k, L, type);
        }
        for (size_t i = 0; first && i < n; i++) total[i] += part[i];
    }
    for (size_t m = 0; m < p->M; m++)
        sort_outputs(p->out + m * p->out_stride, total + m * outputs, T);
}

/* ---- axis 1 ---------------------------------------------------------------------------------- */

/* One span of up to eight stored rows as a piece of a strip: outputs are rows, terms go along u. */
static PL_ALWAYS_INLINE void axis1_strip(float *strip, span_codes at, const float32x4_t scales[2],
                                         size_t rows, int k, int L, int type)
{
    int16x8_t turned[8][LANES]; /* [i][row] */
    memset(turned, 0, sizeof turned);
    for (size_t r = 0; r < rows; r++) {
        uint16x8_t pair[6];
        open_windows(pair, at.code + r * at.stride, k);
        PL_UNROLL
        for (int i = 0; i < 8; i++) turned[i][r] = number(pair, k, L, i, 0);
    }
    for (size_t i = 0; i < 8; i++) {
        transpose_8x8(turned[i]);
        for (size_t l = 0; l < LANES; l++)
            weights(strip + (8 * l + i) * OUTPUTS, turned[i][l], scales, type);
    }
}

/* Up to eight stored rows on all activation rows. Every block has a sum of its own. */
static PL_ALWAYS_INLINE void axis1_rows(const pl_float_product *p, size_t r0, int k, int L,
                                        int type)
{
    size_t T = p->block, bytes = T * (size_t)k / 8, rows = PL_MIN(p->rows - r0, OUTPUTS);
    size_t n = p->M * OUTPUTS;
    float strip[SPAN * OUTPUTS], scale[OUTPUTS] = {0};
    float *total = p->scratch, *part = total + n; /* [M][8] */
    uint8_t *tails = (uint8_t *)(part + n);
    for (size_t r = 0; r < rows; r++) scale[r] = scale_of(p, r0 + r, type);
    const float32x4_t scales[2] = {vld1q_f32(scale), vld1q_f32(scale + 4)};
    memset(total, 0, n * sizeof *total);
    for (size_t b = 0; b < p->blocks; b++) {
        const uint8_t *codes = p->codes + r0 * p->row_bytes + b * bytes;
        const uint8_t *x = (const uint8_t *)p->x + b * pl_span_round(T) * sizeof(float);
        make_tails(tails, codes, p->row_bytes, rows, T, k);
        memset(part, 0, n * sizeof *part);
        for (size_t s = 0; s * SPAN < T; s++) {
            axis1_strip(strip, span_of(codes, p->row_bytes, tails, s, T, k), scales, rows, k, L,
                        type);
            multiply_rows(part, OUTPUTS, strip, PL_MIN(T - s * SPAN, SPAN),
                          x + s * SPAN * sizeof(float), p->x_bytes, p->M);
        }
        for (size_t i = 0; i < n; i++) total[i] += part[i];
    }
    for (size_t m = 0; m < p->M; m++)
        memcpy(p->out + m * p->out_stride + r0, total + m * OUTPUTS, rows * sizeof *total);
}

static PL_ALWAYS_INLINE void axis1(const pl_float_product *p, int k, int L, int type)
{
    for (size_t r = 0; r < p->rows; r += OUTPUTS) axis1_rows(p, r, k, L, type);
}

/* Activations of axis 1 in the order of the bits, blocks padded. Axis 0 takes those of C. */
static PL_ALWAYS_INLINE void prepare1(void *dst, const float *x, size_t n, size_t block,
                                      size_t blocks, int type)
{
    float *to = dst;
    size_t width = pl_span_round(block);
    memset(to, 0, blocks * width * sizeof *to);
    for (size_t i = 0; i < n; i++)
        to[i / block * width + block - 1 - i % block] =
            type == PL_FLOAT_BF16 ? pl_bf16_to_f32(pl_f32_to_bf16(x[i])) : x[i];
}

static void prepare1_f32_neon(void *dst, const float *x, size_t n, size_t block, size_t blocks)
{
    prepare1(dst, x, n, block, blocks, PL_FLOAT_F32);
}

static void prepare1_bf16_neon(void *dst, const float *x, size_t n, size_t block, size_t blocks)
{
    prepare1(dst, x, n, block, blocks, PL_FLOAT_BF16);
}

/* ---- instances ------------------------------------------------------------------------------- */

#define PRODUCT(axis, name, type, k, L)                                                            \
    static void axis##_##name##_k##k##_l##L##_neon(const pl_float_product *p)                      \
    {                                                                                              \
        axis(p, k, L, type);                                                                       \
    }
#define FLOAT_KERNELS(k, L)                                                                        \
    PRODUCT(axis0, f32, PL_FLOAT_F32, k, L)                                                        \
    PRODUCT(axis1, f32, PL_FLOAT_F32, k, L)                                                        \
    PRODUCT(axis0, bf16, PL_FLOAT_BF16, k, L)                                                      \
    PRODUCT(axis1, bf16, PL_FLOAT_BF16, k, L)

PL_EACH_CODE(FLOAT_KERNELS)

void pl_kernels_init_float_neon(pl_kernels *table)
{
    pl_float_kernels *f = &table->floats;
    f->prepare1[PL_FLOAT_F32] = prepare1_f32_neon;
    f->prepare1[PL_FLOAT_BF16] = prepare1_bf16_neon;
#define SET(k, L)                                                                                  \
    f->axis0[PL_FLOAT_F32][k - 2][L == 16] = axis0_f32_k##k##_l##L##_neon;                         \
    f->axis1[PL_FLOAT_F32][k - 2][L == 16] = axis1_f32_k##k##_l##L##_neon;                         \
    f->axis0[PL_FLOAT_BF16][k - 2][L == 16] = axis0_bf16_k##k##_l##L##_neon;                       \
    f->axis1[PL_FLOAT_BF16][k - 2][L == 16] = axis1_bf16_k##k##_l##L##_neon;
    PL_EACH_CODE(SET)
#undef SET
}
