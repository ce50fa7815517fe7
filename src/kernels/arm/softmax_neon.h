/* SPDX-License-Identifier: Apache-2.0
 *
 * What the attention kernels for NEON share: the running softmax of a row. */
#ifndef PL_KERNELS_SOFTMAX_NEON_H
#define PL_KERNELS_SOFTMAX_NEON_H

#include <arm_neon.h>
#include <math.h>

#include "base/compiler.h"
#include "kernels/attention.h"

/* exp(x) as in vector.h, with fused multiply-adds. Minimum and maximum pass NaN on. */
static PL_ALWAYS_INLINE float32x4_t exp_neon(float32x4_t x)
{
    static const float terms[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    const float32x4_t lowest = vdupq_n_f32(-87.0f);
    uint32x4_t tiny = vcltq_f32(x, lowest);
    x = vminq_f32(vdupq_n_f32(88.0f), vmaxq_f32(lowest, x));
    float32x4_t n = vrndnq_f32(vmulq_n_f32(x, 1.44269504f));
    float32x4_t r = vfmsq_n_f32(vfmsq_n_f32(x, n, 0.693359375f), n, -2.12194440e-4f);
    float32x4_t p = vdupq_n_f32(1.0f / 5040);
    for (size_t i = 0; i < PL_COUNT(terms); i++) p = vfmaq_f32(vdupq_n_f32(terms[i]), p, r);
    int32x4_t e = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
    uint32x4_t result = vreinterpretq_u32_f32(vmulq_f32(p, vreinterpretq_f32_s32(e)));
    return vreinterpretq_f32_u32(vbicq_u32(result, tiny));
}

/* Turns a row of scores into exp(score - max), 0 outside [lo, hi), over the whole block; updates
 * max and sum. Returns what earlier sums are multiplied by. */
static inline float softmax_row(float *scores, size_t lo, size_t hi, float *max, float *sum)
{
    for (size_t j = 0; j < lo; j++) scores[j] = -INFINITY;
    for (size_t j = hi; j < PL_ATTEND_BLOCK; j++) scores[j] = -INFINITY;
    float32x4_t top = vdupq_n_f32(*max);
    for (size_t j = 0; j < PL_ATTEND_BLOCK; j += 4) top = vmaxq_f32(top, vld1q_f32(scores + j));
    float m = vmaxvq_f32(top);
    float32x4_t total = vdupq_n_f32(0);
    for (size_t j = 0; j < PL_ATTEND_BLOCK; j += 4) {
        float32x4_t p = exp_neon(vsubq_f32(vld1q_f32(scores + j), vdupq_n_f32(m)));
        vst1q_f32(scores + j, p);
        total = vaddq_f32(total, p);
    }
    float keep = vgetq_lane_f32(exp_neon(vdupq_n_f32(*max - m)), 0);
    *sum = *sum * keep + vaddvq_f32(total);
    *max = m;
    return keep;
}

static inline void scale_row(float *x, float factor, size_t n)
{
    for (size_t i = 0; i < n; i += 4) vst1q_f32(x + i, vmulq_n_f32(vld1q_f32(x + i), factor));
}

#endif
