/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of trellis weights of every legal shape with many rows of x: codes, exact in fp16, are
 * worked out some 64 MB at a time and multiplied by cuBLAS.
 *
 * x (axis 0: x * scale) is taken to 2^14 .. 2^15 by a power of two for each row and cut into two
 * fp16 numbers, 22 bits together; products are exact, sums are the tensor cores', in f32. Bounded:
 * within 1e-5 of sum |w x|. A row's bits do not depend on the other rows; parts of 256 rows are
 * multiplied together. A row with NaN or infinity gets NaN. */
#ifndef PL_CUDA_TRELLIS_BLAS_H
#define PL_CUDA_TRELLIS_BLAS_H

#include "trellis.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PL_CUDA_TRELLIS_BLAS_ROWS = 9 }; /* least rows */

/* Once per device: opens cuBLAS. */
pleach_status pl_cuda_trellis_blas_prepare(pl_cuda *d, pleach_error *err);
bool pl_cuda_trellis_blas_serves(const pl_cuda *d, const pl_cuda_trellis *w, size_t M);
size_t pl_cuda_trellis_blas_scratch(const pl_cuda *d, const pl_cuda_trellis *w, size_t M);
void pl_cuda_trellis_blas_run(const pl_cuda *d, const pl_cuda_product *p, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
