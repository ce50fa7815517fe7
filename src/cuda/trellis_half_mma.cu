/* SPDX-License-Identifier: Apache-2.0
 *
 * trellis_half where there is no wgmma: the same fragments, work and sums, by mma of one warp.
 * Eight warps have the 256 outputs of a tile between them, 32 each; activations come through two
 * stages of shared memory, codes straight from device memory. */
#include "trellis_half.cuh"

namespace
{

template <int N> struct shape {
    static constexpr int OWN = 2, WORKERS = 256;
    static constexpr int OPERAND = 2 * N * HALF_K, SHARED = 2 * OPERAND;
};

__device__ __forceinline__ void copy_async(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* Everything but the newest `Pending` pieces is there, for all threads. */
template <int Pending> __device__ __forceinline__ void arrive()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
    half_sync<256>();
}

template <int N> __device__ __forceinline__ void fetch(const half_job &job, uint32_t to, int piece)
{
    const char *from = reinterpret_cast<const char *>(job.image);
    from += (size_t)(piece % job.pieces) * shape<N>::OPERAND;
    for (int i = threadIdx.x * 16; i < shape<N>::OPERAND; i += 256 * 16)
        copy_async(to + i, from + i);
}

__device__ __forceinline__ void commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* One step of k: both tiles by N tokens. */
template <int N>
__device__ __forceinline__ void multiply(float (&acc)[2][N / 2], const uint32_t (&a)[2][4],
                                         uint32_t operand)
{
    uint32_t at = operand + threadIdx.x % 32 * 16;
#pragma unroll
    for (int i = 0; i < N / 8; i += 2) {
        uint32_t b[4];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                     : "r"(at + i * 256));
#pragma unroll
        for (int t = 0; t < 2; t++) {
            half_mma(&acc[t][4 * i], a[t], b[0], b[1]);
            half_mma(&acc[t][4 * i + 4], a[t], b[2], b[3]);
        }
    }
}

template <int N> __device__ __forceinline__ void clear(float (&acc)[2][N / 2])
{
#pragma unroll
    for (int i = 0; i < N; i++) acc[i / (N / 2)][i % (N / 2)] = 0;
}

/* Pieces come one after another: the next one is on its way while one is worked on. */
template <int N> struct pieces {
    uint32_t shared;
    int next, end, stage;
    __device__ __forceinline__ pieces(const half_job &job, int begin, int end_)
        : next(begin), end(end_), stage(0)
    {
        extern __shared__ __align__(128) char memory[];
        shared = (uint32_t)__cvta_generic_to_shared(memory);
        fetch<N>(job, shared, next++);
        commit();
    }
    __device__ __forceinline__ uint32_t take(const half_job &job)
    {
        uint32_t at = shared + stage * shape<N>::OPERAND;
        half_sync<256>(); /* nobody reads the other stage any more */
        stage ^= 1;
        if (next < end) fetch<N>(job, shared + stage * shape<N>::OPERAND, next);
        next++;
        commit();
        arrive<1>();
        return at;
    }
};

template <int BITS, int L, int N> __device__ void work_axis1(const half_job &job, int begin, int end)
{
    using S = shape<N>;
    int lane = threadIdx.x % 32, row = 8 * (threadIdx.x / 128) + threadIdx.x / 32 % 4;
    int neighbour = (lane & ~3) | ((lane + 1) & 3);
    float acc[2][N / 2];
    half_units<2, BITS> next;
    int block = begin / 2, blocks = (end + 1) / 2;
    int tile = block / job.blocks, column = block % job.blocks;
    next.load(job, 16 * tile + row, column, lane);
    pl_wait_for_previous();
    pieces<N> piece(job, begin, end);
    clear<N>(acc);
    for (; block < blocks; block++) {
        half_quarters<2, BITS, L> codes;
        codes.take(next, neighbour);
        int this_tile = tile;
        bool tile_ends = ++column == job.blocks;
        if (tile_ends) tile++, column = 0;
        if (block + 1 < blocks) next.load(job, 16 * tile + row, column, lane);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (2 * block + half < begin || 2 * block + half >= end) continue;
            uint32_t operand = piece.take(job);
#pragma unroll
            for (int step = 0; step < HALF_STEPS; step++) {
                uint32_t a[2][4];
#pragma unroll
                for (int t = 0; t < 2; t++)
                    codes.fragment(a[t], t, HALF_STEPS * half + step);
                multiply<N>(acc, a, operand + step * N * 32);
            }
        }
        if (tile_ends || block + 1 == blocks) {
            bool starts = begin <= this_tile * job.pieces;
            bool ends = end >= (this_tile + 1) * job.pieces;
            half_finish<S, 1, N>(job, acc, this_tile, starts, ends);
            clear<N>(acc);
        }
    }
}

template <int BITS, int L, int N> __device__ void work_axis0(const half_job &job, int begin, int end)
{
    using S = shape<N>;
    half_runs<BITS, L, 4> runs(threadIdx.x / 128);
    float acc[2][N / 2];
    int tile = begin / job.pieces;
    pl_wait_for_previous();
    pieces<N> piece(job, begin, end);
    for (int at = begin; at < end; tile++) {
        int stop = min(end, (tile + 1) * job.pieces);
        bool starts = at == tile * job.pieces, ends = stop == (tile + 1) * job.pieces;
        const char *codes =
            reinterpret_cast<const char *>(job.codes + (size_t)tile * job.unit_rows * BITS * 128);
        int unit = (at - tile * job.pieces) * HALF_STEPS;
        uint32_t words[4][2];
        runs.load(words, codes + (size_t)unit * BITS * 512, unit < job.unit_rows);
        clear<N>(acc);
        for (; at < stop; at++) {
            uint32_t operand = piece.take(job);
#pragma unroll
            for (int step = 0; step < HALF_STEPS; step++) {
                uint32_t a[2][4], run[4][2];
                runs.align(run, words);
                unit++;
                runs.load(words, codes + (size_t)unit * BITS * 512, unit < job.unit_rows);
#pragma unroll
                for (int t = 0; t < 2; t++) runs.fragment(a[t], run, t);
                multiply<N>(acc, a, operand + step * N * 32);
            }
        }
        half_finish<S, 0, N>(job, acc, tile, starts, ends);
    }
}

template <int BITS, int L, int AXIS, int N>
__global__ void __launch_bounds__(256, 1) half_kernel(const __grid_constant__ half_job job)
{
    int all = job.tiles * job.pieces, n = gridDim.x;
    int begin = half_begin(blockIdx.x, all, n), end = half_begin(blockIdx.x + 1, all, n);
    pl_let_next_start();
    if constexpr (AXIS == 1)
        work_axis1<BITS, L, N>(job, begin, end);
    else
        work_axis0<BITS, L, N>(job, begin, end);
    if (begin % job.pieces || end % job.pieces) half_sum_up<shape<N>, N>(job, begin, end);
}

template <int BITS, int L, int AXIS, int N> struct instance {
    static void launch(const pl_cuda *d, const half_job &job, int blocks)
    {
        pl_launch(d, half_kernel<BITS, L, AXIS, N>, dim3(blocks), dim3(256), shape<N>::SHARED, job);
    }
    static cudaError_t prepare()
    {
        return cudaFuncSetAttribute(half_kernel<BITS, L, AXIS, N>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, shape<N>::SHARED);
    }
};

} /* namespace */

/* 16 or 64 tokens. */
#define TOKENS(k, L, axis)                                                                         \
    {HALF_ENTRY(instance, k, L, axis, 16), HALF_ENTRY(instance, k, L, axis, 16),                   \
     HALF_ENTRY(instance, k, L, axis, 64), HALF_ENTRY(instance, k, L, axis, 64),                   \
     HALF_ENTRY(instance, k, L, axis, 64)}

static const half_table entries = HALF_ENTRIES(TOKENS);

pleach_status half_mma_prepare(pleach_error *err)
{
    return half_prepare_all(entries, err);
}

void half_mma_run(const pl_cuda *d, const pl_cuda_trellis *w, const half_job &job, int tokens)
{
    half_launch(entries, d, w, job, tokens);
}
