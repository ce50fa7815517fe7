/* SPDX-License-Identifier: Apache-2.0
 *
 * One NVIDIA GPU: its properties, its memory, and the one stream on which everything is queued.
 * Built with PLEACH_CUDA alone; the rest of the library knows devices through model/backend.h.
 *
 * Kernels are queued by functions that return nothing: what a launch could refuse is refused where
 * shapes are accepted, and what goes wrong while running is reported by the next pl_cuda_sync,
 * pl_cuda_upload or pl_cuda_download. Queueing allocates nothing and waits for nothing, so that any
 * sequence of it can be captured into a CUDA graph. */
#ifndef PL_CUDA_DEVICE_H
#define PL_CUDA_DEVICE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/error.h"

typedef struct pl_cuda {
    int index;
    char name[256];
    int capability; /* 90 for 9.0 */
    int sms;
    size_t memory, l2_bytes, shared_bytes; /* shared: most of one block, opted in */
    cudaStream_t stream;
    bool chained; /* launches may begin before the one before has ended (programmatic dependent
                     launch): kernels wait by themselves before they read its results */
    bool batch_invariant; /* one class of kernels for every number of rows: linear.h */
    struct cublasContext *blas; /* blas.h; NULL until somebody needs it */
    void *blas_workspace;
    uint32_t *exchange; /* PL_CUDA_EXCHANGE bytes in which blocks of one kernel hand each other sums;
                           all zero between kernels */
} pl_cuda;

enum { PL_CUDA_EXCHANGE = 16 << 20 };

/* "cuda" or "cuda:1". PLEACH_ERR_UNSUPPORTED, with what is missing, without a driver, a device of
 * that number, or one that this build has code for. */
pleach_status pl_cuda_open(const char *name, pl_cuda **out, pleach_error *err);
void pl_cuda_close(pl_cuda *d); /* accepts NULL */

/* Device memory, 256-byte aligned, contents undefined. PLEACH_ERR_MEMORY says what was wanted, for
 * what, and what is free. Never 0 bytes: one is made 256. */
pleach_status pl_cuda_alloc(pl_cuda *d, void **out, size_t bytes, const char *what,
                            pleach_error *err);
void pl_cuda_free(void *p); /* accepts NULL; waits for the device */

/* Copies in the stream's order that have happened on return. */
pleach_status pl_cuda_upload(pl_cuda *d, void *dst, const void *src, size_t bytes,
                             pleach_error *err);
pleach_status pl_cuda_download(pl_cuda *d, void *dst, const void *src, size_t bytes,
                               pleach_error *err);
/* Waits for all that is queued. */
pleach_status pl_cuda_sync(pl_cuda *d, pleach_error *err);
/* PLEACH_OK, or PLEACH_ERR_DEVICE "doing: CUDA's own words". */
pleach_status pl_cuda_check(cudaError_t status, const char *doing, pleach_error *err);

/* Seconds of one call of queue(user, i), i = 0 .. calls-1 in turn (rotate operands by i so that
 * weights come from memory): captured into a graph, replayed 3 times to warm up and 7 times to
 * measure, the median. */
pleach_status pl_cuda_time(pl_cuda *d, void (*queue)(void *user, int i), void *user, int calls,
                           double *seconds, pleach_error *err);

#ifdef __cplusplus
}
#endif
#endif
