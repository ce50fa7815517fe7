/* SPDX-License-Identifier: Apache-2.0
 *
 * The gated delta net between its projections: a short convolution along time, a state for each head
 * that tokens decay, read and write, and a gated norm. */
#ifndef PL_MODEL_DELTA_H
#define PL_MODEL_DELTA_H

#include "format/checkpoint.h"
#include "kernels/kernels.h"
#include "kv/cache.h"

/* Columns of the convolution, [q, k, v], and of the result. */
static inline size_t pl_delta_keys(const pl_delta_config *g)
{
    return (size_t)g->key_heads * g->key_dim;
}
static inline size_t pl_delta_values(const pl_delta_config *g)
{
    return (size_t)g->value_heads * g->value_dim;
}
static inline size_t pl_delta_channels(const pl_delta_config *g)
{
    return 2 * pl_delta_keys(g) + pl_delta_values(g);
}

/* Of a layer in the cache: the last taps - 1 inputs of the convolution, then the heads' states in
 * panels (kernels/delta.h). docs/kv.md. */
size_t pl_delta_state_bytes(const pl_delta_config *g);

/* A layer's own numbers. */
typedef struct pl_delta_net {
    pl_delta_config shape;
    float eps;
    float *conv;            /* [taps][channels] */
    float *rate, *dt_bias;  /* [value heads]; rate is exp(A_log) */
    float *norm;            /* [value_dim] */
    float *q_gain, *k_gain; /* [key_dim]: gains that make RMS norms of what brings to a length */
} pl_delta_net;

/* A call: n rows that go to one cache at consecutive positions, or to a cache each. Results are of
 * rows from .. n-1. */
typedef struct pl_delta_call {
    const pl_delta_net *net;
    pl_cache *const *caches; /* reserved */
    bool apart;
    uint32_t layer;
    size_t n, from;
    const float *qkv;     /* [n][channels] */
    const float *z;       /* [n][values] */
    const float *a, *b;   /* [n][value heads] */
    float *mixed;         /* [n][channels] scratch */
    pl_delta_gate *gates; /* [n][value heads] scratch */
    float *out;           /* [n][values]; rows from .. n-1 are filled in */
} pl_delta_call;

/* With x the convolution of qkv and SiLU, cut into q, k (of the key head of each head) and v:
 *   q <- q / |q| / sqrt(key_dim),  k <- k / |k|          |x| = sqrt(sum x^2 + 1e-6)
 *   decay = exp(-rate softplus(a + dt_bias)),  beta = 1 / (1 + exp(-b))
 *   o = delta(state; q, k, v, decay, beta)               kernels/delta.h
 *   out = o / sqrt(mean(o^2) + eps) * norm * silu(z)     head by head
 * and the states are advanced. The same bits for every cut into calls and thread count.
 * Source: transformers 5.24, modeling_qwen3_5. */
void pl_delta_net_run(const pl_compute *c, const pl_delta_call *d);

#endif
