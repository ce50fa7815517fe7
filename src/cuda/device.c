/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "blas.h"

pleach_status pl_cuda_check(cudaError_t status, const char *doing, pleach_error *err)
{
    if (status == cudaSuccess) return PLEACH_OK;
    cudaGetLastError(); /* or the next call would tell of it again */
    return pl_fail(err, status == cudaErrorNoKernelImageForDevice ? PLEACH_ERR_UNSUPPORTED
                                                                  : PLEACH_ERR_DEVICE,
                   "%s: %s", doing, cudaGetErrorString(status));
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The number in "cuda:1"; 0 for "cuda"; -1 for anything else. */
static int parse_name(const char *name)
{
    if (strcmp(name, "cuda") == 0) return 0;
    if (strncmp(name, "cuda:", 5) != 0) return -1;
    size_t digits = strspn(name + 5, "0123456789");
    return digits && digits < 5 && !name[5 + digits] ? atoi(name + 5) : -1;
}

static pleach_status find(const char *name, int *index, pleach_error *err)
{
    int n = 0;
    *index = parse_name(name);
    PL_FAIL_IF(*index < 0, err, PLEACH_ERR_ARGUMENT,
               "unknown device '%s': expected cpu, cuda or cuda:N", name);
    cudaError_t status = cudaGetDeviceCount(&n);
    PL_FAIL_IF(status == cudaErrorInsufficientDriver || status == cudaErrorNoDevice, err,
               PLEACH_ERR_UNSUPPORTED, "device %s: no NVIDIA GPU with a driver for CUDA %d.%d (%s)",
               name, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
               cudaGetErrorString(status));
    PL_TRY(pl_cuda_check(status, "looking for devices", err));
    PL_FAIL_IF(*index >= n, err, PLEACH_ERR_UNSUPPORTED, "device %s: this machine has %d, cuda:0%s",
               name, n, n > 1 ? " and up" : "");
    return PLEACH_OK;
}

static pleach_status describe(pl_cuda *d, pleach_error *err)
{
    struct cudaDeviceProp p;
    PL_TRY(pl_cuda_check(cudaGetDeviceProperties(&p, d->index), "reading the device", err));
    snprintf(d->name, sizeof d->name, "%s", p.name);
    d->capability = 10 * p.major + p.minor;
    d->sms = p.multiProcessorCount;
    d->memory = p.totalGlobalMem;
    d->l2_bytes = (size_t)p.l2CacheSize;
    d->shared_bytes = p.sharedMemPerBlockOptin;
    PL_FAIL_IF(d->capability < 80, err, PLEACH_ERR_UNSUPPORTED,
               "device cuda:%d: %s has compute capability %d.%d, expected 8.0 or more", d->index,
               p.name, p.major, p.minor);
    return PLEACH_OK;
}

static pleach_status prepare_kernels(pl_cuda *d, pleach_error *err)
{
    pleach_status status = pl_cuda_attention_open(d, err);
    if (status != PLEACH_ERR_UNSUPPORTED) return status;
    return pl_fail(err, status,
                   "device cuda:%d: this build has no code for %s, compute capability %d.%d "
                   "(CMAKE_CUDA_ARCHITECTURES)",
                   d->index, d->name, d->capability / 10, d->capability % 10);
}

static pleach_status start(pl_cuda *d, pleach_error *err)
{
    PL_TRY(pl_cuda_check(cudaSetDevice(d->index), "choosing the device", err));
    PL_TRY(describe(d, err));
    PL_TRY(pl_cuda_check(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking),
                         "making a stream", err));
    void *p;
    PL_TRY(pl_cuda_alloc(d, &p, PL_CUDA_EXCHANGE, "the sums of blocks", err));
    d->exchange = p;
    PL_TRY(pl_cuda_check(cudaMemsetAsync(p, 0, PL_CUDA_EXCHANGE, d->stream), "clearing memory",
                         err));
    return prepare_kernels(d, err);
}

pleach_status pl_cuda_open(const char *name, pl_cuda **out, pleach_error *err)
{
    int index;
    *out = NULL;
    PL_TRY(find(name, &index, err));
    pl_cuda *d = pl_calloc(1, sizeof *d);
    if (!d) return pl_fail_memory(err, "device", sizeof *d);
    d->index = index;
    pleach_status status = start(d, err);
    if (status == PLEACH_OK)
        *out = d;
    else
        pl_cuda_close(d);
    return status;
}

void pl_cuda_close(pl_cuda *d)
{
    if (!d) return;
    pl_cuda_blas_close(d);
    pl_cuda_free(d->exchange);
    if (d->stream) cudaStreamDestroy(d->stream);
    pl_free(d);
}

/* ---- memory ---------------------------------------------------------------------------------- */

pleach_status pl_cuda_alloc(pl_cuda *d, void **out, size_t bytes, const char *what,
                            pleach_error *err)
{
    size_t available = 0, total = 0;
    (void)d;
    *out = NULL;
    cudaError_t status = cudaMalloc(out, PL_MAX(bytes, (size_t)256));
    if (status != cudaErrorMemoryAllocation) return pl_cuda_check(status, what, err);
    cudaGetLastError(); /* it is no fault of what comes next */
    cudaMemGetInfo(&available, &total);
    return pl_fail(err, PLEACH_ERR_MEMORY,
                   "%s: needs %.1f MB of device memory, %.1f MB of %.1f are free", what,
                   1e-6 * (double)bytes, 1e-6 * (double)available, 1e-6 * (double)total);
}

void pl_cuda_free(void *p)
{
    if (p) cudaFree(p);
}

pleach_status pl_cuda_upload(pl_cuda *d, void *dst, const void *src, size_t bytes,
                             pleach_error *err)
{
    PL_TRY(pl_cuda_check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, d->stream),
                         "copying to the device", err));
    return pl_cuda_sync(d, err);
}

pleach_status pl_cuda_download(pl_cuda *d, void *dst, const void *src, size_t bytes,
                               pleach_error *err)
{
    PL_TRY(pl_cuda_check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, d->stream),
                         "copying from the device", err));
    return pl_cuda_sync(d, err);
}

pleach_status pl_cuda_sync(pl_cuda *d, pleach_error *err)
{
    PL_TRY(pl_cuda_check(cudaGetLastError(), "queueing work on the device", err));
    return pl_cuda_check(cudaStreamSynchronize(d->stream), "computing on the device", err);
}

/* ---- time ------------------------------------------------------------------------------------ */

enum { WARM_UPS = 3, REPEATS = 7 };

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static pleach_status replay(pl_cuda *d, cudaGraphExec_t graph, cudaEvent_t from, cudaEvent_t to,
                            double *seconds, pleach_error *err)
{
    float ms[REPEATS] = {0};
    for (int i = -WARM_UPS; i < REPEATS; i++) {
        PL_TRY(pl_cuda_check(cudaEventRecord(from, d->stream), "timing", err));
        PL_TRY(pl_cuda_check(cudaGraphLaunch(graph, d->stream), "timing", err));
        PL_TRY(pl_cuda_check(cudaEventRecord(to, d->stream), "timing", err));
        PL_TRY(pl_cuda_sync(d, err));
        if (i >= 0) PL_TRY(pl_cuda_check(cudaEventElapsedTime(&ms[i], from, to), "timing", err));
    }
    qsort(ms, REPEATS, sizeof *ms, compare);
    *seconds = 1e-3 * ms[REPEATS / 2];
    return PLEACH_OK;
}

pleach_status pl_cuda_time(pl_cuda *d, void (*queue)(void *user, int i), void *user, int calls,
                           double *seconds, pleach_error *err)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaEvent_t from = NULL, to = NULL;
    pleach_status status;
    *seconds = 0;
    PL_TRY(pl_cuda_sync(d, err));
    PL_TRY(pl_cuda_check(cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal),
                         "capturing", err));
    for (int i = 0; i < calls; i++) queue(user, i);
    status = pl_cuda_check(cudaStreamEndCapture(d->stream, &graph), "capturing", err);
    if (status == PLEACH_OK)
        status = pl_cuda_check(cudaGraphInstantiate(&exec, graph, 0), "capturing", err);
    if (status == PLEACH_OK) status = pl_cuda_check(cudaEventCreate(&from), "timing", err);
    if (status == PLEACH_OK) status = pl_cuda_check(cudaEventCreate(&to), "timing", err);
    if (status == PLEACH_OK) status = replay(d, exec, from, to, seconds, err);
    *seconds /= calls;
    if (from) cudaEventDestroy(from);
    if (to) cudaEventDestroy(to);
    if (exec) cudaGraphExecDestroy(exec);
    if (graph) cudaGraphDestroy(graph);
    return status;
}
