/* SPDX-License-Identifier: Apache-2.0
 *
 * A model on a device: its weights as packed as they are stored, and what its passes need beside
 * them. model.c opens it and counts memory, forward.c computes. */
#ifndef PL_CUDA_MODEL_H
#define PL_CUDA_MODEL_H

#include "linear.h"
#include "model/backend.h"
#include "pages.h"
#include "vector.h"

enum {
    PL_CUDA_STEP = 64,         /* most sequences in one pass; more are cut */
    PL_CUDA_LOGITS = 64 << 20, /* about as many bytes of logits are held at once */
    PL_CUDA_ATTENTION = 256 << 20 /* scratch of attention beyond which its rows are cut */
};

typedef struct pl_cuda_layer {
    pl_cuda_linear q, k, v, o, gate, up, down;
    const float *input_norm, *post_norm, *q_norm, *k_norm; /* in the model's gains */
    /* The rotation that all layers after a norm want of it, if they agree; what o and down want. */
    pl_cuda_rotation attention_rotation, feed_forward_rotation, o_rotation, down_rotation;
    bool attention_rotated, feed_forward_rotated;
} pl_cuda_layer;

/* Device memory of passes, one for all sessions: they take turns. Letters as in model/forward.c. */
typedef struct pl_cuda_workspace {
    size_t batch, length;     /* most rows; bound on positions, that of a step */
    size_t logits_rows;       /* of logits at once, at least PL_CUDA_STEP */
    size_t attention_rows;    /* in one call of attention, at least PL_CUDA_STEP */
    size_t attention_bytes, bytes;
    uint8_t *base; /* one allocation; what follows lies in it */
    float *x, *norm, *update, *q, *mixed, *k, *v, *gate, *cos, *sin, *logits;
    void *linear, *attention, *argmax;
    void *input, *host_input;         /* ids, positions, rows of a pass; the host's are pinned */
    int32_t *best, *host_best;        /* [logits_rows] */
} pl_cuda_workspace;

typedef struct pl_cuda_model {
    pl_backend base; /* first */
    const pl_transformer *t;
    pl_cuda *d;
    char name[16];
    pthread_mutex_t *lock; /* held by whoever queues work or takes memory; its device's */
    pl_cuda_linear embedding, own_head;
    const pl_cuda_linear *head; /* own_head, or the embedding when tied */
    pl_cuda_rotation head_rotation;
    bool head_rotated;
    pl_cuda_layer *layers;
    float *gains; /* of all norms, then the rope frequencies: one allocation */
    const float *final_norm, *frequencies;
    pl_cuda_pages pages;
    pl_cuda_workspace w;
} pl_cuda_model;

/* Takes the lock and makes the device the thread's own. */
void pl_cuda_model_enter(pl_cuda_model *m);
void pl_cuda_model_leave(pl_cuda_model *m);

/* Positions that a captured step serves where `length` are needed: few graphs serve all. */
static inline size_t pl_cuda_step_length(size_t length)
{
    size_t bound = 512;
    while (bound < length) bound *= 2;
    return bound;
}

/* pl_backend_functions.run. */
pleach_status pl_cuda_model_run(pl_backend *b, void *workspace, const pl_pass *p,
                                pleach_error *err);

#endif
