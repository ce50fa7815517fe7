/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass on the device: what model/forward.c computes, f32 activations throughout.
 *
 * A step, one row for each of a few sequences, is captured into a graph per number of rows and
 * bound on positions the second time it is seen, and replayed from then on: what changes from step
 * to step (ids, positions, page tables) lies in device memory. Prompts are queued kernel by kernel.
 *
 * Letters: C hidden size, D head size, n rows of this pass. */
#include "model.h"

#include <string.h>

enum {
    MOST_FEW = 2, /* rows of a step that attend as few */
    FEW_ROWS = 16 /* of one sequence: rows attend alone below that, by tiles from there */
};

/* Rows of one pass, in device memory or on their way there. */
typedef struct input {
    int32_t *ids, *positions;
    pl_cuda_row *rows;
} input;

typedef struct work {
    pl_cuda_model *m;
    pl_cuda_layout *layout;
    size_t n, length; /* positions are below length */
    pl_cuda_attention_class how;
    input in;
} work;

static input input_at(void *base, size_t n)
{
    input in = {.rows = base};
    in.ids = (int32_t *)(in.rows + n);
    in.positions = in.ids + n;
    return in;
}

static size_t input_bytes(size_t n)
{
    return n * (sizeof(pl_cuda_row) + 2 * sizeof(int32_t));
}

/* ---- one layer ------------------------------------------------------------------------------- */

/* norm = RMSNorm(x) of rows [from, n), after x += update if there is one, rotated for who comes. */
static void norm(const work *w, size_t from, const float *gain, bool update,
                 const pl_cuda_rotation *r)
{
    pl_cuda_workspace *s = &w->m->w;
    const pl_config *g = w->m->t->config;
    size_t C = g->hidden_size, at = from * C;
    pl_cuda_rms_norm(w->m->d, s->norm + at, s->x + at, update ? s->update + at : NULL, gain, C,
                     w->n - from, g->rms_norm_eps, r);
}

/* Queries and keys are turned, keys and values join the cache. */
static void put(const work *w, const pl_cuda_layer *l, const pl_cuda_kv *cache)
{
    pl_cuda_workspace *s = &w->m->w;
    const pl_config *g = w->m->t->config;
    size_t K = (size_t)g->n_kv_heads * g->head_dim;
    pl_cuda_rope rope = {.q = s->q,
                         .k = s->k,
                         .heads = g->n_heads,
                         .half = g->rope.dims / 2,
                         .q_norm = l->q_norm,
                         .k_norm = l->k_norm,
                         .eps = g->rms_norm_eps,
                         .cos = s->cos,
                         .sin = s->sin};
    pl_cuda_kv_put(w->m->d, cache, w->in.rows, w->n, s->k, K, s->v, K, &rope);
}

/* mixed = attention of rows [from, n), rotated for o; their keys and values are in the cache. */
static void attend(const work *w, const pl_cuda_kv *cache, pl_cuda_rotation o, size_t from)
{
    pl_cuda_workspace *s = &w->m->w;
    const pl_config *g = w->m->t->config;
    size_t Q = (size_t)g->n_heads * g->head_dim, most = s->attention_rows;
    for (; from < w->n; from += most) {
        pl_cuda_attention a = {.cache = *cache,
                               .rows = w->in.rows + from,
                               .M = PL_MIN(w->n - from, most),
                               .length = w->length,
                               .n_heads = g->n_heads,
                               .how = w->how,
                               .q = s->q + from * Q,
                               .q_stride = Q,
                               .out = s->mixed + from * Q,
                               .out_stride = Q,
                               .rotation = o,
                               .apart = w->how == PL_CUDA_ATTENTION_FEW};
        pl_cuda_attention_run(w->m->d, &a, s->attention);
    }
}

/* update = attention of layer i for rows [from, n); keys and values of all n join their caches. */
static void attention_block(const work *w, uint32_t i, size_t from)
{
    pl_cuda_workspace *s = &w->m->w;
    const pl_config *g = w->m->t->config;
    const pl_cuda_layer *l = &w->m->layers[i];
    size_t Q = (size_t)g->n_heads * g->head_dim;
    const pl_cuda_linear *qkv[] = {&l->q, &l->k, &l->v}, *o = &l->o;
    float *outputs[] = {s->q, s->k, s->v}, *update = s->update + from * g->hidden_size;
    pl_cuda_kv cache = pl_cuda_layout_kv(w->layout, i, g->n_kv_heads, g->head_dim,
                                         w->m->t->layers[i].attention.window);
    pl_cuda_linear_apply(w->m->d, qkv, 3, s->norm, l->attention_rotated, w->n, outputs, s->linear);
    put(w, l, &cache);
    if (from == w->n) return;
    attend(w, &cache, l->o_rotation, from);
    pl_cuda_linear_apply(w->m->d, &o, 1, s->mixed + from * Q, true, w->n - from, &update,
                         s->linear);
}

static void feed_forward_block(const work *w, uint32_t i, size_t from)
{
    pl_cuda_workspace *s = &w->m->w;
    const pl_cuda_layer *l = &w->m->layers[i];
    size_t C = w->m->t->config->hidden_size, rows = w->n - from;
    const pl_cuda_linear *down = &l->down;
    float *update = s->update + from * C;
    pl_cuda_linear_swiglu(w->m->d, &l->gate, &l->up, s->norm + from * C, l->feed_forward_rotated,
                          rows, s->gate, &l->down_rotation, s->linear);
    pl_cuda_linear_apply(w->m->d, &down, 1, s->gate, true, rows, &update, s->linear);
}

/* All layers; norm is then what the head takes, of rows [first, n). */
static void queue_layers(const work *w, size_t first)
{
    pl_cuda_model *m = w->m;
    const pl_config *g = m->t->config;
    pl_cuda_linear_rows(m->d, &m->embedding, w->in.ids, w->n, m->w.x);
    pl_cuda_rope_table(m->d, m->w.cos, m->w.sin, w->in.positions, m->frequencies, g->rope.dims / 2,
                       w->n, m->t->ropes[0].scale);
    for (uint32_t i = 0; i < g->n_layers; i++) {
        const pl_cuda_layer *l = &m->layers[i];
        /* Nobody asks the last layer for more than the rows that get logits. */
        size_t from = i + 1 == g->n_layers ? first : 0;
        norm(w, 0, l->input_norm, i > 0, l->attention_rotated ? &l->attention_rotation : NULL);
        attention_block(w, i, from);
        if (from == w->n) return;
        norm(w, from, l->post_norm, true,
             l->feed_forward_rotated ? &l->feed_forward_rotation : NULL);
        feed_forward_block(w, i, from);
    }
    norm(w, first, m->final_norm, true, m->head_rotated ? &m->head_rotation : NULL);
}

/* Logits of n rows from row `first` on, and where they are largest. */
static void queue_head(pl_cuda_model *m, size_t first, size_t n)
{
    const pl_config *g = m->t->config;
    pl_cuda_linear_apply(m->d, &m->head, 1, m->w.norm + first * g->hidden_size, m->head_rotated, n,
                         &m->w.logits, m->w.linear);
    pl_cuda_argmax(m->d, m->w.best, m->w.logits, g->vocab_size, n, m->w.argmax);
}

/* ---- rows in and out ------------------------------------------------------------------------- */

/* Brings the tables of the pass's caches up to date. Those that grow for one cache are empty for
 * all before it: then all are written once more. */
static pleach_status update_tables(pl_cuda_pages *pages, const pl_pass *p, pl_cuda_layout *layout,
                                   uint32_t *slots, pleach_error *err)
{
    pl_cuda_layout *own;
    size_t size;
    do {
        size = layout->slots * layout->stride;
        for (size_t i = 0; i < (p->apart ? p->n : 1); i++) {
            PL_TRY(pl_cuda_layout_of(pages, p->caches[i], &own, err));
            PL_FAIL_IF(own != layout, err, PLEACH_ERR_ARGUMENT,
                       "sequences of one batch have caches of different types");
            PL_TRY(pl_cuda_layout_update(pages, layout, p->caches[i], &slots[i], err));
        }
    } while (layout->slots * layout->stride != size);
    return PLEACH_OK;
}

/* Fills the host's input, and the tables. */
static pleach_status prepare(work *w, const pl_pass *p, pleach_error *err)
{
    pl_cuda_model *m = w->m;
    input host = input_at(m->w.host_input, p->n);
    uint32_t slots[PL_CUDA_STEP];
    size_t last = 0;
    PL_TRY(pl_cuda_layout_of(&m->pages, p->caches[0], &w->layout, err));
    PL_TRY(update_tables(&m->pages, p, w->layout, slots, err));
    for (size_t i = 0; i < p->n; i++) {
        size_t position = pl_cache_length(p->caches[p->apart ? i : 0]) + (p->apart ? 0 : i);
        host.ids[i] = p->ids[i];
        host.positions[i] = (int32_t)position;
        host.rows[i] = (pl_cuda_row){slots[p->apart ? i : 0], (uint32_t)position};
        last = PL_MAX(last, position);
    }
    w->n = p->n;
    w->length = last + 1;
    w->in = input_at(m->w.input, p->n);
    return PLEACH_OK;
}

static void queue_input(const work *w)
{
    cudaMemcpyAsync(w->m->w.input, w->m->w.host_input, input_bytes(w->n), cudaMemcpyHostToDevice,
                    w->m->d->stream);
}

static void queue_best(const work *w, size_t n)
{
    cudaMemcpyAsync(w->m->w.host_best, w->m->w.best, n * sizeof(int32_t), cudaMemcpyDeviceToHost,
                    w->m->d->stream);
}

/* What was asked for of n rows of logits, from result `at` on. Waits. */
static pleach_status hand_over(const work *w, const pl_pass *p, size_t at, size_t n,
                               pleach_error *err)
{
    pl_cuda_model *m = w->m;
    size_t vocab = m->t->config->vocab_size;
    if (p->logits)
        PL_TRY(pl_cuda_check(cudaMemcpyAsync(p->logits + at * vocab, m->w.logits,
                                             n * vocab * sizeof *p->logits, cudaMemcpyDeviceToHost,
                                             m->d->stream),
                             "copying logits", err));
    PL_TRY(pl_cuda_sync(m->d, err));
    if (p->best) memcpy(p->best + at, m->w.host_best, n * sizeof *p->best);
    return PLEACH_OK;
}

/* ---- tokens of one sequence ------------------------------------------------------------------ */

static pleach_status run_prompt(pl_cuda_model *m, const pl_pass *p, pleach_error *err)
{
    work w = {.m = m};
    size_t first = p->logits || p->best ? PL_MIN(p->first, p->n) : p->n;
    PL_TRY(prepare(&w, p, err));
    w.how = p->n < FEW_ROWS || m->d->batch_invariant ? PL_CUDA_ATTENTION_ROWS
                                                     : PL_CUDA_ATTENTION_TILES;
    queue_input(&w);
    queue_layers(&w, first);
    for (size_t at = first; at < p->n;) {
        size_t n = PL_MIN(p->n - at, m->w.logits_rows);
        queue_head(m, at, n);
        queue_best(&w, n);
        PL_TRY(hand_over(&w, p, at - first, n, err));
        at += n;
    }
    return pl_cuda_sync(m->d, err);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void queue_step(const work *w)
{
    queue_input(w);
    queue_layers(w, 0);
    queue_head(w->m, 0, w->n);
    queue_best(w, w->n);
}

/* Launches overlap inside the graph: each kernel waits for the one before on its own. */
static pleach_status capture(const work *w, cudaGraphExec_t *out, pleach_error *err)
{
    pl_cuda *d = w->m->d;
    cudaGraph_t graph = NULL;
    PL_TRY(pl_cuda_sync(d, err));
    PL_TRY(pl_cuda_check(cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal),
                         "capturing a step", err));
    d->chained = true;
    queue_step(w);
    d->chained = false;
    PL_TRY(pl_cuda_check(cudaStreamEndCapture(d->stream, &graph), "capturing a step", err));
    pleach_status status =
        pl_cuda_check(cudaGraphInstantiate(out, graph, 0), "capturing a step", err);
    cudaGraphDestroy(graph);
    return status;
}

static pleach_status launch(const work *w, pleach_error *err)
{
    bool seen;
    pl_cuda_graph *graph = pl_cuda_layout_graph(w->layout, w->n, w->length, &seen);
    if (!seen) { /* kernels are loaded, too, which a capture must not do */
        queue_step(w);
        return PLEACH_OK;
    }
    if (!graph->exec) PL_TRY(capture(w, &graph->exec, err));
    return pl_cuda_check(cudaGraphLaunch(graph->exec, w->m->d->stream), "launching a step", err);
}

/* One row for each of n <= PL_CUDA_STEP sequences, or of one. */
static pleach_status run_step(pl_cuda_model *m, const pl_pass *p, pleach_error *err)
{
    work w = {.m = m, .how = PL_CUDA_ATTENTION_ROWS};
    PL_TRY(prepare(&w, p, err));
    if (w.n <= MOST_FEW && !m->d->batch_invariant) w.how = PL_CUDA_ATTENTION_FEW;
    w.length = pl_cuda_step_length(w.length);
    PL_TRY(launch(&w, err));
    return hand_over(&w, p, 0, p->n, err);
}

static pleach_status run_steps(pl_cuda_model *m, const pl_pass *p, pleach_error *err)
{
    size_t vocab = m->t->config->vocab_size;
    for (size_t at = 0; at < p->n; at += PL_CUDA_STEP) {
        pl_pass part = *p;
        part.caches += at;
        part.ids += at;
        part.n = PL_MIN(p->n - at, (size_t)PL_CUDA_STEP);
        if (p->logits) part.logits += at * vocab;
        if (p->best) part.best += at;
        PL_TRY(run_step(m, &part, err));
    }
    return PLEACH_OK;
}

pleach_status pl_cuda_model_run(pl_backend *b, void *workspace, const pl_pass *p, pleach_error *err)
{
    pl_cuda_model *m = (pl_cuda_model *)b;
    bool wanted = p->logits || p->best;
    (void)workspace;
    if (p->n == 0) return PLEACH_OK;
    pl_cuda_model_enter(m);
    pleach_status status = !m->w.base
                               ? pl_fail_memory(err, "workspace", m->w.bytes)
                               : p->apart || (p->n == 1 && p->first == 0 && wanted)
                                     ? run_steps(m, p, err)
                                     : run_prompt(m, p, err);
    pl_cuda_model_leave(m);
    if (status != PLEACH_OK) return status;
    for (size_t i = 0; i < (p->apart ? p->n : 1); i++)
        pl_cache_advance(p->caches[i], p->apart ? 1 : p->n);
    return PLEACH_OK;
}
