/* SPDX-License-Identifier: Apache-2.0
 *
 * Contracts of attention on packed pages: codec/turboquant.h lays them out. No number of the cache
 * is decoded to memory but what a kernel keeps of a few positions in the first-level cache. */
#ifndef PL_KERNELS_ATTENTION_PACKED_H
#define PL_KERNELS_ATTENTION_PACKED_H

#include "attention.h"

struct pl_turboquant;

/* Room behind the numbers of a prepared query, for their sums over groups. */
#define PL_ATTEND_SUMS 16

/* Puts queries q[rows][dim], scaled already, into the form that this level's pl_attend_packed_fn
 * takes for keys of that type: dst[rows][dim + PL_ATTEND_SUMS], overlapping nothing. */
typedef void pl_attend_prepare_fn(float *dst, const float *q, size_t rows,
                                  const struct pl_turboquant *type);

pl_attend_prepare_fn pl_attend_prepare_c; /* the numbers as they are, then the sums */

/* pl_attend_fn on a page of PL_ATTEND_BLOCK positions, of which the first n are filled: t->q is
 * what prepare made, and t->out sums the rotated values, so that it wants pl_turboquant_unrotate
 * once all blocks are in.
 *   keys, values   pages of one head, at even addresses; what lies behind their first n positions
 *                  may be anything
 * Bounded: sums may be ordered as the level likes; against exact attention on the decoded page the
 * error is below 5e-4 of the result's size, tested. A row's bits do not depend on the rows beside it, nor on
 * positions it does not see; a NaN scale reaches the rows that see it and no others. */
typedef void pl_attend_packed_fn(const pl_attend_tile *t, const struct pl_turboquant *type,
                                 const uint8_t *keys, const uint8_t *values, size_t n);

#endif
