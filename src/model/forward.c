/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass of the dense families: pre-norm blocks of grouped-query attention with rotary
 * positions and a SwiGLU feed-forward part, f32 activations throughout.
 *
 * Letters: C hidden size, D head size, I feed-forward width, n positions of this call. */
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

/* A call under way. Its n rows go to one cache at consecutive positions, or to a cache each. */
typedef struct pass {
    pl_workspace *w;
    const pl_compute *c;
    pl_cache *const *caches;
    bool apart;
    const int32_t *ids;
    size_t n;
    /* Where it is: rows [from, n) of a layer; a norm's weights, and whether to add an update first. */
    uint32_t layer;
    size_t from;
    const float *gain;
    bool update;
} pass;

static pl_cache *row_cache(const pass *p, size_t row) { return p->caches[p->apart ? row : 0]; }

static size_t row_position(const pass *p, size_t row)
{
    return pl_cache_length(row_cache(p, row)) + (p->apart ? 0 : row);
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
static pleach_status reserve_attention(pl_workspace *w, const pl_compute *c, bool apart,
                                       size_t length, pleach_error *err)
{
    size_t parts = apart ? (size_t)pl_pool_threads(c->pool) : 1;
    if (parts * attention_bytes(w, c, apart, length) <= w->attention_bytes) return PLEACH_OK;
    size_t bytes = parts * attention_bytes(w, c, apart, length + length / 2);
    pl_free(w->attention);
    w->attention = pl_alloc(1, bytes);
    w->attention_bytes = w->attention ? bytes : 0;
    return w->attention ? PLEACH_OK : pl_fail_memory(err, "attention", bytes);
}

/* fn for rows [p->from, p->n), each of which touches `width` numbers at about ten operations. */
static void for_rows(pass *p, size_t width, pl_pool_fn *fn)
{
    size_t rows = p->n - p->from;
    pl_pool_run_on(p->c->pool, pl_compute_threads(p->c, 10 * rows * width), rows, fn, p);
}

/* Norms (Qwen3) and rotary positions of `heads` heads of one token. */
static void turn_heads(const pass *p, float *x, uint32_t heads, const float *norm, size_t row)
{
    const pl_workspace *w = p->w;
    const pl_config *g = w->t->config;
    const pl_kernels *k = &p->c->kernels;
    size_t half = g->rope.dims / 2;
    for (uint32_t h = 0; h < heads; h++, x += g->head_dim) {
        if (norm) k->rms_norm(x, x, norm, g->head_dim, g->rms_norm_eps);
        k->rope(x, w->cos + row * half, w->sin + row * half, half);
    }
}

static void turn_and_keep_row(void *pass_, size_t m, int thread)
{
    const pass *p = pass_;
    pl_workspace *w = p->w;
    const pl_config *g = w->t->config;
    const pl_layer *l = &w->t->layers[p->layer];
    size_t Q = (size_t)g->n_heads * g->head_dim, K = (size_t)g->n_kv_heads * g->head_dim;
    (void)thread;
    turn_heads(p, w->q + m * Q, g->n_heads, l->q_norm, m);
    turn_heads(p, w->k + m * K, g->n_kv_heads, l->k_norm, m);
    pl_cache_put(row_cache(p, m), p->layer, row_position(p, m), 1, w->k + m * K, w->v + m * K);
}

/* Rows [from, from + n) of the layer. */
static pl_attention attention_of(const pass *p, size_t from, size_t n)
{
    const pl_workspace *w = p->w;
    const pl_config *g = w->t->config;
    size_t Q = (size_t)g->n_heads * g->head_dim;
    return (pl_attention){.cache = row_cache(p, from), .layer = p->layer, .n_heads = g->n_heads,
                          .n_kv_heads = g->n_kv_heads, .head_dim = g->head_dim,
                          .window = w->t->layers[p->layer].window,
                          .position = row_position(p, from), .n = n, .q = w->q + from * Q,
                          .out = w->mixed + from * Q};
}

static void attend_row(void *pass_, size_t i, int thread)
{
    const pass *p = pass_;
    pl_workspace *w = p->w;
    pl_compute own = *p->c;
    pl_attention a = attention_of(p, p->from + i, 1);
    size_t parts = (size_t)pl_pool_threads(own.pool);
    size_t bytes = w->attention_bytes / parts / PL_ALIGNMENT * PL_ALIGNMENT;
    own.pool = NULL;
    pl_attention_run(&own, &a, (char *)w->attention + (size_t)thread * bytes);
}

/* mixed = attention of rows [from, n). */
static void attend(pass *p)
{
    size_t rows = p->n - p->from;
    if (p->apart) {
        pl_pool_run(p->c->pool, rows, attend_row, p);
    } else {
        pl_attention a = attention_of(p, p->from, rows);
        pl_attention_run(p->c, &a, p->w->attention);
    }
}

/* update = attention of the layer for rows [from, n); keys and values of all n join their caches. */
static void attention_block(pass *p)
{
    pl_workspace *w = p->w;
    const pl_config *g = w->t->config;
    const pl_layer *l = &w->t->layers[p->layer];
    size_t Q = (size_t)g->n_heads * g->head_dim, K = (size_t)g->n_kv_heads * g->head_dim;
    size_t from = p->from;
    const pl_linear *qkv[] = {&l->q, &l->k, &l->v}, *o = &l->o;
    float *outputs[] = {w->q, w->k, w->v}, *update = w->update + from * g->hidden_size;
    pl_linear_apply(p->c, qkv, 3, w->norm, p->n, outputs, w->linear);
    p->from = 0;
    for_rows(p, Q + K, turn_and_keep_row);
    p->from = from;
    if (from == p->n) return;
    attend(p);
    pl_linear_apply(p->c, &o, 1, w->mixed + from * Q, p->n - from, &update, w->linear);
}

static void feed_forward_block(pass *p)
{
    pl_workspace *w = p->w;
    const pl_layer *l = &w->t->layers[p->layer];
    size_t C = w->t->config->hidden_size, from = p->from, rows = p->n - from;
    const pl_linear *down = &l->down;
    float *update = w->update + from * C;
    pl_linear_swiglu(p->c, &l->gate, &l->up, w->norm + from * C, rows, w->gate, w->up, w->linear);
    pl_linear_apply(p->c, &down, 1, w->gate, rows, &update, w->linear);
}

static void norm_row(void *pass_, size_t i, int thread)
{
    const pass *p = pass_;
    pl_workspace *w = p->w;
    size_t C = w->t->config->hidden_size, at = (p->from + i) * C;
    (void)thread;
    if (p->update) p->c->kernels.axpy_f32(w->x + at, 1, w->update + at, C);
    p->c->kernels.rms_norm(w->norm + at, w->x + at, p->gain, C, w->t->config->rms_norm_eps);
}

/* norm = RMSNorm(x) for rows [from, n), after x += update if there is one. */
static void add_and_norm(pass *p, const float *gain, bool update)
{
    p->gain = gain;
    p->update = update;
    for_rows(p, p->w->t->config->hidden_size, norm_row);
}

static void embed_row(void *pass_, size_t m, int thread)
{
    const pass *p = pass_;
    pl_workspace *w = p->w;
    const pl_transformer *t = w->t;
    size_t C = t->config->hidden_size, half = t->config->rope.dims / 2;
    (void)thread;
    pl_linear_row(&t->embedding, (uint64_t)p->ids[m], w->x + m * C);
    pl_rope_table(t->rope_frequencies, half, row_position(p, m), t->rope_scale, w->cos + m * half,
                  w->sin + m * half);
}

/* Everything but the caches' lengths; logits of rows [first, n). */
static void run_layers(pass *p, size_t first, float *logits)
{
    pl_workspace *w = p->w;
    const pl_transformer *t = w->t;
    size_t C = t->config->hidden_size;
    for_rows(p, C, embed_row);
    for (p->layer = 0; p->layer < t->config->n_layers; p->layer++) {
        const pl_layer *l = &t->layers[p->layer];
        add_and_norm(p, l->input_norm, p->layer > 0);
        /* Nobody asks the last layer for more than the rows that get logits. */
        if (p->layer + 1 == t->config->n_layers) p->from = first;
        attention_block(p);
        if (p->from == p->n) break;
        add_and_norm(p, l->post_norm, true);
        feed_forward_block(p);
    }
    if (first == p->n) return;
    const pl_linear *head = &t->head;
    add_and_norm(p, t->final_norm, true);
    pl_linear_apply(p->c, &head, 1, w->norm + first * C, p->n - first, &logits, w->linear);
}

pleach_status pl_transformer_forward(const pl_transformer *t, const pl_compute *c, pl_workspace *w,
                                     pl_cache *cache, const int32_t *ids, size_t n, size_t first,
                                     float *logits, pleach_error *err)
{
    (void)t;
    if (n == 0) return PLEACH_OK;
    pass p = {.w = w, .c = c, .caches = &cache, .ids = ids, .n = n};
    PL_TRY(reserve_attention(w, c, false, pl_cache_length(cache) + n, err));
    run_layers(&p, logits ? PL_MIN(first, n) : n, logits);
    pl_cache_advance(cache, n);
    return PLEACH_OK;
}

pleach_status pl_transformer_step(const pl_compute *c, pl_workspace *w, pl_cache *const *caches,
                                  const int32_t *ids, size_t n, float *logits, pleach_error *err)
{
    if (n == 0) return PLEACH_OK;
    pass p = {.w = w, .c = c, .caches = caches, .apart = true, .ids = ids, .n = n};
    size_t longest = 0;
    for (size_t m = 0; m < n; m++) longest = PL_MAX(longest, pl_cache_length(caches[m]));
    PL_TRY(reserve_attention(w, c, true, longest + 1, err));
    run_layers(&p, 0, logits);
    for (size_t m = 0; m < n; m++) pl_cache_advance(caches[m], 1);
    return PLEACH_OK;
}
