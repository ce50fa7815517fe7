/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector operations for NEON: a dot product that keeps its 32 lanes in eight registers. Products
 * are not fused, so the bits are those of the C version. The other entries stay with C, whose loops
 * the compiler turns into NEON itself. */
#include <arm_neon.h>

#include "kernels/kernels.h"
#include "kernels/vector.h"

static float dot_f32_neon(const float *a, const float *b, size_t n)
{
    enum { REGISTERS = PL_LANES / 4 };
    float32x4_t s[REGISTERS];
    for (size_t j = 0; j < REGISTERS; j++) s[j] = vdupq_n_f32(0);
    size_t i = 0;
    for (; i + PL_LANES <= n; i += PL_LANES)
        for (size_t j = 0; j < REGISTERS; j++)
            s[j] = vaddq_f32(s[j], vmulq_f32(vld1q_f32(a + i + 4 * j), vld1q_f32(b + i + 4 * j)));
    if (i < n) {
        float lane[PL_LANES];
        for (size_t j = 0; j < REGISTERS; j++) vst1q_f32(lane + 4 * j, s[j]);
        for (size_t j = 0; i + j < n; j++) lane[j] += a[i + j] * b[i + j];
        return add_lanes(lane);
    }
    for (size_t stride = REGISTERS / 2; stride > 0; stride /= 2)
        for (size_t j = 0; j < stride; j++) s[j] = vaddq_f32(s[j], s[j + stride]);
    float32x2_t pair = vadd_f32(vget_low_f32(s[0]), vget_high_f32(s[0]));
    return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
}

static void rms_norm_neon(float *dst, const float *x, const float *weight, size_t n, float eps)
{
    float mean = dot_f32_neon(x, x, n) / (float)n;
    body_scale_f32(dst, 1.0f / sqrtf(mean + eps), x, weight, n);
}

void pl_kernels_init_vector_neon(pl_kernels *k)
{
    k->dot_f32 = dot_f32_neon;
    k->rms_norm = rms_norm_neon;
}
