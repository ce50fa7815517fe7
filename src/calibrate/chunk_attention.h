/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal grouped-query attention within one chunk, forward and backward, as matrix products over
 * tiles of positions. */
#ifndef PL_CALIBRATE_CHUNK_ATTENTION_H
#define PL_CALIBRATE_CHUNK_ATTENTION_H

#include "base/compiler.h"
#include "kernels/kernels.h"

typedef struct pl_chunk_attention {
    const pl_compute *c;
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t window;      /* query i sees key j <= i when i - j < window; 0: all */
    size_t n;             /* positions 0..n-1 */
    const float *q;       /* [n][n_heads][head_dim] */
    const float *k, *v;   /* [n][n_kv_heads][head_dim] */
    float *mixed;         /* [n][n_heads][head_dim] */
    float *probabilities; /* [n_heads][n][n]; tiles that nobody sees are left alone */
} pl_chunk_attention;

/* probabilities = softmax(q k^T / sqrt(head_dim)), mixed = probabilities v. */
void pl_chunk_attention_forward(const pl_chunk_attention *a);
/* Gradients by q, k and v from that by mixed, after the forward call. Destroys probabilities. */
void pl_chunk_attention_backward(const pl_chunk_attention *a, const float *dmixed, float *dq,
                                 float *dk, float *dv);

#endif
