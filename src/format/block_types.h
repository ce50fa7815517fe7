/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF's block types: 32 or 256 numbers that share scales. */
#ifndef PL_FORMAT_BLOCK_TYPES_H
#define PL_FORMAT_BLOCK_TYPES_H

#include "dtype.h"

/* dst[0 .. n_blocks * block_elements) = the values of n_blocks blocks of a Q type. The order of the
 * roundings is that of the gguf Python package, so the results are the same bits. */
void pl_dequantize_blocks(pl_dtype type, const uint8_t *src, float *dst, size_t n_blocks);

#endif
