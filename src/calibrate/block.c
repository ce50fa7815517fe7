/* SPDX-License-Identifier: Apache-2.0
 *
 * A block's weights, and its forward pass. What the tape holds afterwards is block_backward.c's.
 *
 * Letters: C hidden size, D head size, I feed-forward width, Q and K widths of q and of k. */
#include "block.h"

#include <string.h>

#include "base/matrix.h"
#include "base/memory.h"

enum { ROWS_AT_ONCE = 64 };

/* Rows of one weight. */
typedef struct read_job {
    const pl_weight *w;
    float *to;
} read_job;

static void read_unit(void *job, size_t unit, int thread)
{
    const read_job *j = job;
    uint64_t row = unit * ROWS_AT_ONCE;
    (void)thread;
    pl_weight_rows_f32(j->w, row, PL_MIN(j->w->out - row, (uint64_t)ROWS_AT_ONCE),
                       j->to + row * j->w->in);
}

static void read_matrix(const pl_block *b, const pl_weight *w, float *to)
{
    pl_pool_run(b->c->pool, (w->out + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, read_unit,
                &(read_job){w, to});
}

/* The trellis matrices of a block, side by side. */
typedef struct trellis_job {
    const pl_block *b;
    const pl_linear *const *linears;
    pleach_status *status; /* [n] */
    pleach_error *errors;
} trellis_job;

static void read_trellis(void *job, size_t i, int thread)
{
    trellis_job *j = job;
    (void)thread;
    if (j->linears[i]->w.coding == PL_CODING_TRELLIS)
        j->status[i] = pl_weight_dense_f32(&j->linears[i]->w, j->b->weight[i], &j->errors[i]);
}

/* Trellis matrices side by side, others by rows. */
static pleach_status read_weights(const pl_block *b, const pl_linear *const *linears,
                                  pleach_error *err)
{
    trellis_job job = {b, linears, pl_calloc(b->n, sizeof *job.status),
                       pl_calloc(b->n, sizeof *job.errors)};
    pleach_status status = PLEACH_OK;
    if (!job.status || !job.errors)
        status = pl_fail_memory(err, "a block", b->n * sizeof *job.errors);
    if (status == PLEACH_OK) pl_pool_run(b->c->pool, b->n, read_trellis, &job);
    for (size_t i = 0; status == PLEACH_OK && i < b->n; i++) {
        status = job.status[i];
        if (status != PLEACH_OK && err) *err = job.errors[i];
        if (linears[i]->w.coding != PL_CODING_TRELLIS)
            read_matrix(b, &linears[i]->w, b->weight[i]);
    }
    pl_free(job.status);
    pl_free(job.errors);
    return status;
}

/* Room for a matrix in f32. */
static pleach_status make_room(const pl_weight *w, float **to, pleach_error *err)
{
    *to = pl_alloc(w->out * w->in, sizeof **to);
    if (*to) return PLEACH_OK;
    return pl_fail_memory(err, "a block's weights in f32", w->out * w->in * sizeof **to);
}

static pleach_status read_dense(const pl_block *b, const pl_linear *l, float **to,
                                pleach_error *err)
{
    PL_TRY(make_room(&l->w, to, err));
    read_matrix(b, &l->w, *to);
    return PLEACH_OK;
}

static pleach_status read_routers(pl_block *b, pleach_error *err)
{
    const pl_experts_part *x = b->layer->experts;
    if (!x) return PLEACH_OK;
    PL_TRY(read_dense(b, &x->router, &b->router, err));
    return x->has_shared ? read_dense(b, &x->shared_gate, &b->shared_gate, err) : PLEACH_OK;
}

static pleach_status read_block(pl_block *b, const pl_linear **linears, pleach_error *err)
{
    for (size_t i = 0; i < b->n; i++) {
        const pl_weight *w = &linears[i]->w;
        b->out[i] = w->out;
        b->in[i] = w->in;
        b->bias[i] = linears[i]->bias;
        PL_TRY(make_room(w, &b->weight[i], err));
    }
    PL_TRY(read_weights(b, linears, err));
    PL_TRY(read_routers(b, err));
    for (size_t i = 0; i < b->n; i++)
        pl_matrix_hold(b->c->pool, b->weight[i], b->out[i] * b->in[i]);
    b->held = true;
    return PLEACH_OK;
}

pleach_status pl_block_open(pl_block *b, const pl_transformer *t, const pl_compute *c,
                            uint32_t layer, pleach_error *err)
{
    const pl_layer *l = &t->layers[layer];
    size_t n = pl_layer_linears(l, NULL);
    *b = (pl_block){.t = t, .c = c, .layer = l, .n = n};
    const pl_linear **linears = pl_alloc(n, sizeof *linears);
    b->weight = pl_calloc(n, sizeof *b->weight);
    b->bias = pl_calloc(n, sizeof *b->bias);
    b->out = pl_calloc(n, sizeof *b->out);
    b->in = pl_calloc(n, sizeof *b->in);
    pleach_status status = PLEACH_OK;
    if (!linears || !b->weight || !b->bias || !b->out || !b->in)
        status = pl_fail_memory(err, "a block", n * 5 * sizeof *linears);
    if (status == PLEACH_OK) {
        pl_layer_linears(l, linears);
        status = read_block(b, linears, err);
    }
    pl_free((void *)linears);
    if (status != PLEACH_OK) pl_block_close(b);
    return status;
}

void pl_block_close(pl_block *b)
{
    for (size_t i = 0; b->weight && i < b->n; i++) {
        if (b->held) pl_matrix_release(b->c->pool, b->weight[i]);
        pl_free(b->weight[i]);
    }
    pl_free(b->weight);
    pl_free((void *)b->bias);
    pl_free(b->out);
    pl_free(b->in);
    pl_free(b->router);
    pl_free(b->shared_gate);
    *b = (pl_block){0};
}

/* y = W x + bias, or y += that. */
static void apply(const pl_block *b, size_t i, const float *x, size_t n, bool add, float *y)
{
    size_t out = b->out[i];
    pl_matmul(b->c->pool, false, true, n, out, b->in[i], 1, x, b->in[i], b->weight[i], b->in[i],
              add, y, out);
    for (size_t m = 0; b->bias[i] && m < n; m++)
        b->c->kernels.axpy_f32(y + m * out, 1, b->bias[i], out);
}

/* Rows of one step of a block. */
typedef struct rows_job {
    const pl_block *b;
    const pl_tape *tape;
    const float *gain, *from;
    float *to, *raw;
    uint32_t heads;
} rows_job;

static void norm_row(void *job, size_t m, int thread)
{
    const rows_job *j = job;
    const pl_config *g = j->b->t->config;
    size_t at = m * g->hidden_size;
    (void)thread;
    j->b->c->kernels.rms_norm(j->to + at, j->from + at, j->gain, g->hidden_size, g->rms_norm_eps);
}

static void norm(const pl_block *b, const float *gain, const float *x, size_t n, float *y)
{
    pl_pool_run(b->c->pool, n, norm_row, &(rows_job){.b = b, .gain = gain, .from = x, .to = y});
}

static void turn_row(void *job, size_t m, int thread)
{
    const rows_job *j = job;
    const pl_config *g = j->b->t->config;
    const pl_kernels *k = &j->b->c->kernels;
    uint32_t rope = j->b->layer->attention.rope;
    size_t half = j->b->t->ropes[rope].half, width = (size_t)j->heads * g->head_dim;
    const float *cos = j->tape->cos[rope] + m * half, *sin = j->tape->sin[rope] + m * half;
    float *row = j->to + m * width;
    (void)thread;
    if (j->gain) memcpy(j->raw + m * width, row, width * sizeof *row);
    for (uint32_t h = 0; h < j->heads; h++, row += g->head_dim) {
        if (j->gain) k->rms_norm(row, row, j->gain, g->head_dim, g->rms_norm_eps);
        k->rope(row, cos, sin, half);
    }
}

/* Norms (Qwen3) and rotary positions of each head, in place; what the norms met is kept in raw. */
static void turn_heads(const pl_block *b, const pl_tape *tape, float *x, float *raw, uint32_t heads,
                       const float *gain)
{
    rows_job job = {.b = b, .tape = tape, .gain = gain, .to = x, .raw = raw, .heads = heads};
    pl_pool_run(b->c->pool, tape->n, turn_row, &job);
}

static void attend(const pl_block *b, pl_tape *tape)
{
    const pl_config *g = b->t->config;
    tape->attention = (pl_chunk_attention){.c = b->c,
                                           .n_heads = g->n_heads,
                                           .n_kv_heads = g->n_kv_heads,
                                           .head_dim = g->head_dim,
                                           .window = b->layer->attention.window,
                                           .n = tape->n,
                                           .q = tape->q,
                                           .k = tape->k,
                                           .v = tape->v,
                                           .mixed = tape->mixed,
                                           .probabilities = tape->probabilities};
    pl_chunk_attention_forward(&tape->attention);
}

/* The middle of a feed-forward part. */
typedef struct activate_job {
    const pl_mlp_tape *m;
    size_t width;
    pl_gate_fn *act;
} activate_job;

static void activate_row(void *job, size_t row, int thread)
{
    const activate_job *j = job;
    size_t at = row * j->width;
    (void)thread;
    j->act(j->m->act + at, j->m->gate + at, j->m->up + at, j->width);
}

static void activate(const pl_block *b, size_t first, const pl_mlp_tape *m)
{
    const pl_kernels *k = &b->c->kernels;
    bool gelu = b->t->config->activation == PL_ACTIVATION_GELU_TANH;
    activate_job job = {m, b->out[first], gelu ? k->gelu_mul : k->silu_mul};
    apply(b, first, m->x, m->rows, false, m->gate);
    apply(b, first + 1, m->x, m->rows, false, m->up);
    pl_pool_run(b->c->pool, m->rows, activate_row, &job);
}

void pl_mlp_forward(const pl_block *b, size_t first, const pl_mlp_tape *m)
{
    activate(b, first, m);
    apply(b, first + 2, m->act, m->rows, false, m->y);
}

/* The tape's dense feed-forward part, and where each linear layer finds its numbers. */
static void bind_tape(const pl_block *b, pl_tape *tape)
{
    float *gradients[PL_BLOCK_LINEARS] = {tape->d_q,    tape->d_k,  tape->d_v,   tape->d_o,
                                          tape->d_gate, tape->d_up, tape->d_down};
    const float *inputs[PL_BLOCK_LINEARS] = {tape->normed1, tape->normed1, tape->normed1,
                                             tape->mixed,   tape->normed2, tape->normed2,
                                             tape->act};
    for (size_t i = 0; i < PL_MIN(b->n, (size_t)PL_BLOCK_LINEARS); i++) {
        tape->input[i] = inputs[i];
        tape->gradient[i] = gradients[i];
        tape->rows[i] = tape->n;
    }
    tape->mlps[0] = (pl_mlp_tape){.rows = tape->n, .x = tape->normed2, .gate = tape->gate,
                                  .up = tape->up, .act = tape->act};
}

/* y = x + W of the tape's input, by way of a norm where there is one; raw: before it. y is not x. */
static void add_part(const pl_block *b, const pl_tape *tape, size_t i, const float *gain, float *raw,
                     const float *x, float *y)
{
    size_t C = b->t->config->hidden_size, n = tape->n;
    const float *input = pl_tape_input(tape, i);
    if (gain) {
        apply(b, i, input, n, false, raw);
        norm(b, gain, raw, n, y);
        for (size_t m = 0; m < n; m++) b->c->kernels.axpy_f32(y + m * C, 1, x + m * C, C);
    } else {
        memcpy(y, x, n * C * sizeof *y);
        apply(b, i, input, n, true, y);
    }
}

void pl_block_forward(const pl_block *b, pl_tape *tape, const float *x, size_t n, float *y)
{
    const pl_config *g = b->t->config;
    const pl_layer *l = b->layer;
    tape->n = n;
    bind_tape(b, tape);
    memcpy(tape->x, x, n * g->hidden_size * sizeof *x);
    norm(b, l->input_norm, x, n, tape->normed1);
    apply(b, PL_BLOCK_Q, tape->normed1, n, false, tape->q);
    apply(b, PL_BLOCK_K, tape->normed1, n, false, tape->k);
    apply(b, PL_BLOCK_V, tape->normed1, n, false, tape->v);
    turn_heads(b, tape, tape->q, tape->q_raw, g->n_heads, l->attention.q_norm);
    turn_heads(b, tape, tape->k, tape->k_raw, g->n_kv_heads, l->attention.k_norm);
    attend(b, tape);
    add_part(b, tape, PL_BLOCK_O, l->mixed_norm, tape->mixed_raw, tape->x, tape->h);
    norm(b, l->post_norm, tape->h, n, tape->normed2);
    if (l->experts) {
        pl_experts_forward(b, tape, y);
        return;
    }
    activate(b, PL_BLOCK_GATE, &tape->mlps[0]);
    if (y) add_part(b, tape, PL_BLOCK_DOWN, l->fed_norm, tape->fed_raw, tape->h, y);
    else if (l->fed_norm) apply(b, PL_BLOCK_DOWN, tape->act, n, false, tape->fed_raw);
}
