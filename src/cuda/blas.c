/* SPDX-License-Identifier: Apache-2.0 */
#include "blas.h"

#include <cublas_v2.h>

#define WORKSPACE ((size_t)32 << 20)

static pleach_status check(cublasStatus_t status, pleach_error *err)
{
    PL_FAIL_IF(status != CUBLAS_STATUS_SUCCESS, err, PLEACH_ERR_DEVICE, "cuBLAS: %s",
               cublasGetStatusString(status));
    return PLEACH_OK;
}

static pleach_status open_handle(pl_cuda *d, pleach_error *err)
{
    PL_TRY(pl_cuda_alloc(d, &d->blas_workspace, WORKSPACE, "the workspace of cuBLAS", err));
    PL_TRY(check(cublasCreate(&d->blas), err));
    PL_TRY(check(cublasSetStream(d->blas, d->stream), err));
    return check(cublasSetWorkspace(d->blas, d->blas_workspace, WORKSPACE), err);
}

pleach_status pl_cuda_blas_open(pl_cuda *d, pleach_error *err)
{
    if (d->blas) return PLEACH_OK;
    pleach_status status = open_handle(d, err);
    if (status != PLEACH_OK) pl_cuda_blas_close(d);
    return status;
}

void pl_cuda_blas_close(pl_cuda *d)
{
    if (d->blas) cublasDestroy(d->blas);
    pl_cuda_free(d->blas_workspace);
    d->blas = NULL;
    d->blas_workspace = NULL;
}

/* In cuBLAS's order, by columns, y is [out][M], and w and x stand the other way round. */
static void multiply(const pl_cuda *d, cublasOperation_t turn, cudaDataType_t type, const void *w,
                     size_t w_stride, const void *x, size_t x_stride, size_t out, size_t M,
                     size_t in, float *y, size_t y_stride)
{
    const float one = 1, zero = 0;
    cublasComputeType_t compute =
        type == CUDA_R_32F ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
    cublasStatus_t status = cublasGemmEx(
        d->blas, turn, CUBLAS_OP_N, (int)out, (int)M, (int)in, &one, w, type, (int)w_stride, x,
        type, (int)x_stride, &zero, y, CUDA_R_32F, (int)y_stride, compute, CUBLAS_GEMM_DEFAULT);
    if (status != CUBLAS_STATUS_SUCCESS)
        cudaMemset2DAsync(y, y_stride * sizeof *y, 0xff, out * sizeof *y, M, d->stream);
}

void pl_cuda_blas_product(const pl_cuda *d, cudaDataType_t type, const void *w, size_t w_stride,
                          const void *x, size_t x_stride, size_t out, size_t M, size_t in, float *y,
                          size_t y_stride)
{
    multiply(d, CUBLAS_OP_T, type, w, w_stride, x, x_stride, out, M, in, y, y_stride);
}

void pl_cuda_blas_codes(const pl_cuda *d, bool turned, const void *w, size_t w_stride,
                        const void *x, size_t x_stride, size_t out, size_t M, size_t in, float *y)
{
    multiply(d, turned ? CUBLAS_OP_N : CUBLAS_OP_T, CUDA_R_16F, w, w_stride, x, x_stride, out, M,
             in, y, out);
}
