/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector operations for AVX2: the shared bodies, and a dot product that keeps its 32 lanes in four
 * registers. Products are not fused, so the bits are those of the C version. */
#include <immintrin.h>

#include "kernels/kernels.h"
#include "kernels/vector.h"

static PL_ALWAYS_INLINE __m256 add_product(__m256 sum, const float *a, const float *b)
{
    return _mm256_add_ps(sum, _mm256_mul_ps(_mm256_loadu_ps(a), _mm256_loadu_ps(b)));
}

static float dot_f32_avx2(const float *a, const float *b, size_t n)
{
    __m256 s0 = _mm256_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
    size_t i = 0;
    for (; i + PL_LANES <= n; i += PL_LANES) {
        s0 = add_product(s0, a + i, b + i);
        s1 = add_product(s1, a + i + 8, b + i + 8);
        s2 = add_product(s2, a + i + 16, b + i + 16);
        s3 = add_product(s3, a + i + 24, b + i + 24);
    }
    if (i < n) {
        float lane[PL_LANES];
        _mm256_storeu_ps(lane, s0);
        _mm256_storeu_ps(lane + 8, s1);
        _mm256_storeu_ps(lane + 16, s2);
        _mm256_storeu_ps(lane + 24, s3);
        for (size_t j = 0; i + j < n; j++) lane[j] += a[i + j] * b[i + j];
        return add_lanes(lane);
    }
    __m256 s = _mm256_add_ps(_mm256_add_ps(s0, s2), _mm256_add_ps(s1, s3));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

PL_VECTOR_KERNELS(avx2)
