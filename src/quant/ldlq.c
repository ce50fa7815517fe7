/* SPDX-License-Identifier: Apache-2.0
 *
 * Error feedback feature by feature, axis 0. Row a of `work` is the a-th feature in coding order:
 * what it should become until it is coded, its error from then on. Errors reach the features of the
 * same batch one by one and all later ones in a matrix product at the end of the batch.
 *
 * Two-sided (after YAQA, arXiv 2505.22988): with V V^T the output statistics, tr(G E H E^T) is least
 * when also each block of outputs sees the errors of the blocks before it in the same feature. Then
 * rows of `work` become F, the errors with that feedback applied, and so does the feedback between
 * features. */
#include "ldlq.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/matrix.h"
#include "base/memory.h"
#include "coding_device.h"

#define MAX_START 65504.0 /* a larger scale is no fp16 number */

typedef struct feature {
    const pl_ldlq *l;
    size_t width, cols, T, blocks;
    double start;        /* scale over the RMS of what is coded */
    double highest;      /* peak over RMS that is let pass */
    pl_block_job *jobs;  /* [blocks] */
    float *values;       /* [cols] what the codes stand for, without the scale */
    /* Two-sided, [cols]: feedback within the feature of its error at the scale it starts with, and
     * of the values alone. */
    float *within, *within_values;
} feature;

/* ---- one feature ---------------------------------------------------------------------------- */

double pl_row_power(const float *x, size_t n)
{
    double lane[8] = {0}, sum = 0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) lane[k] += (double)x[i + k] * x[i + k];
    for (; i < n; i++) lane[0] += (double)x[i] * x[i];
    for (int k = 0; k < 8; k++) sum += lane[k];
    return sum;
}

float pl_row_largest(const float *x, size_t n)
{
    float largest = 0;
    for (size_t i = 0; i < n; i++) largest = PL_MAX(fabsf(x[i]), largest);
    return largest;
}

double pl_row_crest(const float *x, size_t n)
{
    double power = pl_row_power(x, n);
    return power > 0 ? pl_row_largest(x, n) / sqrt(power / (double)n) : 0;
}

static pl_block_job block_job(const feature *f, uint64_t row, size_t block, uint16_t scale,
                              const float *t)
{
    return (pl_block_job){.row = row, .block = block, .scale = scale, .src = t + block * f->T,
                          .values = f->values + block * f->T};
}

static pleach_status search_feature(const feature *f, uint64_t row, uint16_t scale, const float *t,
                                    pl_block_sums *sums, pleach_error *err)
{
    for (size_t b = 0; b < f->blocks; b++) f->jobs[b] = block_job(f, row, b, scale, t);
    PL_TRY(pl_encoder_blocks(f->l->encoder, f->jobs, f->blocks, f->l->codes, err));
    for (size_t b = 0; b < f->blocks; b++) {
        sums->wy += f->jobs[b].sums.wy;
        sums->yy += f->jobs[b].sums.yy;
    }
    return PLEACH_OK;
}

/* Hands the errors of block `b`, at the starting scale, to the outputs after it. */
static void feed_outputs(const feature *f, const float *w, size_t b, float scale)
{
    const pl_hessian *g = f->l->output;
    const size_t first = b * f->T, end = PL_MIN(first + f->T, f->width);
    pl_axpy_f32_fn *axpy = f->l->coder->kernels->axpy_f32;
    if (end == f->width) return;
    for (size_t o = first; o < end; o++) {
        const float *v = g->unit + o * g->n + end;
        axpy(f->within + end, w[o] - f->values[o] * scale, v, f->width - end);
        axpy(f->within_values + end, f->values[o], v, f->width - end);
    }
}

/* Two-sided: block after block, each with the feedback of those before it added to t. */
static pleach_status search_blocks(const feature *f, uint64_t row, uint16_t scale, float *t,
                                   pl_block_sums *sums, pleach_error *err)
{
    const float *w = f->l->matrix + row * f->cols;
    memset(f->within, 0, f->cols * sizeof *f->within);
    memset(f->within_values, 0, f->cols * sizeof *f->within_values);
    for (size_t b = 0; b < f->blocks; b++) {
        for (size_t o = b * f->T; o < (b + 1) * f->T; o++) t[o] += f->within[o];
        f->jobs[0] = block_job(f, row, b, scale, t);
        PL_TRY(pl_encoder_blocks(f->l->encoder, f->jobs, 1, f->l->codes, err));
        sums->wy += f->jobs[0].sums.wy;
        sums->yy += f->jobs[0].sums.yy;
        feed_outputs(f, w, b, pl_fp16_to_f32(scale));
    }
    return PLEACH_OK;
}

/* Error of the row that was coded into matrix, and into t what later features see of it. */
static void keep_error(const feature *f, uint64_t row, float start, float scale, float *t)
{
    float *w = f->l->matrix + row * f->cols;
    for (size_t o = 0; o < f->width; o++) w[o] -= f->values[o] * scale;
    memset(w + f->width, 0, (f->cols - f->width) * sizeof *w);
    memcpy(t, w, f->cols * sizeof *t);
    if (!f->l->output) return;
    float change = start - scale;
    for (size_t o = 0; o < f->width; o++)
        t[o] += f->within[o] + change * f->within_values[o];
}

/* Codes stored row `row` from t [cols]. Returns false in *fine when feedback went too far. */
static pleach_status code_feature(const feature *f, uint64_t row, float *t, bool *fine,
                                  pleach_error *err)
{
    const pl_ldlq *l = f->l;
    pl_block_sums sums = {0, 0};
    double power = pl_row_power(t, f->width), rms = sqrt(power / (double)f->width);
    double scale = f->start * rms;
    *fine = power <= DBL_MAX && scale <= MAX_START && pl_row_largest(t, f->width) <= f->highest * rms;
    if (!*fine) return PLEACH_OK;
    uint16_t start = pl_encoder_scale(scale);
    l->scales[row] = 0;
    if (power > 0) {
        PL_TRY(l->output ? search_blocks(f, row, start, t, &sums, err)
                         : search_feature(f, row, start, t, &sums, err));
        if (l->output) power = pl_row_power(t, f->width);
        l->scales[row] = pl_encoder_refit(power, sums, start);
    } else {
        memset(f->values, 0, f->cols * sizeof *f->values);
        if (l->output) memset(f->within, 0, f->cols * sizeof *f->within);
        if (l->output) memset(f->within_values, 0, f->cols * sizeof *f->within_values);
    }
    if (l->scales[row] == 0) pl_encoder_clear(l->encoder, l->codes, row);
    keep_error(f, row, pl_fp16_to_f32(start), pl_fp16_to_f32(l->scales[row]), t);
    return PLEACH_OK;
}

/* ---- all features --------------------------------------------------------------------------- */

/* Features first .. end-1 of the coding order; errors go no further than these. */
static pleach_status code_batch(const feature *f, size_t first, size_t end, bool *fine,
                                pleach_error *err)
{
    const pl_ldlq *l = f->l;
    const size_t n = l->input->n;
    for (size_t j = first; j < end && *fine; j++) {
        float *t = l->work + j * f->cols;
        for (size_t i = first; i < j; i++)
            l->coder->kernels->axpy_f32(t, l->input->unit[i * n + j], l->work + i * f->cols,
                                        f->width);
        PL_TRY(code_feature(f, l->input->order[j], t, fine, err));
    }
    return PLEACH_OK;
}

static pleach_status code_features(feature *f, bool *fine, pleach_error *err)
{
    const pl_ldlq *l = f->l;
    const size_t n = l->input->n, cols = f->cols;
    const pl_coder *c = l->coder;
    for (size_t j = 0; j < n; j++) {
        const float *w = l->matrix + l->input->order[j] * cols;
        memcpy(l->work + j * cols, w, cols * sizeof *w);
        f->highest = PL_MAX(f->highest, PL_LDLQ_PEAK_LIMIT * pl_row_crest(w, f->width));
    }
    for (size_t first = 0, end; first < n && *fine; first = end) {
        end = PL_MIN(first + l->batch, n);
        PL_TRY(code_batch(f, first, end, fine, err));
        if (end < n && *fine)
            pl_matmul(c->pool, true, false, n - end, cols, end - first, 1,
                      l->input->unit + first * n + end, n, l->work + first * cols, cols, 1,
                      l->work + end * cols, cols);
        PL_TRY(pl_coder_step(c, end, n, err));
    }
    return PLEACH_OK;
}

double pl_ldlq_start(const pl_ldlq *l)
{
    /* Best for Gaussian rows: the code's values are bounded, at more bits the far ones cost more. */
    static const double factor[] = {1, 1 / .92, 1 / .88};
    return factor[l->item->trellis.bits - 2] / pl_encoder_code_rms(l->encoder);
}

pleach_status pl_ldlq_features(const pl_ldlq *l, bool *peak, pleach_error *err)
{
    const pleach_trellis *g = &l->item->trellis;
    pl_coding_device *device = l->coder->device;
    if (device && !l->output) return device->features(device, l, peak, err);
    feature f = {.l = l, .width = l->item->width, .cols = g->cols, .T = g->block,
                 .blocks = g->cols / g->block};
    bool fine = true;
    f.start = pl_ldlq_start(l);
    f.jobs = pl_alloc(f.blocks, sizeof *f.jobs);
    f.values = pl_calloc(f.cols, 3 * sizeof *f.values);
    pleach_status status;
    if (f.jobs && f.values) {
        f.within = f.values + f.cols;
        f.within_values = f.within + f.cols;
        status = code_features(&f, &fine, err);
    } else {
        status = pl_fail_memory(err, l->item->module.name, f.cols * 12);
    }
    *peak = !fine;
    pl_free(f.jobs);
    pl_free(f.values);
    return status;
}
