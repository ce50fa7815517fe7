/* SPDX-License-Identifier: Apache-2.0
 *
 * The vector operations as always-inline bodies over plain arrays of PL_LANES numbers, written so
 * that a compiler turns each inner loop into vector instructions. Every ISA level compiles the same
 * bodies with its own flags; as nothing is fused or reordered, all return the same bits. */
#ifndef PL_KERNELS_VECTOR_H
#define PL_KERNELS_VECTOR_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "base/half.h"

#define PL_LANES 32

/* Lanes added pairwise, the upper half onto the lower one. */
static PL_ALWAYS_INLINE float add_lanes(float *lane)
{
    for (size_t j = 0; j < 16; j++) lane[j] += lane[j + 16];
    for (size_t j = 0; j < 8; j++) lane[j] += lane[j + 8];
    for (size_t j = 0; j < 4; j++) lane[j] += lane[j + 4];
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

static PL_ALWAYS_INLINE float body_dot_f32(const float *a, const float *b, size_t n)
{
    float lane[PL_LANES] = {0};
    size_t i = 0;
    for (; i + PL_LANES <= n; i += PL_LANES)
        for (size_t j = 0; j < PL_LANES; j++) lane[j] += a[i + j] * b[i + j];
    for (size_t j = 0; i + j < n; j++) lane[j] += a[i + j] * b[i + j];
    return add_lanes(lane);
}

static PL_ALWAYS_INLINE void body_axpy_f32(float *y, float a, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += a * x[i];
}

static PL_ALWAYS_INLINE void body_scale_f32(float *dst, float a, const float *x,
                                            const float *weight, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = x[i] * a * weight[i];
}

/* e^x within 2 units in the last place; 0 below -87.3, infinity above 88.7. 2^n by exponent bits
 * and a polynomial on [-ln2/2, ln2/2]: the Taylor series to x^7, whose rest is below 2^-27 there.
 * ln 2 is taken off in two parts, the first exact for every n. */
static PL_ALWAYS_INLINE float exp_f32(float x)
{
    float clamped = x < -87.3f ? -87.3f : x > 88.7f ? 88.7f : x;
    float shifted = clamped * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to an integer */
    float n = shifted - 12582912.0f;
    float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    /* Two factors, since 2^128 alone is not a float. */
    int32_t e = (int32_t)(pl_f32_bits(shifted) - 0x4b400000u), half = e >> 1; /* e = n */
    float a = pl_f32_from_bits((uint32_t)(half + 127) << 23);
    float b = pl_f32_from_bits((uint32_t)(e - half + 127) << 23);
    float result = p * a * b;
    result = x > 88.7f ? INFINITY : result;
    return x < -87.3f ? 0.0f : result;
}

static PL_ALWAYS_INLINE float body_max(const float *x, size_t n)
{
    float lane[PL_LANES], max = -INFINITY;
    for (size_t j = 0; j < PL_LANES; j++) lane[j] = -INFINITY;
    size_t i = 0;
    for (; i + PL_LANES <= n; i += PL_LANES)
        for (size_t j = 0; j < PL_LANES; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (; i < n; i++) max = x[i] > max ? x[i] : max;
    for (size_t j = 0; j < PL_LANES; j++) max = lane[j] > max ? lane[j] : max;
    return max;
}

static PL_ALWAYS_INLINE void body_softmax(float *x, size_t n)
{
    float max = body_max(x, n), lane[PL_LANES] = {0};
    for (size_t i = 0; i < n; i++) x[i] = exp_f32(x[i] - max);
    size_t i = 0;
    for (; i + PL_LANES <= n; i += PL_LANES)
        for (size_t j = 0; j < PL_LANES; j++) lane[j] += x[i + j];
    for (size_t j = 0; i + j < n; j++) lane[j] += x[i + j];
    float inverse = 1.0f / add_lanes(lane);
    for (i = 0; i < n; i++) x[i] *= inverse;
}

static PL_ALWAYS_INLINE void body_sigmoid_mul(float *dst, const float *gate, const float *up,
                                              size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = up[i] / (1.0f + exp_f32(-gate[i]));
}

static PL_ALWAYS_INLINE void body_silu_mul(float *dst, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) dst[i] = gate[i] / (1.0f + exp_f32(-gate[i])) * up[i];
}

/* pl_conv_silu_fn, delta.h: a run of channels at a time, whose sums stay in the first-level cache. */
static PL_ALWAYS_INLINE void body_conv_silu(float *dst, const float *const *x, const float *w,
                                            size_t taps, size_t n)
{
    enum { RUN = 256 };
    float s[RUN];
    for (size_t at = 0; at < n; at += RUN) {
        size_t count = n - at < RUN ? n - at : RUN;
        for (size_t j = 0; j < count; j++) s[j] = x[0][at + j] * w[at + j];
        for (size_t tap = 1; tap < taps; tap++) {
            const float *row = x[tap] + at, *weights = w + tap * n + at;
            for (size_t j = 0; j < count; j++) s[j] += row[j] * weights[j];
        }
        for (size_t j = 0; j < count; j++) dst[at + j] = s[j] / (1.0f + exp_f32(-s[j]));
    }
}

static PL_ALWAYS_INLINE void body_silu_gradient(float *dgate, float *dup, const float *gate,
                                                const float *up, const float *dy, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float s = 1.0f / (1.0f + exp_f32(-gate[i])), silu = gate[i] * s, d = dy[i];
        dgate[i] = d * up[i] * (s + silu * (1.0f - s));
        dup[i] = d * silu;
    }
}

/* 2u of GELU's tanh formula: x (a + b x^2). */
static PL_ALWAYS_INLINE float gelu_exponent(float x)
{
    return x * (1.59576912f + 0.0713548163f * (x * x));
}

static PL_ALWAYS_INLINE void body_gelu_mul(float *dst, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = gate[i] / (1.0f + exp_f32(-gelu_exponent(gate[i]))) * up[i];
}

/* The exponent's derivative a + 3 b x^2 is held in range: where it would leave it, s is 0 or 1. */
static PL_ALWAYS_INLINE void body_gelu_gradient(float *dgate, float *dup, const float *gate,
                                                const float *up, const float *dy, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x = gate[i], s = 1.0f / (1.0f + exp_f32(-gelu_exponent(x))), d = dy[i];
        float near = x < -16.0f ? -16.0f : x > 16.0f ? 16.0f : x;
        float slope = 1.59576912f + 0.214064449f * (near * near);
        dgate[i] = d * up[i] * (s + near * s * (1.0f - s) * slope);
        dup[i] = d * (x * s);
    }
}

/* a[i] = x[i] * scale[i]; returns max|a|, 0 for one too small to divide by, NaN if there is a NaN
 * or infinity. Magnitudes are compared as bits, where NaN is the largest. */
static PL_ALWAYS_INLINE float body_scaled_max(float *a, const float *x, const float *scale,
                                              size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) a[i] = scale ? x[i] * scale[i] : x[i];
    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = pl_f32_bits(a[i]) & 0x7fffffff;
        most = magnitude > most ? magnitude : most;
    }
    if (most >= 0x7f800000) return NAN;
    float max = pl_f32_from_bits(most);
    return max >= 0x1p-100f ? max : 0.0f;
}

/* pl_quantize_fn, product.h: to -limit .. limit. Returns max|a| for the step. */
static PL_ALWAYS_INLINE float body_quantize(int16_t *q, const float *x, const float *scale,
                                            size_t n, float limit)
{
    float a[128], max = body_scaled_max(a, x, scale, n);
    if (!(max > 0)) {
        for (size_t i = 0; i < n; i++) q[i] = 0;
        return max;
    }
    float inverse = limit / max;
    for (size_t i = 0; i < n; i++) { /* 1.5 * 2^23 rounds to an integer, in the low bits */
        float shifted = a[i] * inverse + 12582912.0f;
        q[i] = (int16_t)(pl_f32_bits(shifted) - 0x4b400000u);
    }
    return max;
}

/* pl_quantize_i16x2_fn, product.h. */
static PL_ALWAYS_INLINE float body_quantize_i16x2(int16_t *hi, int16_t *lo, const float *x,
                                                  const float *scale, size_t n)
{
    const double limit = 32766.0 * 32768;
    float a[128], max = body_scaled_max(a, x, scale, n);
    if (!(max > 0)) {
        for (size_t i = 0; i < n; i++) hi[i] = lo[i] = 0;
        return max;
    }
    double inverse = limit / (double)max;
    for (size_t i = 0; i < n; i++) { /* 1.5 * 2^52 rounds to an integer, in the low bits */
        double shifted = (double)a[i] * inverse + 6755399441055744.0;
        uint64_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        uint32_t Q = (uint32_t)bits;
        lo[i] = (int16_t)(Q & 32767);
        hi[i] = (int16_t)(uint16_t)(Q >> 15); /* the sign is bit 30 too, so 16 bits keep it */
    }
    return max / (float)limit;
}

/* The entries of one level, around a dot product of that level. */
#define PL_VECTOR_KERNELS(isa)                                                                     \
    static void axpy_f32_##isa(float *y, float a, const float *x, size_t n)                        \
    {                                                                                              \
        body_axpy_f32(y, a, x, n);                                                                 \
    }                                                                                              \
    static void rms_norm_##isa(float *dst, const float *x, const float *weight, size_t n,          \
                               float eps)                                                          \
    {                                                                                              \
        float mean = dot_f32_##isa(x, x, n) / (float)n;                                            \
        body_scale_f32(dst, 1.0f / sqrtf(mean + eps), x, weight, n);                               \
    }                                                                                              \
    static void softmax_##isa(float *x, size_t n)                                                  \
    {                                                                                              \
        body_softmax(x, n);                                                                        \
    }                                                                                              \
    static void sigmoid_mul_##isa(float *dst, const float *gate, const float *up, size_t n)        \
    {                                                                                              \
        body_sigmoid_mul(dst, gate, up, n);                                                        \
    }                                                                                              \
    static void silu_mul_##isa(float *dst, const float *gate, const float *up, size_t n)           \
    {                                                                                              \
        body_silu_mul(dst, gate, up, n);                                                           \
    }                                                                                              \
    static void silu_gradient_##isa(float *dgate, float *dup, const float *gate, const float *up,  \
                                    const float *dy, size_t n)                                     \
    {                                                                                              \
        body_silu_gradient(dgate, dup, gate, up, dy, n);                                           \
    }                                                                                              \
    static void conv_silu_##isa(float *dst, const float *const *x, const float *w, size_t taps,    \
                                size_t n)                                                          \
    {                                                                                              \
        body_conv_silu(dst, x, w, taps, n);                                                        \
    }                                                                                              \
    static void gelu_mul_##isa(float *dst, const float *gate, const float *up, size_t n)           \
    {                                                                                              \
        body_gelu_mul(dst, gate, up, n);                                                           \
    }                                                                                              \
    static void gelu_gradient_##isa(float *dgate, float *dup, const float *gate, const float *up,  \
                                    const float *dy, size_t n)                                     \
    {                                                                                              \
        body_gelu_gradient(dgate, dup, gate, up, dy, n);                                           \
    }                                                                                              \
    void pl_kernels_init_vector_##isa(pl_kernels *k)                                               \
    {                                                                                              \
        k->dot_f32 = dot_f32_##isa;                                                                \
        k->axpy_f32 = axpy_f32_##isa;                                                              \
        k->rms_norm = rms_norm_##isa;                                                              \
        k->softmax = softmax_##isa;                                                                \
        k->sigmoid_mul = sigmoid_mul_##isa;                                                        \
        k->silu_mul = silu_mul_##isa;                                                              \
        k->silu_gradient = silu_gradient_##isa;                                                    \
        k->conv_silu = conv_silu_##isa;                                                            \
        k->gelu_mul = gelu_mul_##isa;                                                              \
        k->gelu_gradient = gelu_gradient_##isa;                                                    \
    }

/* And those of the products that are such bodies. */
#define PL_NUMBER_KERNELS(isa)                                                                     \
    static float quantize_i16_##isa(int16_t *q, const float *x, const float *scale, size_t n)      \
    {                                                                                              \
        return body_quantize(q, x, scale, n, 32767) / 32767;                                       \
    }                                                                                              \
    static float quantize_i8_##isa(int16_t *q, const float *x, const float *scale, size_t n)       \
    {                                                                                              \
        return body_quantize(q, x, scale, n, 127) / 254;                                           \
    }                                                                                              \
    static float quantize_i16x2_##isa(int16_t *hi, int16_t *lo, const float *x,                    \
                                      const float *scale, size_t n)                                \
    {                                                                                              \
        return body_quantize_i16x2(hi, lo, x, scale, n);                                           \
    }

#endif
