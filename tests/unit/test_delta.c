/* SPDX-License-Identifier: Apache-2.0
 *
 * The gated delta net against tests/golden/delta, and against itself: the same bits for every cut of
 * the tokens into calls, beside other sequences and on any number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "format/safetensors.h"
#include "model/delta.h"
#include "pools.h"

enum { MOST = 100, SEQUENCES = 3 };

typedef struct golden {
    pl_safetensors *file;
    pl_delta_net net;
    size_t n;
    const float *qkv, *z, *a, *b, *out; /* aligned copies */
    float *arrays[16];
    size_t n_arrays;
} golden;

static const pl_tensor *tensor(const golden *g, const char *name)
{
    const pl_tensor *t = pl_safetensors_find(g->file, name);
    assert_non_null(t);
    return t;
}

static float *keep(golden *g, size_t n)
{
    float *p = pl_alloc(n, sizeof *p);
    assert_non_null(p);
    return g->arrays[g->n_arrays++] = p;
}

static float *copy(golden *g, const char *name)
{
    const pl_tensor *t = tensor(g, name);
    float *p = keep(g, t->n_bytes / 4);
    memcpy(p, t->data, t->n_bytes);
    return p;
}

static uint32_t number(const golden *g, const char *key)
{
    return (uint32_t)strtoul(pl_safetensors_metadata(g->file, key), NULL, 10);
}

static golden open_golden(const char *name)
{
    char path[512];
    golden g = {0};
    snprintf(path, sizeof path, "%s/golden/delta/delta_%s.safetensors", PLEACH_TEST_DATA, name);
    assert_int_equal(pl_safetensors_open(path, &g.file, NULL), PLEACH_OK);
    pl_delta_config s = {.key_heads = number(&g, "key_heads"),
                         .value_heads = number(&g, "heads"),
                         .key_dim = number(&g, "key_dim"),
                         .value_dim = number(&g, "value_dim"),
                         .taps = number(&g, "taps")};
    size_t C = pl_delta_channels(&s);
    g.n = tensor(&g, "qkv")->shape[0];
    g.qkv = copy(&g, "qkv");
    g.z = copy(&g, "z");
    g.a = copy(&g, "a");
    g.b = copy(&g, "b");
    g.out = copy(&g, "out");
    g.net = (pl_delta_net){.shape = s, .eps = 1e-6f, .dt_bias = copy(&g, "dt_bias"),
                           .norm = copy(&g, "norm"), .rate = copy(&g, "A_log"),
                           .conv = keep(&g, s.taps * C), .q_gain = keep(&g, s.key_dim),
                           .k_gain = keep(&g, s.key_dim)};
    const float *conv = copy(&g, "conv");
    for (size_t i = 0; i < s.taps * C; i++) g.net.conv[i % s.taps * C + i / s.taps] = conv[i];
    for (uint32_t h = 0; h < s.value_heads; h++) g.net.rate[h] = expf(g.net.rate[h]);
    for (uint32_t i = 0; i < s.key_dim; i++) {
        g.net.q_gain[i] = 1 / (float)s.key_dim;
        g.net.k_gain[i] = 1 / sqrtf((float)s.key_dim);
    }
    return g;
}

static void close_golden(golden *g)
{
    for (size_t i = 0; i < g->n_arrays; i++) pl_free(g->arrays[i]);
    pl_safetensors_close(g->file);
}

static pl_compute compute(pl_pool *pool)
{
    pl_compute c = {.pool = pool};
    unsigned cpu;
    assert_int_equal(pl_cpu_level(NULL, &cpu), 0);
    pl_kernels_init(&c.kernels, cpu);
    c.kernels.crossovers.thread_operations = 1; /* as many threads as there are */
    return c;
}

static pl_cache *open_cache(const golden *g)
{
    size_t states[] = {pl_delta_state_bytes(&g->net.shape)};
    pl_cache_settings set = {.n_layers = 1, .n_kv_heads = 1, .head_dim = 2, .capacity = MOST,
                             .states = states};
    pl_cache *c;
    assert_int_equal(pl_cache_open(&set, &c, NULL), PLEACH_OK);
    return c;
}

/* Rows of the golden inputs: `row` for each of n caches, or n from there on for one. */
static void run(const pl_compute *c, const golden *g, pl_cache *const *caches, bool apart,
                const size_t *row, size_t n, size_t from, float *out)
{
    const pl_delta_config *s = &g->net.shape;
    size_t C = pl_delta_channels(s), V = pl_delta_values(s), H = s->value_heads;
    float *qkv = pl_alloc(n, C * 4), *z = pl_alloc(n, V * 4), *mixed = pl_alloc(n, C * 4);
    float *a = pl_alloc(n, H * 4), *b = pl_alloc(n, H * 4);
    pl_delta_gate *gates = pl_alloc(n, H * sizeof *gates);
    for (size_t i = 0; i < n; i++) {
        size_t r = apart ? row[i] : row[0] + i;
        memcpy(qkv + i * C, g->qkv + r * C, C * 4);
        memcpy(z + i * V, g->z + r * V, V * 4);
        memcpy(a + i * H, g->a + r * H, H * 4);
        memcpy(b + i * H, g->b + r * H, H * 4);
    }
    pl_delta_call d = {.net = &g->net, .caches = caches, .apart = apart, .n = n, .from = from,
                       .qkv = qkv, .z = z, .a = a, .b = b, .mixed = mixed, .gates = gates,
                       .out = out};
    for (size_t i = 0; i < (apart ? n : 1); i++)
        assert_int_equal(pl_cache_reserve(caches[i], apart ? 1 : n, NULL), PLEACH_OK);
    pl_delta_net_run(c, &d);
    for (size_t i = 0; i < (apart ? n : 1); i++) pl_cache_advance(caches[i], apart ? 1 : n);
    float *all[] = {qkv, z, mixed, a, b};
    for (size_t i = 0; i < PL_COUNT(all); i++) pl_free(all[i]);
    pl_free(gates);
}

/* |got - want| <= 2e-5 of the largest. */
static void check_near(const float *got, const float *want, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= 2e-5f * most))
            fail_msg("number %zu is %g, expected %g", i, (double)got[i], (double)want[i]);
}

/* The state of an end, panels put together. */
static void check_state(const golden *g, const pl_cache *c)
{
    const pl_delta_config *s = &g->net.shape;
    const pl_tensor *window = tensor(g, "window"), *state = tensor(g, "state");
    size_t D = s->value_dim, K = s->key_dim, P = PL_DELTA_PANEL;
    const float *at = pl_cache_state(c, 0);
    assert_memory_equal(at, window->data, window->n_bytes);
    at += (window->n_bytes / 4 + 15) / 16 * 16;
    float *flat = pl_alloc(state->n_bytes, 1), *want = pl_alloc(state->n_bytes, 1);
    for (size_t i = 0; i < state->n_bytes / 4; i++) {
        size_t h = i / (K * D), k = i / D % K, v = i % D;
        flat[i] = at[h * K * D + v / P * K * P + k * P + v % P];
    }
    memcpy(want, state->data, state->n_bytes);
    check_near(flat, want, state->n_bytes / 4);
    pl_free(flat);
    pl_free(want);
}

static void check_golden(const char *name)
{
    golden g = open_golden(name);
    size_t V = pl_delta_values(&g.net.shape), zero = 0, n = g.n;
    float *want = pl_alloc(n, V * 4), *got = pl_alloc(n, V * 4), *row = pl_alloc(SEQUENCES, V * 4);
    pl_compute one = compute(NULL);
    pl_cache *whole = open_cache(&g), *cut[SEQUENCES];
    run(&one, &g, &whole, false, &zero, n, 0, want);
    check_near(want, g.out, n * V);
    check_state(&g, whole);

    /* In pieces on four threads, the results of the last row of each alone. */
    pl_compute many = compute(pool_of(4));
    cut[0] = open_cache(&g);
    for (size_t at = 0, part; at < n; at += part) {
        part = PL_MIN(1 + at * 7 % 29, n - at);
        run(&many, &g, cut, false, &at, part, part - 1, got);
        assert_memory_equal(got + (part - 1) * V, want + (at + part - 1) * V, V * 4);
    }
    assert_memory_equal(pl_cache_state(cut[0], 0), pl_cache_state(whole, 0),
                        pl_cache_state_bytes(whole));
    /* From a kept state on. */
    size_t back = pl_cache_reach(cut[0], 65);
    assert_int_equal(back, 64);
    pl_cache_truncate(cut[0], back);
    run(&one, &g, cut, false, &back, n - back, 0, got);
    assert_memory_equal(got, want + back * V, (n - back) * V * 4);
    pl_cache_close(cut[0]);

    /* Token by token, beside others that are elsewhere. */
    size_t rows[SEQUENCES] = {0, 0, 0};
    for (size_t i = 0; i < SEQUENCES; i++) {
        cut[i] = open_cache(&g);
        rows[i] = i * 13;
        if (i) run(&one, &g, &cut[i], false, &zero, rows[i], 0, got);
    }
    for (; rows[SEQUENCES - 1] < n; rows[0]++, rows[1]++, rows[2]++) {
        run(&many, &g, cut, true, rows, SEQUENCES, 0, row);
        for (size_t i = 0; i < SEQUENCES; i++)
            assert_memory_equal(row + i * V, want + rows[i] * V, V * 4);
    }
    for (size_t i = 0; i < SEQUENCES; i++) pl_cache_close(cut[i]);
    pl_cache_close(whole);
    pl_free(want);
    pl_free(got);
    pl_free(row);
    close_golden(&g);
}

static void heads_that_share_keys(void **state)
{
    (void)state;
    check_golden("grouped");
}

static void one_wide_head_with_three_taps(void **state)
{
    (void)state;
    check_golden("wide");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_that_share_keys),
        cmocka_unit_test(one_wide_head_with_three_taps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
