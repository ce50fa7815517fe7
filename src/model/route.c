/* SPDX-License-Identifier: Apache-2.0
 *
 * Routing: choice by token, then tokens by expert. Everything is in fixed orders, so that a token's
 * result does not depend on which others it came with. */
#include "route.h"

#include <math.h>

#include "base/memory.h"

pleach_status pl_routes_open(pl_routes *r, size_t capacity, uint32_t n, uint32_t used,
                             pleach_error *err)
{
    *r = (pl_routes){.capacity = capacity, .n = n, .used = used};
    r->scores = pl_alloc(capacity, n * sizeof *r->scores);
    r->expert = pl_alloc(capacity, used * sizeof *r->expert);
    r->weight = pl_alloc(capacity, used * sizeof *r->weight);
    r->member = pl_alloc(capacity, used * sizeof *r->member);
    r->first = pl_alloc(n + 1, sizeof *r->first);
    if (r->scores && r->expert && r->weight && r->member && r->first) return PLEACH_OK;
    pl_routes_close(r);
    return pl_fail_memory(err, "routes", pl_routes_memory(capacity, n, used));
}

void pl_routes_close(pl_routes *r)
{
    pl_free(r->scores);
    pl_free(r->expert);
    pl_free(r->weight);
    pl_free(r->member);
    pl_free(r->first);
    *r = (pl_routes){0};
}

uint64_t pl_routes_memory(size_t capacity, uint32_t n, uint32_t used)
{
    return capacity * (n * sizeof(float) + used * 3 * sizeof(float)) + (n + 1) * sizeof(size_t);
}

/* Puts `expert` among the `count` chosen so far, which ascend. */
static void insert(uint32_t *chosen, uint32_t count, uint32_t expert)
{
    uint32_t i = count;
    for (; i > 0 && chosen[i - 1] > expert; i--) chosen[i] = chosen[i - 1];
    chosen[i] = expert;
}

static bool is_chosen(const uint32_t *chosen, uint32_t count, uint32_t expert)
{
    for (uint32_t i = 0; i < count; i++)
        if (chosen[i] == expert) return true;
    return false;
}

void pl_route_token(const pl_kernels *k, pl_routes *r, size_t token, bool renormalise)
{
    float *scores = r->scores + token * r->n, *weight = r->weight + token * r->used, sum = 0;
    uint32_t *chosen = r->expert + token * r->used;
    k->softmax(scores, r->n);
    for (uint32_t count = 0; count < r->used; count++) {
        uint32_t best = r->n;
        for (uint32_t e = 0; e < r->n; e++) {
            if (is_chosen(chosen, count, e)) continue;
            if (best == r->n || scores[e] > scores[best] ||
                (isnan(scores[best]) && !isnan(scores[e])))
                best = e;
        }
        insert(chosen, count, best);
    }
    for (uint32_t i = 0; i < r->used; i++) sum += weight[i] = scores[chosen[i]];
    for (uint32_t i = 0; renormalise && i < r->used; i++) weight[i] /= sum;
}

void pl_routes_group(pl_routes *r, size_t n)
{
    for (uint32_t e = 0; e <= r->n; e++) r->first[e] = 0;
    for (size_t slot = 0; slot < n * r->used; slot++) r->first[r->expert[slot] + 1]++;
    for (uint32_t e = 0; e < r->n; e++) r->first[e + 1] += r->first[e];
    for (size_t slot = 0; slot < n * r->used; slot++)
        r->member[r->first[r->expert[slot]]++] = (uint32_t)slot;
    for (uint32_t e = r->n; e > 0; e--) r->first[e] = r->first[e - 1];
    r->first[0] = 0;
}
