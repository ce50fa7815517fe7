/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain products against doubles within their bound, and against themselves with other M; roundings
 * and rows of plain codings bit for bit. */
#include "check.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/half.h"
#include "format/dtype.h"

/* ---- products of f32 ------------------------------------------------------------------------- */

typedef struct sizes {
    size_t M, rows, K, w_stride, x_stride, y_stride;
} sizes;

static void check_rows_round(check *t, const pl_kernels *isa)
{
    sizes s = {.M = 1 + check_below(t, 14),
               .rows = 1 + check_below(t, 13),
               .K = 1 + check_below(t, check_below(t, 3) ? 200 : 3000)};
    s.w_stride = s.K + check_below(t, 3);
    s.x_stride = s.K + check_below(t, 3);
    s.y_stride = s.rows + check_below(t, 3);
    float *w = check_buffer(t, s.rows * s.w_stride * 4, 4);
    float *x = check_buffer(t, s.M * s.x_stride * 4, 4);
    float *y = check_buffer(t, s.M * s.y_stride * 4, 4), *one = check_buffer(t, s.rows * 4, 4);
    check_fill_f32(t, w, s.rows * s.w_stride);
    check_fill_f32(t, x, s.M * s.x_stride);
    isa->product.rows(y, s.y_stride, w, s.w_stride, s.rows, x, s.x_stride, s.M, s.K);
    for (size_t m = 0; m < s.M; m++)
        for (size_t r = 0; r < s.rows; r++) {
            double want = 0, size = 0;
            for (size_t k = 0; k < s.K; k++) {
                double v = (double)w[r * s.w_stride + k] * (double)x[m * s.x_stride + k];
                want += v;
                size += fabs(v);
            }
            double bound = ((double)s.K / 8 + 8) * FLT_EPSILON * size + 1e-37;
            if (size < FLT_MAX) check_close(t, &y[m * s.y_stride + r], &want, &bound, 1);
        }
    size_t m = check_below(t, (uint32_t)s.M), r = check_below(t, (uint32_t)s.rows);
    isa->product.rows(one, s.rows, w + r * s.w_stride, s.w_stride, s.rows - r, x + m * s.x_stride,
                      s.x_stride, 1, s.K);
    check_same(t, one, y + m * s.y_stride + r, (s.rows - r) * 4);
}

static void check_plain(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    if (check_begin(t, isa->product.rows != c->product.rows, "product_rows")) {
        for (int round = 0; check_round(t, round, 300); round++) {
            check_release(t);
            check_rows_round(t, isa);
        }
        check_release(t);
        enum { K = 576, M = 48, ROWS = 8 };
        float *w = check_buffer(t, ROWS * K * 4, 64), *x = check_buffer(t, M * K * 4, 64);
        float *y = check_buffer(t, M * ROWS * 4, 64);
        memset(w, 0, ROWS * K * 4);
        memset(x, 0, M * K * 4);
        check_bench(t, 1e-9 * ROWS * K, "Gmac/s M1")
            isa->product.rows(y, ROWS, w, K, ROWS, x, K, 1, K);
        check_bench(t, 1e-9 * ROWS * K * M, "Gmac/s M48")
            isa->product.rows(y, ROWS, w, K, ROWS, x, K, M, K);
        check_end(t);
    }
}

/* ---- roundings ------------------------------------------------------------------------------- */

static void check_quantize(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    if (!check_begin(t, isa->product.quantize_i16 != c->product.quantize_i16, "quantize_i16"))
        return;
    for (int round = 0; check_round(t, round, 300); round++) {
        check_release(t);
        size_t n = check_below(t, 129);
        float *x = check_buffer(t, n * 4, 4), *scale = check_buffer(t, n * 4, 4);
        int16_t *want = check_buffer(t, n * 2, 2), *got = check_buffer(t, n * 2, 2);
        check_fill_f32(t, x, n);
        check_fill_f32(t, scale, n);
        if (n && check_below(t, 20) == 0) x[check_below(t, (uint32_t)n)] = NAN;
        bool scaled = check_below(t, 2);
        float a = c->product.quantize_i16(want, x, scaled ? scale : NULL, n);
        float b = isa->product.quantize_i16(got, x, scaled ? scale : NULL, n);
        check_same(t, got, want, n * 2);
        if (!isnan(a))
            check_same(t, &b, &a, 4);
        else if (!isnan(b))
            check_fail(t, "step is %g, expected NaN", (double)b);
        if (isnan(a) || a == 0) continue;
        for (size_t i = 0; i < n; i++) {
            double v = scaled ? (double)(x[i] * scale[i]) : (double)x[i];
            /* Half a step, and 32767 times the three f32 roundings on the way. */
            if (fabs(v - (double)want[i] * (double)a) > 0.506 * (double)a)
                check_fail(t, "%g became %d steps of %g", v, want[i], (double)a);
        }
    }
    check_end(t);
}

/* ---- rows of plain codings ------------------------------------------------------------------- */

static void check_dequantize(check *t, pl_dequantize_fn *fn, pl_dtype type)
{
    const pl_dtype_info *info = pl_dtype_get(type);
    if (!fn || !check_begin(t, true, "dequantize_%s", info->name)) return;
    size_t step = PL_MAX(info->block_elements, 8);
    for (int round = 0; check_round(t, round, 100); round++) {
        check_release(t);
        size_t n = step * (1 + check_below(t, 20));
        size_t bytes = n / info->block_elements * info->block_bytes;
        uint8_t *src = check_buffer(t, bytes, 1);
        float *want = check_buffer(t, n * 4, 4), *got = check_buffer(t, n * 4, 4);
        check_fill(t, src, bytes);
        pl_dequantize_row(type, src, want, n);
        fn(got, src, n);
        for (size_t i = 0; i < n; i++) /* any NaN will do */
            if (isnan(want[i]) && isnan(got[i])) got[i] = want[i];
        check_same(t, got, want, n * 4);
    }
    check_release(t);
    enum { N = 64 * 576 };
    uint8_t *src = check_buffer(t, N * 4, 64);
    float *dst = check_buffer(t, N * 4, 64);
    check_bench(t, 1e-9 * N, "Gw/s") fn(dst, src, N);
    check_end(t);
}

static const unsigned affine_bits[] = {2, 3, 4, 5, 6, 8};
static const char *const type_names[] = {"bf16", "f16", "f32"};

static unsigned code_at(const uint8_t *row, size_t i, unsigned bits)
{
    unsigned q = 0;
    for (unsigned j = 0; j < bits; j++) {
        size_t bit = i * bits + j;
        q |= (unsigned)(row[bit / 8] >> bit % 8 & 1) << j;
    }
    return q;
}

/* The formula in the type of the scales, as format.md has it. */
static float round_as(float v, int type)
{
    if (type == PL_AFFINE_BF16) return pl_bf16_to_f32(pl_f32_to_bf16(v));
    if (type == PL_AFFINE_F16) return pl_fp16_to_f32(pl_f32_to_fp16(v));
    return v;
}

static float number_at(const uint8_t *p, size_t i, int type)
{
    float f;
    uint16_t h;
    memcpy(&h, p + 2 * i, 2);
    if (type == PL_AFFINE_F32)
        memcpy(&f, p + 4 * i, 4);
    else
        f = type == PL_AFFINE_BF16 ? pl_bf16_to_f32(h) : pl_fp16_to_f32(h);
    return f;
}

static void check_affine(check *t, pl_affine_row_fn *fn, unsigned bits, int type)
{
    if (!fn || !check_begin(t, true, "affine%u_%s", bits, type_names[type])) return;
    for (int round = 0; check_round(t, round, 100); round++) {
        check_release(t);
        size_t group = 32u << check_below(t, 3), n = group * (1 + check_below(t, 6));
        size_t size = type == PL_AFFINE_F32 ? 4 : 2, numbers = n / group * size;
        uint8_t *src = check_buffer(t, n * bits / 8, 1);
        uint8_t *scales = check_buffer(t, numbers, 1), *biases = check_buffer(t, numbers, 1);
        float *want = check_buffer(t, n * 4, 4), *got = check_buffer(t, n * 4, 4);
        check_fill(t, src, n * bits / 8);
        for (size_t i = 0; i < n; i++) {
            float product = (float)code_at(src, i, bits) * number_at(scales, i / group, type);
            want[i] = round_as(round_as(product, type) + number_at(biases, i / group, type), type);
        }
        fn(got, src, scales, biases, n, group);
        for (size_t i = 0; i < n; i++) /* any NaN and any zero will do */
            if ((isnan(want[i]) && isnan(got[i])) || want[i] == got[i]) got[i] = want[i];
        check_same(t, got, want, n * 4);
    }
    check_release(t);
    enum { N = 64 * 576 };
    uint8_t *src = check_buffer(t, N, 64), *ones = check_buffer(t, N / 16, 64);
    float *dst = check_buffer(t, N * 4, 64);
    memset(ones, 0, N / 16);
    check_bench(t, 1e-9 * N, "Gw/s") fn(dst, src, ones, ones, N, 64);
    check_end(t);
}

/* ---- affine products ------------------------------------------------------------------------- */

typedef struct affine_case {
    pl_affine_product p;
    int16_t *q;
    float *steps;
} affine_case;

/* Random shapes; now and then steps or scales that are no numbers. */
static affine_case make_affine(check *t, unsigned bits, int type)
{
    size_t group = 32u << check_below(t, 3), groups = 1 + check_below(t, check_below(t, 4) ? 5 : 20);
    size_t n = group * groups, rows = 1 + check_below(t, 70), M = 1 + check_below(t, 14);
    size_t size = type == PL_AFFINE_F32 ? 4 : 2, row_bytes = n * bits / 8 + check_below(t, 3);
    affine_case a = {.p = {.bits = bits, .type = type, .group = group, .rows = rows, .n = n, .M = M,
                           .row_bytes = row_bytes, .q_stride = n + check_below(t, 3),
                           .step_stride = 2 * groups + check_below(t, 3)}};
    uint8_t *codes = check_fenced(t, (rows - 1) * row_bytes + n * bits / 8);
    uint8_t *scales = check_buffer(t, rows * groups * size, 1);
    uint8_t *biases = check_buffer(t, rows * groups * size, 1);
    a.q = check_buffer(t, M * a.p.q_stride * 2, 2);
    a.steps = check_buffer(t, M * a.p.step_stride * 4, 4);
    check_fill(t, codes, (rows - 1) * row_bytes + n * bits / 8);
    check_fill(t, a.q, M * a.p.q_stride * 2);
    for (size_t i = 0; i < M * a.p.q_stride; i++) a.q[i] = PL_MAX(a.q[i], (int16_t)-32767);
    for (size_t i = 0; i < M * a.p.step_stride; i++) a.steps[i] = (float)(1e-4 * check_normal(t));
    for (size_t i = 0; i < rows * groups; i++)
        for (int b = 0; b < 2; b++) {
            float v = (float)(0.1 * check_normal(t));
            uint16_t h = type == PL_AFFINE_F16 ? pl_f32_to_fp16(v) : pl_f32_to_bf16(v);
            memcpy((b ? biases : scales) + i * size, type == PL_AFFINE_F32 ? (void *)&v : &h, size);
        }
    if (check_below(t, 8) == 0) check_fill(t, scales, rows * groups * size);
    if (check_below(t, 8) == 0) a.steps[check_below(t, (uint32_t)(M * a.p.step_stride))] = NAN;
    a.p.codes = codes;
    a.p.scales = scales;
    a.p.biases = biases;
    a.p.q = a.q;
    a.p.steps = a.steps;
    a.p.out_stride = rows + check_below(t, 3);
    return a;
}

/* The contract, one output. */
static float affine_output(const pl_affine_product *p, size_t m, size_t r)
{
    float out = 0;
    size_t groups = p->n / p->group;
    for (size_t g = 0; g < groups; g++) {
        const float *step = p->steps + m * p->step_stride + 2 * g;
        int64_t sum = 0;
        for (size_t i = g * p->group; i < (g + 1) * p->group; i++)
            sum += p->q[m * p->q_stride + i] * (int64_t)code_at(p->codes + r * p->row_bytes, i, p->bits);
        float scaled = (float)sum * step[0];
        scaled *= number_at(p->scales, r * groups + g, p->type);
        float offset = step[1] * number_at(p->biases, r * groups + g, p->type);
        out += scaled + offset;
    }
    return out;
}

static void check_affine_round(check *t, const pl_kernels *c, const pl_kernels *isa, unsigned bits,
                               int type)
{
    affine_case a = make_affine(t, bits, type);
    pl_affine_product p = a.p;
    size_t n = p.M * p.out_stride;
    float *want = check_buffer(t, n * 4, 4), *got = check_buffer(t, n * 4, 4);
    float *one = check_buffer(t, p.rows * 4, 4);
    check_fill(t, want, n * 4);
    memcpy(got, want, n * 4);
    p.out = want;
    c->product.affine_product(&p);
    for (size_t i = 0; check_is_reference(t) && i < p.M * p.rows; i++) {
        float own = affine_output(&p, i / p.rows, i % p.rows);
        float *to = want + i / p.rows * p.out_stride + i % p.rows;
        if (memcmp(to, &own, 4) != 0 && !(isnan(own) && isnan(*to)))
            check_fail(t, "output %zu is %g, expected %g", i, (double)*to, (double)own);
    }
    p.out = got;
    isa->product.affine_product(&p);
    for (size_t i = 0; i < n; i++) /* any NaN will do */
        if (isnan(want[i]) && isnan(got[i])) got[i] = want[i];
    check_same(t, got, want, n * 4);
    size_t m = check_below(t, (uint32_t)p.M);
    p.M = 1;
    p.q += m * p.q_stride;
    p.steps += m * p.step_stride;
    p.out = one;
    isa->product.affine_product(&p);
    for (size_t i = 0; i < p.rows; i++)
        if (isnan(one[i])) one[i] = want[m * p.out_stride + i];
    check_same(t, one, want + m * p.out_stride, p.rows * 4);
}

static void check_affine_product(check *t, const pl_kernels *c, const pl_kernels *isa,
                                 unsigned bits, int type)
{
    if (!check_begin(t, isa->product.affine_product != c->product.affine_product,
                     "affine_product%u_%s", bits, type_names[type]))
        return;
    for (int round = 0; check_round(t, round, 100); round++) {
        check_release(t);
        check_affine_round(t, c, isa, bits, type);
    }
    check_release(t);
    enum { N = 576, GROUPS = N / 64, ROWS = 128, FAR = 384, MANY = 64 };
    size_t row_bytes = N * bits / 8, numbers = ROWS * GROUPS * 4;
    uint8_t *codes = check_buffer(t, FAR * ROWS * row_bytes, 64);
    uint8_t *ones = check_buffer(t, numbers, 64);
    int16_t *q = check_buffer(t, MANY * N * 2, 64);
    float *steps = check_buffer(t, MANY * 2 * GROUPS * 4, 64);
    float *out = check_buffer(t, MANY * ROWS * 4, 64);
    memset(ones, 0, numbers);
    memset(steps, 0, MANY * 2 * GROUPS * 4);
    pl_affine_product p = {.codes = codes, .row_bytes = row_bytes, .scales = ones, .biases = ones,
                           .type = type, .bits = bits, .group = 64, .rows = ROWS, .n = N, .M = 1,
                           .q = q, .q_stride = N, .steps = steps, .step_stride = 2 * GROUPS,
                           .out = out, .out_stride = ROWS};
    static const size_t sizes[] = {1, 2, 4, 8, 64};
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        char label[24];
        snprintf(label, sizeof label, "Gmac/s M%zu", sizes[i]);
        p.M = sizes[i];
        check_bench(t, 1e-9 * ROWS * N * (double)p.M, label) isa->product.affine_product(&p);
    }
    p.M = 1;
    check_bench(t, 1e-9 * FAR * ROWS * N, "Gw/s memory")
        for (size_t i = 0; i < FAR; i++) {
            p.codes = codes + i * ROWS * row_bytes;
            isa->product.affine_product(&p);
        }
    check_end(t);
}

void check_product(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    const pl_product_kernels *k = &isa->product;
    check_plain(t, c, isa);
    check_quantize(t, c, isa);
    check_dequantize(t, k->bf16, PL_BF16);
    check_dequantize(t, k->f16, PL_F16);
    check_dequantize(t, k->q8_0, PL_Q8_0);
    check_dequantize(t, k->q4_0, PL_Q4_0);
    check_dequantize(t, k->q4_1, PL_Q4_1);
    for (unsigned bits = 2; bits <= 8; bits++)
        for (int type = 0; type < PL_AFFINE_TYPES; type++)
            check_affine(t, k->affine[bits][type], bits, type);
    for (size_t i = 0; i < PL_COUNT(affine_bits); i++)
        for (int type = 0; type < PL_AFFINE_TYPES; type++)
            check_affine_product(t, c, isa, affine_bits[i], type);
}
