/* SPDX-License-Identifier: Apache-2.0
 *
 * The trellis search: for a block of numbers, the states of the tail-biting path of least squared
 * error. QTIP (arXiv 2406.11235, Algorithm 4) finds it in two Viterbi runs: a free one over the
 * block rotated by half its length gives the group at the seam, a second is pinned to that group at
 * both ends. Here one free run begins shortly before the seam and goes on to the block's end. The
 * best path gives the seam's group; the best path that ends in it nearly always starts in it too,
 * and then no path through that group at both ends is better. Only where it does not is the second
 * run made. */
#ifndef PL_CODEC_VITERBI_H
#define PL_CODEC_VITERBI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "kernels/kernels.h"

/* Numbers enter the search as round(PL_VITERBI_UNIT * x), x in units of the row's scale, clamped.
 * The code ends at 3.3; a difference wraps in int16 beyond 4.7 units, and the largest that the
 * clamp allows then still looks like 2.1. A lower clamp costs more: over Gaussian blocks 3.45 loses
 * 0.02 to 0.04 % of error, over heavy tails some per cent. A lower unit rounds the small errors of
 * k = 4 too coarsely. */
#define PL_VITERBI_UNIT  7000.0f
#define PL_VITERBI_CLAMP 4.0f

/* One code's tables and kernels. Read-only once open; any number of threads may search with it. */
typedef struct pl_viterbi {
    uint32_t k, L;
    uint32_t reach; /* numbers before the seam that the run starts with */
    pl_viterbi_forward_fn *forward;
    pl_viterbi_trace_fn *trace;
    int16_t *ordered;  /* values in the forward kernel's order */
    int16_t *by_group; /* [2^(L-k)][2^k] */
} pl_viterbi;

/* fast: with less reach, PLEACH_SEARCH_FAST. */
pleach_status pl_viterbi_open(pl_viterbi *v, const pl_kernels *kernels, uint32_t k, uint32_t L,
                              bool fast, pleach_error *err);
void pl_viterbi_close(pl_viterbi *v); /* accepts a zeroed one */

/* values[0 .. 2^L) in the order [mid / lanes][n][j][mid % lanes] of the forward kernels, with lanes
 * lowered to the number of mids: see pl_viterbi_forward_fn. */
void pl_viterbi_order(int16_t *values, size_t lanes, uint32_t k, uint32_t L);

/* Bytes of 64-byte aligned scratch for blocks of T numbers. */
size_t pl_viterbi_scratch(const pl_viterbi *v, uint32_t T);

/* states[b][0..T) of two blocks x[b][0..T). Only the states' low k bits matter: whatever the data,
 * they define a tail-biting block. */
void pl_viterbi_pair(const pl_viterbi *v, uint16_t *const states[2], const int16_t *const x[2],
                     uint32_t T, void *scratch);

/* The oracle, one block with an f32 metric: slow and plain. scratch as large as
 * pl_viterbi_exact_scratch says. */
size_t pl_viterbi_exact_scratch(uint32_t L, uint32_t T);
void pl_viterbi_exact(uint16_t *states, const float *x, uint32_t k, uint32_t L, uint32_t T,
                      void *scratch);

#endif
