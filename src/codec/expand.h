/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows and columns of a coded matrix as plain numbers, by the kernels. */
#ifndef PL_CODEC_EXPAND_H
#define PL_CODEC_EXPAND_H

#include "kernels/kernels.h"
#include "trellis.h"

/* Stored rows [first, first + n) under the decode contract: dst [n][cols]. Codes and scales are as
 * in the file, at any alignment. */
void pl_trellis_decode_rows(const pleach_trellis *t, const pl_kernels *k, float *dst,
                            const void *codes, const void *scales, uint64_t first, uint64_t n);

/* Number `col` of every stored row under the decode contract: dst [rows]. One number of a block is
 * decoded, not the block: of axis 0 this is one row of the matrix. */
void pl_trellis_decode_column(const pleach_trellis *t, float *dst, const void *codes,
                              const void *scales, uint64_t col);

#endif
