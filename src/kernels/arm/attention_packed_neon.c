/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on packed pages for NEON: scores in f32, from keys of four positions in a register. A
 * vec is two registers, for eight codes are whole bytes and four are not. */
#include <arm_neon.h>
#include <string.h>

#include "codec/turboquant.h"
#include "kernels/kernels.h"
#include "softmax_neon.h"

typedef float32x4x2_t vec;
enum {
    LANES = 8,
    V = 2,
    P = PL_ATTEND_BLOCK,
    GROUP = PL_TURBOQUANT_GROUP,
    STEP = 16,
    PLAIN = 32
};

static PL_ALWAYS_INLINE vec v_load(const float *p)
{
    return (vec){{vld1q_f32(p), vld1q_f32(p + 4)}};
}

static PL_ALWAYS_INLINE void v_store(float *p, vec x)
{
    vst1q_f32(p, x.val[0]);
    vst1q_f32(p + 4, x.val[1]);
}

static PL_ALWAYS_INLINE vec v_splat(const float *p)
{
    return (vec){{vld1q_dup_f32(p), vld1q_dup_f32(p)}};
}

static PL_ALWAYS_INLINE vec v_mul(vec a, vec b)
{
    return (vec){{vmulq_f32(a.val[0], b.val[0]), vmulq_f32(a.val[1], b.val[1])}};
}

static PL_ALWAYS_INLINE vec v_fma(vec a, vec b, vec c)
{
    return (vec){{vfmaq_f32(c.val[0], a.val[0], b.val[0]), vfmaq_f32(c.val[1], a.val[1], b.val[1])}};
}

static PL_ALWAYS_INLINE float32x4_t load4_fp16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

static PL_ALWAYS_INLINE vec v_load_fp16(const uint16_t *p)
{
    return (vec){{load4_fp16(p), load4_fp16(p + 4)}};
}

/* ---- unpacking ------------------------------------------------------------------------------- */

/* Code i of eight lies in the two bytes from b*i/8 on, at bit b*i % 8 of them. */
#define BYTES(b, i) ((b) * (i) / 8 | ((b) * (i) / 8 + 1) << 8)
#define SHIFT(b, i) (-((b) * (i) % 8))
#define EIGHT(of, b)                                                                               \
    {of(b, 0), of(b, 1), of(b, 2), of(b, 3), of(b, 4), of(b, 5), of(b, 6), of(b, 7)}

static const uint16_t bytes_of[][8] = {
    [2] = EIGHT(BYTES, 2), [3] = EIGHT(BYTES, 3), [4] = EIGHT(BYTES, 4), [5] = EIGHT(BYTES, 5)};
static const int16_t shift_of[][8] = {
    [2] = EIGHT(SHIFT, 2), [3] = EIGHT(SHIFT, 3), [4] = EIGHT(SHIFT, 4), [5] = EIGHT(SHIFT, 5)};

/* Eight codes of 2 to 5 bits at p, of which eight bytes are read. */
static PL_ALWAYS_INLINE uint16x8_t unpack8(uint32_t bits, const uint8_t *p)
{
    uint8x16_t at = vreinterpretq_u8_u16(vld1q_u16(bytes_of[bits]));
    uint8x16_t x = vqtbl1q_u8(vcombine_u8(vld1_u8(p), vdup_n_u8(0)), at);
    uint16x8_t codes = vshlq_u16(vreinterpretq_u16_u8(x), vld1q_s16(shift_of[bits]));
    return vandq_u16(codes, vdupq_n_u16((uint16_t)((1 << bits) - 1)));
}

/* Codes of 5 bits are widened to bytes before they are arranged. */
static PL_ALWAYS_INLINE uint32_t lane_bits(uint32_t bits)
{
    return bits == 5 ? 8 : bits;
}

/* Bytes 16*slab .. of a token's codes, as they are, or widened; of 8 bits made unsigned. */
static PL_ALWAYS_INLINE uint32x4_t load_slab(const uint8_t *codes, size_t slab, uint32_t bits)
{
    if (bits == 5) {
        const uint8_t *p = codes + 10 * slab;
        uint8x8_t low = vmovn_u16(unpack8(5, p)), high = vmovn_u16(unpack8(5, p + 5));
        return vreinterpretq_u32_u8(vcombine_u8(low, high));
    }
    uint8x16_t x = vld1q_u8(codes + 16 * slab);
    return vreinterpretq_u32_u8(bits == 8 ? veorq_u8(x, vdupq_n_u8(128)) : x);
}

/* words[w][j] = word w of the codes of position j, for STEP positions; the last slab may reach into
 * what follows them in the page. */
static PL_ALWAYS_INLINE void arrange(uint32_t (*words)[STEP], const uint8_t *codes, size_t stride,
                                     size_t D, uint32_t bits)
{
    size_t slabs = (D * lane_bits(bits) / 8 + 15) / 16;
    for (size_t s = 0; s < slabs; s++, words += 4)
        for (size_t j = 0; j < STEP; j += 4) {
            uint32x4_t x[4], a[4];
            for (size_t i = 0; i < 4; i++) x[i] = load_slab(codes + (j + i) * stride, s, bits);
            a[0] = vzip1q_u32(x[0], x[2]);
            a[1] = vzip2q_u32(x[0], x[2]);
            a[2] = vzip1q_u32(x[1], x[3]);
            a[3] = vzip2q_u32(x[1], x[3]);
            vst1q_u32(words[0] + j, vzip1q_u32(a[0], a[2]));
            vst1q_u32(words[1] + j, vzip2q_u32(a[0], a[2]));
            vst1q_u32(words[2] + j, vzip1q_u32(a[1], a[3]));
            vst1q_u32(words[3] + j, vzip2q_u32(a[1], a[3]));
        }
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* dot[r][h] += the products of R rows with the numbers in a word of STEP positions. */
static PL_ALWAYS_INLINE void dot_word(size_t R, uint32_t b, float32x4_t dot[4][4], const float *q,
                                      size_t stride, const uint32_t words[STEP])
{
    const uint32x4_t mask = vdupq_n_u32((1u << b) - 1);
    PL_UNROLL
    for (uint32_t s = 0; s < 32 / b; s++) {
        const int32x4_t down = vdupq_n_s32(-(int32_t)(b * s));
        for (size_t h = 0; h < 4; h++) {
            uint32x4_t word = vshlq_u32(vld1q_u32(words + 4 * h), down);
            float32x4_t x = vcvtq_f32_u32(vandq_u32(word, mask));
            for (size_t r = 0; r < R; r++)
                dot[r][h] = vfmaq_n_f32(dot[r][h], x, q[r * stride + s]);
        }
    }
}

/* scores[r][0 .. STEP) of R rows. With u = c + bias >= 0, a group adds
 * scale * (sum(q u) + (zero - bias) * sum(q)). */
static PL_ALWAYS_INLINE void scores_step(size_t R, uint32_t b, float bias, const float *q, size_t D,
                                         uint32_t (*words)[STEP], const uint16_t *scales,
                                         const uint16_t *zeros, float *scores)
{
    const size_t stride = D + PL_ATTEND_SUMS;
    float32x4_t score[4][4], dot[4][4];
    for (size_t r = 0; r < R; r++)
        for (size_t h = 0; h < 4; h++) score[r][h] = vdupq_n_f32(0);
    for (size_t g = 0; g < (D + GROUP - 1) / GROUP; g++) {
        for (size_t r = 0; r < R; r++)
            for (size_t h = 0; h < 4; h++) dot[r][h] = vdupq_n_f32(0);
        for (size_t d = g * GROUP; d < PL_MIN((g + 1) * GROUP, D); d += 32 / b, words++)
            dot_word(R, b, dot, q + d, stride, words[0]);
        for (size_t h = 0; h < 4; h++) {
            float32x4_t scale = load4_fp16(scales + g * P + 4 * h);
            float32x4_t zero = vsubq_f32(load4_fp16(zeros + g * P + 4 * h), vdupq_n_f32(bias));
            for (size_t r = 0; r < R; r++) {
                float32x4_t x = vfmaq_n_f32(dot[r][h], zero, q[r * stride + D + g]);
                score[r][h] = vfmaq_f32(score[r][h], scale, x);
            }
        }
    }
    for (size_t r = 0; r < R; r++)
        for (size_t h = 0; h < 4; h++) vst1q_f32(scores + r * P + 4 * h, score[r][h]);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The numbers of a table of 2^bits at four codes, found byte by byte. */
static PL_ALWAYS_INLINE float32x4_t find4(uint32_t bits, const float *table, uint32x4_t codes)
{
    const uint8_t *t = (const uint8_t *)table;
    uint8x16_t at = vreinterpretq_u8_u32(
        vmlaq_n_u32(vdupq_n_u32(0x03020100), codes, 0x04040404));
    if (bits == 2) return vreinterpretq_f32_u8(vqtbl1q_u8(vld1q_u8(t), at));
    if (bits == 3) return vreinterpretq_f32_u8(vqtbl2q_u8(vld1q_u8_x2(t), at));
    uint8x16_t found = vqtbl4q_u8(vld1q_u8_x4(t), at); /* 0 outside */
    if (bits == 5) found = vqtbx4q_u8(found, vld1q_u8_x4(t + 64), vsubq_u8(at, vdupq_n_u8(64)));
    return vreinterpretq_f32_u8(found);
}

/* The centroids of eight codes at p, of which eight bytes are read. */
static PL_ALWAYS_INLINE vec look_up(uint32_t bits, const uint8_t *p, const float *table)
{
    if (bits == PLAIN) return v_load((const float *)p);
    if (bits == 8) {
        float found[8];
        for (size_t i = 0; i < 8; i++) found[i] = table[p[i]];
        return v_load(found);
    }
    uint16x8_t codes = unpack8(bits, p);
    return (vec){{find4(bits, table, vmovl_u16(vget_low_u16(codes))),
                  find4(bits, table, vmovl_u16(vget_high_u16(codes)))}};
}

#include "kernels/attention_packed_body.h"

void pl_kernels_init_packed_neon(pl_kernels *k)
{
    k->attend_prepare = pl_attend_prepare_c;
    k->attend_packed = attend_packed_body;
}
