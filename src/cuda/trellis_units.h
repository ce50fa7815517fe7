/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of words in units (trellis.h), as a kernel makes it from the order in files. */
#ifndef PL_CUDA_TRELLIS_UNITS_H
#define PL_CUDA_TRELLIS_UNITS_H

#include "trellis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Queues: units[0 .. rows filled up to 16 * cols * k / 32) = the words of `stored`, interleaved if
 * the shape says so, with zeros for the rows filled up. A pure permutation; T = 256. */
void pl_cuda_trellis_permute(const pl_cuda *d, const pleach_trellis *shape, uint32_t *units,
                             const uint32_t *stored);

#ifdef __cplusplus
}
#endif
#endif
