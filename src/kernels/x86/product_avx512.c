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
static PL_ALWAYS_INLINE fvec f_splat(float x)
{
    return _mm512_set1_ps(x);
}
static PL_ALWAYS_INLINE fvec f_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static PL_ALWAYS_INLINE void f_store(float *p, fvec v)
{
    _mm512_storeu_ps(p, v);
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

static PL_ALWAYS_INLINE float f_sum(fvec v)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

#include "kernels/product_body.h"

PL_NUMBER_KERNELS(avx512)

void pl_kernels_init_product_avx512(pl_kernels *k)
{
    k->product.quantize_i16 = quantize_i16_avx512;
    k->product.quantize_i8 = quantize_i8_avx512;
    k->product.quantize_i16x2 = quantize_i16x2_avx512;
    k->product.decode = decode_avx512;
    k->product.expand = expand_avx512;
    k->product.rows = rows_tiled;
    k->product.columns = columns_tiled;
}
