/* SPDX-License-Identifier: Apache-2.0
 *
 * Affine groups as MLX stores them (docs/format.md, "Affine groups"): encoding, for embeddings and
 * output heads. */
#ifndef PL_QUANT_AFFINE_H
#define PL_QUANT_AFFINE_H

#include <stddef.h>
#include <stdint.h>

#include "format/dtype.h"

typedef struct pl_affine {
    uint32_t bits, group; /* 4 or 8; 32 or 64 */
    pl_dtype type;        /* of scales and biases: PL_F16 or PL_BF16 */
} pl_affine;

/* Codes one row of n finite numbers, n a multiple of the group: words [n*bits/32], scales and
 * biases [n/group]. Every code is the one whose decoded value, with the rounding of `type` at each
 * step, is nearest. Returns the squared error; infinity when a scale or bias overflows the type. */
double pl_affine_encode_row(const pl_affine *a, const float *row, size_t n, uint32_t *words,
                            uint16_t *scales, uint16_t *biases);

#endif
