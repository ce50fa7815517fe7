/* SPDX-License-Identifier: Apache-2.0
 *
 * States of recurrent layers in the cache: what is kept does not depend on how tokens came, forks do
 * not see each other, going back finds the state of that length, and so does a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "kv/cache.h"

enum { LAYERS = 3, D = 64, CAPACITY = 2000, NUMBERS = 5, BYTES = NUMBERS * 4 };

/* Layer 0 has keys and values, the others states. */
static pl_cache *open_cache(const char *spec, size_t recent)
{
    static pl_kernels kernels;
    const size_t states[LAYERS] = {0, BYTES, BYTES};
    pl_kv types[LAYERS];
    pl_cache *c;
    pl_kernels_init(&kernels, PL_CPU_C);
    pl_cache_settings set = {.n_layers = LAYERS, .n_kv_heads = 1, .head_dim = D,
                             .capacity = CAPACITY, .types = types, .states = states,
                             .recent = recent, .kernels = &kernels};
    assert_int_equal(pl_kv_parse(spec, LAYERS, types, NULL), PLEACH_OK);
    assert_int_equal(pl_cache_open(&set, &c, NULL), PLEACH_OK);
    return c;
}

/* A recurrence that forgets nothing: another for each layer and number. */
static void advance(float s[NUMBERS], uint32_t layer, int text, size_t position)
{
    for (uint32_t i = 0; i < NUMBERS; i++) {
        uint32_t bits;
        memcpy(&bits, &s[i], 4);
        bits = (bits * 31 + (uint32_t)position * 7 + (uint32_t)text + layer * 3 + i) & 0x3fffffff;
        memcpy(&s[i], &bits, 4);
    }
}

/* Tokens of a text, in one call as a model makes it. */
static void append(pl_cache *c, int text, size_t n)
{
    float row[D] = {1};
    size_t first = pl_cache_length(c), end = first + n;
    assert_int_equal(pl_cache_reserve(c, n, NULL), PLEACH_OK);
    for (size_t p = first; p < end; p++) pl_cache_put(c, 0, p, 1, row, row);
    for (uint32_t layer = 1; layer < LAYERS; layer++) {
        float *s = pl_cache_state(c, layer);
        assert_int_equal((uintptr_t)s % 64, 0);
        for (size_t from = first, to; from < end; from = to) {
            to = pl_cache_state_piece(c, from, end);
            assert_true(to > from && to <= end);
            for (size_t p = from; p < to; p++) advance(s, layer, text, p);
            float *kept = pl_cache_state_kept(c, layer, to);
            if (kept) memcpy(kept, s, BYTES);
        }
    }
    pl_cache_advance(c, n);
}

/* That the state is that of `first` tokens of one text and then `more` of another. */
static void check_state(const pl_cache *c, int text, size_t first, int other, size_t more)
{
    assert_int_equal(pl_cache_length(c), first + more);
    if (first + more == 0) return;
    for (uint32_t layer = 1; layer < LAYERS; layer++) {
        float s[NUMBERS] = {0};
        for (size_t p = 0; p < first + more; p++) advance(s, layer, p < first ? text : other, p);
        assert_memory_equal(pl_cache_state(c, layer), s, BYTES);
    }
}

/* Reachable lengths up to n, in a list; returns how many. */
static size_t reachable(const pl_cache *c, size_t n, size_t list[CAPACITY])
{
    size_t count = 0;
    for (size_t p = 0; p <= n; p++)
        if (pl_cache_reach(c, p) == p) list[count++] = p;
    return count;
}

static void what_is_kept_depends_on_the_length_alone(void **state)
{
    (void)state;
    static size_t once[CAPACITY], often[CAPACITY];
    for (size_t n = 1; n < 1300; n += 97) {
        pl_cache *a = open_cache("f32", 0), *b = open_cache("f32", 0);
        append(a, 1, n);
        for (size_t i = 0; i < n;) {
            size_t part = PL_MIN(1 + i % 130, n - i);
            append(b, 1, part);
            i += part;
        }
        check_state(a, 1, n, 0, 0);
        check_state(b, 1, n, 0, 0);
        size_t count = reachable(a, n, once);
        assert_int_equal(count, reachable(b, n, often));
        assert_memory_equal(once, often, count * sizeof *once);
        /* 0, the length, the last border, and no more than were promised. */
        size_t last = n / PL_CACHE_PAGE * PL_CACHE_PAGE;
        assert_true(once[0] == 0 && once[count - 1] == n && count <= 2 + PL_CACHE_STATES);
        assert_int_equal(pl_cache_reach(a, n - 1), n - 1 >= last ? last : once[count - 2]);
        pl_cache_close(a);
        pl_cache_close(b);
    }
}

static void going_back_finds_the_state(void **state)
{
    (void)state;
    static size_t list[CAPACITY];
    for (int recent = 0; recent < 200; recent += 130) {
        pl_cache *c = open_cache(recent ? "k8v3" : "f32", (size_t)recent);
        append(c, 1, 1000);
        for (size_t i = reachable(c, 1000, list); i > 0; i--) {
            size_t n = pl_cache_reach(c, list[i - 1]);
            assert_int_equal(n, list[i - 1]);
            pl_cache_truncate(c, n);
            if (n) check_state(c, 1, n, 0, 0);
            assert_int_equal(pl_cache_reach(c, n), n);
        }
        append(c, 2, 130);
        check_state(c, 2, 130, 0, 0);
        pl_cache_truncate(c, pl_cache_reach(c, 129));
        size_t at = pl_cache_length(c);
        assert_int_equal(at, recent ? 0 : 128);
        append(c, 3, 50);
        check_state(c, 2, at, 3, 50);
        pl_cache_close(c);
    }
}

static void forks_share_and_part(void **state)
{
    (void)state;
    pl_cache *a = open_cache("f32", 0), *b, *c;
    append(a, 1, 200);
    uint64_t bytes = pl_cache_bytes(a);
    assert_int_equal(pl_cache_fork(a, &b, NULL), PLEACH_OK);
    assert_int_equal(pl_cache_fork(b, &c, NULL), PLEACH_OK);
    assert_ptr_equal(pl_cache_state(a, 1), pl_cache_state(b, 1));
    assert_int_equal(pl_cache_bytes(b), bytes);
    append(b, 2, 1);
    assert_ptr_not_equal(pl_cache_state(a, 1), pl_cache_state(b, 1));
    pl_cache_truncate(c, 192);
    append(c, 3, 300);
    check_state(a, 1, 200, 0, 0);
    check_state(b, 1, 200, 2, 1);
    check_state(c, 1, 192, 3, 300);
    pl_cache_close(a);
    pl_cache_truncate(b, pl_cache_reach(b, 199));
    check_state(b, 1, 192, 0, 0);
    append(b, 4, 10); /* the kept state is as it was */
    pl_cache_truncate(b, 192);
    check_state(b, 1, 192, 0, 0);
    pl_cache_close(b);
    check_state(c, 1, 192, 3, 300);
    pl_cache_close(c);
}

/* Of the first tokens alone, with what of them is kept. */
static void forks_may_hold_the_first_tokens(void **state)
{
    (void)state;
    static size_t list[CAPACITY];
    pl_cache *a = open_cache("f32", 0), *f;
    append(a, 1, 700);
    double held = pl_cache_share(a);
    assert_true(pl_cache_forgets(a) && held == (double)pl_cache_bytes(a));
    for (size_t i = reachable(a, 700, list); i > 0; i--) {
        size_t n = list[i - 1];
        assert_int_equal(pl_cache_fork_at(a, n, &f, NULL), PLEACH_OK);
        check_state(f, 1, n, 0, 0);
        assert_true(pl_cache_covers(a, f) && pl_cache_covers(f, a) == (n == 700));
        assert_true(pl_cache_share(a) + pl_cache_share(f) == held);
        for (size_t j = 0; j < i; j++) assert_int_equal(pl_cache_reach(f, list[j]), list[j]);
        append(f, 2, 70);
        check_state(f, 1, n, 2, 70);
        pl_cache_close(f);
    }
    check_state(a, 1, 700, 0, 0);
    pl_cache_close(a);
    a = open_cache("f32", 0);
    append(a, 1, 130); /* between two borders: nobody else has it */
    assert_int_equal(pl_cache_fork(a, &f, NULL), PLEACH_OK);
    append(f, 1, 30);
    assert_false(pl_cache_covers(f, a));
    pl_cache_close(a);
    pl_cache_close(f);
}

/* Tokens that were reserved and never came. */
static void what_was_only_reserved_is_not_reached(void **state)
{
    (void)state;
    pl_cache *c = open_cache("f32", 0), *f;
    append(c, 1, 70);
    assert_int_equal(pl_cache_reserve(c, 200, NULL), PLEACH_OK);
    assert_int_equal(pl_cache_fork(c, &f, NULL), PLEACH_OK);
    append(c, 2, 20);
    check_state(c, 1, 70, 2, 20);
    assert_int_equal(pl_cache_reach(c, 89), 64);
    append(c, 2, 60);
    assert_int_equal(pl_cache_reach(c, 149), 128);
    append(f, 3, 1);
    assert_int_equal(pl_cache_reach(f, 70), 64);
    pl_cache_truncate(f, 64);
    check_state(f, 1, 64, 0, 0);
    pl_cache_close(f);
    pl_cache_close(c);
}

static void a_cache_takes_what_it_says(void **state)
{
    (void)state;
    pl_cache *c = open_cache("bf16", 0);
    size_t token = D * 2 * 2;
    assert_int_equal(pl_cache_token_bytes(c), token);
    assert_int_equal(pl_cache_state_bytes(c), 2 * 64);
    assert_int_equal(pl_cache_bytes(c), 0);
    append(c, 1, 63);
    assert_int_equal(pl_cache_bytes(c), 64 * token + 128);
    append(c, 1, 1);
    assert_int_equal(pl_cache_bytes(c), 64 * token + 2 * 128);
    append(c, 1, CAPACITY - 64);
    uint64_t now = 32 * 64 * token + (1 + PL_CACHE_STATES) * 128;
    assert_int_equal(pl_cache_bytes(c), now);
    assert_int_equal(pl_cache_most_bytes(c, 512), now + 128); /* one more while tokens come */
    pl_cache_close(c);
}

/* The pages of every store, from one cache to another. */
static pl_cache *copy_by_pages(const pl_cache *c)
{
    pl_cache *to;
    assert_int_equal(pl_cache_open_like(c, &to, NULL), PLEACH_OK);
    for (size_t store = 0; store < pl_cache_stores(c); store++) {
        size_t bytes = pl_cache_page_bytes(c, store), n = pl_cache_kept_pages(c, store);
        uint8_t *data = pl_alloc(n + 1, bytes);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(pl_cache_get_page(c, store, i, data + i * bytes, NULL), PLEACH_OK);
        assert_true(pl_cache_pages_suffice(to, store, pl_cache_length(c), n));
        assert_false(pl_cache_pages_suffice(to, store, pl_cache_length(c), n + 1));
        assert_int_equal(pl_cache_set_pages(to, store, pl_cache_length(c), data, n, NULL),
                         PLEACH_OK);
        pl_free(data);
    }
    return to;
}

static void pages_hold_the_state_and_the_last_border(void **state)
{
    (void)state;
    const size_t lengths[] = {0, 1, 63, 64, 65, 128, 700};
    for (size_t i = 0; i < PL_COUNT(lengths); i++) {
        pl_cache *c = open_cache("f32", 0);
        size_t n = lengths[i], last = n / PL_CACHE_PAGE * PL_CACHE_PAGE;
        if (n) append(c, 1, n);
        pl_cache *f = copy_by_pages(c), *g;
        check_state(f, 1, n, 0, 0);
        append(f, 2, 10);
        check_state(f, 1, n, 2, 10);
        g = copy_by_pages(f); /* as if it had never been in a file */
        check_state(g, 1, n, 2, 10);
        size_t reach = pl_cache_reach(f, last);
        assert_int_equal(reach, last);
        pl_cache_truncate(f, reach);
        if (last) check_state(f, 1, last, 0, 0);
        pl_cache_close(c);
        pl_cache_close(f);
        pl_cache_close(g);
    }
    char name[PL_CACHE_STORE_NAME];
    pl_cache *c = open_cache("k8v3", 128);
    assert_int_equal(pl_cache_stores(c), 4); /* no recent tokens where there are none at all */
    pl_cache_store_name(c, 1, name);
    assert_string_equal(name, "layers.1.state");
    pl_cache_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_kept_depends_on_the_length_alone),
        cmocka_unit_test(going_back_finds_the_state),
        cmocka_unit_test(forks_share_and_part),
        cmocka_unit_test(forks_may_hold_the_first_tokens),
        cmocka_unit_test(what_was_only_reserved_is_not_reached),
        cmocka_unit_test(a_cache_takes_what_it_says),
        cmocka_unit_test(pages_hold_the_state_and_the_last_border),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
