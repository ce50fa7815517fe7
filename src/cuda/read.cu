/* SPDX-License-Identifier: Apache-2.0 */
#include "launch.cuh"
#include "read.h"

enum { THREADS = 512, BLOCKS_PER_SM = 4, AT_ONCE = 4 };

static __global__ void __launch_bounds__(THREADS) read_all(const uint4 *p, size_t n, uint4 *sink)
{
    const size_t stride = (size_t)gridDim.x * THREADS;
    uint4 all = make_uint4(~0u, ~0u, ~0u, ~0u);
    pl_let_next_start();
    pl_wait_for_previous();
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += AT_ONCE * stride) {
        uint4 v[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            v[j] = i + j * stride < n ? __ldcs(p + i + j * stride) : all;
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            all.x &= v[j].x;
            all.y &= v[j].y;
            all.z &= v[j].z;
            all.w &= v[j].w;
        }
    }
    if ((all.x & all.y & all.z & all.w) == ~0u) *sink = all;
}

void pl_cuda_read(const pl_cuda *d, const void *p, size_t bytes, void *sink)
{
    pl_launch(d, read_all, dim3(BLOCKS_PER_SM * d->sms), dim3(THREADS), 0, (const uint4 *)p,
              bytes / 16, (uint4 *)sink);
}
