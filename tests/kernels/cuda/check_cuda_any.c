/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products of every legal shape on a device: doubles worked out from the state definition,
 * rows alone and together bit for bit, units and stored order bit for bit. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/half.h"
#include "check_cuda.h"
#include "codec/trellis.h"
#include "cuda/trellis_any.h"
#include "cuda/trellis_blas.h"

typedef struct problem {
    pl_cuda *d;
    pleach_trellis t;
    size_t in, out, M;
    uint32_t *codes;
    uint16_t *scales;
    float *x, *y, *output_scale, *bias; /* host */
    pl_cuda_trellis w, stored;          /* in units where T is 256, and as stored */
    pl_cuda_product p;
    void *scratch;
    double tolerance; /* of sum |w x| */
} problem;

static void must(check *t, pleach_status status, const pleach_error *err)
{
    if (status != PLEACH_OK) check_fail(t, "%s", err->message);
}

static void close_problem(problem *p)
{
    pl_cuda_trellis_close(&p->w);
    pl_cuda_trellis_close(&p->stored);
}

/* The words as the file has them, whatever T. */
static void open_stored(check *t, problem *p)
{
    pleach_error err;
    void *codes, *scales;
    size_t bytes = 4 * pleach_trellis_words(&p->t);
    float *values = check_buffer(t, 4 * p->t.rows, 4);
    for (size_t r = 0; r < p->t.rows; r++) values[r] = pl_fp16_to_f32(p->scales[r]);
    p->stored = (pl_cuda_trellis){.shape = p->t};
    must(t, pl_cuda_alloc(p->d, &codes, bytes, "codes", &err), &err);
    must(t, pl_cuda_alloc(p->d, &scales, 4 * p->t.rows, "scales", &err), &err);
    must(t, pl_cuda_upload(p->d, codes, p->codes, bytes, &err), &err);
    must(t, pl_cuda_upload(p->d, scales, values, 4 * p->t.rows, &err), &err);
    p->stored.codes = codes;
    p->stored.scales = scales;
}

static void open_problem(check *t, problem *p, bool random)
{
    pleach_error err;
    size_t words = pleach_trellis_words(&p->t), in = p->in, out = p->out, M = p->M;
    p->tolerance = 2e-6;
    p->codes = check_buffer(t, 4 * words, 4);
    p->scales = check_buffer(t, 2 * p->t.rows, 2);
    p->x = check_buffer(t, 4 * in * M, 4);
    p->y = check_buffer(t, 4 * out * M, 4);
    p->output_scale = check_buffer(t, 4 * out, 4);
    p->bias = check_buffer(t, 4 * out, 4);
    check_fill(t, p->codes, 4 * words);
    for (size_t m = 0; m < M && random; m++) check_fill_f32(t, p->x + m * in, in);
    for (size_t i = 0; i < in * M && !random; i++) p->x[i] = 1;
    for (size_t r = 0; r < p->t.rows; r++) p->scales[r] = pl_f32_to_fp16((float)check_normal(t));
    for (size_t i = 0; i < out; i++) {
        p->output_scale[i] = (float)check_normal(t);
        p->bias[i] = (float)check_normal(t);
    }
    must(t, pl_cuda_trellis_open(p->d, &p->t, p->codes, p->scales, &p->w, &err), &err);
    open_stored(t, p);
    size_t bytes = pl_cuda_trellis_any_scratch(p->d, &p->w, M);
    if (!random) bytes += pl_cuda_trellis_blas_scratch(p->d, &p->w, M);
    p->scratch = check_cuda_buffer(t, p->d, bytes);
    p->p = (pl_cuda_product){.w = &p->w,
                             .in = in,
                             .out = out,
                             .M = M,
                             .x = check_cuda_copy(t, p->d, p->x, 4 * in * M),
                             .x_stride = in,
                             .y = check_cuda_buffer(t, p->d, 4 * out * M),
                             .y_stride = out};
    if (random && check_below(t, 2))
        p->p.output_scale = check_cuda_copy(t, p->d, p->output_scale, 4 * out);
    if (random && check_below(t, 2)) p->p.bias = check_cuda_copy(t, p->d, p->bias, 4 * out);
}

static void make_problem(check *t, pl_cuda *d, problem *p, unsigned axis, unsigned k, unsigned L)
{
    static const uint32_t blocks[] = {256, 192, 32, 64, 96, 128, 160, 224, 288, 384, 512, 1024};
    uint32_t T = blocks[check_below(t, check_below(t, 2) ? 2 : PL_COUNT(blocks))];
    uint64_t cols = (uint64_t)T * (1 + check_below(t, check_below(t, 4) ? 3 : 1 + 2500 / T));
    uint64_t rows = 1 + check_below(t, check_below(t, 4) ? 300 : 2600),
             width = cols - check_below(t, 31);
    if (rows * cols > 1500000) rows = 1 + rows % 200;
    *p = (problem){.d = d, .M = 1 + check_below(t, check_below(t, 3) ? 9 : 70)};
    p->t = (pleach_trellis){
        .bits = k, .state_bits = L, .block = T, .axis = axis, .rows = rows, .cols = cols};
    p->out = axis ? rows : width;
    p->in = axis ? width : rows;
    if (rows * cols > 200000) p->M = 1 + p->M % 9;
    open_problem(t, p, true);
}

/* Codes of the whole matrix, [rows][cols]. */
static int16_t *decode_all(const problem *p)
{
    size_t T = p->t.block, words = pl_trellis_block_words(&p->t);
    int16_t *codes = malloc(p->t.rows * p->t.cols * sizeof *codes);
    uint16_t states[PL_TRELLIS_MAX_BLOCK];
    for (size_t i = 0; codes && i < p->t.rows * p->t.cols / T; i++) {
        pl_trellis_states(&p->t, states, p->codes + i * words);
        for (size_t j = 0; j < T; j++) codes[i * T + j] = (int16_t)pl_trellis_y(states[j]);
    }
    return codes;
}

static void check_formula(check *t, const problem *p, const float *got)
{
    int16_t *codes = decode_all(p);
    double *want = calloc(2 * p->out, sizeof *want), *bound = want + p->out;
    for (size_t m = 0; codes && want && m < p->M && check_good(t); m++) {
        const float *x = p->x + m * p->in;
        memset(want, 0, 2 * p->out * sizeof *want);
        for (size_t r = 0; r < p->t.rows; r++) {
            double scale = pl_fp16_to_f32(p->scales[r]) / (double)PL_TRELLIS_DIVISOR;
            const int16_t *row = codes + r * p->t.cols;
            for (size_t i = 0; i < (p->t.axis ? p->in : p->out); i++) {
                double term = scale * row[i] * x[p->t.axis ? i : r];
                want[p->t.axis ? r : i] += term;
                bound[p->t.axis ? r : i] += fabs(term);
            }
        }
        for (size_t o = 0; o < p->out; o++) {
            double by = p->p.output_scale ? p->output_scale[o] : 1;
            double plus = p->p.bias ? p->bias[o] : 0;
            want[o] = want[o] * by + plus;
            bound[o] =
                p->tolerance * bound[o] * fabs(by) + 2e-7 * fabs(want[o]) + 1e-37 * (1 + fabs(by));
        }
        if (!check_close(t, got + m * p->out, want, bound, p->out))
            check_fail(t, "axis %u, k %u, L %u, T %u, %zu x %zu (cols %zu), row %zu of %zu",
                       p->t.axis, p->t.bits, p->t.state_bits, p->t.block, p->out, p->in,
                       (size_t)p->t.cols, m, p->M);
    }
    free(want);
    free(codes);
}

static void same_rows(check *t, const problem *p, const float *got, const float *want, size_t M,
                      const char *how)
{
    if (check_good(t) && !check_same(t, got, want, 4 * M * p->out))
        check_fail(t, "%s: axis %u, k %u, T %u, %zu x %zu, M %zu", how, p->t.axis, p->t.bits,
                   p->t.block, p->out, p->in, p->M);
}

/* Row m alone, with others, in the other layout, beside a row of NaN. */
static void check_rows(check *t, problem *p, const float *all)
{
    float *got = check_buffer(t, 4 * p->M * p->out, 4);
    size_t m = check_below(t, (uint32_t)p->M), M = 1 + check_below(t, (uint32_t)(p->M - m));
    pl_cuda_product one = p->p;
    one.x += m * p->in;
    one.M = M;
    pl_cuda_trellis_any_run(p->d, &one, p->scratch);
    if (!check_cuda_fetch(t, p->d, got, one.y, 4 * M * p->out)) return;
    same_rows(t, p, got, all + m * p->out, M, "some rows");
    one = p->p;
    one.w = &p->stored;
    pl_cuda_trellis_any_run(p->d, &one, p->scratch);
    if (!check_cuda_fetch(t, p->d, got, one.y, 4 * p->M * p->out)) return;
    same_rows(t, p, got, all, p->M, "as stored");
    p->x[m * p->in + check_below(t, (uint32_t)p->in)] = NAN;
    one = p->p;
    one.x = check_cuda_copy(t, p->d, p->x, 4 * p->M * p->in);
    pl_cuda_trellis_any_run(p->d, &one, p->scratch);
    if (!check_cuda_fetch(t, p->d, got, one.y, 4 * p->M * p->out)) return;
    same_rows(t, p, got, all, m, "rows before a NaN");
    same_rows(t, p, got + (m + 1) * p->out, all + (m + 1) * p->out, p->M - m - 1,
              "rows after a NaN");
    for (size_t i = 0; i < p->out && check_good(t); i++)
        if (!isnan(got[m * p->out + i])) check_fail(t, "output %zu of a row with NaN is none", i);
}

static void check_products(check *t, pl_cuda *d, unsigned axis, unsigned k, unsigned L)
{
    for (int round = 0; check_round(t, round, 12); round++) {
        problem p;
        check_release(t);
        check_cuda_release(t, d);
        make_problem(t, d, &p, axis, k, L);
        pl_cuda_trellis_any_run(d, &p.p, p.scratch);
        if (check_cuda_fetch(t, d, p.y, p.p.y, 4 * p.M * p.out)) check_formula(t, &p, p.y);
        if (check_good(t)) check_rows(t, &p, p.y);
        close_problem(&p);
    }
    check_cuda_release(t, d);
}

/* Many rows by cuBLAS; a NaN stays in its row. */
static void check_blas(check *t, pl_cuda *d, unsigned axis, unsigned k, unsigned L)
{
    for (int round = 0; check_round(t, round, 5); round++) {
        problem p;
        check_release(t);
        check_cuda_release(t, d);
        make_problem(t, d, &p, axis, k, L);
        size_t m = check_below(t, (uint32_t)p.M);
        float *got = check_buffer(t, 4 * p.M * p.out, 4);
        p.tolerance = 1e-5;
        if (check_below(t, 2)) p.p.w = &p.stored;
        p.scratch = check_cuda_buffer(t, d, pl_cuda_trellis_blas_scratch(d, &p.stored, p.M));
        pl_cuda_trellis_blas_run(d, &p.p, p.scratch);
        if (check_cuda_fetch(t, d, p.y, p.p.y, 4 * p.M * p.out)) check_formula(t, &p, p.y);
        p.x[m * p.in + check_below(t, (uint32_t)p.in)] = check_below(t, 2) ? NAN : INFINITY;
        p.p.x = check_cuda_copy(t, d, p.x, 4 * p.M * p.in);
        pl_cuda_trellis_blas_run(d, &p.p, p.scratch);
        if (check_good(t) && check_cuda_fetch(t, d, got, p.p.y, 4 * p.M * p.out)) {
            same_rows(t, &p, got, p.y, m, "rows before a NaN");
            same_rows(t, &p, got + (m + 1) * p.out, p.y + (m + 1) * p.out, p.M - m - 1,
                      "rows after a NaN");
            for (size_t i = 0; i < p.out && check_good(t); i++)
                if (!isnan(got[m * p.out + i])) check_fail(t, "output %zu is no NaN", i);
        }
        close_problem(&p);
    }
    check_cuda_release(t, d);
}

/* Several at once, of different axes and k. */
static void check_together(check *t, pl_cuda *d)
{
    for (int round = 0; check_round(t, round, 6); round++) {
        problem p[7];
        pl_cuda_product products[7];
        size_t n = 1 + check_below(t, 7), bytes = 0, M = 1 + check_below(t, 12);
        check_release(t);
        check_cuda_release(t, d);
        for (size_t i = 0; i < n; i++) {
            uint32_t axis = check_below(t, 2), T = check_below(t, 2) ? 256 : 192;
            p[i] = (problem){.d = d, .M = M, .in = 384, .out = 192 * (1 + check_below(t, 5))};
            uint64_t width = axis ? p[i].in : p[i].out;
            p[i].t = (pleach_trellis){.bits = 2 + check_below(t, 2),
                                      .state_bits = 12,
                                      .block = T,
                                      .axis = axis,
                                      .rows = axis ? p[i].out : p[i].in,
                                      .cols = (width + T - 1) / T * T};
            open_problem(t, &p[i], true);
            products[i] = p[i].p;
            bytes += (pl_cuda_trellis_any_scratch(d, &p[i].w, M) + 255) / 256 * 256;
        }
        pl_cuda_trellis_any_run_all(d, products, n, check_cuda_buffer(t, d, bytes));
        for (size_t i = 0; i < n; i++) {
            if (check_cuda_fetch(t, d, p[i].y, p[i].p.y, 4 * M * p[i].out))
                check_formula(t, &p[i], p[i].y);
            close_problem(&p[i]);
        }
    }
    check_cuda_release(t, d);
}

/* ---- speed ----------------------------------------------------------------------------------- */

typedef struct copies {
    problem p;
    pl_cuda_trellis w[64];
} copies;

static void queue(void *user, int i)
{
    copies *c = user;
    pl_cuda_product p = c->p.p;
    p.w = &c->w[i];
    if (pl_cuda_trellis_blas_serves(c->p.d, p.w, p.M))
        pl_cuda_trellis_blas_run(c->p.d, &p, c->p.scratch);
    else
        pl_cuda_trellis_any_run(c->p.d, &p, c->p.scratch);
}

/* Over copies of the codes that do not fit the second-level cache together. */
static void bench(check *t, pl_cuda *d, unsigned axis, unsigned k, uint32_t T, size_t out,
                  size_t in, size_t M)
{
    static copies c;
    pleach_error err;
    if (!check_benches(t) ||
        !check_begin(t, true, "any_a%u_k%u_t%u_%zux%zu_m%zu", axis, k, T, out, in, M))
        return;
    c.p = (problem){.d = d, .M = M, .in = in, .out = out};
    c.p.t = (pleach_trellis){.bits = k,
                             .state_bits = 12,
                             .block = T,
                             .axis = axis,
                             .rows = axis ? out : in,
                             .cols = axis ? in : out};
    open_problem(t, &c.p, false);
    size_t bytes = 4 * pleach_trellis_words(&c.p.t);
    int n = (int)PL_MIN(PL_MAX(200000000 / bytes, (size_t)2), (size_t)40);
    for (int i = 0; i < n; i++) {
        void *codes;
        c.w[i] = c.p.w;
        must(t, pl_cuda_alloc(d, &codes, c.p.w.bytes, "codes", &err), &err);
        c.w[i].codes = codes;
        must(t,
             pl_cuda_check(
                 cudaMemcpyAsync(codes, c.p.w.codes, bytes, cudaMemcpyDeviceToDevice, d->stream),
                 "copying", &err),
             &err);
    }
    check_cuda_bench(t, d, queue, &c, n, 1e-9 * (double)(out * in), "Gw/s");
    for (int i = 0; i < n; i++) pl_cuda_free(c.w[i].codes);
    close_problem(&c.p);
    check_release(t);
    check_cuda_release(t, d);
    check_end(t);
}

void check_cuda_any(check *t, const pl_kernels *c, pl_cuda *d)
{
    (void)c;
    for (unsigned axis = 0; axis < 2; axis++)
        for (unsigned k = 2; k <= 4; k++)
            for (unsigned L = 12; L <= 16; L += 4)
                if (check_begin(t, true, "any_axis%u_k%u_l%u", axis, k, L)) {
                    check_products(t, d, axis, k, L);
                    check_end(t);
                }
    for (unsigned axis = 0; axis < 2; axis++)
        for (unsigned k = 2; k <= 4; k++)
            if (check_begin(t, true, "any_blas_axis%u_k%u", axis, k)) {
                pleach_error err;
                must(t, pl_cuda_trellis_blas_prepare(d, &err), &err);
                check_blas(t, d, axis, k, k == 3 ? 16 : 12);
                check_end(t);
            }
    if (check_begin(t, true, "any_together")) {
        check_together(t, d);
        check_end(t);
    }
    for (unsigned axis = 0; axis < 2; axis++) {
        for (unsigned k = 2; k <= 4; k++) bench(t, d, axis, k, 192, 17472, 5184, 1);
        bench(t, d, axis, 3, 192, 4032, 4032, 1);
        for (size_t M = 2; M <= 8; M *= 2) bench(t, d, axis, 3, 192, 17472, 5184, M);
        bench(t, d, axis, 3, 192, 17472, 5184, 32);
        bench(t, d, axis, 3, 192, 17472, 5184, 256);
        bench(t, d, axis, 3, 256, 17408, 5120, 1);
        bench(t, d, axis, 3, 256, 17408, 5120, 8);
        bench(t, d, axis, 3, 256, 17408, 5120, 16);
        bench(t, d, axis, 3, 256, 17408, 5120, 512);
        bench(t, d, axis, 3, 192, 576, 576, 1);
        bench(t, d, axis, 3, axis ? 192 : 256, 1536, 576, 1);
        bench(t, d, axis, 3, axis ? 256 : 192, 576, 1536, 1);
        bench(t, d, axis, 3, 192, 576, 576, 8);
        bench(t, d, axis, 3, 192, 576, 576, 256);
    }
}
