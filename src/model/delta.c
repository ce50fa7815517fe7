/* SPDX-License-Identifier: Apache-2.0
 *
 * The gated delta net in three passes: rows are convolved and normed side by side, heads walk over
 * their tokens side by side, rows are normed and gated side by side.
 *
 * Letters: m a row of the call, t its place among those of its cache. */
#include "delta.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "sigmoid.h"

static const float UNIT_EPS = 1e-6f; /* under the root of |x| */

/* Numbers of the convolution's window, to the next line of the caches. */
static size_t window_floats(const pl_delta_config *g)
{
    return ((size_t)(g->taps - 1) * pl_delta_channels(g) + 15) / 16 * 16;
}

size_t pl_delta_state_bytes(const pl_delta_config *g)
{
    return (window_floats(g) + g->key_dim * pl_delta_values(g)) * sizeof(float);
}

/* Rows [first, first + n) of one cache. */
typedef struct sequence {
    pl_cache *cache;
    size_t first, n;
} sequence;

static sequence sequence_of(const pl_delta_call *d, size_t i)
{
    return (sequence){d->caches[i], i, d->apart ? 1 : d->n};
}

/* ---- rows: convolution, lengths, gates ------------------------------------------------------- */

/* Input t of a sequence's convolution; below 0 those of the window. */
static const float *input(const pl_delta_call *d, const sequence *s, ptrdiff_t t)
{
    const pl_delta_config *g = &d->net->shape;
    size_t C = pl_delta_channels(g);
    if (t >= 0) return d->qkv + (s->first + (size_t)t) * C;
    return pl_cache_state(s->cache, d->layer) + (size_t)(t + (ptrdiff_t)g->taps - 1) * C;
}

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

static void set_gates(const pl_compute *c, const pl_delta_call *d, size_t m, const float *q,
                      const float *k)
{
    const pl_delta_net *net = d->net;
    uint32_t H = net->shape.value_heads, D = net->shape.key_dim;
    const float *a = d->a + m * H, *b = d->b + m * H;
    for (uint32_t h = 0; h < H; h++) {
        size_t key = (size_t)pl_delta_key_head(&net->shape, h) * D;
        d->gates[m * H + h] =
            (pl_delta_gate){.decay = expf(-net->rate[h] * softplus(a[h] + net->dt_bias[h])),
                            .beta = pl_sigmoid(b[h]),
                            .qk = c->kernels.dot_f32(q + key, k + key, D)};
    }
}

typedef struct job {
    const pl_compute *c;
    const pl_delta_call *d;
} job;

static void mix_row(void *job_, size_t m, int thread)
{
    const job *j = job_;
    const pl_delta_call *d = j->d;
    const pl_delta_net *net = d->net;
    const pl_delta_config *g = &net->shape;
    const pl_kernels *k = &j->c->kernels;
    size_t C = pl_delta_channels(g), K = pl_delta_keys(g), D = g->key_dim;
    sequence s = sequence_of(d, d->apart ? m : 0);
    const float *x[PL_DELTA_TAPS];
    float *q = d->mixed + m * C;
    (void)thread;
    for (uint32_t i = 0; i < g->taps; i++)
        x[i] = input(d, &s, (ptrdiff_t)(m - s.first + i) - (ptrdiff_t)g->taps + 1);
    k->conv_silu(q, x, net->conv, g->taps, C);
    for (uint32_t h = 0; h < g->key_heads; h++) {
        float *head = q + h * D;
        k->rms_norm(head, head, net->q_gain, D, UNIT_EPS / (float)D);
        k->rms_norm(head + K, head + K, net->k_gain, D, UNIT_EPS / (float)D);
    }
    set_gates(j->c, d, m, q, q + K);
}

/* ---- heads: the states ----------------------------------------------------------------------- */

/* Tokens [begin, end) of a sequence over one panel of a head; their values become the results. */
static pl_delta_run panel_run(const pl_delta_call *d, const sequence *s, uint32_t head,
                              size_t column, size_t begin, size_t end)
{
    const pl_delta_config *g = &d->net->shape;
    size_t C = pl_delta_channels(g), K = pl_delta_keys(g), H = g->value_heads;
    size_t key = (size_t)pl_delta_key_head(g, head) * g->key_dim;
    size_t row = s->first + begin;
    float *q = d->mixed + row * C + key;
    float *v = d->mixed + row * C + 2 * K + (size_t)head * g->value_dim + column;
    return (pl_delta_run){.n = end - begin, .dim = g->key_dim, .q = q, .k = q + K, .key_stride = C,
                          .v = v, .value_stride = C, .gates = d->gates + row * H + head,
                          .gate_stride = H, .out = v, .out_stride = C};
}

/* Panel by panel, each over all tokens while it is near; at borders it is kept. */
static void walk_head(const job *j, const sequence *s, uint32_t head)
{
    const pl_delta_call *d = j->d;
    const pl_delta_config *g = &d->net->shape;
    size_t panel = (size_t)g->key_dim * PL_DELTA_PANEL, start = pl_cache_length(s->cache);
    size_t at = window_floats(g) + (size_t)head * g->value_dim * g->key_dim;
    float *state = pl_cache_state(s->cache, d->layer);
    for (size_t column = 0; column < g->value_dim; column += PL_DELTA_PANEL, at += panel)
        for (size_t begin = 0, end; begin < s->n; begin = end) {
            end = pl_cache_state_piece(s->cache, start + begin, start + s->n) - start;
            pl_delta_run run = panel_run(d, s, head, column, begin, end);
            j->c->kernels.delta(state + at, &run);
            float *kept = pl_cache_state_kept(s->cache, d->layer, start + end);
            if (kept) memcpy(kept + at, state + at, panel * sizeof *kept);
        }
}

/* The last taps - 1 inputs before token `end`. In place: what moves moves towards the start. */
static void set_window(const pl_delta_call *d, const sequence *s, size_t end, float *window)
{
    const pl_delta_config *g = &d->net->shape;
    size_t C = pl_delta_channels(g);
    for (ptrdiff_t i = 0; i < (ptrdiff_t)g->taps - 1; i++)
        memmove(window + (size_t)i * C, input(d, s, (ptrdiff_t)end - (ptrdiff_t)g->taps + 1 + i),
                C * sizeof *window);
}

static void move_window(const pl_delta_call *d, const sequence *s)
{
    size_t start = pl_cache_length(s->cache);
    for (size_t begin = 0, end; begin < s->n; begin = end) {
        end = pl_cache_state_piece(s->cache, start + begin, start + s->n) - start;
        float *kept = pl_cache_state_kept(s->cache, d->layer, start + end);
        if (kept) set_window(d, s, end, kept);
    }
    set_window(d, s, s->n, pl_cache_state(s->cache, d->layer));
}

/* The heads of each sequence, then its window. */
static void walk(void *job_, size_t i, int thread)
{
    const job *j = job_;
    uint32_t H = j->d->net->shape.value_heads;
    sequence s = sequence_of(j->d, i / (H + 1));
    (void)thread;
    if (i % (H + 1) < H)
        walk_head(j, &s, (uint32_t)(i % (H + 1)));
    else
        move_window(j->d, &s);
}

/* ---- rows: the gated norm -------------------------------------------------------------------- */

static void gate_row(void *job_, size_t i, int thread)
{
    const job *j = job_;
    const pl_delta_call *d = j->d;
    const pl_delta_config *g = &d->net->shape;
    const pl_kernels *k = &j->c->kernels;
    size_t m = d->from + i, V = pl_delta_values(g), D = g->value_dim;
    const float *o = d->mixed + m * pl_delta_channels(g) + 2 * pl_delta_keys(g);
    float *out = d->out + m * V;
    (void)thread;
    for (size_t at = 0; at < V; at += D)
        k->rms_norm(out + at, o + at, d->net->norm, D, d->net->eps);
    k->silu_mul(out, d->z + m * V, out, V);
}

void pl_delta_net_run(const pl_compute *c, const pl_delta_call *d)
{
    const pl_delta_config *g = &d->net->shape;
    size_t C = pl_delta_channels(g), V = pl_delta_values(g), rows = d->n - d->from;
    size_t sequences = d->apart ? d->n : 1;
    job j = {c, d};
    pl_pool_run_on(c->pool, pl_compute_threads(c, 16 * d->n * C), d->n, mix_row, &j);
    pl_pool_run_on(c->pool, pl_compute_threads(c, 4 * d->n * V * g->key_dim),
                   sequences * (g->value_heads + 1), walk, &j);
    pl_pool_run_on(c->pool, pl_compute_threads(c, 16 * rows * V), rows, gate_row, &j);
}
