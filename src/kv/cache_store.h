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
    size_t state_bytes, state_at;  /* of a layer that keeps a state and no pages; 0: it has pages */
    /* The table: pages [first, n_pages) are there, those before it given up. */
    page **pages;
    size_t first, n_pages, pages_capacity;
} store;

/* The states of all layers together after so many tokens. */
typedef struct state {
    size_t position;
    page *page;
} state;

struct pl_cache {
    uint32_t n_layers, n_heads, head_dim;
    size_t capacity, length, recent;
    const pl_kernels *kernels;
    pl_page_memory *memory; /* NULL: this process's */
    void *mirror;
    uint64_t changes; /* of any table */
    store *stores; /* the layers', then those of the recent tokens of packed layers */
    size_t n_stores;
    /* Layers that keep a state: bytes of all, the state after `length` tokens (NULL: nothing but
     * zeros), and some earlier ones, ascending; past the length they are yet to be filled in.
     * spare: that of the last border, where the kept ones to come leave it out. cache_state.c. */
    size_t state_bytes;
    page *state;
    state kept[PL_CACHE_STATES], spare;
    size_t n_kept;
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

static inline bool page_shared(const page *p)
{
    return atomic_load_explicit(&p->references, memory_order_acquire) > 1;
}

static inline page *page_share(page *p)
{
    if (p) atomic_fetch_add_explicit(&p->references, 1, memory_order_relaxed);
    return p;
}

/* What each of those that have it is to count of a page. */
static inline double page_part(const page *p)
{
    return p ? 1.0 / (double)atomic_load_explicit(&p->references, memory_order_relaxed) : 0;
}

/* Whether the caller had the last reference. */
static inline bool page_leave(page *p)
{
    return p && atomic_fetch_sub_explicit(&p->references, 1, memory_order_acq_rel) == 1;
}

/* ---- cache_state.c: all of these do nothing in a cache without states ------------------------- */

/* States for what length .. length + n - 1 leave behind. */
pleach_status pl_cache_states_reserve(pl_cache *c, size_t n, pleach_error *err);
void pl_cache_states_advance(pl_cache *c);
/* To an empty cache, those after the first n tokens, as pl_cache_states_reach has it. */
void pl_cache_states_share(pl_cache *c, const pl_cache *from, size_t n);
void pl_cache_states_release(pl_cache *c);
/* Whether the state after n <= length tokens is there; and going back to it. */
bool pl_cache_states_reach(const pl_cache *c, size_t n);
/* Whether c, the longer, has all states that `other` has. */
bool pl_cache_states_cover(const pl_cache *c, const pl_cache *other);
/* The largest kept length below n <= length; 0: none. */
size_t pl_cache_states_below(const pl_cache *c, size_t n);
size_t pl_cache_states_held(const pl_cache *c); /* how many */
double pl_cache_states_in_parts(const pl_cache *c); /* the same, shared ones in equal parts */
void pl_cache_states_truncate(pl_cache *c, size_t n);
/* For the file, of one layer: how many states a cache of `length` tokens gives it, the earlier one
 * first; and state i. */
size_t pl_cache_states_saved(const pl_cache *c, size_t length);
const uint8_t *pl_cache_states_get(const pl_cache *c, const store *l, size_t i);
pleach_status pl_cache_states_set(pl_cache *c, const store *l, size_t length, const uint8_t *data,
                                  pleach_error *err);

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
