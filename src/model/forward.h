/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the forward pass share: memory, a call under way, and the parts of a layer.
 *
 * Letters: C hidden size, D head size, I feed-forward width, n positions of a call. */
#ifndef PL_MODEL_FORWARD_H
#define PL_MODEL_FORWARD_H

#include "model.h"
#include "route.h"

struct pl_workspace {
    const pl_transformer *t;
    size_t batch;
    float *x, *norm, *update; /* [batch][C]; update: what a part adds to x */
    float *q, *mixed;         /* [batch][heads * D]; mixed also what a delta net gives */
    float *gated_q;           /* [batch][heads][query, gate of D] where q is gated */
    float *delta_qkv, *delta_mixed, *delta_z, *delta_a, *delta_b, *delta_gates; /* delta.h */
    float *k, *v;             /* [batch][kv heads * D] */
    float *gate, *up;         /* [batch][I], the widest of the model's */
    float *gathered, *expert_out, *shared_gate; /* [batch][C], [C], [1], of experts */
    pl_routes routes;         /* zeroed without experts */
    float *cos[PL_MAX_ROPES], *sin[PL_MAX_ROPES]; /* [batch][half] */
    void *linear, *attention; /* scratch of the parts */
    size_t attention_bytes;
};

/* A call under way. Its n rows go to one cache at consecutive positions, or to a cache each. */
typedef struct pl_forward {
    pl_workspace *w;
    const pl_compute *c;
    pl_cache *const *caches;
    bool apart;
    const int32_t *ids;
    size_t n;
    /* Where it is: rows [from, n) of a layer; a norm's weights, whether to add an update first, and the
     * weights of the norm that the update itself goes through, if any. */
    uint32_t layer;
    size_t from;
    const float *gain, *post_gain;
    bool update;
    float *logits; /* [n - from][vocab], at the end */
} pl_forward;

static inline pl_gate_fn *pl_activation_kernel(const pl_forward *p)
{
    const pl_kernels *k = &p->c->kernels;
    bool gelu = p->w->t->config->activation == PL_ACTIVATION_GELU_TANH;
    return gelu ? k->gelu_mul : k->silu_mul;
}

static inline pl_cache *pl_row_cache(const pl_forward *p, size_t row)
{
    return p->caches[p->apart ? row : 0];
}

static inline size_t pl_row_position(const pl_forward *p, size_t row)
{
    return pl_cache_length(pl_row_cache(p, row)) + (p->apart ? 0 : row);
}

/* fn for rows [p->from, p->n), each of which touches `width` numbers at about ten operations. */
static inline void pl_for_rows(pl_forward *p, size_t width, pl_pool_fn *fn)
{
    size_t rows = p->n - p->from;
    pl_pool_run_on(p->c->pool, pl_compute_threads(p->c, 10 * rows * width), rows, fn, p);
}

/* ---- the parts of a layer -------------------------------------------------------------------- */

/* Each fills in rows [from, n) of w->update from w->norm, and has a function for the bytes of
 * w->linear that it needs for `batch` rows. Those that mix positions read all n rows of w->norm and
 * keep what later calls need of them in the caches. */
void pl_forward_attention(pl_forward *p, const pl_attention_part *a);
size_t pl_forward_attention_scratch(const pl_attention_part *a, const pl_compute *c, size_t batch);
void pl_forward_delta(pl_forward *p, const pl_delta_part *d);
size_t pl_forward_delta_scratch(const pl_delta_part *d, const pl_compute *c, size_t batch);
void pl_forward_mlp(pl_forward *p, const pl_mlp_part *m);
size_t pl_forward_mlp_scratch(const pl_mlp_part *m, const pl_compute *c, size_t batch);
void pl_forward_experts(pl_forward *p, const pl_experts_part *x);
size_t pl_forward_experts_scratch(const pl_experts_part *x, const pl_compute *c, size_t batch);

/* Attention's scratch for caches of up to `length` positions. */
pleach_status pl_forward_reserve(pl_workspace *w, const pl_compute *c, bool apart, size_t length,
                                 pleach_error *err);

#endif
