/* SPDX-License-Identifier: Apache-2.0
 *
 * Signs and block Hadamard transforms of rows of activations on the device. */
#ifndef PL_CUDA_ROTATE_H
#define PL_CUDA_ROTATE_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One rotation of rows of n numbers. */
typedef struct pl_cuda_rotation {
    const float *signs; /* device [n], +1 or -1; NULL: all +1 */
    size_t block;       /* a power of two that divides n; 0: no rotation */
} pl_cuda_rotation;

/* y[m] = rotation of x[m] (pl_rotate_fn, kernels/kernels.h) for M rows of n numbers that follow
 * each other; y may be x, else they do not overlap. Exact: the bits of the CPU's. */
void pl_cuda_rotate(const pl_cuda *d, float *y, const float *x, size_t n, size_t M,
                    const pl_cuda_rotation *r);
/* y[m] = scale * (inverse rotation of y[m]) + bias, in place: a layer's output side. scale and bias
 * [n] or NULL. Exact. */
void pl_cuda_unrotate(const pl_cuda *d, float *y, size_t n, size_t M, const pl_cuda_rotation *r,
                      const float *scale, const float *bias);

#ifdef __cplusplus
}
#endif
#endif
