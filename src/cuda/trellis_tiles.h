/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with trellis weights for many rows of x (prompts) on Hopper: the formula and the
 * bounds of trellis_half.h, by a kernel in which some warps decode while others multiply. Weights
 * in units.
 *
 * Rows of x never meet: each has its own 2^e, and a NaN or infinity stays in its row. How a sum is
 * cut depends on the weight's shape, the SM count and how many rows there are. */
#ifndef PL_CUDA_TRELLIS_TILES_H
#define PL_CUDA_TRELLIS_TILES_H

#include "trellis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Once per device, when it is opened: lets the kernels have the shared memory they need. */
pleach_status pl_cuda_trellis_tiles_prepare(pl_cuda *d, pleach_error *err);

/* From 33 rows on, on axis 1 from 129. */
bool pl_cuda_trellis_tiles_serves(const pl_cuda *d, const pl_cuda_trellis *w, size_t M);
/* Bytes of scratch, to be 256-byte aligned, contents of no matter; enough for trellis_half with
 * fewer rows, too. */
size_t pl_cuda_trellis_tiles_scratch(const pl_cuda *d, const pl_cuda_trellis *w, size_t M);
void pl_cuda_trellis_tiles_run(const pl_cuda *d, const pl_cuda_product *p, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
