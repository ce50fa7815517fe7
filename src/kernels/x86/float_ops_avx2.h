/* SPDX-License-Identifier: Apache-2.0
 *
 * A register of floats, AVX2, and the operations by which loops that levels share know it. */
#ifndef PL_KERNELS_FLOAT_OPS_AVX2_H
#define PL_KERNELS_FLOAT_OPS_AVX2_H

#include <immintrin.h>

#include "base/compiler.h"

typedef __m256 fvec;

static PL_ALWAYS_INLINE fvec f_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static PL_ALWAYS_INLINE void f_store(float *p, fvec v)
{
    _mm256_storeu_ps(p, v);
}

static PL_ALWAYS_INLINE fvec f_splat(float x)
{
    return _mm256_set1_ps(x);
}

static PL_ALWAYS_INLINE fvec f_add(fvec a, fvec b)
{
    return _mm256_add_ps(a, b);
}

static PL_ALWAYS_INLINE fvec f_sub(fvec a, fvec b)
{
    return _mm256_sub_ps(a, b);
}

static PL_ALWAYS_INLINE fvec f_mul(fvec a, fvec b)
{
    return _mm256_mul_ps(a, b);
}

static PL_ALWAYS_INLINE fvec f_fma(fvec a, fvec b, fvec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

#endif
