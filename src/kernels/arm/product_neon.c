/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain products for NEON, and rows of plain codings as f32. The roundings (quantize_i16) are the
 * portable ones, which the compiler turns into NEON itself. */
#include <arm_neon.h>
#include <stdbool.h>

#include "kernels/kernels.h"
#include "kernels/vector.h"

typedef float32x4_t fvec;
enum { LANES = 4, TILE_X = 4 };

static PL_ALWAYS_INLINE fvec f_zero(void)
{
    return vdupq_n_f32(0);
}
static PL_ALWAYS_INLINE fvec f_load(const float *p)
{
    return vld1q_f32(p);
}
static PL_ALWAYS_INLINE fvec f_fma(fvec a, fvec b, fvec c)
{
    return vfmaq_f32(c, a, b);
}

/* p[0..n), n < LANES, zeros after. */
static PL_ALWAYS_INLINE fvec f_load_first(const float *p, size_t n)
{
    float lane[LANES] = {0};
    for (size_t i = 0; i < n; i++) lane[i] = p[i];
    return vld1q_f32(lane);
}

/* sums[r]: the sum of the lanes of v[r]. */
static PL_ALWAYS_INLINE void f_sum4(float sums[4], const fvec v[4])
{
    vst1q_f32(sums, vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3])));
}

#include "kernels/product_body.h"

/* ---- rows of plain codings ------------------------------------------------------------------- */

static PL_ALWAYS_INLINE float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

static PL_ALWAYS_INLINE uint16x8_t load_u16(const void *src, size_t i)
{
    return vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)src + 2 * i));
}

static void bf16_neon(float *dst, const void *src, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        uint16x8_t h = load_u16(src, i);
        vst1q_f32(dst + i, vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)));
        vst1q_f32(dst + i + 4, vreinterpretq_f32_u32(vshll_high_n_u16(h, 16)));
    }
}

static void f16_neon(float *dst, const void *src, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        float16x8_t h = vreinterpretq_f16_u16(load_u16(src, i));
        vst1q_f32(dst + i, vcvt_f32_f16(vget_low_f16(h)));
        vst1q_f32(dst + i + 4, vcvt_high_f32_f16(h));
    }
}

/* Two registers of four floats from eight integers. */
static PL_ALWAYS_INLINE void floats_of_words(fvec f[2], int16x8_t q)
{
    f[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(q)));
    f[1] = vcvtq_f32_s32(vmovl_high_s16(q));
}

/* Blocks of 32 as in GGUF: fp16 d, [fp16 m,] codes; 4-bit codes 0..15 in low nibbles, 16..31 high.
 */

static void q8_0_neon(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i += 32, p += 34) {
        float d = half_at(p);
        for (size_t j = 0; j < 32; j += 8) {
            fvec f[2];
            floats_of_words(f, vmovl_s8(vreinterpret_s8_u8(vld1_u8(p + 2 + j))));
            vst1q_f32(dst + i + j, vmulq_n_f32(f[0], d));
            vst1q_f32(dst + i + j + 4, vmulq_n_f32(f[1], d));
        }
    }
}

/* Codes less `offset` as words: half[j] has codes 8 j .. 8 j + 7. */
static PL_ALWAYS_INLINE void nibbles(int16x8_t half[4], const uint8_t *p, int8_t offset)
{
    uint8x16_t both = vld1q_u8(p);
    int8x16_t low = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
    int8x16_t high = vreinterpretq_s8_u8(vshrq_n_u8(both, 4)), less = vdupq_n_s8(offset);
    low = vsubq_s8(low, less);
    high = vsubq_s8(high, less);
    half[0] = vmovl_s8(vget_low_s8(low));
    half[1] = vmovl_high_s8(low);
    half[2] = vmovl_s8(vget_low_s8(high));
    half[3] = vmovl_high_s8(high);
}

static void q4_0_neon(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i += 32, p += 18) {
        float d = half_at(p);
        int16x8_t q[4];
        nibbles(q, p + 2, 8);
        for (size_t j = 0; j < 4; j++) {
            fvec f[2];
            floats_of_words(f, q[j]);
            vst1q_f32(dst + i + 8 * j, vmulq_n_f32(f[0], d));
            vst1q_f32(dst + i + 8 * j + 4, vmulq_n_f32(f[1], d));
        }
    }
}

static void q4_1_neon(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i += 32, p += 20) {
        float d = half_at(p);
        fvec min = vdupq_n_f32(half_at(p + 2));
        int16x8_t q[4];
        nibbles(q, p + 4, 0);
        for (size_t j = 0; j < 4; j++) {
            fvec f[2];
            floats_of_words(f, q[j]);
            vst1q_f32(dst + i + 8 * j, vaddq_f32(vmulq_n_f32(f[0], d), min));
            vst1q_f32(dst + i + 8 * j + 4, vaddq_f32(vmulq_n_f32(f[1], d), min));
        }
    }
}

/* ---- affine rows ----------------------------------------------------------------------------- */

/* Numbers with their last `drop` mantissa bits rounded away, ties to even: 1.5 * 2^drop times a
 * number's power of two, added and taken off again, leaves no room for them. -0 becomes 0. */
static PL_ALWAYS_INLINE fvec round_bits(fvec v, int drop)
{
    uint32x4_t exponent = vandq_u32(vreinterpretq_u32_f32(v), vdupq_n_u32(0x7f800000));
    fvec big = vreinterpretq_f32_u32(
        vaddq_u32(exponent, vdupq_n_u32(((uint32_t)drop << 23) + 0x400000)));
    return vsubq_f32(vaddq_f32(v, big), big);
}

/* To fp16 and back by rounding to its 11 bits: numbers below its normal range are multiples of
 * 2^-24 here, as scale and bias are, and so have 11 bits or fewer already. The caller keeps to
 * numbers that stay below fp16's largest. */
static PL_ALWAYS_INLINE fvec round_to(fvec v, int type)
{
    if (type == PL_AFFINE_BF16) return round_bits(v, 16);
    if (type == PL_AFFINE_F16) return round_bits(v, 13);
    return v;
}

static PL_ALWAYS_INLINE float number_at(const void *values, size_t i, int type)
{
    uint16_t h;
    float f;
    if (type == PL_AFFINE_F32) {
        memcpy(&f, (const uint8_t *)values + 4 * i, sizeof f);
        return f;
    }
    memcpy(&h, (const uint8_t *)values + 2 * i, sizeof h);
    return type == PL_AFFINE_BF16 ? pl_bf16_to_f32(h) : half_at((const uint8_t *)values + 2 * i);
}

/* Eight codes are `bits` bytes: each is shifted down inside the two bytes that hold it. */
static PL_ALWAYS_INLINE void eight_codes(fvec f[2], const uint8_t *p, int bits)
{
    uint64_t word = p[0];
    for (int i = 1; i < bits; i++) word |= (uint64_t)p[i] << 8 * i;
    uint8x8_t bytes = vcreate_u8(word);
    if (bits == 8) {
        floats_of_words(f, vreinterpretq_s16_u16(vmovl_u8(bytes)));
        return;
    }
    uint8_t at[16];
    int16_t down[8];
    for (int j = 0; j < 8; j++) { /* constants, once the loops are unrolled */
        at[2 * j] = (uint8_t)(j * bits / 8);
        at[2 * j + 1] = (uint8_t)(j * bits / 8 + 1);
        down[j] = (int16_t)-(j * bits % 8);
    }
    uint16x8_t pairs =
        vreinterpretq_u16_u8(vqtbl1q_u8(vcombine_u8(bytes, vdup_n_u8(0)), vld1q_u8(at)));
    uint16x8_t codes = vandq_u16(vshlq_u16(pairs, vld1q_s16(down)),
                                 vdupq_n_u16((uint16_t)((1 << bits) - 1)));
    floats_of_words(f, vreinterpretq_s16_u16(codes));
}

/* One number as pl_weight_rows_f32 rounds it, for groups with huge or no numbers in them. */
static float careful_number(float q, float scale, float bias, int type)
{
    float v = q * scale;
    if (type == PL_AFFINE_BF16)
        return pl_bf16_to_f32(pl_f32_to_bf16(pl_bf16_to_f32(pl_f32_to_bf16(v)) + bias));
    if (type == PL_AFFINE_F16)
        return pl_fp16_to_f32(pl_f32_to_fp16(pl_fp16_to_f32(pl_f32_to_fp16(v)) + bias));
    return v + bias;
}

static PL_ALWAYS_INLINE void affine_row(float *dst, const uint8_t *src, const void *scales,
                                        const void *biases, size_t n, size_t group, int bits,
                                        int type)
{
    for (size_t i = 0; i < n; i += group) {
        float scale = number_at(scales, i / group, type), bias = number_at(biases, i / group, type);
        fvec biases4 = vdupq_n_f32(bias);
        bool careful = !(255 * fabsf(scale) + fabsf(bias) < 6e4f);
        for (size_t j = i; j < i + group; j += 8, src += bits) {
            fvec f[2];
            eight_codes(f, src, bits);
            for (int e = 0; e < 2 && !careful; e++)
                f[e] = round_to(vaddq_f32(round_to(vmulq_n_f32(f[e], scale), type), biases4), type);
            vst1q_f32(dst + j, f[0]);
            vst1q_f32(dst + j + 4, f[1]);
            for (size_t e = j; careful && e < j + 8; e++)
                dst[e] = careful_number(dst[e], scale, bias, type);
        }
    }
}

#define AFFINE_ROW(bits, name, type)                                                               \
    static void affine##bits##_##name##_neon(float *dst, const void *src, const void *scales,      \
                                             const void *biases, size_t n, size_t group)           \
    {                                                                                              \
        affine_row(dst, src, scales, biases, n, group, bits, type);                                \
    }
#define AFFINE_ROWS(bits)                                                                          \
    AFFINE_ROW(bits, bf16, PL_AFFINE_BF16)                                                         \
    AFFINE_ROW(bits, f16, PL_AFFINE_F16)                                                           \
    AFFINE_ROW(bits, f32, PL_AFFINE_F32)
#define SET_AFFINE_ROWS(bits)                                                                      \
    k->product.affine[bits][PL_AFFINE_BF16] = affine##bits##_bf16_neon;                            \
    k->product.affine[bits][PL_AFFINE_F16] = affine##bits##_f16_neon;                              \
    k->product.affine[bits][PL_AFFINE_F32] = affine##bits##_f32_neon

AFFINE_ROWS(2)
AFFINE_ROWS(3)
AFFINE_ROWS(4)
AFFINE_ROWS(5)
AFFINE_ROWS(6)
AFFINE_ROWS(8)

void pl_kernels_init_product_neon(pl_kernels *k)
{
    k->product.rows = rows_tiled;
    k->product.bf16 = bf16_neon;
    k->product.f16 = f16_neon;
    k->product.q8_0 = q8_0_neon;
    k->product.q4_0 = q4_0_neon;
    k->product.q4_1 = q4_1_neon;
    SET_AFFINE_ROWS(2);
    SET_AFFINE_ROWS(3);
    SET_AFFINE_ROWS(4);
    SET_AFFINE_ROWS(5);
    SET_AFFINE_ROWS(6);
    SET_AFFINE_ROWS(8);
}
