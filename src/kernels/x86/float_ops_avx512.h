/* SPDX-License-Identifier: Apache-2.0
 *
 * A register of floats, AVX-512, and the operations by which loops that levels share know it. */
#ifndef PL_KERNELS_FLOAT_OPS_AVX512_H
#define PL_KERNELS_FLOAT_OPS_AVX512_H

#include <immintrin.h>

#include "base/compiler.h"

typedef __m512 fvec;

static PL_ALWAYS_INLINE fvec f_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static PL_ALWAYS_INLINE void f_store(float *p, fvec v)
{
    _mm512_storeu_ps(p, v);
}

static PL_ALWAYS_INLINE fvec f_splat(float x)
{
    return _mm512_set1_ps(x);
}

static PL_ALWAYS_INLINE fvec f_add(fvec a, fvec b)
{
    return _mm512_add_ps(a, b);
}

static PL_ALWAYS_INLINE fvec f_sub(fvec a, fvec b)
{
    return _mm512_sub_ps(a, b);
}

static PL_ALWAYS_INLINE fvec f_mul(fvec a, fvec b)
{
    return _mm512_mul_ps(a, b);
}

static PL_ALWAYS_INLINE fvec f_fma(fvec a, fvec b, fvec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

#endif
