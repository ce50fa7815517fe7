/* SPDX-License-Identifier: Apache-2.0
 *
 * Symmetric matrices: unpacked, turned into the coded basis, damped, ordered and factored. */
#include "hessian.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/matrix.h"
#include "base/memory.h"

#define TILE 32        /* of a transposition: two tiles of lines in L1 */
#define RETRIES 4      /* of a factorisation, each with ten times the damping */
#define LEAST_RETRY 1e-3

/* ---- packed triangles ----------------------------------------------------------------------- */

typedef struct triangle {
    pl_feedback_state state;
    double trace;
    size_t dead;
} triangle;

static triangle examine(const float *packed, size_t n)
{
    triangle t = {PL_FEEDBACK_APPLIED, 0, 0};
    if (!packed) return (triangle){PL_FEEDBACK_NO_STATISTICS, 0, 0};
    float nan = 0; /* x - x is 0, or NaN when x is not finite */
    for (size_t i = 0; i < n * (n + 1) / 2; i++) nan += packed[i] - packed[i];
    for (size_t i = 0; i < n; i++) {
        float d = packed[pl_mix_row(n, i)];
        t.trace += d;
        t.dead += d == 0;
    }
    if (nan != 0) t.state = PL_FEEDBACK_NOT_FINITE;
    else if (!(t.trace > 0)) t.state = PL_FEEDBACK_ZERO;
    return t;
}

pl_feedback_state pl_mix_make(pl_mix *m, size_t n, const float *a, const float *b)
{
    const float *const parts[2] = {a, b};
    triangle t[2] = {examine(a, n), examine(b, n)};
    *m = (pl_mix){.n = n, .dead = t[0].dead};
    for (int i = 0; i < 2; i++) {
        if (t[i].state != PL_FEEDBACK_APPLIED) continue;
        if (m->parts == 0) m->scale = t[i].trace / (double)n;
        m->part[m->parts] = parts[i];
        m->weight[m->parts++] = (double)n / t[i].trace;
    }
    for (size_t i = 0; i < m->parts; i++) m->weight[i] /= (double)m->parts;
    return m->parts ? PL_FEEDBACK_APPLIED : t[0].state;
}

/* ---- dense matrices ------------------------------------------------------------------------- */

static void unpack_row(const pl_mix *m, const float *scale, size_t i, float *row)
{
    size_t at = pl_mix_row(m->n, i);
    for (size_t j = i; j < m->n; j++, at++) {
        double sum = m->weight[0] * m->part[0][at];
        if (m->parts > 1) sum += m->weight[1] * m->part[1][at];
        row[j] = (float)(scale ? sum * scale[i] * scale[j] : sum);
    }
}

/* A dense matrix in the making, whose rows are shared out. */
typedef struct dense_job {
    const pl_kernels *kernels;
    const pl_mix *mix;
    const pl_basis *basis;
    float *a;
    size_t n;
    bool swap;
} dense_job;

static void unpack_unit(void *job, size_t i, int thread)
{
    const dense_job *j = job;
    (void)thread;
    unpack_row(j->mix, j->basis->scale, i, j->a + i * j->n);
}

static void rotate_unit(void *job, size_t i, int thread)
{
    const dense_job *j = job;
    (void)thread;
    j->kernels->rotate(j->a + i * j->n, j->basis->signs, j->n, j->basis->block);
}

/* Copies the upper half of a tile's rows to the lower one, or swaps them. */
static void mirror_unit(void *job, size_t t, int thread)
{
    const dense_job *d = job;
    float *a = d->a;
    size_t n = d->n, row_end = PL_MIN(t * TILE + TILE, n);
    (void)thread;
    for (size_t u = t * TILE; u < n; u += TILE)
        for (size_t i = t * TILE; i < row_end; i++)
            for (size_t j = PL_MAX(u, i + 1); j < PL_MIN(u + TILE, n); j++) {
                float lower = a[j * n + i];
                a[j * n + i] = a[i * n + j];
                if (d->swap) a[i * n + j] = lower;
            }
}

static void mirror(pl_pool *pool, dense_job *job, bool swap)
{
    job->swap = swap;
    pl_pool_run(pool, (job->n + TILE - 1) / TILE, mirror_unit, job);
}

void pl_hessian_load(const pl_kernels *kernels, pl_pool *pool, const pl_mix *m,
                     const pl_basis *basis, float *dst)
{
    dense_job job = {.kernels = kernels, .mix = m, .basis = basis, .a = dst, .n = m->n};
    pl_pool_run(pool, m->n, unpack_unit, &job);
    mirror(pool, &job, false);
    if (!basis->signs) return;
    pl_pool_run(pool, m->n, rotate_unit, &job);
    mirror(pool, &job, true);
    pl_pool_run(pool, m->n, rotate_unit, &job);
}

typedef struct inner_job {
    size_t n;
    const float *a, *b;
    double *row;
} inner_job;

static void inner_row(void *job, size_t i, int thread)
{
    const inner_job *j = job;
    const float *x = j->a + i * j->n, *y = j->b + i * j->n;
    double row = 0;
    (void)thread;
    for (size_t k = i + 1; k < j->n; k++) row += (double)x[k] * y[k];
    j->row[i] = (double)x[i] * y[i] + 2 * row;
}

double pl_hessian_inner(const pl_hessian *h, pl_pool *pool, const float *a, const float *b)
{
    inner_job job = {h->n, a, b, h->row};
    double sum = 0;
    pl_pool_run(pool, h->n, inner_row, &job);
    for (size_t i = 0; i < h->n; i++) sum += h->row[i];
    return sum;
}

/* ---- factors -------------------------------------------------------------------------------- */

pleach_status pl_hessian_open(pl_hessian *h, size_t n, double *buffer, pleach_error *err)
{
    *h = (pl_hessian){.n = n, .buffer = buffer};
    h->unit = (float *)buffer;
    h->spare = h->unit + n * n;
    h->metric = pl_alloc(n, sizeof *h->metric);
    h->order = pl_alloc(n, sizeof *h->order);
    h->row = pl_alloc(n, sizeof *h->row);
    if (h->metric && h->order && h->row) return PLEACH_OK;
    pl_hessian_close(h);
    return pl_fail_memory(err, "factors of the statistics", n * 20);
}

void pl_hessian_close(pl_hessian *h)
{
    pl_free(h->metric);
    pl_free(h->order);
    pl_free(h->row);
    *h = (pl_hessian){0};
}

typedef struct ranked {
    float value;
    uint32_t index;
} ranked;

static int larger_first(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* The symmetric matrix is in spare; metric lends its memory. */
static void find_order(pl_hessian *h, bool sorted)
{
    ranked *list = (ranked *)(void *)h->metric;
    for (size_t i = 0; i < h->n; i++) list[i] = (ranked){h->spare[i * h->n + i], (uint32_t)i};
    if (sorted) qsort(list, h->n, sizeof *list, larger_first);
    for (size_t i = 0; i < h->n; i++) h->order[i] = list[i].index;
}

static void permute_row(void *hessian, size_t i, int thread)
{
    pl_hessian *h = hessian;
    const float *from = h->spare + h->order[i] * h->n;
    (void)thread;
    for (size_t j = 0; j < h->n; j++) h->unit[i * h->n + j] = from[h->order[j]];
}

/* From spare, f32, to the whole buffer, f64, in coding order. The permuted copy in the first half is
 * widened from its last row on, so that nothing is overwritten before it is read. */
static void widen(pl_hessian *h, pl_pool *pool, double damping)
{
    double *row = h->row;
    const size_t n = h->n;
    double mean = 0;
    for (size_t i = 0; i < n; i++) mean += h->spare[i * n + i];
    mean /= (double)n;
    pl_pool_run(pool, n, permute_row, h);
    for (size_t i = n; i-- > 0;) {
        for (size_t j = 0; j < n; j++) row[j] = h->unit[i * n + j];
        row[i] += damping * mean;
        memcpy(h->buffer + i * n, row, n * sizeof *row);
    }
}

static void measure_metric(pl_hessian *h, size_t block)
{
    memset(h->metric, 0, h->n * sizeof *h->metric);
    for (size_t i = 0; i < h->n; i++)
        for (size_t j = i; j < PL_MIN((i / block + 1) * block, h->n); j++)
            h->metric[j] += h->buffer[i * h->n + j] * h->buffer[i * h->n + j];
}

/* f64 to f32, from the first row on, for blocks of 1 divided by the diagonal. Returns whether all is
 * finite. */
static bool narrow(pl_hessian *h, size_t block)
{
    float *row = (float *)(void *)h->row;
    const size_t n = h->n;
    float nan = 0;
    for (size_t i = 0; i < n; i++) {
        const double *u = h->buffer + i * n;
        for (size_t j = 0; j < n; j++)
            row[j] = (float)(block == 1 ? u[j] / sqrt(h->metric[j]) : u[j]);
        for (size_t j = 0; j < n; j++) nan += row[j] - row[j];
        memcpy(h->unit + i * n, row, n * sizeof *row);
    }
    return nan == 0;
}

pl_feedback_state pl_hessian_factor(pl_hessian *h, const pl_kernels *kernels, pl_pool *pool,
                                    const pl_mix *m, const pl_basis *basis, double damping,
                                    bool sorted, size_t block)
{
    for (int i = 0; i <= RETRIES; i++) {
        if (i > 0) damping = PL_MAX(damping * 10, LEAST_RETRY);
        pl_hessian_load(kernels, pool, m, basis, h->spare);
        find_order(h, sorted);
        widen(h, pool, damping);
        if (!pl_cholesky_upper(pool, h->buffer, h->n)) continue;
        measure_metric(h, block);
        if (block > 1) pl_unit_blocks(pool, h->buffer, h->n, block);
        h->damping = damping;
        if (narrow(h, block)) return PL_FEEDBACK_APPLIED;
    }
    return PL_FEEDBACK_NOT_DEFINITE;
}
