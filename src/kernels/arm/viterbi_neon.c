/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis search, NEON: 8 states of each of two blocks at a time, which share the loads of the
 * values; four operations per 8 states. The trace finds a group's least cost across lanes, then the
 * first lane that has it. */
#include "kernels/kernels.h"

#include <arm_neon.h>

#include "base/compiler.h"

enum { LANES = 8 };

static PL_ALWAYS_INLINE uint32x4_t pairs(uint16x8_t v)
{
    return vreinterpretq_u32_u16(v);
}

static PL_ALWAYS_INLINE uint64x2_t fours(uint32x4_t a, uint32x4_t b, int upper)
{
    return vreinterpretq_u64_u32(upper ? vzip2q_u32(a, b) : vzip1q_u32(a, b));
}

/* rows[n] holds number n of 8 consecutive mids; stores them as [mid][n], n below `fan`. Interleaved
 * stores take four registers of words, of pairs of words or of fours of words. */
static PL_ALWAYS_INLINE void store_interleaved(uint16_t *to, const uint16x8_t *rows, int fan)
{
    if (fan == 4) {
        uint16x8x4_t four = {{rows[0], rows[1], rows[2], rows[3]}};
        vst4q_u16(to, four);
        return;
    }
    uint32x4_t two[2][8]; /* numbers 2i, 2i + 1 of mids 0 .. 3, then 4 .. 7 */
    for (int i = 0; i < fan / 2; i++) {
        two[0][i] = pairs(vzip1q_u16(rows[2 * i], rows[2 * i + 1]));
        two[1][i] = pairs(vzip2q_u16(rows[2 * i], rows[2 * i + 1]));
    }
    for (int half = 0; half < 2 && fan == 8; half++) {
        uint32x4x4_t out = {{two[half][0], two[half][1], two[half][2], two[half][3]}};
        vst4q_u32((uint32_t *)(void *)(to + 32 * half), out);
    }
    for (int quarter = 0; quarter < 4 && fan == 16; quarter++) { /* two mids each */
        const uint32x4_t *v = two[quarter / 2];
        uint64x2x4_t out;
        for (int i = 0; i < 4; i++) out.val[i] = fours(v[2 * i], v[2 * i + 1], quarter % 2);
        vst4q_u64((uint64_t *)(void *)(to + 32 * quarter), out);
    }
}

/* (d*d + 2^14) >> 15. For d = -2^15 the instruction saturates to 2^15 - 1: no matter to a minimum
 * that is clamped there. */
static PL_ALWAYS_INLINE uint16x8_t squared_error(int16x8_t d)
{
    return vreinterpretq_u16_s16(vqrdmulhq_s16(d, d));
}

/* One step of both blocks: viterbi_body.h. */
static PL_ALWAYS_INLINE void step(uint16_t *to, const uint16_t *from, const int16_t *values,
                                  const int16_t *x, uint16_t *fall, int renormalise, int k, int L)
{
    const int fan = 1 << k;
    const size_t mids = (size_t)1 << (L - 2 * k), groups = (size_t)1 << (L - k);
    const int16x8_t x0 = vdupq_n_s16(x[0]);
    const int16x8_t x1_less_x0 = vdupq_n_s16((int16_t)(x[1] - x[0]));
    const uint16x8_t highest = vdupq_n_u16(INT16_MAX);
    const uint16x8_t fall0 = vdupq_n_u16(fall[0]), fall1 = vdupq_n_u16(fall[1]);
    uint16x8_t least0 = highest, least1 = highest;
    for (size_t mid = 0; mid < mids; mid += LANES) {
        uint16x8_t rows0[16], rows1[16];
        for (int n = 0; n < fan; n++) {
            uint16x8_t best0 = highest, best1 = highest;
            for (int j = 0; j < fan; j++, values += LANES) {
                const uint16_t *m = from + (size_t)j * mids + mid;
                int16x8_t d0 = vsubq_s16(x0, vld1q_s16(values));
                int16x8_t d1 = vaddq_s16(d0, x1_less_x0); /* spares a load */
                best0 = vminq_u16(best0, vaddq_u16(vld1q_u16(m), squared_error(d0)));
                best1 = vminq_u16(best1, vaddq_u16(vld1q_u16(m + groups), squared_error(d1)));
            }
            if (renormalise) {
                best0 = vsubq_u16(best0, fall0);
                best1 = vsubq_u16(best1, fall1);
                least0 = vminq_u16(least0, best0);
                least1 = vminq_u16(least1, best1);
            }
            rows0[n] = best0;
            rows1[n] = best1;
        }
        store_interleaved(to + mid * (size_t)fan, rows0, fan);
        store_interleaved(to + groups + mid * (size_t)fan, rows1, fan);
    }
    if (renormalise) {
        fall[0] = vminvq_u16(least0);
        fall[1] = vminvq_u16(least1);
    }
}

/* The costs of states (first + 0 .. 7, group), lanes past `count` at the highest. Here costs beyond
 * 2^15 are told apart, so the saturated square is mended. */
static PL_ALWAYS_INLINE uint16x8_t group_costs(const uint16_t *from, size_t mids,
                                               const int16_t *value, int16x8_t x, int count)
{
    uint16x8_t m = vdupq_n_u16(UINT16_MAX);
    int16x8_t v = count == 4 ? vcombine_s16(vld1_s16(value), vdup_n_s16(0)) : vld1q_s16(value);
    m = vld1q_lane_u16(from, m, 0);
    m = vld1q_lane_u16(from + mids, m, 1);
    m = vld1q_lane_u16(from + 2 * mids, m, 2);
    m = vld1q_lane_u16(from + 3 * mids, m, 3);
    if (count == 8) {
        m = vld1q_lane_u16(from + 4 * mids, m, 4);
        m = vld1q_lane_u16(from + 5 * mids, m, 5);
        m = vld1q_lane_u16(from + 6 * mids, m, 6);
        m = vld1q_lane_u16(from + 7 * mids, m, 7);
    }
    int16x8_t d = vsubq_s16(x, v);
    uint16x8_t full = vceqq_s16(d, vdupq_n_s16(INT16_MIN));
    return vqaddq_u16(m, vsubq_u16(squared_error(d), full));
}

static PL_ALWAYS_INLINE uint32_t cheapest(const uint16_t *from, size_t mids, const int16_t *value,
                                          int16_t x, int k)
{
    const uint16x8_t lane = vcombine_u16(vcreate_u16(0x0003000200010000), //
                                         vcreate_u16(0x0007000600050004));
    int16x8_t xs = vdupq_n_s16(x);
    uint16x8_t a = group_costs(from, mids, value, xs, k == 2 ? 4 : 8), b = a;
    if (k == 4) b = group_costs(from + 8 * mids, mids, value + 8, xs, 8);
    uint16x8_t least = vdupq_n_u16(vminvq_u16(vminq_u16(a, b)));
    uint16x8_t first = vornq_u16(lane, vceqq_u16(a, least)); /* the others become high */
    if (k == 4)
        first = vminq_u16(first, vornq_u16(vaddq_u16(lane, vdupq_n_u16(8)), vceqq_u16(b, least)));
    return vminvq_u16(first);
}

static PL_ALWAYS_INLINE void trace(uint16_t *const states[2], uint32_t group[2],
                                   const uint16_t *minima, const int16_t *values, const int16_t *x,
                                   size_t steps, size_t skip, int k, int L)
{
    const size_t mids = (size_t)1 << (L - 2 * k), groups = (size_t)1 << (L - k);
    uint32_t g0 = group[0], g1 = group[1];
    for (size_t t = steps; t-- > skip;) { /* two independent chains hide each other's latency */
        const uint16_t *from = minima + 2 * groups * (t - skip);
        uint32_t j0 = cheapest(from + (g0 >> k), mids, values + ((size_t)g0 << k), x[2 * t], k);
        uint32_t j1 =
            cheapest(from + groups + (g1 >> k), mids, values + ((size_t)g1 << k), x[2 * t + 1], k);
        uint32_t s0 = j0 << (L - k) | g0, s1 = j1 << (L - k) | g1;
        states[0][t] = (uint16_t)s0;
        states[1][t] = (uint16_t)s1;
        g0 = s0 >> k;
        g1 = s1 >> k;
    }
    group[0] = g0;
    group[1] = g1;
}

#define VITERBI_TRACE
#include "kernels/viterbi_body.h"

void pl_kernels_init_viterbi_neon(pl_kernels *k)
{
    set_forward(k);
    set_trace(k);
}
