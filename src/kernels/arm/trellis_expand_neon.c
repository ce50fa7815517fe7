/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed numbers as plain ones, NEON: whole rows as f32 and bf16. Eight steps of a lane are eight
 * neighbouring numbers, the first step last. Results go through the caches: a core that stores
 * whole lines sees to those itself. */
#include <math.h>
#include <stdbool.h>

#include "trellis_codes.h"

/* y[l]: the eight numbers of lane l of a span. */
static PL_ALWAYS_INLINE void numbers(int16x8_t y[LANES], const uint8_t *code, int k, int L)
{
    uint16x8_t pair[6];
    open_windows(pair, code, k);
    PL_UNROLL
    for (int i = 0; i < 8; i++) y[i] = vsubq_s16(number(pair, k, L, 7 - i, 0), vdupq_n_s16(510));
    transpose_8x8(y);
}

static PL_ALWAYS_INLINE void expand(uint16_t *dst, const uint8_t *codes, size_t T, size_t blocks,
                                    float scale, int k, int L)
{
    float32x4_t factor = vdupq_n_f32(isnan(scale) ? NAN : scale);
    for (size_t b = 0; b < blocks; b++, codes += T * (size_t)k / 8, dst += T) {
        uint8_t tail[TAIL_BYTES] = {0};
        make_tail(tail, codes, T, k);
        for (size_t s = 0; s * SPAN < T; s++) {
            int16x8_t v[LANES];
            numbers(v, span_of(codes, 0, tail, s, T, k).code, k, L);
            for (size_t l = 0; l < LANES && s * SPAN + 8 * l < T; l++) {
                uint32x4_t low = rounded(expanded(vget_low_s16(v[l]), factor));
                uint32x4_t high = rounded(expanded(vget_high_s16(v[l]), factor));
                vst1q_u16(dst + T - 8 - s * SPAN - 8 * l,
                          vuzp2q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high)));
            }
        }
    }
}

static PL_ALWAYS_INLINE float32x4_t decoded(int16x4_t y, float scale)
{
    float32x4_t f = vcvtq_f32_s32(vmovl_s16(y));
    return vmulq_n_f32(vmulq_n_f32(f, 1.0f / PL_TRELLIS_DIVISOR), scale);
}

static PL_ALWAYS_INLINE void decode(float *dst, const uint8_t *codes, size_t T, size_t blocks,
                                    float scale, int k, int L)
{
    for (size_t b = 0; b < blocks; b++, codes += T * (size_t)k / 8, dst += T) {
        uint8_t tail[TAIL_BYTES] = {0};
        make_tail(tail, codes, T, k);
        for (size_t s = 0; s * SPAN < T; s++) {
            int16x8_t v[LANES];
            numbers(v, span_of(codes, 0, tail, s, T, k).code, k, L);
            for (size_t l = 0; l < LANES && s * SPAN + 8 * l < T; l++) {
                float *to = dst + T - 8 - s * SPAN - 8 * l;
                vst1q_f32(to, decoded(vget_low_s16(v[l]), scale));
                vst1q_f32(to + 4, decoded(vget_high_s16(v[l]), scale));
            }
        }
    }
}

/* ---- instances ------------------------------------------------------------------------------- */

#define EXPAND_KERNELS(k, L)                                                                       \
    static void expand_k##k##_l##L##_neon(uint16_t *dst, const uint8_t *codes, size_t T,           \
                                          size_t blocks, float scale, bool stream)                 \
    {                                                                                              \
        (void)stream;                                                                              \
        expand(dst, codes, T, blocks, scale, k, L);                                                \
    }                                                                                              \
    static void decode_k##k##_l##L##_neon(float *dst, const uint8_t *codes, size_t T,              \
                                          size_t blocks, float scale, bool stream)                 \
    {                                                                                              \
        (void)stream;                                                                              \
        decode(dst, codes, T, blocks, scale, k, L);                                                \
    }

PL_EACH_CODE(EXPAND_KERNELS)

void pl_kernels_init_expand_neon(pl_kernels *table)
{
#define SET(k, L)                                                                                  \
    table->floats.expand[k - 2][L == 16] = expand_k##k##_l##L##_neon;                              \
    table->floats.decode[k - 2][L == 16] = decode_k##k##_l##L##_neon;
    PL_EACH_CODE(SET)
#undef SET
}
