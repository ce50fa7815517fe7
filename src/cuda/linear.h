/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layers on the device: any coding of pl_weight applied to M activation vectors, rotations
 * included; the counterpart of model/linear.h. Weights stay as packed as they are stored. */
#ifndef PL_CUDA_LINEAR_H
#define PL_CUDA_LINEAR_H

#include "affine.h"
#include "dense.h"
#include "model/linear.h"
#include "rotate.h"
#include "trellis.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_cuda_linear {
    size_t out, in;
    /* One of these holds the weight; the others are zeroed. */
    pl_cuda_trellis trellis;
    pl_cuda_affine affine;
    pl_cuda_dense dense;
    pl_rotation rotate_in, rotate_out; /* block 0: none */
    float *input_signs, *output_signs; /* device [in], [out], or NULL; owned, as are */
    float *output_scale, *bias;        /* [out] or NULL */
    uint64_t bytes;                    /* of device memory, all of it */
} pl_cuda_linear;

/* Bytes of device memory that it will take. */
uint64_t pl_cuda_linear_bytes(const pl_linear *host);
/* Uploads what `host` is bound to. Two layers that are one weight (a tied head) share one of these.
 */
pleach_status pl_cuda_linear_open(pl_cuda *d, const pl_linear *host, pl_cuda_linear *out,
                                  pleach_error *err);
void pl_cuda_linear_close(pl_cuda_linear *l); /* accepts a zeroed one */

/* The one rotation that the inputs of all n layers have (block 0 for none), so that whoever makes
 * their input can rotate it too; false where they differ. */
bool pl_cuda_linear_rotation(const pl_cuda_linear *const *layers, size_t n, pl_cuda_rotation *r);

/* Bytes of scratch, 256-byte aligned, that apply and swiglu need for up to M rows of these layers.
 */
size_t pl_cuda_linear_scratch(const pl_cuda *d, const pl_cuda_linear *const *layers, size_t n,
                              size_t M);

/* y[i][m][0..out_i) = W_i x[m] + bias_i for n layers (at most PL_LINEAR_GROUP) that share one
 * input, x [M][in], y[i] [M][out_i], f32, device, 16-byte aligned. The input is rotated once per
 * distinct rotation, or with `rotated` has been by the one pl_cuda_linear_rotation gives. A row's
 * result never depends on other rows; with d->batch_invariant it does not depend on M either
 * (docs/cuda.md names the M at which the class of kernels changes otherwise). */
void pl_cuda_linear_apply(const pl_cuda *d, const pl_cuda_linear *const *layers, size_t n,
                          const float *x, bool rotated, size_t M, float *const *y, void *scratch);

/* y [M][out] = silu(gate x) * (up x), rotated by `then` where that has a block. Scratch: what
 * pl_cuda_linear_scratch gives for the two. */
void pl_cuda_linear_swiglu(const pl_cuda *d, const pl_cuda_linear *gate, const pl_cuda_linear *up,
                           const float *x, bool rotated, size_t M, float *y,
                           const pl_cuda_rotation *then, void *scratch);

/* dst [n][in] = rows ids[0..n) of W as f32: the embedding look-up. ids: device, each below out.
 * Dense and affine codings. */
void pl_cuda_linear_rows(const pl_cuda *d, const pl_cuda_linear *l, const int32_t *ids, size_t n,
                         float *dst);

#ifdef __cplusplus
}
#endif
#endif
