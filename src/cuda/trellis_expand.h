/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis weights decoded in device memory: whole stored rows by the expand and the decode contract
 * of pleach/trellis.h, and rows of the matrix for look-ups. Any legal shape. Exact: the bits of
 * pleach_trellis_expand and pleach_trellis_decode. */
#ifndef PL_CUDA_TRELLIS_EXPAND_H
#define PL_CUDA_TRELLIS_EXPAND_H

#include "trellis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dst[i][0..cols) = stored row first + i, i = 0 .. n-1, as bf16 bits by the expand contract;
 * `stride` numbers from row to row, a multiple of 8, dst 16-byte aligned. */
void pl_cuda_trellis_expand(const pl_cuda *d, const pl_cuda_trellis *w, size_t first, size_t n,
                            uint16_t *dst, size_t stride);
/* The same as f32 by the decode contract. */
void pl_cuda_trellis_decode(const pl_cuda *d, const pl_cuda_trellis *w, size_t first, size_t n,
                            float *dst, size_t stride);
/* dst[i][0..in) = row ids[i] of the matrix W' (trellis.h, pl_cuda_product) as f32 by the decode
 * contract, whatever the axis: the embedding look-up. ids: device, each below out. */
void pl_cuda_trellis_rows(const pl_cuda *d, const pl_cuda_trellis *w, const int32_t *ids, size_t n,
                          float *dst, size_t in);

#ifdef __cplusplus
}
#endif
#endif
