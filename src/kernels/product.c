/* SPDX-License-Identifier: Apache-2.0
 *
 * Scratch sizes of the trellis products: one for all levels, so that a plan does not depend on the
 * machine. */
#include "product.h"
#include "product_float.h"

#include "base/compiler.h"

/* Two f32 sums per output and activation row; 64 rows of one block, copied; and what does not
 * depend on the shape: tails of codes, a tile of 16-bit weights. The portable version needs 64
 * blocks of 16-bit numbers. */
size_t pl_trellis_product_scratch(size_t block, size_t M)
{
    size_t outputs = PL_MAX(pl_span_round(block), 64);
    return 2 * M * outputs * sizeof(float) + 64 * outputs * sizeof(int16_t) + 64 * 1024;
}

/* 32 bits a number for one row or 16 for many, in blocks padded to spans; and 32 bits a group. */
size_t pl_trellis_prepared_bytes(size_t block, size_t blocks, size_t M)
{
    size_t row = blocks * pl_span_round(block), words = M == 1 ? row : M * row / 2;
    return (words + M * blocks * pl_block_groups(block)) * 4;
}

/* Two f32 sums per output and activation row; tails of codes; a tile of weights. */
size_t pl_float_product_scratch(size_t block, size_t M)
{
    return 2 * M * pl_span_round(block) * sizeof(float) + 256 * 1024;
}

/* 32 bits a number, in blocks padded to spans, and a line more: rows a multiple of 4096 bytes apart
 * would all lie in the same set of a cache. */
size_t pl_float_prepared_bytes(size_t block, size_t blocks)
{
    return blocks * pl_span_round(block) * sizeof(float) + 64;
}
