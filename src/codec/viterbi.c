/* SPDX-License-Identifier: Apache-2.0
 *
 * The search over a pair of blocks, and its value tables. The loops over states are kernels
 * (viterbi_*.c); there are no back-pointers, the trace recomputes the few candidates of the group
 * it stands in. */
#include "viterbi.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "trellis.h"

static int16_t value_of_state(uint32_t s)
{
    return (int16_t)lrintf((float)pl_trellis_y(s) * (PL_VITERBI_UNIT / PL_TRELLIS_DIVISOR));
}

void pl_viterbi_order(int16_t *values, size_t lanes, uint32_t k, uint32_t L)
{
    size_t mids = (size_t)1 << (L - 2 * k), fan = (size_t)1 << k;
    if (lanes > mids) lanes = mids;
    for (size_t first = 0; first < mids; first += lanes)
        for (size_t n = 0; n < fan; n++)
            for (size_t j = 0; j < fan; j++)
                for (size_t mid = first; mid < first + lanes; mid++)
                    *values++ = value_of_state((uint32_t)(j << (L - k) | mid << k | n));
}

/* So many numbers settle the costs of the groups at the seam: docs/performance.md has the error by
 * reach. */
static uint32_t seam_reach(uint32_t L, bool fast)
{
    return L == 12 ? (fast ? 40 : 80) : (fast ? 128 : 192);
}

pleach_status pl_viterbi_open(pl_viterbi *v, const pl_kernels *kernels, uint32_t k, uint32_t L,
                              bool fast, pleach_error *err)
{
    size_t states = (size_t)1 << L, fan = (size_t)1 << k;
    *v = (pl_viterbi){.k = k,
                      .L = L,
                      .reach = seam_reach(L, fast),
                      .forward = kernels->viterbi_forward[k - 2][L == 16],
                      .trace = kernels->viterbi_trace[k - 2][L == 16],
                      .ordered = pl_alloc(states, sizeof *v->ordered),
                      .by_group = pl_alloc(states, sizeof *v->by_group)};
    if (!v->ordered || !v->by_group) {
        pl_viterbi_close(v);
        return pl_fail_memory(err, "the trellis search's tables", 4 * states);
    }
    pl_viterbi_order(v->ordered, kernels->viterbi_lanes, k, L);
    for (uint32_t s = 0; s < states; s++)
        v->by_group[(s & (states / fan - 1)) * fan + (s >> (L - k))] = value_of_state(s);
    return PLEACH_OK;
}

void pl_viterbi_close(pl_viterbi *v)
{
    pl_free(v->ordered);
    pl_free(v->by_group);
    *v = (pl_viterbi){0};
}

/* Scratch: the minima of T+1 slots, the numbers of a block and its reach, both blocks interleaved,
 * then states that nobody wants. */
static size_t minima_size(const pl_viterbi *v, uint32_t T)
{
    return (size_t)(T + 1) * 2 << (v->L - v->k);
}

size_t pl_viterbi_scratch(const pl_viterbi *v, uint32_t T)
{
    return (minima_size(v, T) + (size_t)T * 5) * sizeof(uint16_t);
}

/* Where the best path ends, or in a long block a good one: it is the best by the seam whichever end
 * it comes from. */
static uint32_t cheapest_group(const uint16_t *minima, uint32_t groups, uint32_t T)
{
    uint32_t best = 0;
    for (uint32_t g = 0; g < groups; g += T < 128 ? 1 : 16)
        if (minima[g] < minima[best]) best = g;
    return best;
}

/* Traces both blocks back from group[b] at T, over the paths in states. Where both have met those
 * paths the rest is in states already. On return group[b] is the group that the path starts in. */
static void trace_again(const pl_viterbi *v, uint16_t *const states[2], uint32_t group[2],
                        const uint16_t *minima, const int16_t *numbers, uint32_t T)
{
    enum { PIECE = 32 }; /* divides T */
    const uint32_t groups = 1u << (v->L - v->k), start[2] = {group[0], group[1]};
    for (uint32_t t = T - PIECE;; t -= PIECE) {
        v->trace((uint16_t *const[]){states[0] + t, states[1] + t}, group,
                 minima + (size_t)2 * groups * t, v->by_group, numbers + 2 * t, PIECE, 0);
        if (t == 0) return;
        if (group[0] == (states[0][t - 1] & (groups - 1)) &&
            group[1] == (states[1][t - 1] & (groups - 1)))
            break;
    }
    memcpy(group, start, sizeof start);
}

/* A second run, pinned to the seam's group at both ends, for the blocks whose path starts in
 * another. A block's states must not depend on its partner: one that is closed keeps its own. */
static void run_pinned(const pl_viterbi *v, uint16_t *const states[2], const uint32_t seam[2],
                       const uint32_t start[2], uint16_t *minima, const int16_t *numbers,
                       uint32_t T, uint16_t *unwanted)
{
    const uint32_t groups = 1u << (v->L - v->k);
    uint32_t group[2] = {seam[0], seam[1]};
    for (uint32_t i = 0; i < 2 * groups; i++) minima[i] = INT16_MAX;
    minima[seam[0]] = minima[groups + seam[1]] = 0;
    v->forward(minima, v->ordered, numbers, T, 0);
    v->trace((uint16_t *const[]){start[0] == seam[0] ? unwanted : states[0],
                                 start[1] == seam[1] ? unwanted : states[1]},
             group, minima, v->by_group, numbers, T, 0);
}

void pl_viterbi_pair(const pl_viterbi *v, uint16_t *const states[2], const int16_t *const x[2],
                     uint32_t T, void *scratch)
{
    const uint32_t groups = 1u << (v->L - v->k), reach = PL_MIN(T, v->reach);
    uint16_t *minima = scratch;
    int16_t *before = (int16_t *)(minima + minima_size(v, T)); /* [reach + T][2] */
    int16_t *numbers = before + 2 * reach;                     /* [T][2] */
    uint16_t *unwanted = (uint16_t *)numbers + 2 * T;          /* [T] */
    for (uint32_t b = 0; b < 2; b++) {
        for (uint32_t t = 0; t < reach; t++) before[2 * t + b] = x[b][T - reach + t];
        for (uint32_t t = 0; t < T; t++) numbers[2 * t + b] = x[b][t];
    }

    /* From before the seam to the block's end; minima are kept from the seam on. */
    memset(minima, 0, 2 * groups * sizeof *minima);
    v->forward(minima, v->ordered, before, reach + T, reach);

    /* The best path says which group the seam has; the best path to there ends the block. */
    const uint16_t *end = minima + (size_t)2 * groups * T;
    uint32_t seam[2] = {cheapest_group(end, groups, T), cheapest_group(end + groups, groups, T)};
    v->trace(states, seam, minima, v->by_group, numbers, T, 0);
    uint32_t start[2] = {seam[0], seam[1]};
    trace_again(v, states, start, minima, numbers, T);
    if (start[0] != seam[0] || start[1] != seam[1])
        run_pinned(v, states, seam, start, minima, numbers, T, unwanted);
}
