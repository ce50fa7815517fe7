/* SPDX-License-Identifier: Apache-2.0
 *
 * The gated delta rule, AVX-512. */
#include <immintrin.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "kernels/kernels.h"

typedef __m512 fvec;
enum { LANES = 16 };

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
static PL_ALWAYS_INLINE fvec f_mul(fvec a, fvec b)
{
    return _mm512_mul_ps(a, b);
}
static PL_ALWAYS_INLINE fvec f_fma(fvec a, fvec b, fvec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

#include "kernels/delta_body.h"

static void delta_avx512(float *S, const pl_delta_run *r)
{
    delta(S, r);
}

void pl_kernels_init_delta_avx512(pl_kernels *k)
{
    k->delta = delta_avx512;
}
