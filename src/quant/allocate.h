/* SPDX-License-Identifier: Apache-2.0
 *
 * Bits for many modules under one limit of bytes: the choice with the least sum of losses. */
#ifndef PL_QUANT_ALLOCATE_H
#define PL_QUANT_ALLOCATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PL_MIN_K = 2, PL_MAX_K = 4, PL_N_K = PL_MAX_K - PL_MIN_K + 1 };

/* What one module may take. Arrays by k - 2; bytes do not shrink with k. */
typedef struct pl_choice {
    uint64_t bytes[PL_N_K];
    double loss[PL_N_K];
    uint32_t fixed; /* 2, 3 or 4 when there is no choice, else 0 */
    uint32_t k;     /* the result */
} pl_choice;

/* Least bytes that any allocation takes. */
uint64_t pl_allocate_floor(const pl_choice *choices, size_t n);

/* Sets every k so that the bytes are at most `limit` (not below the floor) and the losses sum to
 * the least there is; exactly so when the byte steps have a common divisor that is not too small,
 * as those of whole matrices do, and nearly so otherwise. Equal sums: fewer bits to later modules.
 * False when out of memory. */
bool pl_allocate(pl_choice *choices, size_t n, uint64_t limit);

#endif
