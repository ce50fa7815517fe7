/* SPDX-License-Identifier: Apache-2.0
 *
 * Axis 0: rows of the A fragment are positions, K is stored rows. A walker keeps the sums of a
 * block's 256 outputs in registers while it walks down the stored rows, so the activations of a
 * unit are one word of a lane: the bytes of stored rows q, q + 4, q + 8, q + 12 for column g. */
#include "kernels/codes.h"
#include "trellis_limbs.cuh"

enum {
    RUN = 16,         /* units that share a step */
    UNIT_STRIDE = 36, /* words of a unit's activations; 32 would collide when they are written */
    PLANE = 296       /* floats of a plane of sums: eighths 36 apart, planes 8 banks apart */
};

/* C: most rows of x. Columns of B: limbs 0, 1, 2 of one row; or limbs 0 and 1 of four, twice for
 * eight: then two warps are a walker, each with half of every run of 32 positions. */
template <int C> struct shape {
    static constexpr int limbs = C == 1 ? 3 : 2, sets = C == 8 ? 2 : 1, warps = sets;
    static constexpr int tokens = C == 1 ? 1 : 4; /* of a set */
    static constexpr int tiles = 16 / sets;
    static constexpr int walkers = PL_LIMBS_THREADS / 32 / warps;
    typedef pl_slots<256, PLANE, C, C == 1 ? 2 : 1, walkers> slots;
};

template <int C> struct staged {
    uint32_t digits[RUN * shape<C>::sets * UNIT_STRIDE];
    int sums[shape<C>::sets * 8]; /* of a column's digits */
    float steps[shape<C>::sets * 4];
};

/* A lane's rows of a run of `len` units: two fours of them, of units lane / 4 and lane / 4 + 8. */
struct lane_rows {
    uint32_t row[2], n[2]; /* how many of the four are there */

    __device__ __forceinline__ lane_rows(const pl_limbs_job &j, uint32_t r0, uint32_t len)
    {
        const unsigned lane = threadIdx.x % 32;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            row[h] = (r0 + lane / 4 + 8 * h) * 16 + lane % 4 * 4;
            n[h] = lane / 4 + 8 * h < len && row[h] < j.in ? min(j.in - row[h], 4) : 0;
        }
    }
    __device__ __forceinline__ void load(float (&v)[8], const float *from, bool aligned) const
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float4 four = make_float4(0, 0, 0, 0);
            const float *p = from + row[h];
            if (n[h] == 4 && aligned) {
                four = *(const float4 *)p;
            } else {
                if (n[h] > 0) four.x = p[0];
                if (n[h] > 1) four.y = p[1];
                if (n[h] > 2) four.z = p[2];
                if (n[h] > 3) four.w = p[3];
            }
            v[4 * h] = four.x;
            v[4 * h + 1] = four.y;
            v[4 * h + 2] = four.z;
            v[4 * h + 3] = four.w;
        }
    }
};

/* One warp rounds the rows of x of one set, times the scales, for a run. */
template <int C>
static __device__ __forceinline__ void round_run(const pl_limbs_job &j, const lane_rows &rows,
                                                 const float (&scale)[8], uint32_t len, int set,
                                                 staged<C> &out)
{
    typedef shape<C> S;
    const unsigned lane = threadIdx.x % 32;
    const bool aligned = ((uintptr_t)j.x | j.x_stride * sizeof(float)) % 16 == 0;
    float a[S::tokens][8];
#pragma unroll
    for (int t = 0; t < S::tokens; t++) {
        if (set * 4 + t < j.M) {
            rows.load(a[t], j.x + (set * 4 + t) * j.x_stride, aligned);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++) a[t][i] = 0;
        }
    }
#pragma unroll
    for (int t = 0; t < S::tokens; t++) {
        uint32_t largest = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            a[t][i] *= scale[i];
            largest = max(largest, pl_magnitude(a[t][i]));
        }
        pl_step step = pl_step_of<S::limbs>(__reduce_max_sync(0xffffffff, largest));
        int Q[8], sum[S::limbs + 1];
#pragma unroll
        for (int i = 0; i < 8; i++) Q[i] = pl_rounded<S::limbs>(a[t][i], step.inverse);
#pragma unroll
        for (int l = 0; l <= S::limbs; l++) {
            sum[l] = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) sum[l] += Q[i];
            if (l == S::limbs) break;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint32_t unit = lane / 4 + h * 8, column = S::limbs * t + l;
                uint8_t *to =
                    (uint8_t *)(out.digits + (unit * S::sets + set) * UNIT_STRIDE + 4 * column) +
                    lane % 4;
                if (unit < len) {
#pragma unroll
                    for (int i = 0; i < 4; i++) to[4 * i] = (uint8_t)Q[4 * h + i];
                }
            }
#pragma unroll
            for (int i = 0; i < 8; i++) Q[i] = pl_above(Q[i]);
        }
#pragma unroll
        for (int l = 0; l < S::limbs; l++) { /* the digits: Q less 256 times what is above */
            sum[l] = __reduce_add_sync(0xffffffff, sum[l] - 256 * sum[l + 1]);
            if (lane == 0) out.sums[set * 8 + S::limbs * t + l] = sum[l];
        }
        if (lane == 0) out.steps[set * 4 + t] = step.step * (1 / PL_TRELLIS_DIVISOR);
    }
}

template <int C> static __device__ __forceinline__ void sync_walker(uint32_t walker)
{
    if (shape<C>::warps == 1)
        __syncwarp();
    else
        asm volatile("bar.sync %0, 64;" ::"r"(walker + 1) : "memory");
}

/* The run of words of half `half` of a stored row's positions, and how many words it is. */
template <int k, int C> struct half_run {
    static constexpr int n = C == 8 ? (k + 1) / 2 : k;
    uint32_t w[n + 1];
    __device__ __forceinline__ half_run(const uint32_t *row, uint32_t next, uint32_t half)
    {
        if (C != 8) {
#pragma unroll
            for (int i = 0; i < k; i++) w[i] = row[i];
            w[n] = next;
        } else if (k == 3) {
            w[0] = half ? __funnelshift_r(row[1], row[2], 16) : row[0];
            w[1] = half ? __funnelshift_r(row[2], next, 16) : row[1];
            w[2] = 0;
        } else {
#pragma unroll
            for (int i = 0; i < n; i++) w[i] = half ? row[n + i] : row[i];
            w[n] = half ? next : row[n];
        }
    }
};

/* One unit's products. */
template <int k, int L, int C>
static __device__ __forceinline__ void multiply(const uint4 *code, const uint32_t *digits,
                                                uint32_t half,
                                                int (&acc)[shape<C>::tiles][shape<C>::sets][4])
{
    typedef shape<C> S;
    const unsigned lane = threadIdx.x % 32;
    uint32_t w[4 * k], b[S::sets];
    pl_unpack<k>(w, code);
#pragma unroll
    for (int s = 0; s < S::sets; s++) b[s] = digits[s * UNIT_STRIDE + lane];
#pragma unroll
    for (int pair = 0; pair < 2; pair++) {
        const uint32_t *row = w + 2 * pair * k;
        half_run<k, C> r0(row, pl_next_eighth(row[0], lane), half);
        half_run<k, C> r1(row + k, pl_next_eighth(row[k], lane), half);
        uint32_t b0[S::sets], b1[S::sets];
#pragma unroll
        for (int s = 0; s < S::sets; s++) {
            b0[s] = __byte_perm(b[s], 0, pair ? 0x2222 : 0x0000);
            b1[s] = __byte_perm(b[s], 0, pair ? 0x3333 : 0x1111);
        }
#pragma unroll
        for (int i = 0; i < S::tiles; i++) {
            uint32_t a0 = pl_x<k, L, r0.n, true>(r0.w, 2 * i);
            uint32_t a1 = pl_x<k, L, r0.n, true>(r0.w, 2 * i + 1);
            uint32_t a2 = pl_x<k, L, r1.n, true>(r1.w, 2 * i);
            uint32_t a3 = pl_x<k, L, r1.n, true>(r1.w, 2 * i + 1);
#pragma unroll
            for (int s = 0; s < S::sets; s++) pl_mma(acc[i][s], a0, a1, a2, a3, b0[s], b1[s]);
        }
    }
}

/* The same where k differs between the matrices. */
template <int L, int C>
static __device__ __forceinline__ void multiply_any(const uint4 *code, uint32_t bits,
                                                    const uint32_t *digits, uint32_t half,
                                                    int (&acc)[shape<C>::tiles][shape<C>::sets][4])
{
    if (bits == 2)
        multiply<2, L, C>(code, digits, half, acc);
    else if (bits == 3)
        multiply<3, L, C>(code, digits, half, acc);
    else
        multiply<4, L, C>(code, digits, half, acc);
}

/* A run's sums to the slot: lane (g, q) has outputs 32 g + .. of row q of a set. */
template <int C>
static __device__ __forceinline__ void leave(const int (&acc)[shape<C>::tiles][shape<C>::sets][4],
                                             const staged<C> &run, uint32_t half, float *slot,
                                             bool fresh)
{
    typedef shape<C> S;
    const unsigned lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    if (C == 1 && q >= 2) return;
#pragma unroll
    for (int s = 0; s < S::sets; s++) {
        float step = run.steps[C == 1 ? 0 : 4 * s + q];
        float low = C == 1 && q == 1 ? 65536 * step : step;
        float high = C == 1 && q == 1 ? 0 : 256 * step;
        float *to = slot + (4 * s + q) * PLANE + 36 * g + 16 * half;
#pragma unroll
        for (int i = 0; i < S::tiles; i += 2) {
            float v[4];
#pragma unroll
            for (int h = 0; h < 4; h++) {
                const int *c = acc[i + h / 2][s] + h % 2 * 2;
                v[h] = fmaf((float)c[1], high, (float)c[0] * low);
            }
            float4 *at = (float4 *)(to + 2 * i);
            float4 old = fresh ? make_float4(0, 0, 0, 0) : *at;
            *at = make_float4(old.x + v[0], old.y + v[1], old.z + v[2], old.w + v[3]);
        }
    }
}

template <int k, int L, int C>
static __device__ __forceinline__ void walk(const pl_limbs_job &j, const pl_place &p, pl_walk<k> at,
                                            staged<C> *all, float *slots)
{
    typedef shape<C> S;
    const uint32_t warp = threadIdx.x / 32, walker = warp / S::warps, half = warp % S::warps;
    const unsigned lane = threadIdx.x % 32, q = lane % 4;
    uint32_t u = at.u, part = at.part, r = at.r;
    const uint32_t end = at.end;
    pl_run<k> codes = at.codes;
    pl_words<k> next = at.next;
    staged<C> &run = all[walker];
    for (bool fresh = true, first = true; u < end; first = false) {
        uint32_t left = min(end - u, p.len - r), runs = (left + RUN - 1) / RUN;
        uint32_t len = (left + runs - 1) / runs;
        const lane_rows rows(j, r, len);
        float scale[8];
        rows.load(scale, j.w[part % j.matrices].scales, true);
        if (first) pl_wait_for_previous();
        sync_walker<C>(walker);
        round_run<C>(j, rows, scale, len, half, run);
        sync_walker<C>(walker);
        int acc[S::tiles][S::sets][4];
#pragma unroll
        for (int s = 0; s < S::sets; s++) {
            int even = -510 * run.sums[8 * s + 2 * q], odd = -510 * run.sums[8 * s + 2 * q + 1];
#pragma unroll
            for (int i = 0; i < S::tiles; i++) {
                acc[i][s][0] = acc[i][s][2] = even;
                acc[i][s][1] = acc[i][s][3] = odd;
            }
        }
        const uint32_t left_part = part, bits = codes.bits;
        const uint32_t *digits = run.digits;
        /* Two units a turn: what is loaded ahead for one is not moved for the other. */
        auto unit = [&](const pl_words<k> &code, pl_words<k> &ahead) {
            if (++r == p.len) {
                r = 0;
                codes = pl_run<k>(j, p, ++part, 0);
            } else {
                codes.step();
            }
            ahead = codes.load(++u < end);
            if constexpr (k != 0)
                multiply<k, L, C>(code.v, digits, half, acc);
            else
                multiply_any<L, C>(code.v, bits, digits, half, acc);
            digits += S::sets * UNIT_STRIDE;
        };
        for (uint32_t i = 0;; i += 2) {
            pl_words<k> other;
            unit(next, other);
            if (i + 1 == len) {
                next = other;
                break;
            }
            unit(other, next);
            if (i + 2 == len) break;
        }
        leave<C>(acc, run, half, slots + (left_part - p.part0 + walker) * S::slots::slot, fresh);
        fresh = part != left_part;
    }
}

template <int k, int L, int C>
static __global__ void __launch_bounds__(PL_LIMBS_THREADS, 1) product(pl_limbs_job j)
{
    extern __shared__ uint4 shared[];
    typedef shape<C> S;
    staged<C> *runs = (staged<C> *)shared;
    float *slots = (float *)(runs + S::walkers);
    static_assert(S::walkers * sizeof(staged<C>) >= PL_LIMBS_THREADS * sizeof(float4),
                  "what is walked leaves room to rotate in");
    const pl_place p = pl_place_of(j);
    pl_let_next_start();
    const pl_walk<k> start(j, p, threadIdx.x / 32 / S::warps, S::walkers);
    S::slots::clear(p, slots);
    const pl_factors<256> factors(j, p, S::walkers, slots + S::slots::size(p));
    walk<k, L, C>(j, p, start, runs, slots);
    pl_wait_for_previous(); /* walkers without work, too, before they write */
    __syncthreads();
    pl_finish(j, p, typename S::slots{slots}, factors, (float4 *)shared);
}

template <int k, int L> static pl_limbs_kernel *of_code(int C)
{
    return C == 1 ? product<k, L, 1> : C == 4 ? product<k, L, 4> : product<k, L, 8>;
}

pl_limbs_kernel *pl_limbs_axis0(uint32_t k, uint32_t L, int C)
{
    if (k == 0 && C == 1) return L == 12 ? product<0, 12, 1> : product<0, 16, 1>;
    if (k == 0 && C == 4) return L == 12 ? product<0, 12, 4> : product<0, 16, 4>;
#define OF_CODE(bits, state_bits)                                                                  \
    if (k == bits && L == state_bits) return of_code<bits, state_bits>(C);
    PL_EACH_CODE(OF_CODE)
#undef OF_CODE
    return NULL;
}

template <int C> static size_t shared(size_t parts)
{
    typedef shape<C> S;
    return S::walkers * sizeof(staged<C>) + (parts + S::walkers) * S::slots::slot * sizeof(float) +
           (parts + 1) * pl_factors<256>::floats * sizeof(float);
}

size_t pl_limbs_axis0_shared(int C, size_t parts)
{
    return C == 1 ? shared<1>(parts) : C == 4 ? shared<4>(parts) : shared<8>(parts);
}

int pl_limbs_axis0_walkers(int C)
{
    return C == 8 ? shape<8>::walkers : shape<1>::walkers;
}
