/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache in pages of PL_CACHE_PAGE positions. A page holds the heads of one layer,
 * [head][keys, values], so that growing copies nothing, a layer can drop pages that others keep,
 * and what attention reads of one head lies together. */
#include "cache_store.h"

#include <assert.h>
#include <string.h>

#include "base/half.h"

pleach_status pl_cache_page_open(const pl_cache *c, const store *l, page **out, pleach_error *err)
{
    size_t bytes = page_bytes(c, l);
    pleach_status status = PLEACH_OK;
    page *p = *out = pl_alloc(1, sizeof *p + (c->memory ? 0 : bytes));
    if (!p) return pl_fail_memory(err, "attention cache", bytes);
    atomic_init(&p->references, 1);
    p->data = (uint8_t *)(p + 1);
    if (c->memory) status = c->memory->take(c->memory, bytes, (void **)&p->data, err);
    if (status == PLEACH_OK) return status;
    pl_free(p);
    *out = NULL;
    return status;
}

static void page_release(const pl_cache *c, const store *l, page *p)
{
    if (!page_leave(p)) return;
    if (c->memory) c->memory->give(c->memory, p->data, page_bytes(c, l));
    pl_free(p);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* All pages of a full cache must be few enough to address, the largest type taken for each. */
static pleach_status check_size(const pl_cache_settings *s, pleach_error *err)
{
    size_t bytes = PL_CACHE_PAGE * 2 * sizeof(float);
    if (__builtin_mul_overflow(bytes, (size_t)s->n_layers, &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)s->n_kv_heads, &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)s->head_dim, &bytes) ||
        __builtin_mul_overflow(bytes, pages_of(s->capacity), &bytes))
        return pl_fail(err, PLEACH_ERR_SHAPE,
                       "an attention cache of %zu tokens is too large to address", s->capacity);
    return PLEACH_OK;
}

static pleach_status add_store(pl_cache *c, store l, pleach_error *err)
{
    PL_TRY(pl_kv_check(l.type, c->head_dim, err));
    assert(c->kernels || !pl_kv_is_packed(l.type));
    if (!l.state_bytes) {
        l.key_bytes = PL_CACHE_PAGE * pl_kv_key_bytes(l.type, c->head_dim);
        l.value_bytes = PL_CACHE_PAGE * pl_kv_value_bytes(l.type, c->head_dim);
    }
    c->state_bytes += (l.state_bytes + PL_ALIGNMENT - 1) / PL_ALIGNMENT * PL_ALIGNMENT;
    c->stores[c->n_stores++] = l;
    return PLEACH_OK;
}

static pleach_status add_stores(pl_cache *c, const pl_cache_settings *s, pleach_error *err)
{
    for (uint32_t i = 0; i < s->n_layers; i++)
        PL_TRY(add_store(c,
                         (store){.type = s->types ? s->types[i] : PL_KV_F32,
                                 .layer = i,
                                 .window = s->windows ? s->windows[i] : 0,
                                 .state_bytes = s->states ? s->states[i] : 0,
                                 .state_at = c->state_bytes},
                         err));
    for (uint32_t i = 0; c->recent && i < s->n_layers; i++) {
        if (!pl_cache_packed(c, i) || c->stores[i].state_bytes) continue;
        c->stores[i].recent_store = c->n_stores;
        PL_TRY(add_store(
            c, (store){.type = PL_KV_BF16, .layer = i, .block = pages_of(c->recent)}, err));
    }
    return PLEACH_OK;
}

/* Room for both kinds of store of every layer. */
static pl_cache *allocate(uint32_t n_layers, pleach_error *err)
{
    pl_cache *c = pl_calloc(1, sizeof *c);
    store *stores = pl_calloc((size_t)n_layers * 2, sizeof *stores);
    if (c && stores) {
        c->stores = stores;
        return c;
    }
    pl_free(c);
    pl_free(stores);
    pl_fail_memory(err, "attention cache", 2ull * n_layers * sizeof *stores);
    return NULL;
}

pleach_status pl_cache_open(const pl_cache_settings *s, pl_cache **out, pleach_error *err)
{
    *out = NULL;
    PL_TRY(check_size(s, err));
    size_t recent = PL_MIN(pages_of(s->recent), pages_of(s->capacity)) * PL_CACHE_PAGE;
    pl_cache *c = allocate(s->n_layers, err);
    if (!c) return PLEACH_ERR_MEMORY;
    *c = (pl_cache){.n_layers = s->n_layers,
                    .n_heads = s->n_kv_heads,
                    .head_dim = s->head_dim,
                    .capacity = s->capacity,
                    .recent = recent,
                    .kernels = s->kernels,
                    .memory = s->memory,
                    .stores = c->stores};
    pleach_status status = add_stores(c, s, err);
    if (c->n_stores == c->n_layers) c->recent = 0;
    if (status == PLEACH_OK)
        *out = c;
    else
        pl_cache_close(c);
    return status;
}

void pl_cache_close(pl_cache *c)
{
    if (!c) return;
    if (c->mirror) c->memory->forget(c->memory, c->mirror);
    for (size_t i = 0; i < c->n_stores; i++) {
        store *l = &c->stores[i];
        for (size_t p = l->first; p < l->n_pages; p++) page_release(c, l, l->pages[p]);
        pl_free(l->pages);
    }
    pl_cache_states_release(c);
    pl_free(c->stores);
    pl_free(c);
}

pleach_status pl_cache_open_like(const pl_cache *c, pl_cache **out, pleach_error *err)
{
    *out = NULL;
    pl_cache *f = allocate(c->n_layers, err);
    if (!f) return PLEACH_ERR_MEMORY;
    store *stores = f->stores;
    *f = *c;
    f->length = 0;
    f->mirror = NULL;
    f->state = NULL;
    f->n_kept = 0;
    f->spare.page = NULL;
    f->stores = stores;
    for (size_t i = 0; i < c->n_stores; i++) {
        stores[i] = c->stores[i];
        stores[i].pages = NULL;
        stores[i].first = stores[i].n_pages = stores[i].pages_capacity = 0;
    }
    *out = f;
    return PLEACH_OK;
}

/* The pages of `from` that hold tokens, in an empty layer too. */
static int share_pages(store *l, const store *from, size_t length)
{
    size_t used = PL_MIN(pages_of(length), from->n_pages);
    if (pl_grow((void **)&l->pages, &l->pages_capacity, used, sizeof *l->pages)) return -1;
    for (size_t p = 0; p < used; p++) l->pages[p] = page_share(from->pages[p]);
    l->first = PL_MIN(from->first, used);
    l->n_pages = used;
    return 0;
}

pleach_status pl_cache_fork_at(const pl_cache *c, size_t n, pl_cache **out, pleach_error *err)
{
    PL_TRY(pl_cache_open_like(c, out, err));
    (*out)->length = n;
    for (size_t i = 0; i < c->n_stores; i++)
        if (share_pages(&(*out)->stores[i], &c->stores[i], n)) {
            pl_cache_close(*out);
            *out = NULL;
            return pl_fail_memory(err, "attention cache", pages_of(n) * sizeof(page *));
        }
    pl_cache_states_share(*out, c, n);
    return PLEACH_OK;
}

pleach_status pl_cache_fork(const pl_cache *c, pl_cache **out, pleach_error *err)
{
    return pl_cache_fork_at(c, c->length, out, err);
}

/* ---- length ---------------------------------------------------------------------------------- */

size_t pl_cache_length(const pl_cache *c)
{
    return c->length;
}

pleach_status pl_cache_check_room(const pl_cache *c, size_t n, pleach_error *err)
{
    PL_FAIL_IF(n > c->capacity - c->length, err, PLEACH_ERR_LIMIT,
               "the context of %zu tokens is full: it holds %zu, and %zu more were given",
               c->capacity, c->length, n);
    return PLEACH_OK;
}

/* A page to write to: one that the window has left behind if nobody else has it, else a new one. */
static pleach_status take_page(pl_cache *c, store *l, size_t keep, page **out, pleach_error *err)
{
    c->changes++;
    while (l->first < PL_MIN(keep, l->n_pages)) {
        *out = l->pages[l->first];
        l->pages[l->first++] = NULL;
        if (!page_shared(*out)) return PLEACH_OK;
        page_release(c, l, *out);
    }
    return pl_cache_page_open(c, l, out, err);
}

static pleach_status copy_page(const pl_cache *c, const store *l, page *to, const page *from,
                               pleach_error *err)
{
    if (c->memory) return c->memory->copy(c->memory, to->data, from->data, page_bytes(c, l), err);
    memcpy(to->data, from->data, page_bytes(c, l));
    return PLEACH_OK;
}

/* Puts a page of our own in place of a shared one, with the tokens it holds. */
static pleach_status own_page(pl_cache *c, store *l, size_t i, size_t keep, pleach_error *err)
{
    page *p, *old = l->pages[i];
    PL_TRY(take_page(c, l, keep, &p, err));
    l->pages[i] = p;
    pleach_status status = PLEACH_OK;
    if (i * PL_CACHE_PAGE < c->length) status = copy_page(c, l, p, old, err);
    page_release(c, l, old);
    return status;
}

static pleach_status reserve_store(pl_cache *c, store *l, size_t n, pleach_error *err)
{
    if (l->state_bytes) return PLEACH_OK;
    size_t needed = pages_of(c->length + n), keep = first_kept(l, c->length);
    if (pl_grow((void **)&l->pages, &l->pages_capacity, needed, sizeof *l->pages))
        return pl_fail_memory(err, "attention cache", needed * sizeof *l->pages);
    for (size_t i = c->length / PL_CACHE_PAGE; i < PL_MIN(needed, l->n_pages); i++)
        if (page_shared(l->pages[i])) PL_TRY(own_page(c, l, i, keep, err));
    while (l->n_pages < needed) {
        page *p;
        PL_TRY(take_page(c, l, keep, &p, err));
        l->pages[l->n_pages++] = p;
    }
    for (; l->first < keep; l->first++) {
        page_release(c, l, l->pages[l->first]);
        l->pages[l->first] = NULL;
        c->changes++;
    }
    return PLEACH_OK;
}

pleach_status pl_cache_reserve(pl_cache *c, size_t n, pleach_error *err)
{
    PL_TRY(pl_cache_check_room(c, n, err));
    for (size_t i = 0; i < c->n_stores; i++) PL_TRY(reserve_store(c, &c->stores[i], n, err));
    return pl_cache_states_reserve(c, n, err);
}

void pl_cache_advance(pl_cache *c, size_t n)
{
    c->length += n;
    pl_cache_states_advance(c);
}

/* Whether the next token after n sees nothing that was given up: there may be nothing to see. */
static bool store_reaches(const store *l, size_t n)
{
    size_t seen = first_seen(l, n);
    return seen >= l->first || seen * PL_CACHE_PAGE == n;
}

static bool reaches(const pl_cache *c, size_t n)
{
    for (size_t i = 0; i < c->n_stores; i++)
        if (!store_reaches(&c->stores[i], n)) return false;
    return pl_cache_states_reach(c, n);
}

size_t pl_cache_reach(const pl_cache *c, size_t n)
{
    size_t block = c->recent;
    if (n >= c->length) return c->length;
    if (reaches(c, n)) return n;
    if (block && reaches(c, n / block * block)) return n / block * block;
    while (n > 0 && !reaches(c, n)) n = pl_cache_states_below(c, n);
    return n;
}

bool pl_cache_forgets(const pl_cache *c)
{
    bool windows = false;
    for (size_t i = 0; i < c->n_stores; i++) windows = windows || c->stores[i].window;
    return windows || c->recent || c->state_bytes;
}

bool pl_cache_covers(const pl_cache *c, const pl_cache *other)
{
    for (size_t i = 0; i < c->n_stores; i++)
        if (c->stores[i].first > other->stores[i].first) return false;
    return c->length >= other->length && pl_cache_states_cover(c, other);
}

/* Pages that hold nothing of the first n tokens, moved in front of those given up. */
static void start_at(pl_cache *c, store *l, size_t n)
{
    size_t page = n / PL_CACHE_PAGE;
    if (page >= l->first) return;
    c->changes++;
    size_t gap = l->first - page;
    memmove(l->pages + page, l->pages + l->first, (l->n_pages - l->first) * sizeof *l->pages);
    l->first = page;
    l->n_pages -= gap;
}

void pl_cache_truncate(pl_cache *c, size_t n)
{
    if (n >= c->length) return;
    assert(reaches(c, n));
    pl_cache_states_truncate(c, n);
    c->length = n;
    for (size_t i = 0; i < c->n_stores; i++) start_at(c, &c->stores[i], n);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Keys of one head in the page that holds `position`; its values follow. */
static uint8_t *head_data(const store *l, size_t position, uint32_t head)
{
    return l->pages[position / PL_CACHE_PAGE]->data + head * (l->key_bytes + l->value_bytes);
}

static void store_plain(const pl_cache *c, pl_kv type, uint8_t *run, size_t at, const float *src)
{
    size_t D = c->head_dim;
    if (type == PL_KV_F32) {
        memcpy((float *)run + at * D, src, D * sizeof *src);
        return;
    }
    uint16_t *dst = (uint16_t *)run + at * D;
    for (size_t i = 0; i < D; i++) dst[i] = pl_f32_to_bf16(src[i]);
}

static void put_head(const pl_cache *c, const store *l, size_t position, uint32_t head,
                     const float *k, const float *v)
{
    uint8_t *keys = head_data(l, position, head), *values = keys + l->key_bytes;
    size_t at = position % PL_CACHE_PAGE;
    if (!pl_kv_is_packed(l->type)) {
        store_plain(c, l->type, keys, at, k);
        store_plain(c, l->type, values, at, v);
        return;
    }
    pl_turboquant t = pl_kv_code(l->type, c->head_dim);
    pl_turboquant_view to = pl_turboquant_key_page(&t, keys, PL_CACHE_PAGE, at);
    pl_turboquant_encode_keys(&t, &to, k, c->head_dim, 1);
    to = pl_turboquant_value_page(&t, values, PL_CACHE_PAGE, at);
    pl_turboquant_encode_values(&t, c->kernels, &to, v, c->head_dim, 1);
}

static void put(const pl_cache *c, const store *l, size_t position, size_t n, const float *k,
                const float *v)
{
    size_t D = c->head_dim;
    for (size_t i = 0; i < n; i++, position++)
        for (uint32_t h = 0; h < c->n_heads; h++, k += D, v += D) put_head(c, l, position, h, k, v);
}

/* Where a layer's recent tokens are; NULL: nowhere. */
static const store *recent_store(const pl_cache *c, uint32_t layer)
{
    size_t i = c->stores[layer].recent_store;
    return i ? &c->stores[i] : NULL;
}

void pl_cache_put(pl_cache *c, uint32_t layer, size_t position, size_t n, const float *k,
                  const float *v)
{
    const store *recent = recent_store(c, layer);
    put(c, &c->stores[layer], position, n, k, v);
    if (recent) put(c, recent, position, n, k, v);
}

/* Tokens [at, at + n) of a head's page, to dst. value: whether they are values. */
static void decode(const pl_cache *c, const store *l, uint8_t *run, bool value, size_t at, size_t n,
                   float *dst)
{
    pl_turboquant t = pl_kv_code(l->type, c->head_dim);
    pl_turboquant_plain to = {.data = dst, .stride = c->head_dim};
    if (value) {
        pl_turboquant_view from = pl_turboquant_value_page(&t, run, PL_CACHE_PAGE, at);
        pl_turboquant_decode_values(&t, c->kernels, &from, &to, n, false);
    } else {
        pl_turboquant_view from = pl_turboquant_key_page(&t, run, PL_CACHE_PAGE, at);
        pl_turboquant_decode_keys(&t, &from, &to, n);
    }
}

/* A part of one page; converts when the layer is not f32. */
static const float *read_run(const pl_cache *c, const store *l, uint32_t head, bool value,
                             size_t first, size_t n, float *scratch)
{
    uint8_t *run = head_data(l, first, head) + (value ? l->key_bytes : 0);
    size_t at = first % PL_CACHE_PAGE;
    if (l->type == PL_KV_F32) return (const float *)run + at * c->head_dim;
    if (l->type == PL_KV_BF16) {
        const uint16_t *src = (const uint16_t *)run + at * c->head_dim;
        for (size_t i = 0; i < n * c->head_dim; i++) scratch[i] = pl_bf16_to_f32(src[i]);
    } else {
        decode(c, l, run, value, at, n, scratch);
    }
    return scratch;
}

static const float *read_range(const pl_cache *c, const store *l, uint32_t head, bool value,
                               size_t first, size_t n, float *scratch)
{
    if (first % PL_CACHE_PAGE + n <= PL_CACHE_PAGE)
        return read_run(c, l, head, value, first, n, scratch);
    for (size_t done = 0; done < n;) {
        size_t at = first + done;
        size_t part = PL_MIN(n - done, PL_CACHE_PAGE - at % PL_CACHE_PAGE);
        float *dst = scratch + done * c->head_dim;
        const float *src = read_run(c, l, head, value, at, part, dst);
        if (src != dst) memcpy(dst, src, part * c->head_dim * sizeof *dst);
        done += part;
    }
    return scratch;
}

const float *pl_cache_keys(const pl_cache *c, uint32_t layer, uint32_t head, size_t first, size_t n,
                           float *scratch)
{
    return read_range(c, &c->stores[layer], head, false, first, n, scratch);
}

const float *pl_cache_values(const pl_cache *c, uint32_t layer, uint32_t head, size_t first,
                             size_t n, float *scratch)
{
    return read_range(c, &c->stores[layer], head, true, first, n, scratch);
}

size_t pl_cache_recent_from(const pl_cache *c, uint32_t layer, size_t position)
{
    const store *l = recent_store(c, layer);
    return l ? first_seen(l, position) * PL_CACHE_PAGE : SIZE_MAX;
}

const float *pl_cache_recent_keys(const pl_cache *c, uint32_t layer, uint32_t head, size_t first,
                                  size_t n, float *scratch)
{
    return read_range(c, recent_store(c, layer), head, false, first, n, scratch);
}

const float *pl_cache_recent_values(const pl_cache *c, uint32_t layer, uint32_t head, size_t first,
                                    size_t n, float *scratch)
{
    return read_range(c, recent_store(c, layer), head, true, first, n, scratch);
}

bool pl_cache_packed(const pl_cache *c, uint32_t layer)
{
    return pl_kv_is_packed(c->stores[layer].type);
}

void pl_cache_packed_page(const pl_cache *c, uint32_t layer, uint32_t head, size_t first,
                          pl_turboquant *t, const uint8_t **keys, const uint8_t **values)
{
    const store *l = &c->stores[layer];
    *t = pl_kv_code(l->type, c->head_dim);
    *keys = head_data(l, first, head);
    *values = *keys + l->key_bytes;
}
