/* SPDX-License-Identifier: Apache-2.0
 *
 * The insides of a cache, for the files of this folder. */
#ifndef PL_KV_CACHE_STORE_H
#define PL_KV_CACHE_STORE_H

#include <stdatomic.h>

#include "base/memory.h"
#include "cache.h"

/* In this process's memory data follows. Only a cache that alone refers to a page writes to it. */
typedef struct page {
    _Alignas(PL_ALIGNMENT) atomic_size_t references;
    uint8_t *data;
} page;

/* A layer's tokens in its type, or its recent tokens in bf16. */
typedef struct store {
    pl_kv type;
    uint32_t layer;
    size_t recent_store; /* where this layer's recent tokens are; 0: nowhere */
    size_t window;       /* positions that a query sees; 0: all */
    size_t block;        /* of recent tokens: pages in a block; 0: they are a layer's tokens */
    size_t key_bytes, value_bytes; /* of a page, of one head */
    /* The table: pages [first, n_pages) are there, those before it given up. */
    page **pages;
    size_t first, n_pages, pages_capacity;
} store;

struct pl_cache {
    uint32_t n_layers, n_heads, head_dim;
    size_t capacity, length, recent;
    const pl_kernels *kernels;
    pl_page_memory *memory; /* NULL: this process's */
    void *mirror;
    uint64_t changes; /* of any table */
    store *stores; /* the layers', then those of the recent tokens of packed layers */
    size_t n_stores;
};

static inline size_t pages_of(size_t tokens)
{
    return tokens / PL_CACHE_PAGE + (tokens % PL_CACHE_PAGE != 0);
}

static inline size_t page_bytes(const pl_cache *c, const store *l)
{
    return c->n_heads * (l->key_bytes + l->value_bytes);
}

static inline pl_page_shape page_shape(const pl_cache *c, const store *l)
{
    return (pl_page_shape){l->type, c->n_heads, c->head_dim, page_bytes(c, l)};
}

pleach_status pl_cache_page_open(const pl_cache *c, const store *l, page **out, pleach_error *err);

/* The first page that a query at `position` or later sees. */
static inline size_t first_seen(const store *l, size_t position)
{
    size_t page = position / PL_CACHE_PAGE;
    if (l->block) return page - page % l->block;
    return l->window && position >= l->window ? (position - l->window + 1) / PL_CACHE_PAGE : 0;
}

/* The first page kept at a length: one more than is seen, so that a few tokens can be taken back.
 */
static inline size_t first_kept(const store *l, size_t length)
{
    size_t seen = first_seen(l, length);
    return seen && !l->block ? seen - 1 : seen;
}

#endif
