/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two kernels of trellis_half share, and trellis_tiles in part: how the activations are
 * laid out for them, how codes become fp16 fragments, how the work is cut over the blocks of a
 * launch, and what is done to a sum.
 *
 * Activations of one tile of N tokens lie as [K / 16 steps][N / 8][2 halves][8 tokens][8 k], fp16:
 * core matrices of wgmma. The order of k inside is that in which a lane finds its codes (lane =
 * 4 g + q has elements 2q, 2q + 1 of both halves):
 *
 *   axis 1   element kk of half h of step s of a block of 256 inputs: 4 codes of quarter kk / 2,
 *            input 255 - (64 (kk / 2) + 4 s + 2 h + kk % 2)
 *   axis 0   element kk of half h of a unit of 16 stored rows: row 8 h + kk / 2 + 4 (kk % 2)
 *
 * and for trellis_tiles, whose lanes store eight codes in a row: on axis 1 step 4 s + q of a block
 * of 256 inputs is inputs 64 q + 16 s and the 15 that follow, on axis 0 they come as they are. */
#ifndef PL_CUDA_TRELLIS_HALF_CUH
#define PL_CUDA_TRELLIS_HALF_CUH

#include <cuda_fp16.h>

#include "launch.cuh"
#include "trellis_decode.cuh"
#include "trellis_half.h"

/* Outputs of a tile, k of one piece of work: what a sum over k is cut into. */
enum { HALF_OUTPUTS = 256, HALF_K = 128, HALF_STEPS = HALF_K / 16, HALF_TOKENS = 128 };

/* One tile of up to HALF_TOKENS tokens. */
typedef struct half_job {
    const uint32_t *codes;
    const float *scales; /* of the outputs; NULL for axis 0 */
    const __half *image;
    const float *sums, *unscales; /* [M]: sum of a token's fp16 numbers, 2^-e */
    float *y;
    size_t y_stride;
    const float *output_scale, *bias;
    float *partials;
    unsigned *flags;
    int M, out;
    int tiles;     /* of HALF_OUTPUTS outputs */
    int pieces;    /* of HALF_K, in a tile */
    int unit_rows; /* axis 1: rows of units, outputs / 16; axis 0: of a block, inputs / 16 */
    int blocks;    /* axis 1: of 256, in a row */
    bool aligned;  /* rows of y, to 16 bytes */
} half_job;

/* What activations are laid out from, and to. */
typedef struct half_inputs {
    const float *x, *scales; /* scales of the inputs: axis 0 */
    size_t x_stride;
    __half *image;
    float *sums, *unscales;
    unsigned *flags;
    int M, in, steps, n_flags; /* flags are made 0 */
    int tokens, rest; /* of a tile, and of the last one, counted up */
} half_inputs;

/* runs: in trellis_tiles' order of k. */
void half_lay_out(const pl_cuda *d, unsigned axis, bool runs, const half_inputs &p);

/* The kernels for Hopper and for others (tokens: 8, 16, 32, 64 or 128, of which job.M count), and
 * their set-up. */
void half_wgmma_run(const pl_cuda *d, const pl_cuda_trellis *w, const half_job &job, int tokens);
void half_mma_run(const pl_cuda *d, const pl_cuda_trellis *w, const half_job &job, int tokens);
pleach_status half_wgmma_prepare(pleach_error *err);
pleach_status half_mma_prepare(pleach_error *err);

/* Their instances, [bits - 2][L / 16][axis][log2(tokens) - 3], of instance<bits, L, axis, tokens>. */
typedef struct half_entry {
    void (*launch)(const pl_cuda *d, const half_job &job, int blocks);
    cudaError_t (*prepare)();
} half_entry;

typedef half_entry half_table[3][2][2][5];

#define HALF_ENTRY(of, k, L, axis, n) {of<k, L, axis, n>::launch, of<k, L, axis, n>::prepare}
#define HALF_ENTRIES(tokens)                                                                       \
    {{{tokens(2, 12, 0), tokens(2, 12, 1)}, {tokens(2, 16, 0), tokens(2, 16, 1)}},                 \
     {{tokens(3, 12, 0), tokens(3, 12, 1)}, {tokens(3, 16, 0), tokens(3, 16, 1)}},                 \
     {{tokens(4, 12, 0), tokens(4, 12, 1)}, {tokens(4, 16, 0), tokens(4, 16, 1)}}}

static inline pleach_status half_prepare_all(const half_table &entries, pleach_error *err)
{
    for (int i = 0; i < 3 * 2 * 2 * 5; i++)
        PL_TRY(pl_cuda_check(entries[i / 20][i / 10 % 2][i / 5 % 2][i % 5].prepare(),
                             "preparing the fp16 products", err));
    return PLEACH_OK;
}

/* ---- work: pieces in order of (tile, k), cut evenly over the blocks -------------------------- */

static inline int half_blocks(const pl_cuda *d, int pieces)
{
    return pieces < d->sms ? pieces : d->sms;
}

static inline void half_launch(const half_table &entries, const pl_cuda *d,
                               const pl_cuda_trellis *w, const half_job &job, int tokens)
{
    int size = 0;
    while (8 << size < tokens) size++;
    entries[w->shape.bits - 2][w->shape.state_bits / 16][w->shape.axis][size].launch(
        d, job, half_blocks(d, job.tiles * job.pieces));
}

/* The first piece of block `b` of n; block of a piece. */
static __device__ __forceinline__ int half_begin(unsigned b, unsigned pieces, unsigned n)
{
    return (int)(b * pieces / n);
}

static __device__ __forceinline__ int half_block_of(unsigned piece, unsigned pieces, unsigned n)
{
    return (int)(((piece + 1u) * n - 1) / pieces);
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* fp16 bits of 1024 + (the four bytes' sum): 1534 + code, of the state of position j of a run of n
 * words. */
template <int BITS, int L, int n>
static __device__ __forceinline__ uint32_t half_value(const uint32_t *run, int j)
{
    return __dp4a(pl_x<BITS, L, n, false>(run, j), 0x01010101u, 0x6400u);
}

/* Two of them in a register, joined by the pipe of shifts and logic or by the multiplier's. */
static __device__ __forceinline__ uint32_t half_pair(uint32_t lo, uint32_t hi, bool multiply)
{
    return multiply ? hi * 65536u + lo : __byte_perm(lo, hi, 0x5410);
}

/* Axis 1. A lane's words of the units of TILES tiles of 64 outputs, as they lie: quarter q of the
 * blocks of rows g and g + 8. */
template <int TILES, int BITS> struct half_units {
    uint32_t w[TILES][4 * BITS];
    __device__ __forceinline__ void load(const half_job &job, int row, int block, int lane)
    {
#pragma unroll
        for (int t = 0; t < TILES; t++, row += 4) {
            if (row >= job.unit_rows) {
#pragma unroll
                for (int i = 0; i < 4 * BITS; i++) w[t][i] = 0;
                continue;
            }
            const uint4 *p = reinterpret_cast<const uint4 *>(job.codes) +
                             ((size_t)row * job.blocks + block) * (BITS * 32) + lane;
#pragma unroll
            for (int v = 0; v < BITS; v++) {
                uint4 x = __ldcs(p + 32 * v);
                w[t][4 * v] = x.x, w[t][4 * v + 1] = x.y;
                w[t][4 * v + 2] = x.z, w[t][4 * v + 3] = x.w;
            }
        }
    }
};

/* The same with the first words of the next quarters, and the fragment of a step of k. */
template <int TILES, int BITS, int L> struct half_quarters {
    uint32_t low[TILES][2 * BITS + 1], high[TILES][2 * BITS + 1];
    __device__ __forceinline__ void take(const half_units<TILES, BITS> &u, int neighbour)
    {
#pragma unroll
        for (int t = 0; t < TILES; t++) {
#pragma unroll
            for (int i = 0; i < 2 * BITS; i++)
                low[t][i] = u.w[t][i], high[t][i] = u.w[t][2 * BITS + i];
            low[t][2 * BITS] = __shfl_sync(~0u, low[t][0], neighbour);
            high[t][2 * BITS] = __shfl_sync(~0u, high[t][0], neighbour);
        }
    }
    __device__ __forceinline__ void fragment(uint32_t (&a)[4], int t, int step) const
    {
        constexpr int n = 2 * BITS;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int j = 4 * step + 2 * h;
            a[2 * h] = half_pair(half_value<BITS, L, n>(low[t], j),
                                 half_value<BITS, L, n>(low[t], j + 1), h);
            a[2 * h + 1] = half_pair(half_value<BITS, L, n>(high[t], j),
                                     half_value<BITS, L, n>(high[t], j + 1), h);
        }
    }
};

/* Axis 0. A lane decodes a run of RUN positions of four stored rows of a unit: where their words
 * are, and by how much the run begins inside the first. RUN = 8: all of a run (half_output); RUN =
 * 4: half `part` of it. */
template <int BITS, int L, int RUN> struct half_runs {
    uint32_t here[4], there[4]; /* bytes into the unit */
    uint32_t shift;
    __device__ __forceinline__ half_runs(int part)
    {
        int lane = threadIdx.x % 32, w = threadIdx.x / 32 % 4, q = lane % 4;
        int position = 64 * w + 8 * (lane / 4) + RUN % 8 * part;
        int eighth = position / 32, bit = BITS * (position % 32), word = bit / 32;
        shift = bit % 32;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            int a = BITS * r + word, e = eighth, b = a + 1;
            here[r] = a / 4 * 512 + (4 * e + q) * 16 + a % 4 * 4;
            if (word + 1 == BITS) b = BITS * r, e = (eighth + 1) % 8;
            there[r] = b / 4 * 512 + (4 * e + q) * 16 + b % 4 * 4;
        }
    }
    __device__ __forceinline__ void load_shared(uint32_t (&words)[4][2], uint32_t unit) const
    {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(words[r][0]) : "r"(unit + here[r]));
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(words[r][1]) : "r"(unit + there[r]));
        }
    }
    __device__ __forceinline__ void load(uint32_t (&words)[4][2], const char *unit,
                                         bool inside) const
    {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            words[r][0] = inside ? __ldg(reinterpret_cast<const uint32_t *>(unit + here[r])) : 0;
            words[r][1] = inside ? __ldg(reinterpret_cast<const uint32_t *>(unit + there[r])) : 0;
        }
    }
    __device__ __forceinline__ void align(uint32_t (&run)[4][2],
                                          const uint32_t (&words)[4][2]) const
    {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            run[r][0] = __funnelshift_r(words[r][0], words[r][1], shift);
            run[r][1] = words[r][1] >> shift;
        }
    }
    /* Of the tile with positions 2 t and 2 t + 1 of the run. */
    static __device__ __forceinline__ void fragment(uint32_t (&a)[4], const uint32_t (&run)[4][2],
                                                    int t)
    {
#pragma unroll
        for (int r = 0; r < 4; r++) { /* r / 2: half of k; r % 2: upper rows of the fragment */
            int j = 2 * t + r % 2;
            a[r] = half_pair(half_value<BITS, L, 1>(run[r / 2 * 2], j),
                             half_value<BITS, L, 1>(run[r / 2 * 2 + 1], j), r % 2);
        }
    }
};

/* 16 outputs by 8 tokens, one warp: a and d as in a warp's quarter of wgmma. */
static __device__ __forceinline__ void half_mma(float *d, const uint32_t (&a)[4], uint32_t b0,
                                                uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* Output of row `row` (0..15: lane's g, or g + 8) of warp w's part of m64 tile t of a tile of 256.
 * Axis 0: lane's g and w choose a run of 8 positions, t and the upper half of the row two of them.
 */
template <int AXIS>
static __host__ __device__ __forceinline__ int half_output(int t, int w, int row)
{
    int g = row % 8, upper = row / 8;
    if (AXIS == 1) return 64 * t + 16 * w + row;
    return 255 - (64 * w + 8 * g + 2 * t + upper);
}

/* ---- sums over blocks of a launch ------------------------------------------------------------
 *
 * A tile's sums, or a block's part of them, go to scratch as [N tokens][256 outputs] and are read
 * again to be added and given out, outputs side by side. A block has two such slots: for a tile
 * that it does not begin, and for those that it begins. WORKERS threads, whose warpgroups have OWN
 * m64 tiles each in the order of wgmma's (and mma's) accumulators. */

template <int THREADS> static __device__ __forceinline__ void half_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

template <int N> static __device__ __forceinline__ float *half_slot(const half_job &job, int i)
{
    return job.partials + (size_t)i * (N * HALF_OUTPUTS);
}

/* Axis 0: sums of tile t and t + 1, rows g and g + 8, are those of neighbouring outputs. */
template <class S, int AXIS, int N>
static __device__ __forceinline__ void half_keep(float *slot, const float (&sums)[S::OWN][N / 2])
{
    int thread = threadIdx.x, w = thread / 32 % 4, g = thread % 32 / 4, q = thread % 4;
    int t = thread / 128 * S::OWN;
#pragma unroll
    for (int i = 0; i < N / 2; i += 4)
#pragma unroll
        for (int m = 0; m < 2; m++) {
            float *to = slot + (2 * i + 2 * q + m) * HALF_OUTPUTS;
            if (AXIS == 1) {
#pragma unroll
                for (int o = 0; o < S::OWN; o++) {
                    __stcg(to + half_output<1>(t + o, w, g), sums[o][i + m]);
                    __stcg(to + half_output<1>(t + o, w, g + 8), sums[o][i + m + 2]);
                }
            } else if (S::OWN == 1) {
                __stcg(reinterpret_cast<float2 *>(to + half_output<0>(t, w, g + 8)),
                       make_float2(sums[0][i + m + 2], sums[0][i + m]));
            } else {
                __stcg(reinterpret_cast<float4 *>(to + half_output<0>(t + 1, w, g + 8)),
                       make_float4(sums[S::OWN - 1][i + m + 2], sums[S::OWN - 1][i + m],
                                   sums[0][i + m + 2], sums[0][i + m]));
            }
        }
}

/* sum over (1534 + code) a -> the results of four outputs of a token. */
static __device__ __forceinline__ void half_store(const half_job &job, int o, int m, float4 v)
{
    float sum = -1534.0f * job.sums[m], unscale = job.unscales[m], y[4] = {v.x, v.y, v.z, v.w};
    float *to = job.y + (size_t)m * job.y_stride + o;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (o + i >= job.out) continue;
        float factor = 1.0f / 147.800537109375f;
        if (job.scales) factor *= job.scales[o + i];
        if (job.output_scale) factor *= job.output_scale[o + i];
        y[i] = (y[i] + sum) * factor * unscale;
        if (job.bias) y[i] += job.bias[o + i];
    }
    if (job.aligned && o + 4 <= job.out) {
        *reinterpret_cast<float4 *>(to) = make_float4(y[0], y[1], y[2], y[3]);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (o + i < job.out) to[i] = y[i];
    }
}

/* A tile that several blocks work on, and the part of it that this one adds up: items of 4 sums. */
struct half_share {
    int tile, first, count; /* blocks */
    int from, items;
};

static __device__ __forceinline__ half_share half_share_of(const half_job &job, int tile, bool any)
{
    unsigned all = job.tiles * job.pieces, n = gridDim.x, items = HALF_OUTPUTS / 4 * job.M;
    half_share s;
    s.tile = tile;
    s.first = half_block_of(tile * job.pieces, all, n);
    s.count = half_block_of((tile + 1) * job.pieces - 1, all, n) - s.first + 1;
    unsigned me = blockIdx.x - s.first;
    s.from = items * me / s.count;
    s.items = any ? items * (me + 1) / s.count - s.from : 0;
    return s;
}

/* The parts of its tile are there. */
template <int WORKERS>
static __device__ __forceinline__ void half_await(const half_job &job, const half_share &s)
{
    if (!s.items) return;
    for (int i = threadIdx.x; i < s.count; i += WORKERS) {
        unsigned ready;
        const unsigned *flag = job.flags + 2 * (s.first + i) + (i == 0);
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(ready) : "l"(flag) : "memory");
        while (!ready);
    }
}

/* Adds up and gives out the shares a and b, in the order of k. */
template <int N, int WORKERS>
static __device__ __forceinline__ void half_give_out(const half_job &job, half_share a,
                                                     half_share b)
{
    enum { AT_ONCE = 2, BLOCKS = 3 };
    const int step = 2 * (N * HALF_OUTPUTS / 4), all = a.items + b.items;
    for (int i = threadIdx.x; i < all; i += AT_ONCE * WORKERS) {
        float4 v[AT_ONCE];
        const float4 *part[AT_ONCE]; /* of the second block */
        int count[AT_ONCE], o[AT_ONCE], m[AT_ONCE], most = 0;
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            int item = i + u * WORKERS;
            bool in_a = item < a.items;
            count[u] = 0;
            if (item >= all) continue;
            item = in_a ? a.from + item : b.from + item - a.items;
            count[u] = in_a ? a.count : b.count;
            most = max(most, count[u]);
            part[u] = reinterpret_cast<const float4 *>(
                          half_slot<N>(job, 2 * (in_a ? a.first : b.first) + 2)) +
                      item;
            v[u] = __ldcg(part[u] - step / 2);
            o[u] = (in_a ? a.tile : b.tile) * HALF_OUTPUTS + item % (HALF_OUTPUTS / 4) * 4;
            m[u] = item / (HALF_OUTPUTS / 4);
        }
        for (int from = 1; from < most; from += BLOCKS) {
            float4 more[AT_ONCE][BLOCKS];
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++)
#pragma unroll
                for (int k = 0; k < BLOCKS; k++)
                    if (from + k < count[u]) more[u][k] = __ldcg(part[u] + (from + k - 1) * step);
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++)
#pragma unroll
                for (int k = 0; k < BLOCKS; k++)
                    if (from + k < count[u]) {
                        v[u].x += more[u][k].x, v[u].y += more[u][k].y;
                        v[u].z += more[u][k].z, v[u].w += more[u][k].w;
                    }
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (count[u]) half_store(job, o[u], m[u], v[u]);
    }
}

/* The end of a tile, or of a block's part of it. */
template <class S, int AXIS, int N>
static __device__ __forceinline__ void half_finish(const half_job &job,
                                                   const float (&sums)[S::OWN][N / 2], int tile,
                                                   bool starts, bool ends)
{
    int part = 2 * blockIdx.x + starts;
    half_keep<S, AXIS, N>(half_slot<N>(job, part), sums);
    if (starts && ends) {
        half_share whole = {tile, (int)blockIdx.x, 1, 0, HALF_OUTPUTS / 4 * job.M};
        half_sync<S::WORKERS>();
        half_give_out<N, S::WORKERS>(job, whole, half_share{});
        half_sync<S::WORKERS>();
        return;
    }
    __threadfence();
    half_sync<S::WORKERS>();
    if (threadIdx.x == 0)
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(job.flags + part), "r"(1)
                     : "memory");
}

/* Both tiles that a block may have parts of, at the end of its range: all of them are at theirs. */
template <class S, int N>
static __device__ __forceinline__ void half_sum_up(const half_job &job, int begin, int end)
{
    int first = begin / job.pieces, last = (end - 1) / job.pieces;
    bool cut = begin % job.pieces || (first == last && end % job.pieces);
    half_share a = half_share_of(job, first, cut);
    half_share b = half_share_of(job, last, first != last && end % job.pieces);
    half_await<S::WORKERS>(job, a);
    half_await<S::WORKERS>(job, b);
    half_sync<S::WORKERS>();
    half_give_out<N, S::WORKERS>(job, a, b);
}

#endif
