/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with trellis weights by many rows, activations laid out and sums finished; weights
 * decoded to bf16. */
#include "base/compiler.h"
#include "bench_cuda.h"
#include "cuda/trellis_expand.h"
#include "cuda/trellis_half.h"
#include "cuda/trellis_many.h"
#include "cuda/trellis_tiles.h"

enum { CALLS = 24 };

typedef struct kernels {
    const char *what;
    bool (*serves)(const pl_cuda *d, const pl_cuda_trellis *w, size_t M);
    size_t (*scratch)(const pl_cuda *d, const pl_cuda_trellis *w, size_t M);
    void (*run)(const pl_cuda *d, const pl_cuda_product *p, void *scratch);
} kernels;

/* The first that serves, as in cuda/linear.c. */
static const kernels all[] = {
    {"product, tiles", pl_cuda_trellis_tiles_serves, pl_cuda_trellis_tiles_scratch,
     pl_cuda_trellis_tiles_run},
    {"product, bf16", pl_cuda_trellis_many_serves, pl_cuda_trellis_many_scratch,
     pl_cuda_trellis_many_run},
    {"product, fp16", pl_cuda_trellis_half_serves, pl_cuda_trellis_half_scratch,
     pl_cuda_trellis_half_run},
};

typedef struct product {
    bench_cuda_product of;
    void *scratch; /* or the expanded weights */
    const kernels *by;
} product;

static void queue(void *user, int i)
{
    const product *p = user;
    pl_cuda_trellis w = bench_cuda_weight(&p->of, i);
    pl_cuda_product job = p->of.p;
    job.w = &w;
    p->by->run(p->of.b->d, &job, p->scratch);
}

static void queue_expand(void *user, int i)
{
    const product *p = user;
    pl_cuda_trellis w = bench_cuda_weight(&p->of, i);
    pl_cuda_trellis_expand(p->of.b->d, &w, 0, w.shape.rows, p->scratch, w.shape.cols);
}

static product make(bench_cuda *b, size_t out, size_t in, int axis, int k, size_t M)
{
    return (product){.of = bench_cuda_make_product(b, out, in, axis, k, 12, M)};
}

static pleach_status measure_product(bench_cuda *b, product p, bench_row row, pleach_error *err)
{
    const pl_cuda_trellis w = bench_cuda_weight(&p.of, 0);
    p.by = all;
    while (!p.by->serves(b->d, &w, row.M)) p.by++;
    size_t bytes = p.by->scratch(b->d, &w, row.M);
    row.what = p.by->what;
    PL_TRY(pl_cuda_alloc(b->d, &p.scratch, bytes, "scratch of a product", err));
    pleach_status status = bench_cuda_measure(b, queue, &p, CALLS, &row.seconds, err);
    pl_cuda_free(p.scratch);
    if (status == PLEACH_OK) bench_cuda_add(b, row);
    return status;
}

static pleach_status measure_shape(bench_cuda *b, size_t out, size_t in, pleach_error *err)
{
    static const size_t sizes[] = {8, 16, 32, 64, 128, 256, 512};
    double bf16[PL_COUNT(sizes)], roof[5];
    for (size_t i = 0; i < PL_COUNT(sizes); i++)
        PL_TRY(bench_cuda_bf16(b, out, in, sizes[i], &bf16[i], err));
    for (int k = 2; k <= 4; k++)
        PL_TRY(bench_cuda_roof(b, out * in / 8 * (size_t)k, &roof[k], err));
    for (int axis = 0; axis < 2; axis++)
        for (int k = 2; k <= 4; k++)
            for (size_t i = 0; i < PL_COUNT(sizes); i++) {
                bench_row row = {.out = out, .in = in, .M = sizes[i], .axis = axis, .bits = k,
                                 .state_bits = 12, .roof_seconds = roof[k],
                                 .bf16_seconds = bf16[i]};
                PL_TRY(measure_product(b, make(b, out, in, axis, k, sizes[i]), row, err));
            }
    return PLEACH_OK;
}

static pleach_status measure_expand(bench_cuda *b, pleach_error *err)
{
    const size_t n = (size_t)BENCH_WIDE * BENCH_NARROW;
    pleach_status status = PLEACH_OK;
    void *dst;
    PL_TRY(pl_cuda_alloc(b->d, &dst, 2 * n, "expanded weights", err));
    for (int axis = 0; axis < 2; axis++)
        for (int k = 2; k <= 4 && status == PLEACH_OK; k++) {
            product p = make(b, BENCH_WIDE, BENCH_NARROW, axis, k, 1);
            bench_row row = {.what = "expand", .out = BENCH_WIDE, .in = BENCH_NARROW, .axis = axis,
                             .bits = k, .state_bits = 12, .units = 1e-9 * (double)n,
                             .unit = "G weights/s"};
            p.scratch = dst;
            status = bench_cuda_roof(b, 2 * n, &row.roof_seconds, err);
            if (status == PLEACH_OK)
                status = bench_cuda_measure(b, queue_expand, &p, CALLS, &row.seconds, err);
            if (status == PLEACH_OK) bench_cuda_add(b, row);
        }
    pl_cuda_free(dst);
    return status;
}

pleach_status bench_cuda_half(bench_cuda *b, pleach_error *err)
{
    PL_TRY(pl_cuda_trellis_half_prepare(b->d, err));
    PL_TRY(pl_cuda_trellis_many_prepare(b->d, err));
    PL_TRY(pl_cuda_trellis_tiles_prepare(b->d, err));
    PL_TRY(measure_shape(b, BENCH_WIDE, BENCH_NARROW, err));
    PL_TRY(measure_shape(b, BENCH_NARROW, BENCH_WIDE, err));
    PL_TRY(measure_shape(b, BENCH_SQUARE, BENCH_SQUARE, err));
    return measure_expand(b, err);
}
