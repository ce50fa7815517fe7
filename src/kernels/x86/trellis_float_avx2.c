/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products in floating point for AVX2 and FMA. */
#include <stdbool.h>
#include <stdint.h>

#include "float_ops_avx2.h"
#include "trellis_windows_avx2.h"

typedef fvec mvec;
#define PAIR 1
enum {
    DIRECT_SUMS = 8,
    STRIP_ROWS = 6, /* activation rows on two registers of outputs: 12 sums, 2 weights, 1 more */
    TILE_X = 3      /* activation rows on four rows of weights */
};

static PL_ALWAYS_INLINE fvec fold(fvec a, fvec b)
{
    return _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
}

/* Lane r: the sum of the lanes of v[r]. */
static PL_ALWAYS_INLINE __m128 f_sum4(const fvec v[4])
{
    fvec a = fold(v[0], v[2]), b = fold(v[1], v[3]); /* 0 2 0 2 ..., 1 3 1 3 ... */
    fvec c = fold(a, b);
    return _mm_add_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1));
}

static PL_ALWAYS_INLINE mvec m_load(const void *p)
{
    return _mm256_loadu_ps(p);
}

static PL_ALWAYS_INLINE void m_store(void *p, mvec v)
{
    _mm256_store_ps(p, v);
}

static PL_ALWAYS_INLINE mvec m_splat(const void *p)
{
    return _mm256_broadcast_ss(p);
}

static PL_ALWAYS_INLINE fvec mac(fvec sum, mvec w, mvec x)
{
    return _mm256_fmadd_ps(w, x, sum);
}

static PL_ALWAYS_INLINE vec byte_sums(vec x)
{
    vec words = _mm256_maddubs_epi16(x, _mm256_set1_epi8(1));
    return _mm256_madd_epi16(words, _mm256_set1_epi16(1));
}

static PL_ALWAYS_INLINE fvec real(vec x)
{
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(byte_sums(x), _mm256_set1_epi32(510)));
}

static PL_ALWAYS_INLINE fvec anchored(vec x)
{
    return _mm256_castsi256_ps(_mm256_add_epi32(byte_sums(x), _mm256_set1_epi32(0x4b400000 - 510)));
}

/* Half a unit of what is dropped carries into the upper half. */
static PL_ALWAYS_INLINE vec carried(fvec v)
{
    return _mm256_add_epi32(_mm256_castps_si256(v), _mm256_set1_epi32(0x8000));
}

static PL_ALWAYS_INLINE fvec round_weight(fvec v)
{
    return _mm256_castsi256_ps(_mm256_and_si256(carried(v), _mm256_set1_epi32(-0x10000)));
}

/* ---- plain numbers --------------------------------------------------------------------------- */

/* The same, but that ties become even. */
static PL_ALWAYS_INLINE vec carried_even(fvec v)
{
    vec bits = _mm256_castps_si256(v);
    vec odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
}

static PL_ALWAYS_INLINE vec upper_halves(vec a, vec b)
{
    return _mm256_blend_epi16(_mm256_srli_epi32(a, 16), b, 0xaa);
}

static PL_ALWAYS_INLINE vec halves(fvec a, fvec b)
{
    return upper_halves(carried_even(a), carried_even(b));
}

static PL_ALWAYS_INLINE vec halves_of_factor(fvec a, fvec b)
{
    return upper_halves(carried(a), carried(b));
}

static PL_ALWAYS_INLINE void store_vec(void *to, vec v, bool nt)
{
    if (nt)
        _mm256_stream_si256(to, v);
    else
        _mm256_storeu_si256(to, v);
}

static PL_ALWAYS_INLINE void store_pairs(uint8_t *to, fvec a, fvec b, bool nt)
{
    store_vec(to, _mm256_castps_si256(_mm256_unpacklo_ps(a, b)), nt);
    store_vec(to + sizeof(vec), _mm256_castps_si256(_mm256_unpackhi_ps(a, b)), nt);
}

#include "trellis_float_body.h"

DECODES(avx2)
EXPANDS(avx2)

FLOAT_PRODUCTS(avx2, f32, PL_FLOAT_F32)
FLOAT_PRODUCTS(avx2, bf16, PL_FLOAT_BF16)

void pl_kernels_init_float_avx2(pl_kernels *table)
{
    pl_float_kernels *f = &table->floats;
    SET_FLOAT_PRODUCTS(f, avx2, f32, PL_FLOAT_F32);
    SET_FLOAT_PRODUCTS(f, avx2, bf16, PL_FLOAT_BF16);
    SET_EXPANDS(f, avx2);
    SET_DECODES(f, avx2);
}
