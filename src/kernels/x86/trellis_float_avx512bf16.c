/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products in bf16 for AVX-512 with its bf16 instructions: vdpbf16ps multiplies two numbers
 * in a lane with two activations. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "trellis_windows_avx512.h"

typedef __m512bh mvec;
#define PAIR 2

#include "float_vector_avx512.h"

static PL_ALWAYS_INLINE mvec m_load(const void *p)
{
    return (mvec)_mm512_loadu_si512(p);
}

static PL_ALWAYS_INLINE void m_store(void *p, mvec v)
{
    _mm512_store_si512(p, (__m512i)v);
}

static PL_ALWAYS_INLINE mvec m_splat(const void *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return (mvec)_mm512_set1_epi32(pair);
}

static PL_ALWAYS_INLINE fvec mac(fvec sum, mvec w, mvec x)
{
    return _mm512_dpbf16_ps(sum, w, x);
}

static PL_ALWAYS_INLINE fvec round_weight(fvec v) /* on its way into a pair */
{
    return v;
}

/* Lanes of the first, then of the second step. */
static PL_ALWAYS_INLINE mvec pair_steps(fvec a, fvec b)
{
    return _mm512_cvtne2ps_pbh(b, a);
}

/* Both rows' numbers in each lane. */
static PL_ALWAYS_INLINE mvec pair_rows(fvec a, fvec b)
{
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (mvec)_mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}

static PL_ALWAYS_INLINE vec halves(fvec a, fvec b)
{
    return (vec)pair_rows(a, b);
}

static PL_ALWAYS_INLINE vec halves_of_factor(fvec a, fvec b)
{
    return halves(a, b);
}

#include "trellis_float_body.h"

EXPANDS(avx512bf16)

FLOAT_PRODUCTS(avx512bf16, bf16, PL_FLOAT_BF16)

void pl_kernels_init_float_avx512bf16(pl_kernels *table)
{
    pl_float_kernels *f = &table->floats;
    SET_FLOAT_PRODUCTS(f, avx512bf16, bf16, PL_FLOAT_BF16);
    SET_EXPANDS(f, avx512bf16);
}
