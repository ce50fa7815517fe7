/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis weights on the device, and what a product with them is made of. Kernels come in classes,
 * each with a header of its own: trellis_limbs.h (integer tensor cores, few rows), trellis_half.h
 * and trellis_tiles.h (fp16 tensor cores, many rows), trellis_any.h (every legal shape), trellis_expand.h.
 *
 * Units. Matrices with T = 256 are laid out for tensor cores when they are uploaded, by a pure
 * permutation of the words of 16 stored rows of one block, so that a lane finds all it decodes in
 * 16-byte vectors. With lane = 4 g + q, g in 0..7, q in 0..3, a unit is [k][32 lanes][4 words]:
 * vector v of a lane holds words 4 v .. 4 v + 3 of the lane's 4 k words, which are
 *
 *   axis 1   words 2kq .. 2kq + 2k - 1 of the block of stored row g, then those of row g + 8:
 *            quarter q of the block, 64 inputs, for two outputs
 *   axis 0   words kg .. kg + k - 1 of the block of stored rows q, q + 4, q + 8, q + 12:
 *            eighth g of the block, 32 outputs, for four inputs
 *
 * Units follow each other along the inputs: axis 1 [rows / 16][cols / 256], axis 0
 * [cols / 256][rows / 16]. Stored rows are filled up to 16 by rows of scale 0. */
#ifndef PL_CUDA_TRELLIS_H
#define PL_CUDA_TRELLIS_H

#include "device.h"
#include "pleach/trellis.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PL_CUDA_UNIT_ROWS = 16, PL_CUDA_UNIT_BLOCK = 256 };

typedef struct pl_cuda_trellis {
    pleach_trellis shape; /* as stored */
    bool units;           /* codes are in units, else as stored; never interleaved */
    uint32_t *codes;      /* device; owned */
    float *scales;        /* device [rows], in units filled up to 16; owned */
    uint64_t bytes;       /* of device memory */
} pl_cuda_trellis;

/* Bytes of device memory that it will take. */
uint64_t pl_cuda_trellis_bytes(const pleach_trellis *shape);
/* codes and scales (fp16) are the host's, as the file has them. */
pleach_status pl_cuda_trellis_open(pl_cuda *d, const pleach_trellis *shape, const void *codes,
                                   const void *scales, pl_cuda_trellis *out, pleach_error *err);
void pl_cuda_trellis_close(pl_cuda_trellis *w); /* accepts a zeroed one */

/* y[m][0..out) = output_scale * (W' x[m]) + bias for M rows, all f32 on the device; W' is what the
 * codes stand for: axis 1 has rows = out and cols >= in, axis 0 rows = in and cols >= out. x and y
 * overlap nowhere. */
typedef struct pl_cuda_product {
    const pl_cuda_trellis *w;
    size_t in, out, M;
    const float *x;
    size_t x_stride; /* numbers from row to row */
    float *y;
    size_t y_stride;
    const float *output_scale, *bias; /* [out] or NULL */
} pl_cuda_product;

#ifdef __cplusplus
}
#endif
#endif
