/* SPDX-License-Identifier: Apache-2.0 */
#include "dense.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "many_rows.h"
#include "row_product.cuh"

static __device__ __forceinline__ float number(float x)
{
    return x;
}
static __device__ __forceinline__ float number(__half x)
{
    return __half2float(x);
}
static __device__ __forceinline__ float number(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

/* Rows of T, each filled up to whole eights. */
template <class T> struct dense_reader {
    const T *data;
    uint32_t stride;
    enum { BLOCKS = sizeof(T) == 4 ? 2 : 3 };
    struct alignas(16) raw {
        T t[8];
    };
    __device__ __forceinline__ void load(raw &to, uint32_t row, uint32_t eight) const
    {
        const uint4 *from = (const uint4 *)(data + (size_t)row * stride + 8 * eight);
#pragma unroll
        for (unsigned i = 0; i < sizeof(raw) / 16; i++) ((uint4 *)&to)[i] = __ldg(from + i);
    }
    __device__ __forceinline__ void decode(float w[8], const raw &from, uint32_t) const
    {
#pragma unroll
        for (int i = 0; i < 8; i++) w[i] = number(from.t[i]);
    }
};

static size_t stride_of(const pl_cuda_dense *w)
{
    return (w->in + 7) / 8 * 8;
}

template <class T> static dense_reader<T> reader(const pl_cuda_dense *w)
{
    return {(const T *)w->data, (uint32_t)stride_of(w)};
}

static bool goes_to_blas(const pl_cuda *d, const pl_cuda_dense *w, size_t M)
{
    return M > PL_CUDA_DENSE_FEW && !d->batch_invariant && d->blas && w->type != PL_F16;
}

static pl_cuda_numbers numbers_of(const pl_cuda_dense *w)
{
    return {w->type == PL_BF16 ? CUDA_R_16BF : CUDA_R_32F, w->data, w->out, w->in, stride_of(w)};
}

size_t pl_cuda_dense_scratch(const pl_cuda *d, const pl_cuda_dense *w, size_t M)
{
    pl_cuda_numbers numbers = numbers_of(w);
    return goes_to_blas(d, w, M) ? pl_cuda_many_scratch(&numbers, M) : 0;
}

void pl_cuda_dense_run(const pl_cuda *d, const pl_cuda_dense *w, const float *x, size_t M, float *y,
                       const float *scale, const float *bias, void *scratch)
{
    pl_cuda_numbers numbers = numbers_of(w);
    if (goes_to_blas(d, w, M))
        pl_cuda_many_run(d, &numbers, x, M, y, w->out, scale, bias, scratch);
    else if (w->type == PL_BF16)
        pl_row_run(d, reader<__nv_bfloat16>(w), w->out, w->in, x, M, y, scale, bias);
    else if (w->type == PL_F16)
        pl_row_run(d, reader<__half>(w), w->out, w->in, x, M, y, scale, bias);
    else
        pl_row_run(d, reader<float>(w), w->out, w->in, x, M, y, scale, bias);
}

void pl_cuda_dense_rows(const pl_cuda *d, const pl_cuda_dense *w, const int32_t *ids, size_t n,
                        float *dst)
{
    if (w->type == PL_BF16)
        pl_row_rows(d, reader<__nv_bfloat16>(w), w->in, ids, n, dst);
    else if (w->type == PL_F16)
        pl_row_rows(d, reader<__half>(w), w->in, ids, n, dst);
    else
        pl_row_rows(d, reader<float>(w), w->in, ids, n, dst);
}
