/* SPDX-License-Identifier: Apache-2.0 */
#include "trellis_many.h"

#include <cublas_v2.h>
#include <cuda_bf16.h>

#include "blas.h"
#include "launch.cuh"
#include "trellis_expand.h"
#include "trellis_half.h"

namespace {

enum { LEAST = 256, THREADS = 256 };

constexpr size_t EXPANDED = (size_t)256 << 20;

/* rows [M][stride] of x, filled up with zeros. */
__global__ void round_rows(__nv_bfloat16 *to, const float *x, size_t x_stride, size_t in,
                           size_t stride)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, m = blockIdx.y;
    pl_let_next_start();
    pl_wait_for_previous();
    if (i < stride) to[m * stride + i] = __float2bfloat16_rn(i < in ? x[m * x_stride + i] : 0.0f);
}

__global__ void scale_rows(float *y, size_t y_stride, size_t out, const float *scale,
                           const float *bias)
{
    size_t o = (size_t)blockIdx.x * THREADS + threadIdx.x, m = blockIdx.y;
    pl_let_next_start();
    pl_wait_for_previous();
    if (o >= out) return;
    float v = y[m * y_stride + o];
    if (scale) v *= scale[o];
    y[m * y_stride + o] = bias ? v + bias[o] : v;
}

size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Numbers of a row of x, for whichever side is coded. */
size_t inputs_of(const pl_cuda_trellis *w)
{
    return round_up(w->shape.axis ? w->shape.cols : w->shape.rows, 8);
}

/* Outputs expanded at a time: all, or a multiple of 256. */
size_t part_of(const pl_cuda_trellis *w)
{
    size_t all = round_up(w->shape.axis ? w->shape.rows : w->shape.cols, 256);
    size_t fit = EXPANDED / 2 / inputs_of(w) / 256 * 256;
    return fit < 256 ? 256 : fit < all ? fit : all;
}

dim3 cover(size_t n, size_t M)
{
    return dim3((unsigned)((n + THREADS - 1) / THREADS), (unsigned)M);
}

/* Outputs o .. o + n - 1. Axis 0: blocks of outputs follow each other, so that a part of them is a
 * matrix, too; expanded it stands the other way round. */
void run_part(const pl_cuda *d, const pl_cuda_product *p, const __nv_bfloat16 *x,
              __nv_bfloat16 *expanded, size_t o, size_t n)
{
    const pl_cuda_trellis *w = p->w;
    const float one = 1, zero = 0;
    size_t stride = inputs_of(w), row = w->shape.cols;
    if (w->shape.axis) {
        pl_cuda_trellis_expand(d, w, o, n, (uint16_t *)expanded, row);
        pl_cuda_blas_product(d, CUDA_R_16BF, expanded, row, x, stride, n, p->M, p->in, p->y + o,
                             p->y_stride);
        return;
    }
    pl_cuda_trellis part = *w;
    part.shape.cols = round_up(n, 256);
    part.codes += o * round_up(w->shape.rows, 16) * w->shape.bits / 32;
    pl_cuda_trellis_expand(d, &part, 0, part.shape.rows, (uint16_t *)expanded, part.shape.cols);
    cublasStatus_t status = cublasGemmEx(
        d->blas, CUBLAS_OP_N, CUBLAS_OP_N, (int)n, (int)p->M, (int)p->in, &one, expanded,
        CUDA_R_16BF, (int)part.shape.cols, x, CUDA_R_16BF, (int)stride, &zero, p->y + o, CUDA_R_32F,
        (int)p->y_stride, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (status != CUBLAS_STATUS_SUCCESS)
        cudaMemset2DAsync(p->y + o, p->y_stride * 4, 0xff, n * 4, p->M, d->stream);
}

} /* namespace */

pleach_status pl_cuda_trellis_many_prepare(pl_cuda *d, pleach_error *err)
{
    return pl_cuda_blas_open(d, err);
}

bool pl_cuda_trellis_many_serves(const pl_cuda *d, const pl_cuda_trellis *w, size_t M)
{
    return M >= LEAST && w->units && w->shape.rows && w->shape.cols && d->blas &&
           !d->batch_invariant;
}

size_t pl_cuda_trellis_many_scratch(const pl_cuda *d, const pl_cuda_trellis *w, size_t M)
{
    size_t fewer = pl_cuda_trellis_half_scratch(d, w, LEAST - 1);
    size_t bytes = round_up(2 * M * inputs_of(w), 256) + 2 * part_of(w) * inputs_of(w);
    return bytes > fewer ? bytes : fewer;
}

void pl_cuda_trellis_many_run(const pl_cuda *d, const pl_cuda_product *p, void *scratch)
{
    size_t stride = inputs_of(p->w), most = part_of(p->w);
    __nv_bfloat16 *x = (__nv_bfloat16 *)scratch;
    __nv_bfloat16 *expanded = x + round_up(2 * p->M * stride, 256) / 2;
    if (!p->M || !p->out) return;
    for (size_t m = 0; m < p->M; m += 65535)
        pl_launch(d, round_rows, cover(stride, p->M - m < 65535 ? p->M - m : 65535), dim3(THREADS),
                  0, x + m * stride, p->x + m * p->x_stride, p->x_stride, p->in, stride);
    for (size_t o = 0; o < p->out; o += most)
        run_part(d, p, x, expanded, o, p->out - o < most ? p->out - o : most);
    if (!p->output_scale && !p->bias) return;
    for (size_t m = 0; m < p->M; m += 65535)
        pl_launch(d, scale_rows, cover(p->out, p->M - m < 65535 ? p->M - m : 65535), dim3(THREADS),
                  0, p->y + m * p->y_stride, p->y_stride, p->out, p->output_scale, p->bias);
}
