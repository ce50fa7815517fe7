/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocation against every combination of small cases, and its laws on large ones: the limit is
 * kept, more bytes never lose more, fixed modules stay. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "base/random.h"
#include "quant/allocate.h"

/* A module of `step` bytes a bit whose loss falls about as a code's error does. */
static pl_choice module(uint64_t step, double loss, uint64_t *state)
{
    pl_choice c = {.fixed = 0};
    for (uint32_t k = 0; k < PL_N_K; k++) c.bytes[k] = 100 + step * (k + 2);
    c.loss[1] = loss;
    c.loss[0] = loss * (2 + 4 * pl_random_unit(state));
    c.loss[2] = loss * pl_random_unit(state);
    return c;
}

static uint64_t bytes_of(const pl_choice *c, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += c[i].bytes[c[i].k - PL_MIN_K];
    return sum;
}

static double loss_of(const pl_choice *c, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += c[i].loss[c[i].k - PL_MIN_K];
    return sum;
}

/* The least loss of all combinations within the limit. */
static double brute_force(const pl_choice *c, size_t n, uint64_t limit)
{
    if (n == 0) return 0;
    double best = INFINITY;
    for (uint32_t k = PL_MIN_K; k <= PL_MAX_K; k++) {
        uint64_t bytes = c->bytes[k - PL_MIN_K];
        if ((c->fixed && k != c->fixed) || bytes > limit) continue;
        best = fmin(best, c->loss[k - PL_MIN_K] + brute_force(c + 1, n - 1, limit - bytes));
    }
    return best;
}

static void test_brute_force(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (int round = 0; round < 300; round++) {
        pl_choice c[7];
        size_t n = 1 + pl_random_next(&random) % PL_COUNT(c);
        for (size_t i = 0; i < n; i++) {
            /* Every third round steps without a common divisor. */
            uint64_t step = 1 + pl_random_next(&random) % 40;
            c[i] = module(round % 3 ? step * 64 : step, pl_random_unit(&random), &random);
            if (pl_random_next(&random) % 5 == 0) c[i].fixed = 2 + pl_random_next(&random) % 3;
            if (pl_random_next(&random) % 7 == 0) c[i].loss[2] = c[i].loss[0]; /* nothing gained */
        }
        uint64_t limit = pl_allocate_floor(c, n) + pl_random_next(&random) % (n * 40 * 64);
        assert_true(pl_allocate(c, n, limit));
        assert_true(bytes_of(c, n) <= limit);
        for (size_t i = 0; i < n; i++) assert_true(!c[i].fixed || c[i].k == c[i].fixed);
        double least = brute_force(c, n, limit);
        assert_true(fabs(loss_of(c, n) - least) <= 1e-12 * least);
    }
}

/* Matrices as SmolLM2 has them, thirty layers. */
enum { LAYERS = 30, MODULES = 7 * LAYERS };

static void fill_model(pl_choice *c, uint64_t odd)
{
    static const uint64_t weights[7] = {576 * 576,  192 * 576,  192 * 576, 576 * 576,
                                        1536 * 576, 1536 * 576, 576 * 1536};
    uint64_t random = 3;
    for (size_t i = 0; i < MODULES; i++)
        c[i] = module(weights[i % 7] / 8 + odd * (i % 7 + i % 3),
                      exp(6 * pl_random_unit(&random)), &random);
}

static void test_monotone(void **state)
{
    (void)state;
    pl_choice c[MODULES];
    double last = INFINITY;
    fill_model(c, 0);
    uint64_t floor = pl_allocate_floor(c, MODULES), step = 576 * 192 / 8;
    for (uint64_t more = 0; more < 2100; more += 30) {
        uint64_t limit = floor + more * step + more;
        assert_true(pl_allocate(c, MODULES, limit));
        assert_true(bytes_of(c, MODULES) <= limit);
        assert_true(loss_of(c, MODULES) <= last);
        /* All is used while there is something to use it for. */
        if (more * step < (uint64_t)106168320 / 8) assert_true(limit - bytes_of(c, MODULES) < 8 * step);
        last = loss_of(c, MODULES);
    }
    for (size_t i = 0; i < MODULES; i++) assert_int_equal(c[i].k, 4);
}

/* Steps that share no divisor make the unit coarse: within three thousandths of the even model's loss. */
static void test_coarse(void **state)
{
    (void)state;
    pl_choice even[MODULES], odd[MODULES];
    fill_model(even, 0);
    fill_model(odd, 1);
    uint64_t limit = pl_allocate_floor(odd, MODULES) + 9000001;
    assert_true(pl_allocate(even, MODULES, limit));
    assert_true(pl_allocate(odd, MODULES, limit));
    assert_true(bytes_of(odd, MODULES) <= limit);
    assert_true(fabs(loss_of(odd, MODULES) / loss_of(even, MODULES) - 1) < 3e-3);
}

/* Losses that tell nothing apart, or are no numbers, still give an allocation within the limit. */
static void test_odd_losses(void **state)
{
    (void)state;
    static const double odd[] = {0, 1e-300, 1e300, INFINITY, NAN};
    for (size_t j = 0; j < PL_COUNT(odd); j++) {
        pl_choice c[6], again[6];
        uint64_t random = 5;
        for (size_t i = 0; i < 6; i++) {
            c[i] = module(64, 1, &random);
            if (i % 2 == 0) c[i].loss[0] = c[i].loss[1] = c[i].loss[2] = odd[j];
            again[i] = c[i];
        }
        uint64_t limit = pl_allocate_floor(c, 6) + 5 * 64;
        assert_true(pl_allocate(c, 6, limit) && pl_allocate(again, 6, limit));
        assert_true(bytes_of(c, 6) <= limit);
        for (size_t i = 0; i < 6; i++) assert_int_equal(c[i].k, again[i].k);
    }
    assert_true(pl_allocate(NULL, 0, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_monotone),
        cmocka_unit_test(test_coarse),
        cmocka_unit_test(test_odd_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
