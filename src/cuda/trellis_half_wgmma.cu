/* SPDX-License-Identifier: Apache-2.0
 *
 * trellis_half on Hopper: codes become fp16 fragments in registers, activations come through a ring
 * of bulk copies into shared memory, wgmma multiplies them.
 *
 * A block of the launch is one SM: `GROUPS` warpgroups that decode and multiply, and one warp that
 * copies. It takes an even, contiguous range of the pieces (tile of 256 outputs, 128 of k). A tile
 * that more than one block works on is summed at the end of their ranges, each block a part of it,
 * in the order of k.
 *
 *   axis 1   a warpgroup has TILES times 64 outputs; each of its warps loads units of 16 rows
 *            straight into registers, one block of 256 ahead
 *   axis 0   every warpgroup has all 256 outputs (128 with 128 tokens), for every CLASSES-th step
 *            of k; units come through the ring; the classes are added in order when a tile ends */
#include "bulk.cuh"
#include "trellis_half.cuh"
#include "wgmma.cuh"

namespace
{

template <int BITS, int AXIS, int N> struct shape {
    static constexpr int GROUPS = N <= (AXIS == 1 ? 64 : 16) ? 4 : 2;
    static constexpr int CLASSES = AXIS == 1 ? 1 : N <= 16 ? 4 : N <= 64 ? 2 : 1;
    static constexpr int TILES = AXIS == 1 || CLASSES == 1 ? 4 / GROUPS : 4; /* m64, being summed */
    static constexpr int GROUP = 2;        /* wgmma that a warpgroup sends off at once */
    static constexpr int OWN = 4 / GROUPS; /* and given out */
    static constexpr int WORKERS = 128 * GROUPS, THREADS = WORKERS + 128;
    /* Registers of a thread, workers after they took over what the copying warpgroup gives up. */
    static constexpr int REGISTERS = GROUPS == 4 ? 112 : 240;
    static constexpr int OPERAND = 2 * N * HALF_K; /* bytes of a stage */
    static constexpr int CODES = AXIS == 0 ? BITS * HALF_OUTPUTS * HALF_K / 8 : 0;
    static constexpr int STAGE = OPERAND + CODES;
    static constexpr int EXCHANGE = CLASSES * (CLASSES - 1) * OWN * 64 * N * 4;
    static constexpr int FIT = (220 * 1024 - EXCHANGE) / STAGE;
    static constexpr int STAGES = FIT > 8 ? 8 : FIT;
    static constexpr int SHARED = STAGES * STAGE + EXCHANGE + 128;
    static_assert(STAGES >= 3 && STAGES * 16 <= 128 && TILES >= OWN && REGISTERS && GROUP, "");
};

#if __CUDA_ARCH_FEAT_SM90_ALL

template <class S> struct block_memory {
    uint32_t stages, full, empty; /* shared addresses */
    float4 *exchange;
    __device__ __forceinline__ uint32_t operand(int stage) const
    {
        return stages + stage * S::STAGE;
    }
};

/* ---- the copying warp ------------------------------------------------------------------------ */

template <class S, int BITS, int AXIS>
__device__ __forceinline__ void copy_codes(const half_job &job, const block_memory<S> &mem,
                                           int piece, int stage)
{
    int tile = piece / job.pieces, from = piece % job.pieces * HALF_STEPS;
    uint32_t full = mem.full + 8 * stage, bytes = 0;
    if (AXIS == 0) bytes = (uint32_t)min(HALF_STEPS, job.unit_rows - from) * BITS * 512;
    barrier_expect(full, S::OPERAND + bytes);
    if (AXIS == 0)
        bulk_copy(mem.operand(stage) + S::OPERAND,
                  job.codes + ((size_t)tile * job.unit_rows + from) * BITS * 128, bytes, full);
}

template <class S>
__device__ __forceinline__ void copy_operand(const half_job &job, const block_memory<S> &mem,
                                             int piece, int stage)
{
    const char *from = reinterpret_cast<const char *>(job.image);
    bulk_copy(mem.operand(stage), from + (size_t)(piece % job.pieces) * S::OPERAND, S::OPERAND,
              mem.full + 8 * stage);
}

/* Codes are fetched before the activations are known to be there. */
template <class S, int BITS, int AXIS>
__device__ void copy(const half_job &job, const block_memory<S> &mem, int begin, int end)
{
    int ahead = min(end - begin, S::STAGES);
    for (int i = 0; i < ahead; i++) copy_codes<S, BITS, AXIS>(job, mem, begin + i, i);
    pl_wait_for_previous();
    for (int i = 0; i < ahead; i++) copy_operand<S>(job, mem, begin + i, i);
    ring<S::STAGES> at;
    at.parity = 1;
    for (int piece = begin + ahead; piece < end; piece++, at.next()) {
        barrier_wait(mem.empty + 8 * at.stage, at.parity ^ 1);
        copy_codes<S, BITS, AXIS>(job, mem, piece, at.stage);
        copy_operand<S>(job, mem, piece, at.stage);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* Fragments by the activations of a stage. A warpgroup decodes one group of fragments while the
 * product of the one before runs; these are read by it, so there are two sets. */
template <int N> struct multiplier {
    uint64_t operand;
    __device__ __forceinline__ multiplier(uint32_t stage) : operand(wgmma_operand(stage)) {}
    __device__ __forceinline__ void begin() { wgmma_fence(); }
    __device__ __forceinline__ void multiply(float (&acc)[N / 2], const uint32_t (&a)[4], int step,
                                             int add)
    {
        wgmma(acc, a, operand + step * (N * 2), add);
    }
    __device__ __forceinline__ void end()
    {
        wgmma_commit();
        wgmma_wait<1>();
    }
    static __device__ __forceinline__ void wait() { wgmma_wait<0>(); }
};

/* ---- axis 0: the classes ----------------------------------------------------------------------
 */

/* Adds the classes' sums, in order; warpgroup c is left with tiles c * OWN and up. */
template <class S, int N>
__device__ __forceinline__ void add_classes(const block_memory<S> &mem, int wg,
                                            float (&acc)[S::TILES][N / 2],
                                            float (&sums)[S::OWN][N / 2])
{
    int thread = threadIdx.x % 128;
    constexpr int C = S::CLASSES;
    half_sync<S::WORKERS>(); /* the last tile's have been read */
#pragma unroll
    for (int to = 0; to < C; to++) {
        if (to == wg) continue;
        float4 *part = mem.exchange + (to * (C - 1) + wg - (wg > to)) * (S::OWN * N / 8 * 128);
#pragma unroll
        for (int t = 0; t < S::OWN; t++)
#pragma unroll
            for (int i = 0; i < N / 8; i++) {
                const float *a = &acc[to * S::OWN + t][4 * i];
                part[(t * (N / 8) + i) * 128 + thread] = make_float4(a[0], a[1], a[2], a[3]);
            }
    }
    half_sync<S::WORKERS>();
#pragma unroll
    for (int t = 0; t < S::OWN; t++)
#pragma unroll
        for (int i = 0; i < N / 2; i++) sums[t][i] = 0;
#pragma unroll
    for (int from = 0; from < C; from++) {
        const float4 *part =
            mem.exchange + (wg * (C - 1) + from - (from > wg)) * (S::OWN * N / 8 * 128);
#pragma unroll
        for (int t = 0; t < S::OWN; t++)
#pragma unroll
            for (int i = 0; i < N / 8; i++) {
                float4 v;
                if (from == wg) {
                    v = make_float4(0, 0, 0, 0);
#pragma unroll
                    for (int c = 0; c < C; c++)
                        if (c == wg) {
                            const float *a = &acc[c * S::OWN + t][4 * i];
                            v = make_float4(a[0], a[1], a[2], a[3]);
                        }
                } else {
                    v = part[(t * (N / 8) + i) * 128 + thread];
                }
                sums[t][4 * i] += v.x, sums[t][4 * i + 1] += v.y;
                sums[t][4 * i + 2] += v.z, sums[t][4 * i + 3] += v.w;
            }
    }
}

/* ---- axis 1 ---------------------------------------------------------------------------------- */

template <class S, int BITS, int L, int N>
__device__ __forceinline__ void work_axis1(const half_job &job, const block_memory<S> &mem, int wg,
                                           int begin, int end)
{
    int lane = threadIdx.x % 32, row = 4 * S::TILES * wg + threadIdx.x / 32 % 4;
    int neighbour = (lane & ~3) | ((lane + 1) & 3);
    float acc[S::TILES][N / 2];
    half_units<S::TILES, BITS> next;
    ring<S::STAGES> at;
    int held = -1;
    bool fresh = true;
    int block = begin / 2, blocks = (end + 1) / 2;
    int tile = block / job.blocks, column = block % job.blocks;
    next.load(job, 16 * tile + row, column, lane);
    pl_wait_for_previous();
    for (; block < blocks; block++) {
        int this_tile = tile;
        bool tile_ends = ++column == job.blocks;
        if (tile_ends) tile++, column = 0;
        half_quarters<S::TILES, BITS, L> codes;
        codes.take(next, neighbour);
        if (block + 1 < blocks) next.load(job, 16 * tile + row, column, lane);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int piece = 2 * block + half;
            if (piece < begin || piece >= end) continue;
            barrier_wait(mem.full + 8 * at.stage, at.parity);
            multiplier<N> by(mem.operand(at.stage));
            uint32_t a[2][S::GROUP][4];
#pragma unroll
            for (int i = 0; i < HALF_STEPS / S::GROUP * S::TILES; i++) { /* steps of one m64 tile */
                int t = i % S::TILES, step = i / S::TILES * S::GROUP;
#pragma unroll
                for (int e = 0; e < S::GROUP; e++)
                    codes.fragment(a[i % 2][e], t, HALF_STEPS * half + step + e);
                by.begin();
#pragma unroll
                for (int e = 0; e < S::GROUP; e++)
                    by.multiply(acc[t], a[i % 2][e], step + e, step + e > 0 || !fresh);
                by.end();
                if (i == 0 && held >= 0 && lane == 0) barrier_arrive(mem.empty + 8 * held);
            }
            fresh = false;
            held = at.stage;
            at.next();
        }
        if (tile_ends || block + 1 == blocks) {
            multiplier<N>::wait();
            if (lane == 0) barrier_arrive(mem.empty + 8 * held);
            held = -1;
            fresh = true;
            bool starts = begin <= this_tile * job.pieces;
            bool ends = end >= (this_tile + 1) * job.pieces;
            half_finish<S, 1, N>(job, acc, this_tile, starts, ends);
        }
    }
}

/* ---- axis 0 ---------------------------------------------------------------------------------- */

template <class S, int BITS, int L, int N>
__device__ __forceinline__ void work_axis0(const half_job &job, const block_memory<S> &mem, int wg,
                                           int begin, int end)
{
    int lane = threadIdx.x % 32, cls = S::CLASSES == 1 ? 0 : wg;
    half_runs<BITS, L, 2 * S::TILES> runs(wg);
    float acc[S::TILES][N / 2];
    ring<S::STAGES> at;
    int held = -1;
    int tile = begin / job.pieces;
    pl_wait_for_previous();
    for (int piece = begin; piece < end; tile++) {
        int stop = min(end, (tile + 1) * job.pieces);
        bool starts = piece == tile * job.pieces, ends = stop == (tile + 1) * job.pieces;
        for (bool fresh = true; piece < stop; piece++, fresh = false) {
            barrier_wait(mem.full + 8 * at.stage, at.parity);
            uint32_t operand_address = mem.operand(at.stage);
            multiplier<N> by(operand_address);
            uint32_t codes = operand_address + S::OPERAND, a[2][S::GROUP][4];
#pragma unroll
            for (int i = 0; i < HALF_STEPS / S::CLASSES; i++) {
                int step = i * S::CLASSES + cls;
                uint32_t run[4][2], words[4][2];
                runs.load_shared(words, codes + step * (BITS * 512));
                runs.align(run, words);
#pragma unroll
                for (int t = 0; t < S::TILES; t += S::GROUP) {
                    int j = i * (S::TILES / S::GROUP) + t / S::GROUP;
#pragma unroll
                    for (int e = 0; e < S::GROUP; e++)
                        runs.fragment(a[j % 2][e], run, t + e);
                    by.begin();
#pragma unroll
                    for (int e = 0; e < S::GROUP; e++)
                        by.multiply(acc[t + e], a[j % 2][e], step, i > 0 || !fresh);
                    by.end();
                    if (j == 0 && held >= 0 && lane == 0) barrier_arrive(mem.empty + 8 * held);
                }
            }
            held = at.stage;
            at.next();
        }
        multiplier<N>::wait();
        if (lane == 0) barrier_arrive(mem.empty + 8 * held);
        held = -1;
        if constexpr (S::CLASSES == 1) {
            half_finish<S, 0, N>(job, acc, tile, starts, ends);
        } else {
            float sums[S::OWN][N / 2];
            add_classes<S, N>(mem, wg, acc, sums);
            half_finish<S, 0, N>(job, sums, tile, starts, ends);
        }
    }
}

#endif

/* ---- the kernel ------------------------------------------------------------------------------ */

template <int BITS, int L, int AXIS, int N>
__global__ void __launch_bounds__(shape<BITS, AXIS, N>::THREADS, 1)
    half_kernel(const __grid_constant__ half_job job)
{
#if __CUDA_ARCH_FEAT_SM90_ALL
    using S = shape<BITS, AXIS, N>;
    extern __shared__ __align__(128) char shared[];
    block_memory<S> mem;
    mem.stages = shared_address(shared);
    mem.exchange = reinterpret_cast<float4 *>(shared + S::STAGES * S::STAGE);
    mem.full = mem.stages + S::STAGES * S::STAGE + S::EXCHANGE;
    mem.empty = mem.full + 8 * S::STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            barrier_init(mem.full + 8 * i, 1);
            barrier_init(mem.empty + 8 * i, S::WORKERS / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    pl_let_next_start();
    __syncthreads();
    int all = job.tiles * job.pieces, n = gridDim.x;
    int begin = half_begin(blockIdx.x, all, n), end = half_begin(blockIdx.x + 1, all, n);
    int wg = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (wg == S::GROUPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == S::WORKERS) copy<S, BITS, AXIS>(job, mem, begin, end);
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(S::REGISTERS));
    if constexpr (AXIS == 1)
        work_axis1<S, BITS, L, N>(job, mem, wg, begin, end);
    else
        work_axis0<S, BITS, L, N>(job, mem, wg, begin, end);
    if (begin % job.pieces || end % job.pieces) half_sum_up<S, N>(job, begin, end);
#endif
}

template <int BITS, int L, int AXIS, int N> struct instance {
    using S = shape<BITS, AXIS, N>;
    static void launch(const pl_cuda *d, const half_job &job, int blocks)
    {
        pl_launch(d, half_kernel<BITS, L, AXIS, N>, dim3(blocks), dim3(S::THREADS), S::SHARED, job);
    }
    static cudaError_t prepare()
    {
        return cudaFuncSetAttribute(half_kernel<BITS, L, AXIS, N>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED);
    }
};

} /* namespace */

#define TOKENS(k, L, axis)                                                                         \
    {HALF_ENTRY(instance, k, L, axis, 8), HALF_ENTRY(instance, k, L, axis, 16),                    \
     HALF_ENTRY(instance, k, L, axis, 32), HALF_ENTRY(instance, k, L, axis, 64),                   \
     HALF_ENTRY(instance, k, L, axis, 128)}

static const half_table entries = HALF_ENTRIES(TOKENS);

pleach_status half_wgmma_prepare(pleach_error *err)
{
    return half_prepare_all(entries, err);
}

void half_wgmma_run(const pl_cuda *d, const pl_cuda_trellis *w, const half_job &job, int tokens)
{
    half_launch(entries, d, w, job, tokens);
}
