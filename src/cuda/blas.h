/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLAS on a device's stream, with a workspace of its own so that its calls can be captured. */
#ifndef PL_CUDA_BLAS_H
#define PL_CUDA_BLAS_H

#include <library_types.h>

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whoever will multiply calls it when weights are opened; does nothing the second time. */
pleach_status pl_cuda_blas_open(pl_cuda *d, pleach_error *err);
void pl_cuda_blas_close(pl_cuda *d);

/* y[m][0..out) = W x[m] for W [out][in] and M rows x [M][in], f32 (no TF32) or bf16; sums and y in
 * f32. Strides are numbers from row to row. A refusal by cuBLAS leaves NaN in y. */
void pl_cuda_blas_product(const pl_cuda *d, cudaDataType_t type, const void *w, size_t w_stride,
                          const void *x, size_t x_stride, size_t out, size_t M, size_t in, float *y,
                          size_t y_stride);

/* y [M][out] = w x of fp16 numbers, w [out][w_stride], or with `turned` [in][w_stride]. */
void pl_cuda_blas_codes(const pl_cuda *d, bool turned, const void *w, size_t w_stride,
                        const void *x, size_t x_stride, size_t out, size_t M, size_t in, float *y);

#ifdef __cplusplus
}
#endif
#endif
