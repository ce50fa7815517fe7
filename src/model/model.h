/* SPDX-License-Identifier: Apache-2.0
 *
 * A bound model: every weight found and checked, and the forward pass of the dense families
 * (Llama, Mistral, Qwen2, Qwen3). */
#ifndef PL_MODEL_MODEL_H
#define PL_MODEL_MODEL_H

#include "kv/cache.h"
#include "linear.h"

typedef struct pl_layer {
    float *input_norm, *post_norm;   /* [C] */
    float *q_norm, *k_norm;          /* [head_dim] or NULL */
    pl_linear q, k, v, o, gate, up, down;
    uint32_t window;                 /* 0: full attention */
} pl_layer;

enum { PL_LAYER_LINEARS = 7 };

/* A layer's linear layers in the config's order: q k v o gate up down. */
static inline void pl_layer_linears(const pl_layer *l, const pl_linear *out[PL_LAYER_LINEARS])
{
    const pl_linear *list[PL_LAYER_LINEARS] = {&l->q,    &l->k,  &l->v,   &l->o,
                                               &l->gate, &l->up, &l->down};
    for (int i = 0; i < PL_LAYER_LINEARS; i++) out[i] = list[i];
}

typedef struct pl_transformer {
    const pl_config *config;
    pl_linear embedding, head;       /* head is a second view of embedding when tied */
    float *final_norm;
    pl_layer *layers;
    float *rope_frequencies;         /* [dims / 2] */
    float rope_scale;                /* cos and sin are multiplied by it (yarn) */
} pl_transformer;

pleach_status pl_transformer_open(const pleach_checkpoint *c, pl_transformer **out,
                                  pleach_error *err);
void pl_transformer_close(pl_transformer *t);

/* Scratch memory for up to `batch` tokens at once; one per session. */
typedef struct pl_workspace pl_workspace;
pleach_status pl_workspace_open(const pl_transformer *t, const pl_compute *c, size_t batch,
                                pl_workspace **out, pleach_error *err);
void pl_workspace_close(pl_workspace *w);

/* Runs n <= batch ids at the cache's end (room must be reserved) and advances it. logits, when not
 * NULL, receives [n - first][vocab] for positions first..n-1. */
pleach_status pl_transformer_forward(const pl_transformer *t, const pl_compute *c, pl_workspace *w,
                                     pl_cache *cache, const int32_t *ids, size_t n, size_t first,
                                     float *logits, pleach_error *err);
/* One token for each of n <= batch sequences, each with a cache of its own (room must be reserved)
 * and at that cache's end; logits [n][vocab]. A row has the same bits as if it were alone. */
pleach_status pl_transformer_step(const pl_compute *c, pl_workspace *w, pl_cache *const *caches,
                                  const int32_t *ids, size_t n, float *logits, pleach_error *err);

#endif
