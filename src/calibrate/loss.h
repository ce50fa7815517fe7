/* SPDX-License-Identifier: Apache-2.0
 *
 * The ends of the model around its blocks: embedding, and final norm with head and the loss behind
 * them, forward and backward. Chunks are taken a slab of tokens at a time, so that logits of a
 * large vocabulary stay small; the head's matrix is in f32 whole or a piece at a time.
 *
 * Everything here has the same bits for every thread count. */
#ifndef PL_CALIBRATE_LOSS_H
#define PL_CALIBRATE_LOSS_H

#include "kernels/kernels.h"
#include "model/model.h"

/* x [n][C] = embeddings of ids, each below the vocabulary's size. */
void pl_embed(const pl_transformer *t, const pl_compute *c, const int32_t *ids, size_t n, float *x);

typedef struct pl_loss {
    const pl_transformer *t; /* borrowed, as is c */
    const pl_compute *c;
    size_t slab;
    bool whole;
    float *weight;  /* of the head: [vocab][C] when whole, else one piece */
    float *normed;  /* [slab][C]; then the gradient by it */
    float *logits;  /* [slab][vocab]; then the gradient by them */
    double *losses; /* [slab] */
} pl_loss;

/* slab: tokens at once, 256 or more for speed. A head that is itself a trellis is always whole. */
pleach_status pl_loss_open(pl_loss *l, const pl_transformer *t, const pl_compute *c, size_t slab,
                           bool whole, pleach_error *err);
void pl_loss_close(pl_loss *l); /* accepts a zeroed one */
uint64_t pl_loss_memory(const pl_config *config, size_t slab, bool whole);

/* logits [n][vocab] of final hidden states x [n][C], as the last block left them. */
void pl_loss_logits(const pl_loss *l, const float *x, size_t n, float *logits);

/* What the model should have said: labels, or else the teacher's log-probabilities (-inf for none),
 * or else a label for each token drawn from the model itself. Token i's draw depends on its logits,
 * seed and first + i alone. */
typedef struct pl_target {
    const int32_t *labels; /* [n] or NULL */
    const float *teacher;  /* [n][vocab] or NULL */
    uint64_t seed, first;
} pl_target;

/* Returns the sum over tokens of the cross entropy -log p(label), or of KL(teacher || model) in
 * nats, and its gradient dx [n][C] by x; dx may be x, or NULL when the sum alone is wanted. */
double pl_loss_gradient(const pl_loss *l, const float *x, size_t n, const pl_target *target,
                        float *dx);

#endif
