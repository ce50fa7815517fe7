/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis search kernels: the same minima and states at every level, the portable ones against the
 * contract's formula state by state, and the speed of whole searches. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "codec/trellis.h"
#include "codec/viterbi.h"

/* Numbers of two blocks: Gaussian, or the ones that reach every clamp and wrap. */
static void fill_numbers(check *t, int16_t *x, size_t n)
{
    const int limit = (int)(PL_VITERBI_UNIT * PL_VITERBI_CLAMP);
    uint32_t kind = check_below(t, 6);
    for (size_t i = 0; i < n; i++) {
        double g = check_normal(t) * (double)PL_VITERBI_UNIT;
        int v = g > limit ? limit : g < -limit ? -limit : (int)g;
        if (kind == 0)
            v = 0;
        else if (kind == 1)
            v = i & 2 ? limit : -limit;
        else if (kind == 2)
            v = (int16_t)check_rnd(t); /* beyond what the encoder gives */
        x[i] = (int16_t)v;
    }
}

/* One step by the contract, from all states' costs. */
static void step_by_formula(uint16_t *to, const uint16_t *from, int x, uint16_t fall, uint32_t k,
                            uint32_t L)
{
    const uint32_t groups = 1u << (L - k);
    for (uint32_t g = 0; g < groups; g++) {
        uint32_t least = INT16_MAX;
        for (uint32_t j = 0; j < 1u << k; j++) {
            uint32_t s = j << (L - k) | g;
            float value = (float)pl_trellis_y(s) * (PL_VITERBI_UNIT / PL_TRELLIS_DIVISOR);
            int rounded = (int)(value < 0 ? value - 0.5f : value + 0.5f);
            int d = (int16_t)(x - rounded);
            uint32_t cost = from[s >> k] + ((uint32_t)(d * d + (1 << 14)) >> 15);
            if (cost < least) least = cost;
        }
        to[g] = (uint16_t)(least - fall);
    }
}

static void against_formula(check *t, const uint16_t *minima, const int16_t *x, size_t steps,
                            uint32_t k, uint32_t L)
{
    const size_t groups = (size_t)1 << (L - k);
    uint16_t *want = check_buffer(t, 2 * groups, 64), fall[2] = {0, 0};
    for (size_t i = 0; i < 2 * steps; i++) {
        size_t b = i % 2, step = i / 2;
        const uint16_t *from = minima + groups * (2 * step + b), *to = from + 2 * groups;
        step_by_formula(want, from, x[i], step % 4 == 3 ? fall[b] : 0, k, L);
        if (!check_same(t, to, want, 2 * groups)) return;
        if (step % 4 == 3) {
            fall[b] = UINT16_MAX;
            for (size_t g = 0; g < groups; g++) fall[b] = want[g] < fall[b] ? want[g] : fall[b];
        }
    }
}

static void check_one(check *t, const pl_kernels *c, const pl_kernels *isa, uint32_t k, uint32_t L)
{
    const size_t groups = (size_t)1 << (L - k), wide = L == 16;
    pl_viterbi v;
    if (pl_viterbi_open(&v, isa, k, L, false, NULL) != PLEACH_OK) abort();

    for (int round = 0; check_round(t, round, wide ? 4 : 24); round++) {
        size_t steps = 32 * (1 + check_below(t, wide ? 2 : 8)), skip = round % 2 ? steps / 2 : 0;
        size_t size = 2 * (steps - skip + 1) * groups * sizeof(uint16_t);
        check_release(t);
        int16_t *values_c = check_buffer(t, 2 << L, 64), *values = check_buffer(t, 2 << L, 64);
        int16_t *x = check_buffer(t, 4 * steps, 2);
        uint16_t *want = check_buffer(t, size, 64), *got = check_buffer(t, size, 64);
        pl_viterbi_order(values_c, c->viterbi_lanes, k, L);
        pl_viterbi_order(values, isa->viterbi_lanes, k, L);
        fill_numbers(t, x, 2 * steps);
        for (size_t g = 0; g < 2 * groups; g++)
            want[g] = round % 3 == 0 ? INT16_MAX : round % 3 == 1 ? 0 : check_rnd(t) & INT16_MAX;
        want[check_below(t, (uint32_t)groups)] = 0;
        memcpy(got, want, size);
        c->viterbi_forward[k - 2][wide](want, values_c, x, steps, skip);
        isa->viterbi_forward[k - 2][wide](got, values, x, steps, skip);
        check_same(t, got, want, size);
        if (check_is_reference(t) && skip == 0 && round < 5)
            against_formula(t, got, x, steps, k, L);

        uint32_t group_want[2], group_got[2];
        uint16_t *s_want[2], *s_got[2];
        for (int b = 0; b < 2; b++) {
            group_want[b] = group_got[b] = check_below(t, (uint32_t)groups);
            s_want[b] = check_buffer(t, 2 * steps, 2);
            s_got[b] = check_buffer(t, 2 * steps, 2);
            memcpy(s_got[b], s_want[b], 2 * steps);
        }
        c->viterbi_trace[k - 2][wide](s_want, group_want, want, v.by_group, x, steps, skip);
        isa->viterbi_trace[k - 2][wide](s_got, group_got, want, v.by_group, x, steps, skip);
        check_same(t, group_got, group_want, sizeof group_got);
        for (int b = 0; b < 2; b++) check_same(t, s_got[b], s_want[b], 2 * steps);
    }

    enum { T = 256 };
    static int16_t x[2][T];
    static uint16_t states[2][T];
    void *scratch = aligned_alloc(64, (pl_viterbi_scratch(&v, T) + 63) / 64 * 64);
    if (!scratch) abort();
    for (int i = 0; i < 2 * T; i++) x[i / T][i % T] = (int16_t)(check_normal(t) * 5000);
    for (int fast = 0; fast < 2; fast++) {
        pl_viterbi_close(&v);
        if (pl_viterbi_open(&v, isa, k, L, fast, NULL) != PLEACH_OK) abort();
        check_bench(t, 2 * T * 1e-6, fast ? "M weights/s fast" : "M weights/s")
            pl_viterbi_pair(&v, (uint16_t *const[]){states[0], states[1]},
                            (const int16_t *const[]){x[0], x[1]}, T, scratch);
    }
    check_end(t);
    free(scratch);
    pl_viterbi_close(&v);
}

void check_viterbi(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    for (uint32_t L = 12; L <= 16; L += 4)
        for (uint32_t k = 2; k <= 4; k++)
            if (check_begin(
                    t, isa->viterbi_forward[k - 2][L == 16] != c->viterbi_forward[k - 2][L == 16],
                    "viterbi_k%u_l%u", k, L))
                check_one(t, c, isa, k, L);
}
