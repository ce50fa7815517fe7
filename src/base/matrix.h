/* SPDX-License-Identifier: Apache-2.0
 *
 * Dense matrix products and factors, by OpenBLAS and LAPACK. Work is cut into tiles at fixed places,
 * each computed by one thread, so the bits do not depend on the thread count. Row-major; ld is the
 * distance between rows. */
#ifndef PL_BASE_MATRIX_H
#define PL_BASE_MATRIX_H

#include <stdbool.h>
#include <stddef.h>

#include "pool.h"

/* c [m][n] = alpha op(a) op(b) + beta c, op(a) [m][k], op(b) [k][n]; a (b) is stored transposed when
 * transpose_a (transpose_b). c overlaps neither. beta 0 ignores what c holds. */
void pl_matmul(pl_pool *pool, bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k,
               float alpha, const float *a, size_t lda, const float *b, size_t ldb, float beta,
               float *c, size_t ldc);

/* Upper half of c [n][n] += a^T a, a [k][n]; some of the lower half is overwritten. */
void pl_gram(pl_pool *pool, size_t n, size_t k, const float *a, size_t lda, float *c, size_t ldc);

/* The same for rows: upper half of c [n][n] += a a^T, a [n][k]. */
void pl_gram_rows(pl_pool *pool, size_t n, size_t k, const float *a, size_t lda, float *c,
                  size_t ldc);

/* a = U U^T in place, U upper triangular, for symmetric a [n][n], both halves given; the lower half
 * of the result is zero. Returns false, a destroyed, when a is not positive definite or not finite. */
bool pl_cholesky_upper(pl_pool *pool, double *a, size_t n);

/* b [m][n] <- b a^-1 for symmetric positive definite a [n][n], destroyed. False when it is not that,
 * and b is left as it was. */
bool pl_divide(double *a, size_t n, double *b, size_t m);

/* u[:,J] <- u[:,J] u[J,J]^-1 for each run J of `block` columns of the upper triangular u [n][n]: the
 * blocks on its diagonal become those of the unit matrix. */
void pl_unit_blocks(pl_pool *pool, double *u, size_t n, size_t block);

/* A device that computes some of these in the processor's place, with other roundings: which, shapes
 * alone decide. Lent to a pool (pl_pool_lend). Each returns false for what it leaves to the
 * processor. Any number of threads may call. */
typedef struct pl_products pl_products;
struct pl_products {
    bool (*matmul)(pl_products *p, bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k,
                   float alpha, const float *a, size_t lda, const float *b, size_t ldb, float beta,
                   float *c, size_t ldc);
    /* pl_gram, or with `rows` pl_gram_rows. */
    bool (*gram)(pl_products *p, bool rows, size_t n, size_t k, const float *a, size_t lda,
                 float *c, size_t ldc);
    /* pl_cholesky_upper but for the lower half, which is left undefined; its result in *definite. */
    bool (*cholesky_upper)(pl_products *p, double *a, size_t n, bool *definite);
    void (*hold)(pl_products *p, float *a, size_t n);
    void (*release)(pl_products *p, float *a);
};

/* Until released, a[0..n) may live on the pool's device: products alone may read and write it, and
 * ranges within it that begin elsewhere not at all. Nothing happens without a device. */
void pl_matrix_hold(pl_pool *pool, float *a, size_t n);
void pl_matrix_release(pl_pool *pool, float *a); /* accepts what was never held */

#endif
