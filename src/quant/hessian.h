/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of a side of a module, from packed triangles to the triangular factors that error
 * feedback works with. One n x n buffer of f64 serves in turn as the symmetric matrix in f32, as the
 * factor in f64 and as the factor in f32 with as much room beside it. */
#ifndef PL_QUANT_HESSIAN_H
#define PL_QUANT_HESSIAN_H

#include <stddef.h>
#include <stdint.h>

#include "feedback.h"
#include "kernels/kernels.h"

/* scale times a weighted sum of symmetric matrices [n][n], packed as in calibrate/statistics.h. The
 * sum has a mean diagonal of 1, so that no statistics are too large or small for f32. */
typedef struct pl_mix {
    size_t n, parts;
    const float *part[2];
    double weight[2], scale;
    size_t dead; /* zeros on the diagonal of a */
} pl_mix;

/* Where row i of a packed matrix, from its diagonal on, begins. */
static inline size_t pl_mix_row(size_t n, size_t i)
{
    return i * n - i * (i - 1) / 2;
}

/* The basis a side is coded in: columns of diag(scale) R, R = diag(signs) Hadamard blocks. */
typedef struct pl_basis {
    const float *scale; /* [n], or NULL for ones */
    const float *signs; /* [n], or NULL: not rotated */
    uint32_t block;
} pl_basis;

/* The mean of those of `a` and `b` that are there and usable, scaled to the trace of the first of
 * them. APPLIED, or why there is nothing to work with. */
pl_feedback_state pl_mix_make(pl_mix *m, size_t n, const float *a, const float *b);

typedef struct pl_hessian {
    size_t n;
    double *buffer; /* [n][n], the caller's */
    float *unit;    /* [n][n], its first half: see pl_hessian_factor */
    float *spare;   /* [n][n], its second half: free for use after factoring */
    double *metric; /* [n] */
    uint32_t *order; /* [n] what is coded first, second, ... */
    double damping;  /* used */
    double *row;     /* [n] scratch */
} pl_hessian;

/* buffer [n][n], borrowed until closed. */
pleach_status pl_hessian_open(pl_hessian *h, size_t n, double *buffer, pleach_error *err);
void pl_hessian_close(pl_hessian *h); /* accepts a zeroed one */

/* dst [n][n] = B^T M B without the mix's scale, both halves. dst may be h->spare or h->unit. */
void pl_hessian_load(const pl_kernels *kernels, pl_pool *pool, const pl_mix *m,
                     const pl_basis *basis, float *dst);

/* B^T M B + damping * mean of its diagonal * I = U U^T, without the mix's scale, rows and columns in coding order: that of
 * the diagonal, largest first, when `sorted`, else as they are. Leaves
 *   unit[:,J]  U[:,J] U[J,J]^-1 for each run J of `block` columns
 *   metric[j]  sum of squares of U[i][j] over the rows i of j's own run, so U_jj^2 for block 1
 * Damping is raised tenfold, a few times, if there is no such U. */
pl_feedback_state pl_hessian_factor(pl_hessian *h, const pl_kernels *kernels, pl_pool *pool,
                                    const pl_mix *m, const pl_basis *basis, double damping,
                                    bool sorted, size_t block);

/* sum of a[i][j] b[i][j] for symmetric a, b [n][n] of which the upper halves are given. */
double pl_hessian_inner(const pl_hessian *h, pl_pool *pool, const float *a, const float *b);

#endif
