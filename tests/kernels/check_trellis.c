/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products: every level against the portable one bit for bit, the portable one against
 * integers and doubles worked out here from the state definition, and M rows against each row
 * alone. */
#include "check.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "codec/trellis.h"

enum { MOST_ROWS = 150 };

/* A random coded matrix with random activations: operands of one product. */
typedef struct problem {
    pleach_trellis t;
    size_t M, split, groups, codes_bytes;
    uint8_t *codes;
    int16_t *q; /* [M][width], width: padded rows (axis 0) or columns (axis 1) */
    size_t width;
    float *steps;
    void *scratch;
} problem;

static void make_problem(check *t, problem *p, unsigned axis, unsigned k, unsigned L)
{
    static const uint32_t blocks[] = {32, 64, 96, 128, 160, 192, 224, 256, 288, 384, 512, 1024};
    uint32_t T = blocks[check_below(t, check_below(t, 4) ? 8 : PL_COUNT(blocks))];
    size_t M = check_below(t, 3) ? 1 : 1 + check_below(t, 20);
    *p = (problem){.M = M, .split = 64 * (1 + check_below(t, 2))};
    p->t = (pleach_trellis){.bits = k,
                            .state_bits = L,
                            .block = T,
                            .axis = axis,
                            .rows = 1 + check_below(t, MOST_ROWS),
                            .cols = (uint64_t)T * (1 + check_below(t, 3))};
    p->codes_bytes = pleach_trellis_words(&p->t) * 4;
    p->codes = check_fenced(t, p->codes_bytes);
    check_fill(t, p->codes, p->codes_bytes);
    p->groups = axis ? p->t.cols / T * pl_block_groups(T) : (p->t.rows + 63) / 64;
    p->width = axis ? p->t.cols : (p->t.rows + 63) / 64 * 64;
    p->q = check_buffer(t, M * p->width * 2, 64);
    p->steps = check_buffer(t, M * p->groups * 4, 64);
    for (size_t m = 0; m < M; m++) {
        uint32_t kind = check_below(t, 4);
        for (size_t i = 0; i < p->width; i++) {
            int32_t v = (int32_t)check_below(t, 65535) - 32767;
            if (kind == 0) v = i & 1 ? -32767 : 32767;
            if (kind == 1) v = 32767;
            if (!axis && i >= p->t.rows) v = 0;
            p->q[m * p->width + i] = (int16_t)v;
        }
        for (size_t g = 0; g < p->groups; g++) p->steps[m * p->groups + g] = (float)check_unit(t);
    }
    p->scratch = check_buffer(t, pl_trellis_product_scratch(T, M), 64);
}

/* Block column b (axis 0) or everything (axis 1) of activation rows m0 .. m0 + M - 1. */
static void run(check *t, const pl_kernels *kernels, const problem *p, size_t b, size_t m0,
                size_t M, float *out)
{
    unsigned k = p->t.bits - 2, L = p->t.state_bits == 16;
    size_t T = p->t.block, blocks = p->t.cols / T, bytes = pl_trellis_block_words(&p->t) * 4;
    const int16_t *q = p->q + m0 * p->width;
    pl_trellis_product job = {.codes = p->codes,
                              .row_bytes = blocks * bytes,
                              .rows = p->t.rows,
                              .block = T,
                              .blocks = blocks,
                              .split = p->split,
                              .M = M,
                              .q = q,
                              .q_stride = p->width,
                              .steps = p->steps + m0 * p->groups,
                              .step_stride = p->groups,
                              .out = out,
                              .scratch = p->scratch};
    if (p->t.axis == 0) {
        job.codes += b * bytes;
        job.out_stride = T;
        kernels->product.axis0[k][L](&job);
    } else {
        void *prepared = check_buffer(t, pl_trellis_prepared_bytes(T, blocks, M), 64);
        kernels->product.prepare(prepared, q, T, blocks, M);
        job.q = prepared;
        job.out_stride = p->t.rows;
        kernels->product.axis1[k][L](&job);
    }
}

/* The formula of product.h in doubles, apart from the roundings: rounding them all moves a result
 * by less than 2^-22 of the sum of magnitudes for every group and split. */
static void check_formula(check *t, const problem *p, size_t b, const float *got)
{
    size_t T = p->t.block, blocks = p->t.cols / T, outputs = p->t.axis ? p->t.rows : T;
    static double want[1024], bound[1024];
    uint16_t states[PL_TRELLIS_MAX_BLOCK];
    uint32_t words[PL_TRELLIS_MAX_WORDS];
    for (size_t m = 0; m < p->M; m++) {
        memset(want, 0, sizeof want);
        memset(bound, 0, sizeof bound);
        for (size_t r = 0; r < p->t.rows; r++)
            for (size_t c = p->t.axis ? 0 : b; c < (p->t.axis ? blocks : b + 1); c++) {
                memcpy(words, p->codes + (r * blocks + c) * pl_trellis_block_words(&p->t) * 4,
                       pl_trellis_block_words(&p->t) * 4);
                pl_trellis_states(&p->t, states, words);
                for (size_t i = 0; i < T; i++) {
                    size_t g = p->t.axis ? c * pl_block_groups(T) + (T - 1 - i) / 128 : r / 64;
                    double q = p->q[m * p->width + (p->t.axis ? c * T + i : r)];
                    double v = q * pl_trellis_y(states[i]) * p->steps[m * p->groups + g];
                    want[p->t.axis ? r : i] += v;
                    bound[p->t.axis ? r : i] += fabs(v);
                }
            }
        for (size_t i = 0; i < outputs; i++)
            bound[i] = bound[i] * 0x1p-22 * (double)(p->groups + 4) + 1e-30;
        if (!check_close(t, got + m * outputs, want, bound, outputs)) return;
    }
}

static void check_axis(check *t, const pl_kernels *c, const pl_kernels *isa, unsigned axis,
                       unsigned k, unsigned L)
{
    for (int round = 0; round < 60 && check_good(t); round++) {
        problem p;
        check_release(t);
        make_problem(t, &p, axis, k, L);
        size_t outputs = axis ? p.t.rows : p.t.block,
               b = check_below(t, (uint32_t)(p.t.cols / p.t.block));
        size_t bytes = p.M * outputs * 4;
        float *want = check_buffer(t, bytes, 4), *got = check_buffer(t, bytes, 4);
        run(t, c, &p, b, 0, p.M, want);
        run(t, isa, &p, b, 0, p.M, got);
        check_same(t, got, want, bytes);
        if (check_is_reference(t)) check_formula(t, &p, b, want);
        size_t m = check_below(t, (uint32_t)p.M);
        run(t, isa, &p, b, m, 1, got);
        check_same(t, got, want + m * outputs, outputs * 4);
    }
}

/* 1536 stored rows by eight blocks of 256, M activation rows. */
static void bench_product(check *t, const pl_kernels *isa, unsigned axis, unsigned k, unsigned L,
                          size_t M, size_t T, const char *label)
{
    check_release(t);
    problem p = {.M = M, .split = 256, .width = 1536, .groups = 64};
    p.t = (pleach_trellis){.bits = k,
                           .state_bits = L,
                           .block = (uint32_t)T,
                           .axis = axis,
                           .rows = 1536,
                           .cols = 1536 / T * T};
    p.codes_bytes = pleach_trellis_words(&p.t) * 4;
    p.codes = check_buffer(t, p.codes_bytes, 1);
    p.q = check_buffer(t, M * p.width * 2, 64);
    p.steps = check_buffer(t, M * p.groups * 4, 64);
    p.scratch = check_buffer(t, pl_trellis_product_scratch(T, M), 64);
    float *out = check_buffer(t, M * 1536 * 4, 64);
    memset(p.steps, 0, M * p.groups * 4);
    size_t blocks = p.t.cols / T, bytes = pl_trellis_block_words(&p.t) * 4;
    void *prepared = check_buffer(t, pl_trellis_prepared_bytes(T, blocks, M), 64);
    isa->product.prepare(prepared, p.q, T, blocks, M);
    pl_trellis_product job = {.codes = p.codes,
                              .row_bytes = blocks * bytes,
                              .rows = 1536,
                              .block = T,
                              .blocks = blocks,
                              .split = 256,
                              .M = M,
                              .q = axis ? prepared : p.q,
                              .q_stride = p.width,
                              .steps = p.steps,
                              .step_stride = p.groups,
                              .out = out,
                              .scratch = p.scratch,
                              .out_stride = axis ? 1536 : T};
    check_bench(t, 1e-9 * 1536 * (double)p.t.cols * (double)M, label)
    {
        if (axis) isa->product.axis1[k - 2][L == 16](&job);
        for (size_t b = 0; !axis && b < blocks; b++) {
            job.codes = p.codes + b * bytes;
            isa->product.axis0[k - 2][L == 16](&job);
        }
    }
}

static void check_values(check *t, const pl_kernels *c, const pl_kernels *isa, unsigned k,
                         unsigned L)
{
    for (int round = 0; round < 60 && check_good(t); round++) {
        check_release(t);
        pleach_trellis g = {.bits = k, .state_bits = L, .block = 32 * (1 + check_below(t, 32))};
        size_t bytes = pl_trellis_block_words(&g) * 4;
        uint8_t *block = check_fenced(t, bytes);
        int16_t *want = check_buffer(t, g.block * 2, 2), *got = check_buffer(t, g.block * 2, 2);
        check_fill(t, block, bytes);
        c->product.values[k - 2][L == 16](want, block, g.block);
        isa->product.values[k - 2][L == 16](got, block, g.block);
        check_same(t, got, want, g.block * 2);
        if (!check_is_reference(t)) continue;
        uint32_t words[PL_TRELLIS_MAX_WORDS];
        uint16_t states[PL_TRELLIS_MAX_BLOCK];
        memcpy(words, block, bytes);
        pl_trellis_states(&g, states, words);
        for (size_t i = 0; i < g.block; i++)
            if (want[i] != pl_trellis_y(states[i])) check_fail(t, "number %zu is %d", i, want[i]);
    }
}

void check_trellis(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    for (unsigned k = 2; k <= 4; k++)
        for (unsigned L = 12; L <= 16; L += 4) {
            const int i = L == 16;
            if (check_begin(t, isa->product.axis0[k - 2][i] != c->product.axis0[k - 2][i],
                            "trellis_axis0_k%u_l%u", k, L)) {
                check_axis(t, c, isa, 0, k, L);
                bench_product(t, isa, 0, k, L, 1, 256, "Gw/s");
                bench_product(t, isa, 0, k, L, 1, 192, "Gw/s T192");
                bench_product(t, isa, 0, k, L, 8, 256, "Gmac/s M8");
                bench_product(t, isa, 0, k, L, 64, 256, "Gmac/s M64");
                check_end(t);
            }
            if (check_begin(t, isa->product.axis1[k - 2][i] != c->product.axis1[k - 2][i],
                            "trellis_axis1_k%u_l%u", k, L)) {
                check_axis(t, c, isa, 1, k, L);
                bench_product(t, isa, 1, k, L, 1, 256, "Gw/s");
                bench_product(t, isa, 1, k, L, 1, 192, "Gw/s T192");
                bench_product(t, isa, 1, k, L, 8, 256, "Gmac/s M8");
                bench_product(t, isa, 1, k, L, 64, 256, "Gmac/s M64");
                check_end(t);
            }
            if (check_begin(t, isa->product.values[k - 2][i] != c->product.values[k - 2][i],
                            "trellis_values_k%u_l%u", k, L)) {
                check_values(t, c, isa, k, L);
                check_end(t);
            }
        }
}
