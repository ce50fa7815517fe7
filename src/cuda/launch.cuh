/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching a kernel on a device's stream, chained to the one before where the device has that
 * switched on, and the two instructions by which a chained kernel behaves. */
#ifndef PL_CUDA_LAUNCH_CUH
#define PL_CUDA_LAUNCH_CUH

#include "device.h"

/* Whoever launches more than 48 KB of shared memory has opted in when the device was opened
 * (cudaFuncSetAttribute). */
template <typename... Params, typename... Args>
static inline void pl_launch(const pl_cuda *d, void (*kernel)(Params...), dim3 grid, dim3 block,
                             size_t shared, Args... args)
{
    cudaLaunchAttribute chained = {};
    chained.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    chained.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = d->stream;
    config.attrs = &chained;
    config.numAttrs = d->chained && d->capability >= 90;
    cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

/* The next kernel may be started: nothing it reads before its own wait is written after this. */
static __device__ __forceinline__ void pl_let_next_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Everything queued before has ended and its results are visible. Every kernel that reads or writes
 * what another one writes or reads calls it first. */
static __device__ __forceinline__ void pl_wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#endif
