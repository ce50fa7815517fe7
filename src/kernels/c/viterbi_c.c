/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis search, portable. Defines the bits of every other version; k and L are constants of each
 * instance, so that the inner loops are vectorised. */
#include "kernels/kernels.h"

#include "base/compiler.h"

enum { LANES = 16 };

/* (d*d + 2^14) >> 15, from the halves of the product: sixteen bits at every point, so that a
 * vector holds as many states as it can. */
static PL_ALWAYS_INLINE uint16_t squared_error(int16_t x, int16_t value)
{
    int16_t d = (int16_t)(x - value);
    uint16_t high = (uint16_t)((d * d) >> 16), low = (uint16_t)(d * d);
    return (uint16_t)(2 * high + ((uint16_t)((low >> 14) + 1) >> 1));
}

/* One step of one block. Returns the least of the new minima. Costs are held less 2^15, as signed
 * numbers, whose minimum the oldest vector units have. */
static PL_ALWAYS_INLINE uint16_t step_block(uint16_t *PL_RESTRICT to,
                                            const uint16_t *PL_RESTRICT from,
                                            const int16_t *PL_RESTRICT values, int16_t x,
                                            uint16_t fall, int k, int L)
{
    const size_t fan = (size_t)1 << k, mids = (size_t)1 << (L - 2 * k);
    uint16_t least = UINT16_MAX;
    for (size_t mid = 0; mid < mids; mid += LANES, values += fan * fan * LANES) {
        int16_t before[16][LANES], best[16][LANES];
        for (size_t j = 0; j < fan; j++)
            for (size_t i = 0; i < LANES; i++) {
                before[j][i] = (int16_t)(from[j * mids + mid + i] ^ 0x8000);
                best[j][i] = -1;
            }
        for (size_t j = 0; j < fan; j++)
            for (size_t n = 0; n < fan; n++)
                for (size_t i = 0; i < LANES; i++) {
                    uint16_t err = squared_error(x, values[(n * fan + j) * LANES + i]);
                    int16_t cost = (int16_t)(before[j][i] + err);
                    best[n][i] = PL_MIN(best[n][i], cost);
                }
        for (size_t i = 0; i < LANES; i++)
            for (size_t n = 0; n < fan; n++) {
                uint16_t minimum = (uint16_t)((best[n][i] ^ 0x8000) - fall);
                least = PL_MIN(least, minimum);
                *to++ = minimum;
            }
    }
    return least;
}

/* One step of both blocks: viterbi_body.h. */
static PL_ALWAYS_INLINE void step(uint16_t *to, const uint16_t *from, const int16_t *values,
                                  const int16_t *x, uint16_t *fall, int renormalise, int k, int L)
{
    const size_t groups = (size_t)1 << (L - k);
    for (size_t b = 0; b < 2; b++) {
        uint16_t now = renormalise ? fall[b] : 0;
        uint16_t least = step_block(to + b * groups, from + b * groups, values, x[b], now, k, L);
        if (renormalise) fall[b] = least;
    }
}

static PL_ALWAYS_INLINE void trace(uint16_t *const states[2], uint32_t group[2],
                                   const uint16_t *minima, const int16_t *values, const int16_t *x,
                                   size_t steps, size_t skip, int k, int L)
{
    const size_t fan = (size_t)1 << k, mids = (size_t)1 << (L - 2 * k);
    const size_t groups = (size_t)1 << (L - k);
    for (size_t b = 0; b < 2; b++)
        for (size_t t = steps; t-- > skip;) {
            const uint16_t *from = minima + groups * (2 * (t - skip) + b) + (group[b] >> k);
            const int16_t *value = values + group[b] * fan;
            uint32_t best = UINT32_MAX, best_j = 0;
            for (uint32_t j = 0; j < fan; j++) {
                uint32_t cost = from[j * mids] + squared_error(x[2 * t + b], value[j]);
                if (cost < best) {
                    best = cost;
                    best_j = j;
                }
            }
            uint32_t state = best_j << (L - k) | group[b];
            states[b][t] = (uint16_t)state;
            group[b] = state >> k;
        }
}

#define VITERBI_TRACE
#include "kernels/viterbi_body.h"

void pl_kernels_init_viterbi_c(pl_kernels *k)
{
    set_forward(k);
    set_trace(k);
}
