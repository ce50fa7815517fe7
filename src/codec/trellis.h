/* SPDX-License-Identifier: Apache-2.0
 *
 * The trellis code's parts: a state's number, a block's states, symbols to words, where a block
 * lies. The public calls of pleach/trellis.h are made of these; so are the encoder and the tests.
 *
 * Source: QTIP (arXiv 2406.11235), 1MAD; docs/format.md, "Block" and "Value". */
#ifndef PL_CODEC_TRELLIS_H
#define PL_CODEC_TRELLIS_H

#include <stddef.h>
#include <stdint.h>

#include "pleach/trellis.h"

#define PL_TRELLIS_DIVISOR 147.800537109375f /* one unit of the code in steps of y */

enum { PL_TRELLIS_MAX_BLOCK = 1024, PL_TRELLIS_MAX_WORDS = PL_TRELLIS_MAX_BLOCK * 4 / 32 };

/* The integer y of a state, -510 to 510: the four bytes of a linear congruence, summed. */
static inline int32_t pl_trellis_y(uint32_t state)
{
    uint32_t x = state * 34038481u + 76625530u;
    uint32_t pairs = (x & 0x00ff00ff) + (x >> 8 & 0x00ff00ff);
    return (int32_t)((pairs + (pairs >> 16)) & 0xffff) - 510;
}

/* Words in a block, T*k/32. */
static inline size_t pl_trellis_block_words(const pleach_trellis *t)
{
    return (size_t)t->block * t->bits / 32;
}

/* Words between the start of the matrix and block `block` of stored row `row`. */
size_t pl_trellis_block_at(const pleach_trellis *t, uint64_t row, uint64_t block);

/* states[0..T) of one block of words. */
void pl_trellis_states(const pleach_trellis *t, uint16_t *states, const uint32_t *words);

/* The words whose states are states[0..T), of which only the low k bits are read. */
void pl_trellis_pack(const pleach_trellis *t, uint32_t *words, const uint16_t *states);

/* The numbers of n states under the decode contract. */
void pl_trellis_decode_states(float *dst, const uint16_t *states, size_t n, float scale);

#endif
