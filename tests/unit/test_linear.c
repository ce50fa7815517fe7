/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layers: every coding and arithmetic against doubles, and the promise that a row's bits do
 * not depend on M, threads, group or kernel level. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/cpu.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/random.h"
#include "format/safetensors.h"
#include "model/linear.h"
#include "pools.h"

static uint64_t state;

static double normal(void)
{
    double r = sqrt(-2 * log(1 - pl_random_unit(&state)));
    return r * cos(6.283185307179586 * pl_random_unit(&state));
}

/* ---- weights made of random bytes ------------------------------------------------------------ */

typedef struct layer {
    pl_tensor weight, scales, biases, bias, output_scale;
    pl_linear linear;
    float *dense;   /* [out][in], rotations undone */
    float *nominal; /* affine: code * scale + bias, not rounded to the type of the scales */
} layer;

static pl_tensor make_tensor(const char *name, pl_dtype type, uint64_t rows, uint64_t width)
{
    pl_tensor t = {.name = name, .type = type, .n_dims = rows ? 2 : 1};
    t.shape[0] = rows ? rows : width;
    t.shape[1] = rows ? width : 0;
    const pl_dtype_info *info = pl_dtype_get(type);
    t.n_bytes = (rows ? rows : 1) * (width / info->block_elements) * info->block_bytes;
    uint8_t *data = pl_alloc(t.n_bytes + 1, 1);
    for (uint64_t i = 0; i < t.n_bytes; i++) data[i] = (uint8_t)pl_random_next(&state);
    t.data = data;
    return t;
}

/* Numbers around `mean` as fp16, bf16 or f32 in place of random bytes. */
static void fill_numbers(pl_tensor *t, double mean, double spread)
{
    for (uint64_t i = 0; i < pl_tensor_elements(t); i++) {
        float v = (float)(mean + spread * normal());
        uint16_t h = t->type == PL_F16 ? pl_f32_to_fp16(v) : pl_f32_to_bf16(v);
        uint8_t *data = (uint8_t *)(uintptr_t)t->data;
        if (t->type == PL_F32)
            memcpy(data + 4 * i, &v, 4);
        else
            memcpy(data + 2 * i, &h, 2);
    }
}

/* Block types of GGUF start with fp16 scales, which random bytes would make NaN. */
static void fill_block_scales(pl_tensor *t, unsigned scales)
{
    uint32_t size = pl_dtype_get(t->type)->block_bytes;
    for (uint64_t at = 0; at < t->n_bytes; at += size)
        for (unsigned i = 0; i < scales; i++) {
            uint16_t h = pl_f32_to_fp16((float)(0.01 * normal()));
            memcpy((uint8_t *)(uintptr_t)t->data + at + 2 * i, &h, 2);
        }
}

static void open_layer(layer *l, const pl_weight *w)
{
    pleach_error err;
    assert_int_equal(pl_linear_open(&l->linear, w, &err), PLEACH_OK);
    l->dense = pl_alloc(w->out * w->in, sizeof(float));
    assert_int_equal(pl_weight_dense_f32(w, l->dense, &err), PLEACH_OK);
}

static void close_layer(layer *l)
{
    pl_linear_close(&l->linear);
    pl_free(l->dense);
    pl_free(l->nominal);
    pl_free((void *)(uintptr_t)l->weight.data);
    pl_free((void *)(uintptr_t)l->scales.data);
    pl_free((void *)(uintptr_t)l->biases.data);
    pl_free((void *)(uintptr_t)l->bias.data);
    pl_free((void *)(uintptr_t)l->output_scale.data);
}

static void make_dense(layer *l, pl_dtype type, uint64_t out, uint64_t in)
{
    *l = (layer){.weight = make_tensor("w", type, out, in)};
    if (type == PL_F16 || type == PL_BF16 || type == PL_F32)
        fill_numbers(&l->weight, 0, 0.05);
    else
        fill_block_scales(&l->weight, type == PL_Q4_1 || type == PL_Q5_1 ? 2 : 1);
    l->bias = make_tensor("b", PL_F32, 0, out);
    fill_numbers(&l->bias, 0, 1);
    open_layer(l, &(pl_weight){.out = out, .in = in, .weight = &l->weight, .bias = &l->bias});
}

static pl_tensor as_f32(const pl_tensor *t)
{
    pl_tensor f = *t;
    float *data = pl_alloc(pl_tensor_elements(t), sizeof *data);
    for (uint64_t r = 0; r < t->shape[0]; r++) pl_tensor_row_f32(t, r, data + r * t->shape[1]);
    f.type = PL_F32;
    f.data = data;
    f.n_bytes = pl_tensor_elements(t) * sizeof *data;
    return f;
}

/* What F32 scales of the same values stand for. */
static float *nominal_weights(const pl_weight *w)
{
    pleach_error err;
    pl_weight plain = *w;
    pl_tensor scales = as_f32(w->scales), biases = as_f32(w->biases);
    float *dst = pl_alloc(w->out * w->in, sizeof *dst);
    plain.scales = &scales;
    plain.biases = &biases;
    assert_int_equal(pl_weight_dense_f32(&plain, dst, &err), PLEACH_OK);
    pl_free((void *)(uintptr_t)scales.data);
    pl_free((void *)(uintptr_t)biases.data);
    return dst;
}

static void make_affine(layer *l, uint32_t bits, uint32_t group, pl_dtype type, uint64_t out,
                        uint64_t in)
{
    *l = (layer){.weight = make_tensor("w", PL_U32, out, in * bits / 32),
                 .scales = make_tensor("s", type, out, in / group),
                 .biases = make_tensor("z", type, out, in / group)};
    fill_numbers(&l->scales, 0, 0.01);
    fill_numbers(&l->biases, 0, 0.1);
    open_layer(l, &(pl_weight){.coding = PL_CODING_AFFINE,
                               .out = out,
                               .in = in,
                               .bits = bits,
                               .weight = &l->weight,
                               .scales = &l->scales,
                               .biases = &l->biases,
                               .group_size = group});
    l->nominal = nominal_weights(&l->linear.w);
}

typedef struct shape {
    uint32_t axis, k, L, T, interleaved;
    uint64_t out, in;
    uint32_t rotate_in, rotate_out;
    int output_scale, bias;
} shape;

static void make_trellis(layer *l, const shape *s)
{
    uint64_t coded = s->axis ? s->in : s->out, rows = s->axis ? s->out : s->in;
    uint64_t cols = (coded + s->T - 1) / s->T * s->T;
    *l = (layer){.weight = make_tensor("w", PL_U32, rows, cols * s->k / 32),
                 .scales = make_tensor("s", PL_F16, 0, rows)};
    fill_numbers(&l->scales, 0.05, 0.02);
    pl_weight w = {.coding = PL_CODING_TRELLIS,
                   .out = s->out,
                   .in = s->in,
                   .weight = &l->weight,
                   .scales = &l->scales,
                   .rotate_in = {s->rotate_in, 11},
                   .rotate_out = {s->rotate_out, 12}};
    w.trellis = (pleach_trellis){.bits = s->k,
                                 .state_bits = s->L,
                                 .block = s->T,
                                 .axis = s->axis,
                                 .interleaved = s->interleaved,
                                 .rows = rows,
                                 .cols = cols};
    if (s->output_scale) {
        l->output_scale = make_tensor("os", PL_F32, 0, s->out);
        fill_numbers(&l->output_scale, 1, 0.3);
        w.output_scale = &l->output_scale;
    }
    if (s->bias) {
        l->bias = make_tensor("b", PL_BF16, 0, s->out);
        fill_numbers(&l->bias, 0, 1);
        w.bias = &l->bias;
    }
    open_layer(l, &w);
}

static const shape shapes[] = {
    {0, 3, 12, 192, 0, 576, 576, 64, 64, 0, 0},   {0, 4, 12, 256, 0, 1536, 576, 64, 0, 1, 1},
    {0, 2, 12, 192, 0, 576, 1536, 256, 64, 0, 0}, {0, 3, 12, 256, 1, 1024, 96, 32, 0, 0, 0},
    {0, 3, 16, 128, 0, 200, 70, 0, 8, 0, 1},      {0, 4, 16, 32, 0, 33, 1, 0, 0, 0, 0},
    {1, 3, 12, 192, 0, 200, 576, 64, 8, 1, 0},    {1, 4, 12, 256, 0, 65, 700, 4, 0, 0, 1},
    {1, 2, 12, 224, 0, 64, 896, 128, 64, 0, 0},   {1, 2, 16, 96, 0, 1, 90, 2, 0, 0, 0},
    {1, 4, 16, 1024, 0, 17, 1024, 0, 0, 0, 0},    {1, 3, 12, 32, 0, 40, 64, 64, 0, 0, 0},
};

/* ---- running --------------------------------------------------------------------------------- */

static pl_compute compute_of(const char *level, int threads, pleach_arith arith)
{
    pl_compute c = {.pool = pool_of(threads), .arith = arith};
    unsigned flags = 0;
    assert_int_equal(pl_cpu_level(level, &flags), 0);
    pl_kernels_init(&c.kernels, flags);
    return c;
}

static float *make_input(size_t M, size_t in)
{
    float *x = pl_alloc(M * in, sizeof *x);
    for (size_t i = 0; i < M * in; i++)
        x[i] = (float)(normal() * (pl_random_unit(&state) < 0.01 ? 10 : 1));
    return x;
}

static float *apply(const pl_compute *c, const pl_linear *l, const float *x, size_t M)
{
    float *y = pl_alloc(M * l->w.out, sizeof *y);
    void *scratch = pl_alloc(pl_linear_scratch(c, &l, 1, M), 1);
    pl_linear_apply(c, &l, 1, x, M, &y, scratch);
    pl_free(scratch);
    return y;
}

/* Root mean square of the difference to doubles over that of the terms' sums, had these random
 * signs: a result that happens to cancel out has no smaller error. */
static double relative_error(const layer *l, const float *dense, const float *x, size_t M,
                             const float *y)
{
    double error = 0, size = 0;
    size_t in = l->linear.w.in, out = l->linear.w.out;
    for (size_t m = 0; m < M; m++)
        for (size_t r = 0; r < out; r++) {
            double want = l->linear.bias ? l->linear.bias[r] : 0;
            for (size_t k = 0; k < in; k++) {
                double term = (double)dense[r * in + k] * (double)x[m * in + k];
                want += term;
                size += term * term;
            }
            error += pow(y[m * out + r] - want, 2);
        }
    return sqrt(error / size);
}

static void check_layer(const layer *l, pleach_arith arith, double bound)
{
    const pl_linear *linear = &l->linear;
    size_t in = linear->w.in, out = linear->w.out, M = 9;
    float *x = make_input(M, in);
    pl_compute c = compute_of(NULL, 2, arith);
    float *y = apply(&c, linear, x, M);
    bool integer = arith != PLEACH_ARITH_F32 && arith != PLEACH_ARITH_BF16;
    const float *dense = integer && l->nominal ? l->nominal : l->dense;
    double error = relative_error(l, dense, x, M, y);
    if (!(error < bound)) print_error("error %g, bound %g\n", error, bound);
    assert_true(error < bound);
    for (size_t n = 1; n <= M; n++)
        for (int threads = 1; threads <= 4; threads += 3) {
            pl_compute other = compute_of(NULL, threads, arith);
            float *some = apply(&other, linear, x + (M - n) * in, n);
            assert_memory_equal(some, y + (M - n) * out, n * out * sizeof *y);
            pl_free(some);
        }
    pl_free(x);
    pl_free(y);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_dense(void **unused)
{
    (void)unused;
    static const pl_dtype types[] = {PL_F32,  PL_F16,  PL_BF16, PL_Q8_0,
                                     PL_Q4_0, PL_Q4_1, PL_Q5_0, PL_Q5_1};
    for (size_t i = 0; i < PL_COUNT(types); i++) {
        layer l;
        make_dense(&l, types[i], i % 2 ? 70 : 33, i < 3 ? 200 + i : 192);
        check_layer(&l, PLEACH_ARITH_INT16, 2e-6);
        close_layer(&l);
    }
}

static void test_affine(void **unused)
{
    (void)unused;
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8};
    static const pl_dtype types[] = {PL_BF16, PL_F16, PL_F32};
    for (size_t i = 0; i < PL_COUNT(bits) * PL_COUNT(types); i++) {
        layer l;
        make_affine(&l, bits[i / 3], 32u << i / 3 % 3, types[i % 3], 37, 384);
        check_layer(&l, PLEACH_ARITH_INT16, 2e-4); /* outliers in groups of up to 128 */
        check_layer(&l, PLEACH_ARITH_INT16X2, 5e-7);
        check_layer(&l, PLEACH_ARITH_INT8, 2e-4);
        check_layer(&l, PLEACH_ARITH_F32, 2e-6);
        check_layer(&l, PLEACH_ARITH_BF16, 2e-6);
        close_layer(&l);
    }
}

static const pleach_arith integer_ariths[] = {PLEACH_ARITH_INT16, PLEACH_ARITH_INT16X2,
                                              PLEACH_ARITH_INT8};

/* Many rows take several tiles of activations; a NaN in one stays in its row. */
static void test_affine_batches(void **unused)
{
    (void)unused;
    enum { M = 150, IN = 384, OUT = 200 };
    for (size_t a = 0; a < PL_COUNT(integer_ariths); a++) {
        layer l;
        make_affine(&l, a % 2 ? 3 : 8, 64, PL_F16, OUT, IN);
        float *x = make_input(M, IN);
        pl_compute c = compute_of(NULL, 3, integer_ariths[a]), plain = c;
        pl_kernels_init(&plain.kernels, PL_CPU_C);
        x[4 * IN + 77] = NAN;
        float *y = apply(&c, &l.linear, x, M);
        for (size_t m = 0; m < M; m += 37) {
            float *one = apply(&plain, &l.linear, x + m * IN, 1);
            assert_memory_equal(one, y + m * OUT, OUT * sizeof *y);
            pl_free(one);
        }
        for (size_t i = 0; i < M * OUT; i++) assert_true(isnan(y[i]) == (i / OUT == 4));
        pl_free(x);
        pl_free(y);
        close_layer(&l);
    }
}

static void test_trellis(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < PL_COUNT(shapes); i++) {
        layer l;
        make_trellis(&l, &shapes[i]);
        check_layer(&l, PLEACH_ARITH_INT16, 1e-4);
        check_layer(&l, PLEACH_ARITH_INT16X2, 5e-7);
        check_layer(&l, PLEACH_ARITH_INT8, 3e-2);
        check_layer(&l, PLEACH_ARITH_F32, 2e-6);
        check_layer(&l, PLEACH_ARITH_BF16, 4e-3);
        close_layer(&l);
    }
}

/* Every batch of up to 70 rows against its rows alone: sizes where kernels change their way. */
static void test_batches(void **unused)
{
    (void)unused;
    enum { MOST = 70 };
    static const shape both[] = {{0, 3, 12, 96, 0, 300, 70, 0, 0, 0, 0},
                                 {1, 4, 12, 96, 0, 41, 700, 0, 0, 0, 0}};
    static const pleach_arith ariths[] = {PLEACH_ARITH_F32, PLEACH_ARITH_BF16};
    for (size_t i = 0; i < PL_COUNT(both) * PL_COUNT(ariths); i++) {
        layer l;
        make_trellis(&l, &both[i / 2]);
        size_t in = l.linear.w.in, out = l.linear.w.out;
        float *x = make_input(MOST, in), *lone = pl_alloc(MOST * out, sizeof *lone);
        pl_compute c = compute_of(NULL, 2, ariths[i % 2]);
        for (size_t m = 0; m < MOST; m++) {
            float *y = apply(&c, &l.linear, x + m * in, 1);
            memcpy(lone + m * out, y, out * sizeof *y);
            pl_free(y);
        }
        for (size_t M = 1; M <= MOST; M++) {
            float *y = apply(&c, &l.linear, x, M);
            assert_memory_equal(y, lone, M * out * sizeof *y);
            pl_free(y);
        }
        pl_free(x);
        pl_free(lone);
        close_layer(&l);
    }
}

/* ---- golden matrices ------------------------------------------------------------------------- */

static uint32_t number_of(const pl_safetensors *file, const char *key)
{
    const char *text = pl_safetensors_metadata(file, key);
    assert_non_null(text);
    return (uint32_t)strtoul(text, NULL, 10);
}

/* Relative error of the layer on x against the doubles of a tensor. */
static double golden_error(const pl_linear *l, const pl_tensor *x, const pl_tensor *y,
                           pleach_arith arith)
{
    size_t M = pl_tensor_rows(x), in = l->w.in, out = l->w.out;
    float *input = pl_alloc(M * in, sizeof *input);
    for (size_t m = 0; m < M; m++) pl_tensor_row_f32(x, m, input + m * in);
    pl_compute c = compute_of(NULL, 1, arith);
    float *got = apply(&c, l, input, M);
    double error = 0, size = 0;
    for (size_t i = 0; i < M * out; i++) {
        double want;
        memcpy(&want, (const uint8_t *)y->data + 8 * i, 8);
        error += pow(got[i] - want, 2);
        size += want * want;
    }
    pl_free(input);
    pl_free(got);
    return sqrt(error / size);
}

static void test_goldens(void **unused)
{
    (void)unused;
    static const char *const names[] = {"k2_t256_axis0",
                                        "k2_t256_axis1",
                                        "k3_t128_l16_axis1",
                                        "k3_t192_axis1",
                                        "k3_t256_axis0_interleaved",
                                        "k3_t256_axis1",
                                        "k4_t256_axis0",
                                        "k4_t256_axis1",
                                        "k4_t256_l16_axis0"};
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        char path[512];
        pl_safetensors *file;
        pl_linear l;
        pleach_error err;
        snprintf(path, sizeof path, "%s/golden/trellis/trellis_%s.safetensors", PLEACH_TEST_DATA,
                 names[i]);
        assert_int_equal(pl_safetensors_open(path, &file, &err), PLEACH_OK);
        pl_weight w = {.coding = PL_CODING_TRELLIS,
                       .weight = pl_safetensors_find(file, "codes"),
                       .scales = pl_safetensors_find(file, "scales")};
        w.trellis = (pleach_trellis){.bits = number_of(file, "k"),
                                     .state_bits = number_of(file, "L"),
                                     .block = number_of(file, "T"),
                                     .axis = number_of(file, "axis"),
                                     .rows = number_of(file, "rows"),
                                     .cols = number_of(file, "cols")};
        w.trellis.interleaved = w.weight->n_dims == 3;
        w.out = w.trellis.axis ? w.trellis.rows : w.trellis.cols;
        w.in = w.trellis.axis ? w.trellis.cols : w.trellis.rows;
        assert_int_equal(pl_linear_open(&l, &w, &err), PLEACH_OK);
        const pl_tensor *x = pl_safetensors_find(file, "x");
        const pl_tensor *decode = pl_safetensors_find(file, "y_decode");
        const pl_tensor *expand = pl_safetensors_find(file, "y_expand");
        assert_true(golden_error(&l, x, decode, PLEACH_ARITH_INT16) < 1e-4);
        assert_true(golden_error(&l, x, decode, PLEACH_ARITH_INT16X2) < 5e-7);
        assert_true(golden_error(&l, x, decode, PLEACH_ARITH_INT8) < 1.5e-2);
        assert_true(golden_error(&l, x, decode, PLEACH_ARITH_F32) < 1e-6);
        assert_true(golden_error(&l, x, expand, PLEACH_ARITH_BF16) < 1e-6);
        pl_linear_close(&l);
        pl_safetensors_close(file);
    }
}

/* Many rows take the wide way through axis 0 and several tiles of activations. */
static void test_many_rows(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < PL_COUNT(shapes); i += 2)
        for (int arith = PLEACH_ARITH_INT16; arith <= PLEACH_ARITH_INT8; arith++) {
            layer l;
            make_trellis(&l, &shapes[i]);
            size_t in = shapes[i].in, out = shapes[i].out, M = 150;
            float *x = make_input(M, in);
            pl_compute c = compute_of(NULL, 3, (pleach_arith)arith);
            float *y = apply(&c, &l.linear, x, M);
            for (size_t m = 0; m < M; m += 37) {
                float *one = apply(&c, &l.linear, x + m * in, 1);
                assert_memory_equal(one, y + m * out, out * sizeof *y);
                pl_free(one);
            }
            pl_free(x);
            pl_free(y);
            close_layer(&l);
        }
}

/* Every M up to 70, ending at any row, with codes and activations at odd places. */
static void test_every_M(void **unused)
{
    (void)unused;
    static const shape small[] = {{0, 2, 12, 96, 0, 90, 150, 0, 0, 0, 0},
                                  {0, 3, 16, 160, 0, 160, 67, 0, 0, 0, 0},
                                  {1, 4, 12, 160, 0, 45, 310, 0, 0, 0, 0}};
    enum { MOST = 70 };
    for (size_t i = 0; i < PL_COUNT(small) * PL_COUNT(integer_ariths); i++) {
        layer l;
        make_trellis(&l, &small[i / 3]);
        size_t in = small[i / 3].in, out = small[i / 3].out, bytes = l.weight.n_bytes;
        float *x = make_input(MOST + 1, in) + 1;
        pl_compute c = compute_of(NULL, 3, integer_ariths[i % 3]);
        float *want = apply(&c, &l.linear, x, MOST);
        uint8_t *moved = pl_alloc(bytes + 64, 1);
        for (size_t M = 1; M < MOST; M++) {
            size_t from = (MOST - M) * (M % 3) / 2;
            memcpy(moved + M % 61, l.weight.data, bytes);
            pl_tensor weight = l.weight;
            pl_linear linear = l.linear;
            weight.data = moved + M % 61;
            linear.w.weight = &weight;
            c.pool = pool_of(1 + (int)(M % 4));
            float *got = apply(&c, &linear, x + from * in, M);
            assert_memory_equal(got, want + from * out, M * out * sizeof *got);
            pl_free(got);
        }
        pl_free(moved);
        pl_free(want);
        pl_free(x - 1);
        close_layer(&l);
    }
}

static void test_levels_agree(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < PL_COUNT(shapes) * PL_COUNT(integer_ariths); i++) {
        const shape *s = &shapes[i / 3];
        pl_compute plain = compute_of("c", 1, integer_ariths[i % 3]);
        pl_compute best = compute_of(NULL, 1, integer_ariths[i % 3]);
        if (best.kernels.cpu == PL_CPU_C) skip();
        layer l;
        make_trellis(&l, s);
        float *x = make_input(3, s->in);
        float *a = apply(&plain, &l.linear, x, 3), *b = apply(&best, &l.linear, x, 3);
        assert_memory_equal(a, b, 3 * s->out * sizeof *a);
        pl_free(x);
        pl_free(a);
        pl_free(b);
        close_layer(&l);
    }
}

/* Three layers of one input, two with the same rotation, give what each gives alone. */
static void test_group(void **unused)
{
    (void)unused;
    static const shape three[] = {{0, 3, 12, 192, 0, 192, 576, 64, 64, 0, 0},
                                  {1, 4, 12, 192, 0, 100, 576, 64, 4, 0, 1},
                                  {0, 2, 12, 128, 0, 128, 576, 0, 0, 0, 0}};
    layer l[3];
    const pl_linear *linears[3];
    float *x = make_input(20, 576), *y[3];
    for (size_t M = 1; M <= 20; M += 19) {
        pl_compute c = compute_of(NULL, 2, PLEACH_ARITH_INT16);
        for (int i = 0; i < 3; i++) {
            make_trellis(&l[i], &three[i]);
            linears[i] = &l[i].linear;
            y[i] = pl_alloc(M * three[i].out, sizeof(float));
        }
        void *scratch = pl_alloc(pl_linear_scratch(&c, linears, 3, 20), 1);
        pl_linear_apply(&c, linears, 3, x, M, y, scratch);
        for (int i = 0; i < 3; i++) {
            float *alone = apply(&c, linears[i], x, M);
            assert_memory_equal(alone, y[i], M * three[i].out * sizeof(float));
            pl_free(alone);
            pl_free(y[i]);
            close_layer(&l[i]);
        }
        pl_free(scratch);
    }
    pl_free(x);
}

/* silu(gate x) * (up x) by its three steps. */
static float *three_steps(const pl_compute *c, const pl_linear *gate, const pl_linear *up,
                          const float *x, size_t M)
{
    float *y = apply(c, gate, x, M), *other = apply(c, up, x, M);
    for (size_t m = 0; m < M; m++) {
        float *row = y + m * gate->w.out;
        c->kernels.silu_mul(row, row, other + m * gate->w.out, gate->w.out);
    }
    pl_free(other);
    return y;
}

static void check_swiglu(const layer *gate, const layer *up, pleach_arith arith, size_t step)
{
    enum { MOST = 70 };
    const pl_linear *both[] = {&gate->linear, &up->linear};
    size_t in = both[0]->w.in, out = both[0]->w.out;
    pl_compute c = compute_of(NULL, 1, arith);
    float *x = make_input(MOST, in), *want = three_steps(&c, both[0], both[1], x, MOST);
    float *y = pl_alloc(MOST * out, sizeof *y), *spare = pl_alloc(MOST * out, sizeof *y);
    for (size_t M = 1; M <= MOST; M += step) {
        c.pool = pool_of(1 + (int)(M % 4));
        void *scratch = pl_alloc(pl_linear_scratch(&c, both, 2, M), 1);
        pl_linear_gated(&c, both[0], both[1], c.kernels.silu_mul, x + (MOST - M) * in, M, y, spare, scratch);
        assert_memory_equal(y, want + (MOST - M) * out, M * out * sizeof *y);
        pl_free(scratch);
    }
    pl_free(x);
    pl_free(want);
    pl_free(y);
    pl_free(spare);
}

/* Gate and up in one go: of one kind, of different bits, blocks, axes, codings and
 * rotations. */
static void test_swiglu(void **unused)
{
    (void)unused;
    static const shape pairs[][2] = {
        {{0, 3, 12, 192, 0, 1344, 192, 64, 64, 0, 0}, {0, 3, 12, 192, 0, 1344, 192, 64, 64, 0, 0}},
        {{0, 4, 12, 128, 0, 1100, 600, 8, 0, 1, 0}, {0, 2, 12, 256, 0, 1100, 600, 0, 4, 0, 1}},
        {{1, 3, 12, 192, 0, 1000, 192, 64, 8, 1, 0}, {0, 4, 16, 96, 0, 1000, 192, 64, 0, 1, 1}},
        {{1, 2, 12, 64, 0, 1152, 64, 0, 64, 0, 0}, {1, 4, 12, 32, 0, 1152, 64, 16, 128, 0, 0}},
    };
    static const pleach_arith ariths[] = {PLEACH_ARITH_INT16, PLEACH_ARITH_INT16X2,
                                          PLEACH_ARITH_INT8, PLEACH_ARITH_F32, PLEACH_ARITH_BF16};
    for (size_t i = 0; i < PL_COUNT(pairs); i++) {
        layer gate, up, dense, affine;
        make_trellis(&gate, &pairs[i][0]);
        make_trellis(&up, &pairs[i][1]);
        make_dense(&dense, PL_BF16, pairs[i][0].out, pairs[i][0].in);
        for (size_t j = 0; j < PL_COUNT(ariths); j++) {
            check_swiglu(&gate, &up, ariths[j], j ? 7 : 1);
            check_swiglu(&dense, &gate, ariths[j], 9);
        }
        if (i == 0) {
            make_affine(&affine, 4, 64, PL_BF16, 1344, 192);
            for (size_t j = 0; j < PL_COUNT(ariths); j++) check_swiglu(&up, &affine, ariths[j], 9);
            close_layer(&affine);
        }
        close_layer(&gate);
        close_layer(&up);
        close_layer(&dense);
    }
}

/* NaN in one activation row stays there. */
static void test_nan_stays_in_its_row(void **unused)
{
    (void)unused;
    layer l;
    make_trellis(&l, &shapes[0]);
    float *x = make_input(2, 576);
    pl_compute c = compute_of(NULL, 1, PLEACH_ARITH_INT16);
    float *clean = apply(&c, &l.linear, x + 576, 1);
    x[5] = NAN;
    float *y = apply(&c, &l.linear, x, 2);
    assert_true(isnan(y[0]));
    assert_memory_equal(clean, y + 576, 576 * sizeof *y);
    pl_free(x);
    pl_free(y);
    pl_free(clean);
    close_layer(&l);
}

static void test_refuses_wrong_vectors(void **unused)
{
    (void)unused;
    layer l;
    make_dense(&l, PL_F32, 8, 8);
    pl_weight w = l.linear.w;
    pl_tensor shorter = l.bias;
    shorter.shape[0] = 7;
    w.bias = &shorter;
    pl_linear bad;
    pleach_error err;
    assert_int_equal(pl_linear_open(&bad, &w, &err), PLEACH_ERR_SHAPE);
    assert_null(bad.bias);
    pl_linear_close(&bad);
    close_layer(&l);
}

/* What kernels do not serve never reaches them, and the message has the numbers. */
static void test_refuses_bad_shapes(void **unused)
{
    static const struct {
        pleach_trellis t;
        const char *message;
    } bad[] = {
        {{.bits = 5, .state_bits = 12, .block = 64, .axis = 1, .rows = 64, .cols = 64}, "bits is 5"},
        {{.bits = 3, .state_bits = 14, .block = 64, .axis = 1, .rows = 64, .cols = 64}, "is 14"},
        {{.bits = 3, .state_bits = 12, .block = 48, .axis = 1, .rows = 64, .cols = 96}, "is 48"},
        {{.bits = 3, .state_bits = 12, .block = 64, .axis = 2, .rows = 64, .cols = 64}, "axis is 2"},
        {{.bits = 3, .state_bits = 12, .block = 64, .axis = 1, .rows = 64, .cols = 96}, "cols is 96"},
        {{.bits = 3, .state_bits = 12, .block = 64, .axis = 1, .rows = 63, .cols = 64}, "63 x 64"},
        {{.bits = 3, .state_bits = 12, .block = 64, .axis = 1, .rows = 64, .cols = 128}, "64 x 128"},
        {{.bits = 3, .state_bits = 12, .block = 32, .axis = 0, .rows = 64, .cols = 32}, "64 x 32"},
    };
    (void)unused;
    layer l;
    make_trellis(&l, &(shape){.out = 64, .in = 64, .T = 64, .k = 3, .L = 12, .axis = 1});
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        pl_weight w = l.linear.w;
        pl_linear refused;
        pleach_error err;
        w.trellis = bad[i].t;
        assert_int_equal(pl_linear_open(&refused, &w, &err), PLEACH_ERR_SHAPE);
        assert_non_null(strstr(err.message, bad[i].message));
        assert_null(refused.row_scales);
    }
    close_layer(&l);
}

int main(void)
{
    state = 20;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_affine),
        cmocka_unit_test(test_affine_batches),
        cmocka_unit_test(test_trellis),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_every_M),
        cmocka_unit_test(test_levels_agree),
        cmocka_unit_test(test_group),
        cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_nan_stays_in_its_row),
        cmocka_unit_test(test_refuses_wrong_vectors),
        cmocka_unit_test(test_refuses_bad_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
