/* SPDX-License-Identifier: Apache-2.0
 *
 * From the codes of a block to its numbers, and from integer sums to results, NEON: what all
 * trellis kernels for Arm share.
 *
 * Blocks are decoded in the order of their bits: number t of a block of T is at u = T - 1 - t. A
 * register has eight lanes of 16 bits, enough for any state. A lane owns eight neighbours, k bytes
 * of code: step i of lane l of span s is u = (s LANES + l) 8 + i. With k = 2 a lane is as wide as
 * its code, and the pairs of bytes in which windows start are plain loads; with k = 4 every other
 * pair of two loads, with k = 3 a table look-up.
 *
 * Windows are read where the codes lie, but for the last span of a block, whose windows wrap to the
 * block's start: it is copied to scratch memory with the bytes that follow it (the "tail"). Nothing
 * outside the block is read. */
#ifndef PL_KERNELS_TRELLIS_CODES_ARM_H
#define PL_KERNELS_TRELLIS_CODES_ARM_H

#include <arm_neon.h>
#include <string.h>

#include "base/compiler.h"
#include "codec/trellis.h"
#include "kernels/kernels.h"

enum { LANES = 8, SPAN = 8 * LANES, GROUP_SPANS = PL_GROUP_AXIS1 / SPAN, TAIL_BYTES = 48 };

/* ---- spans ----------------------------------------------------------------------------------- */

/* The last span of a block, whole or half, and the bytes after it. */
static PL_ALWAYS_INLINE void make_tail(uint8_t *tail, const uint8_t *block, size_t T, int k)
{
    const size_t span = LANES * (size_t)k;
    size_t bytes = T * (size_t)k / 8, first = (bytes - 1) / span * span;
    if (bytes - first == span) {
        memcpy(tail, block + first, span);
        memcpy(tail + span, block, 4);
    } else {
        memcpy(tail, block + first, span / 2);
        memcpy(tail + span / 2, block, 4);
    }
}

static PL_ALWAYS_INLINE void make_tails(uint8_t *tails, const uint8_t *codes, size_t row_bytes,
                                        size_t rows, size_t T, int k)
{
    for (size_t r = 0; r < rows; r++)
        make_tail(tails + r * TAIL_BYTES, codes + r * row_bytes, T, k);
}

/* Span s of rows of one block: the first row's code, the distance to the next row's. */
typedef struct span_codes {
    const uint8_t *code;
    size_t stride;
} span_codes;

static PL_ALWAYS_INLINE span_codes span_of(const uint8_t *codes, size_t row_bytes,
                                           const uint8_t *tails, size_t s, size_t T, int k)
{
    if (s == (T - 1) / SPAN) return (span_codes){tails, TAIL_BYTES};
    return (span_codes){codes + s * LANES * (size_t)k, row_bytes};
}

/* ---- windows --------------------------------------------------------------------------------- */

static PL_ALWAYS_INLINE uint16x8_t load_pairs(const uint8_t *p)
{
    return vreinterpretq_u16_u8(vld1q_u8(p));
}

/* pair[o]: bytes o and o + 1 of each lane's code. Those that no window needs cost nothing. */
static PL_ALWAYS_INLINE void open_windows(uint16x8_t pair[6], const uint8_t *code, int k)
{
    static const uint8_t spread[5][16] = {
        /* byte b of `both` is the code's b, or b - 4 above 15 */
        {0, 1, 3, 4, 6, 7, 9, 10, 12, 13, 15, 20, 22, 23, 25, 26},
        {1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 20, 21, 23, 24, 26, 27},
        {2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 21, 22, 24, 25, 27, 28},
        {3, 4, 6, 7, 9, 10, 12, 13, 15, 20, 22, 23, 25, 26, 28, 29},
        {4, 5, 7, 8, 10, 11, 13, 14, 20, 21, 23, 24, 26, 27, 29, 30}};
    if (k == 2) {
        PL_UNROLL
        for (int o = 0; o < 4; o++) pair[o] = load_pairs(code + o);
    }
    if (k == 3) {
        uint8x16x2_t both = {{vld1q_u8(code), vld1q_u8(code + 12)}};
        PL_UNROLL
        for (int o = 0; o < 5; o++)
            pair[o] = vreinterpretq_u16_u8(vqtbl2q_u8(both, vld1q_u8(spread[o])));
    }
    if (k == 4) {
        PL_UNROLL
        for (int o = 0; o < 6; o++) {
            uint16x8_t low = load_pairs(code + o % 2 + o / 4 * 4);
            uint16x8_t high = load_pairs(code + o % 2 + o / 4 * 4 + 16);
            pair[o] = o & 2 ? vuzp2q_u16(low, high) : vuzp1q_u16(low, high);
        }
    }
}

static PL_ALWAYS_INLINE uint16x8_t shift_down(uint16x8_t v, int n)
{
    switch (n) { /* the instruction wants a literal */
    case 1:
        return vshrq_n_u16(v, 1);
    case 2:
        return vshrq_n_u16(v, 2);
    case 3:
        return vshrq_n_u16(v, 3);
    case 4:
        return vshrq_n_u16(v, 4);
    case 5:
        return vshrq_n_u16(v, 5);
    case 6:
        return vshrq_n_u16(v, 6);
    case 7:
        return vshrq_n_u16(v, 7);
    default:
        return v;
    }
}

/* The lowest 16 - n bits of v, and above them those of w. */
static PL_ALWAYS_INLINE uint16x8_t put_above(uint16x8_t v, uint16x8_t w, int n)
{
    switch (n) {
    case 1:
        return vsliq_n_u16(v, w, 15);
    case 2:
        return vsliq_n_u16(v, w, 14);
    case 3:
        return vsliq_n_u16(v, w, 13);
    case 4:
        return vsliq_n_u16(v, w, 12);
    case 5:
        return vsliq_n_u16(v, w, 11);
    case 6:
        return vsliq_n_u16(v, w, 10);
    case 7:
        return vsliq_n_u16(v, w, 9);
    default:
        return v;
    }
}

/* The state at bit k i of each lane. */
static PL_ALWAYS_INLINE uint16x8_t state(const uint16x8_t pair[6], int k, int L, int i)
{
    int at = k * i / 8, bit = k * i % 8;
    uint16x8_t v = shift_down(pair[at], bit);
    if (bit + L == 16) return v;
    if (bit + L > 16) v = put_above(v, pair[at + 2], bit);
    return L == 12 ? vandq_u16(v, vdupq_n_u16(0xfff)) : v;
}

/* y + 510 of eight states: the bytes of s * A + B, summed. The product's lower half, with all of B,
 * has 32 bits; s times the upper half of A is added to the upper halves alone. */
static PL_ALWAYS_INLINE uint16x8_t sums_of_bytes(uint16x8_t s)
{
    const uint32_t A = 34038481, B = 76625530;
    uint32x4_t b = vdupq_n_u32(B);
    uint16x8_t p = vreinterpretq_u16_u32(vmlal_n_u16(b, vget_low_u16(s), A & 0xffff));
    uint16x8_t q = vreinterpretq_u16_u32(vmlal_high_n_u16(b, s, A & 0xffff));
    uint16x8_t low = vuzp1q_u16(p, q), high = vmlaq_n_u16(vuzp2q_u16(p, q), s, A >> 16);
    return vpadalq_u8(vpaddlq_u8(vreinterpretq_u8_u16(low)), vreinterpretq_u8_u16(high));
}

/* Step i of each lane as the integer products take it: y + 510, or h = (y + 510) / 4. */
static PL_ALWAYS_INLINE int16x8_t number(const uint16x8_t pair[6], int k, int L, int i, int i8)
{
    uint16x8_t y = sums_of_bytes(state(pair, k, L, i));
    return vreinterpretq_s16_u16(i8 ? vshrq_n_u16(y, 2) : y);
}

/* ---- weights by the expand contract --------------------------------------------------------- */

/* y / 147.80... correctly rounded, as src/kernels/x86/trellis_expand_body.h has it, times scale. */
static PL_ALWAYS_INLINE float32x4_t expanded(int16x4_t y, float32x4_t scale)
{
    const float high = 0x1.bb688ep-8f, low = -0x1.e90d7cp-33f;
    float32x4_t f = vcvtq_f32_s32(vmovl_s16(y));
    return vmulq_f32(vfmaq_n_f32(vmulq_n_f32(f, low), f, high), scale);
}

/* To bf16, ties to even, in the upper halves; what NaN there is has room above its last bits. */
static PL_ALWAYS_INLINE uint32x4_t rounded(float32x4_t f)
{
    uint32x4_t bits = vreinterpretq_u32_f32(f);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    return vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
}

/* ---- integer sums ---------------------------------------------------------------------------- */

static inline int32_t bias_of(const int16_t *q, size_t n, int32_t factor)
{
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += q[i];
    return sum * factor;
}

/* Four neighbouring sums += step * (what the integer sums become). */
static PL_ALWAYS_INLINE void add_scaled(float *sums, int32x4_t integer, int32x4_t bias, float step,
                                        int i8)
{
    integer = vaddq_s32(i8 ? vshlq_n_s32(integer, 3) : integer, bias);
    float32x4_t product = vmulq_n_f32(vcvtq_f32_s32(integer), step);
    vst1q_f32(sums, vaddq_f32(vld1q_f32(sums), product));
}

/* Where number u of a block lies in the order [s][i][l]. */
static PL_ALWAYS_INLINE size_t place(size_t u)
{
    return u / SPAN * SPAN + u % 8 * LANES + u / 8 % LANES;
}

static inline void sort_outputs(float *out, const float *sums, size_t T)
{
    for (size_t u = 0; u < T; u++) out[T - 1 - u] = sums[place(u)];
}

/* ---- transposition --------------------------------------------------------------------------- */

/* A square of 16-bit numbers turned in registers. */
static PL_ALWAYS_INLINE void transpose_8x8(int16x8_t v[8])
{
    int32x4_t a[8];
    int64x2_t b[8];
    PL_UNROLL
    for (int i = 0; i < 4; i++) { /* rows 2i, 2i + 1: the even columns, the odd ones */
        a[i] = vreinterpretq_s32_s16(vtrn1q_s16(v[2 * i], v[2 * i + 1]));
        a[4 + i] = vreinterpretq_s32_s16(vtrn2q_s16(v[2 * i], v[2 * i + 1]));
    }
    PL_UNROLL
    for (int i = 0; i < 4; i++) { /* four rows of columns 0 4, 0 4, 1 5, 1 5; 2 6, 2 6, 3 7, 3 7 */
        b[i] = vreinterpretq_s64_s32(vtrn1q_s32(a[2 * i], a[2 * i + 1]));
        b[4 + i] = vreinterpretq_s64_s32(vtrn2q_s32(a[2 * i], a[2 * i + 1]));
    }
    PL_UNROLL
    for (int c = 0; c < 4; c++) {
        v[c] = vreinterpretq_s16_s64(vtrn1q_s64(b[2 * c], b[2 * c + 1]));
        v[c + 4] = vreinterpretq_s16_s64(vtrn2q_s64(b[2 * c], b[2 * c + 1]));
    }
}

#endif
