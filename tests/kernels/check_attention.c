/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention kernels: tiles of several blocks against doubles, rows alone against rows in company,
 * and rotary embedding bit for bit. */
#include "check.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/compiler.h"

enum { MOST_ROWS = 9, MOST_BLOCKS = 3, MOST_KEYS = MOST_BLOCKS * PL_ATTEND_BLOCK };

/* Query rows over n keys, of which row r sees [lo[r], hi[r]). */
typedef struct problem {
    size_t rows, dim, n;
    float *q, *keys, *values;
    uint32_t lo[MOST_ROWS], hi[MOST_ROWS];
} problem;

static void make_problem(check *t, problem *p)
{
    static const size_t dims[] = {8, 16, 24, 64, 128, 4, 20, 7, 1};
    float scale = check_below(t, 4) ? 1 : 30; /* of scores */
    p->rows = 1 + check_below(t, MOST_ROWS);
    p->dim = dims[check_below(t, PL_COUNT(dims))];
    p->n = 1 + check_below(t, MOST_KEYS);
    p->q = check_buffer(t, p->rows * p->dim * 4, 4);
    p->keys = check_buffer(t, p->n * p->dim * 4, 4);
    p->values = check_buffer(t, p->n * p->dim * 4, 4);
    for (size_t i = 0; i < p->rows * p->dim; i++)
        p->q[i] = (float)check_normal(t) * scale / sqrtf((float)p->dim);
    for (size_t i = 0; i < p->n * p->dim; i++) {
        p->keys[i] = (float)check_normal(t);
        p->values[i] = (float)check_normal(t);
    }
    for (size_t r = 0; r < p->rows; r++) {
        p->hi[r] = 1 + check_below(t, (uint32_t)p->n);
        p->lo[r] = check_below(t, 2) ? 0 : check_below(t, p->hi[r]);
    }
}

/* Rows r0 .. r0 + rows - 1, block by block; out[rows][dim] divided by the sums. */
static void attend(check *t, const pl_kernels *k, const problem *p, size_t r0, size_t rows,
                   float *out)
{
    uint32_t lo[MOST_ROWS], hi[MOST_ROWS];
    float max[MOST_ROWS], sum[MOST_ROWS];
    pl_attend_tile tile = {.rows = rows,
                           .dim = p->dim,
                           .q = p->q + r0 * p->dim,
                           .lo = lo,
                           .hi = hi,
                           .max = max,
                           .sum = sum,
                           .out = out};
    tile.scores = check_buffer(t, rows * PL_ATTEND_BLOCK * 4, 4);
    memset(out, 0, rows * p->dim * 4);
    for (size_t r = 0; r < rows; r++) {
        max[r] = -INFINITY;
        sum[r] = 0;
    }
    for (size_t first = 0; first < p->n; first += PL_ATTEND_BLOCK) {
        uint32_t n = (uint32_t)PL_MIN(p->n - first, PL_ATTEND_BLOCK), at = (uint32_t)first;
        for (size_t r = 0; r < rows; r++) {
            lo[r] = PL_MIN(p->lo[r0 + r] > at ? p->lo[r0 + r] - at : 0, n);
            hi[r] = PL_MAX(PL_MIN(p->hi[r0 + r] > at ? p->hi[r0 + r] - at : 0, n), lo[r]);
        }
        k->attend(&tile, p->keys + first * p->dim, p->values + first * p->dim, n);
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t d = 0; d < p->dim; d++) out[r * p->dim + d] /= sum[r];
}

static void check_row(check *t, const problem *p, size_t r, const float *got)
{
    static double score[MOST_KEYS], want[128], bound[128];
    double max = -INFINITY, sum = 0, size = 0;
    for (size_t j = p->lo[r]; j < p->hi[r]; j++) {
        double most = 0;
        score[j] = 0;
        for (size_t d = 0; d < p->dim; d++) {
            double v = (double)p->q[r * p->dim + d] * (double)p->keys[j * p->dim + d];
            score[j] += v;
            most += fabs(v);
        }
        max = fmax(max, score[j]);
        size = fmax(size, most);
    }
    for (size_t j = p->lo[r]; j < p->hi[r]; j++) sum += score[j] = exp(score[j] - max);
    for (size_t d = 0; d < p->dim; d++) {
        double most = 0;
        want[d] = 0;
        for (size_t j = p->lo[r]; j < p->hi[r]; j++) {
            double v = score[j] / sum * (double)p->values[j * p->dim + d];
            want[d] += v;
            most += fabs(v);
        }
        /* Scores are off by their sums' roundings, which exp multiplies; then sums of n terms. */
        bound[d] = FLT_EPSILON * most *
                   (2 * size * (double)(p->dim + 4) + (double)(p->hi[r] - p->lo[r]) + 32);
    }
    check_close(t, got, want, bound, p->dim);
}

static void check_attend(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    if (!check_begin(t, isa->attend != c->attend, "attend")) return;
    for (int round = 0; check_round(t, round, 200); round++) {
        problem p;
        check_release(t);
        make_problem(t, &p);
        float *all = check_buffer(t, p.rows * p.dim * 4, 4), *one = check_buffer(t, p.dim * 4, 4);
        attend(t, isa, &p, 0, p.rows, all);
        for (size_t r = 0; r < p.rows && check_good(t); r++) {
            check_row(t, &p, r, all + r * p.dim);
            attend(t, isa, &p, r, 1, one);
            check_same(t, one, all + r * p.dim, p.dim * 4);
        }
    }
    check_end(t);
}

static void check_rope(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    if (!check_begin(t, isa->rope != c->rope, "rope")) return;
    for (int round = 0; check_round(t, round, 100); round++) {
        check_release(t);
        size_t half = 1 + check_below(t, 70);
        float *want = check_buffer(t, half * 8, 4), *got = check_buffer(t, half * 8, 4);
        float *cosines = check_buffer(t, half * 4, 4), *sines = check_buffer(t, half * 4, 4);
        for (size_t i = 0; i < half; i++) {
            double angle = 100 * check_normal(t);
            cosines[i] = (float)cos(angle);
            sines[i] = (float)sin(angle);
            want[i] = (float)check_normal(t);
            want[i + half] = (float)check_normal(t);
        }
        double formula[140], bound[140];
        for (size_t i = 0; i < half; i++) {
            double a = (double)want[i], b = (double)want[i + half];
            formula[i] = a * (double)cosines[i] - b * (double)sines[i];
            formula[i + half] = b * (double)cosines[i] + a * (double)sines[i];
            bound[i] = bound[i + half] = 2 * FLT_EPSILON * (fabs(a) + fabs(b));
        }
        memcpy(got, want, half * 8);
        c->rope(want, cosines, sines, half);
        isa->rope(got, cosines, sines, half);
        check_same(t, got, want, half * 8);
        check_close(t, got, formula, bound, 2 * half);
    }
    check_end(t);
}

void check_attention(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    check_attend(t, c, isa);
    check_rope(t, c, isa);
}
