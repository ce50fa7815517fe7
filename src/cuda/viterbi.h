/* SPDX-License-Identifier: Apache-2.0
 *
 * The trellis search on the device: codec/viterbi.h's search, two blocks side by side in the halves
 * of 32-bit words. Path costs are int16 as there, a number's error comes from fp16: with d the
 * difference in units of 1 / PL_CUDA_VITERBI_UNIT of the scale, the bits of fp16(d^2 + 1024) less
 * those of 1024, which is d^2 rounded up to 1023 and grows more slowly, but grows, beyond. So codes
 * may differ from the processor's where costs nearly tie; their squared error is within 0.1 % of the
 * exact search's. A block's codes depend on its numbers, its scale and the shape alone. */
#ifndef PL_CUDA_VITERBI_H
#define PL_CUDA_VITERBI_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sums over a block's numbers w and the integers y of the codes found for them. */
typedef struct pl_cuda_block_sums {
    double wy;
    int64_t yy;
} pl_cuda_block_sums;

/* rows x blocks blocks of T numbers; all memory is the device's. */
typedef struct pl_cuda_viterbi {
    uint32_t k, L, T;       /* any legal ones */
    size_t rows, blocks;    /* blocks: in each row */
    const float *src;       /* row r's block b begins at r * src_stride + b * T; finite */
    size_t src_stride;
    const uint16_t *scales; /* [rows] fp16 bits. Where 0: codes all ones, values and sums zero */
    uint32_t *codes;        /* words as stored, row r's block b at r * code_stride + b * T k / 32 */
    size_t code_stride;
    float *values;          /* laid out as src, which it may be: what the codes stand for, to be
                               multiplied by the scale (decode contract); or NULL */
    size_t value_stride;
    pl_cuda_block_sums *sums; /* [rows][blocks], or NULL */
} pl_cuda_viterbi;

/* Once for a device, before the first run. */
pleach_status pl_cuda_viterbi_init(pl_cuda *d, pleach_error *err);

/* Whether a block of this device has the shared memory: L = 16 at 2 bits takes 130 KB. */
bool pl_cuda_viterbi_fits(const pl_cuda *d, uint32_t k, uint32_t L, uint32_t T);

/* Bytes of scratch, 256-byte aligned, that serve a search of this code and block length over
 * `blocks` blocks or fewer. */
size_t pl_cuda_viterbi_scratch(const pl_cuda *d, uint32_t k, uint32_t L, uint32_t T, size_t blocks);
void pl_cuda_viterbi_run(const pl_cuda *d, const pl_cuda_viterbi *s, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
