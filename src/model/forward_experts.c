/* SPDX-License-Identifier: Apache-2.0
 *
 * A mixture of experts as the feed-forward part. The tokens of a call are grouped by expert, and
 * each expert's matrices are read once. A token's sum runs over its experts in the order of their
 * numbers, and a row of a product has the same bits in any company: grouping changes nothing. */
#include <string.h>

#include "forward.h"
#include "sigmoid.h"

size_t pl_forward_experts_scratch(const pl_experts_part *x, const pl_compute *c, size_t batch)
{
    const pl_linear *router = &x->router, *gate = &x->shared_gate;
    size_t most = pl_linear_scratch(c, &router, 1, batch);
    for (uint32_t e = 0; e < x->n; e++)
        most = PL_MAX(most, pl_forward_mlp_scratch(&x->experts[e], c, batch));
    if (!x->has_shared) return most;
    most = PL_MAX(most, pl_linear_scratch(c, &gate, 1, batch));
    return PL_MAX(most, pl_forward_mlp_scratch(&x->shared, c, batch));
}

/* Rows of one step; those of an expert are slots of the routes. */
typedef struct rows_job {
    const pl_forward *p;
    const pl_experts_part *x;
    const uint32_t *slots; /* NULL: of the shared expert, all rows */
} rows_job;

static void route_row(void *job, size_t row, int thread)
{
    const rows_job *j = job;
    (void)thread;
    pl_route_token(&j->p->c->kernels, &j->p->w->routes, row, j->x->renormalise);
}

static size_t row_of(const rows_job *j, size_t i)
{
    return j->slots[i] / j->x->used;
}

static void gather_row(void *job, size_t i, int thread)
{
    const rows_job *j = job;
    const pl_workspace *w = j->p->w;
    size_t C = w->t->config->hidden_size;
    (void)thread;
    memcpy(w->gathered + i * C, w->norm + (j->p->from + row_of(j, i)) * C, C * sizeof(float));
}

/* What expert row i adds to its token. */
static void add_row(void *job, size_t i, int thread)
{
    const rows_job *j = job;
    const pl_workspace *w = j->p->w;
    size_t C = w->t->config->hidden_size, row = j->slots ? row_of(j, i) : i;
    float weight = j->slots ? w->routes.weight[j->slots[i]] : pl_sigmoid(w->shared_gate[i]);
    (void)thread;
    j->p->c->kernels.axpy_f32(w->update + (j->p->from + row) * C, weight, w->expert_out + i * C, C);
}

static void run_rows(const pl_forward *p, size_t rows, size_t width, pl_pool_fn *fn, rows_job *j)
{
    pl_pool_run_on(p->c->pool, pl_compute_threads(p->c, 10 * rows * width), rows, fn, j);
}

/* expert_out = m(x) for n rows. */
static void run_mlp(const pl_forward *p, const pl_mlp_part *m, const float *x, size_t n)
{
    pl_workspace *w = p->w;
    const pl_linear *down = &m->down;
    pl_linear_gated(p->c, &m->gate, &m->up, pl_activation_kernel(p), x, n, w->gate, w->up,
                    w->linear);
    pl_linear_apply(p->c, &down, 1, w->gate, n, &w->expert_out, w->linear);
}

static void run_expert(const pl_forward *p, const pl_experts_part *x, uint32_t e)
{
    pl_workspace *w = p->w;
    const pl_routes *r = &w->routes;
    size_t C = w->t->config->hidden_size, n = r->first[e + 1] - r->first[e];
    rows_job job = {p, x, r->member + r->first[e]};
    const float *from = w->norm + p->from * C;
    if (n == 0) return;
    if (n < p->n - p->from) {
        run_rows(p, n, C, gather_row, &job);
        from = w->gathered;
    }
    run_mlp(p, &x->experts[e], from, n);
    run_rows(p, n, C, add_row, &job);
}

static void run_shared(const pl_forward *p, const pl_experts_part *x)
{
    pl_workspace *w = p->w;
    size_t C = w->t->config->hidden_size, rows = p->n - p->from;
    const float *from = w->norm + p->from * C;
    const pl_linear *gate = &x->shared_gate;
    rows_job job = {p, x, NULL};
    pl_linear_apply(p->c, &gate, 1, from, rows, &w->shared_gate, w->linear);
    run_mlp(p, &x->shared, from, rows);
    run_rows(p, rows, C, add_row, &job);
}

void pl_forward_experts(pl_forward *p, const pl_experts_part *x)
{
    pl_workspace *w = p->w;
    size_t C = w->t->config->hidden_size, rows = p->n - p->from;
    const pl_linear *router = &x->router;
    rows_job job = {p, x, NULL};
    pl_linear_apply(p->c, &router, 1, w->norm + p->from * C, rows, &w->routes.scores, w->linear);
    run_rows(p, rows, x->n, route_row, &job);
    pl_routes_group(&w->routes, rows);
    memset(w->update + p->from * C, 0, rows * C * sizeof(float));
    for (uint32_t e = 0; e < x->n; e++) run_expert(p, x, e);
    if (x->has_shared) run_shared(p, x);
}
