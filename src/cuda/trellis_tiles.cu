/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles of 128 outputs by up to 64, 128 or 256 tokens. A block of the launch is one SM: 4, 3 or 2
 * warpgroups turn codes into fp16 matrices in shared memory, 1, 2 or 2 multiply activations with
 * them. It takes an even, contiguous range of the pieces, which are tiles (outputs, then tokens) by
 * 64 of k; a stage of its ring holds one. Who has the first piece of a tile gives it out, and adds
 * what others have of it in the order of k: they have it at the beginning of their ranges, so that
 * it is there.
 *
 *   axis 1   each warp that decodes has a unit of 16 outputs for the four pieces of a block of 256
 *            inputs: of each quarter, for piece s, the inputs 16 s and on
 *   axis 0   the warpgroups that decode take turns at pieces; a warp has 128 outputs of half of the
 *            inputs of two units of 16
 *
 * Weights lie in core matrices (wgmma.cuh) in the order in which lanes have them: along k on axis 1
 * (eight inputs of one output), turned on axis 0 (eight outputs of one input). Strides let the
 * stores of 16 bytes meet all banks. */
#include "trellis_tiles.h"

#include "bulk.cuh"
#include "trellis_half.cuh"
#include "wgmma.cuh"

namespace
{

enum { OUTPUTS = 128, MOST_TOKENS = 256, PIECE = 64, STEPS = PIECE / 16 };

typedef struct tiles_job {
    const uint32_t *codes;
    const float *scales; /* of the outputs; NULL for axis 0 */
    const __half *image; /* [token_tiles][K][tokens] of trellis_half.cuh */
    const float *sums, *unscales; /* [M]: sum of a token's fp16 numbers, 2^-e */
    float *y;
    size_t y_stride;
    const float *output_scale, *bias;
    float4 *parts;   /* [blocks][SUMS / 4][MULTIPLYING]: of the tile that a block does not begin */
    unsigned *flags; /* [blocks]: it is there */
    int M, out;
    int tokens; /* of a tile's image */
    int token_tiles, tiles, pieces; /* all tiles; pieces of a tile */
    int unit_rows; /* axis 1: rows of units, outputs / 16; axis 0: of a block, inputs / 16 */
    int blocks;    /* axis 1: of 256, in a row */
    bool pairs;    /* y may be written in pairs of numbers */
} tiles_job;

template <int AXIS, int N> struct shape {
    static constexpr int TOKENS = N, MULTIPLIERS = N > 64 ? 2 : 1; /* warpgroups */
    static constexpr int DECODERS = N > 128 ? 2 : N > 64 ? 3 : 4;
    static constexpr int MULTIPLYING = 128 * MULTIPLIERS, DECODING = 128 * DECODERS; /* threads */
    static constexpr int THREADS = MULTIPLYING + DECODING;
    /* Of a warpgroup that multiplies: 64 tokens at a time; of its threads: sums. */
    static constexpr int TIMES = N / 64 / MULTIPLIERS, SUMS = 64 * TIMES;
    /* Registers of a thread: what a block starts with, shared out anew. */
    static constexpr int TO_START = 65536 / THREADS / 8 * 8;
    static constexpr int TO_MULTIPLY = TIMES > 1 ? 176 : 112;
    static constexpr int TO_DECODE =
        (TO_START * (MULTIPLIERS + DECODERS) - TO_MULTIPLY * MULTIPLIERS) / DECODERS / 8 * 8;
    /* Bytes from core matrix to core matrix, from step to step, of a stage. */
    static constexpr int ACROSS = AXIS ? 128 : 144, ALONG = OUTPUTS / 8 * ACROSS;
    static constexpr int STEP = 2 * ALONG + (AXIS ? 32 : 0), WEIGHTS = STEPS * STEP;
    static constexpr int STAGE = WEIGHTS + 2 * PIECE * N, STAGES = 216 * 1024 / STAGE;
    static constexpr int SHARED = STAGES * STAGE + 128;
    static constexpr int FILLERS = AXIS ? DECODING / 32 : 4; /* warps that fill a stage */
    static constexpr int TURNS = DECODING / 32 / FILLERS;    /* groups of them */
    static_assert(STAGES >= TURNS && STAGES * 16 <= 128 && STAGE % 128 == 0, "");
};

#if __CUDA_ARCH_FEAT_SM90_ALL

struct block_memory {
    uint32_t stages, full, empty; /* shared addresses */
};

/* A piece, as pieces follow each other. */
struct place {
    int outputs, tokens, k; /* tiles of them */
    __device__ __forceinline__ place(const tiles_job &job, int piece)
    {
        int tile = piece / job.pieces;
        k = piece - tile * job.pieces;
        outputs = tile / job.token_tiles;
        tokens = tile - outputs * job.token_tiles;
    }
    __device__ __forceinline__ void advance(const tiles_job &job, int n)
    {
        for (k += n; k >= job.pieces; k -= job.pieces)
            if (++tokens == job.token_tiles) tokens = 0, outputs++;
    }
};

/* ---- decoding -------------------------------------------------------------------------------- */

/* Positions j .. j + 7 of a run of n words, the last one first: numbers ascend. */
template <int BITS, int L, int n>
__device__ __forceinline__ void store_eight(uint32_t to, const uint32_t *run, int j)
{
    uint32_t v[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = half_pair(half_value<BITS, L, n>(run, j + 7 - 2 * i),
                         half_value<BITS, L, n>(run, j + 6 - 2 * i), i % 2);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v[0]), "r"(v[1]),
                 "r"(v[2]), "r"(v[3])
                 : "memory");
}

/* A stage is free for a piece; `copies`: this thread has the activations copied there. */
template <class S>
__device__ __forceinline__ uint32_t start(const tiles_job &job, const block_memory &mem,
                                          const ring<S::STAGES> &at, const place &piece,
                                          bool copies)
{
    uint32_t stage = mem.stages + at.stage * S::STAGE;
    barrier_wait(mem.empty + 8 * at.stage, at.parity ^ 1);
    if (copies) {
        const uint32_t bytes = 2 * PIECE * job.tokens, full = mem.full + 8 * at.stage;
        const char *from = reinterpret_cast<const char *>(job.image);
        from += ((size_t)piece.tokens * job.pieces + piece.k) * bytes;
        barrier_expect(full, bytes);
        bulk_copy(stage + S::WEIGHTS, from, bytes, full);
    }
    return stage;
}

/* The warp's part of a stage is there. */
__device__ __forceinline__ void filled(uint32_t full)
{
    shared_for_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(full);
}

/* A lane's words of a unit, quarter q of the blocks of stored rows g and g + 8. */
template <int BITS>
__device__ __forceinline__ void load_quarters(uint32_t (&w)[4 * BITS], const tiles_job &job,
                                              int row, int block, int lane)
{
    const uint4 *p = reinterpret_cast<const uint4 *>(job.codes) +
                     ((size_t)row * job.blocks + block) * (BITS * 32) + lane;
#pragma unroll
    for (int v = 0; v < BITS; v++) {
        uint4 x = pl_load_codes(p + 32 * v, row < job.unit_rows);
        w[4 * v] = x.x, w[4 * v + 1] = x.y, w[4 * v + 2] = x.z, w[4 * v + 3] = x.w;
    }
}

template <class S, int BITS, int L>
__device__ __forceinline__ void decode_axis1(const tiles_job &job, const block_memory &mem,
                                             int begin, int end)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % S::FILLERS;
    uint32_t to = (3 - lane % 4) * S::STEP + 2 * warp * S::ACROSS + lane / 4 * 16;
    bool copies = threadIdx.x == S::MULTIPLYING;
    int block = begin / 4, blocks = (end + 3) / 4;
    place there(job, 4 * block);
    uint32_t next[4 * BITS];
    ring<S::STAGES> at;
    load_quarters<BITS>(next, job, there.outputs * 8 + warp, there.k / 4, lane);
    pl_wait_for_previous();
    for (; block < blocks; block++) {
        place here = there;
        uint32_t run[2][2 * BITS + 1]; /* rows g and g + 8, each with the next quarter's first */
#pragma unroll
        for (int r = 0; r < 2; r++) {
#pragma unroll
            for (int i = 0; i < 2 * BITS; i++) run[r][i] = next[2 * BITS * r + i];
            run[r][2 * BITS] = pl_next_quarter(run[r][0], (unsigned)lane);
        }
        there.advance(job, 4);
        if (block + 1 < blocks)
            load_quarters<BITS>(next, job, there.outputs * 8 + warp, there.k / 4, lane);
#pragma unroll
        for (int s = 0; s < 4; s++, here.k++) {
            if (4 * block + s < begin || 4 * block + s >= end) continue;
            uint32_t base = to + start<S>(job, mem, at, here, copies);
#pragma unroll
            for (int i = 0; i < 4; i++) /* row, half of the step */
                store_eight<BITS, L, 2 * BITS>(base + i / 2 * S::ACROSS + i % 2 * S::ALONG,
                                               run[i / 2], 16 * (3 - s) + 8 * (1 - i % 2));
            filled(mem.full + 8 * at.stage);
            at.next();
        }
    }
}

/* Where a warp's lanes are on axis 0, and their words: lane 16 h + 4 g + q has eighth g of the four
 * of a half block, of stored rows q + 4 r of a unit, r 0 and 1 or, LATE, 2 and 3. */
template <int BITS> struct eighths {
    uint32_t run[2][BITS + 1]; /* with the first word of the next eighth */
    template <int LATE>
    __device__ __forceinline__ void load(const tiles_job &job, const place &piece,
                                         int unit_in_piece)
    {
        int lane = threadIdx.x % 32, eighth = lane / 4 % 4 + (piece.outputs % 2 ? 0 : 4);
        int unit = piece.k * STEPS + unit_in_piece;
        if (unit >= job.unit_rows) unit = 0; /* any: there are zeros to multiply it */
        const uint32_t *unit_words =
            job.codes + ((size_t)(piece.outputs / 2) * job.unit_rows + unit) * (BITS * 128);
        const uint32_t *here = unit_words + 16 * eighth + 4 * (lane % 4);
        const uint32_t *after = unit_words + 16 * ((eighth + 1) % 8) + 4 * (lane % 4);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int first = BITS * (2 * LATE + r);
#pragma unroll
            for (int i = 0; i < BITS; i++)
                run[r][i] = __ldg(here + (first + i) / 4 * 128 + (first + i) % 4);
            run[r][BITS] = __ldg(after + first / 4 * 128 + first % 4);
        }
    }
    __device__ __forceinline__ void load(const tiles_job &job, const place &piece,
                                         int unit_in_piece, bool late)
    {
        if (late)
            load<1>(job, piece, unit_in_piece);
        else
            load<0>(job, piece, unit_in_piece);
    }
};

template <class S, int BITS, int L>
__device__ __forceinline__ void decode_axis0(const tiles_job &job, const block_memory &mem,
                                             int begin, int end)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % S::FILLERS;
    int turn = threadIdx.x / 128 - S::MULTIPLIERS, unit = 2 * (warp % 2) + lane / 16;
    bool late = __shfl_sync(~0u, warp / 2, 0), copies = threadIdx.x % 128 == 0;
    uint32_t to = unit * S::STEP + (15 - lane / 4 % 4 * 4) * S::ACROSS + lane % 4 * 16 +
                  warp / 2 * S::ALONG;
    int piece = begin + turn;
    place there(job, piece);
    eighths<BITS> next;
    ring<S::STAGES> at(turn);
    if (piece < end) next.load(job, there, unit, late);
    pl_wait_for_previous();
    for (; piece < end; piece += S::TURNS, at.next(S::TURNS)) {
        place here = there;
        eighths<BITS> codes = next;
        there.advance(job, S::TURNS);
        if (piece + S::TURNS < end) next.load(job, there, unit, late);
        uint32_t base = to + start<S>(job, mem, at, here, copies);
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int v = 0; v < 4; v++)
                store_eight<BITS, L, BITS>(base - v * S::ACROSS + r * 64, codes.run[r], 8 * v);
        filled(mem.full + 8 * at.stage);
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* A thread's: of its warpgroup's tokens 64 i and on, numbers 4 j to 4 j + 3 are outputs 8 j + 2 q
 * and the next of token g of its warp's 16, then of token g + 8. */
template <class S> using sums = float[S::TIMES][64];

/* This block's part of a tile that it does not begin. */
template <class S>
__device__ __forceinline__ void keep(const tiles_job &job, const sums<S> &acc)
{
    float4 *to = job.parts + (size_t)blockIdx.x * (S::SUMS / 4 * S::MULTIPLYING) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < S::SUMS / 4; i++) {
        const float *v = &acc[i / 16][i % 16 * 4];
        __stcg(to + i * S::MULTIPLYING, make_float4(v[0], v[1], v[2], v[3]));
    }
    __threadfence();
    half_sync<S::MULTIPLYING>();
    if (threadIdx.x == 0)
        asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(job.flags + blockIdx.x) : "memory");
}

/* The parts that the blocks after this one have of a tile up to piece `end`. */
template <class S>
__device__ __forceinline__ void add_others(const tiles_job &job, sums<S> &acc, int end)
{
    unsigned all = job.tiles * job.pieces, n = gridDim.x;
    for (unsigned b = blockIdx.x + 1; half_begin(b, all, n) < end; b++) {
        unsigned ready;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                        : "=r"(ready)
                        : "l"(job.flags + b)
                        : "memory");
        while (!ready);
        const float4 *from = job.parts + (size_t)b * (S::SUMS / 4 * S::MULTIPLYING) + threadIdx.x;
#pragma unroll
        for (int i = 0; i < S::SUMS / 4; i++) {
            float4 v = __ldcg(from + i * S::MULTIPLYING);
            float *to = &acc[i / 16][i % 16 * 4];
            to[0] += v.x, to[1] += v.y, to[2] += v.z, to[3] += v.w;
        }
    }
}

/* Sums over (1534 + code) a become results: of n tokens of a thread, two outputs at a time. */
template <int n> struct tokens_of {
    float *y[n]; /* NULL: no token */
    float offset[n], unscale[n];
    __device__ __forceinline__ tokens_of(const tiles_job &job, int first)
    {
#pragma unroll
        for (int i = 0; i < n; i++) {
            int m = first + i / 2 * 64 + i % 2 * 8;
            bool inside = m < job.M;
            y[i] = inside ? job.y + (size_t)m * job.y_stride : NULL;
            offset[i] = inside ? -1534.0f * job.sums[m] : 0;
            unscale[i] = inside ? job.unscales[m] : 0;
        }
    }
};

__device__ __forceinline__ float factor_of(const tiles_job &job, int o)
{
    float factor = 1.0f / 147.800537109375f;
    if (job.scales) factor *= job.scales[o];
    return job.output_scale ? factor * job.output_scale[o] : factor;
}

template <class S>
__device__ __forceinline__ void give_out(const tiles_job &job, const sums<S> &acc, int tile)
{
    int lane = threadIdx.x % 32, o = tile / job.token_tiles * OUTPUTS + lane % 4 * 2;
    int first_token = tile % job.token_tiles * S::TOKENS + threadIdx.x / 128 * (64 * S::TIMES);
    tokens_of<2 * S::TIMES> tokens(job, first_token + threadIdx.x / 32 % 4 * 16 + lane / 4);
#pragma unroll
    for (int j = 0; j < 16; j++, o += 8) {
        bool first = o < job.out, second = o + 1 < job.out;
        float factor[2] = {first ? factor_of(job, o) : 0, second ? factor_of(job, o + 1) : 0};
        float bias[2] = {job.bias && first ? job.bias[o] : 0,
                         job.bias && second ? job.bias[o + 1] : 0};
#pragma unroll
        for (int i = 0; i < 2 * S::TIMES; i++) {
            const float *sum = &acc[i / 2][4 * j + i % 2 * 2];
            float y[2];
#pragma unroll
            for (int n = 0; n < 2; n++)
                y[n] = (sum[n] + tokens.offset[i]) * factor[n] * tokens.unscale[i] + bias[n];
            if (!tokens.y[i]) continue;
            if (job.pairs && second) {
                *reinterpret_cast<float2 *>(tokens.y[i] + o) = make_float2(y[0], y[1]);
            } else {
                if (first) tokens.y[i][o] = y[0];
                if (second) tokens.y[i][o + 1] = y[1];
            }
        }
    }
}

/* ---- products -------------------------------------------------------------------------------- */

template <class S, int AXIS>
__device__ __forceinline__ void multiply(const tiles_job &job, const block_memory &mem, int begin,
                                         int end)
{
    int lane = threadIdx.x % 32, held = -1, tile = begin / job.pieces;
    /* Its first one's place in a stage; by way of a shuffle the compiler knows it for uniform. */
    uint32_t tokens = __shfl_sync(~0u, threadIdx.x / 128, 0) * (2048 * S::TIMES);
    sums<S> acc;
    ring<S::STAGES> at;
    for (int piece = begin; piece < end; tile++) {
        int last = (tile + 1) * job.pieces, stop = min(end, last);
        bool starts = piece == tile * job.pieces;
        for (bool fresh = true; piece < stop; piece++, fresh = false) {
            uint32_t stage = mem.stages + at.stage * S::STAGE;
            barrier_wait(mem.full + 8 * at.stage, at.parity);
            uint2 a = wgmma_matrix(stage + S::WEIGHTS + tokens, 128, 256);
            uint2 b = wgmma_matrix(stage, S::ALONG, S::ACROSS);
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < STEPS; step++)
#pragma unroll
                for (int i = 0; i < S::TIMES; i++)
                    wgmma<1 - AXIS>(acc[i], wgmma_advance(a, step * 32 * job.tokens + i * 2048),
                                    wgmma_advance(b, step * S::STEP), step > 0 || !fresh);
            wgmma_commit();
            wgmma_wait<1>();
            if (held >= 0 && lane == 0) barrier_arrive(mem.empty + 8 * held);
            held = at.stage;
            at.next();
        }
        wgmma_wait<0>();
        if (lane == 0) barrier_arrive(mem.empty + 8 * held);
        held = -1;
        if (!starts) {
            keep<S>(job, acc);
            continue;
        }
        if (stop < last) add_others<S>(job, acc, last);
        give_out<S>(job, acc, tile);
    }
}

#endif

/* ---- the kernel ------------------------------------------------------------------------------ */

template <int BITS, int L, int AXIS, int N>
__global__ void __launch_bounds__(shape<AXIS, N>::THREADS, 1)
    tiles_kernel(const __grid_constant__ tiles_job job)
{
#if __CUDA_ARCH_FEAT_SM90_ALL
    using S = shape<AXIS, N>;
    extern __shared__ __align__(128) char shared[];
    block_memory mem;
    mem.stages = __shfl_sync(~0u, shared_address(shared), 0); /* kept, not found out again */
    mem.full = mem.stages + S::STAGES * S::STAGE;
    mem.empty = mem.full + 8 * S::STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            barrier_init(mem.full + 8 * i, S::FILLERS + 1);
            barrier_init(mem.empty + 8 * i, S::MULTIPLYING / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    pl_let_next_start();
    __syncthreads();
    int all = job.tiles * job.pieces, n = gridDim.x;
    int begin = half_begin(blockIdx.x, all, n), end = half_begin(blockIdx.x + 1, all, n);
    if (threadIdx.x >= S::MULTIPLYING) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(S::TO_DECODE));
        if constexpr (AXIS == 1)
            decode_axis1<S, BITS, L>(job, mem, begin, end);
        else
            decode_axis0<S, BITS, L>(job, mem, begin, end);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(S::TO_MULTIPLY));
        pl_wait_for_previous();
        multiply<S, AXIS>(job, mem, begin, end);
    }
#endif
}

/* ---- instances ------------------------------------------------------------------------------- */

template <int BITS, int L, int AXIS, int N> struct instance {
    using S = shape<AXIS, N>;
    static void launch(const pl_cuda *d, const tiles_job &job, int blocks)
    {
        pl_launch(d, tiles_kernel<BITS, L, AXIS, N>, dim3(blocks), dim3(S::THREADS), S::SHARED,
                  job);
    }
    static cudaError_t prepare()
    {
        return cudaFuncSetAttribute(tiles_kernel<BITS, L, AXIS, N>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED);
    }
};

struct entry {
    void (*launch)(const pl_cuda *d, const tiles_job &job, int blocks);
    cudaError_t (*prepare)();
};

#define ENTRY(k, L, axis, n) {instance<k, L, axis, n>::launch, instance<k, L, axis, n>::prepare}
#define WIDTHS(k, L)                                                                               \
    {ENTRY(k, L, 0, 64), ENTRY(k, L, 0, 128), ENTRY(k, L, 0, 256), ENTRY(k, L, 1, 256)}

enum { WIDTH_64, WIDTH_128, WIDTH_256, WIDTH_AXIS1, N_WIDTHS };

/* [bits - 2][L / 16][width] */
const entry entries[3][2][N_WIDTHS] = {{WIDTHS(2, 12), WIDTHS(2, 16)},
                                       {WIDTHS(3, 12), WIDTHS(3, 16)},
                                       {WIDTHS(4, 12), WIDTHS(4, 16)}};

/* ---- scratch --------------------------------------------------------------------------------- */

enum { GROUP = 512 }; /* tokens of a launch */

struct plan {
    int width; /* an entry's */
    int tokens, token_tiles, tiles, pieces, blocks;
    size_t image, sums, unscales, flags, parts, bytes;
};

size_t align_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

plan plan_of(const pl_cuda *d, const pl_cuda_trellis *w, size_t M)
{
    plan p;
    size_t k = w->shape.axis ? w->shape.cols : w->shape.rows;
    size_t outputs = w->shape.axis ? w->shape.rows : w->shape.cols;
    p.width = w->shape.axis ? WIDTH_AXIS1 : M <= 64 ? WIDTH_64 : M <= 128 ? WIDTH_128 : WIDTH_256;
    size_t most = p.width == WIDTH_64 ? 64 : p.width == WIDTH_128 ? 128 : MOST_TOKENS;
    p.tokens = (int)(M < most ? (M + 7) / 8 * 8 : most);
    p.token_tiles = (int)((M + most - 1) / most);
    p.tiles = (int)((outputs + OUTPUTS - 1) / OUTPUTS) * p.token_tiles;
    p.pieces = (int)((k + PIECE - 1) / PIECE);
    p.blocks = half_blocks(d, p.tiles * p.pieces);
    p.image = 0;
    p.sums = align_up(2 * (size_t)p.token_tiles * p.tokens * PIECE * p.pieces);
    p.unscales = p.sums + align_up(4 * M);
    p.flags = p.unscales + align_up(4 * M);
    p.parts = p.flags + align_up(4 * (size_t)p.blocks);
    p.bytes = p.parts + (size_t)p.blocks * OUTPUTS * most * 4;
    return p;
}

void run_group(const pl_cuda *d, const pl_cuda_product *p, char *base)
{
    const pl_cuda_trellis *w = p->w;
    plan s = plan_of(d, w, p->M);
    half_inputs in = {p->x, w->scales, p->x_stride, (__half *)(base + s.image),
                      (float *)(base + s.sums), (float *)(base + s.unscales),
                      (unsigned *)(base + s.flags), (int)p->M, (int)p->in, STEPS * s.pieces,
                      s.blocks, s.tokens, s.tokens};
    half_lay_out(d, w->shape.axis, true, in);
    tiles_job job = {};
    job.codes = w->codes;
    job.scales = w->shape.axis ? w->scales : NULL;
    job.image = in.image;
    job.sums = in.sums;
    job.unscales = in.unscales;
    job.y = p->y;
    job.y_stride = p->y_stride;
    job.output_scale = p->output_scale;
    job.bias = p->bias;
    job.parts = (float4 *)(base + s.parts);
    job.flags = in.flags;
    job.M = (int)p->M;
    job.out = (int)p->out;
    job.tokens = s.tokens;
    job.token_tiles = s.token_tiles;
    job.tiles = s.tiles;
    job.pieces = s.pieces;
    job.unit_rows = (int)((w->shape.rows + 15) / 16);
    job.blocks = (int)(w->shape.cols / 256);
    job.pairs = ((uintptr_t)job.y | 4 * job.y_stride) % 8 == 0;
    entries[w->shape.bits - 2][w->shape.state_bits / 16][s.width].launch(d, job, s.blocks);
}

} /* namespace */

pleach_status pl_cuda_trellis_tiles_prepare(pl_cuda *d, pleach_error *err)
{
    if (d->capability != 90) return PLEACH_OK;
    for (int i = 0; i < 3 * 2 * N_WIDTHS; i++)
        PL_TRY(pl_cuda_check(entries[i / N_WIDTHS / 2][i / N_WIDTHS % 2][i % N_WIDTHS].prepare(),
                             "preparing the products of many rows", err));
    return PLEACH_OK;
}

/* Rows from which on this is faster than trellis_half. */
static size_t least_of(const pl_cuda_trellis *w)
{
    return w->shape.axis ? 129 : 33;
}

bool pl_cuda_trellis_tiles_serves(const pl_cuda *d, const pl_cuda_trellis *w, size_t M)
{
    return d->capability == 90 && M >= least_of(w) && w->units && w->shape.rows && w->shape.cols;
}

size_t pl_cuda_trellis_tiles_scratch(const pl_cuda *d, const pl_cuda_trellis *w, size_t M)
{
    size_t fewer = pl_cuda_trellis_half_scratch(d, w, least_of(w) - 1);
    size_t bytes = plan_of(d, w, M < GROUP ? M : GROUP).bytes;
    return bytes > fewer ? bytes : fewer;
}

void pl_cuda_trellis_tiles_run(const pl_cuda *d, const pl_cuda_product *p, void *scratch)
{
    for (size_t m = 0; m < p->M; m += GROUP) {
        pl_cuda_product group = *p;
        group.M = p->M - m < GROUP ? p->M - m : GROUP;
        group.x += m * p->x_stride;
        group.y += m * p->y_stride;
        if (p->out) run_group(d, &group, (char *)scratch);
    }
}
