/* SPDX-License-Identifier: Apache-2.0
 *
 * Units of a layer's product, for each coding and arithmetic. */
#include "linear_task.h"

#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "codec/trellis.h"

static size_t ceil_div(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

size_t pl_linear_task_tiles(const pl_linear_task *t)
{
    return ceil_div(t->rows, PL_PRODUCT_ROWS);
}

static bool is_axis0(const pl_linear *l)
{
    return l->w.coding == PL_CODING_TRELLIS && l->w.trellis.axis == 0;
}

bool pl_linear_task_is_integer(const pl_compute *c, const pl_linear *l)
{
    return l->w.coding != PL_CODING_DENSE &&
           (c->arith == PLEACH_ARITH_INT16 || c->arith == PLEACH_ARITH_INT16X2 ||
            c->arith == PLEACH_ARITH_INT8);
}

bool pl_linear_task_by_tile(const pl_compute *c, const pl_linear_task *t, size_t M)
{
    static const uint8_t kinds[] = {[PLEACH_ARITH_INT16] = PL_CROSS_INT16,
                                    [PLEACH_ARITH_INT16X2] = PL_CROSS_INT16,
                                    [PLEACH_ARITH_F32] = PL_CROSS_F32,
                                    [PLEACH_ARITH_BF16] = PL_CROSS_BF16,
                                    [PLEACH_ARITH_INT8] = PL_CROSS_INT8};
    const pleach_trellis *g = &t->l->w.trellis;
    return M > c->kernels.crossovers.register_rows[kinds[c->arith]][g->axis][g->bits - 2];
}

/* Plain weight rows decoded at a time: for the first-level cache with few activation rows, for the
 * second with many. */
static size_t decoded_rows(const pl_linear_task *t)
{
    return t->M > 8 ? 2 * PL_UNIT_ROWS : 8;
}

/* Plain rows are many for an output head and cheap each. */
static size_t unit_rows(const pl_linear_task *t)
{
    return t->l->w.out >= 8192 ? 4 * PL_UNIT_ROWS : PL_MAX(decoded_rows(t), PL_UNIT_ROWS);
}

/* A multiple of 4096 bytes would have all rows in one set of the cache. */
static size_t decoded_stride(const pl_weight *w)
{
    return w->in + 16;
}

void pl_linear_task_shape(const pl_compute *c, pl_linear_task *t)
{
    const pleach_trellis *g = &t->l->w.trellis;
    bool integer = pl_linear_task_is_integer(c, t->l);
    t->limbs = integer && c->arith == PLEACH_ARITH_INT16X2 ? 2 : 1;
    t->rows = t->limbs * t->M;
    if (is_axis0(t->l)) {
        size_t blocks = g->cols / g->block, rows = ceil_div(g->rows, PL_MAX_SPLITS);
        t->split_rows = PL_MAX(ceil_div(rows, PL_GROUP_AXIS0) * PL_GROUP_AXIS0, PL_SPLIT_ROWS);
        t->splits = ceil_div(g->rows, t->split_rows);
        t->units = blocks * (t->M <= PL_NARROW ? t->splits : pl_linear_task_tiles(t));
        t->groups = ceil_div(g->rows, PL_GROUP_AXIS0);
        t->q_stride = t->groups * PL_GROUP_AXIS0;
    } else if (integer && t->l->w.coding == PL_CODING_AFFINE) {
        pl_linear_affine_shape(t);
        return;
    } else if (integer) {
        t->units = ceil_div(t->l->w.out, PL_UNIT_ROWS) * pl_linear_task_tiles(t);
        t->groups = g->cols / g->block * pl_block_groups(g->block);
        t->q_stride = g->cols;
        t->prepared_stride = ceil_div(pl_trellis_prepared_bytes(g->block, g->cols / g->block,
                                                                PL_MIN(t->rows, PL_PRODUCT_ROWS)),
                                      PL_ALIGNMENT) *
                             PL_ALIGNMENT;
    } else if (!pl_linear_float_is(c, t->l)) {
        t->units = ceil_div(t->l->w.out, unit_rows(t));
    }
    if (pl_linear_float_is(c, t->l)) pl_linear_float_shape(t);
    bool trellis = t->l->w.coding == PL_CODING_TRELLIS;
    t->width = is_axis0(t->l) ? g->block : trellis ? PL_UNIT_ROWS : unit_rows(t);
    t->across = is_axis0(t->l) ? g->cols / g->block : ceil_div(t->l->w.out, t->width);
}

size_t pl_linear_task_scratch(const pl_compute *c, const pl_linear_task *t)
{
    const pl_weight *w = &t->l->w;
    size_t T = w->trellis.block, M = PL_MIN(t->rows, PL_PRODUCT_ROWS);
    bool integer = pl_linear_task_is_integer(c, t->l);
    if (integer && w->coding == PL_CODING_AFFINE) return pl_linear_affine_scratch(t);
    if (integer)
        return pl_trellis_product_scratch(T, M) + M * PL_MAX(T, PL_UNIT_ROWS) * sizeof(float);
    if (pl_linear_float_is(c, t->l)) return pl_linear_float_scratch(t);
    return decoded_rows(t) * decoded_stride(w) * sizeof(float);
}

const uint8_t *pl_linear_task_codes(const pl_linear_task *t, size_t row, size_t block)
{
    const pl_weight *w = &t->l->w;
    return (const uint8_t *)w->weight->data + 4 * pl_trellis_block_at(&w->trellis, row, block);
}

size_t pl_linear_task_row_bytes(const pl_linear_task *t)
{
    const pleach_trellis *g = &t->l->w.trellis;
    return 4 * pl_trellis_block_words(g) * (g->interleaved ? 2 : g->cols / g->block);
}

/* ---- activations ----------------------------------------------------------------------------- */

void pl_linear_task_round(const pl_compute *c, const pl_linear_task *t, size_t m, size_t first,
                          size_t n, const float *scale, float step[2])
{
    const pl_product_kernels *k = &c->kernels.product;
    const float *x = t->x + m * t->l->w.in + PL_MIN(first, t->l->w.in);
    int16_t *q = t->q + m * t->limbs * t->q_stride + first;
    if (t->limbs == 2) {
        step[1] = k->quantize_i16x2(q, q + t->q_stride, x, scale, n);
        step[0] = 32768 * step[1];
    } else {
        bool i8 = c->arith == PLEACH_ARITH_INT8 && t->l->w.coding == PL_CODING_TRELLIS;
        pl_quantize_fn *quantize = i8 ? k->quantize_i8 : k->quantize_i16;
        step[0] = quantize(q, x, scale, n);
    }
}

/* One group of n numbers from `first` of row m on, and zeros up to `end`. */
static void quantize_group(const pl_compute *c, const pl_linear_task *t, size_t m, size_t group,
                           size_t first, size_t n, size_t end, const float *scale)
{
    float step[2];
    pl_linear_task_round(c, t, m, first, n, scale, step);
    for (size_t i = 0; i < t->limbs; i++) {
        size_t row = m * t->limbs + i;
        t->steps[row * t->groups + group] = step[i];
        memset(t->q + row * t->q_stride + first + n, 0, (end - first - n) * sizeof *t->q);
    }
}

void pl_linear_task_quantize(const pl_compute *c, const pl_linear_task *t, size_t m)
{
    const pl_weight *w = &t->l->w;
    if (t->floats) {
        pl_linear_float_prepare(c, t, m);
        return;
    }
    if (w->coding == PL_CODING_AFFINE) {
        pl_linear_affine_quantize(c, t, m);
        return;
    }
    if (w->trellis.axis == 0) {
        for (size_t r = 0, g = 0; r < w->in; r += PL_GROUP_AXIS0, g++)
            quantize_group(c, t, m, g, r, PL_MIN(w->in - r, PL_GROUP_AXIS0), r + PL_GROUP_AXIS0,
                           t->l->row_scales + r);
        return;
    }
    size_t T = w->trellis.block, groups = pl_block_groups(T);
    for (size_t first = 0, i = 0; first < w->trellis.cols; first += T)
        for (size_t g = 0; g < groups; g++, i++) {
            size_t end = T - g * PL_GROUP_AXIS1;
            size_t begin = end > PL_GROUP_AXIS1 ? end - PL_GROUP_AXIS1 : 0;
            size_t stop = w->in > first ? PL_MIN(w->in - first, end) : 0; /* padding is zero */
            size_t n = stop > begin ? stop - begin : 0;
            quantize_group(c, t, m, i, first + begin, n, first + end, NULL);
        }
}

void pl_linear_task_prepare(const pl_compute *c, const pl_linear_task *t, size_t i)
{
    const pleach_trellis *g = &t->l->w.trellis;
    const pl_product_kernels *k = &c->kernels.product;
    size_t m0 = i * PL_PRODUCT_ROWS;
    pl_trellis_prepare_fn *prepare = c->arith == PLEACH_ARITH_INT8 ? k->prepare_i8 : k->prepare;
    size_t M = PL_MIN(t->rows - m0, PL_PRODUCT_ROWS);
    prepare(t->prepared + i * t->prepared_stride, t->q + m0 * t->q_stride, g->block,
            g->cols / g->block, M, pl_linear_task_by_tile(c, t, M));
}

/* ---- trellis, integers ------------------------------------------------------------------------
 */

/* Rows m0 .. m0 + M - 1 of y[..][block b] = an [limbs M][T] result, limbs added; padding is
 * dropped. */
static void store_block(const pl_linear_task *t, size_t b, size_t m0, size_t M, const float *result)
{
    size_t T = t->l->w.trellis.block, out = t->l->w.out;
    size_t n = out > b * T ? PL_MIN(T, out - b * T) : 0;
    for (size_t m = 0; m < M; m++, result += t->limbs * T) {
        float *y = t->y + (m0 + m) * out + b * T;
        memcpy(y, result, n * sizeof *y);
        for (size_t i = 0; i < n && t->limbs == 2; i++) y[i] += result[T + i];
    }
}

static pl_trellis_product product_of(const pl_compute *c, const pl_linear_task *t, size_t m0,
                                     size_t M)
{
    const pleach_trellis *g = &t->l->w.trellis;
    return (pl_trellis_product){.row_bytes = pl_linear_task_row_bytes(t),
                                .block = g->block,
                                .M = M,
                                .tile = pl_linear_task_by_tile(c, t, M),
                                .blocks = g->cols / g->block,
                                .q = t->q + m0 * t->q_stride,
                                .q_stride = t->q_stride,
                                .steps = t->steps + m0 * t->groups,
                                .step_stride = t->groups,
                                .split = t->split_rows};
}

static void run_axis0(const pl_compute *c, const pl_linear_task *t, size_t unit, void *scratch)
{
    const pleach_trellis *g = &t->l->w.trellis;
    size_t blocks = g->cols / g->block, b = unit % blocks, part = unit / blocks;
    const pl_product_kernels *k = &c->kernels.product;
    pl_trellis_product_fn *multiply =
        (c->arith == PLEACH_ARITH_INT8 ? k->axis0_i8 : k->axis0)[g->bits - 2][g->state_bits == 16];
    if (t->M <= PL_NARROW) {
        size_t first = part * t->split_rows;
        pl_trellis_product p = product_of(c, t, 0, t->rows);
        p.codes = pl_linear_task_codes(t, first, b);
        p.rows = PL_MIN(g->rows - first, t->split_rows);
        p.q = t->q + first;
        p.steps = t->steps + first / PL_GROUP_AXIS0;
        p.out = t->partials + part * t->rows * g->cols + b * g->block;
        p.out_stride = g->cols;
        p.scratch = scratch;
        multiply(&p);
    } else {
        size_t m0 = part * PL_PRODUCT_ROWS, M = PL_MIN(t->rows - m0, PL_PRODUCT_ROWS);
        pl_trellis_product p = product_of(c, t, m0, M);
        p.codes = pl_linear_task_codes(t, 0, b);
        p.rows = g->rows;
        p.out = (float *)(void *)((uint8_t *)scratch + pl_trellis_product_scratch(g->block, M));
        p.out_stride = g->block;
        p.scratch = scratch;
        multiply(&p);
        store_block(t, b, m0 / t->limbs, M / t->limbs, p.out);
    }
}

static void run_axis1(const pl_compute *c, const pl_linear_task *t, size_t unit, void *scratch)
{
    const pleach_trellis *g = &t->l->w.trellis;
    const pl_product_kernels *k = &c->kernels.product;
    size_t tiles = pl_linear_task_tiles(t), i = unit % tiles, r = unit / tiles * PL_UNIT_ROWS;
    size_t m0 = i * PL_PRODUCT_ROWS, out = t->l->w.out;
    pl_trellis_product p = product_of(c, t, m0, PL_MIN(t->rows - m0, PL_PRODUCT_ROWS));
    p.codes = pl_linear_task_codes(t, r, 0);
    p.rows = PL_MIN(out - r, PL_UNIT_ROWS);
    p.q = t->prepared + i * t->prepared_stride;
    p.out = (float *)(void *)((uint8_t *)scratch + pl_trellis_product_scratch(g->block, p.M));
    p.out_stride = PL_UNIT_ROWS;
    p.scratch = scratch;
    (c->arith == PLEACH_ARITH_INT8 ? k->axis1_i8 : k->axis1)[g->bits - 2][g->state_bits == 16](&p);
    for (size_t m = 0; m < p.M; m += t->limbs) {
        const float *sums = p.out + m * PL_UNIT_ROWS;
        float *y = t->y + (m0 + m) / t->limbs * out + r;
        for (size_t j = 0; j < p.rows; j++)
            y[j] = (t->limbs == 2 ? sums[j] + sums[PL_UNIT_ROWS + j] : sums[j]) *
                   (t->l->row_scales[r + j] * (1.0f / PL_TRELLIS_DIVISOR));
    }
}

/* ---- plain codings ----------------------------------------------------------------------------
 */

static pl_dequantize_fn *dequantize_of(const pl_product_kernels *k, const pl_weight *w)
{
    if (w->block_scale) return NULL;
    switch (w->weight->type) {
    case PL_BF16:
        return w->in % 8 ? NULL : k->bf16;
    case PL_F16:
        return w->in % 8 ? NULL : k->f16;
    case PL_Q8_0:
        return k->q8_0;
    case PL_Q4_0:
        return k->q4_0;
    case PL_Q4_1:
        return k->q4_1;
    default:
        return NULL;
    }
}

static pl_affine_row_fn *affine_row_of(const pl_product_kernels *k, const pl_weight *w)
{
    if (w->bits > 8 || w->group_size % 32 || w->biases->type != w->scales->type) return NULL;
    switch (w->scales->type) {
    case PL_BF16:
        return k->affine[w->bits][PL_AFFINE_BF16];
    case PL_F16:
        return k->affine[w->bits][PL_AFFINE_F16];
    case PL_F32:
        return k->affine[w->bits][PL_AFFINE_F32];
    default:
        return NULL;
    }
}

/* Row r of a plain coding as f32. */
static void decode_row(const pl_compute *c, const pl_linear_task *t, size_t r, float *dst)
{
    const pl_weight *w = &t->l->w;
    const pl_product_kernels *k = &c->kernels.product;
    pl_dequantize_fn *dense = w->coding == PL_CODING_DENSE ? dequantize_of(k, w) : NULL;
    pl_affine_row_fn *affine = w->coding == PL_CODING_AFFINE ? affine_row_of(k, w) : NULL;
    if (dense)
        dense(dst, pl_tensor_row(w->weight, r), w->in);
    else if (affine)
        affine(dst, pl_tensor_row(w->weight, r), pl_tensor_row(w->scales, r),
               pl_tensor_row(w->biases, r), w->in, w->group_size);
    else
        pl_weight_rows_f32(w, r, 1, dst);
}

static void run_rows(const pl_compute *c, const pl_linear_task *t, size_t unit, void *scratch)
{
    const pl_weight *w = &t->l->w;
    float *decoded = scratch;
    size_t end = PL_MIN(w->out, (unit + 1) * unit_rows(t)), stride = decoded_stride(w);
    for (size_t r = unit * unit_rows(t); r < end; r += decoded_rows(t)) {
        size_t n = PL_MIN(end - r, decoded_rows(t));
        for (size_t i = 0; i < n; i++) decode_row(c, t, r + i, decoded + i * stride);
        c->kernels.product.rows(t->y + r, w->out, decoded, stride, n, t->x, w->in, t->M, w->in);
    }
}

void pl_linear_task_run(const pl_compute *c, const pl_linear_task *t, size_t unit, void *scratch)
{
    if (pl_linear_float_is(c, t->l))
        pl_linear_float_run(c, t, unit, scratch);
    else if (t->q && t->l->w.coding == PL_CODING_AFFINE)
        pl_linear_affine_run(c, t, unit, scratch);
    else if (t->l->w.coding != PL_CODING_TRELLIS)
        run_rows(c, t, unit, scratch);
    else
        (is_axis0(t->l) ? run_axis0 : run_axis1)(c, t, unit, scratch);
}

/* ---- results --------------------------------------------------------------------------------- */

/* y = the splits of row m added in order, then its limbs, n columns of them. */
static void add_partials(const pl_compute *c, const pl_linear_task *t, size_t m, size_t first,
                         size_t n, float *y)
{
    size_t cols = t->l->w.trellis.cols;
    for (size_t i = 0; i < t->limbs; i++) {
        float *sum = t->partials + (m * t->limbs + i) * cols + first;
        for (size_t s = 1; s < t->splits; s++)
            c->kernels.axpy_f32(sum, 1.0f, sum + s * t->rows * cols, n);
        if (i == 0)
            memcpy(y, sum, n * sizeof *y);
        else
            c->kernels.axpy_f32(y, 1.0f, sum, n);
    }
}

void pl_linear_task_finish(const pl_compute *c, const pl_linear_task *t, size_t m, size_t first,
                           size_t n)
{
    const pl_linear *l = t->l;
    const float *scale = l->output_scale, *bias = l->bias;
    float *y = t->y + m * l->w.out + first;
    if (is_axis0(l) && t->M <= PL_NARROW) add_partials(c, t, m, first, n, y);
    if (is_axis0(l) && c->arith != PLEACH_ARITH_BF16)
        for (size_t i = 0; i < n; i++) y[i] *= 1.0f / PL_TRELLIS_DIVISOR;
    if (l->w.rotate_out.block)
        c->kernels.unrotate(y, l->output_signs + first, n, l->w.rotate_out.block);
    for (size_t i = 0; scale && i < n; i++) y[i] *= scale[first + i];
    for (size_t i = 0; bias && i < n; i++) y[i] += bias[first + i];
}
