/* SPDX-License-Identifier: Apache-2.0
 *
 * check-kernels on a device: what cuda/ computes against the portable kernels and the formulas.
 *
 * A family is one file check_cuda_<family>.c with one function of this type, named in the list in
 * check_cuda.c. It uses check.h as the others do (check_begin with improved = true), and times with
 * check_cuda_bench. */
#ifndef CHECK_CUDA_H
#define CHECK_CUDA_H

#include "../check.h"
#include "cuda/device.h"

typedef void check_cuda_fn(check *t, const pl_kernels *c, pl_cuda *d);

/* All families. */
check_cuda_fn check_cuda;
check_cuda_fn check_cuda_device, check_cuda_trellis, check_cuda_rotate, check_cuda_vector,
    check_cuda_any, check_cuda_dense, check_cuda_affine, check_cuda_linear;
check_cuda_fn check_cuda_viterbi, check_cuda_coder, check_cuda_products;
check_cuda_fn check_cuda_limbs;
check_cuda_fn check_cuda_turboquant, check_cuda_attention;
check_cuda_fn check_cuda_expand, check_cuda_half;

/* Device memory for one test, between two guard areas; contents undefined, or a copy of `data`.
 * Ends the program when there is none. */
void *check_cuda_buffer(check *t, pl_cuda *d, size_t bytes);
void *check_cuda_copy(check *t, pl_cuda *d, const void *data, size_t bytes);
/* Waits, and copies back; fails the test when the device failed. */
bool check_cuda_fetch(check *t, pl_cuda *d, void *dst, const void *src, size_t bytes);
/* Frees all of them, after checking their guards. */
void check_cuda_release(check *t, pl_cuda *d);

/* With --bench: queue(user, i) as pl_cuda_time has it, the result as "12.3 us" and, with units > 0,
 * as units a second with the label. */
void check_cuda_bench(check *t, pl_cuda *d, void (*queue)(void *user, int i), void *user, int calls,
                      double units, const char *label);

#endif
