/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two AVX-512 levels of trellis_float_body.h have in common. */
#ifndef PL_KERNELS_FLOAT_VECTOR_AVX512_H
#define PL_KERNELS_FLOAT_VECTOR_AVX512_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "float_ops_avx512.h"

enum {
    DIRECT_SUMS = 16,
    STRIP_ROWS = 12, /* activation rows on two registers of outputs: 24 sums */
    TILE_X = 6       /* activation rows on four rows of weights: 24 sums */
};

static PL_ALWAYS_INLINE fvec fold(fvec a, fvec b)
{
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}

/* Lane r: the sum of the lanes of v[r]. */
static PL_ALWAYS_INLINE __m128 f_sum4(const fvec v[4])
{
    fvec c = fold(fold(v[0], v[2]), fold(v[1], v[3]));
    __m256 d = _mm256_add_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps(c, 1));
    return _mm_add_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1));
}

static PL_ALWAYS_INLINE fvec real(__m512i x)
{
    return _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(_mm512_set1_epi32(-510), x, _mm512_set1_epi8(1)));
}

static PL_ALWAYS_INLINE fvec anchored(__m512i x)
{
    const __m512i anchor = _mm512_set1_epi32(0x4b400000 - 510);
    return _mm512_castsi512_ps(_mm512_dpbusd_epi32(anchor, x, _mm512_set1_epi8(1)));
}

static PL_ALWAYS_INLINE void store_vec(void *to, __m512i v, bool nt)
{
    if (nt)
        _mm512_stream_si512(to, v);
    else
        _mm512_storeu_si512(to, v);
}

static PL_ALWAYS_INLINE void store_pairs(uint8_t *to, fvec a, fvec b, bool nt)
{
    store_vec(to, _mm512_castps_si512(_mm512_unpacklo_ps(a, b)), nt);
    store_vec(to + sizeof(__m512i), _mm512_castps_si512(_mm512_unpackhi_ps(a, b)), nt);
}

#endif
