/* SPDX-License-Identifier: Apache-2.0
 *
 * Dense weights on the device and products with them: f32, f16 and bf16 as stored, everything else
 * that has numbers turned into f32 when it is uploaded. */
#ifndef PL_CUDA_DENSE_H
#define PL_CUDA_DENSE_H

#include "device.h"
#include "format/checkpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_cuda_dense {
    pl_dtype type; /* PL_F32, PL_F16 or PL_BF16 */
    size_t out, in;
    void *data; /* device [out][in]; owned */
    uint64_t bytes;
} pl_cuda_dense;

uint64_t pl_cuda_dense_bytes(const pl_weight *w); /* of device memory that it will take */
/* w is dense. */
pleach_status pl_cuda_dense_open(pl_cuda *d, const pl_weight *w, pl_cuda_dense *out,
                                 pleach_error *err);
void pl_cuda_dense_close(pl_cuda_dense *w); /* accepts a zeroed one */

/* y[m][o] = scale[o] * sum over i of w[o][i] * x[m][i] + bias[o], x [M][in], y [M][out]; scale and
 * bias [out] or NULL. f32 products and sums (fused), whose order depends on out, in and the device
 * alone: a row's result is the same for every M.
 *
 * With more than PL_CUDA_DENSE_FEW rows, and not d->batch_invariant, bf16 and f32 weights go to
 * cuBLAS (many_rows.h). scratch: what pl_cuda_dense_scratch gives for M, 256-byte aligned. */
enum { PL_CUDA_DENSE_FEW = 8 };
size_t pl_cuda_dense_scratch(const pl_cuda *d, const pl_cuda_dense *w, size_t M);
void pl_cuda_dense_run(const pl_cuda *d, const pl_cuda_dense *w, const float *x, size_t M, float *y,
                       const float *scale, const float *bias, void *scratch);
/* dst[i] = row ids[i] of w as f32, n rows; ids: device, each below out. */
void pl_cuda_dense_rows(const pl_cuda *d, const pl_cuda_dense *w, const int32_t *ids, size_t n,
                        float *dst);

#ifdef __cplusplus
}
#endif
#endif
