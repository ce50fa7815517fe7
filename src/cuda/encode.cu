/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of threads for a row, or for 256 columns of a feature. */
#include <cfloat>
#include <cuda_fp16.h>

#include "encode.h"
#include "launch.cuh"

namespace {

constexpr int kThreads = 256;
constexpr float kDivisor = 147.800537109375f;
constexpr double kFp16Max = 65504, kFp16Step = 0x1p-24;

/* ---- sums over a block of threads ------------------------------------------------------------ */

struct sum {
    __device__ double operator()(double a, double b) const { return a + b; }
};
struct larger {
    __device__ double operator()(double a, double b) const { return a > b ? a : b; }
};

/* The same on every thread; threads 0, 1, ... in a fixed tree. */
template <class Op> __device__ double over_block(double v, Op op)
{
    __shared__ double warps[kThreads / 32];
    for (int far = 16; far; far /= 2) v = op(v, __shfl_xor_sync(0xffffffff, v, far));
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
    __syncthreads();
    v = warps[0];
    for (int i = 1; i < kThreads / 32; i++) v = op(v, warps[i]);
    return v;
}

/* ---- scales: see codec/encoder.c ------------------------------------------------------------- */

__device__ uint16_t fp16_scale(double s)
{
    return __half_as_ushort(__float2half_rn((float)fmin(s, kFp16Max)));
}

__device__ float f32_of_fp16(uint16_t bits)
{
    return __half2float(__ushort_as_half(bits));
}

__device__ double best_factor(uint32_t k, const float *src, size_t n, double rms)
{
    const double grain = k == 2 ? 0.020 : k == 3 ? 0.008 : 0.002, edge = k == 4 ? 2.8 : 2.6;
    double low = k == 2 ? 1.03 : k == 3 ? 1.08 : 1.12, high = low * 64, f = low;
    for (int i = 0; i < 12; i++, f = sqrt(low * high)) {
        const double reach = edge * f * rms;
        double beyond = 0;
        for (size_t j = threadIdx.x; j < n; j += kThreads)
            beyond += fmax(fabs((double)src[j]) - reach, 0.0);
        beyond = over_block(beyond, sum());
        if (grain * f * (double)n * rms < edge * beyond) low = f;
        else if (i == 0) break;
        else high = f;
    }
    return f;
}

__global__ void __launch_bounds__(kThreads)
    measure_rows(uint32_t k, double code_rms, const float *src, size_t cols, uint16_t *scales,
                 pl_cuda_row_size *info)
{
    pl_wait_for_previous();
    const float *row = src + blockIdx.x * cols;
    double power = 0;
    for (size_t i = threadIdx.x; i < cols; i += kThreads) power += (double)row[i] * row[i];
    power = over_block(power, sum());
    const double rms = sqrt(power / (double)cols), ratio = rms / code_rms;
    const bool fine = power > 0 && power <= DBL_MAX && ratio <= kFp16Max;
    double scale = ratio;
    if (fine && ratio > 0) scale *= best_factor(k, row, cols, rms);
    if (threadIdx.x > 0) return;
    scales[blockIdx.x] = fine ? fp16_scale(fmax(scale, kFp16Step)) : 0;
    info[blockIdx.x] = {power, ratio};
}

/* Squared error of a row at a scale. */
__device__ double error_at(double power, pl_cuda_block_sums row, uint16_t scale)
{
    const double step = f32_of_fp16(scale) / (double)kDivisor;
    return power - step * (2 * row.wy - step * (double)row.yy);
}

__device__ uint16_t refit(double power, pl_cuda_block_sums row, uint16_t scale)
{
    const uint16_t best = error_at(power, row, scale) < power ? scale : 0;
    if (!(row.wy > 0)) return best;
    const uint16_t fitted = fp16_scale(row.wy / (double)row.yy * (double)kDivisor);
    return error_at(power, row, fitted) < error_at(power, row, best) ? fitted : best;
}

__device__ uint16_t refit_blocks(double power, const pl_cuda_block_sums *sums, size_t n,
                                 uint16_t scale)
{
    pl_cuda_block_sums row = {0, 0};
    for (size_t b = 0; b < n; b++) {
        row.wy += sums[b].wy;
        row.yy += sums[b].yy;
    }
    return scale ? refit(power, row, scale) : 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* What number i of a row's codes stands for, times the scale. */
__device__ float decode(const uint32_t *codes, const pl_cuda_viterbi &s, size_t i, float scale)
{
    const uint32_t n = s.T * s.k / 32;
    const uint32_t *words = codes + i / s.T * n;
    const uint32_t bit = (s.T - 1 - (uint32_t)(i % s.T)) * s.k, word = bit / 32;
    const uint32_t next = words[word + 1 < n ? word + 1 : 0];
    const uint32_t state = __funnelshift_r(words[word], next, bit) & ((1u << s.L) - 1);
    const int y = (int)__dp4a(state * 34038481u + 76625530u, 0x01010101u, 0u) - 510;
    return __fmul_rn(__fmul_rn((float)y, 1.0f / kDivisor), scale);
}

__global__ void __launch_bounds__(kThreads)
    finish_rows(pl_cuda_viterbi s, size_t width, float *src, const pl_cuda_row_size *info,
                uint16_t *scales, const float *weight, double *squares)
{
    __shared__ uint16_t chosen;
    const size_t r = blockIdx.x, cols = s.blocks * s.T;
    uint32_t *codes = s.codes + r * s.code_stride;
    float *row = src + r * s.src_stride;
    double sum_of_squares = 0;
    pl_wait_for_previous();
    if (threadIdx.x == 0)
        chosen = refit_blocks(info[r].power, s.sums + r * s.blocks, s.blocks, s.scales[r]);
    __syncthreads();
    const float scale = f32_of_fp16(chosen);
    for (size_t i = threadIdx.x; i < cols; i += kThreads) {
        float e = 0;
        if (i < width) e = chosen ? __fsub_rn(row[i], decode(codes, s, i, scale)) : row[i];
        row[i] = e;
        const double v = weight && i < width ? (double)e * weight[i] : e;
        sum_of_squares += v * v;
    }
    sum_of_squares = over_block(sum_of_squares, sum());
    if (threadIdx.x == 0) {
        scales[r] = chosen;
        squares[r] = sum_of_squares;
    }
    if (chosen) return;
    for (size_t i = threadIdx.x; i < cols * s.k / 32; i += kThreads) codes[i] = 0xffffffff;
}

/* ---- features -------------------------------------------------------------------------------- */

/* Of the columns of each block of threads, then what the last of these makes of them. */
struct feature_partials {
    double power; /* of what is coded */
    uint16_t scale;
    unsigned arrived;
    double part[1]; /* powers, then peaks */
};

__global__ void __launch_bounds__(kThreads)
    begin_features(pl_cuda_features f, const uint32_t *order, double *crests)
{
    pl_wait_for_previous();
    const float *from = f.matrix + order[blockIdx.x] * f.cols;
    float *to = f.work + blockIdx.x * f.cols;
    double power = 0, largest = 0;
    for (size_t i = threadIdx.x; i < f.cols; i += kThreads) {
        const float v = from[i];
        to[i] = v;
        power += (double)v * v;
        largest = fmax(largest, fabs((double)v));
    }
    power = over_block(power, sum());
    largest = over_block(largest, larger());
    if (threadIdx.x == 0)
        crests[blockIdx.x] = power > 0 ? largest / sqrt(power / (double)f.width) : 0;
}

/* t = W_j and the errors of features first .. j - 1, for 256 columns; the last block to end chooses
 * the scale. */
__global__ void __launch_bounds__(kThreads)
    feature_target(pl_cuda_features f, size_t first, size_t j)
{
    __shared__ float factor[64];
    __shared__ bool last;
    feature_partials *p = static_cast<feature_partials *>(f.partials);
    const size_t o = blockIdx.x * (size_t)kThreads + threadIdx.x;
    const int n = (int)(j - first);
    pl_wait_for_previous();
    if ((int)threadIdx.x < n) factor[threadIdx.x] = f.unit[(first + threadIdx.x) * f.n + j];
    __syncthreads();
    float t = 0;
    if (o < f.width) {
        const float *e = f.work + first * f.cols + o;
        t = f.work[j * f.cols + o];
#pragma unroll 8
        for (int i = 0; i < n; i++) t = fmaf(factor[i], e[i * f.cols], t);
        f.work[j * f.cols + o] = t;
    }
    const double power = over_block((double)t * t, sum());
    const double largest = over_block(fabs((double)t), larger());
    if (threadIdx.x == 0) {
        p->part[blockIdx.x] = power;
        p->part[gridDim.x + blockIdx.x] = largest;
        __threadfence();
        last = atomicAdd(&p->arrived, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    double all = 0, peak = 0;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += kThreads) {
        all += __ldcg(&p->part[b]);
        peak = fmax(peak, __ldcg(&p->part[gridDim.x + b]));
    }
    all = over_block(all, sum());
    peak = over_block(peak, larger());
    if (threadIdx.x > 0) return;
    const double rms = sqrt(all / (double)f.width), scale = f.start * rms;
    const bool fine = all <= DBL_MAX && scale <= kFp16Max && peak <= f.highest * rms;
    if (!fine) *f.bad = 1;
    p->power = all;
    p->scale = fine && all > 0 ? fp16_scale(fmax(scale, kFp16Step)) : 0;
    p->arrived = 0;
}

__global__ void __launch_bounds__(kThreads)
    feature_finish(pl_cuda_features f, size_t j, size_t row)
{
    __shared__ uint16_t chosen;
    const feature_partials *p = static_cast<const feature_partials *>(f.partials);
    const size_t o = blockIdx.x * (size_t)kThreads + threadIdx.x;
    const size_t words = f.cols * f.k / 32;
    pl_wait_for_previous();
    if (threadIdx.x == 0) {
        chosen = refit_blocks(p->power, f.sums, f.cols / f.T, p->scale);
        if (blockIdx.x == 0) f.scales[row] = chosen;
    }
    __syncthreads();
    if (o < f.cols) {
        float e = 0;
        const float scale = f32_of_fp16(chosen);
        if (o < f.width)
            e = __fsub_rn(f.matrix[row * f.cols + o], __fmul_rn(f.values[o], scale));
        f.matrix[row * f.cols + o] = e;
        f.work[j * f.cols + o] = e;
    }
    if (chosen) return;
    for (size_t i = o; i < words; i += (size_t)gridDim.x * kThreads)
        f.codes[row * words + i] = 0xffffffff;
}

} // namespace

void pl_cuda_measure_rows(const pl_cuda *d, uint32_t k, double code_rms, const float *src,
                          size_t rows, size_t cols, uint16_t *scales, pl_cuda_row_size *info)
{
    if (rows)
        pl_launch(d, measure_rows, dim3((unsigned)rows), dim3(kThreads), 0, k, code_rms, src, cols,
                  scales, info);
}

void pl_cuda_finish_rows(const pl_cuda *d, const pl_cuda_viterbi *s, size_t width, float *src,
                         const pl_cuda_row_size *info, uint16_t *scales, const float *weight,
                         double *squares)
{
    if (s->rows)
        pl_launch(d, finish_rows, dim3((unsigned)s->rows), dim3(kThreads), 0, *s, width, src, info,
                  scales, weight, squares);
}

static unsigned column_blocks(size_t cols)
{
    return (unsigned)((cols + kThreads - 1) / kThreads);
}

size_t pl_cuda_features_partials(size_t cols)
{
    return sizeof(feature_partials) + 2 * column_blocks(cols) * sizeof(double);
}

void pl_cuda_features_begin(const pl_cuda *d, const pl_cuda_features *f, const uint32_t *order,
                            double *crests)
{
    pl_launch(d, begin_features, dim3((unsigned)f->n), dim3(kThreads), 0, *f, order, crests);
}

void pl_cuda_features_code(const pl_cuda *d, const pl_cuda_features *f, size_t first, size_t j,
                           size_t row, void *scratch)
{
    const dim3 grid(column_blocks(f->cols)), block(kThreads);
    const size_t words = f->cols * f->k / 32;
    const feature_partials *p = static_cast<const feature_partials *>(f->partials);
    const pl_cuda_viterbi search = {f->k, f->L, f->T, 1, f->cols / f->T, f->work + j * f->cols,
                                    f->cols, &p->scale, f->codes + row * words, words, f->values,
                                    f->cols, f->sums};
    pl_launch(d, feature_target, grid, block, 0, *f, first, j);
    pl_cuda_viterbi_run(d, &search, scratch);
    pl_launch(d, feature_finish, grid, block, 0, *f, j, row);
}
