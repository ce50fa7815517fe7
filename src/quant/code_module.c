/* SPDX-License-Identifier: Apache-2.0
 *
 * Coding one module. Trellis: load, rotate, encode stored rows strip by strip, measure. Affine: row
 * by row, with the type of scales that errs least. */
#include "code_module.h"

#include <math.h>

#include "affine.h"
#include "base/file.h"
#include "base/half.h"
#include "base/memory.h"
#include "codec/encoder.h"
#include "rotate_matrix.h"

#define STRIP_NUMBERS ((uint64_t)1 << 21) /* encoded between two progress calls */
#define AFFINE_ROWS 256 /* read at once, and the sample by which the type of scales is chosen */

/* ---- the coder ------------------------------------------------------------------------------ */

static uint64_t strip_rows(const pleach_trellis *t)
{
    return PL_MIN(PL_MAX(STRIP_NUMBERS / t->cols, 1), t->rows);
}

/* Each tensor of a module begins on a boundary of the allocator's. */
static size_t aligned(size_t bytes)
{
    return (bytes + PL_ALIGNMENT - 1) / PL_ALIGNMENT * PL_ALIGNMENT;
}

typedef struct buffer_sizes {
    uint64_t matrix, decoded, data; /* numbers, numbers, bytes */
} buffer_sizes;

static buffer_sizes largest(const pl_plan_item *items, size_t n)
{
    buffer_sizes s = {1, 1, 1};
    for (size_t i = 0; i < n; i++) {
        const pl_plan_item *item = &items[i];
        const pleach_trellis *t = &item->trellis;
        if (item->coding == PL_CODING_DENSE) continue;
        s.data = PL_MAX(s.data, item->bytes + 3 * PL_ALIGNMENT);
        if (item->coding == PL_CODING_TRELLIS) {
            s.matrix = PL_MAX(s.matrix, t->rows * t->cols);
            s.decoded = PL_MAX(s.decoded, strip_rows(t) * t->cols);
        } else {
            s.matrix = PL_MAX(s.matrix, AFFINE_ROWS * item->module.in);
        }
    }
    return s;
}

uint64_t pl_coder_memory(const pl_plan_item *items, size_t n)
{
    buffer_sizes s = largest(items, n);
    return (s.matrix + s.decoded) * sizeof(float) + s.data;
}

pleach_status pl_coder_open(pl_coder *c, const pl_plan_item *items, size_t n, pleach_error *err)
{
    buffer_sizes s = largest(items, n);
    c->matrix = pl_alloc(s.matrix, sizeof *c->matrix);
    c->decoded = pl_alloc(s.decoded, sizeof *c->decoded);
    c->data = pl_alloc(s.data, 1);
    if (c->matrix && c->decoded && c->data) return PLEACH_OK;
    pl_coder_close(c);
    return pl_fail_memory(err, "the largest module", pl_coder_memory(items, n));
}

void pl_coder_close(pl_coder *c)
{
    pl_free(c->matrix);
    pl_free(c->decoded);
    pl_free(c->data);
    c->matrix = c->decoded = NULL;
    c->data = NULL;
}

static void lay_out(const pl_coder *c, const pl_plan_item *item, pl_coded *out)
{
    size_t at = 0;
    pl_item_tensors_get(item, PL_F16, &out->tensors);
    for (size_t i = 0; i < out->tensors.n; i++) {
        out->data[i] = c->data + at;
        at += aligned(out->tensors.tensor[i].n_bytes);
    }
}

static pleach_status step(const pl_coder *c, uint64_t done, uint64_t total, pleach_error *err)
{
    if (done == total || !c->step || !c->step(c->user, (double)done / (double)total))
        return PLEACH_OK;
    return pl_fail(err, PLEACH_ERR_CANCELLED, "stopped; the work done so far is kept");
}

/* ---- trellis -------------------------------------------------------------------------------- */

typedef struct trellis_work {
    const pl_coder *coder;
    const pl_plan_item *item;
    pl_encoder *encoder;
    uint32_t *codes;
    uint16_t *scales;
    float *weight;         /* [cols] square of the output scale (axis 0), or NULL for ones */
    double *error, *power; /* [rows] */
} trellis_work;

/* Errors in the coded domain are errors of W: rotations keep lengths. Padding does not count. */
static void measure_row(const trellis_work *w, uint64_t row, const float *decoded)
{
    const float *x = w->coder->matrix + row * w->item->trellis.cols;
    double error = 0, power = 0;
    for (uint64_t i = 0; i < w->item->width; i++) {
        double weight = w->weight ? w->weight[i] : 1, d = (double)x[i] - decoded[i];
        error += weight * d * d;
        power += weight * x[i] * x[i];
    }
    w->error[row] = error;
    w->power[row] = power;
}

static pleach_status encode_strip(const trellis_work *w, uint64_t first, uint64_t n,
                                  pleach_error *err)
{
    uint64_t cols = w->item->trellis.cols;
    pleach_error inner = {0};
    pleach_status status = pl_encoder_rows(w->encoder, first, n, w->codes, w->scales,
                                           w->coder->decoded, w->coder->matrix + first * cols,
                                           &inner);
    PL_FAIL_IF(status != PLEACH_OK, err, status, "%s.weight, by %s: %s", w->item->module.name,
               w->item->trellis.axis ? "outputs" : "inputs", inner.message);
#pragma omp parallel for num_threads(w->coder->threads) schedule(static)
    for (uint64_t r = 0; r < n; r++) measure_row(w, first + r, w->coder->decoded + r * cols);
    return PLEACH_OK;
}

static pleach_status encode_rows(const trellis_work *w, pl_coded *out, pleach_error *err)
{
    const pleach_trellis *t = &w->item->trellis;
    uint64_t strip = strip_rows(t);
    for (uint64_t r = 0; r < t->rows; r += strip) {
        uint64_t n = PL_MIN(strip, t->rows - r);
        PL_TRY(encode_strip(w, r, n, err));
        PL_TRY(step(w->coder, r + n, t->rows, err));
    }
    for (uint64_t r = 0; r < t->rows; r++) {
        out->error += w->error[r];
        out->power += w->power[r];
    }
    return PLEACH_OK;
}

static pleach_status open_trellis(trellis_work *w, pleach_error *err)
{
    const pleach_trellis *t = &w->item->trellis;
    pleach_trellis_encode_settings settings;
    pleach_trellis_encode_defaults(&settings);
    settings.threads = w->coder->threads;
    settings.cpu = w->coder->cpu;
    w->error = pl_alloc(t->rows, 2 * sizeof *w->error);
    if (w->item->output_scale) w->weight = pl_alloc(t->cols, sizeof *w->weight);
    if (!w->error || (w->item->output_scale && !w->weight))
        return pl_fail_memory(err, w->item->module.name, t->rows * 16 + t->cols * 4);
    w->power = w->error + t->rows;
    return pl_encoder_open(&w->encoder, t, &settings, err);
}

static pleach_status code_trellis(const pl_coder *c, const pl_plan_item *item, pl_coded *out,
                                  pleach_error *err)
{
    lay_out(c, item, out);
    uint16_t *output_scale = out->data[2];
    trellis_work w = {.coder = c, .item = item, .codes = out->data[0], .scales = out->data[1]};
    pleach_status status = open_trellis(&w, err);
    if (status == PLEACH_OK)
        status = pl_load_rotated(item, c->kernels, c->threads, c->matrix, output_scale, err);
    if (status == PLEACH_OK && w.weight) {
        for (uint64_t o = 0; o < item->module.out; o++) {
            float a = pl_fp16_to_f32(output_scale[o]);
            w.weight[o] = a * a;
        }
    }
    if (status == PLEACH_OK) status = encode_rows(&w, out, err);
    pl_encoder_close(w.encoder);
    pl_free(w.weight);
    pl_free(w.error);
    return status;
}

/* ---- affine --------------------------------------------------------------------------------- */

typedef struct affine_work {
    const pl_coder *coder;
    const pl_plan_item *item;
    float *whole;
    pl_coded *out;
    double error[AFFINE_ROWS], power[AFFINE_ROWS];
} affine_work;

/* Reads rows first, first + stride, ... */
static pleach_status read_affine_rows(affine_work *w, uint64_t first, uint64_t stride, uint64_t n,
                                      pleach_error *err)
{
    const pl_module *m = &w->item->module;
    uint64_t bad_row = UINT64_MAX, bad_col = 0;
#pragma omp parallel for num_threads(w->coder->threads) schedule(static)
    for (uint64_t i = 0; i < n; i++) {
        uint64_t row, col;
        if (!pl_read_rows(&w->item->source, w->whole, first + i * stride, 1,
                          w->coder->matrix + i * m->in, &row, &col))
            continue;
#pragma omp critical(pl_code_affine)
        if (row < bad_row) {
            bad_row = row;
            bad_col = col;
        }
    }
    return bad_row == UINT64_MAX ? PLEACH_OK : pl_fail_value(err, m->name, bad_row, bad_col);
}

/* Codes the rows that were read, into row `to` of the output on. Returns the squared error. */
static double code_affine_rows(affine_work *w, pl_dtype type, uint64_t to, uint64_t n)
{
    const pl_plan_item *item = w->item;
    size_t in = item->module.in, words = in * item->bits / 32, groups = in / item->group_size;
    pl_affine a = {.bits = item->bits, .group = item->group_size, .type = type};
    uint32_t *codes = w->out->data[0];
    uint16_t *scales = w->out->data[1], *biases = w->out->data[2];
#pragma omp parallel for num_threads(w->coder->threads) schedule(static)
    for (uint64_t i = 0; i < n; i++) {
        const float *row = w->coder->matrix + i * in;
        uint64_t r = to + i;
        w->error[i] = pl_affine_encode_row(&a, row, in, codes + r * words, scales + r * groups,
                                           biases + r * groups);
        w->power[i] = 0;
        for (size_t j = 0; j < in; j++) w->power[i] += (double)row[j] * row[j];
    }
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += w->error[i];
    return sum;
}

static pleach_status code_affine_all(affine_work *w, pl_dtype type, pleach_error *err)
{
    const pl_module *m = &w->item->module;
    w->out->error = w->out->power = 0;
    for (uint64_t r = 0; r < m->out; r += AFFINE_ROWS) {
        uint64_t n = PL_MIN(m->out - r, (uint64_t)AFFINE_ROWS);
        PL_TRY(read_affine_rows(w, r, 1, n, err));
        w->out->error += code_affine_rows(w, type, r, n);
        for (uint64_t i = 0; i < n; i++) w->out->power += w->power[i];
        if (r / AFFINE_ROWS % 64 == 63) PL_TRY(step(w->coder, r + n, m->out, err));
    }
    return PLEACH_OK;
}

/* fp16 has the finer steps and bf16 the range: whichever errs less on rows spread over the matrix,
 * and bf16 if fp16 then overflows elsewhere. */
static pleach_status code_affine_work(affine_work *w, pleach_error *err)
{
    const pl_module *m = &w->item->module;
    uint64_t stride = PL_MAX(m->out / AFFINE_ROWS, 1);
    uint64_t n = PL_MIN(m->out, (uint64_t)AFFINE_ROWS);
    PL_TRY(read_affine_rows(w, 0, stride, n, err));
    double half = code_affine_rows(w, PL_F16, 0, n), brain = code_affine_rows(w, PL_BF16, 0, n);
    pl_dtype type = half <= brain ? PL_F16 : PL_BF16;
    PL_TRY(code_affine_all(w, type, err));
    if (isinf(w->out->error) && type == PL_F16) PL_TRY(code_affine_all(w, type = PL_BF16, err));
    PL_FAIL_IF(isinf(w->out->error), err, PLEACH_ERR_DATA,
               "%s.weight: numbers too large for affine groups", m->name);
    w->out->tensors.tensor[1].type = w->out->tensors.tensor[2].type = type;
    return PLEACH_OK;
}

static pleach_status code_affine(const pl_coder *c, const pl_plan_item *item, pl_coded *out,
                                 pleach_error *err)
{
    lay_out(c, item, out);
    affine_work w = {.coder = c, .item = item, .out = out};
    pleach_status status = pl_read_whole(&item->source, &w.whole, err);
    if (status == PLEACH_OK) status = code_affine_work(&w, err);
    pl_map_release(item->source.weight->data, item->source.weight->n_bytes);
    pl_free(w.whole);
    return status;
}

/* ---- both ----------------------------------------------------------------------------------- */

pleach_status pl_code_module(const pl_coder *c, const pl_plan_item *item,
                             const pl_module_statistics *stats, pl_coded *out, pleach_error *err)
{
    (void)stats;
    *out = (pl_coded){0};
    return item->coding == PL_CODING_TRELLIS ? code_trellis(c, item, out, err)
                                             : code_affine(c, item, out, err);
}
