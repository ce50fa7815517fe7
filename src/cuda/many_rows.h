/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of plain numbers with many rows of activations, by cuBLAS: dense weights, and affine
 * ones a part at a time. */
#ifndef PL_CUDA_MANY_ROWS_H
#define PL_CUDA_MANY_ROWS_H

#include "blas.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PL_CUDA_MANY_PART = 128 }; /* rows of x that are multiplied together */

/* w [out][stride], stride a multiple of 8, zeros from `in` on; f32 or bf16. */
typedef struct pl_cuda_numbers {
    cudaDataType_t type;
    const void *data;
    size_t out, in, stride;
} pl_cuda_numbers;

/* y[m][0..out) = scale * (w x[m]) + bias for M rows, y_stride numbers apart in y; scale and bias
 * [out] or NULL. f32 weights meet x as it is; for bf16 ones x is cut into three bf16 numbers that
 * add up to it exactly, and the three products are added. Sums are cuBLAS's, in
 * f32: within 1e-5 of sum |w x|. A row of x
 * with an infinity gets NaN. */
size_t pl_cuda_many_scratch(const pl_cuda_numbers *w, size_t M);
void pl_cuda_many_run(const pl_cuda *d, const pl_cuda_numbers *w, const float *x, size_t M,
                      float *y, size_t y_stride, const float *scale, const float *bias,
                      void *scratch);

#ifdef __cplusplus
}
#endif
#endif
