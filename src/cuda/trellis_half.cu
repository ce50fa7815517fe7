/* SPDX-License-Identifier: Apache-2.0 */
#include "trellis_half.cuh"

namespace
{

/* ---- activations to fp16 --------------------------------------------------------------------- */

enum { THREADS = 512, MOST_SLICES = 16 };

template <bool MAX> __device__ float over_block(float v)
{
    __shared__ float part[THREADS / 32];
    for (int i = 16; i; i /= 2) {
        float u = __shfl_xor_sync(~0u, v, i);
        v = MAX ? fmaxf(v, u) : v + u;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
    for (int i = 1; i < THREADS / 32; i++) v = MAX ? fmaxf(v, part[i]) : v + part[i];
    return v;
}

/* Numbers i .. i + n - 1 of a token, i a multiple of n, padding included. VECTORS: x lies in 16
 * bytes and there are a multiple of 8 of them. */
template <int AXIS, bool VECTORS, int n>
__device__ __forceinline__ void inputs(const half_inputs &p, const float *x, int i, float (&v)[n])
{
    if constexpr (VECTORS && n == 4) {
        float4 u = i < p.in ? *reinterpret_cast<const float4 *>(x + i) : float4{};
        v[0] = u.x, v[1] = u.y, v[2] = u.z, v[3] = u.w;
    } else if constexpr (VECTORS) {
        float2 u = i < p.in ? *reinterpret_cast<const float2 *>(x + i) : float2{};
        v[0] = u.x, v[1] = u.y;
    } else {
#pragma unroll
        for (int j = 0; j < n; j++) v[j] = i + j < p.in ? x[i + j] : 0.0f;
    }
    if constexpr (AXIS == 0 && VECTORS && n == 4) {
        float4 u = i < p.in ? *reinterpret_cast<const float4 *>(p.scales + i) : float4{};
        v[0] *= u.x, v[1] *= u.y, v[2] *= u.z, v[3] *= u.w;
    } else if constexpr (AXIS == 0) {
#pragma unroll
        for (int j = 0; j < n; j++) v[j] *= i + j < p.in ? p.scales[i + j] : 0.0f;
    }
}

/* Eight numbers of half i % 2 of step i / 2, and their sum. RUNS: in trellis_tiles' order of k. */
template <int AXIS, bool RUNS, bool VECTORS>
__device__ __forceinline__ uint4 piece(const half_inputs &p, const float *x, int i, float scale,
                                       float &sum)
{
    __half2 h[4];
    float v[8];
    if constexpr (AXIS == 0 || RUNS) {
        int first = AXIS == 0 ? 8 * i : i / 32 * 256 + i / 2 % 4 * 64 + i % 32 / 8 * 16 + i % 2 * 8;
        float upper[4], lower[4];
        inputs<AXIS, VECTORS, 4>(p, x, first, lower);
        inputs<AXIS, VECTORS, 4>(p, x, first + 4, upper);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            v[RUNS ? j : 2 * j] = lower[j];
            v[RUNS ? j + 4 : 2 * j + 1] = upper[j];
        }
    } else {
#pragma unroll
        for (int kk = 0; kk < 4; kk++) {
            float pair[2];
            inputs<1, VECTORS, 2>(p, x, i / 32 * 256 + 254 - 64 * kk - 2 * (i % 32), pair);
            v[2 * kk] = pair[1], v[2 * kk + 1] = pair[0];
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        h[j] = __floats2half2_rn(v[2 * j] * scale, v[2 * j + 1] * scale);
        sum += __low2float(h[j]) + __high2float(h[j]);
    }
    return *reinterpret_cast<uint4 *>(h);
}

/* 2^e that takes max to 2^14 .. 2^15; e at most 126. */
__device__ __forceinline__ int exponent_for(float max)
{
    int e = max > 0 && max < INFINITY ? 14 - ((int)(__float_as_uint(max) >> 23) - 127) : 0;
    return e > 126 ? 126 : e;
}

/* A token is laid out by `slices` blocks of x, and where they are several added up by one more. All
 * of them look for its largest number, NaN left out. */
template <int AXIS, bool RUNS, bool VECTORS>
__global__ void __launch_bounds__(THREADS) half_inputs_kernel(const half_inputs p)
{
    int m = blockIdx.y, slices = gridDim.x > 1 ? gridDim.x - 1 : 1, rank = blockIdx.x;
    int padded = p.steps * 16, tile = m / p.tokens;
    int tokens = (tile + 1) * p.tokens <= p.M ? p.tokens : p.rest;
    const float *x = p.x + m * p.x_stride;
    float max = 0, sum = 0, v[4];
    pl_let_next_start();
    pl_wait_for_previous();
#pragma unroll 4
    for (int i = 4 * threadIdx.x; i < p.in; i += 4 * THREADS) {
        inputs<AXIS, VECTORS, 4>(p, x, i, v);
        max = fmaxf(fmaxf(max, fmaxf(fabsf(v[0]), fabsf(v[1]))), fmaxf(fabsf(v[2]), fabsf(v[3])));
    }
    max = over_block<true>(max);
    int e = exponent_for(max);
    float scale = __uint_as_float((uint32_t)(127 + e) << 23);
    /* [step][tokens / 8][2][8 tokens] pieces */
    uint4 *to = reinterpret_cast<uint4 *>(p.image + (size_t)tile * p.tokens * padded);
    to += m % p.tokens / 8 * 16 + m % 8;
    /* The sum has the same order whoever makes it. */
    int pieces = padded / 8, adds = rank == slices;
    int begin = adds ? 0 : pieces * rank / slices, end = adds ? pieces : pieces * (rank + 1) / slices;
    for (int i = begin + threadIdx.x; i < end; i += THREADS) {
        uint4 v = piece<AXIS, RUNS, VECTORS>(p, x, i, scale, sum);
        if (!adds) to[(size_t)(i / 2) * 2 * tokens + i % 2 * 8] = v;
    }
    if (rank + 1 < (int)gridDim.x) return;
    sum = over_block<false>(sum);
    if (threadIdx.x == 0) {
        p.sums[m] = sum;
        p.unscales[m] = __uint_as_float((uint32_t)(127 - e) << 23);
    }
    if (m == 0)
        for (int i = threadIdx.x; i < p.n_flags; i += THREADS) p.flags[i] = 0;
}

template <int AXIS, bool RUNS> void lay_out(const pl_cuda *d, const half_inputs &p)
{
    int slices = 128 / p.M < 3 ? 1 : 128 / p.M > MOST_SLICES ? MOST_SLICES : 128 / p.M;
    bool vectors = ((uintptr_t)p.x | 4 * p.x_stride) % 16 == 0 && p.in % 8 == 0;
    pl_launch(d,
              vectors ? half_inputs_kernel<AXIS, RUNS, true>
                      : half_inputs_kernel<AXIS, RUNS, false>,
              dim3(slices > 1 ? slices + 1 : 1, p.M), dim3(THREADS), 0, p);
}

} /* namespace */

/* About as many blocks as there are multiprocessors. */
void half_lay_out(const pl_cuda *d, unsigned axis, bool runs, const half_inputs &p)
{
    (axis ? runs ? lay_out<1, true> : lay_out<1, false>
          : runs ? lay_out<0, true> : lay_out<0, false>)(d, p);
}

namespace
{

/* ---- scratch --------------------------------------------------------------------------------- */

/* Sizes of the products with up to GROUP tokens, and where their parts lie in scratch. */
enum { GROUP = 1024 };

struct plan {
    int tiles, pieces, steps, blocks, tokens, launches, rest;
    size_t image, sums, unscales, flags, partials, bytes;
};

size_t align_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Tokens that a launch for n has room for: without wgmma 16 or 64. */
int room_for(const pl_cuda *d, size_t n, int least)
{
    int room = least;
    if (d->capability != 90) return n <= 16 ? 16 : 64;
    while ((size_t)room < n) room *= 2;
    return room;
}

/* Axis 0 adds up k in 4, 2 or 1 classes for up to 16, 64, 128 tokens: one way of them for every M
 * where results may not depend on it. */
plan plan_of(const pl_cuda *d, const pl_cuda_trellis *w, size_t M)
{
    plan p;
    bool one_way = d->batch_invariant && w->shape.axis == 0;
    size_t k = w->shape.axis ? w->shape.cols : w->shape.rows;
    size_t outputs = w->shape.axis ? w->shape.rows : w->shape.cols;
    p.tiles = (int)((outputs + HALF_OUTPUTS - 1) / HALF_OUTPUTS);
    p.pieces = (int)((k + HALF_K - 1) / HALF_K);
    p.steps = HALF_STEPS * p.pieces;
    p.blocks = half_blocks(d, p.tiles * p.pieces);
    p.tokens = one_way || d->capability != 90 ? 64 : HALF_TOKENS;
    p.launches = (int)((M + p.tokens - 1) / p.tokens);
    p.rest = room_for(d, M - (size_t)(p.launches - 1) * p.tokens, one_way ? 32 : 8);
    size_t tokens = (size_t)(p.launches - 1) * p.tokens + p.rest;
    p.image = 0;
    p.sums = align_up(2 * tokens * 16 * p.steps);
    p.unscales = p.sums + align_up(4 * tokens);
    p.flags = p.unscales + align_up(4 * tokens);
    p.partials = p.flags + align_up(4 * (size_t)2 * p.blocks * p.launches);
    size_t widest = p.launches > 1 ? p.tokens : p.rest;
    p.bytes = p.partials + 2 * (size_t)p.blocks * HALF_OUTPUTS * widest * 4;
    return p;
}

void run_group(const pl_cuda *d, const pl_cuda_product *p, char *base)
{
    const pl_cuda_trellis *w = p->w;
    plan s = plan_of(d, w, p->M);
    half_inputs in = {p->x, w->scales, p->x_stride, (__half *)(base + s.image),
                      (float *)(base + s.sums), (float *)(base + s.unscales),
                      (unsigned *)(base + s.flags), (int)p->M, (int)p->in, s.steps,
                      2 * s.blocks * s.launches, s.tokens, s.rest};
    half_lay_out(d, w->shape.axis, false, in);
    for (int i = 0; i < s.launches; i++) {
        size_t m = (size_t)i * s.tokens;
        bool last = i + 1 == s.launches;
        half_job job = {};
        job.codes = w->codes;
        job.scales = w->shape.axis ? w->scales : NULL;
        job.image = in.image + m * 16 * s.steps;
        job.sums = in.sums + m;
        job.unscales = in.unscales + m;
        job.y = p->y + m * p->y_stride;
        job.y_stride = p->y_stride;
        job.output_scale = p->output_scale;
        job.bias = p->bias;
        job.partials = (float *)(base + s.partials);
        job.flags = in.flags + 2 * s.blocks * i;
        job.M = last ? (int)(p->M - m) : s.tokens;
        job.out = (int)p->out;
        job.tiles = s.tiles;
        job.pieces = s.pieces;
        job.unit_rows = (int)((w->shape.rows + 15) / 16);
        job.blocks = (int)(w->shape.cols / 256);
        job.aligned = ((uintptr_t)job.y | 4 * job.y_stride) % 16 == 0;
        (d->capability == 90 ? half_wgmma_run : half_mma_run)(d, w, job, last ? s.rest : s.tokens);
    }
}

} /* namespace */

pleach_status pl_cuda_trellis_half_prepare(pl_cuda *d, pleach_error *err)
{
    PL_TRY(half_mma_prepare(err));
    return d->capability == 90 ? half_wgmma_prepare(err) : PLEACH_OK;
}

bool pl_cuda_trellis_half_serves(const pl_cuda *d, const pl_cuda_trellis *w, size_t M)
{
    (void)d;
    (void)M;
    return w->units && w->shape.rows && w->shape.cols;
}

size_t pl_cuda_trellis_half_scratch(const pl_cuda *d, const pl_cuda_trellis *w, size_t M)
{
    return M ? plan_of(d, w, M < GROUP ? M : GROUP).bytes : 0;
}

void pl_cuda_trellis_half_run(const pl_cuda *d, const pl_cuda_product *p, void *scratch)
{
    for (size_t m = 0; m < p->M; m += GROUP) {
        pl_cuda_product group = *p;
        group.M = p->M - m < GROUP ? p->M - m : GROUP;
        group.x += m * p->x_stride;
        group.y += m * p->y_stride;
        if (p->out) run_group(d, &group, (char *)scratch);
    }
}
