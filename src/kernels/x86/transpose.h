/* SPDX-License-Identifier: Apache-2.0
 *
 * A square of 32-bit numbers turned in registers. */
#ifndef PL_KERNELS_TRANSPOSE_H
#define PL_KERNELS_TRANSPOSE_H

#include <immintrin.h>

#include "base/compiler.h"

static PL_ALWAYS_INLINE void transpose_8x8(__m256 v[8])
{
    __m256 a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        b[4 * i] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
        b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xee);
        b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
        b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}

/* The same of integers. */
static PL_ALWAYS_INLINE void transpose_ints_8x8(__m256i v[8])
{
    __m256 f[8];
    for (int i = 0; i < 8; i++) f[i] = _mm256_castsi256_ps(v[i]);
    transpose_8x8(f);
    for (int i = 0; i < 8; i++) v[i] = _mm256_castps_si256(f[i]);
}

#endif
