/* SPDX-License-Identifier: Apache-2.0 */
#include "many_rows.h"

#include <cuda_bf16.h>

#include "launch.cuh"

enum { LIMBS = 3, PART = PL_CUDA_MANY_PART, THREADS = 256 };

/* x = the sum of its limbs, each the upper half of what is left; filled up with zeros. */
static __global__ void split_rows(__nv_bfloat16 *limbs, const float *x, uint32_t in,
                                  uint32_t stride)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, M = gridDim.y;
    pl_let_next_start();
    pl_wait_for_previous();
    if (i >= stride) return;
    float rest = i < in ? x[(size_t)m * in + i] : 0.0f;
    if (!isfinite(rest)) rest = __int_as_float(0x7fffffff);
#pragma unroll
    for (int l = 0; l < LIMBS; l++) {
        uint32_t upper = __float_as_uint(rest) & 0xffff0000u;
        limbs[((size_t)l * M + m) * stride + i] =
            __ushort_as_bfloat16((unsigned short)(upper >> 16));
        rest -= __uint_as_float(upper);
    }
}

/* y = scale * the sum of n parts, the smallest first, + bias. */
static __global__ void add_parts(float *y, uint32_t y_stride, const float *parts, int n,
                                 uint32_t out, const float *scale, const float *bias)
{
    uint32_t o = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, M = gridDim.y;
    pl_let_next_start();
    pl_wait_for_previous();
    if (o >= out) return;
    float sum = n ? parts[((size_t)(n - 1) * M + m) * out + o] : y[(size_t)m * y_stride + o];
    for (int l = n - 2; l >= 0; l--) sum += parts[((size_t)l * M + m) * out + o];
    if (scale) sum = __fmul_rn(sum, scale[o]);
    if (bias) sum = __fadd_rn(sum, bias[o]);
    y[(size_t)m * y_stride + o] = sum;
}

static size_t limb_bytes(const pl_cuda_numbers *w, size_t M)
{
    return (LIMBS * M * w->stride * sizeof(__nv_bfloat16) + 255) / 256 * 256;
}

size_t pl_cuda_many_scratch(const pl_cuda_numbers *w, size_t M)
{
    if (w->type == CUDA_R_32F) return 0;
    if (M > PART) M = PART;
    return limb_bytes(w, M) + LIMBS * M * w->out * sizeof(float);
}

static dim3 cover(size_t n, size_t M)
{
    return dim3((unsigned)((n + THREADS - 1) / THREADS), (unsigned)M);
}

/* Up to PART rows. */
static void run_bf16(const pl_cuda *d, const pl_cuda_numbers *w, const float *x, size_t M, float *y,
                     size_t y_stride, const float *scale, const float *bias, void *scratch)
{
    __nv_bfloat16 *limbs = (__nv_bfloat16 *)scratch;
    float *parts = (float *)((uint8_t *)scratch + limb_bytes(w, M));
    pl_launch(d, split_rows, cover(w->stride, M), THREADS, 0, limbs, x, (uint32_t)w->in,
              (uint32_t)w->stride);
    pl_cuda_blas_product(d, w->type, w->data, w->stride, limbs, w->stride, w->out, LIMBS * M,
                         w->stride, parts, w->out);
    pl_launch(d, add_parts, cover(w->out, M), THREADS, 0, y, (uint32_t)y_stride, parts, LIMBS,
              (uint32_t)w->out, scale, bias);
}

static void run_f32(const pl_cuda *d, const pl_cuda_numbers *w, const float *x, size_t M, float *y,
                    size_t y_stride, const float *scale, const float *bias)
{
    pl_cuda_blas_product(d, w->type, w->data, w->stride, x, w->in, w->out, M, w->in, y, y_stride);
    if (scale || bias)
        pl_launch(d, add_parts, cover(w->out, M), THREADS, 0, y, (uint32_t)y_stride,
                  (const float *)NULL, 0, (uint32_t)w->out, scale, bias);
}

void pl_cuda_many_run(const pl_cuda *d, const pl_cuda_numbers *w, const float *x, size_t M,
                      float *y, size_t y_stride, const float *scale, const float *bias,
                      void *scratch)
{
    for (size_t m = 0; m < M; m += PART) {
        size_t some = M - m < PART ? M - m : PART;
        if (w->type == CUDA_R_32F)
            run_f32(d, w, x + m * w->in, some, y + m * y_stride, y_stride, scale, bias);
        else
            run_bf16(d, w, x + m * w->in, some, y + m * y_stride, y_stride, scale, bias, scratch);
    }
}
