/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with trellis weights for very many rows of x (prompts): weights are decoded once, by the
 * expand contract, and cuBLAS multiplies bf16 by bf16. Weights in units.
 *
 *   y[m][o] = output_scale[o] * sum over i of w(o, i) * bf16(x[m][i]) + bias[o]
 *
 * Products are exact, sums in f32 in cuBLAS's order: 2^-8 of the results' RMS or so. Rows do not
 * depend on other rows, but on how many there are. */
#ifndef PL_CUDA_TRELLIS_MANY_H
#define PL_CUDA_TRELLIS_MANY_H

#include "trellis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Once per device: opens cuBLAS. */
pleach_status pl_cuda_trellis_many_prepare(pl_cuda *d, pleach_error *err);

/* From 256 rows on, unless batches may not matter. */
bool pl_cuda_trellis_many_serves(const pl_cuda *d, const pl_cuda_trellis *w, size_t M);
/* Room for x and for as much of the expanded weights as fits 256 MB; enough for trellis_half with
 * fewer rows, too. */
size_t pl_cuda_trellis_many_scratch(const pl_cuda *d, const pl_cuda_trellis *w, size_t M);
void pl_cuda_trellis_many_run(const pl_cuda *d, const pl_cuda_product *p, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
