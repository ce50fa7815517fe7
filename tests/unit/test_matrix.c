/* SPDX-License-Identifier: Apache-2.0
 *
 * Products and factors against plain loops in double; the same bits for every thread count. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/matrix.h"
#include "base/memory.h"
#include "base/random.h"
#include "pools.h"

static float *numbers(size_t n, uint64_t seed)
{
    float *x = pl_alloc(n, sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(pl_mix64(seed + i) >> 40) * 0x1p-23f - 1;
    return x;
}

static float element(const float *a, size_t ld, bool transposed, size_t i, size_t j)
{
    return transposed ? a[j * ld + i] : a[i * ld + j];
}

static void test_matmul(void **state)
{
    (void)state;
    enum { M = 261, N = 389, K = 70, LD = 400 };
    float *a = numbers((size_t)LD * LD, 1), *b = numbers((size_t)LD * LD, 2);
    float *c = numbers((size_t)M * LD, 3), *c1 = pl_alloc(M * LD, sizeof *c1);
    float *old = pl_alloc(M * LD, sizeof *old);
    memcpy(old, c, M * LD * sizeof *c);
    for (int form = 0; form < 8; form++) {
        bool ta = form & 1, tb = form & 2;
        float beta = form & 4 ? 1 : 0;
        memcpy(c, old, M * LD * sizeof *c);
        memcpy(c1, old, M * LD * sizeof *c);
        pl_matmul(pool_of(3), ta, tb, M, N, K, 0.5f, a, LD, b, LD, beta, c, LD);
        pl_matmul(pool_of(1), ta, tb, M, N, K, 0.5f, a, LD, b, LD, beta, c1, LD);
        assert_memory_equal(c, c1, M * LD * sizeof *c);
        for (size_t i = 0; i < M; i += 13)
            for (size_t j = 0; j < N; j++) {
                double sum = 0;
                for (size_t k = 0; k < K; k++)
                    sum += (double)element(a, LD, ta, i, k) * element(b, LD, tb, k, j);
                sum = 0.5 * sum + beta * old[i * LD + j];
                assert_true(fabs(c[i * LD + j] - sum) < 1e-5);
            }
        for (size_t i = 0; i < M; i++) /* nothing beyond column N */
            assert_memory_equal(c + i * LD + N, old + i * LD + N, (LD - N) * sizeof *c);
    }
    pl_free(a);
    pl_free(b);
    pl_free(c);
    pl_free(c1);
    pl_free(old);
}

static void test_gram(void **state)
{
    (void)state;
    enum { N = 391, K = 60 };
    float *a = numbers((size_t)K * N, 4);
    float *c = pl_calloc(N * N, sizeof *c), *c1 = pl_calloc(N * N, sizeof *c1);
    for (int twice = 0; twice < 2; twice++) {
        pl_gram(pool_of(4), N, K, a, N, c, N);
        pl_gram(pool_of(1), N, K, a, N, c1, N);
    }
    assert_memory_equal(c, c1, N * N * sizeof *c);
    for (size_t i = 0; i < N; i += 7)
        for (size_t j = i; j < N; j++) {
            double sum = 0;
            for (size_t k = 0; k < K; k++) sum += 2.0 * a[k * N + i] * a[k * N + j];
            assert_true(fabs(c[i * N + j] - sum) < 1e-4);
        }
    pl_free(a);
    pl_free(c);
    pl_free(c1);
}

static void test_gram_rows(void **state)
{
    (void)state;
    enum { N = 391, K = 60 };
    float *a = numbers((size_t)K * N, 6);
    float *c = pl_calloc(N * N, sizeof *c), *c1 = pl_calloc(N * N, sizeof *c1);
    pl_gram_rows(pool_of(4), N, K, a, K, c, N);
    pl_gram_rows(pool_of(1), N, K, a, K, c1, N);
    assert_memory_equal(c, c1, N * N * sizeof *c);
    for (size_t i = 0; i < N; i += 7)
        for (size_t j = i; j < N; j++) {
            double sum = 0;
            for (size_t k = 0; k < K; k++) sum += (double)a[i * K + k] * a[j * K + k];
            assert_true(fabs(c[i * N + j] - sum) < 1e-4);
        }
    pl_free(a);
    pl_free(c);
    pl_free(c1);
}

/* Triangular blocks of columns divided by those on the diagonal, and b a^-1, by multiplying back. */
static void test_dividing(void **state)
{
    (void)state;
    const size_t N = 70, M = 33, BLOCK = 32;
    float *x = numbers((size_t)N * N, 7), *y = numbers((size_t)M * N, 8);
    double *u = pl_calloc(N * N, sizeof *u), *unit = pl_alloc(N * N, sizeof *unit);
    double *a = pl_calloc(N * N, sizeof *a), *b = pl_alloc(M * N, sizeof *b);
    double *kept = pl_alloc(N * N, sizeof *kept);
    for (size_t i = 0; i < N; i++)
        for (size_t j = i; j < N; j++) u[i * N + j] = i == j ? 3 + x[i] : x[i * N + j];
    memcpy(unit, u, N * N * sizeof *u);
    pl_unit_blocks(pool_of(3), unit, N, BLOCK);
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < N; j++) {
            size_t first = j / BLOCK * BLOCK;
            double sum = 0;
            for (size_t k = first; k < PL_MIN(first + BLOCK, N); k++)
                sum += unit[i * N + k] * u[k * N + j];
            assert_true(fabs(sum - u[i * N + j]) < 1e-9);
            if (i / BLOCK == j / BLOCK) assert_true(unit[i * N + j] == (i == j));
        }
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < N; j++) {
            for (size_t k = 0; k < N; k++) a[i * N + j] += (double)x[i * N + k] * x[j * N + k];
            if (i == j) a[i * N + j] += 1;
        }
    memcpy(kept, a, N * N * sizeof *a);
    for (size_t i = 0; i < M * N; i++) b[i] = y[i];
    assert_true(pl_divide(a, N, b, M));
    for (size_t i = 0; i < M; i++)
        for (size_t j = 0; j < N; j++) {
            double sum = 0;
            for (size_t k = 0; k < N; k++) sum += b[i * N + k] * kept[k * N + j];
            assert_true(fabs(sum - y[i * N + j]) < 1e-8);
        }
    kept[0] = -1;
    assert_false(pl_divide(kept, N, b, M));
    void *all[] = {x, y, u, unit, a, b, kept};
    for (size_t i = 0; i < PL_COUNT(all); i++) pl_free(all[i]);
}

static void test_cholesky_upper(void **state)
{
    (void)state;
    enum { N = 451 };
    float *x = numbers((size_t)N * N, 5);
    double *h = pl_calloc(N * N, sizeof *h), *u = pl_alloc(N * N, sizeof *u);
    double *u1 = pl_alloc(N * N, sizeof *u1);
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < N; j++) {
            for (size_t k = 0; k < N; k++) h[i * N + j] += (double)x[i * N + k] * x[j * N + k];
            if (i == j) h[i * N + j] += 1;
        }
    memcpy(u, h, N * N * sizeof *h);
    memcpy(u1, h, N * N * sizeof *h);
    assert_true(pl_cholesky_upper(pool_of(4), u, N));
    assert_true(pl_cholesky_upper(pool_of(1), u1, N));
    assert_memory_equal(u, u1, N * N * sizeof *u);
    for (size_t i = 0; i < N; i++) {
        assert_true(u[i * N + i] > 0);
        for (size_t j = 0; j < i; j++) assert_true(u[i * N + j] == 0);
        for (size_t j = i; j < N; j += 5) {
            double sum = 0;
            for (size_t k = j; k < N; k++) sum += u[i * N + k] * u[j * N + k];
            assert_true(fabs(sum - h[i * N + j]) < 1e-9 * h[i * N + i]);
        }
    }
    memcpy(u, h, N * N * sizeof *h);
    u[300 * N + 300] = -1;
    assert_false(pl_cholesky_upper(pool_of(2), u, N));
    memcpy(u, h, N * N * sizeof *h);
    u[3 * N + 3] = (double)NAN;
    assert_false(pl_cholesky_upper(pool_of(2), u, N));
    memset(u, 0, N * N * sizeof *u);
    assert_false(pl_cholesky_upper(pool_of(2), u, N));
    pl_free(x);
    pl_free(h);
    pl_free(u);
    pl_free(u1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_gram),
        cmocka_unit_test(test_gram_rows),
        cmocka_unit_test(test_dividing),
        cmocka_unit_test(test_cholesky_upper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
