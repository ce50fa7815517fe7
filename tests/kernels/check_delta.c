/* SPDX-License-Identifier: Apache-2.0
 *
 * The gated delta rule and its convolution: the same bits on every level and for every cut of a
 * sequence, and near the formula in doubles. */
#include "check.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { P = PL_DELTA_PANEL, MAX_DIM = 160 };

/* Tokens of a head whose panel is one of several, with the strides of such. */
typedef struct tokens {
    size_t n, dim, panels, heads;
    float *q, *k, *v;
    pl_delta_gate *gates;
} tokens;

/* Keys and queries of length 1, as the model has them. */
static void unit_rows(check *t, float *x, size_t rows, size_t dim)
{
    check_fill_f32(t, x, rows * dim);
    for (size_t r = 0; r < rows; r++, x += dim) {
        double square = 1e-6;
        for (size_t i = 0; i < dim; i++) square += (double)x[i] * (double)x[i];
        for (size_t i = 0; i < dim; i++) x[i] = (float)((double)x[i] / sqrt(square));
    }
}

static tokens make_tokens(check *t, size_t n, size_t dim)
{
    tokens k = {.n = n, .dim = dim, .panels = 1 + check_below(t, 3), .heads = 1 + check_below(t, 3)};
    k.q = check_buffer(t, n * dim * 4, 4);
    k.k = check_buffer(t, n * dim * 4, 4);
    k.v = check_buffer(t, n * k.panels * P * 4, 4);
    k.gates = check_buffer(t, n * k.heads * sizeof *k.gates, 4);
    unit_rows(t, k.q, n, dim);
    unit_rows(t, k.k, n, dim);
    check_fill_f32(t, k.v, n * k.panels * P);
    for (size_t i = 0; i < n * k.heads; i++) {
        double qk = 0;
        size_t row = i / k.heads;
        for (size_t j = 0; j < dim; j++)
            qk += (double)k.q[row * dim + j] * (double)k.k[row * dim + j];
        float decay = (float)(check_below(t, 8) ? 1 - 0.1 * check_unit(t) : check_below(t, 2));
        k.gates[i] = (pl_delta_gate){decay, (float)check_unit(t), (float)qk};
    }
    return k;
}

/* Tokens [from, to), the results at out. */
static pl_delta_run run_of(const tokens *k, size_t from, size_t to, float *out)
{
    return (pl_delta_run){.n = to - from,
                          .dim = k->dim,
                          .q = k->q + from * k->dim,
                          .k = k->k + from * k->dim,
                          .key_stride = k->dim,
                          .v = k->v + from * k->panels * P,
                          .value_stride = k->panels * P,
                          .gates = k->gates + from * k->heads,
                          .gate_stride = k->heads,
                          .out = out + from * P,
                          .out_stride = P};
}

/* The rule as the paper writes it, on the state beside it. sizes: the sums of magnitudes. */
static void step_in_doubles(const tokens *k, size_t t, double *S, double *sizes, double *out,
                            double *out_sizes)
{
    const float *key = k->k + t * k->dim, *q = k->q + t * k->dim;
    pl_delta_gate g = k->gates[t * k->heads];
    for (size_t j = 0; j < P; j++) {
        double v = (double)k->v[t * k->panels * P + j], m = 0, size = fabs(v);
        out[j] = out_sizes[j] = 0;
        for (size_t i = 0; i < k->dim; i++) {
            S[i * P + j] *= (double)g.decay;
            sizes[i * P + j] *= (double)g.decay;
            m += S[i * P + j] * (double)key[i];
            size += sizes[i * P + j] * fabs((double)key[i]);
        }
        for (size_t i = 0; i < k->dim; i++) {
            S[i * P + j] += (double)key[i] * (double)g.beta * (v - m);
            sizes[i * P + j] += fabs((double)key[i]) * (double)g.beta * size;
            out[j] += S[i * P + j] * (double)q[i];
            out_sizes[j] += sizes[i * P + j] * fabs((double)q[i]);
        }
    }
}

static void against_formula(check *t, const tokens *k, const float *S, const float *got)
{
    static double state[MAX_DIM * P], sizes[MAX_DIM * P], out[P], bound[P];
    for (size_t i = 0; i < k->dim * P; i++) {
        state[i] = (double)S[i];
        sizes[i] = fabs(state[i]);
    }
    for (size_t r = 0; r < k->n; r++) {
        step_in_doubles(k, r, state, sizes, out, bound);
        bool finite = true;
        for (size_t j = 0; j < P; j++) {
            finite = finite && bound[j] < FLT_MAX;
            bound[j] = (double)(k->dim + 8) * FLT_EPSILON * bound[j] + 1e-30;
        }
        if (!finite || !check_close(t, got + r * P, out, bound, P)) return;
    }
}

static void check_rule(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    for (int round = 0; check_round(t, round, 100); round++) {
        check_release(t);
        size_t dim = check_below(t, 3) ? 1 + check_below(t, MAX_DIM) : 128, n = check_below(t, 9);
        tokens k = make_tokens(t, n, dim);
        size_t bytes = dim * P * 4, cut = check_below(t, (uint32_t)n + 1);
        float *start = check_buffer(t, bytes, 4), *S = check_buffer(t, bytes, 4);
        float *want = check_buffer(t, n * P * 4, 4), *got = check_buffer(t, n * P * 4, 4);
        float *want_S = check_buffer(t, bytes, 4);
        check_fill_f32(t, start, dim * P);
        memcpy(want_S, start, bytes);
        memcpy(S, start, bytes);
        pl_delta_run whole = run_of(&k, 0, n, want), first = run_of(&k, 0, cut, got);
        pl_delta_run rest = run_of(&k, cut, n, got);
        c->delta(want_S, &whole);
        isa->delta(S, &first);
        isa->delta(S, &rest);
        check_same(t, S, want_S, bytes);
        check_same(t, got, want, n * P * 4);
        against_formula(t, &k, start, got);
        whole.out = k.v; /* in place of the values */
        whole.out_stride = whole.value_stride;
        isa->delta(start, &whole);
        for (size_t i = 0; i < n; i++)
            check_same(t, k.v + i * k.panels * P, want + i * P, P * 4);
    }
    check_release(t);
}

/* One token over 256 MB of states, against reading and writing them alone. */
static void bench_step(check *t, const pl_kernels *isa)
{
    enum { DIM = 128, PANELS = 16384 };
    if (!check_benching(t)) return;
    float *S = check_buffer(t, (size_t)PANELS * DIM * P * 4, 64);
    memset(S, 0, (size_t)PANELS * DIM * P * 4);
    tokens k = make_tokens(t, 64, DIM);
    float *out = check_buffer(t, 64 * P * 4, 64);
    double gigabytes = 2e-9 * PANELS * DIM * P * 4;
    pl_delta_run one = run_of(&k, 0, 1, out), many = run_of(&k, 0, 64, out);
    check_timer step = check_timer_start(t, gigabytes, "GB/s, one token");
    while (check_timer_next(&step))
        for (size_t i = 0; i < PANELS; i++) isa->delta(S + i * DIM * P, &one);
    check_timer roof = check_timer_start(t, gigabytes, "GB/s, states alone");
    while (check_timer_next(&roof))
        for (size_t i = 0; i < (size_t)PANELS * DIM * P; i++) S[i] *= 0.999f;
    check_timer prompt = check_timer_start(t, 64.0 * PANELS / 16 * DIM * P * 4 * 1e-9,
                                           "Gop/s, 64 tokens");
    while (check_timer_next(&prompt))
        for (size_t i = 0; i < PANELS / 16; i++) isa->delta(S + i * DIM * P, &many);
}

static void check_conv(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    for (int round = 0; check_round(t, round, 100); round++) {
        check_release(t);
        enum { MAX_TAPS = 6 };
        size_t taps = 1 + check_below(t, MAX_TAPS), n = check_below(t, 150);
        const float *x[MAX_TAPS];
        for (size_t i = 0; i < taps; i++) {
            float *row = check_buffer(t, n * 4, 4);
            check_fill_f32(t, row, n);
            x[i] = row;
        }
        float *w = check_buffer(t, taps * n * 4, 4);
        float *want = check_buffer(t, n * 4, 4), *got = check_buffer(t, n * 4, 4);
        for (size_t i = 0; i < taps * n; i++) w[i] = (float)check_normal(t);
        c->conv_silu(want, x, w, taps, n);
        isa->conv_silu(got, x, w, taps, n);
        check_same(t, got, want, n * 4);
        for (size_t i = 0; i < n; i++) {
            double s = 0, size = 0;
            for (size_t j = 0; j < taps; j++) {
                s += (double)x[j][i] * (double)w[j * n + i];
                size += fabs((double)x[j][i] * (double)w[j * n + i]);
            }
            double v = s / (1 + exp(-s)), bound = 8 * FLT_EPSILON * (size + fabs(s) * size) + 1e-37;
            if (size < 1e30) check_close(t, &want[i], &v, &bound, 1);
        }
    }
    check_release(t);
    enum { N = 10240 };
    static float rows[4 * N], w[4 * N], dst[N];
    const float *x[] = {rows, rows + N, rows + 2 * N, rows + 3 * N};
    check_bench(t, N * 1e-6, "M/s, 4 taps") isa->conv_silu(dst, x, w, 4, N);
}

void check_delta(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    if (check_begin(t, isa->delta != c->delta, "delta")) {
        check_rule(t, c, isa);
        bench_step(t, isa);
        check_end(t);
    }
    if (check_begin(t, isa->conv_silu != c->conv_silu, "conv_silu")) {
        check_conv(t, c, isa);
        check_end(t);
    }
}
