/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed numbers as plain ones, for x86: the part that all levels share. The including file has
 * what trellis_float_body.h asks for and
 *   halves(a, b)                f32 rounded to bf16, a in the low and b in the high half of a lane
 *   store_halves(y, v, n, nt)   steps 7 and 6, 5 and 4, ... of n lanes, as such halves v[4], to
 *                               y[-8 l ..] for lane l, past the caches if nt
 *
 * Eight steps of a lane are eight neighbouring numbers, the first step last. */
#ifndef PL_KERNELS_TRELLIS_EXPAND_BODY_H
#define PL_KERNELS_TRELLIS_EXPAND_BODY_H

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "trellis_codes.h"

/* y / 147.80... correctly rounded: two constants make up its inverse to 48 bits, and the fused
 * multiply-add rounds once. That this is so for every y is one of the tests. */
static PL_ALWAYS_INLINE fvec quotient(fvec y)
{
    const float high = 0x1.bb688ep-8f, low = -0x1.e90d7cp-33f;
    return f_fma(y, f_splat(high), f_mul(y, f_splat(low)));
}

/* Whether blocks of 32 numbers and more at p can be stored past the caches. */
static PL_ALWAYS_INLINE bool streams(const void *p, bool wanted)
{
    return wanted && (uintptr_t)p % sizeof(vec) == 0;
}

static PL_ALWAYS_INLINE void expand_span(uint16_t *y, const uint8_t *code, size_t lanes, fvec scale,
                                         int k, int L, int first, bool nt)
{
    windows w = open_windows(code, k, first);
    vec v[4];
    for (int j = 0; j < 4; j++) {
        fvec a = f_mul(quotient(real(number(w, k, L, 7 - 2 * j))), scale);
        fvec b = f_mul(quotient(real(number(w, k, L, 6 - 2 * j))), scale);
        v[j] = halves(a, b);
    }
    store_halves(y, v, lanes, nt);
}

static PL_ALWAYS_INLINE void expand_blocks(uint16_t *dst, const uint8_t *codes, size_t T,
                                           size_t blocks, float scale, int k, int L, bool nt)
{
    size_t bytes = T * (size_t)k / 8;
    fvec factor = f_splat(isnan(scale) ? NAN : scale); /* whose rounding cannot overflow */
    uint8_t tails[2][TAIL_BYTES]; /* made a block ahead, for it is read at once */
    make_tail(tails[0], codes, T, k);
    for (size_t b = 0; b < blocks; b++, codes += bytes, dst += T) {
        uint8_t *tail = tails[b % 2];
        if (b + 1 < blocks) make_tail(tails[(b + 1) % 2], codes + bytes, T, k);
        for (size_t s = (T + SPAN - 1) / SPAN; s-- > 0;) { /* in the order of the result */
            span_codes at = span_of(codes, 0, tail, s, T, k);
            size_t lanes = PL_MIN((T - s * SPAN) / 8, LANES);
            uint16_t *to = dst + T - 8 - s * SPAN;
            if (k == 4 && at.first)
                expand_span(to, at.code, lanes, factor, k, L, 1, nt);
            else
                expand_span(to, at.code, lanes, factor, k, L, 0, nt);
        }
    }
    if (nt) _mm_sfence();
}

#define EXPAND(isa, k, L)                                                                          \
    static void expand_k##k##_l##L##_##isa(uint16_t *dst, const uint8_t *codes, size_t T,          \
                                           size_t blocks, float scale, bool stream)                \
    {                                                                                              \
        if (streams(dst, stream))                                                                  \
            expand_blocks(dst, codes, T, blocks, scale, k, L, true);                               \
        else                                                                                       \
            expand_blocks(dst, codes, T, blocks, scale, k, L, false);                              \
    }

#define EXPANDS(isa)                                                                               \
    EXPAND(isa, 2, 12)                                                                             \
    EXPAND(isa, 3, 12)                                                                             \
    EXPAND(isa, 4, 12)                                                                             \
    EXPAND(isa, 2, 16)                                                                             \
    EXPAND(isa, 3, 16)                                                                             \
    EXPAND(isa, 4, 16)

#define SET_EXPANDS(f, isa)                                                                        \
    (f)->expand[0][0] = expand_k2_l12_##isa;                                                       \
    (f)->expand[1][0] = expand_k3_l12_##isa;                                                       \
    (f)->expand[2][0] = expand_k4_l12_##isa;                                                       \
    (f)->expand[0][1] = expand_k2_l16_##isa;                                                       \
    (f)->expand[1][1] = expand_k3_l16_##isa;                                                       \
    (f)->expand[2][1] = expand_k4_l16_##isa

#endif
