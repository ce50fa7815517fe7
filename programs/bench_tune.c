/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach bench --tune: measures the crossovers of this machine, and prints them beside those that
 * are built in and as the lines of kernels/crossovers.c. Nothing is changed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/memory.h"
#include "base/threads.h"
#include "bench.h"
#include "bench_layers.h"
#include "console.h"

enum { LOOPS = 200 };
static const double unit_seconds = 50e-6;

typedef struct tuning {
    bench_memory memory;
    pl_crossovers best;
    /* [kind][axis][k - 2][M]: seconds with M rows in registers, and by a tile */
    double seconds[PL_CROSS_KINDS][2][3][PL_MOST_REGISTER_ROWS + 1][2];
    double wake, speed; /* seconds to share out a loop (NAN: one thread has nothing to share);
                           multiply-adds a second of one thread */
} tuning;

static const pleach_arith ariths[PL_CROSS_KINDS] = {
    [PL_CROSS_INT16] = PLEACH_ARITH_INT16,
    [PL_CROSS_INT8] = PLEACH_ARITH_INT8,
    [PL_CROSS_F32] = PLEACH_ARITH_F32,
    [PL_CROSS_BF16] = PLEACH_ARITH_BF16,
};

/* The crossover with the least time over all M. */
static uint8_t register_rows(double seconds[PL_MOST_REGISTER_ROWS + 1][2])
{
    size_t best = 1;
    double gain = 0, most = 0; /* of registers up to M */
    for (size_t M = 2; M <= PL_MOST_REGISTER_ROWS; M++) {
        gain += (seconds[M][1] - seconds[M][0]) / (double)M;
        if (gain > most) {
            most = gain;
            best = M;
        }
    }
    return (uint8_t)best;
}

static pleach_status check_interrupt(pleach_error *err)
{
    PL_FAIL_IF(interrupted(), err, PLEACH_ERR_CANCELLED, "interrupted");
    return PLEACH_OK;
}

/* Both ways with every M: the limit on rows in registers says which. */
static pleach_status time_product(tuning *t, int kind, int axis, int bits, layers *l,
                                  pleach_error *err)
{
    bench_memory *b = &t->memory;
    uint8_t *limit = &b->compute.kernels.crossovers.register_rows[kind][axis][bits - 2];
    for (l->M = 2; l->M <= PL_MOST_REGISTER_ROWS; l->M++)
        for (int tile = 0; tile < 2; tile++) {
            progress_line("%s, axis %d, %d bits, M = %zu, %s", pleach_arith_name(ariths[kind]),
                          axis, bits, l->M, tile ? "tile" : "registers");
            *limit = tile ? 1 : PL_MOST_REGISTER_ROWS;
            t->seconds[kind][axis][bits - 2][l->M][tile] = best_seconds(b, run_layer, l);
            PL_TRY(check_interrupt(err));
        }
    return PLEACH_OK;
}

static pleach_status tune_product(tuning *t, int kind, int axis, int bits, pleach_error *err)
{
    bench_memory *b = &t->memory;
    layers l;
    pl_weight w = trellis_weight(WIDE, NARROW, axis, bits, 12);
    b->compute.arith = ariths[kind];
    pleach_status status =
        open_layers(&l, b, &w, (size_t)WIDE * NARROW / 8 * (size_t)bits, err);
    if (status == PLEACH_OK) status = reserve_scratch(b, &l, PL_MOST_REGISTER_ROWS, err);
    if (status == PLEACH_OK) status = time_product(t, kind, axis, bits, &l, err);
    close_layers(&l);
    t->best.register_rows[kind][axis][bits - 2] = register_rows(t->seconds[kind][axis][bits - 2]);
    return status;
}

static void busy_unit(void *arg, size_t unit, int thread)
{
    (void)arg;
    (void)unit;
    (void)thread;
    for (double start = pl_seconds(); pl_seconds() - start < unit_seconds;) continue;
}

/* Sharing out a loop takes what a loop of one unit a thread takes beyond the unit. With n
 * multiply-adds two threads overtake one at n / speed = n / 2 speed + wake. */
static pleach_status tune_threads(tuning *t, int threads, pleach_error *err)
{
    pl_pool *pool;
    PL_TRY(pl_pool_open(threads, &pool, err));
    double seconds[LOOPS];
    for (int i = 0; i < LOOPS; i++) {
        double start = pl_seconds();
        pl_pool_run_on(pool, threads, (size_t)threads, busy_unit, NULL);
        seconds[i] = pl_seconds() - start;
    }
    pl_pool_close(pool);
    t->wake = 1 / rate_of(seconds, LOOPS, 1).median - unit_seconds;
    double *in_registers = t->seconds[PL_CROSS_INT16][0][1][2];
    t->speed = 2.0 * WIDE * NARROW / PL_MIN(in_registers[0], in_registers[1]);
    double worth = 2 * t->wake * t->speed;
    t->best.thread_operations = 1 << 12;
    while (t->best.thread_operations < worth && t->best.thread_operations < 1u << 24)
        t->best.thread_operations *= 2;
    return PLEACH_OK;
}

static pleach_status tune(tuning *t, int threads, pleach_error *err)
{
    for (int kind = 0; kind < PL_CROSS_KINDS; kind++)
        for (int axis = 0; axis < 2; axis++)
            for (int bits = 2; bits <= 4; bits++) PL_TRY(tune_product(t, kind, axis, bits, err));
    if (threads > 1) return tune_threads(t, threads, err);
    t->wake = NAN;
    t->best.thread_operations = t->memory.compute.kernels.crossovers.thread_operations;
    return PLEACH_OK;
}

/* ---- output ---------------------------------------------------------------------------------- */

static void print_initialiser(const pl_crossovers *c)
{
    for (int kind = 0; kind < PL_CROSS_KINDS; kind++) {
        const uint8_t(*r)[3] = c->register_rows[kind];
        printf("%s{{%d, %d, %d}, {%d, %d, %d}}%s", kind ? "                      " :
               "    .register_rows = {", r[0][0], r[0][1], r[0][2], r[1][0], r[1][1], r[1][2],
               kind + 1 < PL_CROSS_KINDS ? ",\n" : "},\n");
    }
    printf("    .thread_operations = %u,\n", c->thread_operations);
}

static void print_tuning(const tuning *t, const pl_crossovers *built_in, int threads)
{
    printf("cpu %s; %d x %d, weights from memory, 1 thread. Time in registers over time by a "
           "tile:\nbelow 1, registers are faster.\n\n"
           "                       M = 2       3       4   registers up to   built in\n",
           pl_cpu_name(t->memory.compute.kernels.cpu), WIDE, NARROW);
    for (int kind = 0; kind < PL_CROSS_KINDS; kind++)
        for (int axis = 0; axis < 2; axis++)
            for (int k = 0; k < 3; k++) {
                printf("%-6s axis %d  k %d   ", pleach_arith_name(ariths[kind]), axis, k + 2);
                for (size_t M = 2; M <= PL_MOST_REGISTER_ROWS; M++) {
                    const double *s = t->seconds[kind][axis][k][M];
                    printf("%8.2f", s[0] / s[1]);
                }
                printf("%18d %10d\n", t->best.register_rows[kind][axis][k],
                       built_in->register_rows[kind][axis][k]);
            }
    if (threads > 1)
        printf("\nsharing a loop out to %d threads: %.1f us, so %u multiply-adds are worth a "
               "thread (built in: %u)\n",
               threads, t->wake * 1e6, t->best.thread_operations, built_in->thread_operations);
    putchar('\n');
    print_initialiser(&t->best);
}

static int print_tuning_json(const tuning *t, const pl_crossovers *built_in, int threads)
{
    json_t *list = json_array();
    for (int kind = 0; kind < PL_CROSS_KINDS; kind++)
        for (int axis = 0; axis < 2; axis++)
            for (int k = 0; k < 3; k++) {
                json_t *ratios = json_array();
                for (size_t M = 2; M <= PL_MOST_REGISTER_ROWS; M++) {
                    const double *s = t->seconds[kind][axis][k][M];
                    json_array_append_new(ratios, json_number(s[0] / s[1]));
                }
                json_array_append_new(
                    list, json_pack("{s:s, s:i, s:i, s:o, s:i, s:i}", "arith",
                                    pleach_arith_name(ariths[kind]), "axis", axis, "bits", k + 2,
                                    "registers_over_tile", ratios, "register_rows",
                                    t->best.register_rows[kind][axis][k], "built_in",
                                    built_in->register_rows[kind][axis][k]));
            }
    return print_json(json_pack("{s:s, s:o, s:i, s:o, s:i, s:i}", "cpu",
                                pl_cpu_name(t->memory.compute.kernels.cpu), "products", list,
                                "threads", threads, "wake_seconds", json_number(t->wake),
                                "thread_operations", (int)t->best.thread_operations,
                                "thread_operations_built_in", (int)built_in->thread_operations));
}

int bench_tune(const bench_kernels_options *options)
{
    pleach_error err;
    unsigned cpu;
    int threads = options->threads ? options->threads : pl_default_threads();
    tuning *t = pl_calloc(1, sizeof *t);
    if (!t) return fail("out of memory: times");
    if (pl_cpu_level(options->cpu, &cpu) != 0) abort(); /* checked by the caller */
    catch_interrupts(false);
    pleach_status status = open_bench_memory(&t->memory, options->repeats, cpu, &err);
    if (status == PLEACH_OK) status = tune(t, threads, &err);
    progress_end();
    const pl_crossovers *built_in = pl_crossovers_of(cpu);
    int result = status == PLEACH_OK ? EXIT_OK : fail_status(&err);
    if (result == EXIT_OK && options->json)
        result = print_tuning_json(t, built_in, threads);
    else if (result == EXIT_OK)
        print_tuning(t, built_in, threads);
    close_bench_memory(&t->memory);
    pl_free(t);
    return result;
}
