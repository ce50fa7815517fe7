/* SPDX-License-Identifier: Apache-2.0
 *
 * Which experts see which tokens. */
#ifndef PL_MODEL_ROUTE_H
#define PL_MODEL_ROUTE_H

#include "kernels/kernels.h"

/* The routes of up to `capacity` tokens to `used` of n experts each. */
typedef struct pl_routes {
    size_t capacity;
    uint32_t n, used;
    float *scores;    /* [capacity][n] the router's, then the softmax of them */
    uint32_t *expert; /* [capacity][used] ascending */
    float *weight;    /* [capacity][used] */
    uint32_t *member; /* [capacity * used] slots, of each expert in turn, ascending: a slot is
                         token * used + which of its experts */
    size_t *first;    /* [n + 1] where an expert's members begin */
} pl_routes;

pleach_status pl_routes_open(pl_routes *r, size_t capacity, uint32_t n, uint32_t used,
                             pleach_error *err);
void pl_routes_close(pl_routes *r); /* accepts a zeroed one */
uint64_t pl_routes_memory(size_t capacity, uint32_t n, uint32_t used);

/* Chooses for one token, whose scores are the router's: the `used` largest of their softmax, of equal
 * ones those with lower numbers; with `renormalise` their weights are divided by the sum of them. A
 * score that is NaN counts as the least. */
void pl_route_token(const pl_kernels *k, pl_routes *r, size_t token, bool renormalise);
/* Fills in member and first for n <= capacity tokens that were routed. */
void pl_routes_group(pl_routes *r, size_t n);

#endif
