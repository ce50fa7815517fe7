/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by fp16 tensor cores, and by expansion and cuBLAS, against doubles over the decoded
 * weights: every code and axis, 1 to 600 rows, shapes that fill nothing, rows of huge, tiny and no
 * numbers; rows alone and in a batch, or among other neighbours. */
#include "cuda/trellis_half.h"
#include "cuda/trellis_many.h"
#include "cuda/trellis_tiles.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/half.h"
#include "check_cuda.h"

typedef struct kernels {
    bool (*serves)(const pl_cuda *d, const pl_cuda_trellis *w, size_t M);
    size_t (*scratch)(const pl_cuda *d, const pl_cuda_trellis *w, size_t M);
    void (*run)(const pl_cuda *d, const pl_cuda_product *p, void *scratch);
    double bound, offset; /* of the error: in sums of |w x|, and of |scale x| */
} kernels;

/* fp16: a number of x by 2^-12 of it, and where it is less than 2^-28 of the row's largest by up to
 * 2^-39 of that; sums that run over 1534 + code, rounded by some 2^-23 of what is summed. bf16: 2^-8
 * of either factor. */
static const kernels half = {pl_cuda_trellis_half_serves, pl_cuda_trellis_half_scratch,
                             pl_cuda_trellis_half_run, 5e-4, 4e-5};
static const kernels tiles = {pl_cuda_trellis_tiles_serves, pl_cuda_trellis_tiles_scratch,
                              pl_cuda_trellis_tiles_run, 5e-4, 4e-5};
static const kernels many = {pl_cuda_trellis_many_serves, pl_cuda_trellis_many_scratch,
                             pl_cuda_trellis_many_run, 8e-3, 0};

typedef struct problem {
    const kernels *by;
    pleach_trellis shape;
    size_t in, out, M, x_stride, y_stride;
    uint32_t *codes;
    uint16_t *scales;
    float *x, *output_scale, *bias;
    float *weights; /* decoded, as stored */
    pl_cuda_trellis device;
} problem;

static void fill_x(check *t, problem *p)
{
    for (size_t m = 0; m < p->M; m++) {
        float *x = p->x + m * p->x_stride;
        unsigned kind = check_below(t, 12);
        double size = kind == 0 ? 1e30 : kind == 1 ? 1e-36 : kind == 2 ? 0 : 1;
        for (size_t i = 0; i < p->in; i++) x[i] = (float)(size * check_normal(t));
        if (kind == 3) x[check_below(t, (uint32_t)p->in)] = INFINITY;
        if (kind == 4) x[check_below(t, (uint32_t)p->in)] = NAN;
        if (kind == 5) x[check_below(t, (uint32_t)p->in)] = 1e4f;
    }
}

static bool make_problem(check *t, pl_cuda *d, const kernels *by, unsigned k, unsigned L,
                         unsigned axis, problem *p)
{
    static const size_t rows[] = {1, 7, 8, 9, 16, 17, 32, 33, 64, 65, 100, 128, 129, 300};
    pleach_error err;
    size_t in = 1 + check_below(t, check_below(t, 3) ? 700 : 5000);
    size_t out = 1 + check_below(t, check_below(t, 3) ? 700 : 3000);
    memset(p, 0, sizeof *p);
    p->by = by;
    p->in = in;
    p->out = out;
    p->M = by == &many    ? 256 + check_below(t, 50)
           : by == &tiles ? (axis ? 129 : 33) + check_below(t, check_below(t, 3) ? 128 : 568)
                          : rows[check_below(t, PL_COUNT(rows))];
    p->x_stride = in + check_below(t, 3);
    p->y_stride = out + check_below(t, 3);
    p->shape = (pleach_trellis){.bits = k, .state_bits = L, .block = 256, .axis = axis};
    p->shape.rows = axis ? out : in;
    p->shape.cols = ((axis ? in : out) + 255) / 256 * 256;
    p->codes = check_buffer(t, 4 * pleach_trellis_words(&p->shape), 4);
    p->scales = check_buffer(t, 2 * p->shape.rows, 2);
    p->x = check_buffer(t, 4 * p->M * p->x_stride, 4);
    p->output_scale = check_buffer(t, 4 * out, 4);
    p->bias = check_buffer(t, 4 * out, 4);
    p->weights = check_buffer(t, 4 * p->shape.rows * p->shape.cols, 4);
    for (size_t r = 0; r < p->shape.rows; r++)
        p->scales[r] = pl_f32_to_fp16((float)ldexp(1 + check_unit(t), (int)check_below(t, 3) - 7));
    for (size_t o = 0; o < out; o++) p->output_scale[o] = (float)(1 + 0.1 * check_normal(t));
    for (size_t o = 0; o < out; o++) p->bias[o] = (float)(0.01 * check_normal(t));
    fill_x(t, p);
    if (pleach_trellis_decode(&p->shape, p->weights, p->codes, p->scales) != PLEACH_OK)
        check_fail(t, "no legal shape");
    if (pl_cuda_trellis_open(d, &p->shape, p->codes, p->scales, &p->device, &err) == PLEACH_OK)
        return true;
    check_fail(t, "%s", err.message);
    return false;
}

/* Rows first .. first + M - 1 of x. */
static bool run(check *t, pl_cuda *d, const problem *p, size_t first, size_t M, float *y)
{
    size_t n = M * p->y_stride;
    void *scratch = check_cuda_buffer(t, d, p->by->scratch(d, &p->device, M));
    float *dy = check_cuda_buffer(t, d, 4 * n);
    pl_cuda_product job = {.w = &p->device, .in = p->in, .out = p->out, .M = M,
                           .x_stride = p->x_stride, .y = dy, .y_stride = p->y_stride};
    job.x = check_cuda_copy(t, d, p->x + first * p->x_stride, 4 * M * p->x_stride);
    job.output_scale = check_cuda_copy(t, d, p->output_scale, 4 * p->out);
    job.bias = check_cuda_copy(t, d, p->bias, 4 * p->out);
    if (!p->by->serves(d, &p->device, M)) {
        check_fail(t, "not served");
        return false;
    }
    p->by->run(d, &job, scratch);
    p->by->run(d, &job, scratch); /* again, over what the first has left */
    return check_cuda_fetch(t, d, y, dy, 4 * n);
}

static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

static void check_row(check *t, const problem *p, const float *x, const float *y)
{
    static double want[8192], bound[8192], size[8192];
    bool axis = p->shape.axis == 1, finite = all_finite(x, p->in);
    for (size_t o = 0; o < p->out; o++) want[o] = bound[o] = size[o] = 0;
    for (size_t i = 0; i < p->in; i++)
        for (size_t o = 0; o < p->out; o++) {
            double w = axis ? p->weights[o * p->shape.cols + i] : p->weights[i * p->shape.cols + o];
            want[o] += w * x[i];
            bound[o] += fabs(w * x[i]);
            size[o] += fabs(x[i] * (double)pl_fp16_to_f32(p->scales[axis ? o : i]));
        }
    for (size_t o = 0; o < p->out; o++) {
        want[o] = want[o] * p->output_scale[o] + p->bias[o];
        bound[o] = p->by->bound * (bound[o] + 1e-36) + p->by->offset * size[o];
        bound[o] *= fabs(p->output_scale[o]);
        bound[o] += 1e-7 * fabs(p->bias[o]);
        if (!finite && isfinite(y[o])) check_fail(t, "output %zu: a number from none", o);
    }
    if (finite) check_close(t, y, want, bound, p->out);
}

/* A row keeps its bits whatever the others are. */
static void check_neighbours(check *t, pl_cuda *d, problem *p, const float *y)
{
    size_t m = check_below(t, (uint32_t)p->M), row = p->x_stride;
    float *again = check_buffer(t, 4 * p->M * p->y_stride, 4), *kept = check_buffer(t, 4 * row, 4);
    memcpy(kept, p->x + m * row, 4 * row);
    fill_x(t, p);
    memcpy(p->x + m * row, kept, 4 * row);
    if (run(t, d, p, 0, p->M, again))
        check_same(t, again + m * p->y_stride, y + m * p->y_stride, 4 * p->out);
}

static void check_problem(check *t, pl_cuda *d, problem *p)
{
    size_t n = p->M * p->y_stride;
    float *y = check_buffer(t, 4 * n, 4), *alone = check_buffer(t, 4 * p->y_stride, 4);
    if (!run(t, d, p, 0, p->M, y)) return;
    for (size_t tries = 0; tries < 4 && check_good(t); tries++) {
        size_t m = tries ? check_below(t, (uint32_t)p->M) : p->M - 1;
        check_row(t, p, p->x + m * p->x_stride, y + m * p->y_stride);
        for (size_t j = p->out; j < p->y_stride; j++)
            if (memcmp(&y[m * p->y_stride + j], "\xa5\xa5\xa5\xa5", 4))
                check_fail(t, "row %zu of y was overrun", m);
        if (p->by != &half || (p->shape.axis == 0 && !d->batch_invariant)) continue;
        if (run(t, d, p, m, 1, alone)) check_same(t, y + m * p->y_stride, alone, 4 * p->out);
    }
    if (p->by == &tiles) check_neighbours(t, d, p, y);
}

static void check_rounds(check *t, pl_cuda *d, const kernels *by, unsigned k, unsigned L,
                         unsigned axis)
{
    const int capability = d->capability;
    for (int round = 0; check_round(t, round, by == &many ? 4 : by == &tiles ? 12 : 20); round++) {
        problem p;
        check_release(t);
        d->batch_invariant = by == &half && round % 2;
        d->chained = round % 4 < 2;
        if (by == &half && round % 8 >= 6) d->capability = 80; /* the kernels for others */
        if (make_problem(t, d, by, k, L, axis, &p)) check_problem(t, d, &p);
        pl_cuda_trellis_close(&p.device);
        check_cuda_release(t, d);
        d->capability = capability;
    }
    d->batch_invariant = d->chained = false;
}

void check_cuda_half(check *t, const pl_kernels *c, pl_cuda *d)
{
    pleach_error err;
    (void)c;
    if (pl_cuda_trellis_half_prepare(d, &err) != PLEACH_OK) check_fail(t, "%s", err.message);
    if (pl_cuda_trellis_many_prepare(d, &err) != PLEACH_OK) check_fail(t, "%s", err.message);
    if (pl_cuda_trellis_tiles_prepare(d, &err) != PLEACH_OK) check_fail(t, "%s", err.message);
    for (unsigned axis = 0; axis < 2; axis++)
        for (unsigned k = 2; k <= 4; k++)
            for (unsigned L = 12; L <= 16; L += 4) {
                if (check_begin(t, true, "cuda_half_axis%u_k%u_l%u", axis, k, L)) {
                    check_rounds(t, d, &half, k, L, axis);
                    check_end(t);
                }
                if (check_begin(t, d->capability == 90, "cuda_tiles_axis%u_k%u_l%u", axis, k, L)) {
                    check_rounds(t, d, &tiles, k, L, axis);
                    check_end(t);
                }
                if (check_begin(t, true, "cuda_many_axis%u_k%u_l%u", axis, k, L)) {
                    check_rounds(t, d, &many, k, L, axis);
                    check_end(t);
                }
            }
}
