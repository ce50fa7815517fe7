/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two axes of trellis_limbs.h share: the division of work, the rounding of activations, and
 * the sum over warps and blocks.
 *
 * Work is a list of parts, each the units that add to one tile of outputs of one matrix: 16 outputs
 * on axis 1, 256 on axis 0. Parts of gate and up alternate. On axis 1 the inputs may be cut into
 * slices, each with its own blocks. The units of a slice are cut into equal runs over its blocks, a
 * block's run into equal runs over its walkers (a warp, or two that share a unit's positions). Every
 * walker leaves the sums of each part it meets in shared memory; a block adds them in order, and
 * hands what it cannot finish to the tile's owner, the block with the tile's last unit, which adds
 * them in the order of slices and blocks. An owner waits only for blocks that begin before it. */
#ifndef PL_CUDA_TRELLIS_LIMBS_CUH
#define PL_CUDA_TRELLIS_LIMBS_CUH

#include "codec/trellis.h"
#include "launch.cuh"
#include "trellis_decode.cuh"
#include "trellis_limbs.h"

enum { PL_LIMBS_THREADS = 512 };

typedef struct pl_limbs_matrix {
    const uint4 *codes;
    const float *scales, *output_scale, *bias;
    uint32_t k;
} pl_limbs_matrix;

typedef struct pl_limbs_job {
    pl_limbs_matrix w[2];
    uint32_t matrices; /* 2: gate and up */
    uint32_t M, in, out;
    const float *x;
    float *y;
    size_t x_stride, y_stride;
    uint32_t tiles, units; /* of outputs; of one tile in one matrix */
    uint32_t slices, blocks; /* blocks of each slice */
    uint32_t *exchange;
} pl_limbs_job;

/* One block's kernel of an axis, for a code and at most C rows of x (1, 4 or 8), and its shared
 * memory; `parts`: the most that a block meets. */
typedef void pl_limbs_kernel(pl_limbs_job);
pl_limbs_kernel *pl_limbs_axis0(uint32_t k, uint32_t L, int C);
pl_limbs_kernel *pl_limbs_axis1(uint32_t k, uint32_t L, int C);
size_t pl_limbs_axis0_shared(int C, size_t parts);
size_t pl_limbs_axis1_shared(int C, size_t parts, size_t units);
int pl_limbs_axis0_walkers(int C);

/* n things cut into equal runs. */
struct pl_cut {
    uint32_t n, runs;
    __host__ __device__ uint32_t start(uint32_t run) const { return n * run / runs; }
    __host__ __device__ uint32_t run_of(uint32_t i) const { return ((i + 1) * runs - 1) / n; }
};

/* ---- rounding -------------------------------------------------------------------------------- */

/* The step of numbers of which the largest has these bits, its inverse, for `digits` limbs. */
struct pl_step {
    float step, inverse;
};

template <int limbs>
static __device__ __forceinline__ pl_step pl_step_of(uint32_t largest)
{
    if (largest >= 0x7f800000) return {__uint_as_float(0x7fffffff), 0};
    if (largest < 27u << 23) return {0, 0}; /* 2^-100 */
    /* 1.005: the top limb's 127 must not be passed. */
    uint32_t e = __float_as_uint(__uint_as_float(largest) * 1.005f) >> 23;
    constexpr uint32_t bits = limbs == 3 ? 22 : 14;
    return {__uint_as_float((e - bits) << 23), __uint_as_float((254 + bits - e) << 23)};
}

static __device__ __forceinline__ uint32_t pl_magnitude(float v)
{
    return __float_as_uint(v) & 0x7fffffff;
}

/* Q: a / step, rounded to nearest even. Two limbs are within what adding 3 * 2^22 rounds. */
template <int limbs>
static __device__ __forceinline__ int pl_rounded(float a, float inverse)
{
    if (limbs == 3) return __float2int_rn(a * inverse);
    return __float_as_int(fmaf(a, inverse, 12582912.f)) - 0x4b400000;
}

/* What is left of Q above its lowest limb, the signed low byte. */
static __device__ __forceinline__ int pl_above(int Q)
{
    return (Q + 128) >> 8;
}

/* ---- integer tensor cores -------------------------------------------------------------------- */

/* c += A B, A 16 x 32 unsigned bytes, B 32 x 8 signed. */
static __device__ __forceinline__ void pl_mma(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                              uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* ---- sums over warps and blocks -------------------------------------------------------------- */

static __device__ __forceinline__ uint32_t pl_load_relaxed(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

static __device__ __forceinline__ void pl_store_relaxed(uint32_t *p, uint32_t v)
{
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

/* A sum on its way to another block: never 0, which says that it has not come. */
static __device__ __forceinline__ uint32_t pl_sent(float v)
{
    return v == v ? ~__float_as_uint(v) : 0x80000000;
}

/* One block's place in the work. */
struct pl_place {
    uint32_t slice, block;       /* the block's number within its slice */
    uint32_t first, len;         /* the slice's units of each part */
    pl_cut blocks;               /* the slice's units over its blocks */
    uint32_t begin, end;         /* this block's */
    uint32_t part0;              /* the part of `begin` */
};

/* Units of slice s of a part: their first, and the first after them. */
static __host__ __device__ __forceinline__ uint32_t pl_slice_at(const pl_limbs_job &j, uint32_t s)
{
    return j.units * s / j.slices;
}

static __device__ __forceinline__ pl_place pl_place_of(const pl_limbs_job &j)
{
    pl_place p;
    p.slice = blockIdx.x / j.blocks;
    p.block = blockIdx.x % j.blocks;
    p.first = pl_slice_at(j, p.slice);
    p.len = pl_slice_at(j, p.slice + 1) - p.first;
    p.blocks = {j.tiles * j.matrices * p.len, j.blocks};
    p.begin = p.blocks.start(p.block);
    p.end = p.blocks.start(p.block + 1);
    p.part0 = p.begin / p.len;
    return p;
}

/* Slots: [part - part0 + walker], each `slot` floats: the planes of the rows of x, one or two each,
 * which together are a row's sums. */
template <int outputs_, int plane_stride, int tokens, int planes, int walkers>
struct pl_slots {
    static constexpr int outputs = outputs_, slot = plane_stride * tokens * planes;
    const float *slots;

    /* Place of output e in a plane. */
    static __device__ __forceinline__ int at(int e)
    {
        return outputs == 256 ? e + e / 32 * 4 : e;
    }

    __device__ __forceinline__ float sum(const pl_place &p, uint32_t part, uint32_t m, int e) const
    {
        const pl_cut cut = {p.end - p.begin, walkers};
        const uint32_t from = part * p.len, to = from + p.len - 1;
        uint32_t w = from <= p.begin ? 0 : cut.run_of(from - p.begin);
        const uint32_t last = to >= p.end ? walkers - 1 : cut.run_of(to - p.begin);
        const float *s = slots + (part - p.part0 + w) * slot + m * planes * plane_stride + at(e);
        float v = 0;
#pragma unroll 4
        for (; w <= last; w++, s += slot) v += planes == 2 ? s[0] + s[plane_stride] : s[0];
        return v;
    }

    /* Walkers without work leave nothing: where there are some, what they would have left is zeros. */
    static __device__ __forceinline__ void clear(const pl_place &p, float *slots)
    {
        if (p.end - p.begin >= walkers) return;
        const uint32_t n = ((p.end - 1) / p.len - p.part0 + walkers) * slot;
        for (uint32_t i = threadIdx.x; i < n; i += PL_LIMBS_THREADS) slots[i] = 0;
        __syncthreads();
    }
};

template <int outputs>
static __device__ __forceinline__ uint32_t *pl_exchange_at(const pl_limbs_job &j, uint32_t slice,
                                                           uint32_t block, uint32_t part,
                                                           uint32_t m, int e)
{
    uint32_t slots = j.tiles * j.matrices + j.blocks; /* of a slice: each block begins a new one */
    return j.exchange + ((size_t)(slice * slots + part + block) * j.M + m) * outputs + e;
}

/* The sum of one part over all slices and blocks, by its owner, whose own share is `mine`. Loads of
 * several shares are on their way at once. */
template <int outputs>
static __device__ float pl_gather(const pl_limbs_job &j, const pl_place &p, float mine,
                                  uint32_t part, uint32_t m, int e)
{
    enum { AT_ONCE = 8 };
    float total = 0;
    uint32_t slice = 0, block = 0, last = 0;
    bool fresh = true;
    while (slice < j.slices) {
        uint32_t *at[AT_ONCE], v[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            at[i] = NULL;
            v[i] = ~0u; /* adds 0 */
            if (slice >= j.slices) continue;
            if (fresh) {
                uint32_t len = pl_slice_at(j, slice + 1) - pl_slice_at(j, slice);
                pl_cut cut = {j.tiles * j.matrices * len, j.blocks};
                block = cut.run_of(part * len);
                last = cut.run_of(part * len + len - 1);
            }
            if (slice == p.slice && block == p.block) {
                v[i] = pl_sent(mine);
            } else {
                at[i] = pl_exchange_at<outputs>(j, slice, block, part, m, e);
                v[i] = pl_load_relaxed(at[i]);
            }
            fresh = block++ == last;
            slice += fresh;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (at[i]) {
                while (!v[i]) v[i] = pl_load_relaxed(at[i]);
                pl_store_relaxed(at[i], 0);
            }
            total += __uint_as_float(~v[i]);
        }
    }
    return total;
}

/* Output number of place e of a tile: positions descend. */
template <int outputs>
static __device__ __forceinline__ uint32_t pl_output(uint32_t tile, int e)
{
    return tile * outputs + (outputs == 256 ? 255 - e : e);
}

template <int outputs>
static __device__ float pl_scaled(const pl_limbs_job &j, uint32_t g, uint32_t o, float v)
{
    const pl_limbs_matrix &w = j.w[g];
    if (outputs == 16) v *= w.scales[o];
    if (w.output_scale) v *= w.output_scale[o];
    return w.bias ? v + w.bias[o] : v;
}

/* After the block's slots are filled and visible to its threads: y. A warp takes 32 sums of a part
 * at a time. */
template <class slots>
static __device__ void pl_finish(const pl_limbs_job &j, const pl_place &p, const slots &own)
{
    constexpr int outputs = slots::outputs;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = PL_LIMBS_THREADS / 32;
    const uint32_t G = j.matrices, of_tile = G * p.len, sums = j.M * outputs, chunks = (sums + 31) / 32;
    const bool last_slice = p.slice == j.slices - 1;
    const uint32_t parts = (p.end - 1) / p.len + 1 - p.part0;
    const uint32_t owned_end = last_slice ? p.end / of_tile * G : 0; /* parts */
    for (uint32_t i = warp; i < parts * chunks; i += warps) {
        uint32_t part = p.part0 + i / chunks, of_part = i % chunks * 32 + lane;
        uint32_t m = of_part / outputs, e = of_part % outputs;
        if (part < owned_end || of_part >= sums || pl_output<outputs>(part / G, e) >= j.out)
            continue;
        pl_store_relaxed(pl_exchange_at<outputs>(j, p.slice, p.block, part, m, e),
                         pl_sent(own.sum(p, part, m, e)));
    }
    if (!last_slice) return;
    const uint32_t tile0 = p.begin / of_tile, tiles = p.end / of_tile - tile0;
    for (uint32_t i = warp; i < tiles * chunks; i += warps) {
        uint32_t tile = tile0 + i / chunks, of_part = i % chunks * 32 + lane;
        uint32_t m = of_part / outputs, e = of_part % outputs, o = pl_output<outputs>(tile, e);
        if (of_part >= sums || o >= j.out) continue;
        float v[2];
        for (uint32_t g = 0; g < G; g++) {
            uint32_t part = tile * G + g;
            bool met = (part + 1) * p.len > p.begin; /* gate may end before this block begins */
            float sum = met ? own.sum(p, part, m, e) : 0;
            bool alone = j.slices == 1 && part * p.len >= p.begin;
            v[g] = pl_scaled<outputs>(j, g, o,
                                      alone ? sum : pl_gather<outputs>(j, p, sum, part, m, e));
        }
        j.y[m * j.y_stride + o] = G == 2 ? v[0] / (1 + expf(-v[0])) * v[1] : v[0];
    }
}

#endif
