/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands beside the products of a model's layers: norms and SiLU with and without the rotation
 * of what follows; affine and dense weights; trellis weights whose T is not 256. */
#include "base/compiler.h"
#include "bench_cuda.h"
#include "cuda/affine.h"
#include "cuda/blas.h"
#include "cuda/dense.h"
#include "cuda/trellis_any.h"
#include "cuda/trellis_blas.h"
#include "cuda/vector.h"

enum { CALLS = 48, BLOCK = 256, HEAD = 151936 };

/* ---- rows of numbers ------------------------------------------------------------------------- */

typedef enum step { NORM, SILU, ROTATION } step;

typedef struct row_task {
    const bench_cuda *b;
    step step;
    size_t n, M;
    pl_cuda_rotation rotation;
} row_task;

static void queue_row(void *user, int i)
{
    const row_task *t = user;
    const bench_cuda *b = t->b;
    (void)i;
    if (t->step == NORM)
        pl_cuda_rms_norm(b->d, b->y, b->x, b->y, b->scales, t->n, t->M, 1e-5f, &t->rotation);
    else if (t->step == SILU)
        pl_cuda_silu_mul(b->d, b->y, b->x, b->y, t->n, t->M, &t->rotation);
    else
        pl_cuda_rotate(b->d, b->y, b->y, t->n, t->M, &t->rotation);
}

static pleach_status measure_row(bench_cuda *b, const char *what, step step, size_t n, size_t M,
                                 size_t block, pleach_error *err)
{
    row_task t = {b, step, n, M, {b->scales, block}};
    bench_row row = {.what = what, .out = n, .in = 1, .M = M, .axis = -1};
    PL_TRY(bench_cuda_measure(b, queue_row, &t, CALLS, &row.seconds, err));
    bench_cuda_add(b, row);
    return PLEACH_OK;
}

static pleach_status measure_rows(bench_cuda *b, size_t M, pleach_error *err)
{
    PL_TRY(measure_row(b, "norm", NORM, BENCH_NARROW, M, 0, err));
    PL_TRY(measure_row(b, "norm+rotation", NORM, BENCH_NARROW, M, BLOCK, err));
    PL_TRY(measure_row(b, "SiLU", SILU, BENCH_WIDE, M, 0, err));
    PL_TRY(measure_row(b, "SiLU+rotation", SILU, BENCH_WIDE, M, BLOCK, err));
    PL_TRY(measure_row(b, "rotation", ROTATION, BENCH_NARROW, M, BLOCK, err));
    return measure_row(b, "rotation", ROTATION, BENCH_WIDE, M, BLOCK, err);
}

/* ---- plain weights --------------------------------------------------------------------------- */

typedef struct plain_task {
    const bench_cuda *b;
    pl_cuda_affine affine;
    pl_cuda_dense dense;
    size_t code_bytes, bytes, M;
} plain_task;

static void queue_plain(void *user, int i)
{
    const plain_task *t = user;
    const bench_cuda *b = t->b;
    /* Only read. */
    uint8_t *codes = (uint8_t *)(uintptr_t)bench_cuda_copy(b, t->bytes, i);
    if (t->affine.out) {
        pl_cuda_affine a = t->affine;
        a.codes = codes;
        a.scales = codes + t->code_bytes;
        pl_cuda_affine_run(b->d, &a, b->x, t->M, b->y, NULL, NULL, NULL);
    } else {
        pl_cuda_dense w = t->dense;
        w.data = codes;
        pl_cuda_dense_run(b->d, &w, b->x, t->M, b->y, NULL, NULL, NULL);
    }
}

static pleach_status measure_plain(bench_cuda *b, const char *what, plain_task t, size_t out,
                                   size_t in, pleach_error *err)
{
    bench_row row = {.what = what, .out = out, .in = in, .M = t.M, .axis = -1};
    t.b = b;
    PL_TRY(bench_cuda_roof(b, t.bytes, &row.roof_seconds, err));
    if (2 * out * in < BENCH_CODES)
        PL_TRY(bench_cuda_bf16(b, out, in, t.M, &row.bf16_seconds, err));
    PL_TRY(bench_cuda_measure(b, queue_plain, &t, CALLS, &row.seconds, err));
    bench_cuda_add(b, row);
    return PLEACH_OK;
}

static pleach_status measure_affine(bench_cuda *b, const char *what, uint32_t bits, size_t out,
                                    size_t in, size_t M, pleach_error *err)
{
    plain_task t = {.M = M, .code_bytes = out * in / 8 * bits};
    t.affine = (pl_cuda_affine){.out = out,
                                .in = in,
                                .bits = bits,
                                .group = 64,
                                .type = PL_BF16,
                                .rounded = true,
                                .biased = true};
    t.bytes = t.code_bytes + out * in / 64 * 4;
    return measure_plain(b, what, t, out, in, err);
}

static pleach_status measure_dense(bench_cuda *b, size_t M, pleach_error *err)
{
    size_t side = BENCH_SQUARE;
    plain_task t = {.M = M, .bytes = 2 * side * side};
    t.dense = (pl_cuda_dense){.type = PL_BF16, .out = side, .in = side};
    return measure_plain(b, "dense bf16", t, side, side, err);
}

/* ---- other T --------------------------------------------------------------------------------- */

typedef struct other_task {
    const bench_cuda *b;
    pl_cuda_product p;
    pleach_trellis shape;
    void *scratch;
} other_task;

static void queue_other(void *user, int i)
{
    const other_task *t = user;
    size_t bytes = 4 * pleach_trellis_words(&t->shape);
    void *codes = (void *)(uintptr_t)bench_cuda_copy(t->b, bytes, i);
    pl_cuda_trellis w = {.shape = t->shape, .codes = codes, .scales = t->b->scales};
    pl_cuda_product p = t->p;
    p.w = &w;
    if (pl_cuda_trellis_blas_serves(t->b->d, &w, p.M))
        pl_cuda_trellis_blas_run(t->b->d, &p, t->scratch);
    else
        pl_cuda_trellis_any_run(t->b->d, &p, t->scratch);
}

static pleach_status measure_other(bench_cuda *b, unsigned axis, size_t side, size_t M,
                                   pleach_error *err)
{
    other_task t = {.b = b};
    t.shape = (pleach_trellis){
        .bits = 3, .state_bits = 12, .block = 192, .axis = axis, .rows = side, .cols = side};
    t.p = (pl_cuda_product){
        .in = side, .out = side, .M = M, .x = b->x, .x_stride = side, .y = b->y, .y_stride = side};
    pl_cuda_trellis w = {.shape = t.shape};
    size_t any = pl_cuda_trellis_any_scratch(b->d, &w, M);
    size_t blas = pl_cuda_trellis_blas_scratch(b->d, &w, M);
    PL_TRY(pl_cuda_alloc(b->d, &t.scratch, PL_MAX(any, blas), "scratch", err));
    bench_row row = {.what = "product T=192",
                     .out = side,
                     .in = side,
                     .M = M,
                     .axis = (int)axis,
                     .bits = 3,
                     .state_bits = 12};
    pleach_status status =
        bench_cuda_roof(b, 4 * pleach_trellis_words(&t.shape), &row.roof_seconds, err);
    if (status == PLEACH_OK) status = bench_cuda_bf16(b, side, side, M, &row.bf16_seconds, err);
    if (status == PLEACH_OK)
        status = bench_cuda_measure(b, queue_other, &t, CALLS, &row.seconds, err);
    if (status == PLEACH_OK) bench_cuda_add(b, row);
    pl_cuda_free(t.scratch);
    return status;
}

pleach_status bench_cuda_layers(bench_cuda *b, pleach_error *err)
{
    static const size_t sizes[] = {1, 8, 256}, sides[] = {576, 4032};
    PL_TRY(pl_cuda_blas_open(b->d, err));
    PL_TRY(measure_rows(b, 1, err));
    PL_TRY(measure_rows(b, BENCH_MOST_M, err));
    for (unsigned axis = 0; axis < 2; axis++)
        for (size_t i = 0; i < PL_COUNT(sides); i++)
            for (size_t j = 0; j < PL_COUNT(sizes); j++)
                PL_TRY(measure_other(b, axis, sides[i], sizes[j], err));
    PL_TRY(measure_affine(b, "affine 4 bits", 4, BENCH_SQUARE, BENCH_SQUARE, 1, err));
    PL_TRY(measure_affine(b, "affine 8 bits", 8, BENCH_SQUARE, BENCH_SQUARE, 1, err));
    PL_TRY(measure_affine(b, "affine 4 bits", 4, HEAD, BENCH_SQUARE, 1, err));
    PL_TRY(measure_dense(b, 1, err));
    return measure_dense(b, 8, err);
}
