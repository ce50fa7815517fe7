/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles of products and factors, each one call of OpenBLAS. */
#include "matrix.h"

#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "compiler.h"

enum {
    TILE_ROWS = 256,
    TILE_COLS = 192,
    GRAM_TILE = 192,
    FACTOR_BLOCK = 192
};

/* OpenBLAS's own threads would sum in an order that depends on their number. */
static void one_thread(void)
{
    openblas_set_num_threads(1);
}

static void prepare(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, one_thread);
}

static size_t tiles(size_t n, size_t tile)
{
    return (n + tile - 1) / tile;
}

void pl_matmul(int threads, bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k,
               float alpha, const float *a, size_t lda, const float *b, size_t ldb, float beta,
               float *c, size_t ldc)
{
    size_t down = tiles(m, TILE_ROWS), across = tiles(n, TILE_COLS);
    prepare();
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (down * across > 1)
    for (size_t i = 0; i < down * across; i++) {
        size_t row = i / across * TILE_ROWS, col = i % across * TILE_COLS;
        const float *left = a + (transpose_a ? row : row * lda);
        const float *right = b + (transpose_b ? col * ldb : col);
        cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                    transpose_b ? CblasTrans : CblasNoTrans, (int)PL_MIN(m - row, (size_t)TILE_ROWS),
                    (int)PL_MIN(n - col, (size_t)TILE_COLS), (int)k, alpha, left, (int)lda, right,
                    (int)ldb, beta, c + row * ldc + col, (int)ldc);
    }
}

/* Upper half of c += op(a) op(a)^T. */
static void gram(int threads, bool rows, size_t n, size_t k, const float *a, size_t lda, float *c,
                 size_t ldc)
{
    size_t side = tiles(n, GRAM_TILE), step = rows ? lda : 1;
    prepare();
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (side > 1)
    for (size_t i = 0; i < side * side; i++) {
        size_t row = i / side * GRAM_TILE, col = i % side * GRAM_TILE;
        if (col < row) continue;
        cblas_sgemm(CblasRowMajor, rows ? CblasNoTrans : CblasTrans,
                    rows ? CblasTrans : CblasNoTrans, (int)PL_MIN(n - row, (size_t)GRAM_TILE),
                    (int)PL_MIN(n - col, (size_t)GRAM_TILE), (int)k, 1, a + row * step, (int)lda,
                    a + col * step, (int)lda, 1, c + row * ldc + col, (int)ldc);
    }
}

void pl_gram(int threads, size_t n, size_t k, const float *a, size_t lda, float *c, size_t ldc)
{
    gram(threads, false, n, k, a, lda, c, ldc);
}

void pl_gram_rows(int threads, size_t n, size_t k, const float *a, size_t lda, float *c, size_t ldc)
{
    gram(threads, true, n, k, a, lda, c, ldc);
}

/* a J-turned: element (i, j) goes to (n-1-i, n-1-j). */
static void turn(double *a, size_t n)
{
    for (size_t i = 0, j = n * n - 1; i < j; i++, j--) {
        double t = a[i];
        a[i] = a[j];
        a[j] = t;
    }
}

/* Right-looking lower Cholesky, a panel of columns at a time. */
static bool factor_lower(int threads, double *a, size_t n)
{
    for (size_t k = 0; k < n; k += FACTOR_BLOCK) {
        size_t width = PL_MIN(n - k, (size_t)FACTOR_BLOCK), below = k + width;
        double *corner = a + k * n + k;
        if (LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'U', (int)width, corner, (int)n) != 0)
            return false;
        size_t blocks = tiles(n - below, FACTOR_BLOCK);
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (blocks > 1)
        for (size_t i = 0; i < blocks; i++) {
            size_t row = below + i * FACTOR_BLOCK, rows = PL_MIN(n - row, (size_t)FACTOR_BLOCK);
            cblas_dtrsm(CblasRowMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, (int)rows,
                        (int)width, 1, corner, (int)n, a + row * n + k, (int)n);
        }
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (blocks > 1)
        for (size_t i = 0; i < blocks * blocks; i++) {
            size_t row = below + i / blocks * FACTOR_BLOCK, col = below + i % blocks * FACTOR_BLOCK;
            if (col > row) continue;
            cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans,
                        (int)PL_MIN(n - row, (size_t)FACTOR_BLOCK),
                        (int)PL_MIN(n - col, (size_t)FACTOR_BLOCK), (int)width, -1, a + row * n + k,
                        (int)n, a + col * n + k, (int)n, 1, a + row * n + col, (int)n);
        }
    }
    return true;
}

bool pl_cholesky_upper(int threads, double *a, size_t n)
{
    prepare();
    for (size_t i = 0; i < n; i++)
        if (!isfinite(a[i * n + i])) return false;
    turn(a, n);
    if (!factor_lower(threads, a, n)) return false;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(a[i * n + i])) return false;
        memset(a + i * n + i + 1, 0, (n - i - 1) * sizeof *a);
    }
    turn(a, n);
    return true;
}

bool pl_divide(double *a, size_t n, double *b, size_t m)
{
    prepare();
    /* By columns b is [n][m], and a^-1 stands on its left. */
    return LAPACKE_dposv_work(LAPACK_COL_MAJOR, 'U', (int)n, (int)m, a, (int)n, b, (int)n) == 0;
}

void pl_unit_blocks(int threads, double *u, size_t n, size_t block)
{
    size_t blocks = tiles(n, block);
    prepare();
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (blocks > 1)
    for (size_t i = 0; i < blocks; i++) {
        size_t first = i * block, width = PL_MIN(n - first, block);
        double *corner = u + first * n + first;
        if (first > 0)
            cblas_dtrsm(CblasRowMajor, CblasRight, CblasUpper, CblasNoTrans, CblasNonUnit,
                        (int)first, (int)width, 1, corner, (int)n, u + first, (int)n);
        for (size_t r = 0; r < width; r++) {
            memset(corner + r * n, 0, width * sizeof *corner);
            corner[r * n + r] = 1;
        }
    }
}
