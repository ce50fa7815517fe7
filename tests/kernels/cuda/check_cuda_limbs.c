/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by integer tensor cores against doubles: every code, axis and number of rows, shapes that
 * fill nothing, inputs that are no numbers; a row alone and among others; launches that overlap. */
#include "cuda/trellis_limbs.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/half.h"
#include "check_cuda.h"
#include "kernels/codes.h"

typedef struct matrix {
    pleach_trellis shape;
    uint32_t *codes;
    uint16_t *scales;
    float *plain, *scale; /* the decode contract with scales of 1, and the scales */
    pl_cuda_trellis device;
    float *output_scale, *bias; /* or NULL, as are */
    void *device_scale, *device_bias;
} matrix;

typedef struct product {
    matrix w[2];
    size_t matrices, in, out, M, x_stride, y_stride;
    float *x;
    pl_cuda_rotation then; /* of two matrices' result */
} product;

static float *random_numbers(check *t, size_t n, double around)
{
    float *p = check_buffer(t, 4 * n, 4);
    for (size_t i = 0; i < n; i++) p[i] = (float)(around + 0.5 * check_normal(t));
    return p;
}

static bool make_matrix(check *t, pl_cuda *d, pleach_trellis shape, size_t out, matrix *w)
{
    pleach_error err;
    size_t rows = shape.rows, n = rows * shape.cols;
    memset(w, 0, sizeof *w);
    w->shape = shape;
    w->codes = check_buffer(t, 4 * pleach_trellis_words(&shape), 4);
    w->scales = check_buffer(t, 2 * rows, 2);
    w->plain = check_buffer(t, 4 * n, 4);
    w->scale = check_buffer(t, 4 * rows, 4);
    for (size_t r = 0; r < rows; r++) w->scales[r] = 0x3c00;
    if (pleach_trellis_decode(&shape, w->plain, w->codes, w->scales) != PLEACH_OK)
        check_fail(t, "no legal shape");
    for (size_t r = 0; r < rows; r++) {
        w->scales[r] = pl_f32_to_fp16((float)(check_below(t, 20) ? 0.05 + check_unit(t) : 0));
        w->scale[r] = pl_fp16_to_f32(w->scales[r]);
    }
    if (check_below(t, 2)) {
        w->output_scale = random_numbers(t, out, 1);
        w->device_scale = check_cuda_copy(t, d, w->output_scale, 4 * out);
    }
    if (check_below(t, 2)) {
        w->bias = random_numbers(t, out, 0);
        w->device_bias = check_cuda_copy(t, d, w->bias, 4 * out);
    }
    if (pl_cuda_trellis_open(d, &shape, w->codes, w->scales, &w->device, &err) != PLEACH_OK) {
        check_fail(t, "%s", err.message);
        return false;
    }
    return true;
}

/* Mostly small, now and then with many blocks of work. */
static size_t random_size(check *t, size_t most)
{
    static const size_t limits[] = {20, 300, 300, 1500};
    size_t limit = limits[check_below(t, 4)];
    return 1 + check_below(t, (uint32_t)PL_MIN(limit, most));
}

static bool make_product(check *t, pl_cuda *d, unsigned k, unsigned L, unsigned axis, size_t M,
                         size_t matrices, product *p)
{
    pleach_trellis s = {.bits = k, .state_bits = L, .block = 256, .axis = axis};
    p->matrices = matrices;
    p->M = M;
    p->out = random_size(t, 1500);
    p->in = random_size(t, 1500);
    if (check_below(t, 8) == 0) *(check_below(t, 2) ? &p->in : &p->out) += 4000;
    p->then = (pl_cuda_rotation){0};
    if (check_below(t, 2)) p->out = (p->out + 255) / 256 * 256;
    size_t coded = axis ? p->in : p->out;
    s.rows = axis ? p->out : p->in;
    s.cols = (coded + 255) / 256 * 256;
    p->x_stride = p->in + check_below(t, 3);
    p->y_stride = p->out + check_below(t, 3);
    p->x = random_numbers(t, M * p->x_stride, 0);
    memset(p->w, 0, sizeof p->w);
    for (size_t i = 0; i < matrices; i++) {
        if (i && M <= 4 && check_below(t, 2)) s.bits = 2 + check_below(t, 3);
        if (!make_matrix(t, d, s, p->out, &p->w[i])) return false;
    }
    return true;
}

static void close_product(check *t, pl_cuda *d, product *p)
{
    for (size_t i = 0; i < p->matrices; i++) pl_cuda_trellis_close(&p->w[i].device);
    check_cuda_release(t, d);
}

static pl_cuda_product product_of(const product *p, const matrix *w, size_t M, const float *x,
                                  float *y)
{
    return (pl_cuda_product){.w = &w->device, .in = p->in, .out = p->out, .M = M, .x = x,
                             .x_stride = p->x_stride, .y = y, .y_stride = p->y_stride,
                             .output_scale = w->device_scale, .bias = w->device_bias};
}

/* Queues M rows of x on the device into y. */
static void queue(pl_cuda *d, const product *p, size_t M, const float *x, float *y)
{
    pl_cuda_product c[2];
    for (size_t i = 0; i < p->matrices; i++) c[i] = product_of(p, &p->w[i], M, x, y);
    if (p->matrices == 2)
        pl_cuda_trellis_limbs_swiglu(d, &c[0], &c[1], &p->then);
    else
        pl_cuda_trellis_limbs_run(d, &c[0], NULL);
}

static bool run(check *t, pl_cuda *d, const product *p, size_t M, const float *x, float *y)
{
    float *dx = check_cuda_copy(t, d, x, 4 * M * p->x_stride);
    float *dy = check_cuda_copy(t, d, y, 4 * M * p->y_stride);
    queue(d, p, M, dx, dy);
    return check_cuda_fetch(t, d, y, dy, 4 * M * p->y_stride);
}

/* One output of one matrix, how far a sum of its rounded inputs may be off, and its size. */
static double output_of(const product *p, const matrix *w, const float *x, size_t o, size_t M,
                        double *bound, double *size)
{
    double sum = 0, weights = 0, largest = 0;
    *size = 0;
    for (size_t i = 0; i < p->in; i++) {
        double v = w->shape.axis ? (double)w->plain[o * w->shape.cols + i]
                                 : (double)w->plain[i * w->shape.cols + o];
        double a = w->shape.axis ? (double)x[i] : (double)x[i] * (double)w->scale[i];
        sum += v * a;
        *size += fabs(v * a);
        weights += fabs(v);
        largest = fmax(largest, fabs(a));
    }
    double step = largest * ldexp(1.01, M == 1 ? -22 : -14);
    double factor = w->shape.axis ? (double)w->scale[o] : 1;
    if (w->output_scale) factor *= (double)w->output_scale[o];
    *bound = fabs(factor) * (weights * (step / 2 + 0x1p-100) + 4e-6 * *size) + 1e-37;
    *size *= fabs(factor);
    double bias = w->bias ? (double)w->bias[o] : 0;
    *bound += 1e-6 * (fabs(bias) + fabs(sum * factor));
    return sum * factor + bias;
}

static void compare(check *t, const product *p, const float *x, const float *y)
{
    for (size_t m = 0; m < p->M && check_good(t); m++)
        for (size_t o = 0; o < p->out; o++) {
            const float *row = x + m * p->x_stride;
            double bound, size, up_bound = 0, up_size = 0;
            double want = output_of(p, &p->w[0], row, o, p->M, &bound, &size);
            if (p->matrices == 2) {
                double gate = want, up = output_of(p, &p->w[1], row, o, p->M, &up_bound, &up_size);
                double silu = gate / (1 + exp(-gate));
                want = silu * up;
                bound = 1.2 * bound * (fabs(up) + up_bound) + fabs(silu) * up_bound +
                        1e-6 * fabs(want) + 1e-37;
                size *= up_size + 1;
            }
            double got = (double)y[m * p->y_stride + o];
            if (!(size < (double)FLT_MAX / 16)) continue;
            if (fabs(got - want) <= bound) continue;
            check_fail(t, "in %zu out %zu M %zu: y[%zu][%zu] is %.9g, expected %.9g within %.3g",
                       p->in, p->out, p->M, m, o, got, want, bound);
            return;
        }
}

/* y is the product's; rotated in the same call it is the rotation of y. */
static void check_rotated(check *t, const pl_kernels *c, pl_cuda *d, product *p, float *y)
{
    size_t block = 2;
    if (p->out % 2) return;
    while (p->out % (2 * block) == 0 && block < 512 && check_below(t, 10)) block *= 2;
    float *signs = check_buffer(t, 4 * p->out, 4);
    float *got = check_buffer(t, 4 * p->M * p->y_stride, 4);
    for (size_t i = 0; i < p->out; i++) signs[i] = check_below(t, 2) ? 1.0f : -1.0f;
    p->y_stride = p->out;
    if (!run(t, d, p, p->M, p->x, y)) return;
    p->then = (pl_cuda_rotation){check_cuda_copy(t, d, signs, 4 * p->out), block};
    if (!run(t, d, p, p->M, p->x, got)) return;
    for (size_t m = 0; m < p->M; m++) c->rotate(y + m * p->out, signs, p->out, block);
    check_same(t, got, y, 4 * p->M * p->out);
}

/* M: least .. most, one class. */
static void check_products(check *t, const pl_kernels *c, pl_cuda *d, unsigned k, unsigned L,
                           unsigned axis, size_t least, size_t most)
{
    if (!check_begin(t, true, "limbs_k%u_L%u_axis%u_M%zu", k, L, axis, most)) return;
    for (int round = 0; check_round(t, round, 8); round++) {
        product p;
        size_t M = least + check_below(t, (uint32_t)(most - least + 1));
        check_release(t);
        if (make_product(t, d, k, L, axis, M, 1 + check_below(t, 2), &p)) {
            float *y = check_buffer(t, 4 * M * p.y_stride, 4);
            bool plain = check_below(t, 3);
            for (size_t m = 0; m < M && !plain; m++)
                check_fill_f32(t, p.x + m * p.x_stride, p.in);
            if (run(t, d, &p, M, p.x, y)) compare(t, &p, p.x, y);
            if (check_good(t) && plain && p.matrices == 2) check_rotated(t, c, d, &p, y);
        }
        close_product(t, d, &p);
    }
    check_end(t);
}

enum { GROUP = 3 };

/* As q, k and v: the first some times as large as the others, all of one x. */
static bool make_group(check *t, pl_cuda *d, unsigned axis, product *p)
{
    size_t M = 1 + check_below(t, 8), in = random_size(t, 1500), tile = axis ? 16 : 256;
    size_t out = tile * (1 + check_below(t, 3));
    unsigned k = 2 + check_below(t, 3);
    float *x = random_numbers(t, M * in, 0);
    bool good = true;
    for (int i = 0; i < GROUP; i++) {
        size_t outs = i ? out : out * (1 + check_below(t, 5));
        size_t left = check_below(t, 2) ? check_below(t, (uint32_t)tile) : 0; /* of no use */
        pleach_trellis s = {.bits = M <= 4 ? 2 + check_below(t, 3) : k, .state_bits = 12,
                            .block = 256, .axis = axis};
        s.rows = axis ? outs - left : in;
        s.cols = axis ? (in + 255) / 256 * 256 : outs;
        p[i] = (product){.matrices = 1, .M = M, .in = in, .out = outs - left, .x = x,
                         .x_stride = in, .y_stride = outs};
        good = make_matrix(t, d, s, p[i].out, &p[i].w[0]) && good;
    }
    return good;
}

static void check_groups(check *t, pl_cuda *d, unsigned axis)
{
    if (!check_begin(t, true, "limbs_group_axis%u", axis)) return;
    for (int round = 0; check_round(t, round, 16); round++) {
        product p[GROUP];
        pl_cuda_product c[GROUP];
        const pl_cuda_trellis *weights[GROUP];
        check_release(t);
        bool good = make_group(t, d, axis, p);
        float *x = check_cuda_copy(t, d, p->x, 4 * p->M * p->in);
        for (int i = 0; i < GROUP; i++) {
            weights[i] = &p[i].w[0].device;
            c[i] = product_of(&p[i], &p[i].w[0], p->M, x,
                              check_cuda_buffer(t, d, 4 * p->M * p[i].y_stride));
        }
        if (good && !pl_cuda_trellis_limbs_group_serves(d, weights, GROUP, p->M))
            check_fail(t, "a group of %zu outputs and more is not served", p[1].out);
        if (good && check_good(t)) pl_cuda_trellis_limbs_group(d, c, GROUP);
        for (int i = 0; i < GROUP && good && check_good(t); i++) {
            float *y = check_buffer(t, 4 * p->M * p[i].y_stride, 4);
            if (check_cuda_fetch(t, d, y, c[i].y, 4 * p->M * p[i].y_stride))
                compare(t, &p[i], p->x, y);
        }
        for (int i = 0; i < GROUP; i++) pl_cuda_trellis_close(&p[i].w[0].device);
        check_cuda_release(t, d);
    }
    check_end(t);
}

/* The relative error of outputs for normal inputs. */
static void check_accuracy(check *t, pl_cuda *d, unsigned axis, size_t M)
{
    product p;
    double worst = M == 1 ? 1e-6 : 1e-4, error = 0, power = 0;
    if (!check_begin(t, true, "limbs_error_axis%u_M%zu", axis, M)) return;
    check_release(t);
    pleach_trellis s = {.bits = 3, .state_bits = 12, .block = 256, .axis = axis,
                        .rows = axis ? 300 : 3000, .cols = axis ? 3072 : 512};
    p = (product){.matrices = 1, .in = axis ? 3072 : 3000, .out = axis ? 300 : 512, .M = M};
    p.x_stride = p.in;
    p.y_stride = p.out;
    if (make_matrix(t, d, s, p.out, &p.w[0])) {
        p.x = check_buffer(t, 4 * M * p.in, 4);
        for (size_t i = 0; i < M * p.in; i++) p.x[i] = (float)check_normal(t);
        float *y = check_buffer(t, 4 * M * p.out, 4);
        run(t, d, &p, M, p.x, y);
        for (size_t i = 0; i < M * p.out; i++) {
            double bound, size;
            double want = output_of(&p, &p.w[0], p.x + i / p.out * p.in, i % p.out, M, &bound, &size);
            error += pow((double)y[i] - want, 2);
            power += want * want;
        }
        check_note(t, "%.2g", sqrt(error / power));
        if (!(error <= worst * worst * power))
            check_fail(t, "relative error %g, expected less than %g", sqrt(error / power), worst);
    }
    close_product(t, d, &p);
    check_end(t);
}

/* Every row of p among others: the same bits alone, twice, and beside NaN. */
static void check_row(check *t, pl_cuda *d, const product *p, const float *y)
{
    size_t least = p->M == 1 ? 1 : p->M <= 4 ? 2 : 5, most = p->M == 1 ? 1 : p->M <= 4 ? 4 : 8;
    size_t M = least + check_below(t, (uint32_t)(most - least + 1));
    size_t from = check_below(t, (uint32_t)p->M), to = check_below(t, (uint32_t)M);
    float *x = check_buffer(t, 4 * M * p->x_stride, 4), *got = check_buffer(t, 4 * M * p->y_stride, 4);
    for (size_t i = 0; i < M * p->x_stride; i++) x[i] = (float)(1e3 * check_normal(t));
    size_t bad = (to + 1) % M;
    if (bad != to)
        x[bad * p->x_stride + check_below(t, (uint32_t)p->in)] = check_below(t, 2) ? NAN : -INFINITY;
    memcpy(x + to * p->x_stride, p->x + from * p->x_stride, 4 * p->in);
    if (!run(t, d, p, M, x, got)) return;
    check_same(t, got + to * p->y_stride, y + from * p->y_stride, 4 * p->out);
    for (size_t o = 0; bad != to && o < p->out; o++)
        if (!isnan(got[bad * p->y_stride + o])) {
            check_fail(t, "M %zu: output %zu of a row with NaN is %g", M, o,
                       (double)got[bad * p->y_stride + o]);
            return;
        }
}

static void check_rows(check *t, pl_cuda *d, unsigned axis)
{
    if (!check_begin(t, true, "limbs_rows_axis%u", axis)) return;
    for (int round = 0; check_round(t, round, 24); round++) {
        product p;
        size_t M = 1 + check_below(t, 8);
        check_release(t);
        if (make_product(t, d, 2 + check_below(t, 3), 12, axis, M, 1, &p)) {
            float *y = check_buffer(t, 4 * M * p.y_stride, 4);
            if (run(t, d, &p, M, p.x, y))
                for (int i = 0; i < 3; i++) check_row(t, d, &p, y);
        }
        close_product(t, d, &p);
    }
    check_end(t);
}

/* A chain of products of which each reads the one before, launched to overlap and not. */
static void check_chain(check *t, pl_cuda *d, unsigned axis)
{
    enum { N = 1024, LINKS = 12 };
    bool chained = d->chained;
    if (!check_begin(t, true, "limbs_chain_axis%u", axis)) return;
    for (int round = 0; check_round(t, round, 8); round++) {
        size_t M = 1 + check_below(t, 8);
        product p = {.matrices = 1, .in = N, .out = N, .M = M, .x_stride = N, .y_stride = N};
        pleach_trellis s = {.bits = 2 + check_below(t, 3), .state_bits = 12, .block = 256,
                            .axis = axis, .rows = N, .cols = N};
        check_release(t);
        if (make_matrix(t, d, s, N, &p.w[0])) {
            float *y[2];
            p.x = random_numbers(t, M * N, 0);
            for (int way = 0; way < 2; way++) {
                y[way] = check_buffer(t, 4 * M * N, 4);
                float *to = check_cuda_copy(t, d, p.x, 4 * M * N);
                d->chained = way;
                for (int link = 0; link < LINKS; link++) {
                    float *from = to;
                    to = check_cuda_buffer(t, d, 4 * M * N);
                    queue(d, &p, M, from, to);
                }
                check_cuda_fetch(t, d, y[way], to, 4 * M * N);
            }
            check_same(t, y[1], y[0], 4 * M * N);
        }
        close_product(t, d, &p);
    }
    d->chained = chained;
    check_end(t);
}

void check_cuda_limbs(check *t, const pl_kernels *c, pl_cuda *d)
{
    pleach_error err;
    if (pl_cuda_trellis_limbs_prepare(d, &err) != PLEACH_OK) check_fail(t, "%s", err.message);
    for (unsigned axis = 0; axis < 2; axis++) {
#define PRODUCTS(k, L)                                                                             \
    check_products(t, c, d, k, L, axis, 1, 1);                                                     \
    check_products(t, c, d, k, L, axis, 2, 4);                                                     \
    check_products(t, c, d, k, L, axis, 5, 8);
        PL_EACH_CODE(PRODUCTS)
#undef PRODUCTS
        static const size_t rows[] = {1, 4, 8};
        for (size_t i = 0; i < PL_COUNT(rows); i++) check_accuracy(t, d, axis, rows[i]);
        check_groups(t, d, axis);
        check_rows(t, d, axis);
        check_chain(t, d, axis);
    }
}
