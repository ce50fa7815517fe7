/* SPDX-License-Identifier: Apache-2.0
 *
 * A bound model: every weight found and checked, and its forward pass. A layer is a part that mixes
 * positions, here attention, and a part that feeds forward; what a family has of either, and how
 * its tensors are called, is in family.h. */
#ifndef PL_MODEL_MODEL_H
#define PL_MODEL_MODEL_H

#include "delta.h"
#include "kv/cache.h"
#include "linear.h"

/* Grouped-query attention with rotary positions. */
typedef struct pl_attention_part {
    pl_linear q, k, v, o;
    bool gated;             /* q gives each head its query and a gate, side by side: what the head
                               finds is multiplied by sigmoid(gate) */
    float *q_norm, *k_norm; /* [head_dim] or NULL */
    uint32_t window;        /* 0: full attention */
    uint32_t rope;          /* which of the model's rotary embeddings */
} pl_attention_part;

/* A gated delta net: out(delta.h of the other four). */
typedef struct pl_delta_part {
    pl_linear qkv, z, a, b, out;
    pl_delta_net net;
} pl_delta_part;

/* down(act(gate x) * up x) */
typedef struct pl_mlp_part {
    pl_linear gate, up, down;
} pl_mlp_part;

/* A mixture of experts: of those that the router ranks first for a token, the sum by its weights. A
 * shared expert sees every token, times sigmoid(shared_gate x). */
typedef struct pl_experts_part {
    pl_linear router; /* [n][C] */
    uint32_t n, used;
    bool renormalise;     /* the weights of those used sum to 1 */
    pl_mlp_part *experts; /* [n] */
    bool has_shared;
    pl_mlp_part shared;
    pl_linear shared_gate; /* [1][C] */
} pl_experts_part;

typedef struct pl_layer {
    float *input_norm, *post_norm; /* [C], before mixing and before feeding forward */
    float *mixed_norm, *fed_norm;  /* [C], of what either adds to the stream; or NULL */
    pl_attention_part attention; /* one of these mixes positions: */
    pl_delta_part *delta;        /* where not NULL; owned */
    pl_mlp_part mlp;          /* one of these feeds forward: */
    pl_experts_part *experts; /* where not NULL; owned */
} pl_layer;

/* A layer's linear layers that are modules of its config (format/modules.c), in that order; `out`
 * may be NULL. Returns how many there are. */
size_t pl_layer_linears(const pl_layer *l, const pl_linear **out);

/* A rotary embedding as the forward pass uses it. */
typedef struct pl_rope {
    float *frequencies; /* [half] */
    size_t half;        /* of the rotated numbers of a head */
    float scale;        /* cos and sin are multiplied by it (yarn) */
} pl_rope;

enum { PL_MAX_ROPES = 2 };

typedef struct pl_family pl_family;

typedef struct pl_transformer {
    const pl_config *config;
    const pl_family *family;
    pl_linear embedding, head;       /* head is a second view of embedding when tied */
    float *final_norm;
    pl_layer *layers;
    pl_rope ropes[PL_MAX_ROPES];
    uint32_t n_ropes;
} pl_transformer;

pleach_status pl_transformer_open(const pleach_checkpoint *c, pl_transformer **out,
                                  pleach_error *err);
void pl_transformer_close(pl_transformer *t);
/* The embedding of a token as the first layer meets it, x [C]. */
void pl_transformer_embed(const pl_transformer *t, uint64_t id, float *x);

/* Scratch memory for up to `batch` tokens at once; one per session. */
typedef struct pl_workspace pl_workspace;
pleach_status pl_workspace_open(const pl_transformer *t, const pl_compute *c, size_t batch,
                                pl_workspace **out, pleach_error *err);
void pl_workspace_close(pl_workspace *w);

/* Runs n <= batch ids at the cache's end (room must be reserved) and advances it. logits, when not
 * NULL, receives [n - first][vocab] for positions first..n-1, and hidden, when not NULL, [n - first][C],
 * the last norm's outputs. */
pleach_status pl_transformer_forward(const pl_transformer *t, const pl_compute *c, pl_workspace *w,
                                     pl_cache *cache, const int32_t *ids, size_t n, size_t first,
                                     float *logits, float *hidden, pleach_error *err);
/* One token for each of n <= batch sequences, each with a cache of its own (room must be reserved)
 * and at that cache's end; logits [n][vocab]. A row has the same bits as if it were alone. */
pleach_status pl_transformer_step(const pl_compute *c, pl_workspace *w, pl_cache *const *caches,
                                  const int32_t *ids, size_t n, float *logits, pleach_error *err);

#endif
