/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers of a block in portable C. */
#ifndef PL_KERNELS_TRELLIS_VALUES_H
#define PL_KERNELS_TRELLIS_VALUES_H

#include <string.h>

#include "base/compiler.h"
#include "codec/trellis.h"

/* The block followed by its own first bytes: every window is then the low bits of a shifted word.
 */
static PL_ALWAYS_INLINE void values_of_block(int16_t *y, const uint8_t *block, size_t T, unsigned k,
                                             unsigned L)
{
    uint8_t bytes[PL_TRELLIS_MAX_WORDS * 4 + 4];
    memcpy(bytes, block, T * k / 8);
    memcpy(bytes + T * k / 8, block, 4);
    for (size_t t = 0; t < T; t++) {
        size_t bit = (T - 1 - t) * k;
        uint32_t word;
        memcpy(&word, bytes + bit / 8, sizeof word);
        y[t] = (int16_t)pl_trellis_y(word >> bit % 8 & ((1u << L) - 1));
    }
}

#endif
