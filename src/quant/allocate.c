/* SPDX-License-Identifier: Apache-2.0
 *
 * A multiple-choice knapsack by dynamic programming over bytes. The matrices of a model have few
 * shapes, so their steps from k to k + 1 share a large divisor and the table is small: 960 entries
 * per bit of SmolLM2's budget, 3,500 for an 8B model. Where it would be large the unit is coarser,
 * steps are rounded up to it, and what that leaves unused goes to single modules afterwards. */
#include "allocate.h"

#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"

#define TABLE_ENTRIES ((uint64_t)32 << 20) /* modules x units */

static uint64_t bytes_at(const pl_choice *c, uint32_t k)
{
    return c->bytes[k - PL_MIN_K];
}

static uint32_t least_k(const pl_choice *c)
{
    return c->fixed ? c->fixed : PL_MIN_K;
}

uint64_t pl_allocate_floor(const pl_choice *choices, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += bytes_at(&choices[i], least_k(&choices[i]));
    return sum;
}

/* ---- units ---------------------------------------------------------------------------------- */

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Of all steps above the floor, and the bytes they come to. */
static uint64_t steps_divisor(const pl_choice *choices, size_t n, uint64_t *range)
{
    uint64_t divisor = 0;
    *range = 0;
    for (size_t i = 0; i < n; i++) {
        if (choices[i].fixed) continue;
        for (uint32_t k = PL_MIN_K + 1; k <= PL_MAX_K; k++)
            divisor = common_divisor(divisor, bytes_at(&choices[i], k) - choices[i].bytes[0]);
        *range += bytes_at(&choices[i], PL_MAX_K) - choices[i].bytes[0];
    }
    return divisor;
}

/* ---- the table ------------------------------------------------------------------------------ */

typedef struct table {
    double *best;   /* [units + 1] least loss of the modules so far in so many units */
    uint8_t *taken; /* [n][units + 1] k of a module there */
    uint64_t units, unit;
} table;

static uint64_t cost(const table *t, const pl_choice *c, uint32_t k)
{
    return (bytes_at(c, k) - c->bytes[0] + t->unit - 1) / t->unit;
}

/* From many units down, so that the entries below are still those without this module. */
static void add_module(table *t, const pl_choice *c, uint8_t *taken)
{
    for (uint64_t u = t->units + 1; u-- > 0;) {
        double least = t->best[u] + c->loss[0];
        taken[u] = PL_MIN_K;
        for (uint32_t k = PL_MIN_K + 1; k <= PL_MAX_K && cost(t, c, k) <= u; k++) {
            double loss = t->best[u - cost(t, c, k)] + c->loss[k - PL_MIN_K];
            if (!(loss < least)) continue;
            least = loss;
            taken[u] = (uint8_t)k;
        }
        t->best[u] = least;
    }
}

static bool solve(pl_choice *choices, size_t n, table *t)
{
    t->best = pl_calloc(t->units + 1, sizeof *t->best);
    t->taken = pl_alloc(n, t->units + 1);
    if (!t->best || !t->taken) return false;
    for (size_t i = 0; i < n; i++)
        if (!choices[i].fixed) add_module(t, &choices[i], t->taken + i * (t->units + 1));
    uint64_t left = t->units;
    for (size_t i = n; i-- > 0;) {
        pl_choice *c = &choices[i];
        c->k = c->fixed ? c->fixed : t->taken[i * (t->units + 1) + left];
        if (!c->fixed) left -= cost(t, c, c->k);
    }
    return true;
}

/* ---- what rounding left --------------------------------------------------------------------- */

/* The module whose next steps lose most for each byte and fit; NULL when none does. */
static pl_choice *best_step(pl_choice *choices, size_t n, uint64_t left, uint32_t *to)
{
    pl_choice *best = NULL;
    double best_drop = 0, best_bytes = 1;
    for (size_t i = 0; i < n; i++) {
        pl_choice *c = &choices[i];
        for (uint32_t k = c->k + 1; !c->fixed && k <= PL_MAX_K; k++) {
            uint64_t bytes = bytes_at(c, k) - bytes_at(c, c->k);
            double drop = c->loss[c->k - PL_MIN_K] - c->loss[k - PL_MIN_K];
            if (bytes > left || !(drop * best_bytes > best_drop * (double)bytes)) continue;
            best = c;
            best_drop = drop;
            best_bytes = (double)bytes;
            *to = k;
        }
    }
    return best;
}

static void spend_rest(pl_choice *choices, size_t n, uint64_t left)
{
    uint32_t k = 0;
    for (pl_choice *c; (c = best_step(choices, n, left, &k));) {
        left -= bytes_at(c, k) - bytes_at(c, c->k);
        c->k = k;
    }
}

bool pl_allocate(pl_choice *choices, size_t n, uint64_t limit)
{
    uint64_t range, floor = pl_allocate_floor(choices, n);
    uint64_t unit = steps_divisor(choices, n, &range), left = limit - floor;
    table t = {.unit = PL_MAX(unit, 1)};
    left = PL_MIN(left, range);
    if (left / t.unit >= TABLE_ENTRIES / (n + 1)) t.unit = left / (TABLE_ENTRIES / (n + 1)) + 1;
    t.units = left / t.unit;
    bool solved = solve(choices, n, &t);
    pl_free(t.taken);
    pl_free(t.best);
    if (!solved) return false;
    uint64_t used = 0;
    for (size_t i = 0; i < n; i++) used += bytes_at(&choices[i], choices[i].k);
    spend_rest(choices, n, limit - used);
    return true;
}
