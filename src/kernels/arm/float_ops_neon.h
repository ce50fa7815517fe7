/* SPDX-License-Identifier: Apache-2.0
 *
 * A register of floats, NEON, and the operations by which loops that levels share know it. */
#ifndef PL_KERNELS_FLOAT_OPS_NEON_H
#define PL_KERNELS_FLOAT_OPS_NEON_H

#include <arm_neon.h>

#include "base/compiler.h"

typedef float32x4_t fvec;

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

static PL_ALWAYS_INLINE fvec f_add(fvec a, fvec b)
{
    return vaddq_f32(a, b);
}

static PL_ALWAYS_INLINE fvec f_sub(fvec a, fvec b)
{
    return vsubq_f32(a, b);
}

static PL_ALWAYS_INLINE fvec f_mul(fvec a, fvec b)
{
    return vmulq_f32(a, b);
}

static PL_ALWAYS_INLINE fvec f_fma(fvec a, fvec b, fvec c)
{
    return vfmaq_f32(c, a, b);
}

#endif
