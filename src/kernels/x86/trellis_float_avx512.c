/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products in floating point for AVX-512 with VNNI, whose vpdpbusd sums a number's bytes
 * from -510 on. */
#include <immintrin.h>
#include <stdint.h>

#include "trellis_windows_avx512.h"

typedef __m512 mvec;
#define PAIR 1

#include "float_vector_avx512.h"

static PL_ALWAYS_INLINE mvec m_load(const void *p)
{
    return _mm512_loadu_ps(p);
}

static PL_ALWAYS_INLINE void m_store(void *p, mvec v)
{
    _mm512_store_ps(p, v);
}

static PL_ALWAYS_INLINE mvec m_splat(const void *p)
{
    return _mm512_set1_ps(*(const float *)p);
}

static PL_ALWAYS_INLINE fvec mac(fvec sum, mvec w, mvec x)
{
    return _mm512_fmadd_ps(w, x, sum);
}

/* Half a unit of what is dropped carries into the upper half. */
static PL_ALWAYS_INLINE vec carried(fvec v)
{
    return _mm512_add_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(0x8000));
}

static PL_ALWAYS_INLINE fvec round_weight(fvec v)
{
    return _mm512_castsi512_ps(_mm512_and_si512(carried(v), _mm512_set1_epi32(-0x10000)));
}

/* The same, but that ties become even. */
static PL_ALWAYS_INLINE vec carried_even(fvec v)
{
    vec bits = _mm512_castps_si512(v);
    vec odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
}

static PL_ALWAYS_INLINE vec upper_halves(vec a, vec b)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(a, 16), b);
}

static PL_ALWAYS_INLINE vec halves(fvec a, fvec b)
{
    return upper_halves(carried_even(a), carried_even(b));
}

static PL_ALWAYS_INLINE vec halves_of_factor(fvec a, fvec b)
{
    return upper_halves(carried(a), carried(b));
}

#include "trellis_float_body.h"

DECODES(avx512)
EXPANDS(avx512)

FLOAT_PRODUCTS(avx512, f32, PL_FLOAT_F32)
FLOAT_PRODUCTS(avx512, bf16, PL_FLOAT_BF16)

void pl_kernels_init_float_avx512(pl_kernels *table)
{
    pl_float_kernels *f = &table->floats;
    SET_FLOAT_PRODUCTS(f, avx512, f32, PL_FLOAT_F32);
    SET_FLOAT_PRODUCTS(f, avx512, bf16, PL_FLOAT_BF16);
    SET_EXPANDS(f, avx512);
    SET_DECODES(f, avx512);
}
