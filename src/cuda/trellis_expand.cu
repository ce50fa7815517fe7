/* SPDX-License-Identifier: Apache-2.0 */
#include "trellis_expand.h"

#include <cuda_bf16.h>

#include "kernels/expand_factor.h"
#include "launch.cuh"

namespace
{

constexpr float DIVISOR = 147.800537109375f, FACTOR = 1.0f / 147.800537109375f;
enum { THREADS = 256, GROUP = 8 }; /* columns of a thread; rows that it takes one after another */

/* Where the words lie: as stored, or in units of one of the axes. */
enum layout { STORED, UNITS_0, UNITS_1 };

struct matrix {
    const uint32_t *codes;
    const float *scales;
    uint32_t block, words; /* T, and its words */
    uint32_t mask;
    uint64_t rows, blocks; /* blocks of a row */
};

/* Word j of block b of row r. */
template <int BITS, layout LAYOUT>
__device__ __forceinline__ const uint32_t *word_at(const matrix &w, uint64_t r, uint64_t b,
                                                   uint32_t j)
{
    if (LAYOUT == STORED) return w.codes + (r * w.blocks + b) * w.words + j;
    uint32_t rr = (uint32_t)r % 16, lane, flat;
    uint64_t unit;
    if (LAYOUT == UNITS_1) {
        lane = rr % 8 * 4 + j / (2 * BITS);
        flat = rr / 8 * (2 * BITS) + j % (2 * BITS);
        unit = r / 16 * w.blocks + b;
    } else {
        lane = j / BITS * 4 + rr % 4;
        flat = rr / 4 * BITS + j % BITS;
        unit = b * ((w.rows + 15) / 16) + r / 16;
    }
    return w.codes + unit * (128 * BITS) + flat / 4 * 128 + lane * 4 + flat % 4;
}

/* y as f32, exact, of the state in the low bits of x. */
__device__ __forceinline__ float code(uint32_t x, uint32_t mask)
{
    uint32_t bits = __dp4a((x & mask) * 34038481u + 76625530u, 0x01010101u, 0x4b000000u);
    return __uint_as_float(bits) - 8389118.0f; /* 2^23 + 510 */
}

/* The division correctly rounded: a product with the reciprocal and one step of its remainder give
 * its bits for every y. */
__device__ __forceinline__ float quotient(float y)
{
    float q = __fmul_rn(y, FACTOR);
    return fmaf(fmaf(-q, DIVISOR, y), FACTOR, q);
}

/* A row's scale, and what multiplies y instead of the division and it; 0 where nothing does. */
struct row_scale {
    float scale, factor;
};

__device__ __forceinline__ void store(uint16_t *dst, const float (&y)[8], row_scale row)
{
    __nv_bfloat162 v[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (row.factor != 0)
            v[i] = __floats2bfloat162_rn(__fmul_rn(y[2 * i], row.factor),
                                         __fmul_rn(y[2 * i + 1], row.factor));
        else
            v[i] = __floats2bfloat162_rn(__fmul_rn(quotient(y[2 * i]), row.scale),
                                         __fmul_rn(quotient(y[2 * i + 1]), row.scale));
    *reinterpret_cast<uint4 *>(dst) = *reinterpret_cast<uint4 *>(v);
}

__device__ __forceinline__ void store(float *dst, const float (&y)[8], row_scale row)
{
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = __fmul_rn(__fmul_rn(y[i], FACTOR), row.scale);
    reinterpret_cast<float4 *>(dst)[0] = make_float4(v[0], v[1], v[2], v[3]);
    reinterpret_cast<float4 *>(dst)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

/* Word j of block b of the rows of a group, whose first is a multiple of 8. */
template <int BITS, layout LAYOUT> struct group_words {
    const uint32_t *at[2];
    uint64_t step;
    __device__ __forceinline__ group_words(const matrix &w, uint64_t r0, uint64_t b, uint32_t j)
    {
        at[0] = word_at<BITS, LAYOUT>(w, r0, b, j);
        at[1] = word_at<BITS, LAYOUT>(w, r0 + 4, b, j);
        step = w.blocks * w.words;
    }
    __device__ __forceinline__ uint32_t load(int i) const
    {
        if (LAYOUT == STORED) return __ldg(at[0] + i * step);
        return __ldg(LAYOUT == UNITS_1 ? at[0] + 16 * i : at[i / 4] + i % 4 * 4);
    }
};

/* Eight columns c .. c + 7 of a thread are eight positions of a block, descending: the windows of
 * at most two words. Rows come in groups of eight, of which a unit has two. */
template <int BITS, layout LAYOUT, class OUT>
__global__ void __launch_bounds__(THREADS)
    expand_kernel(const matrix w, uint64_t first, uint64_t n, OUT *dst, uint64_t stride)
{
    __shared__ row_scale rows[GROUP];
    uint64_t c = 8 * ((uint64_t)blockIdx.x * THREADS + threadIdx.x), b = c / w.block;
    uint32_t bit = (w.block - 8 - (uint32_t)(c - b * w.block)) * BITS, j = bit / 32;
    uint32_t after = j + 1 == w.words ? 0 : j + 1, shift = bit % 32;
    bool inside = c < w.blocks * w.block;
    pl_let_next_start();
    pl_wait_for_previous();
    for (uint64_t r0 = first / GROUP * GROUP + (uint64_t)blockIdx.y * GROUP; r0 < first + n;
         r0 += (uint64_t)gridDim.y * GROUP) {
        __syncthreads();
        if (threadIdx.x < GROUP && r0 + threadIdx.x < w.rows) {
            float scale = w.scales[r0 + threadIdx.x];
            rows[threadIdx.x] = {scale, pl_has_expand_factor(scale) ? pl_expand_factor(scale) : 0};
        }
        __syncthreads();
        if (!inside) continue;
        group_words<BITS, LAYOUT> here(w, r0, b, j), there(w, r0, b, after);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            uint64_t r = r0 + i;
            if (r < first || r >= first + n) continue;
            uint32_t lo = here.load(i), hi = there.load(i);
            uint32_t run[2] = {__funnelshift_r(lo, hi, shift), hi >> shift};
            float y[8];
#pragma unroll
            for (int p = 0; p < 8; p++)
                y[7 - p] = code(__funnelshift_r(run[0], run[1], BITS * p), w.mask);
            store(dst + (r - first) * stride + c, y, rows[i]);
        }
    }
}

/* One number of the matrix W' a thread. */
template <int BITS, layout LAYOUT>
__global__ void __launch_bounds__(THREADS)
    rows_kernel(const matrix w, bool axis, const int32_t *ids, float *dst, uint64_t in)
{
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    pl_let_next_start();
    pl_wait_for_previous();
    if (i >= in) return;
    uint64_t id = (uint64_t)ids[blockIdx.y], r = axis ? id : i, c = axis ? i : id;
    uint64_t b = c / w.block;
    uint32_t bit = (w.block - 1 - (uint32_t)(c - b * w.block)) * BITS, j = bit / 32;
    uint32_t after = j + 1 == w.words ? 0 : j + 1;
    uint32_t window = __funnelshift_r(__ldg(word_at<BITS, LAYOUT>(w, r, b, j)),
                                      __ldg(word_at<BITS, LAYOUT>(w, r, b, after)), bit % 32);
    dst[blockIdx.y * in + i] = __fmul_rn(__fmul_rn(code(window, w.mask), FACTOR), w.scales[r]);
}

matrix matrix_of(const pl_cuda_trellis *w)
{
    const pleach_trellis *t = &w->shape;
    return {
        w->codes, w->scales,         t->block, t->block * t->bits / 32, (1u << t->state_bits) - 1,
        t->rows,  t->cols / t->block};
}

/* call(bits, layout) with both as constants. */
template <template <int, layout> class CALL, class... Args>
void dispatch(const pl_cuda_trellis *w, Args... args)
{
    layout l = !w->units ? STORED : w->shape.axis ? UNITS_1 : UNITS_0;
    switch (3 * w->shape.bits + l) {
    case 3 * 2 + STORED:
        return CALL<2, STORED>::run(args...);
    case 3 * 2 + UNITS_0:
        return CALL<2, UNITS_0>::run(args...);
    case 3 * 2 + UNITS_1:
        return CALL<2, UNITS_1>::run(args...);
    case 3 * 3 + STORED:
        return CALL<3, STORED>::run(args...);
    case 3 * 3 + UNITS_0:
        return CALL<3, UNITS_0>::run(args...);
    case 3 * 3 + UNITS_1:
        return CALL<3, UNITS_1>::run(args...);
    case 3 * 4 + STORED:
        return CALL<4, STORED>::run(args...);
    case 3 * 4 + UNITS_0:
        return CALL<4, UNITS_0>::run(args...);
    case 3 * 4 + UNITS_1:
        return CALL<4, UNITS_1>::run(args...);
    }
}

template <int BITS, layout LAYOUT> struct expand_call {
    template <class OUT>
    static void run(const pl_cuda *d, const pl_cuda_trellis *w, size_t first, size_t n, OUT *dst,
                    size_t stride)
    {
        size_t columns = (w->shape.cols / 8 + THREADS - 1) / THREADS;
        size_t groups = (first + n + GROUP - 1) / GROUP - first / GROUP;
        dim3 grid((unsigned)columns, (unsigned)(groups < 65535 ? groups : 65535));
        pl_launch(d, expand_kernel<BITS, LAYOUT, OUT>, grid, dim3(THREADS), 0, matrix_of(w), first,
                  n, dst, stride);
    }
};

template <int BITS, layout LAYOUT> struct rows_call {
    static void run(const pl_cuda *d, const pl_cuda_trellis *w, const int32_t *ids, size_t n,
                    float *dst, size_t in)
    {
        for (size_t i = 0; i < n; i += 65535) {
            unsigned some = (unsigned)(n - i < 65535 ? n - i : 65535);
            dim3 grid((unsigned)((in + THREADS - 1) / THREADS), some);
            pl_launch(d, rows_kernel<BITS, LAYOUT>, grid, dim3(THREADS), 0, matrix_of(w),
                      w->shape.axis == 1, ids + i, dst + i * in, in);
        }
    }
};

} /* namespace */

void pl_cuda_trellis_expand(const pl_cuda *d, const pl_cuda_trellis *w, size_t first, size_t n,
                            uint16_t *dst, size_t stride)
{
    if (n && w->shape.cols) dispatch<expand_call>(w, d, w, first, n, dst, stride);
}

void pl_cuda_trellis_decode(const pl_cuda *d, const pl_cuda_trellis *w, size_t first, size_t n,
                            float *dst, size_t stride)
{
    if (n && w->shape.cols) dispatch<expand_call>(w, d, w, first, n, dst, stride);
}

void pl_cuda_trellis_rows(const pl_cuda *d, const pl_cuda_trellis *w, const int32_t *ids, size_t n,
                          float *dst, size_t in)
{
    if (n && in) dispatch<rows_call>(w, d, w, ids, n, dst, in);
}
