/* SPDX-License-Identifier: Apache-2.0
 *
 * States and numbers of the trellis code in AVX2 registers: eight neighbouring numbers to a lane,
 * one step of every lane at a time. Spans and steps: trellis_codes.h. */
#ifndef PL_KERNELS_TRELLIS_WINDOWS_AVX2_H
#define PL_KERNELS_TRELLIS_WINDOWS_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

typedef __m256i vec;
enum { LANES = 8 };

/* k = 4: windows are read from memory. k = 2, 3: lane l of g0 is the 32 bits from byte k l on, of
 * g1 (k = 3) from byte 3 l + 1 on. */
typedef struct windows {
    const uint8_t *code;
    vec g0, g1;
    int first;
} windows;

static PL_ALWAYS_INLINE windows open_windows(const uint8_t *code, int k, int first)
{
    windows w = {code, _mm256_setzero_si256(), _mm256_setzero_si256(), first};
    if (k == 4) return w;
    __m128i low = _mm_loadu_si128((const void *)code);
    __m128i high = _mm_loadu_si128((const void *)(code + 4 * k));
    vec both = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
    if (k == 3) {
        const vec bytes = _mm256_setr_epi8(0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12, 0, 1,
                                           2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12);
        w.g0 = _mm256_shuffle_epi8(both, bytes);
        w.g1 = _mm256_shuffle_epi8(both, _mm256_add_epi8(bytes, _mm256_set1_epi8(1)));
    } else {
        const vec bytes = _mm256_setr_epi8(0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7, 8, 9, 0, 1, 2,
                                           3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7, 8, 9);
        w.g0 = _mm256_shuffle_epi8(both, bytes);
    }
    return w;
}

static PL_ALWAYS_INLINE vec load_window(const uint8_t *p)
{
    return _mm256_loadu_si256((const void *)p);
}

/* Bytes j and j + 1 of each lane. */
static PL_ALWAYS_INLINE vec two_bytes(vec v, int j)
{
    const vec second = _mm256_setr_epi8(1, 2, -1, -1, 5, 6, -1, -1, 9, 10, -1, -1, 13, 14, -1, -1,
                                        1, 2, -1, -1, 5, 6, -1, -1, 9, 10, -1, -1, 13, 14, -1, -1);
    if (j == 1) return _mm256_shuffle_epi8(v, second);
    return _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
}

/* The state at bit k i of each lane. A window that starts in the middle of a byte is the upper end
 * of the word that ends with it, unless that word would start before the block's first byte. With
 * 16 bits, two windows whose starts in a byte agree share a shift. */
static PL_ALWAYS_INLINE vec state(windows w, int k, int L, int i)
{
    const vec mask = _mm256_set1_epi32((1 << L) - 1);
    int bit = k * i;
    if (L == 16 && k == 2)
        return two_bytes(bit % 8 ? _mm256_srli_epi32(w.g0, bit % 8) : w.g0, bit / 8);
    if (L == 16 && k == 4 && bit % 8)
        return two_bytes(_mm256_srli_epi32(load_window(w.code + bit / 16 * 2), 4), bit / 8 % 2);
    if (k != 4 && bit + L > 32) return _mm256_and_si256(_mm256_srli_epi32(w.g1, bit - 8), mask);
    if (k != 4) return _mm256_and_si256(bit ? _mm256_srli_epi32(w.g0, bit) : w.g0, mask);
    if (bit % 8 == 0) return _mm256_and_si256(load_window(w.code + bit / 8), mask);
    if (L == 12 && !(w.first && bit < 20))
        return _mm256_srli_epi32(load_window(w.code + (bit - 20) / 8), 20);
    return _mm256_and_si256(_mm256_srli_epi32(load_window(w.code + bit / 8), 4), mask);
}

/* Of states: the four bytes sum to y + 510. */
static PL_ALWAYS_INLINE vec congruence(vec state)
{
    return _mm256_add_epi32(_mm256_mullo_epi32(state, _mm256_set1_epi32(34038481)),
                            _mm256_set1_epi32(76625530));
}

/* The congruence of step i. */
static PL_ALWAYS_INLINE vec number(windows w, int k, int L, int i)
{
    return congruence(state(w, k, L, i));
}

/* n bytes from byte i on, for a shuffle. */
static PL_ALWAYS_INLINE int32_t bytes_from(int i, int n)
{
    uint32_t bytes = (uint32_t)i * 0x01010101u + 0x03020100u;
    return (int32_t)(n == 2 ? bytes | 0x80800000u : n == 3 ? bytes | 0x80000000u : bytes);
}

/* The states of 16 neighbouring numbers in the order of the numbers, which is that of the codes
 * backwards: s[0] the first, third ..., s[1] the second, fourth ... Lane l takes the bytes that
 * have the windows of its two numbers: the second begins at bit `start`, the first k bits later.
 * With `crossed`, unpacking the lower and the upper lanes of each 128 bits puts all in order. */
static PL_ALWAYS_INLINE void pair_states(vec s[2], const uint8_t *code, int k, int L, bool crossed)
{
    const vec mask = _mm256_set1_epi32((1 << L) - 1), none = _mm256_setzero_si256();
    const int n = k == 4 ? L / 8 + 1 : 4; /* bytes of both windows; k = 4, L = 12: two */
#define PAIR_OF(l) (crossed ? (l) / 4 * 2 + (l) % 2 + (l) / 2 % 2 * 4 : (l))
#define START(l)   (2 * k * (7 - PAIR_OF(l)))
#define BYTES(l)   bytes_from(START(l) / 8, n)
    const vec bytes = _mm256_setr_epi32(BYTES(0), BYTES(1), BYTES(2), BYTES(3), BYTES(4), BYTES(5),
                                        BYTES(6), BYTES(7));
    const vec bits = _mm256_setr_epi32(START(0) % 8, START(1) % 8, START(2) % 8, START(3) % 8,
                                       START(4) % 8, START(5) % 8, START(6) % 8, START(7) % 8);
#undef BYTES
#undef START
#undef PAIR_OF
    if (k == 4) {
        vec all = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)code));
        vec w = _mm256_shuffle_epi8(all, bytes);
        s[0] = _mm256_srli_epi32(w, 4);
        if (L == 16) s[0] = _mm256_blend_epi16(s[0], none, 0xaa);
        s[1] = L == 16 ? _mm256_blend_epi16(w, none, 0xaa) : _mm256_and_si256(w, mask);
    } else {
        vec all = _mm256_broadcastq_epi64(_mm_loadl_epi64((const void *)code));
        vec w = _mm256_srlv_epi32(_mm256_shuffle_epi8(all, bytes), bits);
        s[0] = _mm256_and_si256(_mm256_srli_epi32(w, k), mask);
        s[1] = _mm256_and_si256(w, mask);
    }
}

#endif
