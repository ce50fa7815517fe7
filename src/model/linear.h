/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layers: any coding of pl_weight applied to M activation vectors, rotations included. */
#ifndef PL_MODEL_LINEAR_H
#define PL_MODEL_LINEAR_H

#include "format/checkpoint.h"
#include "kernels/kernels.h"

enum { PL_LINEAR_GROUP = 8 }; /* most layers in one pl_linear_apply */

typedef struct pl_linear {
    pl_weight w;
    float *bias;         /* [out] or NULL; owned */
    float *input_signs;  /* [in] when w.rotate_in.block; owned */
    float *output_signs; /* [out] when w.rotate_out.block; owned */
    float *output_scale; /* [out] or NULL; owned */
    float *row_scales;   /* [stored rows] of a trellis weight; owned */
} pl_linear;

pleach_status pl_linear_open(pl_linear *l, const pl_weight *w, pleach_error *err);
void pl_linear_close(pl_linear *l); /* accepts a zeroed one */

/* Bytes of scratch that pl_linear_apply needs for up to M rows of these layers. */
size_t pl_linear_scratch(const pl_compute *c, const pl_linear *const *layers, size_t n, size_t M);

/* y[i][m][0..out_i) = W_i x[m] + bias_i for n layers that share one input: the input's rotation and
 * quantisation are done once per distinct rotation. x [M][in], y[i] [M][out_i], f32. scratch is
 * 64-byte aligned. The result for a row is the same bits for every M, thread count and group. */
void pl_linear_apply(const pl_compute *c, const pl_linear *const *layers, size_t n, const float *x,
                     size_t M, float *const *y, void *scratch);

/* y [M][out] = act(gate x) * (up x), element by element: the feed-forward part's first half. act is
 * the kernels' silu_mul or gelu_mul. up_y [M][out] is written too. The same bits as pl_linear_apply
 * and act after it; the scratch that pl_linear_apply needs for the two. */
void pl_linear_gated(const pl_compute *c, const pl_linear *gate, const pl_linear *up,
                     pl_gate_fn *act, const float *x, size_t M, float *y, float *up_y,
                     void *scratch);

/* dst[0..in) = row `row` of W as f32: the embedding look-up. Dense and affine codings. */
void pl_linear_row(const pl_linear *l, uint64_t row, float *dst);

/* signs[i] = +1 or -1 of rotation r (format/checkpoint.h). */
void pl_rotation_signs(const pl_rotation *r, float *signs, size_t n);
/* The same in fresh memory (pl_free); NULL when there is none. */
float *pl_rotation_make_signs(const pl_rotation *r, size_t n);

#endif
