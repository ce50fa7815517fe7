/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers of random codes, and the time that a run of them takes. */
#include "bench_layers.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/random.h"
#include "console.h"

pleach_status open_bench_memory(bench_memory *b, size_t repeats, unsigned cpu, pleach_error *err)
{
    uint64_t random = 1;
    b->repeats = repeats;
    pl_kernels_init(&b->compute.kernels, cpu);
    b->codes = pl_alloc(CODE_BYTES, 1);
    b->scales = pl_alloc(WIDE, sizeof *b->scales);
    b->x = pl_alloc((size_t)MOST_M * WIDE, sizeof *b->x);
    b->y = pl_alloc((size_t)MOST_M * WIDE, sizeof *b->y);
    b->y2 = pl_calloc((size_t)MOST_M * WIDE, sizeof *b->y2);
    if (!b->codes || !b->scales || !b->x || !b->y || !b->y2)
        return pl_fail_memory(err, "matrices to measure with", CODE_BYTES);
    for (size_t i = 0; i < CODE_BYTES; i += 8) {
        uint64_t bits = pl_random_next(&random);
        memcpy(b->codes + i, &bits, 8);
    }
    for (size_t i = 0; i < WIDE; i++) b->scales[i] = pl_f32_to_fp16(0.01f);
    for (size_t i = 0; i < (size_t)MOST_M * WIDE; i++)
        b->x[i] = (float)(pl_random_unit(&random) + pl_random_unit(&random) - 1);
    return PLEACH_OK;
}

void close_bench_memory(bench_memory *b)
{
    pl_free(b->codes);
    pl_free(b->scales);
    pl_free(b->x);
    pl_free(b->y);
    pl_free(b->y2);
    pl_free(b->scratch);
}

double best_seconds(const bench_memory *b, run_fn *run, void *arg)
{
    double best = INFINITY, begun = pl_seconds();
    run(arg);
    if (pl_seconds() - begun > 2) return pl_seconds() - begun;
    for (size_t r = 0; r < b->repeats && !interrupted(); r++) {
        double start = pl_seconds();
        run(arg);
        double end = pl_seconds();
        if (end - start < best) best = end - start;
        if (end - begun > 1) break;
    }
    return best;
}

void run_layer(void *arg)
{
    layers *l = arg;
    const pl_linear *one = &l->linear[l->next++ % l->n];
    pl_linear_apply(&l->memory->compute, &one, 1, l->memory->x, l->M, &l->memory->y,
                    l->memory->scratch);
}

void run_two(void *arg)
{
    layers *l = arg;
    bench_memory *b = l->memory;
    const pl_linear *two[] = {&l->linear[l->next % l->n], &l->linear[(l->next + 1) % l->n]};
    l->next += 2;
    pl_linear_apply(&b->compute, two, 2, b->x, l->M, (float *const[]){b->y, b->y2}, b->scratch);
}

void run_swiglu(void *arg)
{
    layers *l = arg;
    bench_memory *b = l->memory;
    size_t i = l->next;
    l->next += 2;
    pl_linear_gated(&b->compute, &l->linear[i % l->n], &l->linear[(i + 1) % l->n],
                    b->compute.kernels.silu_mul, b->x, l->M, b->y, b->y2, b->scratch);
}

void close_layers(layers *l)
{
    for (size_t i = 0; i < l->n; i++) pl_linear_close(&l->linear[i]);
}

pleach_status open_layers(layers *l, bench_memory *b, const pl_weight *shape, size_t bytes,
                          pleach_error *err)
{
    *l = (layers){.memory = b};
    bool dense = shape->coding == PL_CODING_DENSE, affine = shape->coding == PL_CODING_AFFINE;
    l->scales = (pl_tensor){.name = "scales", .type = PL_F16, .n_dims = 1, .data = b->scales,
                            .shape = {shape->trellis.rows}, .n_bytes = 2 * shape->trellis.rows};
    if (affine) {
        size_t groups = shape->in / shape->group_size;
        l->scales = (pl_tensor){.name = "scales", .type = PL_F16, .n_dims = 2, .data = b->y2,
                                .shape = {shape->out, groups}, .n_bytes = 2 * shape->out * groups};
    }
    size_t most = PL_MIN((size_t)COPIES, CODE_BYTES / bytes);
    for (size_t i = 0; i < most; i++) {
        pl_weight w = *shape;
        l->weight[i] = (pl_tensor){.name = "weight", .n_dims = 2, .data = b->codes + i * bytes,
                                   .type = dense ? PL_BF16 : PL_U32,
                                   .shape = {shape->out, dense ? shape->in
                                                               : bytes / shape->out / 4},
                                   .n_bytes = bytes};
        w.weight = &l->weight[i];
        if (!dense) w.scales = &l->scales;
        if (affine) w.biases = &l->scales;
        PL_TRY(pl_linear_open(&l->linear[i], &w, err));
        l->n++;
    }
    return PLEACH_OK;
}

pl_weight trellis_weight(size_t out, size_t in, int axis, int bits, int state_bits)
{
    pleach_trellis t = {.bits = (uint32_t)bits, .state_bits = (uint32_t)state_bits, .block = 256,
                        .axis = (uint32_t)axis, .rows = axis ? out : in, .cols = axis ? in : out};
    return (pl_weight){.coding = PL_CODING_TRELLIS, .out = out, .in = in, .trellis = t};
}

pleach_status reserve_scratch(bench_memory *b, const layers *l, size_t M, pleach_error *err)
{
    const pl_linear *two[] = {&l->linear[0], &l->linear[l->n - 1]};
    size_t size = pl_linear_scratch(&b->compute, two, 2, M);
    if (size <= b->scratch_size) return PLEACH_OK;
    pl_free(b->scratch);
    b->scratch = pl_alloc(size, 1);
    b->scratch_size = b->scratch ? size : 0;
    return b->scratch ? PLEACH_OK : pl_fail_memory(err, "scratch", size);
}
