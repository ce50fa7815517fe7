/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis search, AVX2: 16 states of each of two blocks at a time, which share the loads of the
 * values; four operations per 16 states. The trace finds the cheapest of a group with phminposuw,
 * whose lowest index on ties is the contract's. */
#include "kernels/kernels.h"

#include <immintrin.h>

#include "base/compiler.h"

enum { LANES = 16 };

/* rows[n] holds number n of 16 consecutive mids; stores them as [mid][n], n below `fan`. */
static PL_ALWAYS_INLINE void store_interleaved(uint16_t *to, const __m256i *rows, int fan)
{
    /* Words to pairs, pairs to fours: quad[4q + i] has numbers 4q .. 4q+3 of mids 2i and 2i+1 in
     * its low half, of mids 2i+8 and 2i+9 in its high half. */
    __m256i quad[16];
    for (int q = 0; q < fan / 4; q++) {
        const __m256i *r = rows + 4 * q;
        __m256i a = _mm256_unpacklo_epi16(r[0], r[1]), b = _mm256_unpackhi_epi16(r[0], r[1]);
        __m256i c = _mm256_unpacklo_epi16(r[2], r[3]), d = _mm256_unpackhi_epi16(r[2], r[3]);
        quad[4 * q] = _mm256_unpacklo_epi32(a, c);
        quad[4 * q + 1] = _mm256_unpackhi_epi32(a, c);
        quad[4 * q + 2] = _mm256_unpacklo_epi32(b, d);
        quad[4 * q + 3] = _mm256_unpackhi_epi32(b, d);
    }
    __m256i *out = (__m256i *)to;
    if (fan == 4) {
        _mm256_store_si256(out, _mm256_permute2x128_si256(quad[0], quad[1], 0x20));
        _mm256_store_si256(out + 1, _mm256_permute2x128_si256(quad[2], quad[3], 0x20));
        _mm256_store_si256(out + 2, _mm256_permute2x128_si256(quad[0], quad[1], 0x31));
        _mm256_store_si256(out + 3, _mm256_permute2x128_si256(quad[2], quad[3], 0x31));
        return;
    }
    /* eight[8e + m] has numbers 8e .. 8e+7 of mid m in its low half, of mid m+8 in its high. */
    __m256i eight[16];
    for (int e = 0; e < fan / 8; e++)
        for (int i = 0; i < 4; i++) {
            __m256i a = quad[8 * e + i], b = quad[8 * e + 4 + i];
            eight[8 * e + 2 * i] = _mm256_unpacklo_epi64(a, b);
            eight[8 * e + 2 * i + 1] = _mm256_unpackhi_epi64(a, b);
        }
    int vectors = fan / 2, pairs = 4; /* per half of the mids; fan 8: two mids fill a vector */
    if (fan == 8)
        for (int i = 0; i < pairs; i++) {
            __m256i a = eight[2 * i], b = eight[2 * i + 1];
            _mm256_store_si256(out + i, _mm256_permute2x128_si256(a, b, 0x20));
            _mm256_store_si256(out + vectors + i, _mm256_permute2x128_si256(a, b, 0x31));
        }
    else
        for (int m = 0; m < vectors; m++) {
            __m256i a = eight[m], b = eight[8 + m];
            _mm256_store_si256(out + m, _mm256_permute2x128_si256(a, b, 0x20));
            _mm256_store_si256(out + vectors + m, _mm256_permute2x128_si256(a, b, 0x31));
        }
}

static PL_ALWAYS_INLINE uint16_t least_lane(__m256i v)
{
    __m128i a = _mm_min_epu16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    return (uint16_t)_mm_cvtsi128_si32(_mm_minpos_epu16(a));
}

/* One step of both blocks: viterbi_body.h. */
static PL_ALWAYS_INLINE void step(uint16_t *to, const uint16_t *from, const int16_t *values,
                                  const int16_t *x, uint16_t *fall, int renormalise, int k, int L)
{
    const int fan = 1 << k;
    const size_t mids = (size_t)1 << (L - 2 * k), groups = (size_t)1 << (L - k);
    const __m256i x0 = _mm256_set1_epi16(x[0]);
    const __m256i x1_less_x0 = _mm256_set1_epi16((int16_t)(x[1] - x[0]));
    const __m256i highest = _mm256_set1_epi16(INT16_MAX);
    const __m256i fall0 = _mm256_set1_epi16((int16_t)fall[0]);
    const __m256i fall1 = _mm256_set1_epi16((int16_t)fall[1]);
    __m256i least0 = highest, least1 = highest;
    const __m256i *value = (const __m256i *)values;
    for (size_t mid = 0; mid < mids; mid += LANES) {
        __m256i rows0[16], rows1[16];
        for (int n = 0; n < fan; n++) {
            __m256i best0 = highest, best1 = highest;
            for (int j = 0; j < fan; j++) {
                const uint16_t *m = from + (size_t)j * mids + mid;
                __m256i d0 = _mm256_sub_epi16(x0, _mm256_load_si256(value++));
                __m256i d1 = _mm256_add_epi16(d0, x1_less_x0); /* spares a load */
                __m256i e0 = _mm256_mulhrs_epi16(d0, d0), e1 = _mm256_mulhrs_epi16(d1, d1);
                __m256i m0 = _mm256_load_si256((const __m256i *)m);
                __m256i m1 = _mm256_load_si256((const __m256i *)(m + groups));
                best0 = _mm256_min_epu16(best0, _mm256_add_epi16(m0, e0));
                best1 = _mm256_min_epu16(best1, _mm256_add_epi16(m1, e1));
            }
            if (renormalise) {
                best0 = _mm256_sub_epi16(best0, fall0);
                best1 = _mm256_sub_epi16(best1, fall1);
                least0 = _mm256_min_epu16(least0, best0);
                least1 = _mm256_min_epu16(least1, best1);
            }
            rows0[n] = best0;
            rows1[n] = best1;
        }
        store_interleaved(to + mid * (size_t)fan, rows0, fan);
        store_interleaved(to + groups + mid * (size_t)fan, rows1, fan);
    }
    if (renormalise) {
        fall[0] = least_lane(least0);
        fall[1] = least_lane(least1);
    }
}

/* The costs of states (first + 0 .. 7, group), lanes past `count` at the highest. */
static PL_ALWAYS_INLINE __m128i group_costs(const uint16_t *from, size_t mids, const int16_t *value,
                                            __m128i x, int count)
{
    __m128i v = count == 4 ? _mm_loadl_epi64((const __m128i *)value)
                           : _mm_loadu_si128((const __m128i *)value);
    __m128i d = _mm_sub_epi16(x, v), m = _mm_set1_epi16(-1);
    m = _mm_insert_epi16(m, from[0], 0);
    m = _mm_insert_epi16(m, from[mids], 1);
    m = _mm_insert_epi16(m, from[2 * mids], 2);
    m = _mm_insert_epi16(m, from[3 * mids], 3);
    if (count == 8) {
        m = _mm_insert_epi16(m, from[4 * mids], 4);
        m = _mm_insert_epi16(m, from[5 * mids], 5);
        m = _mm_insert_epi16(m, from[6 * mids], 6);
        m = _mm_insert_epi16(m, from[7 * mids], 7);
    }
    __m128i cost = _mm_add_epi16(m, _mm_mulhrs_epi16(d, d));
    return count == 4 ? _mm_or_si128(cost, _mm_set_epi32(-1, -1, 0, 0)) : cost;
}

static PL_ALWAYS_INLINE uint32_t cheapest(const uint16_t *from, size_t mids, const int16_t *value,
                                          int16_t x, int k)
{
    __m128i xs = _mm_set1_epi16(x);
    __m128i a = _mm_minpos_epu16(group_costs(from, mids, value, xs, k == 2 ? 4 : 8));
    uint32_t low = (uint32_t)_mm_cvtsi128_si32(a);
    if (k < 4) return low >> 16;
    __m128i b = _mm_minpos_epu16(group_costs(from + 8 * mids, mids, value + 8, xs, 8));
    uint32_t high = (uint32_t)_mm_cvtsi128_si32(b) + (8u << 16);
    return ((low & 0xffff) <= (high & 0xffff) ? low : high) >> 16;
}

static PL_ALWAYS_INLINE void trace(uint16_t *const states[2], uint32_t group[2],
                                   const uint16_t *minima, const int16_t *values, const int16_t *x,
                                   size_t steps, size_t skip, int k, int L)
{
    const size_t mids = (size_t)1 << (L - 2 * k), groups = (size_t)1 << (L - k);
    uint32_t g0 = group[0], g1 = group[1];
    for (size_t t = steps; t-- > skip;) { /* two independent chains hide each other's latency */
        const uint16_t *from = minima + 2 * groups * (t - skip);
        uint32_t j0 = cheapest(from + (g0 >> k), mids, values + ((size_t)g0 << k), x[2 * t], k);
        uint32_t j1 =
            cheapest(from + groups + (g1 >> k), mids, values + ((size_t)g1 << k), x[2 * t + 1], k);
        uint32_t s0 = j0 << (L - k) | g0, s1 = j1 << (L - k) | g1;
        states[0][t] = (uint16_t)s0;
        states[1][t] = (uint16_t)s1;
        g0 = s0 >> k;
        g1 = s1 >> k;
    }
    group[0] = g0;
    group[1] = g1;
}

#define VITERBI_TRACE
#include "kernels/viterbi_body.h"

void pl_kernels_init_viterbi_avx2(pl_kernels *k)
{
    set_forward(k);
    set_trace(k);
}
