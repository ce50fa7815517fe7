/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis search, AVX-512: 32 states of each of two blocks at a time, which share the loads of the
 * values; four operations per 32 states. The trace is AVX2's: it looks at one group at a time. */
#include "kernels/kernels.h"

#include <immintrin.h>
#include <string.h>

#include "base/compiler.h"

enum { LANES = 32 };

/* The words of a and b in turn: a0 b0 a1 b1 ..., 64 of them. */
static PL_ALWAYS_INLINE void zip(__m512i *low, __m512i *high, __m512i a, __m512i b)
{
    static const uint16_t order[2][LANES] = {
        {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
         8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
        {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
         24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
    *low = _mm512_permutex2var_epi16(a, _mm512_loadu_si512(order[0]), b);
    *high = _mm512_permutex2var_epi16(a, _mm512_loadu_si512(order[1]), b);
}

/* Stores `count` vectors, words in the order [n][mid] with 2^k numbers n, in the order [mid][n]. A
 * round zips the first half of the words with the second, which rotates the bits of each word's
 * place by one; k rounds bring n below mid. */
static PL_ALWAYS_INLINE void store_interleaved(uint16_t *to, const __m512i *rows, int count, int k)
{
    __m512i now[16], next[16];
    const int half = count / 2;
    for (int i = 0; i < count; i++) now[i] = rows[i];
    for (int round = 0; round < k; round++) {
        for (int i = 0; i < half; i++) zip(&next[2 * i], &next[2 * i + 1], now[i], now[i + half]);
        for (int i = 0; i < count; i++) now[i] = next[i];
    }
    for (int i = 0; i < count; i++) _mm512_store_si512(to + LANES * i, now[i]);
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
        store_interleaved(to + mid * (size_t)fan, rows0, fan, k);
        store_interleaved(to + groups + mid * (size_t)fan, rows1, fan, k);
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
    store_interleaved(to, rows0, FAN / 2, 4);
    store_interleaved(to + GROUPS, rows1, FAN / 2, 4);
}

/* One step of both blocks. With `renormalise`, lowers the minima by fall[b] and leaves there the
 * least of the result. */
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

static PL_ALWAYS_INLINE void forward(uint16_t *minima, const int16_t *values, const int16_t *x,
                                     size_t steps, size_t skip, int k, int L)
{
    const size_t slot = (size_t)2 << (L - k);
    uint16_t fall[2] = {0, 0};
    for (size_t t = 0; t < steps; t++) {
        const uint16_t *from = minima + slot * (t < skip ? t & 1 : t - skip);
        uint16_t *to = minima + slot * (t + 1 < skip ? (t + 1) & 1 : t + 1 - skip);
        if (t % 4 == 3)
            step(to, from, values, x + 2 * t, fall, 1, k, L);
        else
            step(to, from, values, x + 2 * t, fall, 0, k, L);
    }
}

#define PL_VITERBI_AVX512(k, L)                                                                    \
    static void forward_k##k##_l##L(uint16_t *minima, const int16_t *values, const int16_t *x,     \
                                    size_t steps, size_t skip)                                     \
    {                                                                                              \
        forward(minima, values, x, steps, skip, k, L);                                             \
    }

PL_VITERBI_AVX512(2, 12)
PL_VITERBI_AVX512(3, 12)
PL_VITERBI_AVX512(4, 12)
PL_VITERBI_AVX512(2, 16)
PL_VITERBI_AVX512(3, 16)
PL_VITERBI_AVX512(4, 16)

void pl_kernels_init_viterbi_avx512(pl_kernels *k)
{
    static pl_viterbi_forward_fn *const forwards[3][2] = {{forward_k2_l12, forward_k2_l16},
                                                          {forward_k3_l12, forward_k3_l16},
                                                          {forward_k4_l12, forward_k4_l16}};
    k->viterbi_lanes = LANES;
    memcpy(k->viterbi_forward, forwards, sizeof forwards);
}
