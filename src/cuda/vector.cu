/* SPDX-License-Identifier: Apache-2.0 */
#include "vector.h"

#include <cmath>

#include "hadamard.cuh"
#include "silu.cuh"

enum { WARP = 32, MOST_ROWS = 32768 /* of a launch: the grid's second dimension */ };

static __device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
    return x;
}

/* Of all threads of the block, in a fixed order; for all of them. */
static __device__ __forceinline__ float block_sum(float x)
{
    __shared__ float sums[WARP];
    unsigned lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    x = warp_sum(x);
    if (lane == 0) sums[threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_sum(lane < warps ? sums[lane] : 0.0f);
}

static bool rotates(const pl_cuda_rotation *r)
{
    return r && r->block;
}

/* ---- norm ------------------------------------------------------------------------------------ */

typedef struct norm_task {
    float *y, *x;
    const float *update, *gain, *signs;
    size_t n, run, block; /* block 0: no rotation */
    float eps, factor;
    bool vector;
} norm_task;

/* Adds the update to a run of x, which is written back. */
static __device__ __forceinline__ void load_and_add(const norm_task &t, float own[PL_RUN_OWN],
                                                    size_t row, size_t at)
{
    float update[PL_RUN_OWN];
    pl_run_load(own, t.x + row, at, t.n, t.vector);
    if (!t.update) return;
    pl_run_load(update, t.update + row, at, t.n, t.vector);
#pragma unroll
    for (int i = 0; i < PL_RUN_OWN; i++) own[i] += update[i];
    pl_run_store(t.x + row, own, at, t.n, t.vector);
}

/* What a run's numbers are multiplied by. */
typedef struct norm_factors {
    float gain[PL_RUN_OWN], signs[PL_RUN_OWN];
} norm_factors;

static __device__ __forceinline__ void load_factors(const norm_task &t, norm_factors &f, size_t at)
{
    pl_run_load(f.gain, t.gain, at, t.n, t.vector);
    if (t.block) pl_run_load(f.signs, t.signs, at, t.n, t.vector);
}

static __device__ __forceinline__ void norm_run(const norm_task &t, float own[PL_RUN_OWN],
                                                const norm_factors &f, size_t row, size_t first,
                                                float by, float *shared)
{
    size_t at = first + (size_t)threadIdx.x * PL_RUN_OWN, length = min(t.run, t.n - first);
#pragma unroll
    for (int i = 0; i < PL_RUN_OWN; i++) own[i] = own[i] * by * f.gain[i];
    if (t.block) {
#pragma unroll
        for (int i = 0; i < PL_RUN_OWN; i++) own[i] *= f.signs[i];
        pl_run_hadamard(own, length, t.block, shared);
#pragma unroll
        for (int i = 0; i < PL_RUN_OWN; i++) own[i] *= t.factor;
    }
    pl_run_store(t.y + row, own, at, first + length, t.vector);
}

/* A row for each thread block. A row of one run stays in registers, and its factors, which no cache
 * holds from step to step, are on their way before x is there; a longer one is read again. */
static __global__ void __launch_bounds__(1024) norm_rows(norm_task t)
{
    extern __shared__ float shared[];
    size_t row = blockIdx.x * t.n, own_at = (size_t)threadIdx.x * PL_RUN_OWN;
    float own[PL_RUN_OWN], sum = 0;
    norm_factors f;
    pl_let_next_start();
    if (t.run >= t.n) load_factors(t, f, own_at);
    pl_wait_for_previous();
    for (size_t first = 0; first < t.n; first += t.run) {
        size_t length = min(t.run, t.n - first);
        if (own_at >= length) continue;
        load_and_add(t, own, row, first + own_at);
#pragma unroll
        for (int i = 0; i < PL_RUN_OWN; i++)
            if (own_at + i < length) sum += own[i] * own[i];
    }
    float by = 1.0f / sqrtf(block_sum(sum) / (float)t.n + t.eps);
    for (size_t first = 0; first < t.n; first += t.run) {
        if (t.run < t.n) {
            pl_run_load(own, t.x + row, first + own_at, t.n, t.vector);
            load_factors(t, f, first + own_at);
        }
        norm_run(t, own, f, row, first, by, shared);
    }
}

void pl_cuda_rms_norm(const pl_cuda *d, float *y, float *x, const float *update, const float *gain,
                      size_t n, size_t M, float eps, const pl_cuda_rotation *r)
{
    bool here = rotates(r) && r->block <= PL_RUN_MOST && r->signs;
    size_t block = here ? r->block : 0, run = pl_run_length(n, here ? block : 8, PL_RUN_MOST);
    if (!M || !n) return;
    if (n < run || (!here && n <= PL_RUN_MOST)) run = n;
    norm_task t = {y,
                   x,
                   update,
                   gain,
                   here ? r->signs : NULL,
                   n,
                   run,
                   block,
                   eps,
                   here ? 1.0f / sqrtf((float)block) : 1.0f,
                   n % 4 == 0 && run % 4 == 0 && pl_aligned16(y) && pl_aligned16(x) &&
                       pl_aligned16(update) && pl_aligned16(gain) &&
                       (!here || pl_aligned16(r->signs))};
    pl_launch(d, norm_rows, dim3((unsigned)M), pl_run_threads(run), pl_run_shared(run, block), t);
    if (rotates(r) && !here) pl_cuda_rotate(d, y, y, n, M, r);
}

/* ---- rotary positions ------------------------------------------------------------------------ */

static __global__ void rope_table(float *cosine, float *sine, const int32_t *positions,
                                  const float *frequencies, size_t half, size_t M, float scale)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    pl_let_next_start();
    pl_wait_for_previous();
    if (i >= half * M) return;
    double s, c;
    sincos((double)((float)positions[i / half] * frequencies[i % half]), &s, &c);
    cosine[i] = (float)c * scale;
    sine[i] = (float)s * scale;
}

void pl_cuda_rope_table(const pl_cuda *d, float *cos, float *sin, const int32_t *positions,
                        const float *frequencies, size_t half, size_t M, float scale)
{
    if (!half || !M) return;
    pl_launch(d, rope_table, dim3((unsigned)((half * M + 127) / 128)), 128, 0, cos, sin, positions,
              frequencies, half, M, scale);
}

/* ---- element by element ---------------------------------------------------------------------- */

typedef struct silu_task {
    float *y;
    const float *gate, *up, *signs;
    size_t n, run, block;
    float factor;
    bool vector;
} silu_task;

static __global__ void __launch_bounds__(1024) silu_runs(silu_task t)
{
    extern __shared__ float shared[];
    size_t first = blockIdx.x * t.run, length = min(t.run, t.n - first);
    size_t at = (size_t)threadIdx.x * PL_RUN_OWN, row = blockIdx.y * t.n + first;
    float gate[PL_RUN_OWN], up[PL_RUN_OWN], signs[PL_RUN_OWN];
    if (t.signs) pl_run_load(signs, t.signs + first, at, length, t.vector);
    pl_let_next_start();
    pl_wait_for_previous();
    pl_run_load(gate, t.gate + row, at, length, t.vector);
    pl_run_load(up, t.up + row, at, length, t.vector);
#pragma unroll
    for (int i = 0; i < PL_RUN_OWN; i++) gate[i] = pl_silu_mul(gate[i], up[i]);
    if (t.block) {
        if (t.signs)
#pragma unroll
            for (int i = 0; i < PL_RUN_OWN; i++) gate[i] *= signs[i];
        pl_run_hadamard(gate, length, t.block, shared);
#pragma unroll
        for (int i = 0; i < PL_RUN_OWN; i++) gate[i] *= t.factor;
    }
    pl_run_store(t.y + row, gate, at, length, t.vector);
}

void pl_cuda_silu_mul(const pl_cuda *d, float *y, const float *gate, const float *up, size_t n,
                      size_t M, const pl_cuda_rotation *r)
{
    enum { RUN = 1024 };
    bool here = rotates(r) && r->block <= PL_RUN_MOST;
    size_t block = here ? r->block : 0, run = pl_run_length(n, here ? block : 8, RUN);
    if (!n) return;
    silu_task t = {y,
                   gate,
                   up,
                   here ? r->signs : NULL,
                   n,
                   run,
                   block,
                   here ? 1.0f / sqrtf((float)block) : 1.0f,
                   n % 4 == 0 && run % 4 == 0 && pl_aligned16(y) && pl_aligned16(gate) &&
                       pl_aligned16(up) && (!here || pl_aligned16(r->signs))};
    for (size_t m = 0; m < M; m += MOST_ROWS) {
        unsigned rows = (unsigned)(M - m < MOST_ROWS ? M - m : MOST_ROWS);
        pl_launch(d, silu_runs, dim3((unsigned)((n + run - 1) / run), rows), pl_run_threads(run),
                  pl_run_shared(run, block), t);
        t.y += MOST_ROWS * n;
        t.gate += MOST_ROWS * n;
        t.up += MOST_ROWS * n;
    }
    if (rotates(r) && !here && M) pl_cuda_rotate(d, y, y, n, M, r);
}

static __global__ void add_numbers(float *y, const float *x, size_t n)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    pl_let_next_start();
    pl_wait_for_previous();
    for (; i < n; i += (size_t)gridDim.x * blockDim.x) y[i] += x[i];
}

void pl_cuda_add(const pl_cuda *d, float *y, const float *x, size_t n)
{
    size_t blocks = (n + 255) / 256, most = (size_t)d->sms * 16;
    if (n)
        pl_launch(d, add_numbers, dim3((unsigned)(blocks < most ? blocks : most)), 256, 0, y, x, n);
}

/* ---- argmax ---------------------------------------------------------------------------------- */

enum { PART = 8192 }; /* numbers of a thread block */

enum : unsigned { INFINITE = 0xff800000u, MINUS_INFINITE = 0x007fffffu }; /* as they are ordered */

/* Larger for a larger number, NaN above all, then for a lower place. */
static __device__ __forceinline__ unsigned long long rank(float x, size_t i)
{
    unsigned bits = __float_as_uint(x + 0.0f); /* -0 becomes 0 */
    unsigned order = bits >> 31 ? ~bits : bits | 0x80000000u;
    if (x != x) order = ~0u;
    return (unsigned long long)order << 32 | (0xffffffffu - (unsigned)i);
}

static __device__ __forceinline__ unsigned long long block_max(unsigned long long best)
{
    __shared__ unsigned long long most[WARP];
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2) {
        unsigned long long other = __shfl_xor_sync(~0u, best, lanes);
        best = other > best ? other : best;
    }
    if (threadIdx.x % WARP == 0) most[threadIdx.x / WARP] = best;
    __syncthreads();
    for (unsigned i = 0; i < blockDim.x / WARP; i++) best = most[i] > best ? most[i] : best;
    return best;
}

static __global__ void argmax_parts(unsigned long long *ranks, const float *x, size_t n)
{
    size_t first = (size_t)blockIdx.x * PART, end = min(first + PART, n);
    unsigned long long best = 0;
    pl_let_next_start();
    pl_wait_for_previous();
    for (size_t i = first + threadIdx.x; i < end; i += blockDim.x) {
        unsigned long long r = rank(x[blockIdx.y * n + i], i);
        best = r > best ? r : best;
    }
    best = block_max(best);
    if (threadIdx.x == 0) ranks[blockIdx.y * gridDim.x + blockIdx.x] = best;
}

static __global__ void argmax_rows(int32_t *ids, const unsigned long long *ranks, size_t parts)
{
    unsigned long long best = 0;
    pl_let_next_start();
    pl_wait_for_previous();
    for (size_t i = threadIdx.x; i < parts; i += WARP) {
        unsigned long long r = ranks[blockIdx.x * parts + i];
        best = r > best ? r : best;
    }
    best = block_max(best);
    unsigned order = (unsigned)(best >> 32);
    bool finite = order < INFINITE && order > MINUS_INFINITE;
    if (threadIdx.x == 0) ids[blockIdx.x] = finite ? (int32_t)(0xffffffffu - (unsigned)best) : -1;
}

size_t pl_cuda_argmax_scratch(size_t n, size_t M)
{
    return (n + PART - 1) / PART * M * sizeof(unsigned long long);
}

void pl_cuda_argmax(const pl_cuda *d, int32_t *ids, const float *x, size_t n, size_t M,
                    void *scratch)
{
    size_t parts = (n + PART - 1) / PART;
    unsigned long long *ranks = (unsigned long long *)scratch;
    if (!n) return;
    for (size_t m = 0; m < M; m += MOST_ROWS) {
        unsigned rows = (unsigned)(M - m < MOST_ROWS ? M - m : MOST_ROWS);
        pl_launch(d, argmax_parts, dim3((unsigned)parts, rows), 512, 0, ranks + m * parts,
                  x + m * n, n);
        pl_launch(d, argmax_rows, dim3(rows), WARP, 0, ids + m, ranks + m * parts, parts);
    }
}
