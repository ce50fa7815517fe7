/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a model on a device. Memory is counted before it is taken, so that what does not fit is
 * refused with what would. */
#include "model.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* Left to the driver, captured graphs and page tables. */
#define RESERVE ((size_t)64 << 20)

enum { LAYER_LINEARS = 7 }; /* of the families that run here */

/* One for each device, whatever the models on it: blocks of a kernel may wait for each other, and
 * two such kernels side by side, neither with room for all its blocks, would wait for ever. */
enum { LOCKS = 64 };
static pthread_mutex_t locks[LOCKS];

static void init_locks(void)
{
    for (int i = 0; i < LOCKS; i++) pthread_mutex_init(&locks[i], NULL);
}

static pthread_mutex_t *lock_of(int device)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_locks);
    return &locks[device % LOCKS];
}

void pl_cuda_model_enter(pl_cuda_model *m)
{
    pthread_mutex_lock(m->lock);
    cudaSetDevice(m->d->index);
}

void pl_cuda_model_leave(pl_cuda_model *m)
{
    pthread_mutex_unlock(m->lock);
}

static size_t free_bytes(void)
{
    size_t available = 0, total = 0;
    cudaMemGetInfo(&available, &total);
    return available > RESERVE ? available - RESERVE : 0;
}

static double mb(uint64_t bytes)
{
    return 1e-6 * (double)bytes;
}

/* ---- weights --------------------------------------------------------------------------------- */

static uint64_t model_bytes(const pl_transformer *t)
{
    uint64_t bytes = pl_cuda_linear_bytes(&t->embedding);
    if (!t->config->tie_embeddings) bytes += pl_cuda_linear_bytes(&t->head);
    for (uint32_t i = 0; i < t->config->n_layers; i++) {
        const pl_linear *list[LAYER_LINEARS];
        pl_layer_linears(&t->layers[i], list);
        for (int j = 0; j < LAYER_LINEARS; j++) bytes += pl_cuda_linear_bytes(list[j]);
    }
    return bytes;
}

static pleach_status check_weights(const pl_cuda_model *m, pleach_error *err)
{
    uint64_t needed = model_bytes(m->t);
    size_t available = free_bytes();
    PL_FAIL_IF(needed > available, err, PLEACH_ERR_MEMORY,
               "device %s: the weights need %.1f MB, and %.1f MB of %.1f are free", m->name,
               mb(needed), mb(available), mb(m->d->memory));
    return PLEACH_OK;
}

static pleach_status open_linear(pl_cuda_model *m, const pl_linear *host, pl_cuda_linear *out,
                                 pleach_error *err)
{
    PL_TRY(pl_cuda_linear_open(m->d, host, out, err));
    m->base.bytes += out->bytes;
    return PLEACH_OK;
}

static pleach_status open_layer(pl_cuda_model *m, uint32_t i, pleach_error *err)
{
    const pl_layer *from = &m->t->layers[i];
    pl_cuda_layer *l = &m->layers[i];
    const pl_linear *host[LAYER_LINEARS];
    pl_cuda_linear *to[LAYER_LINEARS] = {&l->q,    &l->k,  &l->v,   &l->o,
                                         &l->gate, &l->up, &l->down};
    pl_layer_linears(from, host);
    for (int j = 0; j < LAYER_LINEARS; j++) PL_TRY(open_linear(m, host[j], to[j], err));
    const pl_cuda_linear *qkv[] = {&l->q, &l->k, &l->v}, *gate_up[] = {&l->gate, &l->up};
    const pl_cuda_linear *o = &l->o, *down = &l->down;
    l->attention_rotated = pl_cuda_linear_rotation(qkv, 3, &l->attention_rotation);
    l->feed_forward_rotated = pl_cuda_linear_rotation(gate_up, 2, &l->feed_forward_rotation);
    pl_cuda_linear_rotation(&o, 1, &l->o_rotation);
    pl_cuda_linear_rotation(&down, 1, &l->down_rotation);
    return PLEACH_OK;
}

/* Copies n numbers to the end of what is on the host so far, or with `to` NULL counts them. The
 * device's address of them, if they are wanted. */
static const float *add_gain(const pl_cuda_model *m, float *to, size_t *used, const float *gain,
                             size_t n)
{
    if (!gain) return NULL;
    const float *at = m->gains ? m->gains + *used : NULL;
    if (to) memcpy(to + *used, gain, n * sizeof *gain);
    *used += (n + 63) / 64 * 64;
    return at;
}

static size_t add_gains(pl_cuda_model *m, float *to)
{
    const pl_config *g = m->t->config;
    size_t used = 0;
    m->final_norm = add_gain(m, to, &used, m->t->final_norm, g->hidden_size);
    m->frequencies = add_gain(m, to, &used, m->t->ropes[0].frequencies, m->t->ropes[0].half);
    for (uint32_t i = 0; i < g->n_layers; i++) {
        const pl_layer *l = &m->t->layers[i];
        m->layers[i].input_norm = add_gain(m, to, &used, l->input_norm, g->hidden_size);
        m->layers[i].post_norm = add_gain(m, to, &used, l->post_norm, g->hidden_size);
        m->layers[i].q_norm = add_gain(m, to, &used, l->attention.q_norm, g->head_dim);
        m->layers[i].k_norm = add_gain(m, to, &used, l->attention.k_norm, g->head_dim);
    }
    return used;
}

static pleach_status open_gains(pl_cuda_model *m, pleach_error *err)
{
    size_t bytes = add_gains(m, NULL) * sizeof(float);
    float *host = pl_calloc(1, bytes);
    if (!host) return pl_fail_memory(err, "norms", bytes);
    pleach_status status = pl_cuda_alloc(m->d, (void **)&m->gains, bytes, "norms", err);
    if (status == PLEACH_OK) {
        add_gains(m, host);
        status = pl_cuda_upload(m->d, m->gains, host, bytes, err);
    }
    m->base.bytes += bytes;
    pl_free(host);
    return status;
}

static pleach_status open_weights(pl_cuda_model *m, pleach_error *err)
{
    const pl_config *g = m->t->config;
    m->layers = pl_calloc(g->n_layers, sizeof *m->layers);
    if (!m->layers) return pl_fail_memory(err, "model", g->n_layers * sizeof *m->layers);
    PL_TRY(check_weights(m, err));
    PL_TRY(open_linear(m, &m->t->embedding, &m->embedding, err));
    if (!g->tie_embeddings) PL_TRY(open_linear(m, &m->t->head, &m->own_head, err));
    m->head = g->tie_embeddings ? &m->embedding : &m->own_head;
    m->head_rotated = pl_cuda_linear_rotation(&m->head, 1, &m->head_rotation);
    for (uint32_t i = 0; i < g->n_layers; i++) PL_TRY(open_layer(m, i, err));
    return open_gains(m, err);
}

/* ---- workspace ------------------------------------------------------------------------------- */

static size_t linear_scratch(const pl_cuda_model *m, size_t batch, size_t logits_rows)
{
    size_t most = pl_cuda_linear_scratch(m->d, &m->head, 1, logits_rows);
    for (uint32_t i = 0; i < m->t->config->n_layers; i++) {
        const pl_cuda_layer *l = &m->layers[i];
        const pl_cuda_linear *groups[4][3] = {
            {&l->q, &l->k, &l->v}, {&l->o}, {&l->gate, &l->up}, {&l->down}};
        static const size_t sizes[4] = {3, 1, 2, 1};
        for (int g = 0; g < 4; g++)
            most = PL_MAX(most, pl_cuda_linear_scratch(m->d, groups[g], sizes[g], batch));
    }
    return most;
}

/* The next `bytes` of the workspace; with no base only adds up. */
static void *take(pl_cuda_workspace *w, size_t bytes)
{
    void *at = w->base ? w->base + w->bytes : NULL;
    w->bytes += (bytes + 255) / 256 * 256;
    return at;
}

/* Lays out w->base, or with none counts: batch, length, logits_rows and attention_bytes are set. */
static void lay_out(const pl_cuda_model *m, pl_cuda_workspace *w)
{
    const pl_config *g = m->t->config;
    size_t C = g->hidden_size, Q = (size_t)g->n_heads * g->head_dim, f = sizeof(float);
    size_t K = (size_t)g->n_kv_heads * g->head_dim, half = g->rope.dims / 2, n = w->batch;
    w->bytes = 0;
    w->attention = take(w, w->attention_bytes);
    w->input = take(w, n * (2 * sizeof(int32_t) + sizeof(pl_cuda_row)));
    w->best = take(w, w->logits_rows * sizeof *w->best);
    w->x = take(w, n * C * f);
    w->norm = take(w, n * C * f);
    w->update = take(w, n * C * f);
    w->q = take(w, n * Q * f);
    w->mixed = take(w, n * Q * f);
    w->k = take(w, n * K * f);
    w->v = take(w, n * K * f);
    w->gate = take(w, n * g->intermediate_size * f);
    w->cos = take(w, n * half * f);
    w->sin = take(w, n * half * f);
    w->logits = take(w, w->logits_rows * g->vocab_size * f);
    w->argmax = take(w, pl_cuda_argmax_scratch(g->vocab_size, w->logits_rows));
    w->linear = take(w, linear_scratch(m, n, w->logits_rows));
}

/* Scratch of attention for so many rows, in a cache of any type that was met. */
static size_t attention_scratch(const pl_cuda_model *m, const pl_cache *cache, size_t rows,
                                size_t length)
{
    const pl_config *g = m->t->config;
    size_t most = 0;
    for (uint32_t i = 0; i < g->n_layers; i++)
        most = PL_MAX(most, pl_cuda_attention_scratch(m->d, pl_cache_type(cache, i), g->n_heads,
                                                      g->n_kv_heads, g->head_dim, rows, length));
    return most;
}

/* The workspace that serves caches like this one too. */
static pl_cuda_workspace plan(const pl_cuda_model *m, const pl_cache *cache, size_t length,
                              size_t batch)
{
    const pl_config *g = m->t->config;
    pl_cuda_workspace w = {.batch = PL_MAX(PL_MAX(batch, m->w.batch), (size_t)PL_CUDA_STEP)};
    w.length = PL_MAX(m->w.length, pl_cuda_step_length(length));
    w.logits_rows = PL_MIN(PL_CUDA_LOGITS / sizeof(float) / g->vocab_size, w.batch);
    w.logits_rows = PL_MAX(w.logits_rows, (size_t)PL_CUDA_STEP);
    w.attention_rows = w.batch;
    while (w.attention_rows > PL_CUDA_STEP &&
           attention_scratch(m, cache, w.attention_rows, w.length) > PL_CUDA_ATTENTION)
        w.attention_rows = PL_MAX(w.attention_rows / 2, (size_t)PL_CUDA_STEP);
    if (m->w.batch) w.attention_rows = PL_MIN(w.attention_rows, m->w.attention_rows);
    w.attention_bytes = PL_MAX(attention_scratch(m, cache, w.attention_rows, w.length),
                               m->w.attention_bytes);
    lay_out(m, &w);
    return w;
}

/* Its sizes stay: they are what the sessions there are need. */
static void workspace_free(pl_cuda_workspace *w)
{
    pl_cuda_free(w->base);
    cudaFreeHost(w->host_input);
    cudaFreeHost(w->host_best);
    w->base = NULL;
    w->host_input = NULL;
    w->host_best = NULL;
}

static pleach_status allocate(pl_cuda_model *m, pl_cuda_workspace *w, pleach_error *err)
{
    PL_TRY(pl_cuda_alloc(m->d, (void **)&w->base, w->bytes, "workspace", err));
    lay_out(m, w);
    PL_TRY(pl_cuda_check(cudaMallocHost(&w->host_input,
                                        w->batch * (2 * sizeof(int32_t) + sizeof(pl_cuda_row))),
                         "pinning memory", err));
    PL_TRY(pl_cuda_check(cudaMallocHost((void **)&w->host_best,
                                        w->logits_rows * sizeof *w->host_best),
                         "pinning memory", err));
    PL_TRY(pl_cuda_check(cudaMemsetAsync(w->attention, 0, w->attention_bytes, m->d->stream),
                         "clearing memory", err));
    return pl_cuda_sync(m->d, err);
}

/* Captured graphs have its addresses in them, and go with it. */
static pleach_status grow_workspace(pl_cuda_model *m, const pl_cache *cache, size_t batch,
                                    pleach_error *err)
{
    pl_cuda_workspace w = plan(m, cache, pl_cache_capacity(cache), batch);
    bool same = m->w.base && w.batch == m->w.batch && w.length == m->w.length &&
                w.attention_bytes == m->w.attention_bytes;
    if (same) return PLEACH_OK;
    PL_TRY(pl_cuda_sync(m->d, err));
    for (pl_cuda_layout *l = m->pages.layouts; l; l = l->next) pl_cuda_layout_drop_graphs(l);
    workspace_free(&m->w);
    pl_cuda_workspace before = m->w;
    m->w = w;
    pleach_status status = allocate(m, &m->w, err);
    if (status == PLEACH_OK) return status;
    workspace_free(&m->w);
    m->w = before; /* as it was, for the sessions there are */
    if (m->w.batch && allocate(m, &m->w, NULL) != PLEACH_OK) workspace_free(&m->w);
    return status;
}

/* Bytes that it takes now. */
static size_t workspace_bytes(const pl_cuda_model *m)
{
    return m->w.base ? m->w.bytes : 0;
}

static pleach_status workspace_open(pl_backend *b, const pl_cache *cache, size_t batch, void **out,
                                    pleach_error *err)
{
    pl_cuda_model *m = (pl_cuda_model *)b;
    pl_cuda_model_enter(m);
    pleach_status status = grow_workspace(m, cache, batch, err);
    m->base.workspace = workspace_bytes(m);
    pl_cuda_model_leave(m);
    *out = status == PLEACH_OK ? m : NULL;
    return status;
}

static void workspace_close(pl_backend *b, void *workspace)
{
    (void)b, (void)workspace; /* the next session's */
}

/* ---- what fits ------------------------------------------------------------------------------- */

static pleach_status check_types(const pl_cuda_model *m, const pl_cache *cache, pleach_error *err)
{
    const pl_config *g = m->t->config;
    for (uint32_t i = 0; i < g->n_layers; i++)
        PL_TRY(pl_cuda_attention_check(pl_cache_type(cache, i), g->n_heads, g->n_kv_heads,
                                       g->head_dim, err));
    return PLEACH_OK;
}

static bool fits_in(uint64_t available, uint64_t pages, uint64_t workspace)
{
    return pages <= available && workspace <= available - pages;
}

/* The longest context, in pages, for which cache and workspace fit; without windows and recent
 * tokens counted, which make it a little more or less. */
static size_t longest_fit(const pl_cuda_model *m, const pl_cache *cache, size_t batch,
                          uint64_t available)
{
    size_t fits = 0, too_long = pl_cache_capacity(cache) / PL_CACHE_PAGE + 1;
    uint64_t page = PL_CACHE_PAGE * pl_cache_token_bytes(cache);
    while (too_long - fits > 1) {
        size_t pages = fits + (too_long - fits) / 2;
        uint64_t workspace = plan(m, cache, pages * PL_CACHE_PAGE, batch).bytes;
        if (fits_in(available, pages * page, workspace))
            fits = pages;
        else
            too_long = pages;
    }
    return fits * PL_CACHE_PAGE;
}

static pleach_status check_fit(pl_cuda_model *m, const pl_cache *cache, size_t batch,
                               pleach_error *err)
{
    char fits[96];
    size_t context = pl_cache_capacity(cache);
    pl_cuda_pages_trim(&m->pages);
    uint64_t workspace = plan(m, cache, context, batch).bytes;
    uint64_t available = free_bytes() + workspace_bytes(m);
    uint64_t pages = pl_cache_most_bytes(cache, batch);
    if (fits_in(available, pages, workspace)) return PLEACH_OK;
    size_t tokens = longest_fit(m, cache, batch, available);
    snprintf(fits, sizeof fits, "a context of %zu tokens fits", tokens);
    return pl_fail(err, PLEACH_ERR_MEMORY,
                   "device %s: beside %.1f MB of weights the cache needs %.1f MB for %zu tokens "
                   "and the workspace %.1f MB, and %.1f MB are free: %s; a packed cache takes less",
                   m->name, mb(m->base.bytes), mb(pages), context, mb(workspace),
                   mb(available), tokens ? fits : "no context fits");
}

static pleach_status check_memory(pl_backend *b, const pl_cache *cache, size_t batch,
                                  pleach_error *err)
{
    pl_cuda_model *m = (pl_cuda_model *)b;
    PL_TRY(check_types(m, cache, err));
    pl_cuda_model_enter(m);
    pleach_status status = check_fit(m, cache, batch, err);
    pl_cuda_model_leave(m);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void close_layer(pl_cuda_layer *l)
{
    pl_cuda_linear *linears[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    for (size_t i = 0; i < PL_COUNT(linears); i++) pl_cuda_linear_close(linears[i]);
}

static void model_close(pl_backend *b)
{
    pl_cuda_model *m = (pl_cuda_model *)b;
    if (m->d) {
        cudaSetDevice(m->d->index);
        pl_cuda_pages_close(&m->pages);
        workspace_free(&m->w);
        for (uint32_t i = 0; m->layers && i < m->t->config->n_layers; i++)
            close_layer(&m->layers[i]);
        pl_cuda_linear_close(&m->embedding);
        pl_cuda_linear_close(&m->own_head);
        pl_cuda_free(m->gains);
        pl_cuda_close(m->d);
    }
    pl_free(m->layers);
    pl_free(m);
}

static const pl_backend_functions functions = {
    .close = model_close,
    .check_memory = check_memory,
    .workspace_open = workspace_open,
    .workspace_close = workspace_close,
    .run = pl_cuda_model_run,
};

static pleach_status open_on(pl_cuda_model *m, const char *device, bool batch_invariant,
                             pleach_error *err)
{
    PL_TRY(pl_cuda_open(device, &m->d, err));
    m->d->batch_invariant = batch_invariant;
    snprintf(m->name, sizeof m->name, "cuda:%d", m->d->index);
    m->base.device = m->name;
    m->base.name = m->d->name;
    m->base.pages = &m->pages.base;
    m->base.finds_best = true;
    m->lock = lock_of(m->d->index);
    pl_cuda_pages_open(&m->pages, m->d, m->lock);
    return open_weights(m, err);
}

pleach_status pl_cuda_backend_open(const pl_transformer *t, const pl_compute *c, const char *device,
                                   bool batch_invariant, pl_backend **out, pleach_error *err)
{
    (void)c;
    *out = NULL;
    pl_cuda_model *m = pl_calloc(1, sizeof *m);
    if (!m) return pl_fail_memory(err, "model", sizeof *m);
    m->base.f = &functions;
    m->t = t;
    pleach_status status = open_on(m, device, batch_invariant, err);
    if (status == PLEACH_OK)
        *out = &m->base;
    else
        model_close(&m->base);
    return status;
}
