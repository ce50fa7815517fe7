/* SPDX-License-Identifier: Apache-2.0
 *
 * Axis 1: rows of the A fragment are outputs, K is positions. Every block rounds its slice of the
 * inputs and keeps the digits in shared memory, each in all four bytes of a word, so that one
 * 16-byte load serves four positions of two outputs. */
#include "kernels/codes.h"
#include "trellis_limbs.cuh"

enum {
    QUARTER = 68, /* words of a quarter's digits; 64 would collide */
    COLUMN = 4 * QUARTER,
    WALKERS = PL_LIMBS_THREADS / 32
};

/* C: most rows of x. Columns of B: limbs 0, 1, 2 of one row; limbs 0 and 1 of four; the same twice
 * for eight. */
template <int C> struct shape {
    static constexpr int limbs = C == 1 ? 3 : 2, sets = C == 8 ? 2 : 1;
    static constexpr int columns = C == 1 ? 3 : 2 * C;
    static constexpr int scales = C == 1 ? 4 : columns;
    typedef pl_slots<16, 16, C, C == 1 ? 2 : 1, WALKERS> slots;
};

/* What a column's integer sums of one block begin with, and what they are multiplied by. */
struct column_scale {
    int start;
    float factor;
};

/* One row of x, one 256-block: `digits` and `scales` are those of the row's first column. */
template <int C>
static __device__ __forceinline__ void round_block(const float (&a)[8], uint32_t *digits,
                                                   column_scale *scales)
{
    typedef shape<C> S;
    const unsigned lane = threadIdx.x % 32;
    uint32_t largest = 0;
    int Q[8], sum[S::limbs];
#pragma unroll
    for (int i = 0; i < 8; i++) largest = max(largest, pl_magnitude(a[i]));
    pl_step step = pl_step_of<S::limbs>(__reduce_max_sync(0xffffffff, largest));
#pragma unroll
    for (int i = 0; i < 8; i++) Q[i] = pl_rounded<S::limbs>(a[i], step.inverse);
#pragma unroll
    for (int l = 0; l < S::limbs; l++) {
        sum[l] = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t word = __byte_perm(Q[i], 0, 0);
            digits[l * COLUMN + i / 2 * QUARTER + i % 2 * 32 + lane] = word;
            sum[l] += (int8_t)Q[i];
            Q[i] = pl_above(Q[i]);
        }
    }
#pragma unroll
    for (int l = 0; l < S::limbs; l++) {
        sum[l] = __reduce_add_sync(0xffffffff, sum[l]);
        if (lane == 0)
            scales[l] = {-510 * sum[l], step.step * (1 / PL_TRELLIS_DIVISOR) * (1 << 8 * l)};
    }
}

/* The block's slice of x. */
template <int C>
static __device__ __forceinline__ void round_slice(const pl_limbs_job &j, const pl_place &p,
                                                   uint32_t *digits, column_scale *scales)
{
    typedef shape<C> S;
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t n = p.len * j.M;
    auto fetch = [&](float(&a)[8], uint32_t i) {
        uint32_t b = i % p.len, m = i / p.len;
        const float *x = j.x + m * j.x_stride;
#pragma unroll
        for (int h = 0; h < 8; h++) {
            uint32_t at = (p.first + b) * 256 + 255 - 32 * h - lane;
            a[h] = i < n && at < j.in ? x[at] : 0;
        }
    };
    auto round = [&](const float(&a)[8], uint32_t i) {
        uint32_t b = i % p.len, column = i / p.len * S::limbs;
        round_block<C>(a, digits + (b * S::columns + column) * COLUMN,
                       scales + b * S::scales + column);
    };
    float even[8], odd[8]; /* two blocks ahead */
    fetch(even, warp);
    fetch(odd, warp + WALKERS);
    for (uint32_t i = warp; i < n; i += 2 * WALKERS) {
        float a[8];
#pragma unroll
        for (int h = 0; h < 8; h++) a[h] = even[h];
        fetch(even, i + 2 * WALKERS);
        round(a, i);
        if (i + WALKERS >= n) break;
#pragma unroll
        for (int h = 0; h < 8; h++) a[h] = odd[h];
        fetch(odd, i + 3 * WALKERS);
        round(a, i + WALKERS);
    }
    if (C == 1) /* the fourth column of lanes that sum two */
        for (uint32_t b = threadIdx.x; b < p.len; b += PL_LIMBS_THREADS) scales[4 * b + 3] = {0, 0};
}

/* One unit's products. digits: of column g, quarter q. */
template <int k, int L, int C>
static __device__ __forceinline__ void multiply(const uint4 *code, const uint32_t *digits,
                                                const column_scale *scales,
                                                float (&sums)[shape<C>::sets][4])
{
    typedef shape<C> S;
    const unsigned lane = threadIdx.x % 32, q = lane % 4;
    uint32_t w[4 * k], r0[2 * k + 1], r1[2 * k + 1];
    pl_unpack<k>(w, code);
#pragma unroll
    for (int i = 0; i < 2 * k; i++) {
        r0[i] = w[i];
        r1[i] = w[2 * k + i];
    }
    r0[2 * k] = pl_next_quarter(r0[0], lane);
    r1[2 * k] = pl_next_quarter(r1[0], lane);
    int acc[S::sets][4];
    int4 scale[S::sets]; /* of columns 2 q and 2 q + 1 */
#pragma unroll
    for (int s = 0; s < S::sets; s++) {
        int column = C == 1 ? q % 2 * 2 : 8 * s + 2 * q;
        scale[s] = *(const int4 *)(scales + column);
        acc[s][0] = acc[s][2] = scale[s].x;
        acc[s][1] = acc[s][3] = scale[s].z;
    }
    uint4 next[S::sets];
#pragma unroll
    for (int s = 0; s < S::sets; s++) next[s] = *(const uint4 *)(digits + s * 8 * COLUMN);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        uint4 b[S::sets];
#pragma unroll
        for (int s = 0; s < S::sets; s++) {
            b[s] = next[s];
            if (i < 15) next[s] = *(const uint4 *)(digits + s * 8 * COLUMN + 4 * i + 4);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int at = 4 * i + 2 * h;
            uint32_t a0 = pl_x<k, L, 2 * k, true>(r0, at);
            uint32_t a1 = pl_x<k, L, 2 * k, true>(r1, at);
            uint32_t a2 = pl_x<k, L, 2 * k, true>(r0, at + 1);
            uint32_t a3 = pl_x<k, L, 2 * k, true>(r1, at + 1);
#pragma unroll
            for (int s = 0; s < S::sets; s++)
                pl_mma(acc[s], a0, a1, a2, a3, h ? b[s].z : b[s].x, h ? b[s].w : b[s].y);
        }
    }
#pragma unroll
    for (int s = 0; s < S::sets; s++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[s][i] =
                fmaf((float)acc[s][i], __int_as_float(i % 2 ? scale[s].w : scale[s].y), sums[s][i]);
}

/* The same where k differs between the matrices. */
template <int L, int C>
static __device__ __forceinline__ void
multiply_any(const uint4 *code, uint32_t bits, const uint32_t *digits, const column_scale *scales,
             float (&sums)[shape<C>::sets][4])
{
    if (bits == 2)
        multiply<2, L, C>(code, digits, scales, sums);
    else if (bits == 3)
        multiply<3, L, C>(code, digits, scales, sums);
    else
        multiply<4, L, C>(code, digits, scales, sums);
}

/* A part's sums to its slot. */
template <int C>
static __device__ __forceinline__ void leave(float (&sums)[shape<C>::sets][4], float *slot)
{
    const unsigned lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int s = 0; s < shape<C>::sets; s++) {
        if (C > 1 || q < 2) {
            slot[(4 * s + q) * 16 + g] = sums[s][0] + sums[s][1];
            slot[(4 * s + q) * 16 + g + 8] = sums[s][2] + sums[s][3];
        }
#pragma unroll
        for (int i = 0; i < 4; i++) sums[s][i] = 0;
    }
}

template <int k, int L, int C>
static __device__ __forceinline__ void walk(const pl_limbs_job &j, const pl_place &p, pl_walk<k> at,
                                            uint32_t *digits, column_scale *scales, float *slots)
{
    typedef shape<C> S;
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    uint32_t u = at.u, part = at.part, r = at.r;
    const uint32_t end = at.end;
    pl_run<k> codes = at.codes;
    pl_words<k> next = at.next;
    pl_wait_for_previous();
    round_slice<C>(j, p, digits, scales);
    __syncthreads();
    const uint32_t *mine = digits + (C == 1 ? min(g, 2) : g) * COLUMN + q * QUARTER;
    float sums[S::sets][4] = {};
    auto unit = [&](const pl_words<k> &code, pl_words<k> &ahead) {
        const uint32_t this_part = part, block = r, bits = codes.bits;
        if (++r == p.len) {
            r = 0;
            codes = pl_run<k>(j, p, ++part, 0);
        } else {
            codes.step();
        }
        ahead = codes.load(++u < end);
        const uint32_t *of_block = mine + block * S::columns * COLUMN;
        if constexpr (k != 0)
            multiply<k, L, C>(code.v, of_block, scales + block * S::scales, sums);
        else
            multiply_any<L, C>(code.v, bits, of_block, scales + block * S::scales, sums);
        if (part != this_part || u == end)
            leave<C>(sums, slots + (this_part - p.part0 + warp) * S::slots::slot);
    };
    while (u < end) {
        pl_words<k> other;
        unit(next, other);
        next = other;
    }
}

template <int k, int L, int C>
static __global__ void __launch_bounds__(PL_LIMBS_THREADS, 1) product(pl_limbs_job j)
{
    extern __shared__ uint4 shared[];
    typedef shape<C> S;
    const pl_place p = pl_place_of(j);
    uint32_t *digits = (uint32_t *)shared;
    column_scale *scales = (column_scale *)(digits + p.len * S::columns * COLUMN);
    float *slots = (float *)(scales + p.len * S::scales);
    pl_let_next_start();
    const pl_walk<k> start(j, p, threadIdx.x / 32, WALKERS);
    S::slots::clear(p, slots);
    const pl_factors<16> factors(j, p, WALKERS, slots + S::slots::size(p));
    walk<k, L, C>(j, p, start, digits, scales, slots);
    __syncthreads();
    pl_finish(j, p, typename S::slots{slots}, factors, NULL);
}

template <int k, int L> static pl_limbs_kernel *of_code(int C)
{
    return C == 1 ? product<k, L, 1> : C == 4 ? product<k, L, 4> : product<k, L, 8>;
}

pl_limbs_kernel *pl_limbs_axis1(uint32_t k, uint32_t L, int C)
{
    if (k == 0 && C == 1) return L == 12 ? product<0, 12, 1> : product<0, 16, 1>;
    if (k == 0 && C == 4) return L == 12 ? product<0, 12, 4> : product<0, 16, 4>;
#define OF_CODE(bits, state_bits)                                                                  \
    if (k == bits && L == state_bits) return of_code<bits, state_bits>(C);
    PL_EACH_CODE(OF_CODE)
#undef OF_CODE
    return NULL;
}

template <int C> static size_t shared(size_t parts, size_t units)
{
    typedef shape<C> S;
    return units * (S::columns * COLUMN * sizeof(uint32_t) + S::scales * sizeof(column_scale)) +
           (parts + WALKERS) * S::slots::slot * sizeof(float) +
           (parts + 1) * pl_factors<16>::floats * sizeof(float);
}

size_t pl_limbs_axis1_shared(int C, size_t parts, size_t units)
{
    return C == 1   ? shared<1>(parts, units)
           : C == 4 ? shared<4>(parts, units)
                    : shared<8>(parts, units);
}
