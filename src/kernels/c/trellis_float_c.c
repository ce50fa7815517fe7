/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products in floating point and plain decoding in portable C: the formulas of
 * product_float.h one by one. */
#include <string.h>

#include "base/half.h"
#include "kernels/kernels.h"
#include "trellis_values.h"

/* Weights of one block, as the products take them. */
static void weights(float *w, const uint8_t *block, size_t T, float scale, unsigned k, unsigned L,
                    int type)
{
    int16_t y[PL_TRELLIS_MAX_BLOCK];
    values_of_block(y, block, T, k, L);
    if (type == PL_FLOAT_F32)
        for (size_t t = 0; t < T; t++) w[t] = y[t];
    else
        for (size_t t = 0; t < T; t++)
            w[t] = pl_bf16_to_f32(pl_f32_to_bf16((float)y[t] / PL_TRELLIS_DIVISOR * scale));
}

static float scale_of(const pl_float_product *p, size_t row, int type)
{
    return type == PL_FLOAT_BF16 ? p->scales[row] : 0;
}

/* ---- products -------------------------------------------------------------------------------- */

static const float *row_of_x(const pl_float_product *p, size_t m)
{
    return (const float *)(const void *)((const uint8_t *)p->x + m * p->x_bytes);
}

static void axis0(const pl_float_product *p, unsigned k, unsigned L, int type)
{
    size_t T = p->block;
    float w[PL_TRELLIS_MAX_BLOCK];
    float *sums = p->scratch; /* [M][T] */
    for (size_t first = 0; first < p->rows; first += p->split) {
        size_t end = PL_MIN(first + p->split, p->rows);
        memset(sums, 0, p->M * T * sizeof *sums);
        for (size_t r = first; r < end; r++) {
            weights(w, p->codes + r * p->row_bytes, T, scale_of(p, r, type), k, L, type);
            for (size_t m = 0; m < p->M; m++) {
                float x = row_of_x(p, m)[p->first + r];
                for (size_t t = 0; t < T; t++) sums[m * T + t] += w[t] * x;
            }
        }
        for (size_t m = 0; m < p->M; m++) {
            float *out = p->out + m * p->out_stride;
            for (size_t t = 0; t < T; t++)
                out[t] = first ? out[t] + sums[m * T + t] : sums[m * T + t];
        }
    }
}

static void axis1(const pl_float_product *p, unsigned k, unsigned L, int type)
{
    size_t T = p->block;
    float w[PL_TRELLIS_MAX_BLOCK];
    for (size_t r = 0; r < p->rows; r++) {
        for (size_t m = 0; m < p->M; m++) p->out[m * p->out_stride + r] = 0;
        for (size_t b = 0; b < p->blocks; b++) {
            weights(w, p->codes + r * p->row_bytes + b * T * k / 8, T, scale_of(p, r, type), k, L,
                    type);
            for (size_t m = 0; m < p->M; m++) {
                const float *x = row_of_x(p, m) + b * T;
                float sum = 0;
                for (size_t t = 0; t < T; t++) sum += w[t] * x[t];
                p->out[m * p->out_stride + r] += sum;
            }
        }
    }
}

static float round_bf16(float x)
{
    return pl_bf16_to_f32(pl_f32_to_bf16(x));
}

static void prepare0_f32_c(void *dst, const float *x, const float *scales, size_t n)
{
    float *to = dst;
    for (size_t i = 0; i < n; i++) to[i] = x[i] * scales[i];
}

static void prepare0_bf16_c(void *dst, const float *x, const float *scales, size_t n)
{
    float *to = dst;
    (void)scales;
    for (size_t i = 0; i < n; i++) to[i] = round_bf16(x[i]);
}

static void prepare1_f32_c(void *dst, const float *x, size_t n, size_t block, size_t blocks)
{
    float *to = dst;
    memcpy(to, x, n * sizeof *to);
    memset(to + n, 0, (block * blocks - n) * sizeof *to);
}

static void prepare1_bf16_c(void *dst, const float *x, size_t n, size_t block, size_t blocks)
{
    float *to = dst;
    for (size_t i = 0; i < n; i++) to[i] = round_bf16(x[i]);
    memset(to + n, 0, (block * blocks - n) * sizeof *to);
}

/* ---- plain numbers --------------------------------------------------------------------------- */

static void expand(uint16_t *dst, const uint8_t *codes, size_t T, size_t blocks, float scale,
                   unsigned k, unsigned L)
{
    int16_t y[PL_TRELLIS_MAX_BLOCK];
    for (size_t b = 0; b < blocks; b++, dst += T) {
        values_of_block(y, codes + b * T * k / 8, T, k, L);
        for (size_t t = 0; t < T; t++)
            dst[t] = pl_f32_to_bf16((float)y[t] / PL_TRELLIS_DIVISOR * scale);
    }
}

static void decode(float *dst, const uint8_t *codes, size_t T, size_t blocks, float scale,
                   unsigned k, unsigned L)
{
    int16_t y[PL_TRELLIS_MAX_BLOCK];
    for (size_t b = 0; b < blocks; b++, dst += T) {
        values_of_block(y, codes + b * T * k / 8, T, k, L);
        for (size_t t = 0; t < T; t++) dst[t] = (float)y[t] * (1.0f / PL_TRELLIS_DIVISOR) * scale;
    }
}

/* ---- instances ------------------------------------------------------------------------------- */

#define KERNELS(k, L)                                                                              \
    static void axis0_f32_k##k##_l##L##_c(const pl_float_product *p)                               \
    {                                                                                              \
        axis0(p, k, L, PL_FLOAT_F32);                                                              \
    }                                                                                              \
    static void axis1_f32_k##k##_l##L##_c(const pl_float_product *p)                               \
    {                                                                                              \
        axis1(p, k, L, PL_FLOAT_F32);                                                              \
    }                                                                                              \
    static void axis0_bf16_k##k##_l##L##_c(const pl_float_product *p)                              \
    {                                                                                              \
        axis0(p, k, L, PL_FLOAT_BF16);                                                             \
    }                                                                                              \
    static void axis1_bf16_k##k##_l##L##_c(const pl_float_product *p)                              \
    {                                                                                              \
        axis1(p, k, L, PL_FLOAT_BF16);                                                             \
    }                                                                                              \
    static void expand_k##k##_l##L##_c(uint16_t *dst, const uint8_t *codes, size_t T,              \
                                       size_t blocks, float scale, bool stream)                    \
    {                                                                                              \
        (void)stream;                                                                              \
        expand(dst, codes, T, blocks, scale, k, L);                                                \
    }                                                                                              \
    static void decode_k##k##_l##L##_c(float *dst, const uint8_t *codes, size_t T, size_t blocks,  \
                                       float scale, bool stream)                                   \
    {                                                                                              \
        (void)stream;                                                                              \
        decode(dst, codes, T, blocks, scale, k, L);                                                \
    }

PL_EACH_CODE(KERNELS)

void pl_kernels_init_float_c(pl_kernels *table)
{
    pl_float_kernels *f = &table->floats;
    f->prepare0[PL_FLOAT_F32] = prepare0_f32_c;
    f->prepare0[PL_FLOAT_BF16] = prepare0_bf16_c;
    f->prepare1[PL_FLOAT_F32] = prepare1_f32_c;
    f->prepare1[PL_FLOAT_BF16] = prepare1_bf16_c;
#define SET(k, L)                                                                                  \
    f->axis0[PL_FLOAT_F32][k - 2][L == 16] = axis0_f32_k##k##_l##L##_c;                            \
    f->axis1[PL_FLOAT_F32][k - 2][L == 16] = axis1_f32_k##k##_l##L##_c;                            \
    f->axis0[PL_FLOAT_BF16][k - 2][L == 16] = axis0_bf16_k##k##_l##L##_c;                          \
    f->axis1[PL_FLOAT_BF16][k - 2][L == 16] = axis1_bf16_k##k##_l##L##_c;                          \
    f->expand[k - 2][L == 16] = expand_k##k##_l##L##_c;                                            \
    f->decode[k - 2][L == 16] = decode_k##k##_l##L##_c;
    PL_EACH_CODE(SET)
#undef SET
}
