/* SPDX-License-Identifier: Apache-2.0
 *
 * The attention cache of one session: keys and values of every layer, in f32 or bf16, growing as
 * tokens come. */
#ifndef PL_KV_CACHE_H
#define PL_KV_CACHE_H

#include "base/error.h"
#include "pleach/session.h"

typedef struct pl_cache pl_cache;

/* Positions in a page. A range inside one page is read in place from an f32 cache. */
#define PL_CACHE_PAGE ((size_t)64)

/* capacity: most tokens it may hold; memory comes a page at a time and stays until closing. */
pleach_status pl_cache_open(uint32_t n_layers, uint32_t n_kv_heads, uint32_t head_dim,
                            size_t capacity, pleach_kv type, pl_cache **out, pleach_error *err);
void pl_cache_close(pl_cache *c);
size_t pl_cache_length(const pl_cache *c);
/* Makes room for n more tokens; pl_cache_put fills them layer by layer; pl_cache_advance adds them
 * to the length once all layers are in. */
pleach_status pl_cache_reserve(pl_cache *c, size_t n, pleach_error *err);
void pl_cache_put(pl_cache *c, uint32_t layer, size_t position, size_t n, const float *k,
                  const float *v);
void pl_cache_advance(pl_cache *c, size_t n);
void pl_cache_truncate(pl_cache *c, size_t n);
/* Keys (values) of one head at consecutive positions [first, first+n) as f32 [n][head_dim]. Returns
 * a pointer into the cache when it can, else converts into `scratch`. */
const float *pl_cache_keys(const pl_cache *c, uint32_t layer, uint32_t head, size_t first, size_t n,
                           float *scratch);
const float *pl_cache_values(const pl_cache *c, uint32_t layer, uint32_t head, size_t first,
                             size_t n, float *scratch);
uint64_t pl_cache_bytes(const pl_cache *c);
uint64_t pl_cache_token_bytes(const pl_cache *c);

#endif
