/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of linear layers on a device, every coding, with rotations, scales and biases, against the
 * whole matrices as doubles; SwiGLU and rotated inputs against the same in steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/half.h"
#include "check_cuda.h"
#include "cuda/linear.h"
#include "cuda/vector.h"

enum { MOST = 4 };

typedef struct layer {
    pl_weight w;
    pl_tensor tensors[5];
    pl_linear host;
    pl_cuda_linear device;
    float *dense; /* W [out][in] */
} layer;

typedef struct problem {
    pl_cuda *d;
    layer layers[MOST];
    const pl_cuda_linear *list[MOST];
    size_t n, in, M;
    float *x, *dx, *dy[MOST];
    void *scratch;
} problem;

static void must(check *t, pleach_status status, const pleach_error *err)
{
    if (status != PLEACH_OK) check_fail(t, "%s", err->message);
}

static const pl_tensor *make_tensor(check *t, pl_tensor *to, pl_dtype type, size_t rows,
                                    size_t width)
{
    size_t bytes = rows * width * pl_dtype_get(type)->block_bytes;
    uint8_t *data = check_buffer(t, bytes, 4);
    *to = (pl_tensor){.name = "w",
                      .type = type,
                      .n_dims = rows > 1 ? 2 : 1,
                      .shape = {rows > 1 ? rows : width, width},
                      .data = data,
                      .n_bytes = bytes};
    for (size_t i = 0; i < rows * width; i++) {
        float f = (float)check_normal(t);
        uint32_t bits = type == PL_F32    ? pl_f32_bits(f)
                        : type == PL_BF16 ? pl_f32_to_bf16(f)
                        : type == PL_F16  ? pl_f32_to_fp16(f)
                                          : (uint32_t)check_rnd(t);
        memcpy(data + i * pl_dtype_get(type)->block_bytes, &bits, pl_dtype_get(type)->block_bytes);
    }
    return to;
}

static pl_rotation random_rotation(check *t, size_t width, uint64_t seed)
{
    uint32_t block = 1;
    while (width % (2 * block) == 0 && block < 256) block *= 2;
    return (pl_rotation){check_below(t, 3) ? block : 0, seed};
}

static void make_trellis(check *t, layer *l, size_t out, size_t in)
{
    static const uint32_t blocks[] = {256, 192, 64, 160};
    uint32_t T = blocks[check_below(t, PL_COUNT(blocks))], axis = check_below(t, 2);
    size_t width = axis ? in : out, rows = axis ? out : in, cols = (width + T - 1) / T * T;
    l->w.coding = PL_CODING_TRELLIS;
    l->w.trellis = (pleach_trellis){.bits = 2 + check_below(t, 3),
                                    .state_bits = check_below(t, 2) ? 12 : 16,
                                    .block = T,
                                    .axis = axis,
                                    .rows = rows,
                                    .cols = cols};
    l->w.weight = make_tensor(t, &l->tensors[0], PL_U32, rows, cols * l->w.trellis.bits / 32);
    l->w.scales = make_tensor(t, &l->tensors[1], PL_F16, 1, rows);
    l->w.rotate_in = random_rotation(t, in, 7 + check_below(t, 2));
    l->w.rotate_out = random_rotation(t, out, 9);
    if (check_below(t, 2)) l->w.output_scale = make_tensor(t, &l->tensors[3], PL_F32, 1, out);
}

/* A layer of a random coding, or a trellis. */
static void make_layer(check *t, problem *p, size_t i, size_t out, bool trellis)
{
    pleach_error err;
    layer *l = &p->layers[i];
    l->w = (pl_weight){.out = out, .in = p->in};
    uint32_t kind = trellis ? 0 : check_below(t, 5);
    if (kind < 3) {
        make_trellis(t, l, out, p->in);
    } else if (kind == 3) {
        l->w.coding = PL_CODING_DENSE;
        l->w.weight = make_tensor(t, &l->tensors[0], PL_BF16, out, p->in);
    } else {
        l->w.coding = PL_CODING_AFFINE;
        l->w.bits = 4;
        l->w.group_size = 64;
        l->w.weight = make_tensor(t, &l->tensors[0], PL_U32, out, p->in / 8);
        l->w.scales = make_tensor(t, &l->tensors[1], PL_BF16, out, p->in / 64);
        l->w.biases = make_tensor(t, &l->tensors[2], PL_BF16, out, p->in / 64);
    }
    if (check_below(t, 2)) l->w.bias = make_tensor(t, &l->tensors[4], PL_F32, 1, out);
    l->dense = check_buffer(t, 4 * out * p->in, 4);
    must(t, pl_weight_dense_f32(&l->w, l->dense, &err), &err);
    must(t, pl_linear_open(&l->host, &l->w, &err), &err);
    must(t, pl_cuda_linear_open(p->d, &l->host, &l->device, &err), &err);
    if (check_good(t) && l->device.bytes != pl_cuda_linear_bytes(&l->host))
        check_fail(t, "%llu bytes, %llu were expected", (unsigned long long)l->device.bytes,
                   (unsigned long long)pl_cuda_linear_bytes(&l->host));
    p->list[i] = &l->device;
    p->dy[i] = check_cuda_buffer(t, p->d, 4 * p->M * out);
}

static void make_input(check *t, problem *p)
{
    p->x = check_buffer(t, 4 * p->M * p->in, 4);
    for (size_t i = 0; i < p->M * p->in; i++) p->x[i] = (float)check_normal(t);
    p->dx = check_cuda_copy(t, p->d, p->x, 4 * p->M * p->in);
    size_t most = p->M + check_below(t, 20);
    p->scratch = check_cuda_buffer(t, p->d, pl_cuda_linear_scratch(p->d, p->list, p->n, most));
}

static void close_problem(problem *p)
{
    for (size_t i = 0; i < p->n; i++) {
        pl_linear_close(&p->layers[i].host);
        pl_cuda_linear_close(&p->layers[i].device);
    }
}

/* Errors are measured by the norms of the matrix's rows and x: tensor cores round x. */
static void check_layer(check *t, const problem *p, size_t i, double tolerance)
{
    const layer *l = &p->layers[i];
    size_t out = l->w.out, in = p->in;
    float *got = check_buffer(t, 4 * p->M * out, 4);
    double *want = calloc(2 * out, sizeof *want), *bound = want + out, widest = 0;
    if (!check_cuda_fetch(t, p->d, got, p->dy[i], 4 * p->M * out)) return;
    for (size_t o = 0; o < out; o++) {
        double norm = 0;
        for (size_t c = 0; c < in; c++) norm += (double)l->dense[o * in + c] * l->dense[o * in + c];
        widest = fmax(widest, sqrt(norm));
    }
    for (size_t m = 0; m < p->M && check_good(t); m++) {
        double norm = 0;
        for (size_t c = 0; c < in; c++) norm += (double)p->x[m * in + c] * p->x[m * in + c];
        for (size_t o = 0; o < out; o++) {
            want[o] = l->host.bias ? l->host.bias[o] : 0;
            for (size_t c = 0; c < in; c++)
                want[o] += (double)l->dense[o * in + c] * p->x[m * in + c];
            bound[o] = tolerance * widest * sqrt(norm);
        }
        if (!check_close(t, got + m * out, want, bound, out))
            check_fail(t, "layer %zu of %zu, coding %d, %zu x %zu, row %zu of %zu", i, p->n,
                       l->w.coding, out, in, m, p->M);
    }
    free(want);
}

static void check_groups(check *t, pl_cuda *d, bool invariant)
{
    d->batch_invariant = invariant;
    for (int round = 0; check_round(t, round, 30); round++) {
        problem p = {.d = d, .n = 1 + check_below(t, MOST), .in = 64 * (1 + check_below(t, 12))};
        p.M = 1 + check_below(t, check_below(t, 3) ? 9 : 100);
        check_release(t);
        check_cuda_release(t, d);
        for (size_t i = 0; i < p.n; i++)
            make_layer(t, &p, i, 1 + check_below(t, 500), check_below(t, 2));
        make_input(t, &p);
        if (check_good(t)) pl_cuda_linear_apply(d, p.list, p.n, p.dx, false, p.M, p.dy, p.scratch);
        for (size_t i = 0; i < p.n && check_good(t); i++)
            check_layer(t, &p, i, invariant ? 3e-6 : 5e-4);
        if (check_good(t) && invariant) {
            size_t m = check_below(t, (uint32_t)p.M), out = p.list[0]->out;
            float *all = check_buffer(t, 4 * p.M * out, 4), *one = check_buffer(t, 4 * out, 4);
            check_cuda_fetch(t, d, all, p.dy[0], 4 * p.M * out);
            pl_cuda_linear_apply(d, p.list, p.n, p.dx + m * p.in, false, 1, p.dy, p.scratch);
            if (check_cuda_fetch(t, d, one, p.dy[0], 4 * out))
                check_same(t, one, all + m * out, 4 * out);
        }
        close_problem(&p);
    }
    check_cuda_release(t, d);
    d->batch_invariant = false;
}

/* One launch may add in another order than two. */
static void check_near(check *t, const float *got, const float *y, size_t M, size_t n)
{
    double *want = calloc(2 * n, sizeof *want), *bound = want + n;
    for (size_t m = 0; m < M && check_good(t); m++) {
        double sum = 0;
        for (size_t i = 0; i < n; i++) sum += (double)y[m * n + i] * y[m * n + i];
        for (size_t i = 0; i < n; i++) {
            want[i] = y[m * n + i];
            bound[i] = 1e-5 * (fabs(want[i]) + sqrt(sum / (double)n));
        }
        check_close(t, got + m * n, want, bound, n);
    }
    free(want);
}

static void check_swiglu(check *t, const pl_kernels *c, pl_cuda *d)
{
    for (int round = 0; check_round(t, round, 20); round++) {
        problem p = {.d = d, .n = 2, .in = 64 * (1 + check_below(t, 12))};
        size_t out = 32 * (1 + check_below(t, 20));
        p.M = 1 + check_below(t, check_below(t, 3) ? 9 : 100);
        check_release(t);
        check_cuda_release(t, d);
        for (size_t i = 0; i < 2; i++) make_layer(t, &p, i, out, true);
        make_input(t, &p);
        float *gate = check_buffer(t, 4 * p.M * out, 4), *up = check_buffer(t, 4 * p.M * out, 4);
        float *got = check_buffer(t, 4 * p.M * out, 4),
              *dy = check_cuda_buffer(t, d, 4 * p.M * out);
        if (check_good(t)) pl_cuda_linear_apply(d, p.list, 2, p.dx, false, p.M, p.dy, p.scratch);
        check_cuda_fetch(t, d, gate, p.dy[0], 4 * p.M * out);
        check_cuda_fetch(t, d, up, p.dy[1], 4 * p.M * out);
        c->silu_mul(gate, gate, up, p.M * out);
        size_t block = check_below(t, 3) ? 32 : 0;
        float *signs = check_buffer(t, 4 * out, 4);
        for (size_t i = 0; i < out; i++) signs[i] = check_below(t, 2) ? 1.0f : -1.0f;
        for (size_t m = 0; block && m < p.M; m++) c->rotate(gate + m * out, signs, out, block);
        pl_cuda_rotation r, then = {check_cuda_copy(t, d, signs, 4 * out), block};
        bool one = pl_cuda_linear_rotation(p.list, 2, &r);
        if (one && r.block) pl_cuda_rotate(d, p.dx, p.dx, p.in, p.M, &r);
        if (check_good(t))
            pl_cuda_linear_swiglu(d, p.list[0], p.list[1], p.dx, one, p.M, dy, &then, p.scratch);
        if (check_cuda_fetch(t, d, got, dy, 4 * p.M * out)) check_near(t, got, gate, p.M, out);
        close_problem(&p);
    }
    check_cuda_release(t, d);
}

void check_cuda_linear(check *t, const pl_kernels *c, pl_cuda *d)
{
    if (check_begin(t, true, "linear_groups")) {
        check_groups(t, d, false);
        check_end(t);
    }
    if (check_begin(t, true, "linear_invariant")) {
        check_groups(t, d, true);
        check_end(t);
    }
    if (check_begin(t, true, "linear_swiglu")) {
        check_swiglu(t, c, d);
        check_end(t);
    }
}
