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

/* An OpenBLAS made without threads hands out its buffers without a lock: two calls at once may get
 * the same one. */
static bool take_turns;
static pthread_mutex_t turns = PTHREAD_MUTEX_INITIALIZER;

static void begin_call(void)
{
    if (take_turns) pthread_mutex_lock(&turns);
}

static void end_call(void)
{
    if (take_turns) pthread_mutex_unlock(&turns);
}

/* OpenBLAS's own threads would sum in an order that depends on their number. */
static void one_thread(void)
{
    openblas_set_num_threads(1);
    take_turns = openblas_get_parallel() == OPENBLAS_SEQUENTIAL;
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

typedef struct product {
    bool transpose_a, transpose_b;
    size_t m, n, k, across; /* across: tiles side by side */
    float alpha, beta;
    const float *a, *b;
    size_t lda, ldb, ldc;
    float *c;
} product;

static void product_tile(void *product_, size_t i, int thread)
{
    const product *p = product_;
    size_t row = i / p->across * TILE_ROWS, col = i % p->across * TILE_COLS;
    const float *left = p->a + (p->transpose_a ? row : row * p->lda);
    const float *right = p->b + (p->transpose_b ? col * p->ldb : col);
    (void)thread;
    begin_call();
    cblas_sgemm(CblasRowMajor, p->transpose_a ? CblasTrans : CblasNoTrans,
                p->transpose_b ? CblasTrans : CblasNoTrans,
                (int)PL_MIN(p->m - row, (size_t)TILE_ROWS),
                (int)PL_MIN(p->n - col, (size_t)TILE_COLS), (int)p->k, p->alpha, left, (int)p->lda,
                right, (int)p->ldb, p->beta, p->c + row * p->ldc + col, (int)p->ldc);
    end_call();
}

void pl_matmul(pl_pool *pool, bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k,
               float alpha, const float *a, size_t lda, const float *b, size_t ldb, float beta,
               float *c, size_t ldc)
{
    product p = {transpose_a, transpose_b, m, n, k, tiles(n, TILE_COLS), alpha, beta, a, b, lda, ldb,
                 ldc, c};
    pl_products *device = pl_pool_products(pool);
    if (device && device->matmul(device, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb,
                                 beta, c, ldc))
        return;
    prepare();
    pl_pool_run(pool, tiles(m, TILE_ROWS) * p.across, product_tile, &p);
}

/* Upper half of c += op(a) op(a)^T. */
typedef struct gram {
    bool rows;
    size_t n, k, side, lda, ldc; /* side: tiles in a row */
    const float *a;
    float *c;
} gram;

static void gram_tile(void *gram_, size_t i, int thread)
{
    const gram *g = gram_;
    size_t row = i / g->side * GRAM_TILE, col = i % g->side * GRAM_TILE;
    size_t step = g->rows ? g->lda : 1;
    (void)thread;
    if (col < row) return;
    begin_call();
    cblas_sgemm(CblasRowMajor, g->rows ? CblasNoTrans : CblasTrans,
                g->rows ? CblasTrans : CblasNoTrans, (int)PL_MIN(g->n - row, (size_t)GRAM_TILE),
                (int)PL_MIN(g->n - col, (size_t)GRAM_TILE), (int)g->k, 1, g->a + row * step,
                (int)g->lda, g->a + col * step, (int)g->lda, 1, g->c + row * g->ldc + col,
                (int)g->ldc);
    end_call();
}

static void run_gram(pl_pool *pool, gram g)
{
    pl_products *device = pl_pool_products(pool);
    if (device && device->gram(device, g.rows, g.n, g.k, g.a, g.lda, g.c, g.ldc)) return;
    g.side = tiles(g.n, GRAM_TILE);
    prepare();
    pl_pool_run(pool, g.side * g.side, gram_tile, &g);
}

void pl_gram(pl_pool *pool, size_t n, size_t k, const float *a, size_t lda, float *c, size_t ldc)
{
    run_gram(pool, (gram){.n = n, .k = k, .lda = lda, .ldc = ldc, .a = a, .c = c});
}

void pl_gram_rows(pl_pool *pool, size_t n, size_t k, const float *a, size_t lda, float *c,
                  size_t ldc)
{
    run_gram(pool, (gram){.rows = true, .n = n, .k = k, .lda = lda, .ldc = ldc, .a = a, .c = c});
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

/* A panel of a Cholesky factor: columns k .. below - 1, and the blocks of rows under them. */
typedef struct panel {
    double *a;
    size_t n, k, below, blocks;
} panel;

/* Block i of the panel becomes the factor's. */
static void divide_block(void *panel_, size_t i, int thread)
{
    const panel *p = panel_;
    size_t row = p->below + i * FACTOR_BLOCK, n = p->n;
    (void)thread;
    begin_call();
    cblas_dtrsm(CblasRowMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit,
                (int)PL_MIN(n - row, (size_t)FACTOR_BLOCK), (int)(p->below - p->k), 1,
                p->a + p->k * n + p->k, (int)n, p->a + row * n + p->k, (int)n);
    end_call();
}

/* What is right of the panel, less the panel's part. */
static void subtract_block(void *panel_, size_t i, int thread)
{
    const panel *p = panel_;
    size_t row = p->below + i / p->blocks * FACTOR_BLOCK, n = p->n;
    size_t col = p->below + i % p->blocks * FACTOR_BLOCK;
    (void)thread;
    if (col > row) return;
    begin_call();
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)PL_MIN(n - row, (size_t)FACTOR_BLOCK),
                (int)PL_MIN(n - col, (size_t)FACTOR_BLOCK), (int)(p->below - p->k), -1,
                p->a + row * n + p->k, (int)n, p->a + col * n + p->k, (int)n, 1,
                p->a + row * n + col, (int)n);
    end_call();
}

/* Right-looking lower Cholesky, a panel of columns at a time. */
static bool factor_lower(pl_pool *pool, double *a, size_t n)
{
    for (size_t k = 0; k < n; k += FACTOR_BLOCK) {
        size_t width = PL_MIN(n - k, (size_t)FACTOR_BLOCK);
        panel p = {a, n, k, k + width, tiles(n - k - width, FACTOR_BLOCK)};
        begin_call();
        int failed = LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'U', (int)width, a + k * n + k, (int)n);
        end_call();
        if (failed) return false;
        pl_pool_run(pool, p.blocks, divide_block, &p);
        pl_pool_run(pool, p.blocks * p.blocks, subtract_block, &p);
    }
    return true;
}

static void clear_left(void *panel_, size_t i, int thread)
{
    const panel *p = panel_;
    (void)thread;
    memset(p->a + i * p->n, 0, i * sizeof *p->a);
}

bool pl_cholesky_upper(pl_pool *pool, double *a, size_t n)
{
    pl_products *device = pl_pool_products(pool);
    bool definite;
    prepare();
    for (size_t i = 0; i < n; i++)
        if (!isfinite(a[i * n + i])) return false;
    if (device && device->cholesky_upper(device, a, n, &definite)) {
        if (definite) pl_pool_run(pool, n, clear_left, &(panel){.a = a, .n = n});
        return definite;
    }
    turn(a, n);
    if (!factor_lower(pool, a, n)) return false;
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
    begin_call();
    /* By columns b is [n][m], and a^-1 stands on its left. */
    int failed = LAPACKE_dposv_work(LAPACK_COL_MAJOR, 'U', (int)n, (int)m, a, (int)n, b, (int)n);
    end_call();
    return !failed;
}

typedef struct unit_job {
    double *u;
    size_t n, block;
} unit_job;

static void unit_block(void *job, size_t i, int thread)
{
    const unit_job *j = job;
    size_t n = j->n, first = i * j->block, width = PL_MIN(n - first, j->block);
    double *corner = j->u + first * n + first;
    (void)thread;
    if (first > 0) {
        begin_call();
        cblas_dtrsm(CblasRowMajor, CblasRight, CblasUpper, CblasNoTrans, CblasNonUnit, (int)first,
                    (int)width, 1, corner, (int)n, j->u + first, (int)n);
        end_call();
    }
    for (size_t r = 0; r < width; r++) {
        memset(corner + r * n, 0, width * sizeof *corner);
        corner[r * n + r] = 1;
    }
}

void pl_unit_blocks(pl_pool *pool, double *u, size_t n, size_t block)
{
    unit_job job = {u, n, block};
    prepare();
    pl_pool_run(pool, tiles(n, block), unit_block, &job);
}

void pl_matrix_hold(pl_pool *pool, float *a, size_t n)
{
    pl_products *device = pl_pool_products(pool);
    if (device) device->hold(device, a, n);
}

void pl_matrix_release(pl_pool *pool, float *a)
{
    pl_products *device = pl_pool_products(pool);
    if (device) device->release(device, a);
}
