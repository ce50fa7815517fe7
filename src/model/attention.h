/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal grouped-query attention over the cache. */
#ifndef PL_MODEL_ATTENTION_H
#define PL_MODEL_ATTENTION_H

#include "kernels/kernels.h"
#include "kv/cache.h"

typedef struct pl_attention {
    const pl_cache *cache; /* holds keys and values up to the last query's own position */
    uint32_t layer, n_heads, n_kv_heads, head_dim;
    uint32_t window; /* query i sees key j <= i when i - j < window; 0: all */
    size_t position; /* of the first query */
    size_t n;        /* queries, at consecutive positions */
    const float *q;  /* [n][n_heads][head_dim] */
    float *out;      /* [n][n_heads][head_dim] */
} pl_attention;

/* Bytes of scratch that pl_attention_run needs with these heads while the cache holds no more than
 * `length` positions. */
size_t pl_attention_scratch(const pl_compute *c, uint32_t n_heads, uint32_t n_kv_heads,
                            uint32_t head_dim, size_t length);

/* out = softmax(q k^T / sqrt(head_dim)) v. scratch is 64-byte aligned. A query's result has the
 * same bits for every thread count and however the queries were cut into calls: it is made from
 * spans of positions at fixed places, each summed in order and then added in order. */
void pl_attention_run(const pl_compute *c, const pl_attention *a, void *scratch);

#endif
