/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on every ISA level of this machine against double precision, and with itself however
 * the work is cut; on packed layers against their decoded numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/random.h"
#include "model/attention.h"
#include "pools.h"

typedef struct shape {
    uint32_t heads, kv_heads, dim, window;
    size_t n;
} shape;

static const shape shapes[] = {
    {4, 2, 32, 0, 150},  {9, 3, 64, 0, 130},    {8, 1, 80, 0, 70},   {8, 8, 16, 0, 100},
    {14, 2, 64, 0, 90},  {4, 2, 12, 0, 80},     {40, 1, 8, 0, 70},   {4, 2, 32, 16, 150},
    {4, 2, 16, 1, 80},   {2, 1, 16, 600, 1300}, {3, 1, 24, 0, 1100}, {4, 4, 256, 70, 140},
    /* Enough work for several threads on one query, whose spans are then computed side by side. */
    {8, 2, 64, 0, 700},  {4, 1, 128, 500, 900},
};

typedef struct inputs {
    shape s;
    pl_cache *cache;
    float *q, *k, *v; /* [n][heads][dim] */
} inputs;

static float *random_numbers(size_t n, uint64_t seed, float scale)
{
    float *x = pl_alloc(n, sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = scale * (float)(pl_random_unit(&seed) - 0.5);
    return x;
}

static inputs make_inputs(shape s, pl_kv type, size_t recent)
{
    static pl_kernels portable;
    pl_kernels_init(&portable, 0);
    inputs in = {.s = s};
    in.q = random_numbers(s.n * s.heads * s.dim, 1, 6);
    in.k = random_numbers(s.n * s.kv_heads * s.dim, 2, 4);
    in.v = random_numbers(s.n * s.kv_heads * s.dim, 3, 2);
    pl_cache_settings set = {.n_layers = 1, .n_kv_heads = s.kv_heads, .head_dim = s.dim,
                             .capacity = s.n, .types = &type, .recent = recent,
                             .kernels = &portable};
    assert_int_equal(pl_cache_open(&set, &in.cache, NULL), PLEACH_OK);
    assert_int_equal(pl_cache_reserve(in.cache, s.n, NULL), PLEACH_OK);
    pl_cache_put(in.cache, 0, 0, s.n, in.k, in.v);
    return in;
}

static void free_inputs(inputs *in)
{
    pl_cache_close(in->cache);
    pl_free(in->q);
    pl_free(in->k);
    pl_free(in->v);
}

/* One head of one query in double; returns the largest error of `got`. */
static double error_of(const inputs *in, size_t i, uint32_t h, const float *got)
{
    shape s = in->s;
    size_t kv = h / (s.heads / s.kv_heads), row = (size_t)s.kv_heads * s.dim;
    size_t first = s.window && i >= s.window ? i - s.window + 1 : 0;
    const float *q = in->q + (i * s.heads + h) * s.dim;
    double *p = pl_alloc(s.n, sizeof *p), max = -INFINITY, sum = 0, most = 0;
    for (size_t j = first; j <= i; j++) {
        p[j] = 0;
        for (size_t d = 0; d < s.dim; d++)
            p[j] += (double)q[d] * (double)in->k[j * row + kv * s.dim + d];
        p[j] /= sqrt((double)s.dim);
        max = fmax(max, p[j]);
    }
    for (size_t j = first; j <= i; j++) sum += p[j] = exp(p[j] - max);
    for (size_t d = 0; d < s.dim; d++) {
        double want = 0;
        for (size_t j = first; j <= i; j++)
            want += p[j] / sum * (double)in->v[j * row + kv * s.dim + d];
        double e = fabs((double)got[d] - want);
        most = e <= most ? most : e;
    }
    pl_free(p);
    return most;
}

/* All queries in calls of `step`. */
static void run(const pl_compute *c, const inputs *in, size_t step, float *out)
{
    shape s = in->s;
    size_t row = (size_t)s.heads * s.dim;
    void *scratch = pl_alloc(1, pl_attention_scratch(c, s.heads, s.kv_heads, s.dim, s.n));
    for (size_t i = 0; i < s.n; i += step) {
        pl_attention a = {.cache = in->cache, .n_heads = s.heads, .n_kv_heads = s.kv_heads,
                          .head_dim = s.dim, .window = s.window, .position = i,
                          .n = PL_MIN(step, s.n - i), .q = in->q + i * row, .out = out + i * row};
        pl_attention_run(c, &a, scratch);
    }
    pl_free(scratch);
}

static pl_compute compute(unsigned cpu, int threads)
{
    pl_compute c = {.pool = pool_of(threads)};
    pl_kernels_init(&c.kernels, cpu);
    return c;
}

static void on_every_level(void (*test)(unsigned cpu))
{
    const char *const levels[] = {"c", "avx2", "avx512", "neon"};
    unsigned cpu;
    for (size_t i = 0; i < PL_COUNT(levels); i++)
        if (pl_cpu_level(levels[i], &cpu) == 0) test(cpu);
}

static void check_values(unsigned cpu)
{
    for (size_t i = 0; i < PL_COUNT(shapes); i++) {
        inputs in = make_inputs(shapes[i], PL_KV_F32, 0);
        shape s = in.s;
        pl_compute c = compute(cpu, 2);
        float *out = pl_alloc(s.n * s.heads, s.dim * sizeof *out);
        run(&c, &in, s.n, out);
        size_t stride = s.n > 500 ? 97 : 7;
        for (size_t p = 0; p < s.n; p += stride)
            for (uint32_t h = 0; h < s.heads; h++)
                assert_true(error_of(&in, p, h, out + (p * s.heads + h) * s.dim) < 2e-6);
        pl_free(out);
        free_inputs(&in);
    }
}

static void values_match_double_precision(void **state)
{
    (void)state;
    on_every_level(check_values);
}

/* One shape in calls of every length on several threads. */
static void check_shape_cuts(unsigned cpu, shape s, pl_kv type, size_t recent)
{
    const size_t steps[] = {1, 67};
    inputs in = make_inputs(s, type, recent);
    size_t bytes = s.n * s.heads * s.dim * sizeof(float);
    float *want = pl_alloc(1, bytes), *got = pl_alloc(1, bytes);
    pl_compute c = compute(cpu, 1);
    run(&c, &in, s.n, want);
    for (size_t j = 0; j < PL_COUNT(steps); j++)
        for (int threads = 1; threads <= 3; threads += 2) {
            c = compute(cpu, threads);
            run(&c, &in, steps[j], got);
            assert_memory_equal(got, want, bytes);
        }
    pl_free(want);
    pl_free(got);
    free_inputs(&in);
}

static void check_cuts(unsigned cpu)
{
    for (size_t i = 0; i < PL_COUNT(shapes); i++)
        check_shape_cuts(cpu, shapes[i], i % 2 ? PL_KV_BF16 : PL_KV_F32, 0);
}

static void bits_do_not_depend_on_cuts_or_threads(void **state)
{
    (void)state;
    on_every_level(check_cuts);
}

/* Scores of hundreds must not overflow. */
static void check_extremes(unsigned cpu)
{
    inputs in = make_inputs((shape){2, 1, 16, 0, 100}, PL_KV_F32, 0);
    for (size_t i = 0; i < 100 * 32; i++) in.q[i] *= 1000;
    pl_compute c = compute(cpu, 1);
    float *out = pl_alloc(100 * 32, sizeof *out);
    run(&c, &in, 100, out);
    for (size_t p = 0; p < 100; p++)
        for (uint32_t h = 0; h < 2; h++)
            assert_true(error_of(&in, p, h, out + (p * 2 + h) * 16) < 5e-3);
    pl_free(out);
    free_inputs(&in);
}

static void large_scores_are_finite(void **state)
{
    (void)state;
    on_every_level(check_extremes);
}

/* ---- packed layers --------------------------------------------------------------------------- */

static const shape packed_shapes[] = {
    {8, 2, 64, 0, 700}, {8, 1, 80, 0, 130},  {9, 3, 64, 40, 200},  {14, 2, 64, 0, 130},
    {4, 2, 96, 0, 90},  {8, 8, 112, 0, 70},  {4, 1, 128, 500, 900}, {3, 1, 192, 0, 80},
    {2, 2, 256, 70, 140}, {1, 1, 512, 0, 70},
};

static pl_kv packed_type(size_t i)
{
    static const uint8_t key_bits[] = {8, 5, 4, 2}, value_bits[] = {3, 2, 4, 5, 8};
    return PL_KV_PACKED(key_bits[i % 4], value_bits[i % 5]);
}

/* in->k and in->v become what the query at `position` sees. */
static void decode_inputs(inputs *in, size_t position)
{
    shape s = in->s;
    size_t recent = pl_cache_recent_from(in->cache, 0, position);
    float scratch[512];
    for (uint32_t h = 0; h < s.kv_heads; h++)
        for (size_t j = 0; j <= position; j++) {
            size_t at = (j * s.kv_heads + h) * s.dim, bytes = s.dim * sizeof *scratch;
            memcpy(in->k + at,
                   j < recent ? pl_cache_keys(in->cache, 0, h, j, 1, scratch)
                              : pl_cache_recent_keys(in->cache, 0, h, j, 1, scratch),
                   bytes);
            memcpy(in->v + at,
                   j < recent ? pl_cache_values(in->cache, 0, h, j, 1, scratch)
                              : pl_cache_recent_values(in->cache, 0, h, j, 1, scratch),
                   bytes);
        }
}

static void check_packed_shape(unsigned cpu, shape s, pl_kv type, size_t recent)
{
    inputs in = make_inputs(s, type, recent);
    pl_compute c = compute(cpu, 2);
    float *out = pl_alloc(s.n * s.heads, s.dim * sizeof *out);
    run(&c, &in, s.n - 1, out); /* the last query alone */
    for (size_t p = s.n - 1; p < s.n; p -= s.n / 3) {
        decode_inputs(&in, p);
        for (uint32_t h = 0; h < s.heads; h++) {
            const float *got = out + (p * s.heads + h) * s.dim;
            double error = error_of(&in, p, h, got), size = 0;
            for (size_t d = 0; d < s.dim; d++) size += (double)got[d] * (double)got[d];
            assert_true(error < 1e-4 * sqrt(size / s.dim));
        }
    }
    pl_free(out);
    free_inputs(&in);
}

static void check_packed(unsigned cpu)
{
    for (size_t i = 0; i < 20; i++)
        check_packed_shape(cpu, packed_shapes[1 + i % 9], packed_type(i), 0);
    check_packed_shape(cpu, packed_shapes[0], PL_KV_PACKED(8, 3), 0);
    check_packed_shape(cpu, packed_shapes[0], PL_KV_PACKED(4, 4), 100);
    check_packed_shape(cpu, packed_shapes[3], PL_KV_PACKED(8, 3), 64);
    check_packed_shape(cpu, packed_shapes[5], PL_KV_PACKED(8, 3), 1000);
}

static void packed_layers_match_double_precision(void **state)
{
    (void)state;
    on_every_level(check_packed);
}

static void check_packed_cuts(unsigned cpu)
{
    for (size_t i = 0; i < PL_COUNT(packed_shapes); i++)
        check_shape_cuts(cpu, packed_shapes[i], packed_type(i), i % 3 * 50);
}

static void packed_bits_do_not_depend_on_cuts_or_threads(void **state)
{
    (void)state;
    on_every_level(check_packed_cuts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_match_double_precision),
        cmocka_unit_test(bits_do_not_depend_on_cuts_or_threads),
        cmocka_unit_test(large_scores_are_finite),
        cmocka_unit_test(packed_layers_match_double_precision),
        cmocka_unit_test(packed_bits_do_not_depend_on_cuts_or_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
