/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of rows alone in plain arithmetic: f32, bf16 and every packed type. L lanes share a
 * token, 8 numbers (an octet) or 16 each, so that a warp reads 32 / L tokens at a time; each such
 * part of a warp has a running softmax of its own. attention_packed.cu is faster for common codes. */
#include "attention_rows.cuh"

namespace attention {

template <int KIND, int L, int OCTETS, int H>
static __global__ void __launch_bounds__(256) rows_kernel(const __grid_constant__ rows_args a)
{
    extern __shared__ __align__(16) float shared[];
    __shared__ float centroids[256];
    task t;
    pl_wait_for_previous();
    if (!find_task(a, t)) return;
    const warp_sums w = warp_sums_at(shared, blockDim.x / 32, a.c.head_dim);
    if (KIND == PACKED && !t.recent) {
        for (uint32_t i = threadIdx.x; i < 1u << (a.c.type & 15); i += blockDim.x)
            centroids[i] = pl_tq.centroids[pl_tq_at(a.c.type & 15) + i];
        __syncthreads();
    }
    constexpr int U = KIND == PACKED ? 1 : OCTETS > 1 ? 2 : 4;
    if (KIND == PACKED && t.recent)
        attend_span<BF16, L, OCTETS, H, U>(a, t, a.c.recent_pages, centroids, w);
    else
        attend_span<KIND, L, OCTETS, H, U>(a, t, a.c.pages, centroids, w);
    finish<0>(a, t, w, w.out + blockDim.x / 32 * t.H * w.stride);
}

template <int KIND, int H> static void launch(const pl_cuda *d, const rows_args &a, dim3 grid)
{
    const uint32_t D = a.c.head_dim, W = 8;
    const size_t bytes = warp_sums_bytes(W, H, D) + sizeof(float) * MOST_HEADS * D;
#define LAUNCH(L, OCTETS)                                                                          \
    pl_launch(d, rows_kernel<KIND, L, OCTETS, H>, grid, dim3(32 * W), bytes, a)
    if (D <= 64)
        LAUNCH(8, 1);
    else if (D <= 128)
        LAUNCH(16, 1);
    else if (D <= 256)
        LAUNCH(32, 1);
    else
        LAUNCH(32, 2);
}

template <int KIND> static void launch(const pl_cuda *d, const rows_args &a, dim3 grid)
{
    if (a.group == 1)
        launch<KIND, 1>(d, a, grid);
    else
        launch<KIND, MOST_HEADS>(d, a, grid);
}

template <int KIND> static cudaError_t allow()
{
    return cudaFuncSetAttribute(rows_kernel<KIND, 32, 2, MOST_HEADS>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, 96 * 1024);
}

pleach_status rows_open(pl_cuda *d, pleach_error *err)
{
    static const char doing[] = "preparing attention";
    PL_TRY(pl_cuda_check(allow<F32>(), doing, err));
    PL_TRY(pl_cuda_check(allow<BF16>(), doing, err));
    PL_TRY(pl_cuda_check(allow<PACKED>(), doing, err));
    return pl_tq_upload(d, err);
}

void rows_run(const pl_cuda *d, const rows_args &a, dim3 grid)
{
    if (a.c.type == PL_KV_F32)
        launch<F32>(d, a, grid);
    else if (a.c.type == PL_KV_BF16)
        launch<BF16>(d, a, grid);
    else
        launch<PACKED>(d, a, grid);
}

} // namespace attention
