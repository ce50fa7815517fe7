/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with trellis weights by few rows, as layers run them: activations rounded, sums finished;
 * gate, up and SwiGLU in one. */
#include "base/compiler.h"
#include "bench_cuda.h"
#include "cuda/trellis_limbs.h"

enum { CALLS = 48 };

typedef struct product {
    bench_cuda_product of;
    bool swiglu;
} product;

static void queue(void *user, int i)
{
    const product *p = user;
    pl_cuda_trellis gate = bench_cuda_weight(&p->of, 2 * i);
    pl_cuda_trellis up = bench_cuda_weight(&p->of, 2 * i + 1);
    pl_cuda_product a = p->of.p, b = p->of.p;
    a.w = &gate;
    b.w = &up;
    if (p->swiglu)
        pl_cuda_trellis_limbs_swiglu(p->of.b->d, &a, &b, NULL);
    else
        pl_cuda_trellis_limbs_run(p->of.b->d, &a, NULL);
}

static product make(bench_cuda *b, size_t out, size_t in, int axis, int k, int L, size_t M)
{
    return (product){.of = bench_cuda_make_product(b, out, in, axis, k, L, M)};
}

static pleach_status measure(bench_cuda *b, product p, bench_row row, pleach_error *err)
{
    const pl_cuda_trellis w = bench_cuda_weight(&p.of, 0);
    bool served = p.swiglu ? pl_cuda_trellis_limbs_swiglu_serves(b->d, &w, &w, row.M)
                           : pl_cuda_trellis_limbs_serves(b->d, &w, row.M);
    if (!served) return PLEACH_OK;
    PL_TRY(bench_cuda_measure(b, queue, &p, CALLS, &row.seconds, err));
    bench_cuda_add(b, row);
    return PLEACH_OK;
}

static pleach_status measure_shape(bench_cuda *b, size_t out, size_t in, pleach_error *err)
{
    static const size_t sizes[] = {1, 4, 8};
    double bf16[PL_COUNT(sizes)], roof[5];
    for (size_t i = 0; i < PL_COUNT(sizes); i++)
        PL_TRY(bench_cuda_bf16(b, out, in, sizes[i], &bf16[i], err));
    for (int k = 2; k <= 4; k++)
        PL_TRY(bench_cuda_roof(b, out * in / 8 * (size_t)k, &roof[k], err));
    for (int axis = 0; axis < 2; axis++)
        for (int k = 2; k <= 4; k++)
            for (size_t i = 0; i < PL_COUNT(sizes); i++)
                PL_TRY(measure(b, make(b, out, in, axis, k, 12, sizes[i]),
                               (bench_row){.what = "product", .out = out, .in = in, .M = sizes[i],
                                           .axis = axis, .bits = k, .state_bits = 12,
                                           .roof_seconds = roof[k], .bf16_seconds = bf16[i]},
                               err));
    return PLEACH_OK;
}

static pleach_status measure_swiglu(bench_cuda *b, pleach_error *err)
{
    static const size_t sizes[] = {1, 4, 8};
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        double bf16, roof;
        PL_TRY(bench_cuda_bf16(b, BENCH_WIDE, BENCH_NARROW, sizes[i], &bf16, err));
        for (int axis = 0; axis < 2; axis++)
            for (int k = 2; k <= 4; k++) {
                product p = make(b, BENCH_WIDE, BENCH_NARROW, axis, k, 12, sizes[i]);
                p.swiglu = true;
                PL_TRY(bench_cuda_roof(b, 2 * p.of.bytes, &roof, err));
                PL_TRY(measure(b, p,
                               (bench_row){.what = "gate+up+SwiGLU", .out = BENCH_WIDE,
                                           .in = BENCH_NARROW, .M = sizes[i], .axis = axis,
                                           .bits = k, .state_bits = 12, .roof_seconds = roof,
                                           .bf16_seconds = 2 * bf16},
                               err));
            }
    }
    return PLEACH_OK;
}

/* L = 16 beside L = 12, one row. */
static pleach_status measure_long_states(bench_cuda *b, pleach_error *err)
{
    for (int axis = 0; axis < 2; axis++)
        for (int k = 2; k <= 4; k++)
            PL_TRY(measure(b, make(b, BENCH_WIDE, BENCH_NARROW, axis, k, 16, 1),
                           (bench_row){.what = "product", .out = BENCH_WIDE, .in = BENCH_NARROW,
                                       .M = 1, .axis = axis, .bits = k, .state_bits = 16},
                           err));
    return PLEACH_OK;
}

pleach_status bench_cuda_products(bench_cuda *b, pleach_error *err)
{
    PL_TRY(pl_cuda_trellis_limbs_prepare(b->d, err));
    PL_TRY(measure_shape(b, BENCH_WIDE, BENCH_NARROW, err));
    PL_TRY(measure_shape(b, BENCH_NARROW, BENCH_WIDE, err));
    PL_TRY(measure_shape(b, BENCH_SQUARE, BENCH_SQUARE, err));
    PL_TRY(measure_swiglu(b, err));
    return measure_long_states(b, err);
}
