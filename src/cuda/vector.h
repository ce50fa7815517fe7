/* SPDX-License-Identifier: Apache-2.0
 *
 * What lies between a model's linear layers, on the device: norms, rotary positions, SiLU, argmax.
 * Everything is f32; rows follow each other without gaps; a row's result does not depend on M. */
#ifndef PL_CUDA_VECTOR_H
#define PL_CUDA_VECTOR_H

#include "rotate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x[m] += update[m] where update is not NULL, then y[m] = x[m] / sqrt(mean(x[m]^2) + eps) * gain,
 * then, where r is not NULL and has a block, y[m] = its rotation. y may be update, not x. Within
 * 1e-6 of f64 (sums in f32, in an order of their own); x += update and the rotation are exact. */
void pl_cuda_rms_norm(const pl_cuda *d, float *y, float *x, const float *update, const float *gain,
                      size_t n, size_t M, float eps, const pl_cuda_rotation *r);

/* cos and sin [M][half] of positions[m] * frequencies[i], times scale (model/rope.h): the product
 * in f32, its cosine in f64, rounded. positions, frequencies: device. Once for all layers. */
void pl_cuda_rope_table(const pl_cuda *d, float *cos, float *sin, const int32_t *positions,
                        const float *frequencies, size_t half, size_t M, float scale);

/* y[i] = gate[i] / (1 + exp(-gate[i])) * up[i] for M rows of n; y may be gate or up. Then, where r
 * is not NULL and has a block, y[m] = its rotation. */
void pl_cuda_silu_mul(const pl_cuda *d, float *y, const float *gate, const float *up, size_t n,
                      size_t M, const pl_cuda_rotation *r);

/* y[i] += x[i]. */
void pl_cuda_add(const pl_cuda *d, float *y, const float *x, size_t n);

/* ids[m] = where x[m][0..n) is largest, the lowest of equals; -1 where the row has a NaN or its
 * largest number is no finite one. scratch: pl_cuda_argmax_scratch(n, M) bytes. */
size_t pl_cuda_argmax_scratch(size_t n, size_t M);
void pl_cuda_argmax(const pl_cuda *d, int32_t *ids, const float *x, size_t n, size_t M,
                    void *scratch);

#ifdef __cplusplus
}
#endif
#endif
