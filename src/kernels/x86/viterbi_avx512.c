/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis search, AVX-512: 32 states of each of two blocks at a time, which share the loads of the
 * values; four operations per 32 states. The trace is AVX2's: it looks at one group at a time. */
#include "kernels/kernels.h"

#include <immintrin.h>

#include "base/compiler.h"

enum { LANES = 32 };

/* The runs of 2, 4 or 8 words of a and b in turn: the first half of each to a, the second to b. */
static PL_ALWAYS_INLINE void zip(__m512i *a, __m512i *b, int words)
{
    const __m512i pairs[2] = {
        _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
        _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)};
    const __m512i fours[2] = {_mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
                              _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15)};
    const __m512i eights[2] = {_mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                               _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15)};
    const __m512i *order = words == 2 ? pairs : words == 4 ? fours : eights, low = *a;
    if (words == 2) {
        *a = _mm512_permutex2var_epi32(low, order[0], *b);
        *b = _mm512_permutex2var_epi32(low, order[1], *b);
    } else {
        *a = _mm512_permutex2var_epi64(low, order[0], *b);
        *b = _mm512_permutex2var_epi64(low, order[1], *b);
    }
}

/* The words of a and b in turn, within each 128 bits (their first halves to a) or over the whole.
 */
static PL_ALWAYS_INLINE void zip_words(__m512i *a, __m512i *b, int within)
{
    static const uint16_t order[2][LANES] = {
        {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
         8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
        {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
         24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
    const __m512i low = *a;
    if (within) {
        *a = _mm512_unpacklo_epi16(low, *b);
        *b = _mm512_unpackhi_epi16(low, *b);
    } else {
        *a = _mm512_permutex2var_epi16(low, _mm512_loadu_si512(order[0]), *b);
        *b = _mm512_permutex2var_epi16(low, _mm512_loadu_si512(order[1]), *b);
    }
}

/* Zips v[i] and v[i + stride], for every i without the bit `stride`. */
static PL_ALWAYS_INLINE void zip_all(__m512i *v, int count, int stride, int words)
{
    for (int i = 0; i < count; i++)
        if (!(i & stride)) zip(&v[i], &v[i + stride], words);
}

/* v[n] holds number n of 32 consecutive mids; stores them as [mid][n].
 *
 * Call the bits of mid's place b4 .. b0. Zipping vectors i and i + 2^r brings bit r of n below the
 * bits of mid, and one bit of mid from the lanes to bit r of the vector's index: the highest that
 * the lanes still have, but b2 where words are zipped within 128 bits. That is one operation on
 * every processor where the permutation of words (for k = 2, which has too few rounds to mend b2)
 * is three on some. At the end the vector's place is the bits of mid that the lanes have lost. */
static PL_ALWAYS_INLINE void store_interleaved(uint16_t *to, __m512i *v, int k)
{
    const int fan = 1 << k;
    for (int i = 0; i < fan; i += 2) zip_words(&v[i], &v[i + 1], k > 2);
    zip_all(v, fan, 2, 2);
    if (k > 2) zip_all(v, fan, 4, 4);
    if (k > 3) zip_all(v, fan, 8, 8);
    for (int i = 0; i < fan; i++) {
        int bit[4] = {i & 1, i >> 1 & 1, i >> 2 & 1, i >> 3};
        int place = k == 2   ? 2 * bit[0] + bit[1]                            /* they hold b4 b3 */
                    : k == 3 ? 4 * bit[1] + 2 * bit[2] + bit[0]               /* b2 b4 b3 */
                             : 8 * bit[1] + 4 * bit[2] + 2 * bit[0] + bit[3]; /* b2 b4 b3 b1 */
        _mm512_store_si512(to + LANES * place, v[i]);
    }
}

/* The same for 16 numbers of 16 mids: v[i] holds number 2i of all mids, then number 2i + 1. */
static PL_ALWAYS_INLINE void store_narrow(uint16_t *to, __m512i *v)
{
    static const uint8_t halves[2 * LANES] = {
        /* the words of both halves in turn */
        0,  1,  32, 33, 2,  3,  34, 35, 4,  5,  36, 37, 6,  7,  38, 39, 8,  9,  40, 41, 10, 11,
        42, 43, 12, 13, 44, 45, 14, 15, 46, 47, 16, 17, 48, 49, 18, 19, 50, 51, 20, 21, 52, 53,
        22, 23, 54, 55, 24, 25, 56, 57, 26, 27, 58, 59, 28, 29, 60, 61, 30, 31, 62, 63};
    const __m512i order = _mm512_loadu_si512(halves);
    for (int i = 0; i < 8; i++) v[i] = _mm512_permutexvar_epi8(order, v[i]);
    zip_all(v, 8, 1, 2);
    zip_all(v, 8, 2, 4);
    zip_all(v, 8, 4, 8);
    for (int i = 0; i < 8; i++) /* the bits of i are b1 b2 b3 of mid */
        _mm512_store_si512(to + LANES * (4 * (i & 1) + (i & 2) + (i >> 2)), v[i]);
}

static PL_ALWAYS_INLINE uint16_t least_lane(__m512i v)
{
    __m256i a = _mm256_min_epu16(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    __m128i b = _mm_min_epu16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    return (uint16_t)_mm_cvtsi128_si32(_mm_minpos_epu16(b));
}

/* What a step carries for one block besides its minima; `x` of the second block is less the
 * first's, so that its differences come from the first's and not from another load. */
typedef struct block_step {
    __m512i x, fall, least;
} block_step;

/* Takes 32 states into the best costs of both blocks; the second block's minima lie `groups` on. */
static PL_ALWAYS_INLINE void take(__m512i *best0, __m512i *best1, const block_step *b,
                                  const int16_t *values, const uint16_t *minima, size_t groups)
{
    __m512i d0 = _mm512_sub_epi16(b[0].x, _mm512_load_si512(values));
    __m512i d1 = _mm512_add_epi16(d0, b[1].x);
    __m512i e0 = _mm512_mulhrs_epi16(d0, d0), e1 = _mm512_mulhrs_epi16(d1, d1);
    __m512i m0 = _mm512_load_si512(minima), m1 = _mm512_load_si512(minima + groups);
    *best0 = _mm512_min_epu16(*best0, _mm512_add_epi16(m0, e0));
    *best1 = _mm512_min_epu16(*best1, _mm512_add_epi16(m1, e1));
}

static PL_ALWAYS_INLINE __m512i lower(block_step *b, __m512i minima)
{
    minima = _mm512_sub_epi16(minima, b->fall);
    b->least = _mm512_min_epu16(b->least, minima);
    return minima;
}

/* One step where 32 mids fill a vector. */
static PL_ALWAYS_INLINE void step_wide(uint16_t *to, const uint16_t *from, const int16_t *values,
                                       block_step *b, int renormalise, int k, int L)
{
    const int fan = 1 << k;
    const size_t mids = (size_t)1 << (L - 2 * k), groups = (size_t)1 << (L - k);
    for (size_t mid = 0; mid < mids; mid += LANES) {
        __m512i rows0[16], rows1[16];
        for (int n = 0; n < fan; n++) {
            __m512i best0 = _mm512_set1_epi16(INT16_MAX), best1 = best0;
            for (int j = 0; j < fan; j++, values += LANES)
                take(&best0, &best1, b, values, from + (size_t)j * mids + mid, groups);
            rows0[n] = renormalise ? lower(&b[0], best0) : best0;
            rows1[n] = renormalise ? lower(&b[1], best1) : best1;
        }
        store_interleaved(to + mid * (size_t)fan, rows0, k);
        store_interleaved(to + groups + mid * (size_t)fan, rows1, k);
    }
}

/* The lesser of a's halves, then of b's. */
static PL_ALWAYS_INLINE __m512i fold(__m512i a, __m512i b)
{
    return _mm512_min_epu16(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
}

/* One step with 16 mids (k = 4, L = 12): a vector holds two j, whose halves are folded. */
static PL_ALWAYS_INLINE void step_narrow(uint16_t *to, const uint16_t *from, const int16_t *values,
                                         block_step *b, int renormalise)
{
    enum { FAN = 16, GROUPS = 256 };
    __m512i rows0[FAN / 2], rows1[FAN / 2];
    for (int n = 0; n < FAN; n += 2) {
        __m512i best[2][2];
        for (int i = 0; i < 2; i++) {
            best[0][i] = best[1][i] = _mm512_set1_epi16(INT16_MAX);
            for (int j = 0; j < FAN; j += 2, values += LANES)
                take(&best[0][i], &best[1][i], b, values, from + j * (LANES / 2), GROUPS);
        }
        __m512i pair0 = fold(best[0][0], best[0][1]), pair1 = fold(best[1][0], best[1][1]);
        rows0[n / 2] = renormalise ? lower(&b[0], pair0) : pair0;
        rows1[n / 2] = renormalise ? lower(&b[1], pair1) : pair1;
    }
    store_narrow(to, rows0);
    store_narrow(to + GROUPS, rows1);
}

/* One step of both blocks: viterbi_body.h. */
static PL_ALWAYS_INLINE void step(uint16_t *to, const uint16_t *from, const int16_t *values,
                                  const int16_t *x, uint16_t *fall, int renormalise, int k, int L)
{
    block_step b[2];
    for (int i = 0; i < 2; i++)
        b[i] = (block_step){.x = _mm512_set1_epi16((int16_t)(i ? x[1] - x[0] : x[0])),
                            .fall = _mm512_set1_epi16((int16_t)fall[i]),
                            .least = _mm512_set1_epi16(INT16_MAX)};
    if (L - 2 * k < 5)
        step_narrow(to, from, values, b, renormalise);
    else
        step_wide(to, from, values, b, renormalise, k, L);
    for (int i = 0; renormalise && i < 2; i++) fall[i] = least_lane(b[i].least);
}

#include "kernels/viterbi_body.h"

void pl_kernels_init_viterbi_avx512(pl_kernels *k)
{
    set_forward(k);
}
