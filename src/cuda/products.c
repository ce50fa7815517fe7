/* SPDX-License-Identifier: Apache-2.0
 *
 * A row-major matrix is its transpose by columns, which is how cuBLAS reads it. */
#include "products.h"

#include <limits.h>
#include <math.h>

#include "base/compiler.h"
#include "base/memory.h"

#define WORKSPACE ((size_t)32 << 20) /* of cuBLAS */
#define WORTHWHILE 256 /* multiply-adds for each number that is copied */
#define LEAST_WORK ((double)(1 << 26))
#define LEAST_FACTOR 1024 /* rows of a matrix that is factored here */

enum { BLOCK = 256 }; /* columns of a factor's panel */

struct pl_cuda_held {
    pl_cuda_held *next;
    float *host, *device;
    size_t n;
    bool written;
};

pleach_status pl_cuda_blas_check(cublasStatus_t status, pleach_error *err)
{
    PL_FAIL_IF(status != CUBLAS_STATUS_SUCCESS, err, PLEACH_ERR_DEVICE, "cuBLAS: %s",
               cublasGetStatusString(status));
    return PLEACH_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* With the lock held, on the thread's device. */
static bool need(pl_cuda_products *p, int i, size_t bytes)
{
    if (bytes <= p->size[i]) return true;
    pl_cuda_free(p->buffer[i]);
    p->size[i] = 0;
    if (pl_cuda_alloc(p->cuda, &p->buffer[i], bytes, "products", NULL) != PLEACH_OK) return false;
    p->size[i] = bytes;
    return true;
}

static pl_cuda_held *find(const pl_cuda_products *p, const float *a)
{
    pl_cuda_held *h = p->held;
    while (h && h->host != a) h = h->next;
    return h;
}

static void begin(pl_cuda_products *p)
{
    pthread_mutex_lock(&p->lock);
    cudaSetDevice(p->cuda->index);
}

static bool end(pl_cuda_products *p, bool fine)
{
    if (pl_cuda_sync(p->cuda, NULL) != PLEACH_OK) fine = false;
    pthread_mutex_unlock(&p->lock);
    return fine;
}

static void hold(pl_products *base, float *a, size_t n)
{
    pl_cuda_products *p = (pl_cuda_products *)base;
    pl_cuda_held *h = pl_calloc(1, sizeof *h);
    void *device = NULL;
    if (!h) return;
    begin(p);
    bool fine = pl_cuda_alloc(p->cuda, &device, n * sizeof *a, "products", NULL) == PLEACH_OK;
    if (fine)
        fine = cudaMemcpyAsync(device, a, n * sizeof *a, cudaMemcpyHostToDevice,
                               p->cuda->stream) == cudaSuccess;
    *h = (pl_cuda_held){p->held, a, device, n, false};
    if (fine) p->held = h;
    if (end(p, fine)) return;
    pl_cuda_free(device);
    pl_free(h);
}

/* What cannot be had back is NaN: nobody takes it for a sum. */
static void copy_back(pl_cuda_products *p, const pl_cuda_held *h)
{
    if (cudaMemcpyAsync(h->host, h->device, h->n * sizeof *h->host, cudaMemcpyDeviceToHost,
                        p->cuda->stream) == cudaSuccess &&
        pl_cuda_sync(p->cuda, NULL) == PLEACH_OK)
        return;
    for (size_t i = 0; i < h->n; i++) h->host[i] = NAN;
}

static void release(pl_products *base, float *a)
{
    pl_cuda_products *p = (pl_cuda_products *)base;
    begin(p);
    pl_cuda_held **at = &p->held;
    while (*at && (*at)->host != a) at = &(*at)->next;
    pl_cuda_held *h = *at;
    if (h) {
        *at = h->next;
        if (h->written) copy_back(p, h);
        pl_cuda_free(h->device);
        pl_free(h);
    }
    end(p, true);
}

/* ---- operands -------------------------------------------------------------------------------- */

/* A matrix on the host and, once there, on the device. */
typedef struct operand {
    const float *host;
    size_t rows, cols, ld;
    pl_cuda_held *held;
    float *device;
    size_t device_ld;
} operand;

static operand operand_of(const pl_cuda_products *p, const float *a, size_t rows, size_t cols,
                          size_t ld)
{
    operand o = {.host = a, .rows = rows, .cols = cols, .ld = ld, .held = find(p, a),
                 .device_ld = cols};
    if (!o.held) return o;
    o.device = o.held->device;
    o.device_ld = ld;
    return o;
}

static double copied(const operand *o, double times)
{
    return o->held ? 0 : times * (double)o->rows * (double)o->cols;
}

static bool worthwhile(double work, double numbers)
{
    return work >= LEAST_WORK && work >= WORTHWHILE * numbers;
}

static bool fits(const operand *o)
{
    return o->rows <= INT_MAX && o->cols <= INT_MAX && o->ld <= INT_MAX;
}

static bool put(pl_cuda_products *p, operand *o, int buffer, bool contents)
{
    if (o->held) return true;
    if (!need(p, buffer, o->rows * o->cols * sizeof(float))) return false;
    o->device = p->buffer[buffer];
    return !contents || cudaMemcpy2DAsync(o->device, o->cols * sizeof(float), o->host,
                                          o->ld * sizeof(float), o->cols * sizeof(float), o->rows,
                                          cudaMemcpyHostToDevice, p->cuda->stream) == cudaSuccess;
}

static bool get(pl_cuda_products *p, operand *o, float *c)
{
    if (o->held) {
        o->held->written = true;
        return true;
    }
    return cudaMemcpy2DAsync(c, o->ld * sizeof(float), o->device, o->cols * sizeof(float),
                             o->cols * sizeof(float), o->rows, cudaMemcpyDeviceToHost,
                             p->cuda->stream) == cudaSuccess;
}

/* ---- products -------------------------------------------------------------------------------- */

static bool matmul(pl_products *base, bool transpose_a, bool transpose_b, size_t m, size_t n,
                   size_t k, float alpha, const float *a, size_t lda, const float *b, size_t ldb,
                   float beta, float *c, size_t ldc)
{
    pl_cuda_products *p = (pl_cuda_products *)base;
    begin(p);
    operand A = operand_of(p, a, transpose_a ? k : m, transpose_a ? m : k, lda);
    operand B = operand_of(p, b, transpose_b ? n : k, transpose_b ? k : n, ldb);
    operand C = operand_of(p, c, m, n, ldc);
    double numbers = copied(&A, 1) + copied(&B, 1) + copied(&C, beta != 0 ? 2 : 1);
    bool fine = fits(&A) && fits(&B) && fits(&C) &&
                (C.held || worthwhile((double)m * (double)n * (double)k, numbers)) &&
                put(p, &A, 0, true) && put(p, &B, 1, true) && put(p, &C, 2, beta != 0);
    if (fine)
        fine = cublasSgemm(p->blas, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                           transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, (int)n, (int)m, (int)k, &alpha,
                           B.device, (int)B.device_ld, A.device, (int)A.device_ld, &beta, C.device,
                           (int)C.device_ld) == CUBLAS_STATUS_SUCCESS &&
               get(p, &C, c);
    return end(p, fine);
}

static bool gram(pl_products *base, bool rows, size_t n, size_t k, const float *a, size_t lda,
                 float *c, size_t ldc)
{
    pl_cuda_products *p = (pl_cuda_products *)base;
    const float one = 1;
    begin(p);
    operand A = operand_of(p, a, rows ? n : k, rows ? k : n, lda);
    operand C = operand_of(p, c, n, n, ldc);
    double numbers = copied(&A, 1) + copied(&C, 2);
    bool fine = fits(&A) && fits(&C) &&
                (C.held || worthwhile(.5 * (double)n * (double)n * (double)k, numbers)) &&
                put(p, &A, 0, true) && put(p, &C, 2, true);
    if (fine)
        fine = cublasSsyrk(p->blas, CUBLAS_FILL_MODE_LOWER, rows ? CUBLAS_OP_T : CUBLAS_OP_N,
                           (int)n, (int)k, &one, A.device, (int)A.device_ld, &one, C.device,
                           (int)C.device_ld) == CUBLAS_STATUS_SUCCESS &&
               get(p, &C, c);
    return end(p, fine);
}

/* ---- factors --------------------------------------------------------------------------------- */

/* Block [first, first + width) of the diagonal, factored by the processor. */
static bool factor_corner(pl_cuda_products *p, double *a, size_t n, size_t first, size_t width,
                          double *corner, bool *definite)
{
    const size_t row = width * sizeof *a, pitch = n * sizeof *a;
    double *at = a + first * n + first;
    if (cudaMemcpy2DAsync(corner, row, at, pitch, row, width, cudaMemcpyDeviceToHost,
                          p->cuda->stream) != cudaSuccess ||
        pl_cuda_sync(p->cuda, NULL) != PLEACH_OK)
        return false;
    *definite = pl_cholesky_upper(NULL, corner, width);
    return cudaMemcpy2DAsync(at, pitch, corner, row, row, width, cudaMemcpyHostToDevice,
                             p->cuda->stream) == cudaSuccess;
}

/* From the last block of columns to the first: U_JJ U_JJ^T = A_JJ, then for the rows above
 * U_J = A_J U_JJ^-T and A -= U_J U_J^T. */
static bool factor(pl_cuda_products *p, double *a, int n, double *corner, bool *definite)
{
    const double one = 1, minus = -1;
    for (int end = n; end > 0 && *definite;) {
        const int first = (end - 1) / BLOCK * BLOCK, width = end - first;
        double *panel = a + first;
        if (!factor_corner(p, a, (size_t)n, (size_t)first, (size_t)width, corner, definite))
            return false;
        if (first > 0 && *definite &&
            (cublasDtrsm(p->blas, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_T,
                         CUBLAS_DIAG_NON_UNIT, width, first, &one, a + (size_t)first * n + first, n,
                         panel, n) != CUBLAS_STATUS_SUCCESS ||
             cublasDsyrk(p->blas, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_T, first, width, &minus, panel,
                         n, &one, a, n) != CUBLAS_STATUS_SUCCESS))
            return false;
        end = first;
    }
    return true;
}

static bool cholesky_upper(pl_products *base, double *a, size_t n, bool *definite)
{
    pl_cuda_products *p = (pl_cuda_products *)base;
    const size_t bytes = n * n * sizeof *a;
    if (n < LEAST_FACTOR || n > INT_MAX) return false;
    double *corner = pl_alloc(BLOCK * BLOCK, sizeof *corner);
    if (!corner) return false;
    *definite = true;
    begin(p);
    bool fine = need(p, 0, bytes) &&
                cudaMemcpyAsync(p->buffer[0], a, bytes, cudaMemcpyHostToDevice,
                                p->cuda->stream) == cudaSuccess &&
                factor(p, p->buffer[0], (int)n, corner, definite) &&
                (!*definite || cudaMemcpyAsync(a, p->buffer[0], bytes, cudaMemcpyDeviceToHost,
                                               p->cuda->stream) == cudaSuccess);
    fine = end(p, fine);
    pl_free(corner);
    return fine;
}

/* ---- opening --------------------------------------------------------------------------------- */

static pleach_status open_products(pl_cuda_products *p, pleach_error *err)
{
    PL_TRY(pl_cuda_alloc(p->cuda, &p->workspace, WORKSPACE, "cuBLAS", err));
    PL_TRY(pl_cuda_blas_check(cublasCreate(&p->blas), err));
    PL_TRY(pl_cuda_blas_check(cublasSetStream(p->blas, p->cuda->stream), err));
    return pl_cuda_blas_check(cublasSetWorkspace(p->blas, p->workspace, WORKSPACE), err);
}

pleach_status pl_cuda_products_open(pl_cuda *d, pl_cuda_products **out, pleach_error *err)
{
    pl_cuda_products *p = pl_calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return pl_fail_memory(err, "products", sizeof *p);
    p->base = (pl_products){matmul, gram, cholesky_upper, hold, release};
    p->cuda = d;
    pthread_mutex_init(&p->lock, NULL);
    pleach_status status = open_products(p, err);
    if (status == PLEACH_OK) *out = p;
    else pl_cuda_products_close(p);
    return status;
}

void pl_cuda_products_close(pl_cuda_products *p)
{
    if (!p) return;
    while (p->held) release(&p->base, p->held->host);
    for (size_t i = 0; i < PL_COUNT(p->buffer); i++) pl_cuda_free(p->buffer[i]);
    if (p->blas) cublasDestroy(p->blas);
    pl_cuda_free(p->workspace);
    pthread_mutex_destroy(&p->lock);
    pl_free(p);
}
