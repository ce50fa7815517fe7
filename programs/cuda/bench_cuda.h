/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of pleach bench kernels --device cuda share: operands on the device, rows of the
 * table, and the two things each is held against, reading the same bytes and bf16 by cuBLAS. */
#ifndef BENCH_CUDA_H
#define BENCH_CUDA_H

#include <cublas_v2.h>
#include <stdint.h>

#include "cuda/trellis.h"

enum {
    BENCH_WIDE = 17408, /* a feed-forward layer of a 27B model */
    BENCH_NARROW = 5120,
    BENCH_SQUARE = 4096,
    BENCH_MOST_M = 512
};

/* One line. What does not apply is 0 or NULL. */
typedef struct bench_row {
    const char *what;
    size_t out, in, M;
    int axis, bits, state_bits; /* axis -1: none */
    double seconds, roof_seconds, bf16_seconds;
    double units; /* of `unit`, done in that time */
    const char *unit;
} bench_row;

enum { BENCH_ROWS = 512 };

typedef struct bench_cuda {
    pl_cuda *d;
    cublasHandle_t cublas;
    void *workspace;
    uint8_t *codes; /* BENCH_CODES random bytes, more than the caches hold */
    float *scales;  /* [BENCH_WIDE], about 0.01 */
    float *x, *y;   /* [BENCH_MOST_M][2 * BENCH_WIDE], random and undefined */
    bench_row rows[BENCH_ROWS];
    size_t n_rows;
} bench_cuda;

#define BENCH_CODES ((size_t)1 << 30)

/* Adds a line; prints it, too, unless the output is JSON. */
void bench_cuda_add(bench_cuda *b, bench_row row);

/* Seconds of one queue(user, i), i = 0 .. `calls` - 1, launches overlapping as in a model. */
pleach_status bench_cuda_measure(bench_cuda *b, void (*queue)(void *user, int i), void *user,
                                 int calls, double *seconds, pleach_error *err);
/* Where copy i of operands of `bytes` bytes begins among the random bytes; copies differ until
 * they fill them. */
const void *bench_cuda_copy(const bench_cuda *b, size_t bytes, int i);

/* A product with a trellis weight in units, T = 256: what stays the same from call to call. */
typedef struct bench_cuda_product {
    const bench_cuda *b;
    pl_cuda_product p; /* without a weight */
    pleach_trellis shape;
    size_t bytes;
} bench_cuda_product;
bench_cuda_product bench_cuda_make_product(const bench_cuda *b, size_t out, size_t in, int axis,
                                           int k, int L, size_t M);
/* Copy i of its weight. */
pl_cuda_trellis bench_cuda_weight(const bench_cuda_product *p, int i);

/* Seconds that reading `bytes` takes. */
pleach_status bench_cuda_roof(bench_cuda *b, size_t bytes, double *seconds, pleach_error *err);
/* Seconds of x W^T in bf16 by cuBLAS, W [out][in], x [M][in]. */
pleach_status bench_cuda_bf16(bench_cuda *b, size_t out, size_t in, size_t M, double *seconds,
                              pleach_error *err);

/* The parts. */
typedef pleach_status bench_cuda_part(bench_cuda *b, pleach_error *err);
bench_cuda_part bench_cuda_products, bench_cuda_half, bench_cuda_layers, bench_cuda_attention,
    bench_cuda_encode;

#endif
