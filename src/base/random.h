/* SPDX-License-Identifier: Apache-2.0
 *
 * SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): small,
 * seedable, the same on every machine. */
#ifndef PL_BASE_RANDOM_H
#define PL_BASE_RANDOM_H

#include <stdint.h>

/* The mixing function alone: a hash of one 64-bit word. */
static inline uint64_t pl_mix64(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline uint64_t pl_random_next(uint64_t *state)
{
    return pl_mix64(*state += 0x9e3779b97f4a7c15u);
}

/* Uniform in [0, 1), 53 bits. */
static inline double pl_random_unit(uint64_t *state)
{
    return (double)(pl_random_next(state) >> 11) * 0x1p-53;
}

#endif
