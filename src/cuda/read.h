/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading device memory as fast as it goes: the roof that kernels are measured against. */
#ifndef PL_CUDA_READ_H
#define PL_CUDA_READ_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Queues: reads `bytes` bytes (a multiple of 16) from p on; `sink` (16 bytes, device) is written
 * only if all of them have a value that random ones have not. */
void pl_cuda_read(const pl_cuda *d, const void *p, size_t bytes, void *sink);

#ifdef __cplusplus
}
#endif
#endif
