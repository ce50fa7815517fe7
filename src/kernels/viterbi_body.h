/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis search: what every level shares. The including file defines LANES, the order of its value
 * table, and step(), which takes both blocks over one number:
 *
 *   static void step(uint16_t *to, const uint16_t *from, const int16_t *values, const int16_t *x,
 *                    uint16_t *fall, int renormalise, int k, int L);
 *
 * With `renormalise` a step lowers the minima of block b by fall[b] and leaves there the least of
 * the result. A level with a trace() of its own defines VITERBI_TRACE. k and L are constants of
 * each instance. */
#ifndef PL_KERNELS_VITERBI_BODY_H
#define PL_KERNELS_VITERBI_BODY_H

#include <string.h>

#include "base/compiler.h"
#include "kernels/kernels.h"

static PL_ALWAYS_INLINE void forward(uint16_t *minima, const int16_t *values, const int16_t *x,
                                     size_t steps, size_t skip, int k, int L)
{
    const size_t slot = (size_t)2 << (L - k);
    uint16_t fall[2] = {0, 0};
    for (size_t t = 0; t < steps; t++) {
        const uint16_t *from = minima + slot * (t < skip ? t & 1 : t - skip);
        uint16_t *to = minima + slot * (t + 1 < skip ? (t + 1) & 1 : t + 1 - skip);
        if (t % 4 == 3)
            step(to, from, values, x + 2 * t, fall, 1, k, L);
        else
            step(to, from, values, x + 2 * t, fall, 0, k, L);
    }
}

#define PL_VITERBI_FORWARD(k, L)                                                                   \
    static void forward_k##k##_l##L(uint16_t *minima, const int16_t *values, const int16_t *x,     \
                                    size_t steps, size_t skip)                                     \
    {                                                                                              \
        forward(minima, values, x, steps, skip, k, L);                                             \
    }

PL_EACH_CODE(PL_VITERBI_FORWARD)

static void set_forward(pl_kernels *k)
{
    static pl_viterbi_forward_fn *const forwards[3][2] = {{forward_k2_l12, forward_k2_l16},
                                                          {forward_k3_l12, forward_k3_l16},
                                                          {forward_k4_l12, forward_k4_l16}};
    k->viterbi_lanes = LANES;
    memcpy(k->viterbi_forward, forwards, sizeof forwards);
}

#ifdef VITERBI_TRACE

#define PL_VITERBI_TRACE(k, L)                                                                     \
    static void trace_k##k##_l##L(uint16_t *const states[2], uint32_t group[2],                    \
                                  const uint16_t *minima, const int16_t *values, const int16_t *x, \
                                  size_t steps, size_t skip)                                       \
    {                                                                                              \
        trace(states, group, minima, values, x, steps, skip, k, L);                                \
    }

PL_EACH_CODE(PL_VITERBI_TRACE)

static void set_trace(pl_kernels *k)
{
    static pl_viterbi_trace_fn *const traces[3][2] = {
        {trace_k2_l12, trace_k2_l16}, {trace_k3_l12, trace_k3_l16}, {trace_k4_l12, trace_k4_l16}};
    memcpy(k->viterbi_trace, traces, sizeof traces);
}

#endif
#endif
