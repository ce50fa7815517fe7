/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products: every level against the portable one bit for bit, the portable one against
 * integers and doubles worked out here from the state definition, and M rows against each row
 * alone. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/compiler.h"
#include "codec/trellis.h"

enum { MOST_ROWS = 150 };

/* A random coded matrix with random activations: operands of one product. */
typedef struct problem {
    pleach_trellis t;
    unsigned i8;
    size_t M, split, groups, codes_bytes;
    uint8_t *codes;
    int16_t *q; /* [M][width], width: padded rows (axis 0) or columns (axis 1) */
    size_t width;
    float *steps;
    void *scratch;
} problem;

static void make_problem(check *t, problem *p, unsigned axis, unsigned k, unsigned L, unsigned i8)
{
    static const uint32_t blocks[] = {32, 64, 96, 128, 160, 192, 224, 256, 288, 384, 512, 1024};
    uint32_t T = blocks[check_below(t, check_below(t, 4) ? 8 : PL_COUNT(blocks))];
    size_t M = check_below(t, 3) ? 1 + check_below(t, 9) : 1 + check_below(t, PL_PRODUCT_ROWS);
    *p = (problem){.M = M, .i8 = i8, .split = 64 * (1 + check_below(t, 2))};
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
            int32_t most = i8 ? 127 : 32767, v = (int32_t)check_below(t, 2 * most + 1) - most;
            if (kind == 0) v = i & 1 ? -most : most;
            if (kind == 1) v = most;
            if (!axis && i >= p->t.rows) v = 0;
            p->q[m * p->width + i] = (int16_t)v;
        }
        for (size_t g = 0; g < p->groups; g++) p->steps[m * p->groups + g] = (float)check_unit(t);
    }
    p->scratch = check_buffer(t, pl_trellis_product_scratch(T, M), 64);
}

/* Block column b (axis 0) or everything (axis 1) of activation rows m0 .. m0 + M - 1. */
static void run(check *t, const pl_kernels *kernels, const problem *p, size_t b, size_t m0,
                size_t M, bool tile, float *out)
{
    unsigned k = p->t.bits - 2, L = p->t.state_bits == 16;
    size_t T = p->t.block, blocks = p->t.cols / T, bytes = pl_trellis_block_words(&p->t) * 4;
    const int16_t *q = p->q + m0 * p->width;
    const pl_product_kernels *product = &kernels->product;
    pl_trellis_product job = {.codes = p->codes,
                              .row_bytes = blocks * bytes,
                              .rows = p->t.rows,
                              .block = T,
                              .blocks = blocks,
                              .split = p->split,
                              .M = M,
                              .tile = tile,
                              .q = q,
                              .q_stride = p->width,
                              .steps = p->steps + m0 * p->groups,
                              .step_stride = p->groups,
                              .out = out,
                              .scratch = p->scratch};
    if (p->t.axis == 0) {
        job.codes += b * bytes;
        job.out_stride = T;
        (p->i8 ? product->axis0_i8 : product->axis0)[k][L](&job);
    } else {
        void *prepared = check_buffer(t, pl_trellis_prepared_bytes(T, blocks, M), 64);
        (p->i8 ? product->prepare_i8 : product->prepare)(prepared, q, T, blocks, M, tile);
        job.q = prepared;
        job.out_stride = p->t.rows;
        (p->i8 ? product->axis1_i8 : product->axis1)[k][L](&job);
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
                    int32_t y = pl_trellis_y(states[i]);
                    double v =
                        q * (p->i8 ? 8 * ((y + 510) / 4) - 1017 : y) * p->steps[m * p->groups + g];
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
                       unsigned k, unsigned L, unsigned i8)
{
    for (int round = 0; check_round(t, round, 60); round++) {
        problem p;
        check_release(t);
        make_problem(t, &p, axis, k, L, i8);
        size_t outputs = axis ? p.t.rows : p.t.block,
               b = check_below(t, (uint32_t)(p.t.cols / p.t.block));
        size_t bytes = p.M * outputs * 4;
        float *want = check_buffer(t, bytes, 4), *got = check_buffer(t, bytes, 4);
        run(t, c, &p, b, 0, p.M, false, want);
        for (int tile = 0; tile < 2; tile++) {
            run(t, isa, &p, b, 0, p.M, tile, got);
            check_same(t, got, want, bytes);
        }
        if (check_is_reference(t)) check_formula(t, &p, b, want);
        size_t m = check_below(t, (uint32_t)p.M);
        run(t, isa, &p, b, m, 1, false, got);
        check_same(t, got, want + m * outputs, outputs * 4);
    }
}

/* ---- speed ----------------------------------------------------------------------------------- */

/* A matrix that is walked as a layer's product is: runs of `rows` stored rows, each from its first
 * block column to its last, a part of a run at a time. With one run the codes stay in the
 * second-level cache; with many they come from memory. */
typedef struct walk {
    unsigned axis, k, L, i8;
    size_t T, rows, cols, runs;
} walk;

static uint8_t *bench_codes(size_t bytes)
{
    static uint8_t *codes;
    const size_t most = (size_t)160 << 20;
    if (!codes) {
        codes = aligned_alloc((size_t)2 << 20, most);
        if (!codes) abort();
        madvise(codes, most, MADV_HUGEPAGE);
        uint64_t x = 1;
        for (size_t i = 0; i < most; i += 8, x = x * 6364136223846793005u + 1442695040888963407u)
            memcpy(codes + i, &x, 8);
    }
    if (bytes > most) abort();
    return codes;
}

static void bench_walk(check *t, const pl_kernels *isa, const walk *w, size_t M, bool tile,
                       const char *label)
{
    if (!check_benching(t)) return;
    check_release(t);
    const pl_product_kernels *k = &isa->product;
    size_t blocks = w->cols / w->T, bytes = w->T * w->k / 8, row_bytes = blocks * bytes;
    size_t width = w->axis ? w->cols : w->rows, outputs = w->axis ? w->rows : w->T;
    int16_t *q = check_buffer(t, M * width * 2, 64);
    for (size_t i = 0; i < M * width; i++) q[i] = w->i8 ? q[i] % 128 : q[i];
    float *steps = check_buffer(t, M * width / 32 * 4, 64);
    memset(steps, 0, M * width / 32 * 4);
    void *prepared = check_buffer(t, pl_trellis_prepared_bytes(w->T, blocks, M), 64);
    if (w->axis) (w->i8 ? k->prepare_i8 : k->prepare)(prepared, q, w->T, blocks, M, tile);
    pl_trellis_product_fn *axis0 = (w->i8 ? k->axis0_i8 : k->axis0)[w->k - 2][w->L == 16];
    pl_trellis_product_fn *axis1 = (w->i8 ? k->axis1_i8 : k->axis1)[w->k - 2][w->L == 16];
    pl_trellis_product job = {.row_bytes = row_bytes,
                              .rows = w->rows,
                              .block = w->T,
                              .blocks = blocks,
                              .split = w->rows,
                              .M = M,
                              .tile = tile,
                              .q = w->axis ? prepared : q,
                              .q_stride = width,
                              .steps = steps,
                              .step_stride = width / 32,
                              .out = check_buffer(t, M * outputs * 4, 64),
                              .scratch = check_buffer(t, pl_trellis_product_scratch(w->T, M), 64),
                              .out_stride = outputs};
    const uint8_t *codes = bench_codes(w->runs * w->rows * row_bytes);
    /* Short repetitions: the best of them is one that nothing interrupted. */
    size_t part = w->axis ? PL_MAX(w->rows / M / 32 * 32, 32) : PL_MAX(blocks / M, 1);
    size_t parts = (w->axis ? w->rows : blocks) / part, i = 0;
    if (w->axis) job.rows = part;
    check_bench(t, 1e-9 * (double)(w->rows * w->cols / (w->axis ? w->rows : blocks) * part * M),
                label)
    {
        job.codes = codes + i / parts * w->rows * row_bytes +
                    i % parts * part * (w->axis ? row_bytes : bytes);
        if (w->axis) axis1(&job);
        for (size_t b = 0; !w->axis && b < part; b++, job.codes += bytes) axis0(&job);
        i = (i + 1) % (parts * w->runs);
    }
}

static void bench(check *t, const pl_kernels *isa, unsigned axis, unsigned k, unsigned L,
                  unsigned i8)
{
    static const struct {
        size_t M;
        bool tile;
        const char *label;
    } many[] = {{2, false, "M2"}, {2, true, "tile"}, {4, false, "M4"},  {4, true, "tile"},
                {8, false, "M8"}, {8, true, "tile"}, {32, true, "M32"}, {64, true, "M64"}};
    walk w = {axis, k, L, i8, 256, axis ? 256 : 320, 1024, 1};
    bench_walk(t, isa, &w, 1, false, "Gw/s");
    walk other = w;
    other.T = 192;
    other.cols = 960;
    bench_walk(t, isa, &other, 1, false, "T192");
    w.rows = axis ? 128 : 320; /* of 17408 x 5120, and more of them than a cache holds */
    w.cols = axis ? 5120 : 17408;
    w.runs = ((size_t)160 << 20) / (w.rows * w.cols * k / 8);
    bench_walk(t, isa, &w, 1, false, "memory");
    for (size_t i = 0; i < PL_COUNT(many); i++) bench_walk(t, isa, &w, many[i].M, many[i].tile, many[i].label);
}

static void check_product_of(check *t, const pl_kernels *c, const pl_kernels *isa, unsigned axis,
                             unsigned k, unsigned L, unsigned i8)
{
    const pl_product_kernels *a = &c->product, *b = &isa->product;
    const unsigned i = k - 2, j = L == 16;
    bool improved =
        axis ? (i8 ? a->axis1_i8[i][j] != b->axis1_i8[i][j] : a->axis1[i][j] != b->axis1[i][j])
             : (i8 ? a->axis0_i8[i][j] != b->axis0_i8[i][j] : a->axis0[i][j] != b->axis0[i][j]);
    if (!check_begin(t, improved, "trellis_axis%u_%s_k%u_l%u", axis, i8 ? "i8" : "i16", k, L))
        return;
    check_axis(t, c, isa, axis, k, L, i8);
    bench(t, isa, axis, k, L, i8);
    check_end(t);
}

void check_trellis(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    for (unsigned L = 12; L <= 16; L += 4)
        for (unsigned k = 2; k <= 4; k++)
            for (unsigned i = 0; i < 4; i++) check_product_of(t, c, isa, i % 2, k, L, i / 2);
}
