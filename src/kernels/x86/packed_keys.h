/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed keys as the attention kernels for x86 want them: positions side by side. */
#ifndef PL_KERNELS_PACKED_KEYS_H
#define PL_KERNELS_PACKED_KEYS_H

#include <immintrin.h>

#include "base/compiler.h"

enum { STEP = 16 }; /* positions whose keys are arranged at a time */

/* Codes of 5 bits are widened to bytes before they are arranged. */
static PL_ALWAYS_INLINE uint32_t lane_bits(uint32_t bits) { return bits == 5 ? 8 : bits; }

/* 32 codes of 5 bits, or the 16 of a last group and 16 that are not used, as bytes. */
static PL_ALWAYS_INLINE __m256i widen5(const uint8_t *p)
{
    /* 8 codes are 5 bytes. An even code, at bit 10m, is moved to the top of the 16 bits that hold
     * it, an odd one likewise; then both to their bytes. */
    const __m256i even = _mm256_setr_epi8(0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 6, 7, 7, 8, 8, 9, 0, 1, 1,
                                          2, 2, 3, 3, 4, 5, 6, 6, 7, 7, 8, 8, 9);
    const __m256i odd = _mm256_setr_epi8(0, 1, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 8, 9, 9, 10, 0, 1, 1,
                                         2, 3, 4, 4, 5, 5, 6, 6, 7, 8, 9, 9, 10);
    const __m256i even_up = _mm256_set1_epi64x(0x0020008002000800);
    const __m256i odd_up = _mm256_set1_epi64x(0x0100040000100040);
    __m256i x = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p)),
        _mm_loadu_si128((const __m128i *)(p + 10)), 1);
    __m256i a = _mm256_mullo_epi16(_mm256_shuffle_epi8(x, even), even_up);
    __m256i b = _mm256_mullo_epi16(_mm256_shuffle_epi8(x, odd), odd_up);
    b = _mm256_and_si256(_mm256_srli_epi16(b, 3), _mm256_set1_epi16(0x1f00));
    return _mm256_or_si256(_mm256_srli_epi16(a, 11), b);
}

/* Bytes 32*slab .. of a token's codes, as they are, or widened; of 8 bits made unsigned. */
static PL_ALWAYS_INLINE __m256i load_slab(const uint8_t *codes, size_t slab, uint32_t bits)
{
    if (bits == 5) return widen5(codes + 20 * slab);
    __m256i x = _mm256_loadu_si256((const __m256i *)(codes + 32 * slab));
    return bits == 8 ? _mm256_xor_si256(x, _mm256_set1_epi8(-128)) : x;
}

/* words[w][j] = word w of the slab of position j, for eight positions. */
static PL_ALWAYS_INLINE void transpose(uint32_t (*words)[STEP], const __m256i x[8])
{
    __m256i a[8], b[8];
    for (size_t i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(x[i], x[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (size_t i = 0; i < 8; i += 4)
        for (size_t h = 0; h < 2; h++) {
            b[i + 2 * h] = _mm256_unpacklo_epi64(a[i + h], a[i + h + 2]);
            b[i + 2 * h + 1] = _mm256_unpackhi_epi64(a[i + h], a[i + h + 2]);
        }
    for (size_t i = 0; i < 4; i++) {
        _mm256_store_si256((__m256i *)words[i], _mm256_permute2x128_si256(b[i], b[i + 4], 0x20));
        _mm256_store_si256((__m256i *)words[i + 4],
                           _mm256_permute2x128_si256(b[i], b[i + 4], 0x31));
    }
}

/* The codes of STEP positions; the last slab may reach into what follows them in the page. */
static PL_ALWAYS_INLINE void arrange(uint32_t (*words)[STEP], const uint8_t *codes, size_t stride,
                                     size_t D, uint32_t bits)
{
    size_t slabs = (D * lane_bits(bits) / 8 + 31) / 32;
    for (size_t s = 0; s < slabs; s++)
        for (size_t j = 0; j < STEP; j += 8) {
            __m256i x[8];
            for (size_t i = 0; i < 8; i++) x[i] = load_slab(codes + (j + i) * stride, s, bits);
            transpose((uint32_t(*)[STEP])(words[8 * s] + j), x);
        }
}

#endif
