/* SPDX-License-Identifier: Apache-2.0
 *
 * Walsh-Hadamard transforms inside one thread block: thread t holds numbers 8 t .. 8 t + 7 of a
 * run. Strides 1, 2, 4 are taken in registers, up to 128 by shuffles, longer ones in shared memory,
 * each as a + b and a - b in the CPU's order, so that the bits are the CPU's. */
#ifndef PL_CUDA_HADAMARD_CUH
#define PL_CUDA_HADAMARD_CUH

#include "launch.cuh"

enum { PL_RUN_OWN = 8, PL_RUN_MOST = 8192 }; /* numbers of a thread and, at most, of a run */

static inline bool pl_aligned16(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* Threads for a run of n numbers. */
static inline unsigned pl_run_threads(size_t n)
{
    return (unsigned)((n + 32 * PL_RUN_OWN - 1) / (32 * PL_RUN_OWN) * 32);
}

/* Numbers of the runs into which rows of n are cut: whole blocks, at most `most` where a block is
 * not longer. */
static inline size_t pl_run_length(size_t n, size_t block, size_t most)
{
    size_t run = most / block * block;
    return run == 0 ? block : run < n ? run : n;
}

/* Bytes of shared memory for a run transformed in such blocks. */
static inline size_t pl_run_shared(size_t run, size_t block)
{
    return block > 256 ? run * sizeof(float) : 0;
}

/* own[i] = p[at + i] where that lies before n, else 0. vector: p + at is 16-byte aligned. */
static __device__ __forceinline__ void pl_run_load(float own[PL_RUN_OWN], const float *p, size_t at,
                                                   size_t n, bool vector)
{
    if (vector && at + PL_RUN_OWN <= n) {
        float4 a = *(const float4 *)(p + at), b = *(const float4 *)(p + at + 4);
        own[0] = a.x, own[1] = a.y, own[2] = a.z, own[3] = a.w;
        own[4] = b.x, own[5] = b.y, own[6] = b.z, own[7] = b.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < PL_RUN_OWN; i++) own[i] = at + i < n ? p[at + i] : 0.0f;
}

static __device__ __forceinline__ void pl_run_store(float *p, const float own[PL_RUN_OWN],
                                                    size_t at, size_t n, bool vector)
{
    if (vector && at + PL_RUN_OWN <= n) {
        *(float4 *)(p + at) = make_float4(own[0], own[1], own[2], own[3]);
        *(float4 *)(p + at + 4) = make_float4(own[4], own[5], own[6], own[7]);
        return;
    }
#pragma unroll
    for (int i = 0; i < PL_RUN_OWN; i++)
        if (at + i < n) p[at + i] = own[i];
}

static __device__ __forceinline__ void pl_butterflies(float own[PL_RUN_OWN], size_t block)
{
#pragma unroll
    for (int stride = 1; stride < PL_RUN_OWN; stride *= 2) {
        if (stride >= block) break;
#pragma unroll
        for (int i = 0; i < PL_RUN_OWN; i++)
            if (!(i & stride)) {
                float a = own[i], b = own[i + stride];
                own[i] = a + b;
                own[i + stride] = a - b;
            }
    }
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
        if (lanes * PL_RUN_OWN >= block) break;
        bool upper = threadIdx.x & lanes;
#pragma unroll
        for (int i = 0; i < PL_RUN_OWN; i++) {
            float other = __shfl_xor_sync(~0u, own[i], lanes);
            own[i] = upper ? other - own[i] : own[i] + other;
        }
    }
}

/* One stride over a run in shared memory, or anywhere. */
static __device__ __forceinline__ void pl_stride(float *x, size_t n, size_t stride)
{
    for (size_t i = threadIdx.x; i < n / 2; i += blockDim.x) {
        size_t low = i & (stride - 1), at = 2 * (i - low) + low;
        float a = x[at], b = x[at + stride];
        x[at] = a + b;
        x[at + stride] = a - b;
    }
}

/* The transform, without its factor, of a run of n numbers (whole blocks, held by whole warps)
 * whose block is at most PL_RUN_MOST. All threads call it; shared is pl_run_shared bytes. */
static __device__ __forceinline__ void pl_run_hadamard(float own[PL_RUN_OWN], size_t n,
                                                       size_t block, float *shared)
{
    size_t at = (size_t)threadIdx.x * PL_RUN_OWN;
    pl_butterflies(own, block);
    if (block <= 256) return;
    __syncthreads(); /* the run before has been read */
    pl_run_store(shared, own, at, n, true);
    for (size_t stride = 256; stride < block; stride *= 2) {
        __syncthreads();
        pl_stride(shared, n, stride);
    }
    __syncthreads();
    pl_run_load(own, shared, at, n, true);
}

#endif
