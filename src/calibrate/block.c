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

/* The trellis matrices of a block, side by side. */
typedef struct trellis_job {
    const pl_block *b;
    const pl_linear *const *linears;
    pleach_status status[PL_BLOCK_LINEARS];
    pleach_error errors[PL_BLOCK_LINEARS];
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
    trellis_job job = {.b = b, .linears = linears};
    pl_pool_run(b->c->pool, PL_BLOCK_LINEARS, read_trellis, &job);
    for (int i = 0; i < PL_BLOCK_LINEARS; i++) {
        const pl_weight *w = &linears[i]->w;
        if (job.status[i] != PLEACH_OK) {
            if (err) *err = job.errors[i];
            return job.status[i];
        }
        if (w->coding != PL_CODING_TRELLIS)
            pl_pool_run(b->c->pool, (w->out + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, read_unit,
                        &(read_job){w, b->weight[i]});
    }
    return PLEACH_OK;
}

pleach_status pl_block_open(pl_block *b, const pl_transformer *t, const pl_compute *c,
                            uint32_t layer, pleach_error *err)
{
    const pl_layer *l = &t->layers[layer];
    const pl_linear *linears[PL_BLOCK_LINEARS];
    pleach_status status = PLEACH_OK;
    pl_layer_linears(l, linears);
    *b = (pl_block){.t = t, .c = c, .layer = l};
    for (int i = 0; i < PL_BLOCK_LINEARS && status == PLEACH_OK; i++) {
        const pl_weight *w = &linears[i]->w;
        b->out[i] = w->out;
        b->in[i] = w->in;
        b->bias[i] = linears[i]->bias;
        b->weight[i] = pl_alloc(w->out * w->in, sizeof(float));
        if (!b->weight[i])
            status = pl_fail_memory(err, "a block's weights in f32",
                                    w->out * w->in * sizeof(float));
    }
    if (status == PLEACH_OK) status = read_weights(b, linears, err);
    if (status != PLEACH_OK) pl_block_close(b);
    for (int i = 0; i < PL_BLOCK_LINEARS && status == PLEACH_OK; i++)
        pl_matrix_hold(c->pool, b->weight[i], b->out[i] * b->in[i]);
    return status;
}

void pl_block_close(pl_block *b)
{
    for (int i = 0; i < PL_BLOCK_LINEARS; i++) {
        if (b->weight[i]) pl_matrix_release(b->c->pool, b->weight[i]);
        pl_free(b->weight[i]);
    }
    *b = (pl_block){0};
}

/* y = W x + bias, or y += that. */
static void apply(const pl_block *b, int i, const float *x, size_t n, bool add, float *y)
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

static void activate_row(void *job, size_t m, int thread)
{
    const rows_job *j = job;
    const pl_tape *tape = j->tape;
    size_t I = j->b->t->config->intermediate_size, at = m * I;
    (void)thread;
    const pl_kernels *k = &j->b->c->kernels;
    bool gelu = j->b->t->config->activation == PL_ACTIVATION_GELU_TANH;
    pl_gate_fn *act = gelu ? k->gelu_mul : k->silu_mul;
    act(tape->act + at, tape->gate + at, tape->up + at, I);
}

/* y = x + W of the tape's input, by way of a norm where there is one; raw: before it. y is not x. */
static void add_part(const pl_block *b, const pl_tape *tape, int i, const float *gain, float *raw,
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
    apply(b, PL_BLOCK_GATE, tape->normed2, n, false, tape->gate);
    apply(b, PL_BLOCK_UP, tape->normed2, n, false, tape->up);
    pl_pool_run(b->c->pool, n, activate_row, &(rows_job){.b = b, .tape = tape});
    if (y) add_part(b, tape, PL_BLOCK_DOWN, l->fed_norm, tape->fed_raw, tape->h, y);
    else if (l->fed_norm) apply(b, PL_BLOCK_DOWN, tape->act, n, false, tape->fed_raw);
}
