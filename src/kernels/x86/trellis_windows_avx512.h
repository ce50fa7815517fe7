/* SPDX-License-Identifier: Apache-2.0
 *
 * States and numbers of the trellis code in AVX-512 with VBMI registers: eight neighbouring numbers
 * to a lane, one step of every lane at a time. Spans and steps: trellis_codes.h. */
#ifndef PL_KERNELS_TRELLIS_WINDOWS_AVX512_H
#define PL_KERNELS_TRELLIS_WINDOWS_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
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

/* Of states: the four bytes sum to y + 510. */
static PL_ALWAYS_INLINE vec congruence(vec state)
{
    return _mm512_add_epi32(_mm512_mullo_epi32(state, _mm512_set1_epi32(34038481)),
                            _mm512_set1_epi32(76625530));
}

/* The congruence of step i. */
static PL_ALWAYS_INLINE vec number(windows w, int k, int L, int i)
{
    return congruence(state(w, k, L, i));
}

/* The states of 32 neighbouring numbers in the order of the numbers, which is that of the codes
 * backwards: s[0] the first, third ..., s[1] the second, fourth ... Lane l takes the bytes that
 * have the windows of its two numbers: the second begins at bit 2 k (15 - l), the first k bits
 * later. With k = 4 and L = 12 it takes just the two that they share. With `crossed`, unpacking the
 * lower and the upper lanes of each 128 bits puts all in order. */
static PL_ALWAYS_INLINE void pair_states(vec s[2], const uint8_t *code, int k, int L, bool crossed)
{
    const vec mask = _mm512_set1_epi32((1 << L) - 1), seven = _mm512_set1_epi32(7);
    const vec pair = crossed
                         ? _mm512_setr_epi32(15, 14, 7, 6, 13, 12, 5, 4, 11, 10, 3, 2, 9, 8, 1, 0)
                         : _mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const vec start = _mm512_mullo_epi32(pair, _mm512_set1_epi32(2 * k));
    const vec first =
        _mm512_mullo_epi32(_mm512_srli_epi32(start, 3), _mm512_set1_epi32(0x01010101));
    const vec bytes = _mm512_add_epi32(first, _mm512_set1_epi32(0x03020100));
    if (k == 4) {
        const __mmask64 taken = L == 12 ? 0x3333333333333333 : 0x7777777777777777;
        vec all = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)code));
        vec w = _mm512_maskz_permutexvar_epi8(taken, bytes, all);
        s[0] = _mm512_srli_epi32(w, 4);
        if (L == 16) s[0] = _mm512_and_si512(s[0], mask);
        s[1] = _mm512_and_si512(w, mask);
    } else {
        vec all = _mm512_castsi128_si512(_mm_loadu_si128((const void *)code));
        vec w =
            _mm512_srlv_epi32(_mm512_permutexvar_epi8(bytes, all), _mm512_and_si512(start, seven));
        s[0] = _mm512_and_si512(_mm512_srli_epi32(w, (unsigned)k), mask);
        s[1] = _mm512_and_si512(w, mask);
    }
}

#endif
