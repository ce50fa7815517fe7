/* SPDX-License-Identifier: Apache-2.0
 *
 * The search's oracle: f32 costs of every state, one number after another, back-pointers stored.
 * What the fast search is measured against. */
#include "viterbi.h"

#include <math.h>

#include "trellis.h"

/* Scratch: code values, the states' costs, the groups' minima, then a back-pointer per group and
 * step. */
size_t pl_viterbi_exact_scratch(uint32_t L, uint32_t T)
{
    return ((size_t)3 * sizeof(float) << L) + ((size_t)T << (L - 2));
}

/* The path of least cost through x, or with pin >= 0 the one that enters and ends in that group. */
static void run(uint16_t *states, const float *x, uint32_t k, uint32_t L, uint32_t T, long pin,
                void *scratch)
{
    const uint32_t n = 1u << L, groups = n >> k, fan = 1u << k;
    float *values = scratch, *cost = values + n, *minima = cost + n;
    uint8_t *back = (uint8_t *)(minima + n);
    for (uint32_t s = 0; s < n; s++) values[s] = (float)pl_trellis_y(s) / PL_TRELLIS_DIVISOR;
    for (uint32_t g = 0; g < groups; g++) minima[g] = pin < 0 || g == (uint32_t)pin ? 0 : INFINITY;

    for (uint32_t t = 0; t < T; t++, back += groups) {
        for (uint32_t s = 0; s < n; s++) {
            float d = x[t] - values[s];
            cost[s] = minima[s >> k] + d * d;
        }
        for (uint32_t g = 0; g < groups; g++) {
            uint8_t best = 0;
            for (uint32_t j = 1; j < fan; j++)
                if (cost[j * groups + g] < cost[best * groups + g]) best = (uint8_t)j;
            back[g] = best;
            minima[g] = cost[best * groups + g];
        }
    }
    uint32_t state = pin < 0 ? 0 : (uint32_t)pin;
    if (pin < 0) {
        for (uint32_t s = 1; s < n; s++)
            if (cost[s] < cost[state]) state = s;
    } else {
        state |= (uint32_t)(back - groups)[pin] << (L - k);
    }
    for (uint32_t t = T; t-- > 0;) {
        states[t] = (uint16_t)state;
        back -= groups;
        uint32_t group = state >> k;
        if (t) state = (uint32_t)(back - groups)[group] << (L - k) | group;
    }
}

void pl_viterbi_exact(uint16_t *states, const float *x, uint32_t k, uint32_t L, uint32_t T,
                      void *scratch)
{
    float rotated[PL_TRELLIS_MAX_BLOCK];
    for (uint32_t t = 0; t < T; t++) rotated[t] = x[(t + T / 2) % T];
    run(states, rotated, k, L, T, -1, scratch);
    long seam = states[T - T / 2] >> k;
    run(states, x, k, L, T, seam, scratch);
}
