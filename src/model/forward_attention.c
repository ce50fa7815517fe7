/* SPDX-License-Identifier: Apache-2.0
 *
 * Grouped-query attention as a part of a layer: projections, norms and rotary positions of heads,
 * the caches, and attention.c over them. */
#include <string.h>

#include "attention.h"
#include "base/memory.h"
#include "forward.h"

size_t pl_forward_attention_scratch(const pl_attention_part *a, const pl_compute *c, size_t batch)
{
    const pl_linear *qkv[] = {&a->q, &a->k, &a->v}, *o = &a->o;
    return PL_MAX(pl_linear_scratch(c, qkv, 3, batch), pl_linear_scratch(c, &o, 1, batch));
}

static const pl_attention_part *part_of(const pl_forward *p)
{
    return &p->w->t->layers[p->layer].attention;
}

/* Of one thread when rows lie apart: each then attends to its own cache. */
static size_t attention_bytes(const pl_workspace *w, const pl_compute *c, bool apart, size_t length)
{
    const pl_config *g = w->t->config;
    pl_compute own = *c;
    if (apart) own.pool = NULL;
    size_t bytes = pl_attention_scratch(&own, g->n_heads, g->n_kv_heads, g->head_dim, length);
    return (bytes + PL_ALIGNMENT - 1) / PL_ALIGNMENT * PL_ALIGNMENT;
}

/* Attention's scratch grows with the positions held; half as much again is asked for. */
pleach_status pl_forward_reserve(pl_workspace *w, const pl_compute *c, bool apart, size_t length,
                                 pleach_error *err)
{
    size_t parts = apart ? (size_t)pl_pool_threads(c->pool) : 1;
    if (parts * attention_bytes(w, c, apart, length) <= w->attention_bytes) return PLEACH_OK;
    size_t bytes = parts * attention_bytes(w, c, apart, length + length / 2);
    pl_free(w->attention);
    w->attention = pl_alloc(1, bytes);
    w->attention_bytes = w->attention ? bytes : 0;
    return w->attention ? PLEACH_OK : pl_fail_memory(err, "attention", bytes);
}

/* Norms (Qwen3) and rotary positions of `heads` heads of one token. */
static void turn_heads(const pl_forward *p, float *x, uint32_t heads, const float *norm, size_t row)
{
    const pl_workspace *w = p->w;
    const pl_config *g = w->t->config;
    const pl_kernels *k = &p->c->kernels;
    uint32_t rope = part_of(p)->rope;
    size_t half = w->t->ropes[rope].half;
    const float *cos = w->cos[rope] + row * half, *sin = w->sin[rope] + row * half;
    for (uint32_t h = 0; h < heads; h++, x += g->head_dim) {
        if (norm) k->rms_norm(x, x, norm, g->head_dim, g->rms_norm_eps);
        k->rope(x, cos, sin, half);
    }
}

/* Queries, where a gate lies beside each. */
static void split_queries(const pl_forward *p, size_t m)
{
    const pl_config *g = p->w->t->config;
    size_t D = g->head_dim, Q = g->n_heads * D;
    for (uint32_t h = 0; h < g->n_heads; h++)
        memcpy(p->w->q + m * Q + h * D, p->w->gated_q + 2 * (m * Q + h * D), D * sizeof(float));
}

static void gate_row(void *forward, size_t i, int thread)
{
    const pl_forward *p = forward;
    const pl_config *g = p->w->t->config;
    size_t D = g->head_dim, at = (p->from + i) * g->n_heads * D;
    (void)thread;
    for (uint32_t h = 0; h < g->n_heads; h++, at += D) {
        float *x = p->w->mixed + at;
        p->c->kernels.sigmoid_mul(x, p->w->gated_q + 2 * at + D, x, D);
    }
}

static void turn_and_keep_row(void *forward, size_t m, int thread)
{
    const pl_forward *p = forward;
    pl_workspace *w = p->w;
    const pl_config *g = w->t->config;
    const pl_attention_part *a = part_of(p);
    size_t Q = (size_t)g->n_heads * g->head_dim, K = (size_t)g->n_kv_heads * g->head_dim;
    (void)thread;
    if (a->gated) split_queries(p, m);
    turn_heads(p, w->q + m * Q, g->n_heads, a->q_norm, m);
    turn_heads(p, w->k + m * K, g->n_kv_heads, a->k_norm, m);
    pl_cache_put(pl_row_cache(p, m), p->layer, pl_row_position(p, m), 1, w->k + m * K,
                 w->v + m * K);
}

/* Rows [from, from + n) of the layer. */
static pl_attention attention_of(const pl_forward *p, size_t from, size_t n)
{
    const pl_workspace *w = p->w;
    const pl_config *g = w->t->config;
    size_t Q = (size_t)g->n_heads * g->head_dim;
    return (pl_attention){.cache = pl_row_cache(p, from), .layer = p->layer, .n_heads = g->n_heads,
                          .n_kv_heads = g->n_kv_heads, .head_dim = g->head_dim,
                          .window = part_of(p)->window,
                          .position = pl_row_position(p, from), .n = n, .q = w->q + from * Q,
                          .out = w->mixed + from * Q};
}

static void attend_row(void *forward, size_t i, int thread)
{
    const pl_forward *p = forward;
    pl_workspace *w = p->w;
    pl_compute own = *p->c;
    pl_attention a = attention_of(p, p->from + i, 1);
    size_t parts = (size_t)pl_pool_threads(own.pool);
    size_t bytes = w->attention_bytes / parts / PL_ALIGNMENT * PL_ALIGNMENT;
    own.pool = NULL;
    pl_attention_run(&own, &a, (char *)w->attention + (size_t)thread * bytes);
}

/* mixed = attention of rows [from, n). */
static void attend(pl_forward *p)
{
    size_t rows = p->n - p->from;
    if (p->apart) {
        pl_pool_run(p->c->pool, rows, attend_row, p);
    } else {
        pl_attention a = attention_of(p, p->from, rows);
        pl_attention_run(p->c, &a, p->w->attention);
    }
}

/* Keys and values of all n rows join their caches. */
void pl_forward_attention(pl_forward *p, const pl_attention_part *a)
{
    pl_workspace *w = p->w;
    const pl_config *g = w->t->config;
    size_t Q = (size_t)g->n_heads * g->head_dim, K = (size_t)g->n_kv_heads * g->head_dim;
    size_t from = p->from;
    const pl_linear *qkv[] = {&a->q, &a->k, &a->v}, *o = &a->o;
    float *outputs[] = {a->gated ? w->gated_q : w->q, w->k, w->v};
    float *update = w->update + from * g->hidden_size;
    pl_linear_apply(p->c, qkv, 3, w->norm, p->n, outputs, w->linear);
    p->from = 0;
    pl_for_rows(p, Q + K, turn_and_keep_row);
    p->from = from;
    if (from == p->n) return;
    attend(p);
    if (a->gated) pl_for_rows(p, Q, gate_row);
    pl_linear_apply(p->c, &o, 1, w->mixed + from * Q, p->n - from, &update, w->linear);
}
