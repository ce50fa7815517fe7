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

/* Copies the upper half to the lower one, or swaps them. */
static void mirror(int threads, float *a, size_t n, bool swap)
{
    size_t tiles = (n + TILE - 1) / TILE;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 4) if (threads > 1)
    for (size_t t = 0; t < tiles; t++) {
        size_t row_end = PL_MIN(t * TILE + TILE, n);
        for (size_t u = t; u < tiles; u++) {
            for (size_t i = t * TILE; i < row_end; i++) {
                for (size_t j = PL_MAX(u * TILE, i + 1); j < PL_MIN(u * TILE + TILE, n); j++) {
                    float lower = a[j * n + i];
                    a[j * n + i] = a[i * n + j];
                    if (swap) a[i * n + j] = lower;
                }
            }
        }
    }
}

static void rotate_rows(const pl_kernels *kernels, int threads, const pl_basis *basis, float *a,
                        size_t n)
{
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (size_t i = 0; i < n; i++) kernels->rotate(a + i * n, basis->signs, n, basis->block);
}

void pl_hessian_load(const pl_kernels *kernels, int threads, const pl_mix *m, const pl_basis *basis,
                     float *dst)
{
    const size_t n = m->n;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (size_t i = 0; i < n; i++) unpack_row(m, basis->scale, i, dst + i * n);
    mirror(threads, dst, n, false);
    if (!basis->signs) return;
    rotate_rows(kernels, threads, basis, dst, n);
    mirror(threads, dst, n, true);
    rotate_rows(kernels, threads, basis, dst, n);
}

double pl_hessian_inner(const pl_hessian *h, int threads, const float *a, const float *b)
{
    const size_t n = h->n;
    double sum = 0;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (size_t i = 0; i < n; i++) {
        const float *x = a + i * n, *y = b + i * n;
        double row = 0;
        for (size_t j = i + 1; j < n; j++) row += (double)x[j] * y[j];
        h->row[i] = (double)x[i] * y[i] + 2 * row;
    }
    for (size_t i = 0; i < n; i++) sum += h->row[i];
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

/* From spare, f32, to the whole buffer, f64, in coding order. The permuted copy in the first half is
 * widened from its last row on, so that nothing is overwritten before it is read. */
static void widen(pl_hessian *h, int threads, double damping)
{
    double *row = h->row;
    const size_t n = h->n;
    double mean = 0;
    for (size_t i = 0; i < n; i++) mean += h->spare[i * n + i];
    mean /= (double)n;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (size_t i = 0; i < n; i++) {
        const float *from = h->spare + h->order[i] * n;
        for (size_t j = 0; j < n; j++) h->unit[i * n + j] = from[h->order[j]];
    }
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

pl_feedback_state pl_hessian_factor(pl_hessian *h, const pl_kernels *kernels, int threads,
                                    const pl_mix *m, const pl_basis *basis, double damping,
                                    bool sorted, size_t block)
{
    for (int i = 0; i <= RETRIES; i++) {
        if (i > 0) damping = PL_MAX(damping * 10, LEAST_RETRY);
        pl_hessian_load(kernels, threads, m, basis, h->spare);
        find_order(h, sorted);
        widen(h, threads, damping);
        if (!pl_cholesky_upper(threads, h->buffer, h->n)) continue;
        measure_metric(h, block);
        if (block > 1) pl_unit_blocks(threads, h->buffer, h->n, block);
        h->damping = damping;
        if (narrow(h, block)) return PL_FEEDBACK_APPLIED;
    }
    return PL_FEEDBACK_NOT_DEFINITE;
}
