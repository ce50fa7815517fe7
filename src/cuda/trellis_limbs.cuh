/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two axes of trellis_limbs.h share: the division of work, the rounding of activations,
 * and the sum over warps and blocks.
 *
 * Work is a list of parts, each the units that add to one tile of outputs of one matrix: 16 outputs
 * on axis 1, 256 on axis 0. Parts of gate and up alternate. On axis 1 the inputs may be cut into
 * slices, each with its own blocks. The units of a slice are cut into equal runs over its blocks, a
 * block's run into equal runs over its walkers (a warp, or two that share a unit's positions).
 * Every walker leaves the sums of each part it meets in shared memory; a block adds them in order,
 * and hands what it cannot finish to the tile's owner, the block with the tile's last unit, which
 * adds them in the order of slices and blocks. An owner waits only for blocks that begin before it.
 */
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
    float *y;
    size_t y_stride;
    uint32_t k, out;
} pl_limbs_matrix;

typedef struct pl_limbs_job {
    pl_limbs_matrix w[PL_CUDA_LIMBS_GROUP]; /* all of the same shape */
    uint32_t matrices;
    bool swiglu; /* two: gate, which has y, and up */
    uint32_t rotation;  /* block of the rotation of y after swiglu, axis 0 alone; 0: none */
    const float *signs; /* its [out], or NULL */
    uint32_t M, in;
    const float *x;
    size_t x_stride;
    uint32_t tiles, units;   /* of outputs; of one tile in one matrix */
    uint32_t slices, blocks; /* blocks of each slice */
    uint32_t *exchange;
} pl_limbs_job;

/* One block's kernel of an axis, for a code and at most C rows of x (1, 4 or 8), and its shared
 * memory; `parts`: the most that a block meets. */
typedef void pl_limbs_kernel(pl_limbs_job);
/* k = 0: gate and up of different k, C = 1 and 4 alone. NULL where there is none. */
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

template <int limbs> static __device__ __forceinline__ pl_step pl_step_of(uint32_t largest)
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
template <int limbs> static __device__ __forceinline__ int pl_rounded(float a, float inverse)
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

/* ---- a block's place --------------------------------------------------------------------------
 */

/* One block's place in the work. */
struct pl_place {
    uint32_t slice, block; /* the block's number within its slice */
    uint32_t first, len;   /* the slice's units of each part */
    pl_cut blocks;         /* the slice's units over its blocks */
    uint32_t begin, end;   /* this block's */
    uint32_t part0;        /* the part of `begin` */
};

/* First unit of slice s of a part: the first ones are longer by one where they cannot be equal. */
static __device__ __forceinline__ uint32_t pl_slice_at(const pl_limbs_job &j, uint32_t s)
{
    return j.units / j.slices * s + min(s, j.units % j.slices);
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

/* ---- codes ----------------------------------------------------------------------------------- */

/* A lane's words of one unit. k = 0: of gate and up in turn, where their k differ; `bits` says
 * which, and is k otherwise. */
template <int k> struct pl_words {
    uint4 v[k ? k : 4];
};

template <int k>
static __device__ __forceinline__ pl_words<k> pl_load_words(const uint4 *p, uint32_t bits,
                                                            bool wanted)
{
    pl_words<k> w;
#pragma unroll
    for (int i = 0; i < (k ? k : 4); i++)
        w.v[i] = pl_load_codes(p + 32 * i, wanted && (k || i < bits));
    return w;
}

template <int k>
static __device__ __forceinline__ void pl_unpack(uint32_t (&words)[4 * k], const uint4 *v)
{
#pragma unroll
    for (int i = 0; i < k; i++) {
        words[4 * i] = v[i].x;
        words[4 * i + 1] = v[i].y;
        words[4 * i + 2] = v[i].z;
        words[4 * i + 3] = v[i].w;
    }
}

/* Where the units of a part begin, and their k. */
template <int k> struct pl_run {
    const uint4 *codes;
    uint32_t bits;
    /* From unit r of the part's slice on. */
    __device__ __forceinline__ pl_run(const pl_limbs_job &j, const pl_place &p, uint32_t part,
                                      uint32_t r)
    {
        const pl_limbs_matrix &w = j.w[part % j.matrices];
        bits = k ? k : w.k;
        codes = w.codes + ((size_t)(part / j.matrices) * j.units + p.first + r) * 32 * bits +
                threadIdx.x % 32;
    }
    __device__ __forceinline__ pl_words<k> load(bool wanted) const
    {
        return pl_load_words<k>(codes, bits, wanted);
    }
    __device__ __forceinline__ void step() { codes += 32 * bits; }
};

/* Where a walker is, and the words of its first unit, which are on their way before anything else.
 */
template <int k> struct pl_walk {
    uint32_t u, end; /* of its units */
    uint32_t part, r;
    pl_run<k> codes;
    pl_words<k> next;
    __device__ __forceinline__ pl_walk(const pl_limbs_job &j, const pl_place &p, uint32_t walker,
                                       uint32_t walkers)
        : u(p.begin + pl_cut{p.end - p.begin, walkers}.start(walker)),
          end(p.begin + pl_cut{p.end - p.begin, walkers}.start(walker + 1)), part(u / p.len),
          r(u - part * p.len), codes(j, p, part, r), next(codes.load(u < end))
    {
    }
};

/* ---- sums over warps and blocks ---------------------------------------------------------------
 */

static __device__ __forceinline__ uint4 pl_load_relaxed(const uint32_t *p)
{
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

static __device__ __forceinline__ void pl_store_relaxed(uint32_t *p, uint4 v)
{
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x),
                 "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/* A sum on its way to another block: never 0, which says that it has not come. */
static __device__ __forceinline__ uint32_t pl_sent(float v)
{
    return v == v ? ~__float_as_uint(v) : 0x80000000;
}

static __device__ __forceinline__ uint4 pl_sent(float4 v)
{
    return make_uint4(pl_sent(v.x), pl_sent(v.y), pl_sent(v.z), pl_sent(v.w));
}

static __device__ __forceinline__ bool pl_came(uint4 v)
{
    return v.x && v.y && v.z && v.w;
}

static __device__ __forceinline__ void pl_add(float4 &sum, float4 v)
{
    sum.x += v.x;
    sum.y += v.y;
    sum.z += v.z;
    sum.w += v.w;
}

/* What finishing a part takes, worked out while there is time: the walkers that met it, and the
 * blocks that did, of the short slices and of the long ones. */
struct pl_part {
    uint32_t walker, last_walker, block[2], last_block[2];
};

static __device__ __forceinline__ void pl_list_parts(const pl_limbs_job &j, const pl_place &p,
                                                     uint32_t part0, uint32_t walkers,
                                                     pl_part *parts)
{
    const uint32_t n = (p.end - 1) / p.len + 1 - part0;
    const pl_cut cut = {p.end - p.begin, walkers};
    for (uint32_t i = threadIdx.x; i < n; i += PL_LIMBS_THREADS) {
        const uint32_t part = part0 + i, from = part * p.len, to = from + p.len - 1;
        parts[i].walker = from <= p.begin ? 0 : cut.run_of(from - p.begin);
        parts[i].last_walker = to >= p.end    ? walkers - 1
                               : to < p.begin ? 0
                                              : cut.run_of(to - p.begin);
        for (uint32_t longer = 0; longer < 2; longer++) {
            const uint32_t len = j.units / j.slices + longer;
            const pl_cut blocks = {j.tiles * j.matrices * len, j.blocks};
            parts[i].block[longer] = blocks.run_of(part * len);
            parts[i].last_block[longer] = blocks.run_of(part * len + len - 1);
        }
    }
}

/* Slots: [part - part0 + walker], each `slot` floats: the planes of the rows of x, one or two each,
 * which together are a row's sums. */
template <int outputs_, int plane_stride, int tokens, int planes, int walkers> struct pl_slots {
    static constexpr int outputs = outputs_, rows = tokens, slot = plane_stride * tokens * planes;
    const float *slots;

    /* Place of output e in a plane. */
    static __device__ __forceinline__ int at(int e) { return outputs == 256 ? e + e / 32 * 4 : e; }

    /* Of outputs e .. e + 3 of row m of x; `part` from the block's first on. */
    __device__ __forceinline__ float4 sum(const pl_part &of, uint32_t part, uint32_t m, int e) const
    {
        const float *s = slots + (part + of.walker) * slot + m * planes * plane_stride + at(e);
        float4 v = make_float4(0, 0, 0, 0);
#pragma unroll 2
        for (uint32_t w = of.walker; w <= of.last_walker; w++, s += slot) {
            float4 a = *(const float4 *)s;
            if (planes == 2) pl_add(a, *(const float4 *)(s + plane_stride));
            pl_add(v, a);
        }
        return v;
    }

    /* Floats of a block's slots. */
    static __device__ __forceinline__ uint32_t size(const pl_place &p)
    {
        return ((p.end - 1) / p.len + 1 - p.part0 + walkers) * slot;
    }

    /* Walkers without work leave nothing: where there are some, what they would have left is zeros.
     */
    static __device__ __forceinline__ void clear(const pl_place &p, float *slots)
    {
        if (p.end - p.begin >= walkers) return;
        for (uint32_t i = threadIdx.x; i < size(p); i += PL_LIMBS_THREADS) slots[i] = 0;
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

/* Four sums of one part over all slices and blocks, by its owner: the others' in order, then its
 * own, `mine`, if it `met` the part: that is the last one. Loads of several are on their way at
 * once. */
template <int outputs>
static __device__ __forceinline__ float4 pl_gather(const pl_limbs_job &j, const pl_part &of,
                                                   bool met, float4 mine, uint32_t part, uint32_t m,
                                                   int e)
{
    enum { AT_ONCE = 4 };
    float4 total = make_float4(0, 0, 0, 0);
    uint32_t slice = ~0u, left = 0;
    uint32_t *next = NULL;
    bool more = true;
#pragma unroll 1
    while (more) {
        uint32_t *at[AT_ONCE];
        uint4 v[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (more && left == 0) {
                if (++slice < j.slices) {
                    const int longer = slice < j.units % j.slices;
                    left = of.last_block[longer] - of.block[longer] + 1;
                    next = pl_exchange_at<outputs>(j, slice, of.block[longer], part, m, e);
                } else {
                    more = false;
                }
            }
            if (met && left == 1 && slice + 1 == j.slices) more = false;
            at[i] = more ? next : NULL;
            if (!more) continue;
            v[i] = pl_load_relaxed(next);
            next += j.M * outputs;
            left--;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (!at[i]) continue;
            while (!pl_came(v[i])) v[i] = pl_load_relaxed(at[i]);
            pl_store_relaxed(at[i], make_uint4(0, 0, 0, 0));
            pl_add(total, make_float4(__uint_as_float(~v[i].x), __uint_as_float(~v[i].y),
                                      __uint_as_float(~v[i].z), __uint_as_float(~v[i].w)));
        }
    }
    pl_add(total, mine);
    return total;
}

/* Output number of place e of a tile: positions descend. */
template <int outputs> static __device__ __forceinline__ uint32_t pl_output(uint32_t tile, int e)
{
    return tile * outputs + (outputs == 256 ? 255 - e : e);
}

/* What finishing takes beside the sums, fetched while there is time: of each part from the first of
 * the block's first tile on its walkers and blocks, of each output what its sum is multiplied by,
 * and what is added then. */
template <int outputs> struct pl_factors {
    static constexpr int floats = 2 * outputs + sizeof(pl_part) / sizeof(float); /* of a part */
    uint32_t part0;
    pl_part *parts;
    float *factor, *bias;

    __device__ __forceinline__ pl_factors(const pl_limbs_job &j, const pl_place &p,
                                          uint32_t walkers, float *at)
    {
        part0 = j.swiglu ? p.part0 / 2 * 2 : p.part0;
        const uint32_t n = ((p.end - 1) / p.len + 1 - part0) * outputs;
        factor = at;
        bias = at + n;
        parts = (pl_part *)(bias + n);
        pl_list_parts(j, p, part0, walkers, parts);
        for (uint32_t i = threadIdx.x; i < n; i += PL_LIMBS_THREADS) {
            const uint32_t part = part0 + i / outputs, tile = part / j.matrices;
            const uint32_t o = pl_output<outputs>(tile, i % outputs);
            const pl_limbs_matrix &w = j.w[part % j.matrices];
            float v = o < w.out && w.output_scale ? w.output_scale[o] : 1;
            if (outputs == 16) v *= w.scales[o];
            float b = o < w.out && w.bias ? w.bias[o] : 0;
            if (outputs == 256 && j.signs && o < w.out && part % 2) { /* up's */
                v *= j.signs[o];
                b *= j.signs[o];
            }
            factor[i] = v;
            bias[i] = b;
        }
    }
    __device__ __forceinline__ float4 apply(uint32_t part, int e, float4 v) const
    {
        const uint32_t i = (part - part0) * outputs + e;
        const float4 f = *(const float4 *)(factor + i), b = *(const float4 *)(bias + i);
        return make_float4(fmaf(v.x, f.x, b.x), fmaf(v.y, f.y, b.y), fmaf(v.z, f.z, b.z),
                           fmaf(v.w, f.w, b.w));
    }
};

static __device__ __forceinline__ float pl_silu_times(float gate, float up)
{
    return gate / (1 + expf(-gate)) * up;
}

/* Of a tile of 256 outputs, by the two warps that have it: place e of a thread's four is 4 * (its
 * number in the two) on. Output numbers descend as places ascend, so that a pair's first is the one
 * whose place has the stride's bit. */
static __device__ __forceinline__ float4 pl_rotate_tile(float4 v, uint32_t block, float4 *spare)
{
    float own[4] = {v.x, v.y, v.z, v.w};
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (int stride = 1; stride < 4; stride *= 2) {
        if (stride >= block) break;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (!(i & stride)) {
                float a = own[i + stride], b = own[i];
                own[i + stride] = a + b;
                own[i] = a - b;
            }
    }
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
        if (lanes * 4 >= block) break;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float other = __shfl_xor_sync(~0u, own[i], lanes);
            own[i] = lane & lanes ? own[i] + other : other - own[i];
        }
    }
    if (block == 256) {
        const unsigned barrier = threadIdx.x / 64 + 1;
        spare[threadIdx.x] = make_float4(own[0], own[1], own[2], own[3]);
        asm volatile("bar.sync %0, 64;" ::"r"(barrier) : "memory");
        const float4 other = spare[threadIdx.x ^ 32];
        asm volatile("bar.sync %0, 64;" ::"r"(barrier) : "memory"); /* before the next is there */
        const bool first = threadIdx.x & 32;
        own[0] = first ? own[0] + other.x : other.x - own[0];
        own[1] = first ? own[1] + other.y : other.y - own[1];
        own[2] = first ? own[2] + other.z : other.z - own[2];
        own[3] = first ? own[3] + other.w : other.w - own[3];
    }
    const float factor = 1.0f / sqrtf((float)block);
    return make_float4(own[0] * factor, own[1] * factor, own[2] * factor, own[3] * factor);
}

/* Four outputs from place e of a tile on. */
template <int outputs>
static __device__ __forceinline__ void pl_write(const pl_limbs_matrix &w, uint32_t tile,
                                                uint32_t m, int e, float4 v)
{
    const uint32_t first = pl_output<outputs>(tile, e),
                   last = outputs == 256 ? first - 3 : first + 3;
    float *y = w.y + m * w.y_stride;
    const uint32_t step = outputs == 256 ? ~0u : 1;
    if (first < w.out) y[first] = v.x;
    if (first + step < w.out) y[first + step] = v.y;
    if (last - step < w.out) y[last - step] = v.z;
    if (last < w.out) y[last] = v.w;
}

/* After the block's slots are filled and visible to its threads: y. A thread takes four sums of a
 * part at a time. spare: a place for each thread, on axis 0. */
template <class slots>
static __device__ __forceinline__ void pl_finish(const pl_limbs_job &j, const pl_place &p,
                                                 const slots &own,
                                                 const pl_factors<slots::outputs> &factors,
                                                 float4 *spare)
{
    constexpr int outputs = slots::outputs, quads = outputs / 4;
    /* Parts that one thread finishes together. */
    const uint32_t G = j.swiglu ? 2 : 1, of_tile = G * p.len;
    const bool last_slice = p.slice == j.slices - 1;
    const uint32_t parts = (p.end - 1) / p.len + 1 - p.part0;
    const uint32_t tile0 = p.begin / of_tile, owned = last_slice ? p.end / of_tile : 0; /* tiles */
    float4 gate = make_float4(0, 0, 0, 0);
    /* Those that others wait for go first. */
    const uint32_t sent0 = owned * G > p.part0 ? owned * G - p.part0 : 0;
    const uint32_t n = (slots::rows == 1 ? 1 : j.M) * quads;
#pragma unroll 1
    for (uint32_t i = sent0 * n + threadIdx.x; i < parts * n; i += PL_LIMBS_THREADS) {
        const uint32_t at = i / n, part = p.part0 + at, m = i % n / quads;
        const int e = i % quads * 4;
        pl_store_relaxed(pl_exchange_at<outputs>(j, p.slice, p.block, part, m, e),
                         pl_sent(own.sum(factors.parts[part - factors.part0], at, m, e)));
    }
#pragma unroll 1
    for (uint32_t i = threadIdx.x; owned > tile0 && i < (owned - tile0) * n;
         i += PL_LIMBS_THREADS) {
        const uint32_t tile = tile0 + i / n, m = i % n / quads;
        const int e = i % quads * 4;
#pragma unroll 1
        for (uint32_t part = tile * G; part < tile * G + G; part++) {
            const pl_part &of = factors.parts[part - factors.part0];
            const bool met = part >= p.part0; /* gate may end before this block begins */
            const bool alone = j.slices == 1 && of.block[0] == p.block;
            float4 v = met ? own.sum(of, part - p.part0, m, e) : make_float4(0, 0, 0, 0);
            if (!alone) v = pl_gather<outputs>(j, of, met, v, part, m, e);
            v = factors.apply(part, e, v);
            if (part + 1 < tile * G + G)
                gate = v;
            else if (G == 2)
                v = make_float4(pl_silu_times(gate.x, v.x), pl_silu_times(gate.y, v.y),
                                pl_silu_times(gate.z, v.z), pl_silu_times(gate.w, v.w));
            if (outputs == 256 && j.rotation && part % 2) v = pl_rotate_tile(v, j.rotation, spare);
            if (part + 1 == tile * G + G)
                pl_write<outputs>(j.w[G == 2 ? 0 : part % j.matrices], part / j.matrices, m, e, v);
        }
    }
}

#endif
