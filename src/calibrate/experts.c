/* SPDX-License-Identifier: Apache-2.0
 *
 * A mixture of experts forward and backward, each expert over the tokens that are routed to it. The
 * choice of experts is taken as given: gradients go through the weights of those chosen.
 *
 *   y = h + sum_e w_e mlp_e(x) + sigmoid(g x) mlp_shared(x)    w by pl_route_token
 *
 * Letters: C hidden size, E experts, U experts of a token. */
#include <string.h>

#include "base/matrix.h"
#include "block.h"
#include "model/sigmoid.h"

/* Tokens or rows of one step. */
typedef struct experts_job {
    const pl_block *b;
    pl_tape *tape;
    const pl_experts_part *x;
    const float *dy;
    float *y;
} experts_job;

static size_t width(const experts_job *j) { return j->b->t->config->hidden_size; }

/* The shared expert's part of the tape comes last. */
static pl_mlp_tape *shared_of(const experts_job *j) { return &j->tape->mlps[j->x->n]; }

static size_t first_linear(size_t e) { return PL_BLOCK_GATE + 3 * e; }

/* ---- forward --------------------------------------------------------------------------------- */

static void route(void *job, size_t m, int thread)
{
    const experts_job *j = job;
    (void)thread;
    pl_route_token(&j->b->c->kernels, &j->tape->routes, m, j->x->renormalise);
}

static void gather(void *job, size_t at, int thread)
{
    const experts_job *j = job;
    const pl_tape *tape = j->tape;
    size_t C = width(j), slot = tape->routes.member[at];
    (void)thread;
    tape->place[slot] = (uint32_t)at;
    memcpy(tape->routed + at * C, tape->normed2 + slot / j->x->used * C, C * sizeof(float));
}

/* Expert e's slices of what the tape holds for all. Those of the shared one follow. */
static void cut_tape(const experts_job *j, size_t e)
{
    pl_tape *tape = j->tape;
    const pl_routes *r = &tape->routes;
    bool shared = e == j->x->n;
    size_t C = width(j), routed = tape->n * j->x->used, first = shared ? routed : r->first[e];
    size_t i = first_linear(e), I = j->b->out[i], own = j->b->out[PL_BLOCK_GATE];
    size_t at = shared ? routed * own : first * I;
    pl_mlp_tape *m = &tape->mlps[e];
    *m = (pl_mlp_tape){.rows = shared ? tape->n : r->first[e + 1] - first,
                       .x = shared ? tape->normed2 : tape->routed + first * C,
                       .gate = tape->gate + at, .up = tape->up + at, .act = tape->act + at,
                       .y = tape->expert_y + first * C};
    tape->input[i] = tape->input[i + 1] = m->x;
    tape->input[i + 2] = m->act;
    for (size_t k = 0; k < 3; k++) tape->rows[i + k] = m->rows;
    if (!tape->expert_d_y) return;
    m->d_y = tape->expert_d_y + first * C;
    m->d_x = tape->expert_d_x + first * C;
    tape->gradient[i] = tape->d_gate + at;
    tape->gradient[i + 1] = tape->d_up + at;
    tape->gradient[i + 2] = m->d_y;
}

/* In the order of the experts' numbers. */
static void add_experts(void *job, size_t m, int thread)
{
    const experts_job *j = job;
    const pl_tape *tape = j->tape;
    const pl_kernels *k = &j->b->c->kernels;
    size_t C = width(j), U = j->x->used;
    float *y = j->y + m * C;
    (void)thread;
    memcpy(y, tape->h + m * C, C * sizeof *y);
    for (size_t slot = m * U; slot < (m + 1) * U; slot++)
        k->axpy_f32(y, tape->routes.weight[slot], tape->expert_y + tape->place[slot] * C, C);
    if (j->x->has_shared)
        k->axpy_f32(y, pl_sigmoid(tape->shared_score[m]), shared_of(j)->y + m * C, C);
}

void pl_experts_forward(const pl_block *b, pl_tape *tape, float *y)
{
    const pl_experts_part *x = b->layer->experts;
    experts_job job = {.b = b, .tape = tape, .x = x, .y = y};
    size_t C = width(&job), E = x->n, n = tape->n, all = E + x->has_shared;
    pl_matmul(b->c->pool, false, true, n, E, C, 1, tape->normed2, C, b->router, C, false,
              tape->routes.scores, E);
    pl_pool_run(b->c->pool, n, route, &job);
    pl_routes_group(&tape->routes, n);
    pl_pool_run(b->c->pool, n * x->used, gather, &job);
    if (x->has_shared)
        pl_matmul(b->c->pool, false, true, n, 1, C, 1, tape->normed2, C, b->shared_gate, C, false,
                  tape->shared_score, 1);
    for (size_t e = 0; e < all; e++) {
        cut_tape(&job, e);
        if (tape->mlps[e].rows) pl_mlp_forward(b, first_linear(e), &tape->mlps[e]);
    }
    if (y) pl_pool_run(b->c->pool, n, add_experts, &job);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Gradients by the experts' results and by the scores of the router, of one token. With the softmax p
 * of scores s and d_e the gradient by w_e: d_s = p (d_p - sum p d_p); where weights are divided by
 * their sum that is w (d - sum w d) for those chosen and 0 for others. */
static void spread(void *job, size_t m, int thread)
{
    const experts_job *j = job;
    pl_tape *tape = j->tape;
    const pl_routes *r = &tape->routes;
    const pl_kernels *k = &j->b->c->kernels;
    size_t C = width(j), U = j->x->used, E = j->x->n;
    const float *dy = j->dy + m * C, *p = r->scores + m * E;
    float *d_s = tape->d_scores + m * E, along = 0;
    (void)thread;
    memset(d_s, 0, E * sizeof *d_s);
    for (size_t slot = m * U; slot < (m + 1) * U; slot++) {
        size_t at = tape->place[slot] * C;
        float w = r->weight[slot], d_w = k->dot_f32(dy, tape->expert_y + at, C);
        for (size_t i = 0; i < C; i++) tape->expert_d_y[at + i] = w * dy[i];
        d_s[r->expert[slot]] = d_w;
        along += w * d_w;
    }
    for (size_t slot = m * U; slot < (m + 1) * U && j->x->renormalise; slot++)
        d_s[r->expert[slot]] = r->weight[slot] * (d_s[r->expert[slot]] - along);
    for (size_t e = 0; e < E && !j->x->renormalise; e++) d_s[e] = p[e] * (d_s[e] - along);
    if (!j->x->has_shared) return;
    const pl_mlp_tape *shared = shared_of(j);
    float s = pl_sigmoid(tape->shared_score[m]);
    tape->d_shared[m] = s * (1 - s) * k->dot_f32(dy, shared->y + m * C, C);
    for (size_t i = 0; i < C; i++) shared->d_y[m * C + i] = s * dy[i];
}

/* scratch += what comes back from the experts of a token. */
static void collect(void *job, size_t m, int thread)
{
    const experts_job *j = job;
    const pl_tape *tape = j->tape;
    const pl_kernels *k = &j->b->c->kernels;
    size_t C = width(j), U = j->x->used;
    float *d = tape->scratch + m * C;
    (void)thread;
    for (size_t slot = m * U; slot < (m + 1) * U; slot++)
        k->axpy_f32(d, 1, tape->expert_d_x + tape->place[slot] * C, C);
    if (!j->x->has_shared) return;
    k->axpy_f32(d, 1, shared_of(j)->d_x + m * C, C);
    k->axpy_f32(d, tape->d_shared[m], j->b->shared_gate, C);
}

void pl_experts_backward(const pl_block *b, pl_tape *tape, const float *dy)
{
    const pl_experts_part *x = b->layer->experts;
    experts_job job = {.b = b, .tape = tape, .x = x, .dy = dy};
    size_t C = width(&job), E = x->n, n = tape->n, all = E + x->has_shared;
    pl_pool_run(b->c->pool, n, spread, &job);
    for (size_t e = 0; e < all; e++) {
        const pl_mlp_tape *m = &tape->mlps[e];
        if (m->rows) pl_mlp_backward(b, tape, first_linear(e), m, tape->scratch, m->d_x);
    }
    pl_matmul(b->c->pool, false, false, n, C, E, 1, tape->d_scores, E, b->router, C, false,
              tape->scratch, C);
    pl_pool_run(b->c->pool, n, collect, &job);
}
