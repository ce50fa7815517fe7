/* SPDX-License-Identifier: Apache-2.0
 *
 * The gated delta rule, NEON. */
#include <arm_neon.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "kernels/kernels.h"

typedef float32x4_t fvec;
enum { LANES = 4 };

static PL_ALWAYS_INLINE fvec f_load(const float *p)
{
    return vld1q_f32(p);
}
static PL_ALWAYS_INLINE void f_store(float *p, fvec v)
{
    vst1q_f32(p, v);
}
static PL_ALWAYS_INLINE fvec f_splat(float x)
{
    return vdupq_n_f32(x);
}
static PL_ALWAYS_INLINE fvec f_mul(fvec a, fvec b)
{
    return vmulq_f32(a, b);
}
static PL_ALWAYS_INLINE fvec f_fma(fvec a, fvec b, fvec c)
{
    return vfmaq_f32(c, a, b);
}

#include "kernels/delta_body.h"

static void delta_neon(float *S, const pl_delta_run *r)
{
    delta(S, r);
}

void pl_kernels_init_delta_neon(pl_kernels *k)
{
    k->delta = delta_neon;
}
