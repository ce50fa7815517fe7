/* SPDX-License-Identifier: Apache-2.0
 *
 * Contracts of the attention kernels. */
#ifndef PL_KERNELS_ATTENTION_H
#define PL_KERNELS_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

/* Most positions in one call of pl_attend_fn. */
#define PL_ATTEND_BLOCK 64

/* Query rows that see the same keys, and their running softmax:
 * out = sum over keys so far of exp(score - max) * value, sum = the same without the value. */
typedef struct pl_attend_tile {
    size_t rows, dim;
    const float *q;    /* [rows][dim], scaled already */
    uint32_t *lo, *hi; /* [rows] the block's positions that a row sees: lo <= j < hi */
    float *max, *sum;  /* [rows] start with -infinity and 0 */
    float *out;        /* [rows][dim] starts with 0 */
    float *scores;     /* [rows][PL_ATTEND_BLOCK] scratch */
} pl_attend_tile;

/* Adds one block of n <= PL_ATTEND_BLOCK keys and values, [n][dim], to the tile. lo <= hi <= n; a
 * row with lo == hi does not change. Values that no row sees must still be finite.
 * Bounded: an ISA may order its sums, but a row's bits do not depend on the rows beside it, nor on
 * positions it does not see. */
typedef void pl_attend_fn(const pl_attend_tile *t, const float *keys, const float *values,
                          size_t n);

pl_attend_fn pl_attend_c; /* serves every head size */

/* Pairs (x[i], x[i + half]) turned by an angle, i < half: x[i]*cos[i] - x[i+half]*sin[i] and
 * x[i+half]*cos[i] + x[i]*sin[i]. Exact. */
typedef void pl_rope_fn(float *x, const float *cos, const float *sin, size_t half);

#endif
