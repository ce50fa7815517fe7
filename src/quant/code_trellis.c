/* SPDX-License-Identifier: Apache-2.0
 *
 * Load, rotate, encode stored rows strip by strip or with error feedback, measure. What is measured
 * is the error E = W - Q, which takes the place of the matrix as it is coded. */
#include "code_trellis.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/matrix.h"
#include "base/memory.h"
#include "codec/encoder.h"
#include "coding_device.h"
#include "hessian.h"
#include "ldlq.h"
#include "model/linear.h"
#include "rotate_matrix.h"

#define LEAST_IMPORTANCE 1e-3 /* of the mean */
#define BATCH 64 /* features between two matrix products of the feedback */

typedef struct trellis_work {
    const pl_coder *coder;
    const pl_plan_item *item;
    const pl_module_statistics *stats;
    pl_encoder *encoder;
    uint32_t *codes;
    uint16_t *scales, *output_scale;
    double *row;                     /* [rows] sums over stored rows */
    bool measured;                   /* row holds the error's squares, and matrix not the error */
    double *importance;              /* [out] of an output's squared error, or NULL */
    float *by_output;                /* [out] output scales, or NULL for ones */
    float *in_signs, *out_signs;     /* or NULL */
    float *in_scale;                 /* [in] 1 / gain of folded inputs, or NULL */
    /* Statistics. */
    pl_hessian input, output;
    pl_mix plain, weighted, outputs; /* of H, of Hw, of G */
} trellis_work;

/* ---- without feedback ----------------------------------------------------------------------- */

/* Numbers of stored rows, and what is made of them. */
typedef struct rows_job {
    const trellis_work *w;
    const float *from;
    float *to;
} rows_job;

/* to -= from, and padding becomes zero. */
static void subtract_row(void *job, size_t r, int thread)
{
    const rows_job *j = job;
    const uint64_t cols = j->w->item->trellis.cols;
    const float *from = j->from + r * cols;
    float *to = j->to + r * cols;
    (void)thread;
    for (uint64_t i = 0; i < cols; i++) to[i] = i < j->w->item->width ? to[i] - from[i] : 0;
}

static pleach_status encode_strip(const trellis_work *w, uint64_t first, uint64_t n,
                                  pleach_error *err)
{
    const uint64_t cols = w->item->trellis.cols;
    float *rows = w->coder->matrix + first * cols, *decoded = w->coder->decoded;
    pleach_error inner = {0};
    pleach_status status = pl_encoder_rows(w->encoder, first, n, w->codes, w->scales, decoded, rows,
                                           &inner);
    PL_FAIL_IF(status != PLEACH_OK, err, status, "%s.weight, by %s: %s", w->item->module.name,
               w->item->trellis.axis ? "outputs" : "inputs", inner.message);
    rows_job job = {w, decoded, rows};
    pl_pool_run(w->coder->pool, n, subtract_row, &job);
    return PLEACH_OK;
}

/* The device measures too; the errors themselves stay there when no statistics want them. */
static pleach_status encode_strip_on_device(trellis_work *w, uint64_t first, uint64_t n,
                                            pleach_error *err)
{
    pl_coding_device *device = w->coder->device;
    const pl_device_rows rows = {.t = &w->item->trellis, .width = w->item->width,
                                 .code_rms = pl_encoder_code_rms(w->encoder),
                                 .matrix = w->coder->matrix, .errors = w->weighted.parts > 0,
                                 .weight = w->by_output, .codes = w->codes, .scales = w->scales,
                                 .squares = w->row};
    pleach_error inner = {0};
    pleach_status status = device->rows(device, &rows, first, n, &inner);
    PL_FAIL_IF(status != PLEACH_OK, err, status, "%s.weight, by %s: %s", w->item->module.name,
               w->item->trellis.axis ? "outputs" : "inputs", inner.message);
    w->measured = !rows.errors;
    return PLEACH_OK;
}

static pleach_status encode_rows(trellis_work *w, pleach_error *err)
{
    const pleach_trellis *t = &w->item->trellis;
    const bool here = !w->coder->device;
    uint64_t strip = here ? pl_coder_strip(t) : pl_coder_device_strip(t);
    for (uint64_t r = 0; r < t->rows; r += strip) {
        uint64_t n = PL_MIN(strip, t->rows - r);
        PL_TRY(here ? encode_strip(w, r, n, err) : encode_strip_on_device(w, r, n, err));
        PL_TRY(pl_coder_step(w->coder, r + n, t->rows, err));
    }
    return PLEACH_OK;
}

/* ---- measuring ------------------------------------------------------------------------------ */

static void square_row(void *job, size_t r, int thread)
{
    const rows_job *j = job;
    const trellis_work *w = j->w;
    const float *row = j->from + r * w->item->trellis.cols, *a = w->by_output;
    double squares = 0;
    (void)thread;
    for (uint64_t i = 0; i < w->item->width; i++) {
        double v = a ? (double)row[i] * a[i] : row[i];
        squares += v * v;
    }
    w->row[r] = squares;
}

static double sum_rows(const trellis_work *w)
{
    double sum = 0;
    for (uint64_t r = 0; r < w->item->trellis.rows; r++) sum += w->row[r];
    return sum;
}

/* |X|^2 in the model's basis of a matrix in stored rows: rotations keep lengths. */
static double sum_squares(const trellis_work *w, const float *x)
{
    rows_job job = {.w = w, .from = x};
    pl_pool_run(w->coder->pool, w->item->trellis.rows, square_row, &job);
    return sum_rows(w);
}

static void scale_row(void *job, size_t r, int thread)
{
    const rows_job *j = job;
    const trellis_work *w = j->w;
    const uint64_t cols = w->item->trellis.cols;
    const float *from = j->from + r * cols;
    float *to = j->to + r * cols;
    (void)thread;
    if (to != from) memcpy(to, from, cols * sizeof *to);
    for (uint64_t i = 0; w->by_output && i < w->item->width; i++) to[i] *= w->by_output[i];
}

/* dst [rows][cols] = x with output scales applied; dst may be x. */
static void apply_output_scale(const trellis_work *w, float *dst, const float *x)
{
    rows_job job = {w, x, dst};
    pl_pool_run(w->coder->pool, w->item->trellis.rows, scale_row, &job);
}

static pl_basis input_basis(const trellis_work *w)
{
    return (pl_basis){.scale = w->in_scale, .signs = w->in_signs,
                      .block = w->item->rotate_in.block};
}

/* The basis of coded outputs, or without output scales. */
static pl_basis output_basis(const trellis_work *w, bool scaled)
{
    return (pl_basis){.scale = scaled ? w->by_output : NULL, .signs = w->out_signs,
                      .block = w->item->rotate_out.block};
}

/* tr(X H X^T) for H and Hw, x in stored rows with output scales applied. Hw is left in
 * input.spare. */
static void measure_proxies(trellis_work *w, const float *x, double *plain, double *weighted)
{
    const pleach_trellis *t = &w->item->trellis;
    const pl_coder *c = w->coder;
    pl_hessian *h = &w->input;
    pl_basis basis = input_basis(w);
    memset(h->unit, 0, h->n * h->n * sizeof *h->unit);
    if (t->axis == 0) pl_gram_rows(c->pool, h->n, t->cols, x, t->cols, h->unit, h->n);
    else pl_gram(c->pool, h->n, t->rows, x, t->cols, h->unit, h->n);
    if (w->plain.parts) {
        pl_hessian_load(c->kernels, c->pool, &w->plain, &basis, h->spare);
        *plain = *weighted = w->plain.scale * pl_hessian_inner(h, c->pool, h->unit, h->spare);
    }
    if (w->weighted.parts > w->plain.parts) {
        pl_hessian_load(c->kernels, c->pool, &w->weighted, &basis, h->spare);
        *weighted = w->weighted.scale * pl_hessian_inner(h, c->pool, h->unit, h->spare);
    }
}

/* 1/2 tr(G E Hw E^T), E in the matrix with output scales applied, Hw in input.spare. */
static double measure_loss(trellis_work *w)
{
    const pleach_trellis *t = &w->item->trellis;
    const pl_coder *c = w->coder;
    pl_hessian *h = &w->input, *g = &w->output;
    pl_basis basis = output_basis(w, false);
    if (t->axis == 0) {
        pl_matmul(c->pool, false, false, h->n, t->cols, h->n, 1, h->spare, h->n, c->matrix,
                  t->cols, 0, c->decoded, t->cols);
        pl_matmul(c->pool, true, false, g->n, g->n, h->n, 1, c->matrix, t->cols, c->decoded,
                  t->cols, 0, g->unit, g->n);
    } else {
        pl_matmul(c->pool, false, false, g->n, h->n, h->n, 1, c->matrix, t->cols, h->spare, h->n,
                  0, c->decoded, t->cols);
        pl_matmul(c->pool, false, true, g->n, g->n, h->n, 1, c->decoded, t->cols, c->matrix,
                  t->cols, 0, g->unit, g->n);
    }
    pl_hessian_load(c->kernels, c->pool, &w->outputs, &basis, g->spare);
    return w->weighted.scale * w->outputs.scale *
           pl_hessian_inner(g, c->pool, g->unit, g->spare) / 2;
}

/* ---- with feedback -------------------------------------------------------------------------- */

/* The statistics as they are: which of them can be used. */
static void examine_statistics(trellis_work *w, pl_feedback_report *r)
{
    const pl_module *m = &w->item->module;
    if (!w->stats || !w->input.n) return;
    pl_mix_make(&w->plain, m->in, w->stats->input, NULL);
    r->inputs = pl_mix_make(&w->weighted, m->in, w->stats->input, w->stats->fisher);
    r->dead = (double)w->weighted.dead;
    if (w->output.n) r->outputs = pl_mix_make(&w->outputs, m->out, w->stats->output, NULL);
}

/* 1/2 G for outputs of which no more is known than the mean square of their gradients; 1 when not
 * even that. */
static double mean_output(const trellis_work *w)
{
    return w->stats->gradient > 0 ? w->stats->gradient / (double)w->item->module.out / 2 : 1;
}

/* What white noise in the coded outputs weighs, of one number's power: the mean of a_o^2 times 1/2 G,
 * and with feedback between outputs of its factor, which damping adds to. */
static double weight_across(const trellis_work *w, const pl_feedback_report *r)
{
    const uint64_t out = w->item->module.out;
    double plain = 0, fed = 0, mean = mean_output(w);
    for (uint64_t o = 0; o < out; o++) {
        double a = w->by_output ? w->by_output[o] : 1;
        plain += a * a * (w->outputs.parts ? w->outputs.part[0][pl_mix_row(out, o)] / 2 : mean);
        if (r->outputs == PL_FEEDBACK_APPLIED) fed += w->outputs.scale * w->output.metric[o] / 2;
    }
    return (r->outputs == PL_FEEDBACK_APPLIED ? PL_MIN(plain, fed) : plain) / (double)out;
}

/* Loss predicted at every k, from the factors and W in stored rows: what is coded at feature j, t_j,
 * is about as large as W_j, and its error is white. */
static void estimate(trellis_work *w, pl_feedback_report *r)
{
    const pleach_trellis *t = &w->item->trellis;
    const pl_hessian *h = &w->input;
    double sum = 0, power = 0;
    for (uint64_t i = 0; i < t->rows; i++) {
        w->row[i] = pl_row_power(w->coder->matrix + i * t->cols, w->item->width);
        power += w->row[i];
    }
    for (size_t j = 0; j < h->n; j++)
        sum += h->metric[j] * (t->axis ? power / (double)h->n : w->row[h->order[j]]);
    for (int k = 0; k < 3; k++)
        r->estimate[k] = pl_encoder_gaussian_error((uint32_t)k + 2, t->state_bits) *
                         w->weighted.scale * sum * weight_across(w, r);
}

static void factor(trellis_work *w, pl_feedback_report *r)
{
    const pl_coder *c = w->coder;
    const pleach_trellis *t = &w->item->trellis;
    const pl_feedback_settings *s = &c->feedback;
    pl_basis in = input_basis(w), out = output_basis(w, true);
    r->inputs = pl_hessian_factor(&w->input, c->kernels, c->pool, &w->weighted, &in, s->damping,
                                  t->axis == 0, t->axis ? t->block : 1);
    r->damping = w->input.damping;
    if (r->outputs != PL_FEEDBACK_APPLIED) return;
    if (!s->two_sided || t->axis == 1) {
        r->outputs = t->axis ? PL_FEEDBACK_AXIS : PL_FEEDBACK_NO_STATISTICS;
        return;
    }
    r->outputs = pl_hessian_factor(&w->output, c->kernels, c->pool, &w->outputs, &out,
                                   s->output_damping, false, t->block);
    r->output_damping = w->output.damping;
}

/* Factors are made and what they predict is known. */
static void prepare(trellis_work *w, pl_feedback_report *r)
{
    examine_statistics(w, r);
    if (r->inputs != PL_FEEDBACK_APPLIED) return;
    apply_output_scale(w, w->coder->decoded, w->coder->matrix);
    measure_proxies(w, w->coder->decoded, &r->plain[1], &r->weighted[1]);
    factor(w, r);
    if (r->inputs == PL_FEEDBACK_APPLIED) estimate(w, r);
}

static pleach_status encode_with_feedback(trellis_work *w, pl_feedback_report *r, pleach_error *err)
{
    const pl_coder *c = w->coder;
    pl_basis basis = input_basis(w);
    pl_ldlq l = {.item = w->item, .coder = c, .encoder = w->encoder, .statistics = &w->weighted,
                 .basis = &basis, .input = &w->input,
                 .output = r->outputs == PL_FEEDBACK_APPLIED ? &w->output : NULL,
                 .matrix = c->matrix, .work = c->decoded, .codes = w->codes, .scales = w->scales,
                 .batch = BATCH};
    bool peak = false;
    PL_TRY(w->item->trellis.axis ? pl_ldlq_blocks(&l, &peak, err)
                                 : pl_ldlq_features(&l, &peak, err));
    if (!peak) return PLEACH_OK;
    r->inputs = PL_FEEDBACK_PEAK;
    return pl_load_rotated(w->item, c->kernels, c->pool, w->importance, c->matrix,
                           w->output_scale, err);
}

static void measure(trellis_work *w, pl_coded *out)
{
    pl_feedback_report *r = &out->feedback;
    out->error = w->measured ? sum_rows(w) : sum_squares(w, w->coder->matrix);
    if (!w->weighted.parts) return;
    apply_output_scale(w, w->coder->matrix, w->coder->matrix);
    measure_proxies(w, w->coder->matrix, &r->plain[0], &r->weighted[0]);
    if (w->outputs.parts) r->loss = measure_loss(w);
    else if (w->stats->gradient > 0) r->loss = mean_output(w) * r->weighted[0];
}

/* ---- one module ----------------------------------------------------------------------------- */

/* An output that calibration hardly met still counts for something. NULL: no memory. */
static double *make_importance(const float *power, uint64_t n)
{
    double *d = pl_alloc(n, sizeof *d), mean = 0;
    for (uint64_t i = 0; i < n; i++) mean += (double)power[i] / (double)n;
    for (uint64_t i = 0; d && i < n; i++)
        d[i] = PL_MAX(power[i], LEAST_IMPORTANCE * mean) + DBL_MIN;
    return d;
}

/* Statistics are of x = gain * y, and a folded module sees y. A gain of zero has let nothing of y
 * through to be known: it counts as not there. */
static float *make_in_scale(const float *gain, uint64_t n)
{
    float *scale = pl_alloc(n, sizeof *scale);
    for (uint64_t i = 0; scale && i < n; i++)
        scale[i] = fabsf(gain[i]) < FLT_MIN ? 0 : 1 / gain[i];
    return scale;
}

static pleach_status open_work(trellis_work *w, pleach_error *err)
{
    const pl_plan_item *item = w->item;
    const pl_rotation *in = &item->rotate_in, *out = &item->rotate_out;
    const pl_coder *c = w->coder;
    pleach_trellis_encode_settings settings;
    pleach_trellis_encode_defaults(&settings);
    settings.cpu = c->cpu;
    settings.search = c->search;
    bool whole = (w->row = pl_alloc(item->trellis.rows, sizeof *w->row)) != NULL;
    if (item->output_scale)
        whole &= (w->by_output = pl_alloc(item->module.out, sizeof *w->by_output)) != NULL;
    if (w->stats && item->gain)
        whole &= (w->in_scale = make_in_scale(item->gain, item->module.in)) != NULL;
    if (w->stats && in->block)
        whole &= (w->in_signs = pl_rotation_make_signs(in, item->module.in)) != NULL;
    if (w->stats && out->block)
        whole &= (w->out_signs = pl_rotation_make_signs(out, item->module.out)) != NULL;
    if (w->stats && w->stats->power && item->output_scale)
        whole &= (w->importance = make_importance(w->stats->power, item->module.out)) != NULL;
    if (!whole) return pl_fail_memory(err, item->module.name, item->trellis.rows * 8);
    if (w->stats && w->stats->input && c->input_factor)
        PL_TRY(pl_hessian_open(&w->input, item->module.in, c->input_factor, err));
    if (w->stats && w->stats->output && c->output_factor)
        PL_TRY(pl_hessian_open(&w->output, item->module.out, c->output_factor, err));
    return pl_encoder_open(&w->encoder, &item->trellis, &settings, c->pool, err);
}

static void close_work(trellis_work *w)
{
    pl_encoder_close(w->encoder);
    pl_hessian_close(&w->input);
    pl_hessian_close(&w->output);
    pl_free(w->out_signs);
    pl_free(w->in_signs);
    pl_free(w->in_scale);
    pl_free(w->by_output);
    pl_free(w->importance);
    pl_free(w->row);
}

static pleach_status load(trellis_work *w, pleach_error *err)
{
    const pl_coder *c = w->coder;
    PL_TRY(pl_load_rotated(w->item, c->kernels, c->pool, w->importance, c->matrix,
                           w->output_scale, err));
    for (uint64_t o = 0; w->by_output && o < w->item->module.out; o++)
        w->by_output[o] = pl_fp16_to_f32(w->output_scale[o]);
    return PLEACH_OK;
}

static pleach_status code(trellis_work *w, pl_coded *out, pleach_error *err)
{
    PL_TRY(load(w, err));
    out->power = sum_squares(w, w->coder->matrix);
    prepare(w, &out->feedback);
    if (out->feedback.inputs == PL_FEEDBACK_APPLIED)
        PL_TRY(encode_with_feedback(w, &out->feedback, err));
    if (out->feedback.inputs != PL_FEEDBACK_APPLIED) PL_TRY(encode_rows(w, err));
    measure(w, out);
    return PLEACH_OK;
}

pleach_status pl_code_trellis(const pl_coder *c, const pl_plan_item *item,
                              const pl_module_statistics *stats, pl_coded *out, pleach_error *err)
{
    trellis_work w = {.coder = c, .item = item, .stats = stats, .codes = out->data[0],
                      .scales = out->data[1], .output_scale = out->data[2]};
    pleach_status status = open_work(&w, err);
    if (status == PLEACH_OK) status = code(&w, out, err);
    close_work(&w);
    return status;
}

pleach_status pl_estimate_trellis(const pl_coder *c, const pl_plan_item *item,
                                  const pl_module_statistics *stats, pl_feedback_report *report,
                                  pleach_error *err)
{
    /* Output scales are a small part of the tensors that c->data has room for. */
    trellis_work w = {.coder = c, .item = item, .stats = stats,
                      .output_scale = (uint16_t *)(void *)c->data};
    *report = (pl_feedback_report){0};
    pleach_status status = open_work(&w, err);
    if (status == PLEACH_OK) status = load(&w, err);
    if (status == PLEACH_OK) prepare(&w, report);
    close_work(&w);
    return status;
}
