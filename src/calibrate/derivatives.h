/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of the elementwise parts of a transformer. */
#ifndef PL_CALIBRATE_DERIVATIVES_H
#define PL_CALIBRATE_DERIVATIVES_H

#include <math.h>

#include "base/compiler.h"
#include "kernels/kernels.h"

/* dx = gradient by x [n] of the RMS norm with this gain, from that by its result. With
 * r = 1 / sqrt(mean x^2 + eps) and g = gain dy: dx = r g - x r^3 mean(x g). dx may be dy, not x. */
static inline void pl_rms_norm_gradient(const pl_kernels *k, float *dx, const float *x,
                                        const float *gain, const float *dy, size_t n, float eps)
{
    float r = 1.0f / sqrtf(k->dot_f32(x, x, n) / (float)n + eps);
    for (size_t i = 0; i < n; i++) dx[i] = gain[i] * dy[i];
    float along = r * r * r * (k->dot_f32(x, dx, n) / (float)n);
    for (size_t i = 0; i < n; i++) dx[i] = r * dx[i] - along * x[i];
}

#endif
