/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector operations: the same bits on every level, and near the formula in doubles. */
#include "check.h"

#include <float.h>
#include <math.h>
#include <string.h>

static size_t some_length(check *t)
{
    return check_below(t, 4) ? 1 + check_below(t, 150) : 32;
}

static float *numbers(check *t, size_t n)
{
    float *p = check_buffer(t, n * 4, 4);
    check_fill_f32(t, p, n);
    return p;
}

static void check_dot(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    if (!check_begin(t, isa->dot_f32 != c->dot_f32, "dot_f32")) return;
    for (int round = 0; check_round(t, round, 200); round++) {
        check_release(t);
        size_t n = check_below(t, 200);
        float *a = numbers(t, n), *b = numbers(t, n);
        float want = c->dot_f32(a, b, n), got = isa->dot_f32(a, b, n);
        check_same(t, &got, &want, 4);
        double sum = 0, size = 0;
        for (size_t i = 0; i < n; i++) {
            sum += (double)a[i] * (double)b[i];
            size += fabs((double)a[i] * (double)b[i]);
        }
        double bound = ((double)n / 32 + 8) * FLT_EPSILON * size + 1e-37;
        if (size < FLT_MAX) check_close(t, &want, &sum, &bound, 1);
    }
    check_release(t);
    float *a = numbers(t, 576), *b = numbers(t, 576), sum = 0;
    check_bench(t, 16 * 576e-9, "Gmac/s") for (int i = 0; i < 16; i++) sum +=
        isa->dot_f32(a, b, 576);
    memcpy(a, &sum, 4);
    check_end(t);
}

static void check_axpy(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    if (!check_begin(t, isa->axpy_f32 != c->axpy_f32, "axpy_f32")) return;
    for (int round = 0; check_round(t, round, 100); round++) {
        check_release(t);
        size_t n = some_length(t);
        float *x = numbers(t, n), *want = numbers(t, n), *got = check_buffer(t, n * 4, 4);
        memcpy(got, want, n * 4);
        float factor = (float)check_normal(t);
        c->axpy_f32(want, factor, x, n);
        isa->axpy_f32(got, factor, x, n);
        check_same(t, got, want, n * 4);
    }
    check_end(t);
}

static void check_rms_norm(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    if (!check_begin(t, isa->rms_norm != c->rms_norm, "rms_norm")) return;
    for (int round = 0; check_round(t, round, 100); round++) {
        check_release(t);
        size_t n = some_length(t);
        float *x = numbers(t, n), *w = numbers(t, n);
        float *want = check_buffer(t, n * 4, 4), *got = check_buffer(t, n * 4, 4);
        c->rms_norm(want, x, w, n, 1e-5f);
        isa->rms_norm(got, x, w, n, 1e-5f);
        check_same(t, got, want, n * 4);
        double square = 0;
        for (size_t i = 0; i < n; i++) square += (double)x[i] * (double)x[i];
        for (size_t i = 0; i < n && square < FLT_MAX; i++) {
            double v = (double)x[i] / sqrt(square / (double)n + (double)1e-5f) * (double)w[i];
            /* x / rms may be subnormal before the gain lifts it. */
            double bound = 16 * FLT_EPSILON * fabs(v) + 0x1p-149 * fabs((double)w[i]) + 1e-37;
            if (fabs(v) < FLT_MAX) check_close(t, &want[i], &v, &bound, 1);
        }
    }
    check_end(t);
}

static void check_softmax(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    if (!check_begin(t, isa->softmax != c->softmax, "softmax")) return;
    for (int round = 0; check_round(t, round, 100); round++) {
        check_release(t);
        size_t n = some_length(t);
        float *x = check_buffer(t, n * 4, 4), *want = check_buffer(t, n * 4, 4);
        float *got = check_buffer(t, n * 4, 4);
        double top = -INFINITY, sum = 0;
        for (size_t i = 0; i < n; i++) {
            x[i] = (float)(check_normal(t) * (round % 3 ? 3 : 60));
            if (i && check_below(t, 10) == 0) x[i] = -INFINITY;
            top = fmax(top, (double)x[i]);
        }
        memcpy(want, x, n * 4);
        memcpy(got, x, n * 4);
        c->softmax(want, n);
        isa->softmax(got, n);
        check_same(t, got, want, n * 4);
        for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - top);
        for (size_t i = 0; i < n; i++) {
            double v = exp((double)x[i] - top) / sum;
            double bound = (24 + top - fmax((double)x[i], top - 200)) * FLT_EPSILON * v + 1e-37;
            check_close(t, &want[i], &v, &bound, 1);
        }
    }
    check_end(t);
}

/* factor * sigmoid(gate) * up, the factor being the gate itself (SiLU) or 1. Sigmoids below the
 * smallest normal number may be 0. */
static void check_gated(check *t, pl_gate_fn *want_fn, pl_gate_fn *got_fn, bool silu,
                        const char *name)
{
    if (!check_begin(t, got_fn != want_fn, "%s", name)) return;
    for (int round = 0; check_round(t, round, 100); round++) {
        check_release(t);
        size_t n = some_length(t);
        float *gate = check_buffer(t, n * 4, 4), *up = check_buffer(t, n * 4, 4);
        float *want = check_buffer(t, n * 4, 4), *got = check_buffer(t, n * 4, 4);
        for (size_t i = 0; i < n; i++) {
            gate[i] = (float)(check_normal(t) * (round % 3 ? 4 : 80));
            up[i] = (float)check_normal(t);
        }
        want_fn(want, gate, up, n);
        got_fn(got, gate, up, n);
        check_same(t, got, want, n * 4);
        for (size_t i = 0; i < n; i++) {
            double product = (silu ? (double)gate[i] : 1) * (double)up[i];
            double v = product / (1 + exp(-(double)gate[i]));
            double bound = 8 * FLT_EPSILON * fabs(v) + FLT_MIN * (1 + fabs(product));
            check_close(t, &want[i], &v, &bound, 1);
        }
    }
    check_release(t);
    float *gate = numbers(t, 1536), *up = numbers(t, 1536), *dst = numbers(t, 1536);
    check_bench(t, 1536e-9, "Gop/s") got_fn(dst, gate, up, 1536);
    check_end(t);
}

/* An error of s is one of 1 - s as well, which may be small itself. */
static void check_silu_gradient(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    if (!check_begin(t, isa->silu_gradient != c->silu_gradient, "silu_gradient")) return;
    for (int round = 0; check_round(t, round, 100); round++) {
        check_release(t);
        size_t n = some_length(t);
        float *gate = check_buffer(t, n * 4, 4), *up = check_buffer(t, n * 4, 4);
        float *dy = check_buffer(t, n * 4, 4);
        float *want[2], *got[2];
        for (int i = 0; i < 2; i++) {
            want[i] = check_buffer(t, n * 4, 4);
            got[i] = check_buffer(t, n * 4, 4);
        }
        for (size_t i = 0; i < n; i++) {
            gate[i] = (float)(check_normal(t) * (round % 3 ? 4 : 80));
            up[i] = (float)check_normal(t);
            dy[i] = (float)check_normal(t);
        }
        c->silu_gradient(want[0], want[1], gate, up, dy, n);
        isa->silu_gradient(got[0], got[1], gate, up, dy, n);
        check_same(t, got[0], want[0], n * 4);
        check_same(t, got[1], want[1], n * 4);
        for (size_t i = 0; i < n; i++) {
            double g = (double)gate[i], s = 1 / (1 + exp(-g)), d = (double)dy[i];
            double by_gate = d * (double)up[i] * (s + g * s * (1 - s)), by_up = d * g * s;
            double bound = 8 * FLT_EPSILON * fabs(by_up) + FLT_MIN * (1 + fabs(d * g));
            check_close(t, &want[1][i], &by_up, &bound, 1);
            bound = fabs(d * (double)up[i]) * (1 + fabs(g));
            bound = 8 * FLT_EPSILON * bound * s + FLT_MIN * (1 + bound);
            check_close(t, &want[0][i], &by_gate, &bound, 1);
        }
    }
    check_release(t);
    float *x = numbers(t, 5 * 1536);
    check_bench(t, 1536e-9, "Gop/s")
        isa->silu_gradient(x, x + 1536, x + 2 * 1536, x + 3 * 1536, x + 4 * 1536, 1536);
    check_end(t);
}

/* GELU by its tanh formula: value, and slope. */
static double gelu(double x, double *slope)
{
    double a = 2 * sqrt(2 / 3.14159265358979323846), b = a * 0.044715;
    double s = 1 / (1 + exp(-x * (a + b * x * x)));
    *slope = s + x * s * (1 - s) * (a + 3 * b * x * x);
    return x * s;
}

static void check_gelu(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    if (!check_begin(t, isa->gelu_mul != c->gelu_mul, "gelu_mul")) return;
    for (int round = 0; check_round(t, round, 100); round++) {
        check_release(t);
        size_t n = some_length(t);
        float *gate = numbers(t, n), *up = numbers(t, n), *dy = numbers(t, n);
        float *want[3], *got[3];
        for (int i = 0; i < 3; i++) {
            want[i] = check_buffer(t, n * 4, 4);
            got[i] = check_buffer(t, n * 4, 4);
        }
        for (size_t i = 0; i < n; i++) {
            gate[i] = (float)(check_normal(t) * (round % 3 ? 3 : 60));
            up[i] = (float)check_normal(t);
            dy[i] = (float)check_normal(t);
        }
        c->gelu_mul(want[0], gate, up, n);
        isa->gelu_mul(got[0], gate, up, n);
        c->gelu_gradient(want[1], want[2], gate, up, dy, n);
        isa->gelu_gradient(got[1], got[2], gate, up, dy, n);
        for (int i = 0; i < 3; i++) check_same(t, got[i], want[i], n * 4);
        for (size_t i = 0; i < n; i++) {
            double x = (double)gate[i], slope, value = gelu(x, &slope);
            double v[3] = {value * (double)up[i], (double)dy[i] * (double)up[i] * slope,
                           (double)dy[i] * value};
            /* The exponent is off by some units of its own size. */
            double size = (1 + fabs(x * (1 + x * x))) * (1 + fabs(x) + x * x);
            for (int k = 0; k < 3; k++) {
                double most = fmax(fabs(v[k]), k == 1 ? fabs((double)dy[i] * (double)up[i]) : 0);
                double bound = 16 * FLT_EPSILON * fmin(size, 100) * most + FLT_MIN * 1e3;
                check_close(t, &want[k][i], &v[k], &bound, 1);
            }
        }
    }
    check_release(t);
    float *gate = numbers(t, 1536), *up = numbers(t, 1536), *dst = numbers(t, 1536);
    check_bench(t, 1536e-9, "Gop/s") isa->gelu_mul(dst, gate, up, 1536);
    check_end(t);
}

void check_vector(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    check_dot(t, c, isa);
    check_axpy(t, c, isa);
    check_rms_norm(t, c, isa);
    check_softmax(t, c, isa);
    check_gated(t, c->sigmoid_mul, isa->sigmoid_mul, false, "sigmoid_mul");
    check_gated(t, c->silu_mul, isa->silu_mul, true, "silu_mul");
    check_silu_gradient(t, c, isa);
    check_gelu(t, c, isa);
}
