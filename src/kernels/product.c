/* SPDX-License-Identifier: Apache-2.0
 *
 * Scratch sizes of the trellis products: one for all levels, so that a plan does not depend on the
 * machine. */
#include "product.h"

#include "base/compiler.h"

/* Staged codes of 64 block rows (at most 4 bits a number, and a margin), a tile of 64 x T or 32 x 128
 * 16-bit weights, and two f32 accumulators per output and activation row. */
size_t pl_trellis_product_scratch(size_t block, size_t M)
{
    size_t span = pl_span_round(block), outputs = PL_MAX(span, 64);
    size_t staged = 64 * (span / 2 + 128), tile = 64 * span * 2, sums = 2 * M * outputs * 4;
    return staged + tile + sums + 64 * 1024;
}

/* 32 bits a number for one row or 16 for many, in blocks padded to spans; and 32 bits a group. */
size_t pl_trellis_prepared_bytes(size_t block, size_t blocks, size_t M)
{
    size_t row = blocks * pl_span_round(block), words = M == 1 ? row : M * row / 2;
    return (words + M * blocks * pl_block_groups(block)) * 4;
}
