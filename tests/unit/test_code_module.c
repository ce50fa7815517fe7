/* SPDX-License-Identifier: Apache-2.0
 *
 * Single matrices through the coder and back: every odd width, rows that are hard on a scale, and
 * the affine coding against the reader's rounding. */
#include "quantize_fixture.h"

#include <math.h>

#include "base/cpu.h"
#include "base/half.h"
#include "pools.h"
#include "quant/affine.h"
#include "quant/code_module.h"
#include "quant/rotate_matrix.h"

static const pl_kernels *kernels(void)
{
    static pl_kernels k;
    unsigned cpu;
    assert_int_equal(pl_cpu_level(NULL, &cpu), 0);
    pl_kernels_init(&k, cpu);
    return &k;
}

/* A plan item for one f32 matrix, as the driver's plan would make it. */
static pl_plan_item make_item(pl_tensor *source, const float *w, uint64_t out, uint64_t in,
                              uint32_t k, uint32_t axis, pleach_rotate rotate)
{
    pl_plan_item item = {.module = {.name = "m", .kind = PL_MODULE_LINEAR, .out = out, .in = in},
                         .coding = PL_CODING_TRELLIS, .width = axis ? in : out};
    *source = (pl_tensor){.name = "m.weight", .type = PL_F32, .n_dims = 2, .shape = {out, in},
                          .data = w, .n_bytes = out * in * 4};
    item.source = (pl_weight){.out = out, .in = in, .weight = source};
    item.trellis = (pleach_trellis){.bits = k, .state_bits = 12, .axis = axis,
                                    .rows = axis ? out : in};
    assert_ok(
        pleach_trellis_choose_block(item.width, &item.trellis.block, &item.trellis.cols, err));
    if (rotate != PLEACH_ROTATE_NONE) item.rotate_in = (pl_rotation){pl_rotation_block(in), 7};
    if (rotate == PLEACH_ROTATE_BOTH) item.rotate_out = (pl_rotation){pl_rotation_block(out), 8};
    item.output_scale = rotate == PLEACH_ROTATE_INPUT_SCALE && axis == 0;
    pl_item_tensors tensors;
    pl_item_tensors_get(&item, PL_F16, &tensors);
    for (size_t i = 0; i < tensors.n; i++) item.bytes += tensors.tensor[i].n_bytes;
    return item;
}

/* Codes the item and gives W back from the codes, the way a reader does. w is copied to a mapping,
 * whose pages the coder may give back. */
static float *code_and_restore(pl_plan_item *item, double *error)
{
    pl_coder coder = {.kernels = kernels(), .pool = pool_of(2)};
    pl_coded coded;
    float *restored = malloc(item->module.out * item->module.in * sizeof *restored);
    assert_ok(pl_coder_open(&coder, item, 1, err));
    assert_ok(pl_code_module(&coder, item, NULL, &coded, err));
    pl_tensor *t = coded.tensors.tensor;
    for (size_t i = 0; i < coded.tensors.n; i++) t[i].data = coded.data[i];
    pl_weight w = {.coding = item->coding, .out = item->module.out, .in = item->module.in,
                   .weight = &t[0], .scales = &t[1], .trellis = item->trellis,
                   .rotate_in = item->rotate_in, .rotate_out = item->rotate_out,
                   .bits = item->bits, .group_size = item->group_size};
    if (item->output_scale) w.output_scale = &t[2];
    if (item->coding == PL_CODING_AFFINE) w.biases = &t[2];
    assert_ok(pl_weight_dense_f32(&w, restored, err));
    *error = coded.power > 0 ? coded.error / coded.power : coded.error;
    pl_coder_close(&coder);
    return restored;
}

/* The matrix in a file of its own: the coder gives back pages of what it has read. */
static pl_map map_matrix(const float *w, size_t n)
{
    pl_map map;
    assert_ok(pl_write_file(at("matrix"), w, n * sizeof *w, err));
    assert_ok(pl_map_open(&map, at("matrix"), err));
    return map;
}

static double relative(const float *x, const float *y, size_t first, size_t end, size_t stride,
                       size_t n)
{
    double error = 0, power = 0;
    for (size_t r = 0; r < n; r++) {
        for (size_t i = first; i < end; i++) {
            double d = (double)x[r * stride + i] - y[r * stride + i];
            error += d * d;
            power += (double)x[r * stride + i] * x[r * stride + i];
        }
    }
    return error / power;
}

/* Widths that have no Hadamard matrix of their own, and rows that end beyond a full block. */
static void test_widths(void **state)
{
    (void)state;
    static const uint64_t widths[] = {576,   896,  4864, 4544, 10920, 13696, 33,  65,
                                      257,   287,  288,  511,  513,   543,   544, 767,
                                      50257, 1025, 32,   100};
    for (size_t i = 0; i < PL_COUNT(widths); i++) {
        for (uint32_t axis = 0; axis <= 1; axis++) {
            uint64_t width = widths[i], other = 8, seed = width;
            uint64_t out = axis ? other : width, in = axis ? width : other;
            float *w = malloc(out * in * sizeof *w);
            for (size_t j = 0; j < out * in; j++) w[j] = normal(&seed);
            pl_map map = map_matrix(w, out * in);
            pl_tensor source;
            pl_plan_item item = make_item(&source, (const float *)map.data, out, in, 3, axis,
                                          PLEACH_ROTATE_BOTH);
            double reported;
            float *q = code_and_restore(&item, &reported);
            double all = relative(w, q, 0, out * in, 0, 1);
            if (all > .025 || fabs(all - reported) > 1e-4)
                fail_msg("width %d axis %u: error %g, reported %g", (int)width, axis, all,
                         reported);
            /* The tail of the coded axis is coded as well as the rest. */
            size_t tail = width >= 257 ? 32 : width / 2;
            double end = axis ? relative(w, q, in - tail, in, in, out)
                              : relative(w, q, (out - tail) * in, out * in, 0, 1);
            if (end > .04)
                fail_msg("width %d axis %u: error of the tail %g", (int)width, axis, end);
            free(q);
            free(w);
            pl_map_close(&map);
        }
    }
}

/* Rotating there and back without coding changes nothing beyond rounding. */
static void test_rotation_alone(void **state)
{
    (void)state;
    static const uint64_t widths[] = {576, 896, 4864, 4544, 10920, 13696};
    for (size_t i = 0; i < PL_COUNT(widths); i++) {
        for (uint32_t axis = 0; axis <= 1; axis++) {
            uint64_t out = 64, in = widths[i], seed = in;
            float *w = malloc(out * in * sizeof *w);
            for (size_t j = 0; j < out * in; j++) w[j] = normal(&seed);
            pl_map map = map_matrix(w, out * in);
            pl_tensor source;
            pl_plan_item item = make_item(&source, (const float *)map.data, out, in, 4, axis,
                                          PLEACH_ROTATE_BOTH);
            const pleach_trellis *t = &item.trellis;
            float *stored = malloc(t->rows * t->cols * sizeof *stored);
            float *column = malloc(out * sizeof *column);
            float signs_in[13696], signs_out[64];
            assert_ok(pl_load_rotated(&item, kernels(), pool_of(3), NULL, stored, NULL, err));
            /* W = R_out W' R_in^T, row by row and then column by column. */
            float *back = malloc(out * in * sizeof *back);
            for (size_t o = 0; o < out; o++)
                for (size_t j = 0; j < in; j++)
                    back[o * in + j] = axis ? stored[o * t->cols + j] : stored[j * t->cols + o];
            for (size_t j = 0; j < in; j++) {
                uint64_t h = pl_mix64(item.rotate_in.seed + 0x9e3779b97f4a7c15u * (j + 1));
                signs_in[j] = h & 1 ? -1 : 1;
            }
            for (size_t o = 0; o < out; o++) {
                uint64_t h = pl_mix64(item.rotate_out.seed + 0x9e3779b97f4a7c15u * (o + 1));
                signs_out[o] = h & 1 ? -1 : 1;
            }
            for (size_t o = 0; o < out; o++)
                kernels()->unrotate(back + o * in, signs_in, in, item.rotate_in.block);
            for (size_t j = 0; j < in; j++) {
                for (size_t o = 0; o < out; o++) column[o] = back[o * in + j];
                kernels()->unrotate(column, signs_out, out, item.rotate_out.block);
                for (size_t o = 0; o < out; o++) back[o * in + j] = column[o];
            }
            for (size_t j = 0; j < out * in; j++) assert_true(fabsf(back[j] - w[j]) < 1e-5f);
            free(back);
            free(column);
            free(stored);
            free(w);
            pl_map_close(&map);
        }
    }
}

/* Rows that break a scale: zeros, numbers near the smallest, one among zeros, extremes in turn. */
static void test_hard_rows(void **state)
{
    (void)state;
    enum { OUT = 64, IN = 512 };
    for (uint32_t k = 2; k <= 4; k++) {
        for (uint32_t axis = 0; axis <= 1; axis++) {
            for (int rotate = 0; rotate <= PLEACH_ROTATE_INPUT_SCALE; rotate++) {
                static float w[OUT * IN];
                uint64_t seed = k;
                for (size_t i = 0; i < OUT * IN; i++) w[i] = .02f * normal(&seed);
                for (size_t j = 0; j < IN; j++) {
                    w[0 * IN + j] = 0;
                    w[1 * IN + j] = 1e-40f;
                    w[2 * IN + j] = j == 9 ? 1e-30f : 0;
                    w[3 * IN + j] = -0.0f;
                    w[4 * IN + j] = j & 1 ? 3 : -3;
                    w[5 * IN + j] = j == 100 ? 900 : w[5 * IN + j];
                }
                pl_map map = map_matrix(w, OUT * IN);
                pl_tensor source;
                pl_plan_item item = make_item(&source, (const float *)map.data, OUT, IN, k, axis,
                                              (pleach_rotate)rotate);
                double reported;
                float *q = code_and_restore(&item, &reported);
                for (size_t i = 0; i < OUT * IN; i++) assert_true(isfinite(q[i]));
                for (size_t j = 0; axis == 1 && !item.rotate_out.block && j < IN; j++) {
                    assert_true(q[0 * IN + j] == 0);
                    assert_true(q[3 * IN + j] == 0);
                }
                if (rotate != PLEACH_ROTATE_NONE) assert_true(reported < .3);
                free(q);
                pl_map_close(&map);
            }
        }
    }
    static float zero[OUT * IN];
    pl_map map = map_matrix(zero, OUT * IN);
    for (uint32_t axis = 0; axis <= 1; axis++) {
        pl_tensor source;
        pl_plan_item item = make_item(&source, (const float *)map.data, OUT, IN, 3, axis,
                                      PLEACH_ROTATE_INPUT_SCALE);
        double reported;
        float *q = code_and_restore(&item, &reported);
        for (size_t i = 0; i < OUT * IN; i++) assert_true(q[i] == 0);
        assert_true(reported == 0);
        free(q);
    }
    pl_map_close(&map);
}

/* Number i of a row: normal, with heavy tails, with an outlier in 61, of rows that differ widely, or
 * of two values alone. */
static float hard_number(uint64_t kind, size_t row, size_t i, float x)
{
    switch (kind) {
    case 0: return x;
    case 1: return x * x * x;
    case 2: return i % 61 ? x : 40 * x;
    case 3: return x * (1 + (float)(row * row));
    default: return x > 0 ? 1 : -1;
    }
}

/* Errors shrink with every bit, whatever the matrix. */
static void test_errors_decrease(void **state)
{
    (void)state;
    enum { OUT = 96, IN = 256 };
    static float w[OUT * IN];
    for (uint64_t layer = 0; layer < 40; layer++) {
        double last = 1;
        uint64_t seed = layer;
        for (size_t i = 0; i < OUT * IN; i++)
            w[i] = hard_number(layer / 4 % 5, i / IN, i % IN, normal(&seed));
        pl_map map = map_matrix(w, OUT * IN);
        for (uint32_t k = 2; k <= 4; k++) {
            pl_tensor source;
            pl_plan_item item = make_item(&source, (const float *)map.data, OUT, IN, k,
                                          layer / 2 % 2, PLEACH_ROTATE_BOTH);
            double error;
            float *q = code_and_restore(&item, &error);
            for (size_t i = 0; i < OUT * IN; i++) assert_true(isfinite(q[i]));
            free(q);
            assert_true(error < last * .5);
            last = error;
        }
        pl_map_close(&map);
    }
}

static pl_plan_item affine_item(pl_tensor *source, const float *w, uint64_t out, uint64_t in,
                                uint32_t bits_)
{
    pl_plan_item item = make_item(source, w, out, in, 4, 1, PLEACH_ROTATE_NONE);
    item.coding = PL_CODING_AFFINE;
    item.bits = bits_;
    item.group_size = 64;
    pl_item_tensors tensors;
    pl_item_tensors_get(&item, PL_F16, &tensors);
    item.bytes = 0;
    for (size_t i = 0; i < tensors.n; i++) item.bytes += tensors.tensor[i].n_bytes;
    return item;
}

static void test_affine(void **state)
{
    (void)state;
    enum { OUT = 700, IN = 192 };
    static float w[OUT * IN];
    uint64_t seed = 5;
    for (size_t i = 0; i < OUT * IN; i++) w[i] = .05f * normal(&seed);
    for (size_t j = 0; j < IN; j++) {
        w[j] = 0;
        w[IN + j] = 7;       /* equal numbers */
        w[2 * IN + j] = -.3f;
        w[3 * IN + j] = j == 70 ? 1e-30f : 0;
    }
    pl_map map = map_matrix(w, OUT * IN);
    for (uint32_t b = 4; b <= 8; b += 4) {
        pl_tensor source;
        pl_plan_item item = affine_item(&source, (const float *)map.data, OUT, IN, b);
        double reported;
        float *q = code_and_restore(&item, &reported);
        double error = relative(w, q, 0, OUT * IN, 0, 1);
        assert_true(fabs(error - reported) < 1e-3 * reported);
        assert_true(error < (b == 4 ? .01 : 4e-5));
        for (size_t j = 0; j < IN; j++) {
            assert_true(q[j] == 0);
            assert_true(q[IN + j] == 7);
            assert_true(fabsf(q[2 * IN + j] + .3f) < 2e-4f);
        }
        free(q);
    }
    pl_map_close(&map);
    /* Beyond fp16: bf16 scales, also where only a row outside the sample needs them. */
    for (int spread = 0; spread <= 1; spread++) {
        for (size_t j = 0; j < IN; j++) w[(spread ? 699 : 2) * IN + j] = j & 1 ? 2e5f : -1e5f;
        map = map_matrix(w, OUT * IN);
        pl_tensor source;
        pl_plan_item item = affine_item(&source, (const float *)map.data, OUT, IN, 8);
        double reported;
        float *q = code_and_restore(&item, &reported);
        assert_true(isfinite(reported) && reported < 1e-4);
        free(q);
        pl_map_close(&map);
        for (size_t j = 0; j < IN; j++) w[(spread ? 699 : 2) * IN + j] = 0;
    }
}

/* No code is farther from its number than another would be. */
static void test_affine_nearest(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int round = 0; round < 200; round++) {
        for (int t = 0; t < 2; t++) {
            pl_affine a = {.bits = round & 1 ? 4 : 8, .group = 64, .type = t ? PL_F16 : PL_BF16};
            float row[64];
            uint32_t words[16];
            uint16_t scale, bias;
            for (int i = 0; i < 64; i++)
                row[i] = normal(&seed) * (round % 7 ? 1 : 1e-4f) + round % 3;
            double error = pl_affine_encode_row(&a, row, 64, words, &scale, &bias), best = 0;
            float s = t ? pl_fp16_to_f32(scale) : pl_bf16_to_f32(scale);
            float b = t ? pl_fp16_to_f32(bias) : pl_bf16_to_f32(bias);
            for (int i = 0; i < 64; i++) {
                double nearest = INFINITY;
                for (uint32_t q = 0; q < 1u << a.bits; q++) {
                    float v = t ? pl_fp16_to_f32(pl_f32_to_fp16(
                                      pl_fp16_to_f32(pl_f32_to_fp16((float)q * s)) + b))
                                : pl_bf16_to_f32(pl_f32_to_bf16(
                                      pl_bf16_to_f32(pl_f32_to_bf16((float)q * s)) + b));
                    nearest = fmin(nearest, fabs((double)v - row[i]));
                }
                best += nearest * nearest;
            }
            assert_true(fabs(error - best) <= 1e-12 + 1e-9 * best);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widths),          cmocka_unit_test(test_rotation_alone),
        cmocka_unit_test(test_hard_rows),       cmocka_unit_test(test_errors_decrease),
        cmocka_unit_test(test_affine),          cmocka_unit_test(test_affine_nearest),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
