/* SPDX-License-Identifier: Apache-2.0
 *
 * The backward pass of a block, from what its forward pass left on the tape.
 *
 * Letters: C hidden size, D head size, I feed-forward width, Q and K widths of q and of k. */
#include <string.h>

#include "base/matrix.h"
#include "block.h"
#include "derivatives.h"

/* Gradient by the input of linear layer i from that by its output, set or added to. */
static void pull(const pl_block *b, const pl_tape *tape, size_t i, bool add, float *dx)
{
    pl_matmul(b->c->pool, false, false, tape->rows[i], b->in[i], b->out[i], 1, tape->gradient[i],
              b->out[i], b->weight[i], b->in[i], add, dx, b->in[i]);
}

/* Tokens of one step. */
typedef struct rows_job {
    const pl_block *b;
    const pl_tape *tape;
    const float *gain, *x, *dy;
    float *d, *sum;
    uint32_t heads;
} rows_job;

static void norm_gradient_row(void *job, size_t m, int thread)
{
    const rows_job *j = job;
    const pl_config *g = j->b->t->config;
    size_t C = g->hidden_size;
    const float *dy = j->dy + m * C;
    float *row = j->d + m * C, *sum = j->sum + m * C;
    (void)thread;
    pl_rms_norm_gradient(&j->b->c->kernels, row, j->x + m * C, j->gain, row, C, g->rms_norm_eps);
    for (size_t i = 0; i < C; i++) sum[i] = dy[i] + row[i];
}

/* sum = dy + gradient by the norm's input x; dnormed, that by its output, is destroyed. */
static void norm_gradient(const pl_block *b, const pl_tape *tape, const float *gain, const float *x,
                          float *dnormed, const float *dy, float *sum)
{
    rows_job job = {.b = b, .tape = tape, .gain = gain, .x = x, .dy = dy, .d = dnormed, .sum = sum};
    pl_pool_run(b->c->pool, tape->n, norm_gradient_row, &job);
}

static void post_norm_gradient_row(void *job, size_t m, int thread)
{
    const rows_job *j = job;
    const pl_config *g = j->b->t->config;
    size_t C = g->hidden_size, at = m * C;
    (void)thread;
    if (j->gain)
        pl_rms_norm_gradient(&j->b->c->kernels, j->d + at, j->x + at, j->gain, j->dy + at, C,
                             g->rms_norm_eps);
    else if (j->d != j->dy) memcpy(j->d + at, j->dy + at, C * sizeof *j->d);
}

/* d, by the output of a linear layer that adds to the stream, from dy, by the stream: the same
 * unless a norm with input `raw` lies between. */
static void post_norm_gradient(const pl_block *b, const pl_tape *tape, const float *gain,
                               const float *raw, const float *dy, float *d)
{
    rows_job job = {.b = b, .tape = tape, .gain = gain, .x = raw, .dy = dy, .d = d};
    pl_pool_run(b->c->pool, tape->n, post_norm_gradient_row, &job);
}

/* The middle of a feed-forward part. */
typedef struct activate_job {
    const pl_mlp_tape *m;
    float *d_gate, *d_up;
    const float *d_act;
    size_t width;
    pl_gate_gradient_fn *act;
} activate_job;

static void activate_gradient_row(void *job, size_t row, int thread)
{
    const activate_job *j = job;
    size_t at = row * j->width;
    (void)thread;
    j->act(j->d_gate + at, j->d_up + at, j->m->gate + at, j->m->up + at, j->d_act + at, j->width);
}

void pl_mlp_backward(const pl_block *b, const pl_tape *tape, size_t first, const pl_mlp_tape *m,
                     float *scratch, float *dx)
{
    const pl_kernels *k = &b->c->kernels;
    bool gelu = b->t->config->activation == PL_ACTIVATION_GELU_TANH;
    activate_job job = {m, tape->gradient[first], tape->gradient[first + 1], scratch,
                        b->out[first], gelu ? k->gelu_gradient : k->silu_gradient};
    pull(b, tape, first + 2, false, scratch);
    pl_pool_run(b->c->pool, m->rows, activate_gradient_row, &job);
    pull(b, tape, first, false, dx);
    pull(b, tape, first + 1, true, dx);
}

/* From dy to tape->scratch, the gradient by normed2. */
static void feed_forward_gradient(const pl_block *b, pl_tape *tape, const float *dy)
{
    const pl_layer *l = b->layer;
    if (l->experts) {
        pl_experts_backward(b, tape, dy);
        return;
    }
    post_norm_gradient(b, tape, l->fed_norm, tape->fed_raw, dy, tape->gradient[PL_BLOCK_DOWN]);
    pl_mlp_backward(b, tape, PL_BLOCK_GATE, &tape->mlps[0], tape->scratch, tape->scratch);
}

static void turn_back_row(void *job, size_t m, int thread)
{
    const rows_job *j = job;
    const pl_config *g = j->b->t->config;
    const pl_kernels *k = &j->b->c->kernels;
    uint32_t rope = j->b->layer->attention.rope;
    size_t D = g->head_dim, half = j->b->t->ropes[rope].half;
    const float *cos = j->tape->cos[rope] + m * half;
    const float *minus_sin = j->tape->minus_sin[rope] + m * half;
    (void)thread;
    for (uint32_t h = 0; h < j->heads; h++) {
        size_t at = (m * j->heads + h) * D;
        k->rope(j->d + at, cos, minus_sin, half);
        if (j->gain)
            pl_rms_norm_gradient(k, j->d + at, j->x + at, j->gain, j->d + at, D, g->rms_norm_eps);
    }
}

/* Undoes turn_heads of block.c: d, the gradient by turned heads, becomes that by raw ones. */
static void turn_back(const pl_block *b, const pl_tape *tape, float *d, const float *raw,
                      uint32_t heads, const float *gain)
{
    rows_job job = {.b = b, .tape = tape, .gain = gain, .x = raw, .d = d, .heads = heads};
    pl_pool_run(b->c->pool, tape->n, turn_back_row, &job);
}

static void attention_gradient(const pl_block *b, const pl_tape *tape)
{
    const pl_config *g = b->t->config;
    float *dq = tape->gradient[PL_BLOCK_Q], *dk = tape->gradient[PL_BLOCK_K];
    pull(b, tape, PL_BLOCK_O, false, tape->scratch);
    pl_chunk_attention_backward(&tape->attention, tape->scratch, dq, dk,
                                tape->gradient[PL_BLOCK_V]);
    turn_back(b, tape, dq, tape->q_raw, g->n_heads, b->layer->attention.q_norm);
    turn_back(b, tape, dk, tape->k_raw, g->n_kv_heads, b->layer->attention.k_norm);
}

void pl_block_backward(const pl_block *b, pl_tape *tape, const float *dy, float *dx)
{
    const pl_layer *l = b->layer;
    float *d_o = tape->gradient[PL_BLOCK_O], *dh = tape->dh ? tape->dh : d_o;
    feed_forward_gradient(b, tape, dy);
    norm_gradient(b, tape, l->post_norm, tape->h, tape->scratch, dy, dh);
    post_norm_gradient(b, tape, l->mixed_norm, tape->mixed_raw, dh, d_o);
    attention_gradient(b, tape);
    if (!dx) return;
    pull(b, tape, PL_BLOCK_Q, false, tape->scratch);
    pull(b, tape, PL_BLOCK_K, true, tape->scratch);
    pull(b, tape, PL_BLOCK_V, true, tape->scratch);
    norm_gradient(b, tape, l->input_norm, tape->x, tape->scratch, dh, dx);
}
