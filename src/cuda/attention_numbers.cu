/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of rows alone on f32 and bf16 pages by tensor cores. */
#include "attention_numbers.cuh"

namespace attention {

enum { WARPS = 8 };

/* BLOCKS of a multiprocessor: two, with less in flight each, where rows are many. */
template <int KIND, int D, int BLOCKS>
static __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    numbers_kernel(const __grid_constant__ rows_args a)
{
    extern __shared__ __align__(16) float numbers_shared[];
    task t;
    if (!find_task(a, t)) {
        pl_wait_for_previous();
        return;
    }
    const warp_sums w = warp_sums_at(numbers_shared, WARPS, D);
    constexpr int C = D == 64 || BLOCKS == 2 || (KIND == F32 && D == 256) ? 64 : 128;
    attend_numbers<KIND, D, C>(a, t, a.c.pages, w);
    pl_let_next_start();
    finish<D>(a, t, w, w.out + WARPS * t.H * w.stride);
}

template <int D> static constexpr size_t shared_bytes()
{
    return sizeof(float) * WARPS * (2 * MOST_HEADS + MOST_HEADS * (D + PAD)) +
           sizeof(float) * MOST_HEADS * D;
}

template <int KIND> static cudaError_t allow()
{
    return cudaFuncSetAttribute(numbers_kernel<KIND, 256, 1>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)shared_bytes<256>());
}

pleach_status numbers_open(pl_cuda *d, pleach_error *err)
{
    (void)d;
    PL_TRY(pl_cuda_check(allow<F32>(), "preparing attention", err));
    return pl_cuda_check(allow<BF16>(), "preparing attention", err);
}

bool numbers_serve(pl_kv type, uint32_t head_dim)
{
    return !pl_kv_is_packed(type) && (head_dim == 64 || head_dim == 128 || head_dim == 256);
}

uint32_t numbers_blocks(uint32_t head_dim, bool few) { return few || head_dim > 128 ? 1 : 2; }

template <int KIND, int BLOCKS> static void run(const pl_cuda *d, const rows_args &a, dim3 grid)
{
    const dim3 block(32 * WARPS);
    if (a.c.head_dim == 64)
        pl_launch(d, numbers_kernel<KIND, 64, BLOCKS>, grid, block, shared_bytes<64>(), a);
    else if (a.c.head_dim == 128)
        pl_launch(d, numbers_kernel<KIND, 128, BLOCKS>, grid, block, shared_bytes<128>(), a);
    else
        pl_launch(d, numbers_kernel<KIND, 256, 1>, grid, block, shared_bytes<256>(), a);
}

void numbers_run(const pl_cuda *d, const rows_args &a, dim3 grid, bool few)
{
    if (a.c.type == PL_KV_F32)
        few ? run<F32, 1>(d, a, grid) : run<F32, 2>(d, a, grid);
    else
        few ? run<BF16, 1>(d, a, grid) : run<BF16, 2>(d, a, grid);
}

} // namespace attention
