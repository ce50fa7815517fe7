/* SPDX-License-Identifier: Apache-2.0
 *
 * Hopper's barriers in shared memory and the bulk copies that arrive at them. Source: PTX ISA,
 * "mbarrier", "cp.async.bulk". */
#ifndef PL_CUDA_BULK_CUH
#define PL_CUDA_BULK_CUH

#include <cstdint>

#if __CUDA_ARCH__ >= 900

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void barrier_init(uint32_t b, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(arrivals) : "memory");
}

/* Arrives, and has the phase wait for `bytes` of copies, too. */
static __device__ __forceinline__ void barrier_expect(uint32_t b, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint32_t b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory");
}

static __device__ __forceinline__ void barrier_wait(uint32_t b, uint32_t parity)
{
    asm volatile("{.reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;}" ::"r"(b),
                 "r"(parity)
                 : "memory");
}

static __device__ __forceinline__ void bulk_copy(uint32_t dst, const void *src, uint32_t bytes,
                                                 uint32_t b)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(b)
                 : "memory");
}

/* What this thread has stored in shared memory is seen by copies and tensor cores that are ordered
 * after it by a barrier. */
static __device__ __forceinline__ void shared_for_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* A position in a ring of stages: its stage and the parity of its turn. */
template <int STAGES> struct ring {
    int stage;
    uint32_t parity = 0;
    __device__ __forceinline__ explicit ring(int first = 0) : stage(first) {}
    __device__ __forceinline__ void next(int by = 1)
    {
        if ((stage += by) >= STAGES) stage -= STAGES, parity ^= 1;
    }
};

#endif
#endif
