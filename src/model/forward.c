/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass of the dense families: pre-norm blocks of grouped-query attention with rotary
 * positions and a SwiGLU feed-forward part, f32 activations throughout.
 *
 * Letters: C hidden size, D head size, I feed-forward width, n positions of this call. */
#include <omp.h>

#include "attention.h"
#include "base/memory.h"
#include "model.h"
#include "rope.h"

struct pl_workspace {
    const pl_transformer *t;
    size_t batch;
    float *x, *norm, *update; /* [batch][C]; update: what a block adds to x */
    float *q, *mixed;         /* [batch][heads * D] */
    float *k, *v;             /* [batch][kv heads * D] */
    float *gate, *up;         /* [batch][I] */
    float *cos, *sin;         /* [batch][rope dims / 2] */
    void *linear, *attention; /* scratch of the parts */
    size_t attention_bytes;
};

static size_t linear_scratch(const pl_transformer *t, const pl_compute *c, size_t batch)
{
    const pl_linear *head = &t->head;
    size_t most = pl_linear_scratch(c, &head, 1, batch);
    for (uint32_t i = 0; i < t->config->n_layers; i++) {
        const pl_layer *l = &t->layers[i];
        const pl_linear *groups[4][3] = {
            {&l->q, &l->k, &l->v}, {&l->o}, {&l->gate, &l->up}, {&l->down}};
        static const size_t sizes[4] = {3, 1, 2, 1};
        for (int g = 0; g < 4; g++)
            most = PL_MAX(most, pl_linear_scratch(c, groups[g], sizes[g], batch));
    }
    return most;
}

pleach_status pl_workspace_open(const pl_transformer *t, const pl_compute *c, size_t batch,
                                pl_workspace **out, pleach_error *err)
{
    const pl_config *g = t->config;
    *out = NULL;
    pl_workspace *w = pl_calloc(1, sizeof *w);
    if (!w) return pl_fail_memory(err, "workspace", sizeof *w);
    w->t = t;
    w->batch = batch;
    const struct {
        float **to;
        size_t width;
    } arrays[] = {
        {&w->x, g->hidden_size},
        {&w->norm, g->hidden_size},
        {&w->update, g->hidden_size},
        {&w->q, (size_t)g->n_heads * g->head_dim},
        {&w->mixed, (size_t)g->n_heads * g->head_dim},
        {&w->k, (size_t)g->n_kv_heads * g->head_dim},
        {&w->v, (size_t)g->n_kv_heads * g->head_dim},
        {&w->gate, g->intermediate_size},
        {&w->up, g->intermediate_size},
        {&w->cos, g->rope.dims / 2},
        {&w->sin, g->rope.dims / 2},
    };
    size_t scratch = linear_scratch(t, c, batch), asked = scratch;
    w->linear = pl_alloc(1, scratch);
    bool whole = w->linear != NULL;
    for (size_t i = 0; i < PL_COUNT(arrays); i++) {
        *arrays[i].to = pl_alloc(batch, arrays[i].width * sizeof(float));
        whole = whole && *arrays[i].to;
        asked += batch * arrays[i].width * sizeof(float);
    }
    if (!whole) {
        pl_workspace_close(w);
        return pl_fail_memory(err, "workspace", asked);
    }
    *out = w;
    return PLEACH_OK;
}

void pl_workspace_close(pl_workspace *w)
{
    if (!w) return;
    float *arrays[] = {w->x, w->norm, w->update, w->q,   w->mixed, w->k,
                       w->v, w->gate, w->up,     w->cos, w->sin};
    for (size_t i = 0; i < PL_COUNT(arrays); i++) pl_free(arrays[i]);
    pl_free(w->linear);
    pl_free(w->attention);
    pl_free(w);
}

/* Where the rows of a call go: one cache at consecutive positions, or a cache each. */
typedef struct places {
    pl_cache *const *caches;
    bool apart;
} places;

static pl_cache *row_cache(const places *p, size_t row) { return p->caches[p->apart ? row : 0]; }

static size_t row_position(const places *p, size_t row)
{
    return pl_cache_length(row_cache(p, row)) + (p->apart ? 0 : row);
}

/* Of one thread when rows lie apart: each then attends to its own cache. */
static size_t attention_bytes(const pl_workspace *w, const pl_compute *c, bool apart, size_t length)
{
    const pl_config *g = w->t->config;
    pl_compute own = *c;
    if (apart) own.threads = 1;
    size_t bytes = pl_attention_scratch(&own, g->n_heads, g->n_kv_heads, g->head_dim, length);
    return (bytes + PL_ALIGNMENT - 1) / PL_ALIGNMENT * PL_ALIGNMENT;
}

/* Attention's scratch grows with the positions held; half as much again is asked for. */
static pleach_status reserve_attention(pl_workspace *w, const pl_compute *c, bool apart,
                                       size_t length, pleach_error *err)
{
    size_t parts = apart ? (size_t)c->threads : 1;
    if (parts * attention_bytes(w, c, apart, length) <= w->attention_bytes) return PLEACH_OK;
    size_t bytes = parts * attention_bytes(w, c, apart, length + length / 2);
    pl_free(w->attention);
    w->attention = pl_alloc(1, bytes);
    w->attention_bytes = w->attention ? bytes : 0;
    return w->attention ? PLEACH_OK : pl_fail_memory(err, "attention", bytes);
}

/* Threads for a loop over n positions that touches `width` numbers of each, at about ten operations
 * a number; one position is never shared out. */
static int threads_for(const pl_compute *c, size_t n, size_t width)
{
    return n > 1 ? pl_compute_threads(c, 10 * n * width) : 1;
}

/* Norms (Qwen3) and rotary positions of `heads` heads of one token. */
static void turn_heads(const pl_workspace *w, const pl_compute *c, float *x, uint32_t heads,
                       const float *norm, size_t row)
{
    const pl_config *g = w->t->config;
    size_t half = g->rope.dims / 2;
    for (uint32_t h = 0; h < heads; h++, x += g->head_dim) {
        if (norm) c->kernels.rms_norm(x, x, norm, g->head_dim, g->rms_norm_eps);
        c->kernels.rope(x, w->cos + row * half, w->sin + row * half, half);
    }
}

/* mixed = attention of rows [from, n) in layer i. */
static void attend(pl_workspace *w, const pl_compute *c, const places *p, uint32_t i, size_t from,
                   size_t n)
{
    const pl_config *g = w->t->config;
    size_t Q = (size_t)g->n_heads * g->head_dim;
    pl_attention a = {.cache = row_cache(p, from), .layer = i, .n_heads = g->n_heads,
                      .n_kv_heads = g->n_kv_heads, .head_dim = g->head_dim,
                      .window = w->t->layers[i].window, .position = row_position(p, from),
                      .n = n - from, .q = w->q + from * Q, .out = w->mixed + from * Q};
    if (!p->apart) {
        pl_attention_run(c, &a, w->attention);
        return;
    }
    pl_compute own = *c;
    own.threads = 1;
    size_t bytes = w->attention_bytes / (size_t)c->threads / PL_ALIGNMENT * PL_ALIGNMENT;
#pragma omp parallel for num_threads(c->threads) schedule(dynamic)
    for (size_t m = from; m < n; m++) {
        pl_attention one = a;
        one.cache = row_cache(p, m);
        one.position = row_position(p, m);
        one.n = 1;
        one.q = w->q + m * Q;
        one.out = w->mixed + m * Q;
        pl_attention_run(&own, &one, (char *)w->attention + (size_t)omp_get_thread_num() * bytes);
    }
}

/* update = attention of layer i for rows [from, n); keys and values of all n join their caches. */
static void attention_block(pl_workspace *w, const pl_compute *c, const places *p, uint32_t i,
                            size_t from, size_t n)
{
    const pl_config *g = w->t->config;
    const pl_layer *l = &w->t->layers[i];
    size_t Q = (size_t)g->n_heads * g->head_dim, K = (size_t)g->n_kv_heads * g->head_dim;
    const pl_linear *qkv[] = {&l->q, &l->k, &l->v}, *o = &l->o;
    float *outputs[] = {w->q, w->k, w->v};
    pl_linear_apply(c, qkv, 3, w->norm, n, outputs, w->linear);
#pragma omp parallel for num_threads(threads_for(c, n, Q + K))
    for (size_t m = 0; m < n; m++) {
        turn_heads(w, c, w->q + m * Q, g->n_heads, l->q_norm, m);
        turn_heads(w, c, w->k + m * K, g->n_kv_heads, l->k_norm, m);
        pl_cache_put(row_cache(p, m), i, row_position(p, m), 1, w->k + m * K, w->v + m * K);
    }
    if (from == n) return;
    float *update = w->update + from * g->hidden_size;
    attend(w, c, p, i, from, n);
    pl_linear_apply(c, &o, 1, w->mixed + from * Q, n - from, &update, w->linear);
}

static void feed_forward_block(pl_workspace *w, const pl_compute *c, const pl_layer *l, size_t from,
                               size_t n)
{
    size_t C = w->t->config->hidden_size, I = w->t->config->intermediate_size;
    const pl_linear *both[] = {&l->gate, &l->up}, *down = &l->down;
    float *outputs[] = {w->gate, w->up}, *update = w->update + from * C;
    pl_linear_apply(c, both, 2, w->norm + from * C, n - from, outputs, w->linear);
#pragma omp parallel for num_threads(threads_for(c, n - from, I))
    for (size_t m = 0; m < n - from; m++)
        c->kernels.silu_mul(w->gate + m * I, w->gate + m * I, w->up + m * I, I);
    pl_linear_apply(c, &down, 1, w->gate, n - from, &update, w->linear);
}

/* norm = RMSNorm(x) for positions [first, n), after x += update if there is one. */
static void add_and_norm(pl_workspace *w, const pl_compute *c, const float *gain, bool update,
                         size_t first, size_t n)
{
    size_t C = w->t->config->hidden_size;
    float eps = w->t->config->rms_norm_eps;
#pragma omp parallel for num_threads(threads_for(c, n - first, C))
    for (size_t m = first; m < n; m++) {
        if (update) c->kernels.axpy_f32(w->x + m * C, 1, w->update + m * C, C);
        c->kernels.rms_norm(w->norm + m * C, w->x + m * C, gain, C, eps);
    }
}

static void embed(pl_workspace *w, const pl_compute *c, const places *p, const int32_t *ids,
                  size_t n)
{
    const pl_transformer *t = w->t;
    size_t C = t->config->hidden_size, half = t->config->rope.dims / 2;
#pragma omp parallel for num_threads(threads_for(c, n, C))
    for (size_t m = 0; m < n; m++) {
        pl_linear_row(&t->embedding, (uint64_t)ids[m], w->x + m * C);
        pl_rope_table(t->rope_frequencies, half, row_position(p, m), t->rope_scale,
                      w->cos + m * half, w->sin + m * half);
    }
}

/* Everything but the caches' lengths; logits of rows [first, n). */
static void run_layers(pl_workspace *w, const pl_compute *c, const places *p, const int32_t *ids,
                       size_t n, size_t first, float *logits)
{
    const pl_transformer *t = w->t;
    embed(w, c, p, ids, n);
    for (uint32_t i = 0; i < t->config->n_layers; i++) {
        const pl_layer *l = &t->layers[i];
        /* Nobody asks the last layer for more than the rows that get logits. */
        size_t from = i + 1 == t->config->n_layers ? first : 0;
        add_and_norm(w, c, l->input_norm, i > 0, 0, n);
        attention_block(w, c, p, i, from, n);
        if (from == n) break;
        add_and_norm(w, c, l->post_norm, true, from, n);
        feed_forward_block(w, c, l, from, n);
    }
    if (first == n) return;
    const pl_linear *head = &t->head;
    add_and_norm(w, c, t->final_norm, true, first, n);
    pl_linear_apply(c, &head, 1, w->norm + first * t->config->hidden_size, n - first, &logits,
                    w->linear);
}

pleach_status pl_transformer_forward(const pl_transformer *t, const pl_compute *c, pl_workspace *w,
                                     pl_cache *cache, const int32_t *ids, size_t n, size_t first,
                                     float *logits, pleach_error *err)
{
    (void)t;
    if (n == 0) return PLEACH_OK;
    const places p = {.caches = &cache};
    PL_TRY(reserve_attention(w, c, false, pl_cache_length(cache) + n, err));
    run_layers(w, c, &p, ids, n, logits ? PL_MIN(first, n) : n, logits);
    pl_cache_advance(cache, n);
    return PLEACH_OK;
}

pleach_status pl_transformer_step(const pl_compute *c, pl_workspace *w, pl_cache *const *caches,
                                  const int32_t *ids, size_t n, float *logits, pleach_error *err)
{
    if (n == 0) return PLEACH_OK;
    const places p = {.caches = caches, .apart = true};
    size_t longest = 0;
    for (size_t m = 0; m < n; m++) longest = PL_MAX(longest, pl_cache_length(caches[m]));
    PL_TRY(reserve_attention(w, c, true, longest + 1, err));
    run_layers(w, c, &p, ids, n, 0, logits);
    for (size_t m = 0; m < n; m++) pl_cache_advance(caches[m], 1);
    return PLEACH_OK;
}
