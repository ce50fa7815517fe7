/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache in pages of PL_CACHE_PAGE positions. A page holds every layer and head of its
 * positions, [layer][key, value][head][position][head_dim], so growing copies nothing, and the keys
 * of one head lie together as attention reads them. */
#include "cache.h"

#include <string.h>

#include "base/half.h"
#include "base/memory.h"

struct pl_cache {
    uint32_t n_layers, n_heads, head_dim;
    pleach_kv type;
    size_t capacity, length;
    size_t page_bytes;
    void **pages;
    size_t n_pages, pages_capacity;
};

static size_t element_bytes(pleach_kv type) { return type == PLEACH_KV_BF16 ? 2 : 4; }

pleach_status pl_cache_open(uint32_t n_layers, uint32_t n_kv_heads, uint32_t head_dim,
                            size_t capacity, pleach_kv type, pl_cache **out, pleach_error *err)
{
    *out = NULL;
    PL_FAIL_IF(type != PLEACH_KV_F32 && type != PLEACH_KV_BF16, err, PLEACH_ERR_ARGUMENT,
               "unknown cache type %d", (int)type);
    size_t bytes = PL_CACHE_PAGE * element_bytes(type);
    if (__builtin_mul_overflow(bytes, (size_t)n_layers * 2, &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)n_kv_heads, &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)head_dim, &bytes))
        return pl_fail(err, PLEACH_ERR_SHAPE, "the attention cache is too large to address");
    pl_cache *c = pl_calloc(1, sizeof *c);
    if (!c) return pl_fail_memory(err, "attention cache", sizeof *c);
    c->n_layers = n_layers;
    c->n_heads = n_kv_heads;
    c->head_dim = head_dim;
    c->type = type;
    c->capacity = capacity;
    c->page_bytes = bytes;
    *out = c;
    return PLEACH_OK;
}

void pl_cache_close(pl_cache *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n_pages; i++) pl_free(c->pages[i]);
    pl_free(c->pages);
    pl_free(c);
}

size_t pl_cache_length(const pl_cache *c) { return c->length; }

pleach_status pl_cache_reserve(pl_cache *c, size_t n, pleach_error *err)
{
    PL_FAIL_IF(n > c->capacity - c->length, err, PLEACH_ERR_LIMIT,
               "the context of %zu tokens is full: it holds %zu, and %zu more were given",
               c->capacity, c->length, n);
    size_t needed = (c->length + n + PL_CACHE_PAGE - 1) / PL_CACHE_PAGE;
    if (pl_grow((void **)&c->pages, &c->pages_capacity, needed, sizeof *c->pages))
        return pl_fail_memory(err, "attention cache", needed * sizeof *c->pages);
    while (c->n_pages < needed) {
        void *page = pl_alloc(1, c->page_bytes);
        if (!page) return pl_fail_memory(err, "attention cache", c->page_bytes);
        c->pages[c->n_pages++] = page;
    }
    return PLEACH_OK;
}

/* Element offset in a page of the run of positions of one head. value: 0 for keys, 1 for values. */
static size_t run_offset(const pl_cache *c, uint32_t layer, size_t value, uint32_t head)
{
    return (((size_t)layer * 2 + value) * c->n_heads + head) * PL_CACHE_PAGE * c->head_dim;
}

static void store(const pl_cache *c, void *page, size_t offset, const float *src)
{
    if (c->type == PLEACH_KV_F32) {
        memcpy((float *)page + offset, src, c->head_dim * sizeof *src);
        return;
    }
    uint16_t *dst = (uint16_t *)page + offset;
    for (size_t i = 0; i < c->head_dim; i++) dst[i] = pl_f32_to_bf16(src[i]);
}

void pl_cache_put(pl_cache *c, uint32_t layer, size_t position, size_t n, const float *k,
                  const float *v)
{
    size_t D = c->head_dim;
    for (size_t i = 0; i < n; i++, position++) {
        void *page = c->pages[position / PL_CACHE_PAGE];
        size_t at = position % PL_CACHE_PAGE * D;
        for (uint32_t h = 0; h < c->n_heads; h++, k += D, v += D) {
            store(c, page, run_offset(c, layer, 0, h) + at, k);
            store(c, page, run_offset(c, layer, 1, h) + at, v);
        }
    }
}

void pl_cache_advance(pl_cache *c, size_t n) { c->length += n; }

void pl_cache_truncate(pl_cache *c, size_t n)
{
    if (n < c->length) c->length = n;
}

/* A run inside one page; converts when the cache is not f32. */
static const float *read_run(const pl_cache *c, size_t offset, size_t first, size_t n,
                             float *scratch)
{
    const void *page = c->pages[first / PL_CACHE_PAGE];
    offset += first % PL_CACHE_PAGE * c->head_dim;
    if (c->type == PLEACH_KV_F32) return (const float *)page + offset;
    const uint16_t *src = (const uint16_t *)page + offset;
    for (size_t i = 0; i < n * c->head_dim; i++) scratch[i] = pl_bf16_to_f32(src[i]);
    return scratch;
}

static const float *read_range(const pl_cache *c, size_t offset, size_t first, size_t n,
                               float *scratch)
{
    if (first % PL_CACHE_PAGE + n <= PL_CACHE_PAGE) return read_run(c, offset, first, n, scratch);
    for (size_t done = 0; done < n;) {
        size_t at = first + done;
        size_t part = PL_MIN(n - done, PL_CACHE_PAGE - at % PL_CACHE_PAGE);
        float *dst = scratch + done * c->head_dim;
        const float *src = read_run(c, offset, at, part, dst);
        if (src != dst) memcpy(dst, src, part * c->head_dim * sizeof *dst);
        done += part;
    }
    return scratch;
}

const float *pl_cache_keys(const pl_cache *c, uint32_t layer, uint32_t head, size_t first, size_t n,
                           float *scratch)
{
    return read_range(c, run_offset(c, layer, 0, head), first, n, scratch);
}

const float *pl_cache_values(const pl_cache *c, uint32_t layer, uint32_t head, size_t first,
                             size_t n, float *scratch)
{
    return read_range(c, run_offset(c, layer, 1, head), first, n, scratch);
}

uint64_t pl_cache_bytes(const pl_cache *c) { return (uint64_t)c->n_pages * c->page_bytes; }
uint64_t pl_cache_token_bytes(const pl_cache *c) { return c->page_bytes / PL_CACHE_PAGE; }
