/* SPDX-License-Identifier: Apache-2.0
 *
 * The TurboQuant code of codec/turboquant.h on the device: the same codes, scales, zeros and decoded
 * numbers, bit for bit (a NaN for a NaN), for the same views, whose pointers are the device's here.
 * How a cache keeps codes on the device is attention.h's affair. */
#ifndef PL_CUDA_TURBOQUANT_H
#define PL_CUDA_TURBOQUANT_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "codec/turboquant.h"

/* Puts the code's tables on the device; pl_cuda_open calls it. */
pleach_status pl_cuda_turboquant_open(pl_cuda *d, pleach_error *err);

/* n tokens, x[i*stride + 0..D), on the device. */
void pl_cuda_turboquant_encode_keys(const pl_cuda *d, const pl_turboquant *t,
                                    const pl_turboquant_view *dst, const float *x, size_t stride,
                                    size_t n);
void pl_cuda_turboquant_encode_values(const pl_cuda *d, const pl_turboquant *t,
                                      const pl_turboquant_view *dst, const float *x, size_t stride,
                                      size_t n);

/* n tokens of both in one launch; either pair may be NULL. rotated: values stay rotated. */
void pl_cuda_turboquant_decode(const pl_cuda *d, const pl_turboquant *t,
                               const pl_turboquant_view *keys, const pl_turboquant_plain *key_dst,
                               const pl_turboquant_view *values,
                               const pl_turboquant_plain *value_dst, size_t n, bool rotated);

#ifdef __cplusplus
}
#endif
#endif
