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

/* In the config's order. */
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
    float *weight[PL_BLOCK_LINEARS];     /* [out][in] */
    const float *bias[PL_BLOCK_LINEARS]; /* [out] or NULL */
    size_t out[PL_BLOCK_LINEARS], in[PL_BLOCK_LINEARS];
} pl_block;

pleach_status pl_block_open(pl_block *b, const pl_transformer *t, const pl_compute *c,
                            uint32_t layer, pleach_error *err);
void pl_block_close(pl_block *b); /* accepts a zeroed one */

/* What one chunk of n <= capacity tokens leaves behind. Arrays [n][..]. */
typedef struct pl_tape {
    size_t capacity, n;
    float *x, *normed1, *h, *normed2;  /* [C] block input, norms, middle of the block */
    float *q, *k, *v;                  /* after norms and rope; v as it is */
    float *q_raw, *k_raw;              /* before the norms; NULL without qk_norm */
    float *mixed;                      /* [heads * D], input of o */
    float *mixed_raw, *fed_raw, *dh;   /* [C] before p1 and p2, gradient by h; NULL without them */
    float *gate, *up, *act;            /* [I]; act is the input of down */
    float *probabilities;              /* [heads][n][n]; pl_block_backward destroys them */
    pl_chunk_attention attention;      /* as the forward pass ran it */
    float *gradient[PL_BLOCK_LINEARS]; /* by each linear layer's output, [n][out] */
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

/* The input of linear layer i of the chunk on the tape: [n][in]. */
const float *pl_tape_input(const pl_tape *tape, int linear);

#endif
