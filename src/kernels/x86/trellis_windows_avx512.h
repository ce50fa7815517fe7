/* SPDX-License-Identifier: Apache-2.0
 *
 * States and numbers of the trellis code in AVX-512 with VBMI registers: eight neighbouring numbers
 * to a lane, one step of every lane at a time. Spans and steps: trellis_codes.h. */
#ifndef PL_KERNELS_TRELLIS_WINDOWS_AVX512_H
#define PL_KERNELS_TRELLIS_WINDOWS_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#include "base/compiler.h"

typedef __m512i vec;
enum { LANES = 16 };

/* k = 4: windows are read from memory. k = 2, 3: lane l of g0 is the 32 bits from byte k l on, of
 * g1 (k = 3) from byte 3 l + 1 on. */
typedef struct windows {
    const uint8_t *code;
    vec g0, g1;
    int first;
} windows;

static PL_ALWAYS_INLINE windows open_windows(const uint8_t *code, int k, int first)
{
    windows w = {code, _mm512_setzero_si512(), _mm512_setzero_si512(), first};
    if (k == 4) return w;
    const vec lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const vec bytes = _mm512_add_epi32(_mm512_mullo_epi32(lane, _mm512_set1_epi32(k * 0x01010101)),
                                       _mm512_set1_epi32(0x03020100));
    /* The last lane's windows end two bytes after the span. */
    vec all = _mm512_maskz_loadu_epi8(((__mmask64)1 << (LANES * k + 2)) - 1, code);
    w.g0 = _mm512_permutexvar_epi8(bytes, all);
    if (k == 3) w.g1 = _mm512_permutexvar_epi8(_mm512_add_epi8(bytes, _mm512_set1_epi8(1)), all);
    return w;
}

/* The state at bit k i of each lane. A window that starts in the middle of a byte is the upper end
 * of the word that ends with it, unless that word would start before the block's first byte. */
static PL_ALWAYS_INLINE vec state(windows w, int k, int L, int i)
{
    const vec mask = _mm512_set1_epi32((1 << L) - 1);
    int bit = k * i;
    if (k != 4 && bit + L > 32)
        return _mm512_and_si512(_mm512_srli_epi32(w.g1, (unsigned)bit - 8), mask);
    if (k != 4) return _mm512_and_si512(bit ? _mm512_srli_epi32(w.g0, (unsigned)bit) : w.g0, mask);
    if (bit % 8 == 0) return _mm512_and_si512(_mm512_loadu_si512(w.code + bit / 8), mask);
    if (L == 12 && !(w.first && bit < 20))
        return _mm512_srli_epi32(_mm512_loadu_si512(w.code + (bit - 20) / 8), 20);
    return _mm512_and_si512(_mm512_srli_epi32(_mm512_loadu_si512(w.code + bit / 8), 4), mask);
}

/* The congruence of step i: its four bytes sum to y + 510. */
static PL_ALWAYS_INLINE vec number(windows w, int k, int L, int i)
{
    return _mm512_add_epi32(_mm512_mullo_epi32(state(w, k, L, i), _mm512_set1_epi32(34038481)),
                            _mm512_set1_epi32(76625530));
}

#endif
