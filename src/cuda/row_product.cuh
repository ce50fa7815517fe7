/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with weights that are stored row by row, eight neighbouring weights at a time, whatever
 * their coding: a warp has four rows of the matrix and walks along them, its lanes at 32
 * neighbouring eights, and meets up to eight rows of x. A reader W says how weights lie:
 *
 *   typename W::raw                  what eight weights of a row are read as
 *   W::BLOCKS                        thread blocks of a multiprocessor, for one row of x
 *   void load(raw &, row, eight)     reads it
 *   void decode(float w[8], raw, eight)
 *
 * The order of a sum depends on the matrix's shape and the device alone. */
#ifndef PL_CUDA_ROW_PRODUCT_CUH
#define PL_CUDA_ROW_PRODUCT_CUH

#include "launch.cuh"

enum { PL_ROW_OWN = 4, PL_ROW_WARPS = 8, PL_ROW_MOST = 8 /* rows of x that one decoding serves */ };

template <class W> struct pl_row_job {
    W w;
    const float *x, *scale, *bias; /* scale and bias [out] or NULL */
    float *y;
    uint32_t out, in, M;
    uint32_t lanes;  /* 8, 16 or 32 that share four rows: a warp has 32 / lanes times four */
    uint32_t along;  /* warps along a row */
    uint32_t groups; /* of rows of x */
    bool vector;     /* rows of x are 16-byte aligned */
};

static __device__ __forceinline__ void pl_row_load_x(float x[8], const float *row, uint32_t at,
                                                     uint32_t n, bool vector)
{
    if (vector && at + 8 <= n) {
        float4 a = *(const float4 *)(row + at), b = *(const float4 *)(row + at + 4);
        x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
        x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = at + i < n ? row[at + i] : 0.0f;
}

/* With one row of x the weights of one row at a time are in registers, with more those of all four.
 */
template <class W, int MT>
static __device__ __forceinline__ void
pl_row_multiply(float sum[PL_ROW_OWN][MT], const pl_row_job<W> &j,
                const typename W::raw raw[PL_ROW_OWN], uint32_t m0, uint32_t eight)
{
    float w[PL_ROW_OWN][8], x[8];
    if constexpr (MT == 1) {
        pl_row_load_x(x, j.x + (size_t)m0 * j.in, 8 * eight, j.in, j.vector);
#pragma unroll
        for (int r = 0; r < PL_ROW_OWN; r++) {
            j.w.decode(w[0], raw[r], eight);
#pragma unroll
            for (int i = 0; i < 8; i++) sum[r][0] = fmaf(w[0][i], x[i], sum[r][0]);
        }
    } else {
#pragma unroll
        for (int r = 0; r < PL_ROW_OWN; r++) j.w.decode(w[r], raw[r], eight);
#pragma unroll
        for (int m = 0; m < MT; m++) {
            pl_row_load_x(x, j.x + (size_t)min(m0 + m, j.M - 1) * j.in, 8 * eight, j.in, j.vector);
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int r = 0; r < PL_ROW_OWN; r++) sum[r][m] = fmaf(w[r][i], x[i], sum[r][m]);
        }
    }
}

/* Lanes are added by a tree, the warps of a row in their order. */
template <class W, int MT>
static __device__ __forceinline__ void
pl_row_store(float sum[PL_ROW_OWN][MT], const pl_row_job<W> &j, uint32_t first, uint32_t m0)
{
    __shared__ float parts[PL_ROW_WARPS][4][PL_ROW_OWN * MT];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, subs = 32 / j.lanes;
    for (uint32_t lanes = j.lanes / 2; lanes; lanes /= 2)
#pragma unroll
        for (int i = 0; i < PL_ROW_OWN * MT; i++)
            sum[i / MT][i % MT] += __shfl_xor_sync(~0u, sum[i / MT][i % MT], lanes);
    if (lane % j.lanes == 0)
#pragma unroll
        for (int i = 0; i < PL_ROW_OWN * MT; i++)
            parts[warp][lane / j.lanes][i] = sum[i / MT][i % MT];
    __syncthreads();
    uint32_t all = PL_ROW_WARPS / j.along * subs * PL_ROW_OWN * MT;
    for (uint32_t i = threadIdx.x; i < all; i += blockDim.x) {
        uint32_t part = i % (PL_ROW_OWN * MT), owner = i / (PL_ROW_OWN * MT), m = m0 + part % MT;
        uint32_t row = first + owner * PL_ROW_OWN + part / MT;
        float total = 0;
        for (uint32_t w = 0; w < j.along; w++)
            total += parts[owner / subs * j.along + w][owner % subs][part];
        if (row >= j.out || m >= j.M) continue;
        if (j.scale) total = __fmul_rn(total, j.scale[row]);
        if (j.bias) total = __fadd_rn(total, j.bias[row]);
        j.y[(size_t)m * j.out + row] = total;
    }
}

template <class W, int MT>
static __global__ void __launch_bounds__(PL_ROW_WARPS * 32, MT > 1 ? 2 : W::BLOCKS)
    pl_row_product(const __grid_constant__ pl_row_job<W> j)
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, subs = 32 / j.lanes;
    uint32_t eights = (j.in + 7) / 8, stride = j.lanes * j.along, m0 = blockIdx.x % j.groups * MT;
    uint32_t first = blockIdx.x / j.groups * (PL_ROW_WARPS / j.along) * subs * PL_ROW_OWN;
    uint32_t row = first + (warp / j.along * subs + lane / j.lanes) * PL_ROW_OWN;
    uint32_t at = warp % j.along * j.lanes + lane % j.lanes;
    typename W::raw raw[PL_ROW_OWN], next[PL_ROW_OWN];
    float sum[PL_ROW_OWN][MT] = {};
    /* Rows beyond the end are the last one again, which nobody stores. */
    auto load = [&]() {
#pragma unroll
        for (int r = 0; r < PL_ROW_OWN; r++) j.w.load(next[r], min(row + r, j.out - 1), at);
    };
    pl_let_next_start();
    if (at < eights) load();
    pl_wait_for_previous();
    while (at < eights) {
        uint32_t now = at;
#pragma unroll
        for (int r = 0; r < PL_ROW_OWN; r++) raw[r] = next[r];
        at += stride;
        if (at < eights) load();
        pl_row_multiply<W, MT>(sum, j, raw, m0, now);
    }
    pl_row_store<W, MT>(sum, j, first, m0);
}

/* Warps along a row until there are enough of them; in short rows so few lanes that most have
 * something to do in the last step too. */
static inline void pl_row_share(const pl_cuda *d, uint32_t *lanes, uint32_t *along, size_t out,
                                size_t in)
{
    size_t eights = (in + 7) / 8, owners = (out + PL_ROW_OWN - 1) / PL_ROW_OWN;
    *along = 1;
    *lanes = 32;
    while (*along < PL_ROW_WARPS && owners * *along < (size_t)d->sms * 16 && eights > 32 * *along)
        *along *= 2;
    while (*lanes > 8 && *along == 1 && owners * *lanes >= (size_t)d->sms * 16 * 32) {
        size_t steps = (eights + *lanes - 1) / *lanes, halves = (2 * eights + *lanes - 1) / *lanes;
        if (10 * halves > 19 * steps) break;
        *lanes /= 2;
    }
}

template <class W>
static void pl_row_run(const pl_cuda *d, const W &w, size_t out, size_t in, const float *x,
                       size_t M, float *y, const float *scale, const float *bias)
{
    if (!M || !out) return;
    unsigned MT = M > 4 ? 8 : M > 2 ? 4 : (unsigned)M;
    pl_row_job<W> j = {w,
                       x,
                       scale,
                       bias,
                       y,
                       (uint32_t)out,
                       (uint32_t)in,
                       (uint32_t)M,
                       32,
                       1,
                       (uint32_t)((M + MT - 1) / MT),
                       in % 4 == 0 && (uintptr_t)x % 16 == 0};
    pl_row_share(d, &j.lanes, &j.along, out, in);
    size_t per_tile = PL_ROW_WARPS / j.along * (32 / j.lanes) * PL_ROW_OWN;
    size_t tiles = (out + per_tile - 1) / per_tile;
    void (*kernels[])(pl_row_job<W>) = {pl_row_product<W, 1>, pl_row_product<W, 2>,
                                        pl_row_product<W, 4>, pl_row_product<W, 8>};
    pl_launch(d,
              kernels[MT > 4   ? 3
                      : MT > 2 ? 2
                               : MT - 1],
              dim3((unsigned)(tiles * j.groups)), PL_ROW_WARPS * 32, 0, j);
}

/* dst[i] = row ids[i]. */
template <class W>
static __global__ void pl_row_gather(const __grid_constant__ W w, const int32_t *ids, uint32_t in,
                                     float *dst)
{
    uint32_t eight = blockIdx.x * blockDim.x + threadIdx.x;
    float numbers[8];
    typename W::raw raw;
    pl_let_next_start();
    pl_wait_for_previous();
    if (8 * eight >= in) return;
    w.load(raw, (uint32_t)ids[blockIdx.y], eight);
    w.decode(numbers, raw, eight);
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (8 * eight + i < in) dst[(size_t)blockIdx.y * in + 8 * eight + i] = numbers[i];
}

static __device__ __forceinline__ void pl_row_put(float *to, float x)
{
    *to = x;
}
/* bf16 that is one already. */
static __device__ __forceinline__ void pl_row_put(uint16_t *to, float x)
{
    *to = (uint16_t)(__float_as_uint(x) >> 16);
}

/* dst [rows][in] = rows from `first` on. */
template <class W, class T>
static __global__ void pl_row_expand(const __grid_constant__ W w, uint32_t first, uint32_t in,
                                     T *dst)
{
    uint32_t eight = blockIdx.x * blockDim.x + threadIdx.x;
    float numbers[8];
    typename W::raw raw;
    if (8 * eight < in) w.load(raw, first + blockIdx.y, eight);
    pl_let_next_start();
    pl_wait_for_previous();
    if (8 * eight >= in) return;
    w.decode(numbers, raw, eight);
    T *to = dst + (size_t)blockIdx.y * in + 8 * eight;
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (8 * eight + i < in) pl_row_put(to + i, numbers[i]);
}

template <class W>
static void pl_row_rows(const pl_cuda *d, const W &w, size_t in, const int32_t *ids, size_t n,
                        float *dst)
{
    enum { MOST = 32768 }; /* rows of a launch: the grid's second dimension */
    unsigned blocks = (unsigned)(((in + 7) / 8 + 127) / 128);
    for (size_t i = 0; i < n; i += MOST)
        pl_launch(d, pl_row_gather<W>, dim3(blocks, (unsigned)(n - i < MOST ? n - i : MOST)), 128,
                  0, w, ids + i, (uint32_t)in, dst + i * in);
}

#endif
