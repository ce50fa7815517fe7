/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach bench kernels: products with packed matrices as a layer runs them (activations quantised,
 * sums finished), beside what the memory allows and what dense weights cost. */
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/threads.h"
#include "bench.h"
#include "bench_layers.h"
#include "codec/trellis.h"
#include "console.h"
#include "model/linear.h"
#include "pleach/trellis.h"

enum { MOST_FIGURES = 512 };

/* ---- figures --------------------------------------------------------------------------------- */

/* One measured speed. What does not apply is 0 or NULL. */
typedef struct figure {
    const char *what, *arith, *unit;
    size_t out, in, M;
    int axis, bits, state_bits, threads;
    double value, roof_share;
} figure;

typedef struct bench {
    bench_memory memory;
    const bench_kernels_options *options;
    pl_pool *pool; /* all threads */
    int threads;
    double read_roof[2]; /* bytes/s: one thread, all */
    double write_roof;   /* bytes/s of one thread */
    figure figures[MOST_FIGURES];
    size_t n_figures;
} bench;

static void add_figure(bench *b, figure f)
{
    if (b->n_figures < MOST_FIGURES) b->figures[b->n_figures++] = f;
}

/* ---- products of a layer --------------------------------------------------------------------- */

static const size_t batch_sizes[] = {1, 2, 4, 8, 32, 512};

/* Figures of one shape for every M, on one thread or all. */
static pleach_status measure_layers(bench *b, layers *l, figure f, bool all_threads,
                                    const size_t *sizes, size_t n_sizes, pleach_error *err)
{
    const double weights = (double)f.out * (double)f.in;
    b->memory.compute.pool = all_threads ? b->pool : NULL;
    f.threads = all_threads ? b->threads : 1;
    f.unit = "multiply-adds/s";
    for (size_t i = 0; i < n_sizes; i++) {
        PL_FAIL_IF(interrupted(), err, PLEACH_ERR_CANCELLED, "interrupted");
        f.M = l->M = sizes[i];
        PL_TRY(reserve_scratch(&b->memory, l, f.M, err));
        progress_line("%s %s, axis %d, %d bits, M = %zu, %d threads", f.what,
                      f.arith ? f.arith : "", f.axis, f.bits, f.M, f.threads);
        double seconds = best_seconds(&b->memory, run_layer, l);
        f.value = weights * (double)f.M / seconds;
        f.roof_share = (double)l->weight[0].n_bytes / seconds / b->read_roof[all_threads];
        add_figure(b, f);
    }
    return PLEACH_OK;
}

static pleach_status measure_shape(bench *b, figure f, const pl_weight *w, size_t bytes,
                                   size_t n_sizes, pleach_error *err)
{
    static const size_t ends[] = {1, 512};
    layers l;
    f.out = w->out;
    f.in = w->in;
    pleach_status status = open_layers(&l, &b->memory, w, bytes, err);
    if (status == PLEACH_OK)
        status = measure_layers(b, &l, f, false, batch_sizes, n_sizes, err);
    if (status == PLEACH_OK && b->threads > 1)
        status = measure_layers(b, &l, f, true, ends, n_sizes > 1 ? 2 : 1, err);
    close_layers(&l);
    return status;
}

/* ---- what is measured ------------------------------------------------------------------------ */

static pleach_status measure_products(bench *b, pleach_arith arith, int axis, int bits,
                                      int state_bits, pleach_error *err)
{
    figure f = {.what = "product", .arith = pleach_arith_name(arith), .axis = axis, .bits = bits,
                .state_bits = state_bits};
    size_t bytes = (size_t)WIDE * NARROW / 8 * (size_t)bits;
    pl_weight up = trellis_weight(WIDE, NARROW, axis, bits, state_bits);
    pl_weight down = trellis_weight(NARROW, WIDE, axis, bits, state_bits);
    b->memory.compute.arith = arith;
    PL_TRY(measure_shape(b, f, &up, bytes, state_bits == 12 ? PL_COUNT(batch_sizes) : 1, err));
    return state_bits == 12 ? measure_shape(b, f, &down, bytes, 1, err) : PLEACH_OK;
}

static pleach_status measure_affine(bench *b, uint32_t bits, pleach_error *err)
{
    pl_weight w = {.coding = PL_CODING_AFFINE, .out = WIDE, .in = NARROW, .bits = bits,
                   .group_size = 64};
    b->memory.compute.arith = PLEACH_ARITH_INT16;
    return measure_shape(b, (figure){.what = "affine", .arith = "int16", .bits = (int)bits}, &w,
                         (size_t)WIDE * NARROW / 8 * bits, PL_COUNT(batch_sizes), err);
}

/* gate, up and SwiGLU in one over the two products alone, all threads: roof_share is the latter's
 * time over the former's. */
static pleach_status measure_swiglu(bench *b, int bits, size_t M, pleach_error *err)
{
    layers l;
    pl_weight w = trellis_weight(WIDE, NARROW, 0, bits, 12);
    b->memory.compute.arith = PLEACH_ARITH_INT16;
    b->memory.compute.pool = b->pool;
    size_t bytes = (size_t)WIDE * NARROW / 8 * (size_t)bits;
    pleach_status status = open_layers(&l, &b->memory, &w, bytes, err);
    if (status == PLEACH_OK) status = reserve_scratch(&b->memory, &l, M, err);
    if (status == PLEACH_OK) {
        l.M = M;
        progress_line("gate, up and SwiGLU, %d bits", bits);
        double apart = best_seconds(&b->memory, run_two, &l);
        double fused = best_seconds(&b->memory, run_swiglu, &l);
        add_figure(b, (figure){.what = "gate+up+SwiGLU", .arith = "int16", .bits = bits,
                               .state_bits = 12, .out = WIDE, .in = NARROW, .M = M,
                               .threads = b->threads, .unit = "multiply-adds/s",
                               .value = 2.0 * WIDE * NARROW * (double)M / fused,
                               .roof_share = apart / fused});
    }
    close_layers(&l);
    return status;
}

/* The codes become bf16 numbers of about 0.01: as they are some would be denormal, and slow. Codes
 * they remain, as good as any. */
static pleach_status measure_dense(bench *b, pleach_error *err)
{
    pl_weight w = {.coding = PL_CODING_DENSE, .out = WIDE, .in = NARROW};
    for (size_t i = 0; i < CODE_BYTES; i += 2) {
        uint16_t bits;
        memcpy(&bits, b->memory.codes + i, 2);
        bits = (bits & 0x807f) | 0x3c00;
        memcpy(b->memory.codes + i, &bits, 2);
    }
    return measure_shape(b, (figure){.what = "dense bf16", .bits = 16}, &w,
                         (size_t)WIDE * NARROW * 2, PL_COUNT(batch_sizes), err);
}

typedef struct gemm {
    const float *w, *x;
    float *y;
    int out, in, M;
} gemm;

static void run_gemm(void *arg)
{
    const gemm *g = arg;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, g->M, g->out, g->in, 1, g->x, g->in, g->w,
                g->in, 0, g->y, g->out);
}

/* The product of a well-known library with f32 weights, a quarter of the matrix, one thread. */
static pleach_status measure_gemm(bench *b, pleach_error *err)
{
    gemm g = {.x = b->memory.x, .y = b->memory.y, .out = WIDE / 4, .in = NARROW, .M = MOST_M};
    float *w = pl_alloc((size_t)g.out * NARROW, sizeof *w);
    if (!w) return pl_fail_memory(err, "dense weights", (size_t)g.out * NARROW * sizeof *w);
    for (size_t i = 0; i < (size_t)g.out * NARROW; i++)
        w[i] = b->memory.x[i % ((size_t)MOST_M * WIDE)];
    g.w = w;
    openblas_set_num_threads(1);
    progress_line("OpenBLAS sgemm");
    double seconds = best_seconds(&b->memory, run_gemm, &g);
    add_figure(b, (figure){.what = "OpenBLAS sgemm", .out = (size_t)g.out, .in = NARROW,
                           .M = MOST_M, .threads = 1, .bits = 32, .unit = "multiply-adds/s",
                           .value = (double)g.out * NARROW * MOST_M / seconds});
    pl_free(w);
    return PLEACH_OK;
}

static void run_rotation(void *arg)
{
    bench *b = arg;
    b->memory.compute.kernels.rotate(b->memory.y2, NULL, NARROW, 1024);
}

typedef struct expand_job {
    pleach_trellis t;
    uint16_t *dst;
    const uint8_t *codes;
    const uint16_t *scales;
    pleach_status status;
} expand_job;

static void run_expand(void *arg)
{
    expand_job *j = arg;
    const uint32_t *words = (const uint32_t *)(const void *)j->codes;
    j->status = pleach_trellis_expand(&j->t, j->dst, words, j->scales);
}

/* Bytes of bf16 written, over those that memset writes. */
static pleach_status measure_expansion(bench *b, pleach_error *err)
{
    for (int axis = 0; axis < 2; axis++)
        for (uint32_t k = 4; k >= 2; k--) {
            expand_job j = {.t = {.bits = k, .state_bits = 12, .block = 256,
                                  .axis = (uint32_t)axis, .rows = 3328, .cols = NARROW},
                            .dst = (uint16_t *)(void *)b->memory.y, .codes = b->memory.codes,
                            .scales = b->memory.scales};
            double seconds = best_seconds(&b->memory, run_expand, &j);
            PL_FAIL_IF(j.status != PLEACH_OK, err, j.status, "expanding: %s",
                       pleach_status_text(j.status));
            double speed = 2.0 * (double)(j.t.rows * j.t.cols) / seconds;
            add_figure(b, (figure){.what = "expand", .axis = axis, .bits = (int)k,
                                   .state_bits = 12, .out = j.t.rows, .in = j.t.cols,
                                   .threads = 1, .unit = "bytes/s", .value = speed,
                                   .roof_share = speed / b->write_roof});
        }
    return PLEACH_OK;
}

/* What rotating an input costs, as a share of the fastest product with it. */
static void measure_rotation(bench *b)
{
    double product = 0, seconds = best_seconds(&b->memory, run_rotation, b);
    for (size_t i = 0; i < b->n_figures; i++) {
        const figure *f = &b->figures[i];
        if (f->M == 1 && f->threads == 1 && f->in == NARROW && f->axis == 0 && f->state_bits)
            product = PL_MAX(product, f->value);
    }
    add_figure(b, (figure){.what = "rotation", .in = NARROW, .threads = 1, .M = 1,
                           .unit = "numbers/s", .value = NARROW / seconds,
                           .roof_share = seconds / ((double)WIDE * NARROW / product)});
}

typedef struct encode_job {
    pleach_trellis t;
    pleach_trellis_encode_settings settings;
    const float *src;
    uint32_t *codes;
    uint16_t *scales;
    pleach_status status;
    pleach_error *err;
} encode_job;

static void run_encode(void *arg)
{
    encode_job *j = arg;
    j->status = pleach_trellis_encode(&j->t, j->codes, j->scales, j->src, &j->settings, j->err);
}

static pleach_status measure_encoder(bench *b, pleach_error *err)
{
    static const char *const names[] = {"encode", "encode, fast"};
    for (uint32_t L = 12; L <= 16; L += 4)
        for (uint32_t k = 4; k >= 2; k--)
            for (int i = 0; i < 4; i++) { /* normal and fast, on one thread and all */
                if (i % 2 && b->threads == 1) continue;
                PL_FAIL_IF(interrupted(), err, PLEACH_ERR_CANCELLED, "interrupted");
                encode_job j = {.t = {.bits = k, .state_bits = L, .block = 256, .axis = 1,
                                      .rows = L == 12 ? 256 : 16, .cols = 1024},
                                .src = b->memory.x, .codes = (uint32_t *)(void *)b->memory.y,
                                .scales = (uint16_t *)(void *)b->memory.y2, .err = err};
                pleach_trellis_encode_defaults(&j.settings);
                j.settings.search = i / 2 ? PLEACH_SEARCH_FAST : PLEACH_SEARCH_NORMAL;
                j.settings.threads = i % 2 ? b->threads : 1;
                j.settings.cpu = b->options->cpu;
                progress_line("%s, %u bits, L = %u", names[i / 2], k, L);
                double seconds = best_seconds(&b->memory, run_encode, &j);
                PL_TRY(j.status);
                add_figure(b, (figure){.what = names[i / 2], .bits = (int)k, .state_bits = (int)L,
                                       .threads = j.settings.threads, .unit = "weights/s",
                                       .value = (double)(j.t.rows * j.t.cols) / seconds});
            }
    return PLEACH_OK;
}

static pleach_status measure_all(bench *b, pleach_error *err)
{
    for (int arith = 0; arith <= PLEACH_ARITH_INT8; arith++)
        for (int axis = 0; axis < 2; axis++)
            for (int bits = 4; bits >= 2; bits--)
                PL_TRY(measure_products(b, (pleach_arith)arith, axis, bits, 12, err));
    for (int bits = 4; bits >= 2; bits--)
        PL_TRY(measure_products(b, PLEACH_ARITH_INT16, 0, bits, 16, err));
    for (uint32_t bits = 8; bits >= 4; bits /= 2) PL_TRY(measure_affine(b, bits, err));
    for (int bits = 4; bits >= 2; bits--)
        for (size_t M = 1; M <= 8; M *= 8) PL_TRY(measure_swiglu(b, bits, M, err));
    PL_TRY(measure_dense(b, err));
    PL_TRY(measure_gemm(b, err));
    measure_rotation(b);
    PL_TRY(measure_expansion(b, err));
    return measure_encoder(b, err);
}

/* ---- output ---------------------------------------------------------------------------------- */

static const figure *find(const bench *b, const figure *like, size_t M, int threads)
{
    for (size_t i = 0; i < b->n_figures; i++) {
        const figure *f = &b->figures[i];
        if (strcmp(f->what, like->what) == 0 && f->arith == like->arith && f->axis == like->axis &&
            f->bits == like->bits && f->state_bits == like->state_bits && f->out == like->out &&
            f->M == M && f->threads == threads)
            return f;
    }
    return NULL;
}

static void print_value(const figure *f, double unit)
{
    if (f)
        printf(" %8.2f", f->value / unit);
    else
        printf(" %8s", "");
}

/* The first figure of a line of the table. */
static bool is_product(const figure *f)
{
    if (strcmp(f->what, "OpenBLAS sgemm") == 0) return true;
    return f->M == 1 && (strcmp(f->what, "product") == 0 || strcmp(f->what, "affine") == 0 ||
                         strcmp(f->what, "dense bf16") == 0);
}

/* One line for all figures of a product. */
static void print_product(const bench *b, const figure *f)
{
    figure down = *f;
    down.out = f->in;
    down.in = f->out;
    if (strcmp(f->what, "affine") == 0)
        printf("%-8s affine, %d bits  ", f->arith, f->bits);
    else if (f->arith)
        printf("%-8s axis %d  k %d L %2d", f->arith, f->axis, f->bits, f->state_bits);
    else
        printf("%-24s", f->what);
    for (size_t i = 0; i < PL_COUNT(batch_sizes); i++)
        print_value(find(b, f, batch_sizes[i], 1), 1e9);
    print_value(find(b, &down, 1, 1), 1e9);
    if (b->threads > 1) {
        print_value(find(b, f, 1, b->threads), 1e9);
        print_value(find(b, f, MOST_M, b->threads), 1e9);
    }
    const figure *one = find(b, f, 1, 1);
    if (one && one->roof_share > 0) printf("  %3.0f %%", 100 * one->roof_share);
    printf("\n");
}

static void print_figures(const bench *b)
{
    printf("cpu %s; %d x %d, weights from memory; memory read %.1f GB/s with 1 thread",
           pl_cpu_name(b->memory.compute.kernels.cpu), WIDE, NARROW, b->read_roof[0] * 1e-9);
    if (b->threads > 1) printf(", %.1f with %d", b->read_roof[1] * 1e-9, b->threads);
    printf("\n\n1e9 multiply-adds/s      %8s %8s %8s %8s %8s %8s %8s", "M = 1", "2", "4", "8", "32",
           "512", "1, down");
    if (b->threads > 1) printf(" %7dt %7dt", b->threads, b->threads);
    printf("  of the roof, M = 1\n");
    for (size_t i = 0; i < b->n_figures; i++) {
        const figure *f = &b->figures[i];
        if (f->threads == 1 && f->in == NARROW && is_product(f)) print_product(b, f);
    }
    printf("\n\"1, down\" is %d x %d. ", NARROW, WIDE);
    if (b->threads > 1) printf("%dt: M = 1 and 512 with %d threads.", b->threads, b->threads);
    printf("\n\n");
    for (size_t i = 0; i < b->n_figures; i++) {
        const figure *f = &b->figures[i];
        if (strcmp(f->what, "gate+up+SwiGLU") == 0)
            printf("gate, up and SwiGLU in one, k %d, M = %zu, %d threads: %.2f e9 "
                   "multiply-adds/s, %.2f of the two products' speed\n",
                   f->bits, f->M, f->threads, f->value * 1e-9, f->roof_share);
        if (strcmp(f->what, "rotation") == 0)
            printf("rotation of %zu numbers: %.1f us, %.2f %% of the fastest product with them\n",
                   f->in, (double)f->in / f->value * 1e6, 100 * f->roof_share);
        if (strcmp(f->what, "expand") == 0)
            printf("expand to bf16, axis %d, k %d: %.1f GB/s written, %.0f %% of memset\n", f->axis,
                   f->bits, f->value * 1e-9, 100 * f->roof_share);
        if (strncmp(f->what, "encode", 6) == 0)
            printf("%-14s k %d L %2d, %2d threads %8.2f M weights/s\n", f->what, f->bits,
                   f->state_bits, f->threads, f->value * 1e-6);
    }
}

static int print_figures_json(const bench *b)
{
    json_t *list = json_array();
    for (size_t i = 0; i < b->n_figures; i++) {
        const figure *f = &b->figures[i];
        json_array_append_new(
            list, json_pack("{s:s, s:o, s:i, s:i, s:i, s:I, s:I, s:I, s:i, s:o, s:s, s:o}", "what",
                            f->what, "arith", f->arith ? json_string(f->arith) : json_null(),
                            "axis", f->axis, "bits", f->bits, "state_bits", f->state_bits, "out",
                            (json_int_t)f->out, "in", (json_int_t)f->in, "M", (json_int_t)f->M,
                            "threads", f->threads, "value", json_number(f->value), "unit", f->unit,
                            "roof_share", json_number(f->roof_share)));
    }
    return print_json(json_pack("{s:s, s:i, s:[o, o], s:o}", "cpu",
                                pl_cpu_name(b->memory.compute.kernels.cpu), "threads", b->threads,
                                "memory_bytes_per_second", json_number(b->read_roof[0]),
                                json_number(b->read_roof[1]), "figures", list));
}

/* ---- the run --------------------------------------------------------------------------------- */

int bench_kernels(const bench_kernels_options *options)
{
    pleach_error err;
    unsigned cpu;
    rate roof;
    bench *b = pl_calloc(1, sizeof *b);
    if (!b) return fail("out of memory: figures");
    b->options = options;
    b->threads = options->threads ? options->threads : pl_default_threads();
    if (pl_cpu_level(options->cpu, &cpu) != 0) abort(); /* checked by the caller */
    catch_interrupts(false);
    int result = EXIT_OK;
    for (int i = 0; i < 2 && result == EXIT_OK; i++) {
        result = measure_reading(i ? b->threads : 1, options->repeats, &roof);
        b->read_roof[i] = roof.best;
    }
    if (result == EXIT_OK) {
        result = measure_writing(options->repeats, &roof);
        b->write_roof = roof.best;
    }
    if (result == EXIT_OK) {
        pleach_status status = pl_pool_open(b->threads, &b->pool, &err);
        if (status == PLEACH_OK)
            status = open_bench_memory(&b->memory, options->repeats, cpu, &err);
        if (status == PLEACH_OK) status = measure_all(b, &err);
        progress_end();
        if (status != PLEACH_OK) result = fail_status(&err);
    }
    if (result == EXIT_OK && options->json)
        result = print_figures_json(b);
    else if (result == EXIT_OK)
        print_figures(b);
    pl_pool_close(b->pool);
    close_bench_memory(&b->memory);
    pl_free(b);
    return result;
}
