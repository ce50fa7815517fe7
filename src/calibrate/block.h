/* SPDX-License-Identifier: Apache-2.0
 *
 * One transformer block of the dense families in f32 matrices, forward and backward, for chunks of
 * text that attend to nothing else. The engine's forward pass is for running; this one keeps what
 * the gradient needs.
 *
 *   h = x + p1(o(attention(rope(qk_norm(q(n1))), ..)))   n1 = RMSNorm(x)
 *   y = h + p2(down(act(gate(n2)) up(n2)))               n2 = RMSNorm(h)
 *
 * p1 and p2 are norms in families that have them (Gemma), and nothing else.
 *
 * Everything here has the same bits for every thread count. */
#ifndef PL_CALIBRATE_BLOCK_H
#define PL_CALIBRATE_BLOCK_H

#include "chunk_attention.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "model/route.h"

/* In the config's order, of a block with a dense feed-forward part. The experts of a mixture each have
 * three in place of the last three, and so has the one that all tokens share. */
enum {
    PL_BLOCK_Q,
    PL_BLOCK_K,
    PL_BLOCK_V,
    PL_BLOCK_O,
    PL_BLOCK_GATE,
    PL_BLOCK_UP,
    PL_BLOCK_DOWN,
    PL_BLOCK_LINEARS
};

/* A block's matrices in f32, rotations undone. */
typedef struct pl_block {
    const pl_transformer *t; /* borrowed, as is c */
    const pl_compute *c;
    const pl_layer *layer;
    size_t n;           /* linear layers */
    float **weight;     /* [out][in] each */
    const float **bias; /* [out] or NULL each */
    size_t *out, *in;
    float *router, *shared_gate; /* [experts][C], [C], or NULL */
    bool held;                   /* pl_matrix_hold has the weights */
} pl_block;

pleach_status pl_block_open(pl_block *b, const pl_transformer *t, const pl_compute *c,
                            uint32_t layer, pleach_error *err);
void pl_block_close(pl_block *b); /* accepts a zeroed one */

/* A dense feed-forward part on its way: the block's own, or one expert with the tokens that it sees. */
typedef struct pl_mlp_tape {
    size_t rows;
    const float *x;         /* [rows][C] */
    float *gate, *up, *act; /* [rows][I] */
    float *y;               /* [rows][C], of an expert */
    float *d_y, *d_x;       /* [rows][C], gradients by y and x, of an expert */
} pl_mlp_tape;

/* What one chunk of n <= capacity tokens leaves behind. Arrays [n][..]. */
typedef struct pl_tape {
    const pl_config *config; /* borrowed */
    size_t capacity, n;
    float *x, *normed1, *h, *normed2;  /* [C] block input, norms, middle of the block */
    float *q, *k, *v;                  /* after norms and rope; v as it is */
    float *q_raw, *k_raw;              /* before the norms; NULL without qk_norm */
    float *mixed;                      /* [heads * D], input of o */
    float *mixed_raw, *fed_raw, *dh;   /* [C] before p1 and p2, gradient by h; NULL without them */
    float *gate, *up, *act;            /* [I]; act is the input of down. Of all experts in turn */
    pl_mlp_tape *mlps;                 /* one, or one for each expert and the shared one */
    pl_routes routes;                  /* of experts, as what follows */
    uint32_t *place;                   /* [n * used] where among the experts' rows a slot is */
    float *routed, *expert_y, *expert_d_y, *expert_d_x; /* [C] of each expert's tokens in turn */
    float *shared_score;               /* [n] before the sigmoid */
    float *d_scores, *d_shared;        /* gradients by the router's scores, [n][experts], and [n] */
    float *probabilities;              /* [heads][n][n]; pl_block_backward destroys them */
    pl_chunk_attention attention;      /* as the forward pass ran it */
    const float **input;               /* of each linear layer, [rows][in], */
    float **gradient;                  /* by its output, [rows][out], */
    size_t *rows;                      /* and how many tokens it saw */
    float *d_gate, *d_up, *d_q, *d_k, *d_v, *d_o, *d_down; /* where gradients are */
    float *cos[PL_MAX_ROPES], *sin[PL_MAX_ROPES], *minus_sin[PL_MAX_ROPES]; /* [capacity][half] */
    float *scratch;
} pl_tape;

/* Without `backward` the tape serves pl_block_forward alone. */
pleach_status pl_tape_open(pl_tape *tape, const pl_transformer *t, size_t capacity, bool backward,
                           pleach_error *err);
void pl_tape_close(pl_tape *tape); /* accepts a zeroed one */
uint64_t pl_tape_memory(const pl_config *config, size_t capacity, bool backward);

/* x [n][C] at positions 0..n-1 to y [n][C]. y may be x, or NULL when the tape alone is wanted. */
void pl_block_forward(const pl_block *b, pl_tape *tape, const float *x, size_t n, float *y);
/* After the forward call of the same chunk, once: dy [n][C] to dx [n][C], and fills
 * tape->gradient. dx may be dy, or NULL when the gradients alone are wanted. */
void pl_block_backward(const pl_block *b, pl_tape *tape, const float *dy, float *dx);

/* The input of linear layer i of the chunk on the tape: [tape->rows[i]][in]. */
static inline const float *pl_tape_input(const pl_tape *tape, size_t linear)
{
    return tape->input[linear];
}

/* ---- for the files of the block ---------------------------------------------------------------- */

/* y [n][C] = h + the mixture of the experts for tape->normed2; y may be NULL. experts.c has both. */
void pl_experts_forward(const pl_block *b, pl_tape *tape, float *y);
/* From dy, the gradient by y: gradients of the experts' linear layers, and tape->scratch [n][C] that by
 * tape->normed2. */
void pl_experts_backward(const pl_block *b, pl_tape *tape, const float *dy);
/* The three linear layers from `first` on. */
void pl_mlp_forward(const pl_block *b, size_t first, const pl_mlp_tape *m);
/* From the gradient of down's output, that of gate's and up's, and dx [rows][C] by m->x; scratch holds
 * [rows][I]. */
void pl_mlp_backward(const pl_block *b, const pl_tape *tape, size_t first, const pl_mlp_tape *m,
                     float *scratch, float *dx);

#endif
