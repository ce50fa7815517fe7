/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector operations for AVX-512: the shared bodies, and a dot product that keeps its 32 lanes in
 * two registers. Products are not fused, so the bits are those of the C version. */
#include <immintrin.h>

#include "kernels/kernels.h"
#include "kernels/vector.h"

static float dot_f32_avx512(const float *a, const float *b, size_t n)
{
    __m512 s0 = _mm512_setzero_ps(), s1 = s0;
    size_t i = 0;
    for (; i + PL_LANES <= n; i += PL_LANES) {
        s0 = _mm512_add_ps(s0, _mm512_mul_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i)));
        s1 = _mm512_add_ps(s1,
                           _mm512_mul_ps(_mm512_loadu_ps(a + i + 16), _mm512_loadu_ps(b + i + 16)));
    }
    if (i < n) {
        float lane[PL_LANES];
        _mm512_storeu_ps(lane, s0);
        _mm512_storeu_ps(lane + 16, s1);
        for (size_t j = 0; i + j < n; j++) lane[j] += a[i + j] * b[i + j];
        return add_lanes(lane);
    }
    __m512 s = _mm512_add_ps(s0, s1);
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

PL_VECTOR_KERNELS(avx512)
