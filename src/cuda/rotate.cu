/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows are cut into runs of whole blocks, one for a thread block each. Blocks of more than
 * PL_RUN_MOST numbers are transformed in such parts, the strides between those over global memory.
 */
#include "rotate.h"

#include <cmath>

#include "hadamard.cuh"

enum { RUN = 2048 }; /* numbers of a thread block, where blocks are not longer */

/* What comes before and after the butterflies of a run, in this order. */
typedef struct steps {
    const float *before; /* signs */
    float factor;
    const float *after; /* signs, then */
    const float *scale, *bias;
} steps;

static __device__ __forceinline__ float finish(const steps &s, float x, size_t at)
{
    x *= s.factor;
    if (s.after) x *= s.after[at];
    if (s.scale) x *= s.scale[at];
    if (s.bias) x = __fadd_rn(x, s.bias[at]);
    return x;
}

/* block: strides below it are taken here. */
static __global__ void __launch_bounds__(1024)
    rotate_runs(float *y, const float *x, size_t n, size_t run, size_t block, bool vector, steps s)
{
    extern __shared__ float shared[];
    size_t first = blockIdx.x * run, length = min(run, n - first);
    size_t at = (size_t)threadIdx.x * PL_RUN_OWN;
    float own[PL_RUN_OWN], signs[PL_RUN_OWN];
    if (s.before) pl_run_load(signs, s.before + first, at, length, vector);
    pl_let_next_start();
    pl_wait_for_previous();
    pl_run_load(own, x + blockIdx.y * n + first, at, length, vector);
    if (s.before)
#pragma unroll
        for (int i = 0; i < PL_RUN_OWN; i++) own[i] *= signs[i];
    pl_run_hadamard(own, length, block, shared);
#pragma unroll
    for (int i = 0; i < PL_RUN_OWN; i++)
        if (at + i < length) own[i] = finish(s, own[i], first + at + i);
    pl_run_store(y + blockIdx.y * n + first, own, at, length, vector);
}

/* One longer stride of rows in global memory. */
static __global__ void rotate_stride(float *x, size_t n, size_t stride, steps s)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, low = i & (stride - 1);
    size_t at = 2 * (i - low) + low;
    float *row = x + blockIdx.y * n;
    pl_let_next_start();
    pl_wait_for_previous();
    if (i >= n / 2) return;
    float a = row[at], b = row[at + stride];
    row[at] = finish(s, a + b, at);
    row[at + stride] = finish(s, a - b, at + stride);
}

static void launch(const pl_cuda *d, float *y, const float *x, size_t n, size_t M, size_t block,
                   const steps &s)
{
    enum { MOST_ROWS = 32768 }; /* of a launch: the grid's second dimension */
    size_t inner = block < PL_RUN_MOST ? block : PL_RUN_MOST;
    size_t run = pl_run_length(n, inner, RUN);
    bool vector =
        n % 4 == 0 && run % 4 == 0 && pl_aligned16(x) && pl_aligned16(y) && pl_aligned16(s.before);
    steps first = s, between = {NULL, 1.0f, NULL, NULL, NULL}, last = s;
    if (inner < block) {
        first = between;
        first.before = s.before;
        last.before = NULL;
    }
    for (size_t m = 0; m < M; m += MOST_ROWS) {
        unsigned rows = (unsigned)(M - m < MOST_ROWS ? M - m : MOST_ROWS);
        pl_launch(d, rotate_runs, dim3((unsigned)((n + run - 1) / run), rows), pl_run_threads(run),
                  pl_run_shared(run, inner), y + m * n, x + m * n, n, run, inner, vector, first);
        for (size_t stride = inner; stride < block; stride *= 2)
            pl_launch(d, rotate_stride, dim3((unsigned)((n / 2 + 255) / 256), rows), 256, 0,
                      y + m * n, n, stride, 2 * stride < block ? between : last);
    }
}

void pl_cuda_rotate(const pl_cuda *d, float *y, const float *x, size_t n, size_t M,
                    const pl_cuda_rotation *r)
{
    steps s = {r->signs, 1.0f / sqrtf((float)r->block), NULL, NULL, NULL};
    if (M && n) launch(d, y, x, n, M, r->block, s);
}

void pl_cuda_unrotate(const pl_cuda *d, float *y, size_t n, size_t M, const pl_cuda_rotation *r,
                      const float *scale, const float *bias)
{
    steps s = {NULL, 1.0f / sqrtf((float)r->block), r->signs, scale, bias};
    if (M && n) launch(d, y, y, n, M, r->block, s);
}
