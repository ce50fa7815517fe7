/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of rows alone on f32 and bf16 pages by tensor cores. */
#include "attention_numbers.cuh"

namespace attention {

enum { WARPS = 8 };

template <int KIND, int D>
static __global__ void __launch_bounds__(32 * WARPS, 1)
    numbers_kernel(const __grid_constant__ rows_args a)
{
    extern __shared__ __align__(16) float numbers_shared[];
    task t;
    pl_wait_for_previous();
    if (!find_task(a, t)) return;
    const warp_sums w = warp_sums_at(numbers_shared, WARPS, D);
    attend_numbers<KIND, D, D == 64 ? 64 : KIND == F32 && D == 256 ? 64 : 128>(a, t, a.c.pages, w);
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
    return cudaFuncSetAttribute(numbers_kernel<KIND, 256>,
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

template <int KIND> static void run(const pl_cuda *d, const rows_args &a, dim3 grid)
{
    const dim3 block(32 * WARPS);
    if (a.c.head_dim == 64)
        pl_launch(d, numbers_kernel<KIND, 64>, grid, block, shared_bytes<64>(), a);
    else if (a.c.head_dim == 128)
        pl_launch(d, numbers_kernel<KIND, 128>, grid, block, shared_bytes<128>(), a);
    else
        pl_launch(d, numbers_kernel<KIND, 256>, grid, block, shared_bytes<256>(), a);
}

void numbers_run(const pl_cuda *d, const rows_args &a, dim3 grid)
{
    if (a.c.type == PL_KV_F32)
        run<F32>(d, a, grid);
    else
        run<BF16>(d, a, grid);
}

} // namespace attention
