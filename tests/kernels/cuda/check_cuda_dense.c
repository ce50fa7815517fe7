/* SPDX-License-Identifier: Apache-2.0
 *
 * Dense and affine weights on a device, every type: rows bit for bit as the CPU reads them,
 * products against doubles, rows alone and together bit for bit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/half.h"
#include "check_cuda.h"
#include "cuda/affine.h"
#include "cuda/blas.h"
#include "cuda/dense.h"

/* A weight in host memory. */
typedef struct problem {
    pl_cuda *d;
    pl_weight w;
    pl_tensor weight, scales, biases;
    size_t M;
    pl_cuda_dense dense;
    pl_cuda_affine affine;
    float *x, *y, *scale, *bias, *dx, *dy, *dscale, *dbias;
    void *scratch;
} problem;

static void make_tensor(check *t, pl_tensor *to, pl_dtype type, size_t rows, size_t width)
{
    const pl_dtype_info *info = pl_dtype_get(type);
    size_t bytes = rows * width / info->block_elements * info->block_bytes;
    *to = (pl_tensor){
        .name = "w", .type = type, .n_dims = 2, .shape = {rows, width}, .n_bytes = bytes};
    uint8_t *data = check_buffer(t, bytes, 1);
    for (size_t i = 0; i < bytes; i++) data[i] = (uint8_t)check_rnd(t);
    to->data = data;
}

/* Numbers that are finite and of moderate size. */
static void fill_numbers(check *t, pl_tensor *to, float spread)
{
    uint8_t *data = (uint8_t *)to->data;
    for (size_t i = 0; i < pl_tensor_elements(to); i++) {
        float f = spread * (float)check_normal(t);
        uint16_t h = to->type == PL_BF16 ? pl_f32_to_bf16(f) : pl_f32_to_fp16(f);
        if (to->type == PL_F32)
            memcpy(data + 4 * i, &f, 4);
        else
            memcpy(data + 2 * i, &h, 2);
    }
}

/* fp16 factors of GGUF blocks that are no infinities. */
static void tame_blocks(pl_tensor *to, size_t first, size_t second)
{
    const pl_dtype_info *info = pl_dtype_get(to->type);
    uint8_t *data = (uint8_t *)to->data;
    for (size_t at = 0; at < to->n_bytes; at += info->block_bytes) {
        data[at + first + 1] &= 0xbb;
        if (second != first) data[at + second + 1] &= 0xbb;
    }
}

static void make_dense(check *t, problem *p, pl_dtype type)
{
    static const uint8_t factors[PL_DTYPE_COUNT][2] = {
        [PL_Q4_1] = {0, 2}, [PL_Q5_1] = {0, 2}, [PL_Q2_K] = {80, 82},  [PL_Q3_K] = {108, 108},
        [PL_Q4_K] = {0, 2}, [PL_Q5_K] = {0, 2}, [PL_Q6_K] = {208, 208}};
    uint32_t block = pl_dtype_get(type)->block_elements;
    size_t in =
        block > 1 ? block * (size_t)(1 + check_below(t, 1200 / block)) : 1 + check_below(t, 1200);
    make_tensor(t, &p->weight, type, 1 + check_below(t, 300), in);
    if (block > 1)
        tame_blocks(&p->weight, factors[type][0], factors[type][1]);
    else if (type <= PL_BF16)
        fill_numbers(t, &p->weight, 1);
    else /* an F8 that is no NaN */
        for (size_t i = 0; i < p->weight.n_bytes; i++) ((uint8_t *)p->weight.data)[i] &= 0xf7;
    p->w = (pl_weight){.coding = PL_CODING_DENSE, .out = p->weight.shape[0], .in = in};
}

static void make_affine(check *t, problem *p, unsigned bits, pl_dtype type)
{
    size_t out = 1 + check_below(t, 300), group = (size_t)32 << check_below(t, 3);
    size_t groups = 1 + check_below(t, 12), in = group * groups;
    make_tensor(t, &p->weight, PL_U32, out, in * bits / 32);
    make_tensor(t, &p->scales, type, out, groups);
    make_tensor(t, &p->biases, type, out, groups);
    fill_numbers(t, &p->scales, 0.1f);
    fill_numbers(t, &p->biases, 1);
    p->w = (pl_weight){.coding = PL_CODING_AFFINE,
                       .out = out,
                       .in = in,
                       .bits = bits,
                       .group_size = (uint32_t)group,
                       .scales = &p->scales,
                       .biases = &p->biases};
}

static void open_problem(check *t, problem *p)
{
    pleach_error err;
    p->w.weight = &p->weight;
    p->M = 1 + check_below(t, check_below(t, 3) ? 9 : 200);
    if (p->w.out * p->w.in > 100000) p->M = 1 + p->M % 40;
    p->d->batch_invariant = check_below(t, 2);
    pleach_status status = pl_cuda_affine_serves(&p->w)
                               ? pl_cuda_affine_open(p->d, &p->w, &p->affine, &err)
                               : pl_cuda_dense_open(p->d, &p->w, &p->dense, &err);
    if (status != PLEACH_OK) check_fail(t, "%s", err.message);
    uint64_t bytes = pl_cuda_affine_serves(&p->w) ? pl_cuda_affine_bytes(&p->w)
                                                  : pl_cuda_dense_bytes(&p->w);
    if (p->affine.bytes + p->dense.bytes != bytes)
        check_fail(t, "%llu bytes, %llu were expected",
                   (unsigned long long)(p->affine.bytes + p->dense.bytes),
                   (unsigned long long)bytes);
    size_t in = p->w.in, out = p->w.out;
    p->x = check_buffer(t, 4 * p->M * in, 4);
    p->y = check_buffer(t, 4 * p->M * out, 4);
    p->scale = check_buffer(t, 4 * out, 4);
    p->bias = check_buffer(t, 4 * out, 4);
    for (size_t m = 0; m < p->M; m++) check_fill_f32(t, p->x + m * in, in);
    for (size_t i = 0; i < out; i++) {
        p->scale[i] = (float)check_normal(t);
        p->bias[i] = (float)check_normal(t);
    }
    p->dx = check_cuda_copy(t, p->d, p->x, 4 * p->M * in);
    p->dy = check_cuda_buffer(t, p->d, 4 * p->M * out);
    p->scratch = check_cuda_buffer(t, p->d,
                                   p->affine.codes ? pl_cuda_affine_scratch(p->d, &p->affine, p->M)
                                                   : pl_cuda_dense_scratch(p->d, &p->dense, p->M));
    p->dscale = check_below(t, 2) ? check_cuda_copy(t, p->d, p->scale, 4 * out) : NULL;
    p->dbias = check_below(t, 2) ? check_cuda_copy(t, p->d, p->bias, 4 * out) : NULL;
}

static void close_problem(problem *p)
{
    pl_cuda_dense_close(&p->dense);
    pl_cuda_affine_close(&p->affine);
    p->d->batch_invariant = false;
}

static bool run(check *t, const problem *p, const float *x, size_t M, float *got)
{
    if (p->affine.codes)
        pl_cuda_affine_run(p->d, &p->affine, x, M, p->dy, p->dscale, p->dbias, p->scratch);
    else
        pl_cuda_dense_run(p->d, &p->dense, x, M, p->dy, p->dscale, p->dbias, p->scratch);
    return check_cuda_fetch(t, p->d, got, p->dy, 4 * M * p->w.out);
}

/* Rows as the CPU reads them; leaves all of them in `w`. */
static void check_rows(check *t, const problem *p, float *w)
{
    size_t out = p->w.out, in = p->w.in, n = 1 + check_below(t, 20);
    int32_t ids[20];
    float *got = check_buffer(t, 4 * n * in, 4), *dst = check_cuda_buffer(t, p->d, 4 * n * in);
    pl_weight_rows_f32(&p->w, 0, out, w);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)check_below(t, (uint32_t)out);
    const int32_t *device = check_cuda_copy(t, p->d, ids, 4 * n);
    if (p->affine.codes)
        pl_cuda_affine_rows(p->d, &p->affine, device, n, dst);
    else
        pl_cuda_dense_rows(p->d, &p->dense, device, n, dst);
    if (!check_cuda_fetch(t, p->d, got, dst, 4 * n * in)) return;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < in; j++) { /* 0 may have either sign */
            float want = w[(size_t)ids[i] * in + j], have = got[i * in + j];
            if (want == have) continue;
            check_fail(t, "row %d, number %zu of %zu: %.9g, expected %.9g", ids[i], j, in, have,
                       want);
            return;
        }
}

static void check_sums(check *t, problem *p, const float *w)
{
    size_t out = p->w.out, in = p->w.in;
    double *want = calloc(2 * out, sizeof *want), *bound = want + out;
    if (!run(t, p, p->dx, p->M, p->y)) return;
    for (size_t m = 0; m < p->M && check_good(t); m++) {
        for (size_t o = 0; o < out; o++) {
            double sum = 0, size = 0;
            for (size_t i = 0; i < in; i++) {
                double term = (double)w[o * in + i] * p->x[m * in + i];
                sum += term;
                size += fabs(term);
            }
            double by = p->dscale ? p->scale[o] : 1;
            want[o] = sum * by + (p->dbias ? p->bias[o] : 0);
            double tolerance = p->M > PL_CUDA_DENSE_FEW && !p->d->batch_invariant ? 1e-5 : 2e-6;
            bound[o] = tolerance * size * fabs(by) + 2e-7 * fabs(want[o]) + 1e-36 * (1 + fabs(by));
        }
        if (!check_close(t, p->y + m * out, want, bound, out))
            check_fail(t, "%zu x %zu, row %zu of %zu", out, in, m, p->M);
    }
    free(want);
}

static void check_alone(check *t, problem *p)
{
    size_t out = p->w.out, in = p->w.in, m = check_below(t, (uint32_t)p->M);
    float *got = check_buffer(t, 4 * p->M * out, 4);
    bool same = p->d->batch_invariant || p->M <= PL_CUDA_DENSE_FEW;
    if (!run(t, p, p->dx + m * in, 1, got)) return;
    if (same && !check_same(t, got, p->y + m * out, 4 * out)) check_fail(t, "row %zu alone", m);
    p->x[m * in + check_below(t, (uint32_t)in)] = NAN;
    if (!run(t, p, check_cuda_copy(t, p->d, p->x, 4 * p->M * in), p->M, got)) return;
    check_same(t, got, p->y, 4 * m * out);
    check_same(t, got + (m + 1) * out, p->y + (m + 1) * out, 4 * (p->M - m - 1) * out);
    for (size_t o = 0; o < out && check_good(t); o++)
        if (!isnan(got[m * out + o])) check_fail(t, "output %zu of a row with NaN is none", o);
}

static void check_weight(check *t, problem *p)
{
    open_problem(t, p);
    float *w = check_buffer(t, 4 * p->w.out * p->w.in, 4);
    if (check_good(t)) check_rows(t, p, w);
    if (check_good(t)) check_sums(t, p, w);
    if (check_good(t)) check_alone(t, p);
    close_problem(p);
}

/* ---- speed ----------------------------------------------------------------------------------- */

typedef struct copies {
    problem p;
    size_t rows; /* outputs of one copy */
} copies;

/* Copy i is a band of rows of one large matrix. */
static void queue(void *user, int i)
{
    const copies *c = user;
    size_t from = (size_t)i * c->rows;
    if (c->p.affine.codes) {
        pl_cuda_affine a = c->p.affine;
        size_t groups = a.in / a.group * (a.type == PL_F32 ? 4 : 2) * (a.biased ? 2 : 1);
        a.codes = (uint8_t *)a.codes + from * a.in * a.bits / 8;
        a.scales = (uint8_t *)a.scales + from * groups;
        a.out = c->rows;
        pl_cuda_affine_run(c->p.d, &a, c->p.dx, c->p.M, c->p.dy, NULL, NULL, c->p.scratch);
    } else {
        pl_cuda_dense w = c->p.dense;
        w.data = (uint8_t *)w.data + from * w.in * (w.type == PL_F32 ? 4 : 2);
        w.out = c->rows;
        pl_cuda_dense_run(c->p.d, &w, c->p.dx, c->p.M, c->p.dy, NULL, NULL, c->p.scratch);
    }
}

/* bits 0: dense of that type; else affine with scales of it, MLX's or (no MLX) as from Q8_0. */
static void bench(check *t, pl_cuda *d, pl_dtype type, unsigned bits, bool mlx, size_t out,
                  size_t in, size_t M)
{
    copies c = {.p = {.d = d, .M = M}, .rows = out};
    size_t group = mlx ? 64 : 32, size = type == PL_F32 ? 4 : 2, scale = mlx ? 2 * size : size;
    size_t row = bits ? in * bits / 8 + in / group * scale : in * size;
    size_t n = PL_MIN(PL_MAX(200000000 / (row * out), (size_t)2), (size_t)20), all = n * out;
    if (!check_benches(t) || !check_begin(t, true, "%s_%s_%u_%zux%zu_m%zu",
                                          mlx    ? "affine_mlx"
                                          : bits ? "affine"
                                                 : "dense",
                                          pl_dtype_get(type)->name, bits, out, in, M))
        return;
    pleach_error err;
    if (pl_cuda_blas_open(d, &err) != PLEACH_OK) check_fail(t, "%s", err.message);
    if (bits) {
        c.p.affine = (pl_cuda_affine){.out = all,
                                      .in = in,
                                      .bits = bits,
                                      .group = (uint32_t)group,
                                      .type = type,
                                      .rounded = mlx,
                                      .biased = mlx,
                                      .offset = mlx ? 0 : 128};
        c.p.affine.codes = check_cuda_buffer(t, d, all * in * bits / 8);
        c.p.affine.scales = check_cuda_buffer(t, d, all * in / group * scale);
    } else {
        c.p.dense = (pl_cuda_dense){.type = type, .out = all, .in = in};
        c.p.dense.data = check_cuda_buffer(t, d, all * in * size);
    }
    c.p.dx = check_cuda_buffer(t, d, 4 * M * in);
    c.p.dy = check_cuda_buffer(t, d, 4 * M * out);
    c.p.scratch = check_cuda_buffer(t, d, 12 * M * out + 6 * M * (in + 64) + (33 << 20));
    check_cuda_bench(t, d, queue, &c, (int)n, 1e-9 * (double)(row * out), "GB/s");
    check_cuda_release(t, d);
    check_end(t);
}

void check_cuda_dense(check *t, const pl_kernels *c, pl_cuda *d)
{
    static const pl_dtype types[] = {PL_F32,  PL_F16,  PL_BF16, PL_F8_E4M3, PL_Q4_0,
                                     PL_Q4_1, PL_Q5_0, PL_Q5_1, PL_Q8_0,    PL_Q2_K,
                                     PL_Q3_K, PL_Q4_K, PL_Q5_K, PL_Q6_K};
    (void)c;
    for (size_t i = 0; i < PL_COUNT(types); i++) {
        if (!check_begin(t, true, "dense_%s", pl_dtype_get(types[i])->name)) continue;
        for (int round = 0; check_round(t, round, 8); round++) {
            problem p = {.d = d};
            check_release(t);
            check_cuda_release(t, d);
            make_dense(t, &p, types[i]);
            check_weight(t, &p);
        }
        check_cuda_release(t, d);
        check_end(t);
    }
    bench(t, d, PL_BF16, 0, false, 17408, 5120, 1);
    bench(t, d, PL_BF16, 0, false, 4096, 4096, 1);
    bench(t, d, PL_F32, 0, false, 4096, 4096, 1);
    bench(t, d, PL_BF16, 0, false, 4096, 4096, 8);
    bench(t, d, PL_BF16, 0, false, 4096, 4096, 256);
    bench(t, d, PL_F32, 0, false, 4096, 4096, 256);
    bench(t, d, PL_BF16, 0, false, 17408, 5120, 16);
    bench(t, d, PL_BF16, 0, false, 576, 576, 1);
}

void check_cuda_affine(check *t, const pl_kernels *c, pl_cuda *d)
{
    static const unsigned bits[] = {2, 3, 4, 5, 6, 8};
    static const pl_dtype types[] = {PL_BF16, PL_F16, PL_F32};
    (void)c;
    for (size_t i = 0; i < PL_COUNT(bits) * PL_COUNT(types); i++) {
        unsigned b = bits[i / PL_COUNT(types)];
        pl_dtype type = types[i % PL_COUNT(types)];
        if (!check_begin(t, true, "affine_%u_%s", b, pl_dtype_get(type)->name)) continue;
        for (int round = 0; check_round(t, round, 6); round++) {
            problem p = {.d = d};
            check_release(t);
            check_cuda_release(t, d);
            make_affine(t, &p, b, type);
            check_weight(t, &p);
        }
        check_cuda_release(t, d);
        check_end(t);
    }
    bench(t, d, PL_F16, 8, false, 49152, 576, 1);
    bench(t, d, PL_BF16, 8, true, 49152, 576, 1);
    bench(t, d, PL_BF16, 4, true, 49152, 576, 1);
    bench(t, d, PL_BF16, 4, true, 151936, 4096, 1);
    bench(t, d, PL_BF16, 8, true, 151936, 4096, 1);
    bench(t, d, PL_BF16, 4, true, 4096, 4096, 1);
    bench(t, d, PL_F16, 8, false, 49152, 576, 8);
    bench(t, d, PL_BF16, 4, true, 4096, 4096, 32);
    bench(t, d, PL_BF16, 4, true, 4096, 4096, 64);
    bench(t, d, PL_BF16, 4, true, 4096, 4096, 256);
    bench(t, d, PL_F16, 8, false, 4096, 4096, 64);
    bench(t, d, PL_F16, 8, false, 4096, 4096, 256);
}
