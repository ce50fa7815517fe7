/* SPDX-License-Identifier: Apache-2.0
 *
 * Products and factors of base/matrix.h on the device against the processor's, with operands that
 * are copied and ones that are held. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/matrix.h"
#include "base/threads.h"
#include "check_cuda.h"
#include "cuda/products.h"

static float *numbers(check *t, size_t n)
{
    float *x = malloc(n * sizeof *x);
    if (!x) abort();
    for (size_t i = 0; i < n; i++) x[i] = (float)check_unit(t) - .5f;
    return x;
}

static float *copy_of(const float *x, size_t n)
{
    float *y = malloc(n * sizeof *y);
    if (!y) abort();
    memcpy(y, x, n * sizeof *y);
    return y;
}

static void compare(check *t, const char *what, const float *got, const float *want, size_t rows,
                    size_t cols, size_t ld, bool upper, double bound)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = upper ? i : 0; j < cols; j++)
            if (!(fabs((double)got[i * ld + j] - want[i * ld + j]) <= bound)) {
                check_fail(t, "%s: [%zu][%zu] is %g, expected %g", what, i, j, got[i * ld + j],
                           want[i * ld + j]);
                return;
            }
}

/* Every orientation, leading dimensions beyond the rows, and results that are added to. */
static void check_matmul(check *t, pl_products *device, pl_pool *pool)
{
    const size_t m = 1300, n = 1500, k = 1400, ld = 1600;
    for (int kind = 0; kind < 8 && check_good(t); kind++) {
        const bool ta = kind & 1, tb = kind & 2, held = kind & 4;
        const size_t rows_a = ta ? k : m, rows_b = tb ? n : k;
        float *a = numbers(t, rows_a * ld), *b = numbers(t, rows_b * ld), *c = numbers(t, m * ld);
        float *want = copy_of(c, m * ld);
        if (held) device->hold(device, b, rows_b * ld);
        if (held) device->hold(device, c, m * ld);
        pl_matmul(pool, ta, tb, m, n, k, .5f, a, ld, b, ld, kind % 3 ? 2 : 0, want, ld);
        if (!device->matmul(device, ta, tb, m, n, k, .5f, a, ld, b, ld, kind % 3 ? 2 : 0, c, ld))
            check_fail(t, "not served");
        if (held) device->release(device, b);
        if (held) device->release(device, c);
        compare(t, held ? "held product" : "product", c, want, m, n, ld, false, 1e-3);
        for (size_t i = 0; i < m && check_good(t); i++)
            for (size_t j = n; j < ld; j++)
                if (c[i * ld + j] != want[i * ld + j]) check_fail(t, "written beyond row %zu", i);
        free(a);
        free(b);
        free(c);
        free(want);
    }
}

static void check_gram(check *t, pl_products *device, pl_pool *pool)
{
    const size_t n = 1030, k = 3000, ld = 3100;
    for (int kind = 0; kind < 4 && check_good(t); kind++) {
        const bool rows = kind & 1, held = kind & 2;
        float *a = numbers(t, ld * ld), *c = numbers(t, n * n), *want = copy_of(c, n * n);
        if (held) device->hold(device, c, n * n);
        for (int twice = 0; twice < 2; twice++) {
            if (rows) pl_gram_rows(pool, n, k, a, ld, want, n);
            else pl_gram(pool, n, k, a, ld, want, n);
            if (!device->gram(device, rows, n, k, a, ld, c, n)) check_fail(t, "not served");
        }
        if (held) device->release(device, c);
        compare(t, held ? "held squares" : "squares", c, want, n, n, n, true, 4e-3);
        free(a);
        free(c);
        free(want);
    }
}

/* A = B B^T + I. */
static double *definite_matrix(check *t, pl_pool *pool, size_t n)
{
    float *b = numbers(t, n * n), *s = calloc(n * n, sizeof *s);
    double *a = malloc(n * n * sizeof *a);
    if (!s || !a) abort();
    pl_gram_rows(pool, n, n, b, n, s, n);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) a[i * n + j] = s[PL_MIN(i, j) * n + PL_MAX(i, j)] + (i == j);
    free(b);
    free(s);
    return a;
}

static void check_factor(check *t, pl_products *device, pl_pool *pool)
{
    const size_t n = 1100;
    bool definite;
    double *a = definite_matrix(t, pool, n), *want = malloc(n * n * sizeof *want);
    if (!want) abort();
    memcpy(want, a, n * n * sizeof *a);
    if (!pl_cholesky_upper(pool, want, n)) check_fail(t, "the processor finds no factor");
    if (!device->cholesky_upper(device, a, n, &definite) || !definite) check_fail(t, "no factor");
    for (size_t i = 0; i < n && check_good(t); i++)
        for (size_t j = i; j < n; j++)
            if (!(fabs(a[i * n + j] - want[i * n + j]) <= 1e-9))
                check_fail(t, "factor [%zu][%zu] is %g, expected %g", i, j, a[i * n + j],
                           want[i * n + j]);
    for (size_t i = 0; i < n * n; i++) a[i] = i % (n + 1) ? 1 : .5;
    if (!device->cholesky_upper(device, a, n, &definite) || definite)
        check_fail(t, "a factor of what is not definite");
    free(a);
    free(want);
}

void check_cuda_products(check *t, const pl_kernels *c, pl_cuda *d)
{
    pl_cuda_products *products;
    pl_pool *pool;
    pleach_error err;
    (void)c;
    if (!check_begin(t, true, "products")) return;
    if (pl_pool_open(pl_default_threads(), &pool, &err) != PLEACH_OK) abort();
    if (pl_cuda_products_open(d, &products, &err) != PLEACH_OK) {
        check_fail(t, "%s", err.message);
    } else {
        check_matmul(t, &products->base, pool);
        check_gram(t, &products->base, pool);
        check_factor(t, &products->base, pool);
    }
    pl_cuda_products_close(products);
    pl_pool_close(pool);
    check_end(t);
}
