/* SPDX-License-Identifier: Apache-2.0
 *
 * Affine products for NEON: four rows of weights at a time, a lane of f32 sums each. A row's codes
 * are words of a register when they meet the activations; for several of those they are kept so. */
#include <arm_neon.h>

#include "kernels/affine_numbers.h"
#include "kernels/kernels.h"

enum { ROWS = 4, MOST_GROUP = 128 };

/* ---- codes and numbers ----------------------------------------------------------------------- */

/* Eight codes are `bits` bytes: each is shifted down inside the two bytes that it begins in. */
static PL_ALWAYS_INLINE int16x8_t load_8(const uint8_t *p, unsigned bits)
{
    uint8_t at[16];
    int16_t down[8];
    for (unsigned j = 0; j < 8; j++) { /* constants, once the loop is unrolled */
        at[2 * j] = (uint8_t)(j * bits / 8);
        at[2 * j + 1] = (uint8_t)(j * bits / 8 + 1);
        down[j] = (int16_t)-(int16_t)(j * bits % 8);
    }
    uint8x16_t bytes = vcombine_u8(vcreate_u8(affine_eight(p, bits)), vdup_n_u8(0));
    uint16x8_t pairs = vreinterpretq_u16_u8(vqtbl1q_u8(bytes, vld1q_u8(at)));
    uint16x8_t mask = vdupq_n_u16((uint16_t)((1u << bits) - 1));
    return vreinterpretq_s16_u16(vandq_u16(vshlq_u16(pairs, vld1q_s16(down)), mask));
}

static PL_ALWAYS_INLINE void widen(int16x8_t w[2], uint8x16_t bytes)
{
    w[0] = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes)));
    w[1] = vreinterpretq_s16_u16(vmovl_high_u8(bytes));
}

static PL_ALWAYS_INLINE void load_16(int16x8_t w[2], const uint8_t *p, unsigned bits)
{
    if (bits == 8) {
        widen(w, vld1q_u8(p));
    } else if (bits == 4) {
        uint8x8_t both = vld1_u8(p), low = vand_u8(both, vdup_n_u8(15)), high = vshr_n_u8(both, 4);
        widen(w, vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high)));
    } else {
        w[0] = load_8(p, bits);
        w[1] = load_8(p + bits, bits);
    }
}

static PL_ALWAYS_INLINE float32x4_t load_numbers(const uint8_t *p, size_t stride, int type)
{
    uint16_t h[ROWS];
    float f[ROWS];
    for (size_t r = 0; r < ROWS; r++) {
        if (type == PL_AFFINE_F32)
            memcpy(&f[r], p + r * stride, sizeof f[r]);
        else
            memcpy(&h[r], p + r * stride, sizeof h[r]);
    }
    if (type == PL_AFFINE_F32) return vld1q_f32(f);
    if (type == PL_AFFINE_F16) return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h)));
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(h), 16));
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* One group of four rows. */
typedef struct piece {
    const pl_affine_product *p;
    size_t row, group;
    float32x4_t scale, bias;
    int16_t words[ROWS][MOST_GROUP];
} piece;

static PL_ALWAYS_INLINE int32x4_t add_products(int32x4_t sum, const int16x8_t w[2],
                                               const int16x8_t q[2])
{
    for (int i = 0; i < 2; i++) {
        sum = vmlal_s16(sum, vget_low_s16(w[i]), vget_low_s16(q[i]));
        sum = vmlal_high_s16(sum, w[i], q[i]);
    }
    return sum;
}

static PL_ALWAYS_INLINE void add_group(const piece *s, size_t m, const int32x4_t v[ROWS])
{
    const pl_affine_product *p = s->p;
    const float *step = p->steps + m * p->step_stride + 2 * s->group;
    float *out = p->out + m * p->out_stride + s->row;
    int32x4_t total = vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
    float32x4_t scaled = vmulq_f32(vmulq_n_f32(vcvtq_f32_s32(total), step[0]), s->scale);
    float32x4_t part = vaddq_f32(scaled, vmulq_n_f32(s->bias, step[1]));
    vst1q_f32(out, vaddq_f32(s->group ? vld1q_f32(out) : vdupq_n_f32(0), part));
}

/* One activation row and codes as they lie. */
static PL_ALWAYS_INLINE void one_row(const piece *s, unsigned bits)
{
    const pl_affine_product *p = s->p;
    const int16_t *q = p->q + s->group * p->group;
    const uint8_t *codes = p->codes + s->row * p->row_bytes + s->group * p->group * bits / 8;
    int32x4_t sum[ROWS];
    for (size_t r = 0; r < ROWS; r++) sum[r] = vdupq_n_s32(0);
    for (size_t i = 0; i < p->group; i += 16, codes += 2 * bits) {
        int16x8_t v[2] = {vld1q_s16(q + i), vld1q_s16(q + i + 8)}, w[2];
        for (size_t r = 0; r < ROWS; r++) {
            load_16(w, codes + r * p->row_bytes, bits);
            sum[r] = add_products(sum[r], w, v);
        }
    }
    add_group(s, 0, sum);
}

static PL_ALWAYS_INLINE void unpack(piece *s, unsigned bits)
{
    const pl_affine_product *p = s->p;
    const uint8_t *codes = p->codes + s->row * p->row_bytes + s->group * p->group * bits / 8;
    for (size_t r = 0; r < ROWS; r++)
        for (size_t i = 0; i < p->group; i += 16) {
            int16x8_t w[2];
            load_16(w, codes + r * p->row_bytes + i * bits / 8, bits);
            vst1q_s16(s->words[r] + i, w[0]);
            vst1q_s16(s->words[r] + i + 8, w[1]);
        }
}

/* N activation rows from m on. */
static PL_ALWAYS_INLINE void some_rows(const piece *s, size_t m, size_t N)
{
    const pl_affine_product *p = s->p;
    const int16_t *q = p->q + m * p->q_stride + s->group * p->group;
    int32x4_t sum[2][ROWS];
    for (size_t n = 0; n < N; n++)
        for (size_t r = 0; r < ROWS; r++) sum[n][r] = vdupq_n_s32(0);
    for (size_t i = 0; i < p->group; i += 16) {
        int16x8_t v[2][2];
        for (size_t n = 0; n < N; n++)
            for (size_t h = 0; h < 2; h++) v[n][h] = vld1q_s16(q + n * p->q_stride + i + 8 * h);
        for (size_t r = 0; r < ROWS; r++) {
            int16x8_t w[2] = {vld1q_s16(s->words[r] + i), vld1q_s16(s->words[r] + i + 8)};
            for (size_t n = 0; n < N; n++) sum[n][r] = add_products(sum[n][r], w, v[n]);
        }
    }
    for (size_t n = 0; n < N; n++) add_group(s, m + n, sum[n]);
}

static void many_rows(const piece *s)
{
    size_t m = 0;
    for (; m + 2 <= s->p->M; m += 2) some_rows(s, m, 2);
    if (m < s->p->M) some_rows(s, m, 1);
}

/* ---- the product ----------------------------------------------------------------------------- */

#define PIECE(bits)                                                                                \
    static void piece##bits(piece *s)                                                              \
    {                                                                                              \
        if (s->p->M == 1) {                                                                        \
            one_row(s, bits);                                                                      \
            return;                                                                                \
        }                                                                                          \
        unpack(s, bits);                                                                           \
        many_rows(s);                                                                              \
    }

PIECE(2)
PIECE(3)
PIECE(4)
PIECE(5)
PIECE(6)
PIECE(8)

static void read_numbers(piece *s)
{
    const pl_affine_product *p = s->p;
    size_t size = affine_number_bytes(p->type), stride = p->n / p->group * size;
    const uint8_t *scales = (const uint8_t *)p->scales + s->row * stride + s->group * size;
    const uint8_t *biases = (const uint8_t *)p->biases + s->row * stride + s->group * size;
    if (p->type == PL_AFFINE_BF16) {
        s->scale = load_numbers(scales, stride, PL_AFFINE_BF16);
        s->bias = load_numbers(biases, stride, PL_AFFINE_BF16);
    } else if (p->type == PL_AFFINE_F16) {
        s->scale = load_numbers(scales, stride, PL_AFFINE_F16);
        s->bias = load_numbers(biases, stride, PL_AFFINE_F16);
    } else {
        s->scale = load_numbers(scales, stride, PL_AFFINE_F32);
        s->bias = load_numbers(biases, stride, PL_AFFINE_F32);
    }
}

/* The last rows, when they are no whole four, begin among those before them. */
static void affine_product_neon(const pl_affine_product *p)
{
    static void (*const multiply[])(piece *) = {[2] = piece2, [3] = piece3, [4] = piece4,
                                                [5] = piece5, [6] = piece6, [8] = piece8};
    piece s;
    s.p = p;
    if (p->rows < ROWS) {
        pl_affine_product_c(p);
        return;
    }
    for (size_t r = 0; r < p->rows; r += ROWS) {
        s.row = PL_MIN(r, p->rows - ROWS);
        for (s.group = 0; s.group < p->n / p->group; s.group++) {
            read_numbers(&s);
            multiply[p->bits](&s);
        }
    }
}

void pl_kernels_init_affine_neon(pl_kernels *k)
{
    k->product.affine_product = affine_product_neon;
}
