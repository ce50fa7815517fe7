/* SPDX-License-Identifier: Apache-2.0
 *
 * Applying a group of linear layers to one input: activations are rotated and rounded once per
 * need, the units of all layers are shared out among the threads in one go, results are finished.
 * With few activation rows the first and last step are too short to be worth waking threads for. */
#include <assert.h>
#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "linear_task.h"

enum { PARALLEL_ROWS = 8 }; /* fewer activation rows are prepared by the caller's thread alone */

/* ---- the plan -------------------------------------------------------------------------------- */

/* Hands out pieces of a buffer, or with base NULL only adds up what is needed. */
typedef struct cursor {
    uint8_t *base;
    size_t used;
} cursor;

static void *take(cursor *at, size_t bytes)
{
    void *p = at->base ? at->base + at->used : NULL;
    at->used += (bytes + PL_ALIGNMENT - 1) / PL_ALIGNMENT * PL_ALIGNMENT;
    return p;
}

static bool same_rotation(const pl_rotation *a, const pl_rotation *b)
{
    return a->block == b->block && a->seed == b->seed;
}

/* The input of task i: the caller's, an earlier task's rotated one, or its own. */
static void plan_input(pl_linear_task *tasks, size_t i, const float *x, cursor *at)
{
    pl_linear_task *t = &tasks[i];
    const pl_weight *w = &t->l->w;
    t->x = x;
    if (!w->rotate_in.block) return;
    for (size_t j = 0; j < i; j++)
        if (same_rotation(&tasks[j].l->w.rotate_in, &w->rotate_in)) {
            t->x = tasks[j].x;
            return;
        }
    t->x = t->rotated = take(at, t->M * w->in * sizeof *x);
}

static void plan_task(const pl_compute *c, pl_linear_task *t, cursor *at)
{
    const pleach_trellis *g = &t->l->w.trellis;
    pl_linear_task_shape(c, t);
    if (pl_linear_task_is_integer(c, t->l)) {
        t->q = take(at, t->rows * t->q_stride * sizeof *t->q);
        t->steps = take(at, t->rows * t->groups * sizeof *t->steps);
        if (g->axis) t->prepared = take(at, pl_linear_task_tiles(t) * t->prepared_stride);
    }
    if (pl_linear_float_is(c, t->l)) t->floats = take(at, t->M * t->float_bytes);
    if (t->splits && t->M <= PL_NARROW)
        t->partials = take(at, t->splits * t->rows * g->cols * sizeof *t->partials);
}

typedef struct plan {
    const pl_compute *c;
    const float *x;
    pl_linear_task tasks[PL_LINEAR_GROUP];
    size_t n, M, units, weights, own_bytes; /* own: scratch of each thread */
    uint8_t *own;
} plan;

/* Returns the bytes of scratch it takes. */
static size_t make_plan(const pl_compute *c, const pl_linear *const *layers, size_t n,
                        const float *x, size_t M, float *const *y, void *scratch, plan *p)
{
    cursor at = {.base = scratch};
    assert(n <= PL_LINEAR_GROUP);
    *p = (plan){.c = c, .x = x, .n = n, .M = M};
    for (size_t i = 0; i < n; i++) {
        p->tasks[i] = (pl_linear_task){.l = layers[i], .M = M, .y = y ? y[i] : NULL};
        plan_input(p->tasks, i, x, &at);
        plan_task(c, &p->tasks[i], &at);
        p->units += p->tasks[i].units;
        p->weights += layers[i]->w.out * layers[i]->w.in;
        p->own_bytes = PL_MAX(p->own_bytes, pl_linear_task_scratch(c, &p->tasks[i]));
    }
    p->own_bytes = (p->own_bytes + PL_ALIGNMENT - 1) / PL_ALIGNMENT * PL_ALIGNMENT;
    p->own = take(&at, p->own_bytes * (size_t)pl_pool_threads(c->pool));
    return at.used;
}

size_t pl_linear_scratch(const pl_compute *c, const pl_linear *const *layers, size_t n, size_t M)
{
    plan p;
    size_t all = make_plan(c, layers, n, NULL, M, NULL, NULL, &p);
    /* Partial sums exist for few rows alone, so a smaller M can need more. */
    size_t narrow = make_plan(c, layers, n, NULL, PL_MIN(M, PL_NARROW), NULL, NULL, &p);
    return PL_MAX(all, narrow);
}

/* ---- the steps ------------------------------------------------------------------------------- */

static void prepare_row(void *plan_, size_t m, int thread)
{
    const plan *p = plan_;
    (void)thread;
    for (size_t i = 0; i < p->n; i++) {
        const pl_linear_task *t = &p->tasks[i];
        const pl_weight *w = &t->l->w;
        if (t->rotated) {
            float *to = t->rotated + m * w->in;
            memcpy(to, p->x + m * w->in, w->in * sizeof *to);
            p->c->kernels.rotate(to, t->l->input_signs, w->in, w->rotate_in.block);
        }
        if (t->q || t->floats) pl_linear_task_quantize(p->c, t, m);
    }
}

/* Axis 1 wants its activations rearranged, 64 rows at a time. */
static void prepare_tile(void *plan_, size_t tile, int thread)
{
    const plan *p = plan_;
    (void)thread;
    for (size_t i = 0; i < p->n; i++) {
        const pl_linear_task *t = &p->tasks[i];
        if (t->prepared && tile < pl_linear_task_tiles(t)) pl_linear_task_prepare(p->c, t, tile);
    }
}

static void run_unit(void *plan_, size_t unit, int thread)
{
    const plan *p = plan_;
    const pl_linear_task *t = p->tasks;
    for (; unit >= t->units; t++) unit -= t->units;
    pl_linear_task_run(p->c, t, unit, p->own + (size_t)thread * p->own_bytes);
}

static void finish_row(void *plan_, size_t m, int thread)
{
    const plan *p = plan_;
    (void)thread;
    for (size_t i = 0; i < p->n; i++) pl_linear_task_finish(p->c, &p->tasks[i], m);
}

void pl_linear_apply(const pl_compute *c, const pl_linear *const *layers, size_t n, const float *x,
                     size_t M, float *const *y, void *scratch)
{
    plan p;
    make_plan(c, layers, n, x, M, y, scratch, &p);
    size_t tiles = 0;
    for (size_t i = 0; i < n; i++) tiles = PL_MAX(tiles, pl_linear_task_tiles(&p.tasks[i]));
    int threads = pl_compute_threads(c, p.weights * M), few = M >= PARALLEL_ROWS ? threads : 1;
    pl_pool_run_on(c->pool, few, M, prepare_row, &p);
    pl_pool_run_on(c->pool, few, tiles, prepare_tile, &p);
    pl_pool_run_on(c->pool, threads, p.units, run_unit, &p);
    pl_pool_run_on(c->pool, few, M, finish_row, &p);
}
