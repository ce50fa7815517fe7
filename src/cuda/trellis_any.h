/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with trellis weights of every legal shape: the reference on the device, and what serves
 * where no faster class does.
 *
 * The decode contract, factored: y[o] = scale * sum over i of f32(code) * x[i] (axis 1), or of
 * f32(code) * (x[i] * scale_i) (axis 0), in f32 with one rounding a step, times f32(1/147.80...).
 * Within 2e-6 of sum |w x|. The order of a sum depends on the weight's shape and the device's SM
 * count alone: a row of x has the same result for every M and whatever the other rows are. */
#ifndef PL_CUDA_TRELLIS_ANY_H
#define PL_CUDA_TRELLIS_ANY_H

#include "trellis.h"

#ifdef __cplusplus
extern "C" {
#endif

bool pl_cuda_trellis_any_serves(const pl_cuda *d, const pl_cuda_trellis *w, size_t M); /* true */
size_t pl_cuda_trellis_any_scratch(const pl_cuda *d, const pl_cuda_trellis *w, size_t M);
void pl_cuda_trellis_any_run(const pl_cuda *d, const pl_cuda_product *p, void *scratch);
/* n products of as many rows: those of one axis, k and L share a launch. Scratch: the sum of
 * theirs. The results have the same bits. */
void pl_cuda_trellis_any_run_all(const pl_cuda *d, const pl_cuda_product *p, size_t n,
                                 void *scratch);

#ifdef __cplusplus
}
#endif
#endif
