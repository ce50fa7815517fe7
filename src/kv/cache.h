/* SPDX-License-Identifier: Apache-2.0
 *
 * The attention cache of one session: keys and values of every layer, each layer in a type of its
 * own, growing page by page as tokens come. Pages are shared between forked caches until one of
 * them writes, and given up once a sliding window has left them behind.
 *
 * What is stored at a position depends on that position's keys and values alone, and whether a
 * query sees it packed or as a recent token on the two positions alone, never on how tokens came,
 * so that results do not either. */
#ifndef PL_KV_CACHE_H
#define PL_KV_CACHE_H

#include "kv_type.h"
#include "page_memory.h"

typedef struct pl_cache pl_cache;

/* Positions in a page. A range inside one page is read in place from an f32 layer. */
#define PL_CACHE_PAGE ((size_t)64)

/* Earlier states that a cache with recurrent layers keeps, at most. */
enum { PL_CACHE_STATES = 3 };

typedef struct pl_cache_settings {
    uint32_t n_layers, n_kv_heads, head_dim;
    size_t capacity;           /* most tokens it may hold */
    const pl_kv *types;        /* [n_layers]; NULL: f32 */
    const uint32_t *windows;   /* [n_layers] positions that a query sees, 0: all; NULL: all */
    const size_t *states;      /* [n_layers] bytes of a recurrent layer's state, which it has instead
                                  of keys and values, 0: none; NULL: none */
    size_t recent;             /* tokens in a block, rounded up to pages and no more than the
                                  capacity's: where a layer is packed, a query sees its own block
                                  in bf16; 0: all packed */
    const pl_kernels *kernels; /* borrowed until closing; may be NULL without packed types */
    pl_page_memory *memory;    /* borrowed until closing; NULL: this process's. Pages elsewhere are
                                  filled and read by whoever owns them: pl_cache_put and what
                                  reads numbers below are for this process's alone */
} pl_cache_settings;

/* PLEACH_ERR_SHAPE for a type that cannot serve the heads, or a capacity too large to address.
 * Memory comes a page at a time, and what no window has left behind stays until closing. */
pleach_status pl_cache_open(const pl_cache_settings *s, pl_cache **out, pleach_error *err);
void pl_cache_close(pl_cache *c); /* accepts NULL */
/* A second cache with the same tokens. It shares c's pages; whoever writes to a shared page first
 * takes a copy. Caches that share may be used by different threads at once. */
pleach_status pl_cache_fork(const pl_cache *c, pl_cache **out, pleach_error *err);
/* The same of the first n tokens alone, n <= length, as pl_cache_reach has it. */
pleach_status pl_cache_fork_at(const pl_cache *c, size_t n, pl_cache **out, pleach_error *err);

size_t pl_cache_length(const pl_cache *c);
/* Room for n more tokens and not more than capacity, else PLEACH_ERR_LIMIT. */
pleach_status pl_cache_check_room(const pl_cache *c, size_t n, pleach_error *err);
/* Makes room for n more tokens; pl_cache_put fills them layer by layer, on any thread;
 * pl_cache_advance adds them to the length once all layers are in. Pages that no query from the
 * length on can see are given up here. */
pleach_status pl_cache_reserve(pl_cache *c, size_t n, pleach_error *err);
/* k, v [n][n_kv_heads][head_dim]. */
void pl_cache_put(pl_cache *c, uint32_t layer, size_t position, size_t n, const float *k,
                  const float *v);
void pl_cache_advance(pl_cache *c, size_t n);
/* Where one can go back to for the first n tokens: n, or less, where what the next token would see
 * was given up; tokens from there to n are to be computed again. Without windows and states it is no
 * more than a block of recent tokens less. */
size_t pl_cache_reach(const pl_cache *c, size_t n);
/* Whether that may be less than n: a layer has a window, recent tokens or a state. */
bool pl_cache_forgets(const pl_cache *c);
/* Whether c, which begins with all that `other` holds, goes back to wherever that does. */
bool pl_cache_covers(const pl_cache *c, const pl_cache *other);
/* Back to the first n tokens, n <= length, as pl_cache_reach has it. */
void pl_cache_truncate(pl_cache *c, size_t n);

/* Keys (values) of one head at consecutive positions [first, first+n) as f32 [n][head_dim]. Returns
 * a pointer into the cache when it can, else converts into `scratch`. */
const float *pl_cache_keys(const pl_cache *c, uint32_t layer, uint32_t head, size_t first, size_t n,
                           float *scratch);
const float *pl_cache_values(const pl_cache *c, uint32_t layer, uint32_t head, size_t first,
                             size_t n, float *scratch);

/* Where the recent tokens of a packed layer are kept in bf16 beside its codes: the first position
 * that the query at `position` sees so, a multiple of PL_CACHE_PAGE; it sees all from there on so,
 * and codes before. SIZE_MAX where none are kept. The accessors are as above, for such positions
 * alone. */
size_t pl_cache_recent_from(const pl_cache *c, uint32_t layer, size_t position);
const float *pl_cache_recent_keys(const pl_cache *c, uint32_t layer, uint32_t head, size_t first,
                                  size_t n, float *scratch);
const float *pl_cache_recent_values(const pl_cache *c, uint32_t layer, uint32_t head, size_t first,
                                    size_t n, float *scratch);

/* Whether a layer holds codes, and the page of them that holds position `first`, a multiple of
 * PL_CACHE_PAGE: its keys and its values of one head, 64-byte aligned, as turboquant.h lays out a
 * page of PL_CACHE_PAGE tokens. What lies past the length is undefined. */
bool pl_cache_packed(const pl_cache *c, uint32_t layer);
void pl_cache_packed_page(const pl_cache *c, uint32_t layer, uint32_t head, size_t first,
                          pl_turboquant *t, const uint8_t **keys, const uint8_t **values);

/* ---- recurrent layers ------------------------------------------------------------------------
 *
 * Their state after `length` tokens, zeros at first, is advanced in place by the reserved tokens:
 * reserving is a promise to advance by all of them, or to go back. Since it cannot be taken back, the
 * states after some earlier lengths are kept, at multiples of a border: PL_CACHE_PAGE or a block of
 * recent tokens if that is more. The last border always is, and up to PL_CACHE_STATES - 1 before it,
 * spread so that their distances to the end grow. Which ones depends on the tokens' number alone,
 * never on how they came. States are in this process's memory. */

size_t pl_cache_state_bytes(const pl_cache *c); /* of all layers; 0: there are none */
/* A layer's, 64-byte aligned, reserved. */
float *pl_cache_state(const pl_cache *c, uint32_t layer);
/* The end of a piece of the reserved tokens that begins at `position`: the next border or `end`. */
size_t pl_cache_state_piece(const pl_cache *c, size_t position, size_t end);
/* Where the layer's state after `position` tokens is to be kept; NULL: it is not. */
float *pl_cache_state_kept(const pl_cache *c, uint32_t layer, size_t position);

/* ---- pages elsewhere -------------------------------------------------------------------------
 *
 * What a device keeps of a cache: its tables of pages, up to date as long as `changes` is what it
 * was. */

void **pl_cache_mirror(pl_cache *c); /* NULL at first; given to memory->forget at closing */
uint64_t pl_cache_changes(const pl_cache *c);
/* Pages 0 .. n-1 of a store, n <= its pages; NULL where they were given up. Returns how many there
 * are. */
size_t pl_cache_table(const pl_cache *c, size_t store, void **pages, size_t n);
/* The store of a packed layer's recent tokens; 0: none are kept. Store i is layer i's. */
size_t pl_cache_recent_store(const pl_cache *c, uint32_t layer);

/* ---- pages, for the file ---------------------------------------------------------------------
 *
 * Stores 0, 1, ... are the layers' tokens, then the recent tokens of layers that have such. */

/* An empty cache of the same make. */
pleach_status pl_cache_open_like(const pl_cache *c, pl_cache **out, pleach_error *err);
size_t pl_cache_stores(const pl_cache *c);
enum { PL_CACHE_STORE_NAME = 32 };
/* "layers.3.pages", "layers.3.recent", "layers.3.state": a state counts as a page. */
void pl_cache_store_name(const pl_cache *c, size_t store, char name[PL_CACHE_STORE_NAME]);
size_t pl_cache_page_bytes(const pl_cache *c, size_t store);
/* Pages that go into the file: the last so many up to the length; and the fewest and the most of
 * them that a cache of `length` tokens is made of. */
size_t pl_cache_kept_pages(const pl_cache *c, size_t store);
bool pl_cache_pages_suffice(const pl_cache *c, size_t store, size_t length, size_t pages);
/* Page i of those, 0 past the length. */
pleach_status pl_cache_get_page(const pl_cache *c, size_t store, size_t i, void *dst,
                                pleach_error *err);
/* Fills an empty cache with `length` tokens: store by store the last so many pages, enough of them.
 * On failure the cache is to be closed. */
pleach_status pl_cache_set_pages(pl_cache *c, size_t store, size_t length, const void *data,
                                 size_t pages, pleach_error *err);

/* ---- sizes ----------------------------------------------------------------------------------- */

pl_kv pl_cache_type(const pl_cache *c, uint32_t layer);
uint32_t pl_cache_layers(const pl_cache *c);
size_t pl_cache_capacity(const pl_cache *c);
size_t pl_cache_recent(const pl_cache *c); /* of a block, in whole pages; 0: no layer is packed */
/* Bytes of the pages held now, those shared included; of one token in all layers, recent ones
 * apart; and of the most pages ever held up to the capacity, where up to `batch` tokens, 1 to
 * capacity, come at once: a bound that a cache of one kind of layer reaches. */
uint64_t pl_cache_bytes(const pl_cache *c);
uint64_t pl_cache_token_bytes(const pl_cache *c);
uint64_t pl_cache_most_bytes(const pl_cache *c, size_t batch);
/* Bytes held now, a page that several caches share counted for each in equal parts: over all of
 * them the sum is what is held. */
double pl_cache_share(const pl_cache *c);

#endif
