/* SPDX-License-Identifier: Apache-2.0
 *
 * Applying a group of linear layers to one input: activations are rotated and rounded once per
 * need, the units of all layers are shared out among the threads in one go, results are finished.
 * With few activation rows the first step is too short to be worth waking threads for, and the last
 * is done in pieces of columns, each by the thread that computed its last unit. */
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "linear_task.h"

enum {
    PARALLEL_ROWS = 8, /* fewer activation rows are prepared by the caller's thread alone */
    PIECE = 512        /* least columns that are finished together; a power of two */
};

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
        if (t->prepared_stride) t->prepared = take(at, pl_linear_task_tiles(t) * t->prepared_stride);
    }
    if (pl_linear_float_is(c, t->l)) t->floats = take(at, t->M * t->float_bytes);
    if (t->splits && t->M <= PL_NARROW)
        t->partials = take(at, t->splits * t->rows * g->cols * sizeof *t->partials);
}

/* A layer's columns in pieces, and the units that each still waits for. */
typedef struct pieces {
    size_t width, n;
    atomic_uint *left;
} pieces;

typedef struct plan {
    const pl_compute *c;
    const float *x;
    pl_linear_task tasks[PL_LINEAR_GROUP];
    size_t n, M, units, weights, own_bytes; /* own: scratch of each thread */
    uint8_t *own;
    pl_gate_fn *act; /* two tasks, gate and up, that share their pieces; or NULL */
    pieces pieces[PL_LINEAR_GROUP];
} plan;

/* Pieces of columns that fit the output rotations of tasks i to i + n - 1: powers of two. */
static void plan_pieces(plan *p, size_t i, size_t n, cursor *at)
{
    size_t out = p->tasks[i].l->w.out;
    pieces whole = {.width = PIECE};
    for (size_t j = i; j < i + n; j++)
        whole.width = PL_MAX(whole.width, p->tasks[j].l->w.rotate_out.block);
    whole.n = (out + whole.width - 1) / whole.width;
    whole.left = take(at, whole.n * sizeof *whole.left);
    for (size_t j = i; j < i + n; j++) p->pieces[j] = whole;
}

/* Returns the bytes of scratch it takes. */
static size_t make_plan(const pl_compute *c, const pl_linear *const *layers, size_t n,
                        const float *x, size_t M, float *const *y, pl_gate_fn *act, void *scratch,
                        plan *p)
{
    cursor at = {.base = scratch};
    assert(n <= PL_LINEAR_GROUP);
    *p = (plan){.c = c, .x = x, .n = n, .M = M, .act = act};
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
    if (act)
        plan_pieces(p, 0, 2, &at);
    else
        for (size_t i = 0; i < n; i++) plan_pieces(p, i, 1, &at);
    return at.used;
}

size_t pl_linear_scratch(const pl_compute *c, const pl_linear *const *layers, size_t n, size_t M)
{
    plan p;
    size_t all = make_plan(c, layers, n, NULL, M, NULL, NULL, NULL, &p);
    /* Partial sums exist for few rows alone, so a smaller M can need more. */
    size_t narrow = make_plan(c, layers, n, NULL, PL_MIN(M, PL_NARROW), NULL, NULL, NULL, &p);
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

/* Columns [first, first + n) of row m of layer i, or of gate and up together. */
static void finish(const plan *p, size_t i, size_t m, size_t first, size_t n)
{
    const pl_linear_task *t = &p->tasks[i], *up = &p->tasks[1];
    pl_linear_task_finish(p->c, t, m, first, n);
    if (!p->act) return;
    float *y = t->y + m * t->l->w.out + first;
    pl_linear_task_finish(p->c, up, m, first, n);
    p->act(y, y, up->y + m * up->l->w.out + first, n);
}

static void finish_row(void *plan_, size_t m, int thread)
{
    const plan *p = plan_;
    (void)thread;
    for (size_t i = 0; i < (p->act ? 1 : p->n); i++)
        finish(p, i, m, 0, p->tasks[i].l->w.out);
}

/* Every piece waits for all units that touch its columns. */
static void count_units(const plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const pl_linear_task *t = &p->tasks[i];
        const pieces *s = &p->pieces[i];
        for (size_t j = 0; j < s->n; j++) {
            size_t end = PL_MIN((j + 1) * s->width, t->l->w.out);
            size_t units = (end + t->width - 1) / t->width - j * s->width / t->width;
            unsigned before = p->act && i == 1 ? atomic_load(&s->left[j]) : 0;
            atomic_init(&s->left[j], before + (unsigned)(units * (t->units / t->across)));
        }
    }
}

/* Unit u of layer i is done: finishes the pieces that waited for nothing else. */
static void count_down(const plan *p, size_t i, size_t u)
{
    const pl_linear_task *t = &p->tasks[i];
    const pieces *s = &p->pieces[i];
    size_t out = t->l->w.out, at = u % t->across * t->width, end = PL_MIN(at + t->width, out);
    for (size_t j = at / s->width; j * s->width < end; j++) {
        size_t first = j * s->width;
        if (atomic_fetch_sub(&s->left[j], 1) > 1) continue;
        for (size_t m = 0; m < p->M; m++)
            finish(p, p->act ? 0 : i, m, first, PL_MIN(s->width, out - first));
    }
}

static void run_unit(void *plan_, size_t unit, int thread)
{
    const plan *p = plan_;
    size_t i = 0;
    for (; unit >= p->tasks[i].units; i++) unit -= p->tasks[i].units;
    pl_linear_task_run(p->c, &p->tasks[i], unit, p->own + (size_t)thread * p->own_bytes);
    if (p->M < PARALLEL_ROWS) count_down(p, i, unit);
}

static void run_plan(plan *p)
{
    const pl_compute *c = p->c;
    size_t tiles = 0;
    for (size_t i = 0; i < p->n; i++) tiles = PL_MAX(tiles, pl_linear_task_tiles(&p->tasks[i]));
    bool few = p->M < PARALLEL_ROWS;
    int threads = pl_compute_threads(c, p->weights * p->M), by_row = few ? 1 : threads;
    pl_pool_run_on(c->pool, by_row, p->M, prepare_row, p);
    pl_pool_run_on(c->pool, by_row, tiles, prepare_tile, p);
    if (few) count_units(p);
    pl_pool_run_on(c->pool, threads, p->units, run_unit, p);
    if (!few) pl_pool_run_on(c->pool, threads, p->M, finish_row, p);
}

void pl_linear_apply(const pl_compute *c, const pl_linear *const *layers, size_t n, const float *x,
                     size_t M, float *const *y, void *scratch)
{
    plan p;
    make_plan(c, layers, n, x, M, y, NULL, scratch, &p);
    run_plan(&p);
}

void pl_linear_gated(const pl_compute *c, const pl_linear *gate, const pl_linear *up,
                     pl_gate_fn *act, const float *x, size_t M, float *y, float *up_y,
                     void *scratch)
{
    plan p;
    make_plan(c, (const pl_linear *const[]){gate, up}, 2, x, M, (float *const[]){y, up_y}, act,
              scratch, &p);
    run_plan(&p);
}
