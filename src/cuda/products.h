/* SPDX-License-Identifier: Apache-2.0
 *
 * Large products and factors of base/matrix.h by cuBLAS, f32 (no TF32) and f64. Operands go to the
 * device and results come back, but for matrices that are held there; what that would cost more than
 * it saves is left to the processor. */
#ifndef PL_CUDA_PRODUCTS_H
#define PL_CUDA_PRODUCTS_H

#include <cublas_v2.h>
#include <pthread.h>

#include "base/matrix.h"
#include "device.h"

typedef struct pl_cuda_held pl_cuda_held;

typedef struct pl_cuda_products {
    pl_products base;
    pl_cuda *cuda; /* borrowed */
    cublasHandle_t blas;
    void *workspace;
    pthread_mutex_t lock; /* of the handle, the stream and all that follows */
    pl_cuda_held *held;   /* a list */
    void *buffer[3];
    size_t size[3];
} pl_cuda_products;

pleach_status pl_cuda_products_open(pl_cuda *d, pl_cuda_products **out, pleach_error *err);
void pl_cuda_products_close(pl_cuda_products *p); /* accepts NULL */

pleach_status pl_cuda_blas_check(cublasStatus_t status, pleach_error *err);

#endif
