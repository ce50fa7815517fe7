/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache: what goes in comes out in every type, forks do not see each other, windows drop what
 * nobody sees. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/random.h"
#include "kv/cache.h"

enum { LAYERS = 3, HEADS = 3, D = 64, ROW = HEADS * D, CAPACITY = 300 };

static const pl_kernels *kernels(void)
{
    static pl_kernels k;
    unsigned cpu;
    if (!k.rotate && pl_cpu_level(NULL, &cpu) == 0) pl_kernels_init(&k, cpu);
    return &k;
}

static pl_cache *open_recent(const char *spec, const uint32_t *windows, size_t recent)
{
    pl_kv types[LAYERS];
    pl_cache *c;
    pl_cache_settings set = {.n_layers = LAYERS,
                             .n_kv_heads = HEADS,
                             .head_dim = D,
                             .capacity = CAPACITY,
                             .types = types,
                             .windows = windows,
                             .recent = recent,
                             .kernels = kernels()};
    assert_int_equal(pl_kv_parse(spec, LAYERS, types, NULL), PLEACH_OK);
    assert_int_equal(pl_cache_open(&set, &c, NULL), PLEACH_OK);
    return c;
}

static pl_cache *open_cache(const char *spec, const uint32_t *windows)
{
    return open_recent(spec, windows, 0);
}

/* The numbers of a position, told apart by `text`: which of several sequences it belongs to. */
static void numbers(float x[ROW], int text, uint32_t layer, bool value, size_t position)
{
    uint64_t seed = (((uint64_t)text * 10 + layer) * 2 + value) * 100000 + position;
    for (size_t i = 0; i < ROW; i++) x[i] = 4 * (float)(pl_random_unit(&seed) - 0.5);
}

static void append(pl_cache *c, int text, size_t n)
{
    float k[ROW], v[ROW];
    size_t first = pl_cache_length(c);
    assert_int_equal(pl_cache_reserve(c, n, NULL), PLEACH_OK);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (size_t p = first; p < first + n; p++) {
            numbers(k, text, layer, false, p);
            numbers(v, text, layer, true, p);
            pl_cache_put(c, layer, p, 1, k, v);
        }
    pl_cache_advance(c, n);
}

/* One head's numbers as the type stores them, by way of a record of one token. */
static void stored(float *x, pl_kv type, bool value)
{
    uint8_t record[D * 4];
    pl_turboquant t = pl_kv_code(type, D);
    pl_turboquant_plain back = {.data = x, .stride = D};
    if (type == PL_KV_BF16)
        for (size_t i = 0; i < D; i++) x[i] = pl_bf16_to_f32(pl_f32_to_bf16(x[i]));
    if (!pl_kv_is_packed(type)) return;
    if (value) {
        pl_turboquant_view view = pl_turboquant_value_page(&t, record, 1, 0);
        pl_turboquant_encode_values(&t, kernels(), &view, x, D, 1);
        pl_turboquant_decode_values(&t, kernels(), &view, &back, 1, false);
    } else {
        pl_turboquant_view view = pl_turboquant_key_page(&t, record, 1, 0);
        pl_turboquant_encode_keys(&t, &view, x, D, 1);
        pl_turboquant_decode_keys(&t, &view, &back, 1);
    }
}

static void check_head(const pl_cache *c, int text, uint32_t layer, uint32_t head, size_t first,
                       size_t n)
{
    static float scratch[CAPACITY * D];
    for (int value = 0; value < 2; value++) {
        const float *got = value ? pl_cache_values(c, layer, head, first, n, scratch)
                                 : pl_cache_keys(c, layer, head, first, n, scratch);
        for (size_t i = 0; i < n; i++) {
            float x[ROW], *want = x + head * D;
            numbers(x, text, layer, value, first + i);
            stored(want, pl_cache_type(c, layer), value);
            assert_memory_equal(got + i * D, want, D * sizeof *want);
        }
    }
}

static void check_range(const pl_cache *c, int text, size_t first, size_t n)
{
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t head = 0; head < HEADS; head++) check_head(c, text, layer, head, first, n);
}

static const char *const specs[] = {"f32",  "bf16",        "k8v3",         "k4v2",
                                    "k5v5", "k2v8,1:bf16", "f32,1-2:k8v4", "k8v8,0:k4v4"};

static void what_went_in_comes_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < PL_COUNT(specs); i++) {
        pl_cache *c = open_cache(specs[i], NULL);
        append(c, 1, 1);
        append(c, 1, 70);
        append(c, 1, 100);
        assert_int_equal(pl_cache_length(c), 171);
        check_range(c, 1, 0, 64);
        check_range(c, 1, 3, 5);
        check_range(c, 1, 60, 10); /* across pages */
        check_range(c, 1, 0, 171);
        assert_int_equal(pl_cache_reach(c, 65), 65);
        pl_cache_truncate(c, 65);
        append(c, 2, 3);
        assert_int_equal(pl_cache_length(c), 68);
        check_range(c, 1, 0, 65);
        check_range(c, 2, 65, 3);
        pl_cache_truncate(c, 0);
        append(c, 3, 130);
        check_range(c, 3, 0, 130);
        pl_cache_close(c);
    }
}

/* The packed page is what the accessors decode. */
static void packed_pages_are_laid_out(void **state)
{
    (void)state;
    pl_cache *c = open_cache("k8v3,1:f32", NULL);
    append(c, 1, 130);
    assert_true(pl_cache_packed(c, 0) && !pl_cache_packed(c, 1) && pl_cache_packed(c, 2));
    for (size_t first = 0; first < 130; first += PL_CACHE_PAGE) {
        const uint8_t *keys, *values;
        float back[PL_CACHE_PAGE * D], scratch[PL_CACHE_PAGE * D];
        pl_turboquant t;
        size_t n = PL_MIN(PL_CACHE_PAGE, 130 - first);
        pl_cache_packed_page(c, 2, 1, first, &t, &keys, &values);
        assert_true(t.dim == D && t.key_bits == 8 && t.value_bits == 3);
        assert_int_equal((uintptr_t)keys % 64, 0);
        assert_int_equal((uintptr_t)values % 64, 0);
        pl_turboquant_view view =
            pl_turboquant_key_page(&t, (void *)(uintptr_t)keys, PL_CACHE_PAGE, 0);
        pl_turboquant_decode_keys(&t, &view, &(pl_turboquant_plain){back, D, false}, n);
        assert_memory_equal(back, pl_cache_keys(c, 2, 1, first, n, scratch), n * D * 4);
        view = pl_turboquant_value_page(&t, (void *)(uintptr_t)values, PL_CACHE_PAGE, 0);
        pl_turboquant_decode_values(&t, kernels(), &view, &(pl_turboquant_plain){back, D, false}, n,
                                    false);
        assert_memory_equal(back, pl_cache_values(c, 2, 1, first, n, scratch), n * D * 4);
    }
    pl_cache_close(c);
}

static void capacity_is_the_limit(void **state)
{
    (void)state;
    pleach_error err;
    pl_cache *c = open_cache("f32", NULL);
    append(c, 1, 250);
    assert_int_equal(pl_cache_reserve(c, 51, &err), PLEACH_ERR_LIMIT);
    assert_int_equal(pl_cache_reserve(c, SIZE_MAX, &err), PLEACH_ERR_LIMIT);
    assert_int_equal(pl_cache_length(c), 250);
    append(c, 1, 50);
    assert_int_equal(pl_cache_reserve(c, 1, &err), PLEACH_ERR_LIMIT);
    assert_int_equal(pl_cache_reserve(c, 0, &err), PLEACH_OK);
    pl_cache_close(c);
    pl_cache_settings set = {
        .n_layers = UINT32_MAX, .n_kv_heads = UINT32_MAX, .head_dim = UINT32_MAX, .capacity = 1};
    assert_int_equal(pl_cache_open(&set, &c, &err), PLEACH_ERR_SHAPE);
    pl_cache_close(NULL);
}

/* ---- forks ----------------------------------------------------------------------------------- */

static void forks_share_and_part(void **state)
{
    (void)state;
    for (size_t i = 0; i < PL_COUNT(specs); i++) {
        pl_cache *a = open_cache(specs[i], NULL), *b, *c;
        append(a, 1, 100);
        assert_int_equal(pl_cache_fork(a, &b, NULL), PLEACH_OK);
        assert_int_equal(pl_cache_fork(b, &c, NULL), PLEACH_OK);
        pl_cache_truncate(c, 70);
        append(b, 2, 50);
        append(a, 3, 40);
        append(c, 4, 100);
        check_range(a, 1, 0, 100);
        check_range(a, 3, 100, 40);
        check_range(b, 1, 0, 100);
        check_range(b, 2, 100, 50);
        check_range(c, 1, 0, 70);
        check_range(c, 4, 70, 100);
        pl_cache_truncate(a, 10); /* pages past the end are shared too */
        append(a, 5, 80);
        check_range(b, 1, 0, 100);
        pl_cache_close(a);
        check_range(b, 2, 100, 50);
        check_range(c, 4, 70, 100);
        pl_cache_close(b);
        check_range(c, 1, 0, 70);
        append(c, 4, 20);
        check_range(c, 4, 70, 120);
        pl_cache_close(c);
    }
}

/* A full page is never copied, and one that was is our own from then on. */
static void only_a_shared_page_that_is_written_to_is_copied(void **state)
{
    (void)state;
    pl_cache *a = open_cache("f32", NULL), *b;
    float scratch[D];
    append(a, 1, 100);
    assert_int_equal(pl_cache_fork(a, &b, NULL), PLEACH_OK);
    const float *full = pl_cache_keys(a, 0, 0, 0, 1, scratch);
    const float *open = pl_cache_keys(a, 0, 0, 64, 1, scratch);
    assert_ptr_equal(pl_cache_keys(b, 0, 0, 64, 1, scratch), open);
    append(b, 2, 1);
    assert_ptr_equal(pl_cache_keys(b, 0, 0, 0, 1, scratch), full);
    assert_ptr_not_equal(pl_cache_keys(b, 0, 0, 64, 1, scratch), open);
    append(a, 3, 1);
    assert_ptr_equal(pl_cache_keys(a, 0, 0, 64, 1, scratch), open);
    pl_cache_close(b);
    pl_cache_close(a);
}

typedef struct branch {
    pl_cache *c;
    int text;
} branch;

static void *grow_branch(void *branch_)
{
    branch *b = branch_;
    for (int round = 0; round < 20; round++) {
        pl_cache *f;
        append(b->c, b->text, 50);
        assert_int_equal(pl_cache_fork(b->c, &f, NULL), PLEACH_OK);
        append(f, 100, 20);
        pl_cache_truncate(b->c, 90);
        append(b->c, b->text, 5);
        pl_cache_close(f);
        pl_cache_truncate(b->c, 95 - (size_t)round % 4);
    }
    return NULL;
}

/* Forks of one cache, each on a thread of its own: they part and are closed while others read. */
static void forks_live_on_different_threads(void **state)
{
    (void)state;
    enum { BRANCHES = 4 };
    const uint32_t windows[LAYERS] = {0, 64, 0};
    pl_cache *root = open_recent("k8v3,0:f32", windows, 64);
    branch branches[BRANCHES];
    pthread_t threads[BRANCHES];
    kernels();
    append(root, 1, 91);
    for (int i = 0; i < BRANCHES; i++) {
        branches[i].text = i + 2;
        assert_int_equal(pl_cache_fork(root, &branches[i].c, NULL), PLEACH_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, grow_branch, &branches[i]), 0);
    }
    append(root, 9, 30);
    check_range(root, 1, 60, 31);
    check_range(root, 9, 91, 30);
    pl_cache_close(root);
    for (int i = 0; i < BRANCHES; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        check_range(branches[i].c, 1, 64, 26);
        pl_cache_close(branches[i].c);
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

static uint64_t layer_page(const pl_cache *c)
{
    return pl_cache_token_bytes(c) / LAYERS * 64;
}

static void windows_drop_pages(void **state)
{
    (void)state;
    const uint32_t windows[LAYERS] = {0, 64, 100};
    for (size_t i = 0; i < 4; i++) {
        pl_cache *c = open_cache(specs[i], windows);
        for (size_t n = 0; n < CAPACITY; n++) {
            append(c, 1, 1);
            check_range(c, 1, n >= 63 ? n - 63 : 0, PL_MIN(n + 1, (size_t)64));
            uint64_t pages = pl_cache_bytes(c) / layer_page(c);
            /* All of layer 0; of the others what the window touches and a page more. */
            assert_true(pages <= n / 64 + 1 + 3 + 4);
            assert_true(pl_cache_bytes(c) <= pl_cache_most_bytes(c, 1));
            size_t back = n > 63 ? n - 63 : 0;
            assert_int_equal(pl_cache_reach(c, back), back);
        }
        check_head(c, 1, 0, 1, 0, CAPACITY);
        check_head(c, 1, 2, 1, CAPACITY - 100, 100);
        assert_true(pl_cache_reach(c, 100) == 0 && pl_cache_reach(c, 1000) == CAPACITY);
        pl_cache_truncate(c, 250);
        append(c, 2, 30);
        check_head(c, 1, 1, 2, 190, 60);
        check_head(c, 2, 1, 2, 250, 30);
        pl_cache_truncate(c, 0);
        append(c, 3, 200);
        check_range(c, 3, 136, 64);
        pl_cache_close(c);
    }
}

static void windows_and_forks(void **state)
{
    (void)state;
    const uint32_t windows[LAYERS] = {64, 64, 64};
    pl_cache *a = open_cache("k8v3", windows), *b;
    for (size_t n = 0; n < 200; n++) append(a, 1, 1);
    assert_int_equal(pl_cache_fork(a, &b, NULL), PLEACH_OK);
    for (size_t n = 0; n < 100; n++) append(a, 2, 1); /* pages given up here are still b's */
    check_range(b, 1, 137, 63);
    for (size_t n = 0; n < 70; n++) append(b, 3, 1);
    check_range(a, 2, 236, 64);
    check_range(b, 3, 206, 64);
    pl_cache_close(a);
    check_range(b, 3, 206, 64);
    pl_cache_close(b);
}

/* ---- recent tokens --------------------------------------------------------------------------- */

static void check_recent(const pl_cache *c, int text, uint32_t layer, size_t first, size_t n)
{
    static float scratch[CAPACITY * D];
    for (uint32_t head = 0; head < HEADS; head++)
        for (int value = 0; value < 2; value++) {
            const float *got = value ? pl_cache_recent_values(c, layer, head, first, n, scratch)
                                     : pl_cache_recent_keys(c, layer, head, first, n, scratch);
            for (size_t i = 0; i < n; i++) {
                float x[ROW], *want = x + head * D;
                numbers(x, text, layer, value, first + i);
                stored(want, PL_KV_BF16, value);
                assert_memory_equal(got + i * D, want, D * sizeof *want);
            }
        }
}

static void recent_tokens_are_kept_in_bf16_too(void **state)
{
    (void)state;
    const size_t asked[] = {1, 2, 64, 65, 66, 130, 1000};
    for (size_t i = 0; i < PL_COUNT(asked); i++) {
        size_t block = (asked[i] + 63) / 64 * 64;
        pl_cache *c = open_recent("k8v3,1:f32", NULL, asked[i]), *f;
        for (size_t n = 0; n < CAPACITY; n++) {
            append(c, 1, 1);
            size_t from = pl_cache_recent_from(c, 0, n);
            assert_int_equal(from, n / block * block);
            assert_true(pl_cache_recent_from(c, 1, n) == SIZE_MAX);
            check_recent(c, 1, n % 2 * 2, from, n + 1 - from);
            assert_true(pl_cache_bytes(c) <= pl_cache_most_bytes(c, 1));
        }
        check_range(c, 1, 0, CAPACITY);
        /* Pages by themselves: the packed ones all, of the recent ones a few. */
        size_t recent = (pl_cache_bytes(c) - 5 * 64 * pl_cache_token_bytes(c)) / 64;
        assert_true(recent <= PL_MIN(block / 64, (size_t)5) * 2 * ROW * 2 * 2);
        assert_int_equal(pl_cache_fork(c, &f, NULL), PLEACH_OK);
        assert_int_equal(pl_cache_reach(f, 299), 299);
        pl_cache_truncate(f, 280);
        append(f, 2, 20);
        check_recent(c, 1, 2, 256, 44);
        check_recent(f, 1, 2, 256, 24);
        check_recent(f, 2, 2, 280, 20);
        /* Further back than the block: to where an earlier one begins. */
        size_t reach = pl_cache_reach(f, 150);
        assert_int_equal(reach, block == 1024 ? 150 : 150 / block * block);
        pl_cache_truncate(f, reach);
        append(f, 3, 290 - reach);
        check_recent(f, 3, 2, PL_MAX(reach, 289 / block * block),
                     290 - PL_MAX(reach, 289 / block * block));
        check_recent(c, 1, 2, 256, 44);
        check_range(c, 1, 0, CAPACITY);
        check_head(f, 1, 2, 0, 0, reach);
        check_head(f, 3, 2, 0, reach, 290 - reach);
        pl_cache_close(c);
        pl_cache_close(f);
    }
}

/* One block that never ends. */
static void all_tokens_may_be_recent(void **state)
{
    (void)state;
    pl_cache *c = open_recent("k8v3", NULL, SIZE_MAX);
    append(c, 1, 200);
    assert_int_equal(pl_cache_recent_from(c, 1, 199), 0);
    check_recent(c, 1, 1, 0, 200);
    assert_int_equal(pl_cache_reach(c, 77), 77);
    pl_cache_truncate(c, 77);
    append(c, 2, 10);
    check_recent(c, 1, 1, 0, 77);
    check_recent(c, 2, 1, 77, 10);
    pl_cache_close(c);
}

/* ---- types ----------------------------------------------------------------------------------- */

/* The most bytes that a cache is seen to hold, from any beginning on, against what it says. */
static void check_most(const char *kv, uint32_t window, size_t recent, size_t batch)
{
    const uint32_t windows[LAYERS] = {window, window, window};
    uint64_t most = 0, said = 0;
    for (size_t start = 0; start < CAPACITY - batch; start++) {
        pl_cache *c = open_recent(kv, windows, recent);
        said = pl_cache_most_bytes(c, batch);
        for (size_t n; (n = pl_cache_length(c)) < CAPACITY;) {
            size_t part = n < start ? PL_MIN(batch, start - n) : PL_MIN(batch, CAPACITY - n);
            assert_int_equal(pl_cache_reserve(c, part, NULL), PLEACH_OK);
            most = PL_MAX(most, pl_cache_bytes(c));
            pl_cache_advance(c, part);
        }
        pl_cache_close(c);
    }
    if (most != said)
        print_error("%s, window %u, recent %zu, batch %zu: held %llu, said %llu\n", kv, window,
                    recent, batch, (unsigned long long)most, (unsigned long long)said);
    assert_int_equal(most, said);
}

static void the_most_is_known(void **state)
{
    (void)state;
    const size_t batches[] = {1, 2, 63, 64, 65, 100, 129, 299};
    for (size_t b = 0; b < PL_COUNT(batches); b++) {
        check_most("f32", 0, 0, batches[b]);
        for (uint32_t window = 1; window < 200; window += window < 60 ? 31 : 1 + window % 63)
            check_most("k8v3", window, 0, batches[b]);
        check_most("bf16", 64, 0, batches[b]);
    }
}

/* The same of recent tokens beside packed ones, which are all there at the end alone. */
static void the_most_of_recent_tokens_is_known(void **state)
{
    (void)state;
    const size_t batches[] = {1, 64, 65, 130, 300};
    for (size_t b = 0; b < PL_COUNT(batches); b++)
        for (size_t recent = 64; recent <= 320; recent += 64) {
            uint64_t most = 0, said = 0, page = 0;
            for (size_t start = 0; start <= CAPACITY - batches[b]; start++) {
                pl_cache *c = open_recent("k4v4", NULL, recent);
                said = pl_cache_most_bytes(c, batches[b]);
                page = 3 * pl_cache_page_bytes(c, 0);
                if (start) assert_int_equal(pl_cache_reserve(c, start, NULL), PLEACH_OK);
                pl_cache_advance(c, start);
                assert_int_equal(pl_cache_reserve(c, batches[b], NULL), PLEACH_OK);
                uint64_t packed = (start + batches[b] + 63) / 64 * page;
                most = PL_MAX(most, pl_cache_bytes(c) - packed);
                pl_cache_close(c);
            }
            assert_int_equal(most, said - (CAPACITY + 63) / 64 * page);
        }
}

/* What a block may be, and what a cache too large to address says. */
static void sizes_are_held_to_the_capacity(void **state)
{
    (void)state;
    const size_t asked[] = {1, 64, 65, 127, 128, 300, 321, SIZE_MAX - 63, SIZE_MAX};
    const size_t held[] = {64, 64, 128, 128, 128, 320, 320, 320, 320};
    for (size_t i = 0; i < PL_COUNT(asked); i++) {
        pl_cache *c = open_recent("k8v3", NULL, asked[i]);
        assert_int_equal(pl_cache_recent(c), held[i]);
        append(c, 1, CAPACITY);
        check_recent(c, 1, 0, 299 / held[i] * held[i], 299 % held[i] + 1);
        assert_int_equal(pl_cache_reach(c, 299), 299);
        pl_cache_close(c);
    }
    pleach_error err;
    pl_cache_settings set = {.n_layers = LAYERS, .n_kv_heads = HEADS, .head_dim = D};
    for (int i = 0; i < 2; i++) {
        pl_cache *c;
        set.capacity = i ? SIZE_MAX : SIZE_MAX / (2 * sizeof(float) * LAYERS * ROW) + 64;
        assert_int_equal(pl_cache_open(&set, &c, &err), PLEACH_ERR_SHAPE);
        assert_non_null(strstr(err.message, "too large to address"));
        assert_null(c);
    }
}

/* What an error quotes of a bad type is cut between characters. */
/* ---- pages elsewhere ------------------------------------------------------------------------- */

/* A device in all but its memory: its pages lie inverted. */
typedef struct elsewhere {
    pl_page_memory base;
    size_t taken, copies, mirrors, left; /* left: pages that may still be taken */
} elsewhere;

static pleach_status take_elsewhere(pl_page_memory *m, size_t bytes, void **out, pleach_error *err)
{
    elsewhere *e = (elsewhere *)m;
    if (e->left-- == 0) return pl_fail(err, PLEACH_ERR_MEMORY, "the device is full");
    e->taken++;
    *out = pl_calloc(1, bytes);
    return PLEACH_OK;
}

static void give_elsewhere(pl_page_memory *m, void *page, size_t bytes)
{
    (void)bytes;
    ((elsewhere *)m)->taken--;
    pl_free(page);
}

static pleach_status copy_elsewhere(pl_page_memory *m, void *dst, const void *src, size_t bytes,
                                    pleach_error *err)
{
    (void)err;
    ((elsewhere *)m)->copies++;
    memcpy(dst, src, bytes);
    return PLEACH_OK;
}

static pleach_status invert(pl_page_memory *m, const pl_page_shape *s, void *dst, const void *src,
                            pleach_error *err)
{
    (void)m, (void)err;
    assert_int_equal(s->type, PL_KV_BF16);
    assert_int_equal(s->bytes, 2 * PL_CACHE_PAGE * s->heads * s->dim * sizeof(uint16_t));
    for (size_t i = 0; i < s->bytes; i++) ((uint8_t *)dst)[i] = ~((const uint8_t *)src)[i];
    return PLEACH_OK;
}

static void forget_elsewhere(pl_page_memory *m, void *mirror)
{
    assert_int_equal(*(int *)mirror, 7);
    ((elsewhere *)m)->mirrors--;
}

static void pages_may_lie_elsewhere(void **state)
{
    (void)state;
    static int mirror = 7;
    elsewhere e = {.base = {take_elsewhere, give_elsewhere, copy_elsewhere, invert, invert,
                            forget_elsewhere},
                   .mirrors = 1,
                   .left = 20};
    const pl_kv types[LAYERS] = {PL_KV_BF16, PL_KV_BF16, PL_KV_BF16};
    pl_cache_settings set = {.n_layers = LAYERS, .n_kv_heads = HEADS, .head_dim = D,
                             .capacity = CAPACITY, .types = types, .memory = &e.base};
    pl_cache *c, *f, *loaded;
    void *table[2], *branch[2];
    assert_int_equal(pl_cache_open(&set, &c, NULL), PLEACH_OK);
    uint64_t before = pl_cache_changes(c);
    append(c, 1, 100);
    assert_int_equal(e.taken, 2 * LAYERS);
    assert_true(pl_cache_changes(c) != before);
    *pl_cache_mirror(c) = &mirror;
    before = pl_cache_changes(c);
    append(c, 1, 20); /* room that is there already */
    assert_true(pl_cache_changes(c) == before);
    check_range(c, 1, 0, 120);

    /* A branch copies the shared page that it writes to, through the memory. */
    assert_int_equal(pl_cache_fork(c, &f, NULL), PLEACH_OK);
    assert_null(*pl_cache_mirror(f));
    append(f, 1, 1);
    assert_int_equal(e.copies, LAYERS);
    assert_int_equal(pl_cache_table(c, 1, table, 2), 2);
    assert_int_equal(pl_cache_table(f, 1, branch, 2), 2);
    assert_ptr_equal(table[0], branch[0]);
    assert_ptr_not_equal(table[1], branch[1]);
    check_range(f, 1, 0, 121);
    pl_cache_close(f);

    /* Pages go to the file and back by the memory's own reading and writing. */
    assert_int_equal(pl_cache_open_like(c, &loaded, NULL), PLEACH_OK);
    size_t bytes = pl_cache_page_bytes(c, 0);
    uint8_t *pages = pl_alloc(2, bytes);
    for (size_t s = 0; s < pl_cache_stores(c); s++) {
        for (size_t i = 0; i < 2; i++)
            assert_int_equal(pl_cache_get_page(c, s, i, pages + i * bytes, NULL), PLEACH_OK);
        assert_int_equal(pl_cache_set_pages(loaded, s, 120, pages, 2, NULL), PLEACH_OK);
    }
    check_range(loaded, 1, 0, 120);
    pl_free(pages);
    pl_cache_close(loaded);

    /* A full memory is an error in its own words; nothing is lost. */
    pleach_error err;
    e.left = 4;
    assert_int_equal(pl_cache_reserve(c, 120, &err), PLEACH_ERR_MEMORY);
    assert_string_equal(err.message, "the device is full");
    check_range(c, 1, 0, 120);
    pl_cache_close(c);
    assert_int_equal(e.taken, 0);
    assert_int_equal(e.mirrors, 0);
}

static void quotes_are_whole_characters(void **state)
{
    (void)state;
    pleach_error err;
    char text[64] = "x";
    for (int i = 0; i < 30; i++) strcat(text, "\xc3\xa4");
    assert_int_equal(pl_kv_parse(text, LAYERS, NULL, &err), PLEACH_ERR_ARGUMENT);
    text[39] = 0;
    const char *found = strchr(err.message, '"');
    assert_non_null(found);
    assert_int_equal(strncmp(found + 1, text, 39), 0);
    assert_string_equal(found + 40, "\"");
}

static void types_have_names(void **state)
{
    (void)state;
    const struct {
        const char *spec, *canonical;
    } good[] = {{"f32", "f32"},
                {"bf16,0:f32", "bf16,0:f32"},
                {"k8v3,0-1:bf16", "k8v3,0-1:bf16"},
                {"k8v3,0-5:bf16", "bf16"},
                {"k8v3,0-5:bf16,2:k4v2", "bf16,2:k4v2"},
                {"f32,5:k2v8,3-4:k2v8,0-0:k5v2", "k2v8,0:k5v2,1-2:f32"}};
    const char *const bad[] = {"",
                               "f16",
                               "k8",
                               "k3v3",
                               "k8v6",
                               "K8V3",
                               "k8v3 ",
                               "k8v3,",
                               "k8v3,bf16",
                               "k8v3,0:",
                               "k8v3,:bf16",
                               "k8v3,0-:bf16",
                               "k8v3,2-1:bf16",
                               "k8v3,-1:bf16",
                               "k8v3,0:bf16x",
                               "k8v3,9999999:f32",
                               "k8v3;0:f32",
                               "k16v3"};
    pl_kv types[6];
    pleach_error err;
    for (size_t i = 0; i < PL_COUNT(good); i++) {
        assert_int_equal(pl_kv_parse(good[i].spec, 0, NULL, &err), PLEACH_OK);
        assert_int_equal(pl_kv_parse(good[i].spec, 6, types, &err), PLEACH_OK);
        char *spec = pl_kv_spec(types, 6);
        assert_string_equal(spec, good[i].canonical);
        pl_free(spec);
    }
    for (size_t i = 0; i < PL_COUNT(bad); i++)
        assert_int_equal(pl_kv_parse(bad[i], 0, NULL, &err), PLEACH_ERR_ARGUMENT);
    assert_int_equal(pl_kv_parse("f32,0-6:bf16", 6, types, &err), PLEACH_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "layers 0 to 5"));
}

/* Every type at every head size runs or is refused by what is allowed. */
static void head_sizes_are_served_or_refused(void **state)
{
    (void)state;
    const uint32_t dims[] = {32, 64, 72, 80, 96, 112, 128, 192, 256, 512, 1024};
    const int keys[] = {8, 5, 4, 2}, values[] = {8, 5, 4, 3, 2};
    static float x[1024];
    for (size_t i = 0; i < PL_COUNT(dims); i++) {
        bool legal = dims[i] != 32 && dims[i] != 72 && dims[i] != 1024;
        for (size_t j = 0; j < 2 + PL_COUNT(keys) * PL_COUNT(values); j++) {
            pl_kv type = j < 2 ? (pl_kv)j : PL_KV_PACKED(keys[(j - 2) / 5], values[(j - 2) % 5]);
            pl_cache_settings set = {.n_layers = 1,
                                     .n_kv_heads = 1,
                                     .head_dim = dims[i],
                                     .capacity = 1,
                                     .types = &type,
                                     .kernels = kernels()};
            pl_cache *c;
            pleach_error err;
            if (j >= 2 && !legal) {
                assert_int_equal(pl_cache_open(&set, &c, &err), PLEACH_ERR_SHAPE);
                assert_null(c);
                assert_non_null(strstr(err.message, "64, 80, 96, 112, 128, 192, 256 or 512"));
                assert_non_null(strstr(err.message, "f32 and bf16 take any"));
                continue;
            }
            assert_int_equal(pl_cache_open(&set, &c, &err), PLEACH_OK);
            assert_int_equal(pl_cache_reserve(c, 1, &err), PLEACH_OK);
            pl_cache_put(c, 0, 0, 1, x, x);
            if (dims[i] % 32 == 0 && type == PL_KV_PACKED(8, 3)) /* 6.25 bits a number */
                assert_int_equal(pl_cache_token_bytes(c) * 16, 25 * dims[i]);
            pl_cache_close(c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_went_in_comes_out),
        cmocka_unit_test(packed_pages_are_laid_out),
        cmocka_unit_test(capacity_is_the_limit),
        cmocka_unit_test(forks_share_and_part),
        cmocka_unit_test(only_a_shared_page_that_is_written_to_is_copied),
        cmocka_unit_test(forks_live_on_different_threads),
        cmocka_unit_test(windows_drop_pages),
        cmocka_unit_test(windows_and_forks),
        cmocka_unit_test(recent_tokens_are_kept_in_bf16_too),
        cmocka_unit_test(all_tokens_may_be_recent),
        cmocka_unit_test(the_most_is_known),
        cmocka_unit_test(the_most_of_recent_tokens_is_known),
        cmocka_unit_test(sizes_are_held_to_the_capacity),
        cmocka_unit_test(pages_may_lie_elsewhere),
        cmocka_unit_test(quotes_are_whole_characters),
        cmocka_unit_test(types_have_names),
        cmocka_unit_test(head_sizes_are_served_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
