/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with trellis weights by fp16 tensor cores, for many rows of x: weights in units.
 *
 *   axis 1   y[m][o] = scale_o / 147.80... * 2^-e * sum over i of code(o, i) * fp16(2^e x[m][i])
 *   axis 0   y[m][o] = 1 / 147.80... * 2^-e * sum over i of code(i, o) * fp16(2^e scale_i x[m][i])
 *
 * Codes are exact in fp16, products exact in f32. What is rounded: x to fp16 (2^e takes a row's
 * largest number to 2^14 .. 2^15), 2^-12 of a number; and the f32 sums of the tensor cores, which
 * run over 1534 + code: 1534 * sum(x) is taken off at the end. Bounded: within 5e-4 of sum |w x| and
 * 4e-5 of sum |scale x|; 2e-4 of the results' RMS for inputs of mean 0.
 *
 * Rows of x never meet: each has its own 2^e, and a NaN or infinity stays in its row. How a sum is
 * cut depends on the weight's shape and the SM count alone: on axis 1 a row's bits are the same for
 * every M. On axis 0 Hopper adds up k in 4, 2 or 1 classes for up to 16, 64 or more rows, and in 2
 * for all with d->batch_invariant, when bits are the same for every M. Up to 128 rows (64) are one
 * launch, more are done in tiles of as many. */
#ifndef PL_CUDA_TRELLIS_HALF_H
#define PL_CUDA_TRELLIS_HALF_H

#include "trellis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Once per device, when it is opened: lets the kernels have the shared memory they need. */
pleach_status pl_cuda_trellis_half_prepare(pl_cuda *d, pleach_error *err);

/* Weights in units; any M. */
bool pl_cuda_trellis_half_serves(const pl_cuda *d, const pl_cuda_trellis *w, size_t M);
/* Bytes of scratch, to be 256-byte aligned, contents of no matter. */
size_t pl_cuda_trellis_half_scratch(const pl_cuda *d, const pl_cuda_trellis *w, size_t M);
void pl_cuda_trellis_half_run(const pl_cuda *d, const pl_cuda_product *p, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
