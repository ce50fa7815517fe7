/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain products for AVX-512. Rows of plain codings stay with AVX2. */
#include <immintrin.h>

#include "kernels/kernels.h"
#include "kernels/vector.h"

typedef __m512 fvec;
enum { LANES = 16, TILE_X = 6 };

static PL_ALWAYS_INLINE fvec f_zero(void)
{
    return _mm512_setzero_ps();
}
static PL_ALWAYS_INLINE fvec f_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static PL_ALWAYS_INLINE fvec f_fma(fvec a, fvec b, fvec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* p[0..n), n < LANES, zeros after. */
static PL_ALWAYS_INLINE fvec f_load_first(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

static PL_ALWAYS_INLINE fvec f_fold(fvec a, fvec b)
{
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}

/* sums[r]: the sum of the lanes of v[r]. */
static PL_ALWAYS_INLINE void f_sum4(float sums[4], const fvec v[4])
{
    fvec all = f_fold(f_fold(v[0], v[2]), f_fold(v[1], v[3]));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}

#include "kernels/product_body.h"

PL_NUMBER_KERNELS(avx512)

void pl_kernels_init_product_avx512(pl_kernels *k)
{
    k->product.quantize_i16 = quantize_i16_avx512;
    k->product.quantize_i8 = quantize_i8_avx512;
    k->product.quantize_i16x2 = quantize_i16x2_avx512;
    k->product.rows = rows_tiled;
}
