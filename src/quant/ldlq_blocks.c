/* SPDX-License-Identifier: Apache-2.0
 *
 * Error feedback along axis 1: a block of T inputs is coded in all rows at once, and the errors reach
 * later blocks in one matrix product. The search knows nothing of how errors inside a block weigh
 * together, which costs most of what feedback could gain; sweeps of coordinate descent win some of
 * it back. `matrix` turns into E block by block, `work` from what should be coded into the codes'
 * values without the scale, so that W = E + scale * work at any time. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/matrix.h"
#include "base/memory.h"
#include "codec/trellis.h"
#include "coding_device.h"
#include "ldlq.h"

#define STRIP 64 /* rows whose scales are refitted together */

typedef struct sweep {
    const pl_ldlq *l;
    size_t rows, cols, width, T, blocks, words; /* words of a block */
    pl_pool *pool;
    pl_block_job *jobs;   /* [rows] */
    double *limit;        /* [rows] how far out numbers may lie */
    /* Coordinate descent, [rows][T]: the step that would be best, what was coded before, the change
     * weighted by H; [rows][words]; [width][T] H[:,J] H_JJ^-1. */
    float *step, *before, *weighted, *gain;
    uint32_t *codes_before;
    double *corner, *columns; /* [T][T], [width][T] */
} sweep;

static size_t block_width(const sweep *s, size_t b)
{
    return PL_MIN(s->T, s->width - b * s->T);
}

static float scale_of(const sweep *s, size_t row)
{
    return pl_fp16_to_f32(s->l->scales[row]);
}

/* Searches block `b` of all rows that have a scale; src [rows][ld]. */
static pleach_status search_block(const sweep *s, size_t b, float *src, size_t ld,
                                  pleach_error *err)
{
    pl_coding_device *device = s->l->coder->device;
    size_t n = 0;
    if (device) return device->block(device, s->l, b, src, ld, err);
    for (size_t r = 0; r < s->rows; r++) {
        float *t = src + r * ld;
        if (s->l->scales[r])
            s->jobs[n++] = (pl_block_job){.row = r, .block = b, .scale = s->l->scales[r], .src = t,
                                          .values = t};
    }
    return pl_encoder_blocks(s->l->encoder, s->jobs, n, s->l->codes, err);
}

/* ---- first pass ----------------------------------------------------------------------------- */

static void choose_scales(const sweep *s)
{
    const double start = pl_ldlq_start(s->l);
    double crest = 0;
    for (size_t r = 0; r < s->rows; r++) {
        const float *w = s->l->matrix + r * s->cols;
        double rms = sqrt(pl_row_power(w, s->width) / (double)s->width);
        s->l->scales[r] = rms > 0 ? pl_encoder_scale(start * rms) : 0;
        s->limit[r] = start * rms <= 65504 ? rms : -1;
        crest = PL_MAX(crest, pl_row_crest(w, s->width));
    }
    for (size_t r = 0; r < s->rows; r++) s->limit[r] *= PL_LDLQ_PEAK_LIMIT * crest;
}

static bool within_limits(const sweep *s, size_t b)
{
    bool fine = true;
    for (size_t r = 0; r < s->rows; r++) {
        const float *t = s->l->work + r * s->cols + b * s->T;
        fine &= pl_row_power(t, block_width(s, b)) <= DBL_MAX &&
                pl_row_largest(t, block_width(s, b)) <= s->limit[r];
    }
    return fine;
}

/* One block of all rows. */
typedef struct block_job {
    const sweep *s;
    size_t b;
} block_job;

static void keep_error(void *job, size_t r, int thread)
{
    const block_job *j = job;
    const sweep *s = j->s;
    const size_t at = r * s->cols + j->b * s->T, n = block_width(s, j->b);
    float *e = s->l->matrix + at, *v = s->l->work + at;
    float scale = scale_of(s, r);
    (void)thread;
    if (scale == 0) memset(v, 0, s->T * sizeof *v);
    for (size_t i = 0; i < n; i++) e[i] -= scale * v[i];
}

static pleach_status code_blocks(const sweep *s, bool *fine, pleach_error *err)
{
    const pl_ldlq *l = s->l;
    const size_t n = s->width;
    choose_scales(s);
    memcpy(l->work, l->matrix, s->rows * s->cols * sizeof *l->work);
    for (size_t b = 0; b < s->blocks; b++) {
        size_t first = b * s->T, end = first + block_width(s, b);
        *fine = within_limits(s, b);
        if (!*fine) return PLEACH_OK;
        PL_TRY(search_block(s, b, l->work + first, s->cols, err));
        pl_pool_run(s->pool, s->rows, keep_error, &(block_job){s, b});
        if (end < n)
            pl_matmul(s->pool, false, false, s->rows, n - end, end - first, 1, l->matrix + first,
                      s->cols, l->input->unit + first * n + end, n, 1, l->work + end, s->cols);
        PL_TRY(pl_coder_step(l->coder, b + 1, s->blocks + 1, err));
    }
    return PLEACH_OK;
}

/* ---- refinement ----------------------------------------------------------------------------- */

/* H with its damping, in the input's spare room. */
static void load_metric(const sweep *s)
{
    pl_hessian *h = s->l->input;
    pl_hessian_load(s->l->coder->kernels, s->pool, s->l->statistics, s->l->basis, h->spare);
    double mean = 0;
    for (size_t i = 0; i < h->n; i++) mean += h->spare[i * h->n + i] / (double)h->n;
    for (size_t i = 0; i < h->n; i++) h->spare[i * h->n + i] += (float)(h->damping * mean);
}

/* The scale of a row with least e H e^T: that of W H v / v H v, vh = v H. */
static void refit_row(const sweep *s, size_t row, const float *vh)
{
    float *e = s->l->matrix + row * s->cols;
    const float *v = s->l->work + row * s->cols;
    float old = scale_of(s, row);
    double wv = 0, vv = 0;
    for (size_t i = 0; i < s->width; i++) {
        wv += (double)vh[i] * ((double)e[i] + (double)old * v[i]);
        vv += (double)vh[i] * v[i];
    }
    if (!(wv > 0 && vv > 0 && wv / vv < 65504)) return;
    uint16_t fitted = pl_f32_to_fp16((float)(wv / vv));
    if (fitted == 0) return;
    s->l->scales[row] = fitted;
    float change = old - pl_fp16_to_f32(fitted);
    for (size_t i = 0; i < s->width; i++) e[i] += change * v[i];
}

static void refit_scales(const sweep *s, float *scratch)
{
    const pl_hessian *h = s->l->input;
    for (size_t first = 0; first < s->rows; first += STRIP) {
        size_t n = PL_MIN(s->rows - first, (size_t)STRIP);
        pl_matmul(s->pool, false, false, n, s->width, s->width, 1, s->l->work + first * s->cols,
                  s->cols, h->spare, h->n, 0, scratch, s->width);
        for (size_t r = 0; r < n; r++)
            if (s->l->scales[first + r]) refit_row(s, first + r, scratch + r * s->width);
    }
}

/* gain = H[:,J] H_JJ^-1. */
static bool find_gain(const sweep *s, size_t b)
{
    const pl_hessian *h = s->l->input;
    const size_t first = b * s->T, n = block_width(s, b);
    for (size_t i = 0; i < h->n; i++) {
        const float *row = h->spare + i * h->n + first;
        for (size_t j = 0; j < n; j++) s->columns[i * n + j] = row[j];
    }
    memcpy(s->corner, s->columns + first * n, n * n * sizeof *s->corner);
    if (!pl_divide(s->corner, n, s->columns, h->n)) return false;
    for (size_t i = 0; i < h->n * n; i++) s->gain[i] = (float)s->columns[i];
    return true;
}

static uint32_t *words_at(const sweep *s, size_t row, size_t b)
{
    return s->l->codes + pl_trellis_block_at(&s->l->item->trellis, row, b);
}

/* Takes the new codes of a row, whose values are in `before`, when d H_JJ (2 step + d) < 0 says that
 * its loss falls; d is the change of its error, weighted = d H_JJ. */
static void decide(const sweep *s, size_t row, size_t b, const float *change)
{
    const size_t n = block_width(s, b);
    const float *step = s->step + row * n, *weighted = s->weighted + row * n;
    const float *fresh = s->before + row * s->T;
    double gain = 0;
    for (size_t i = 0; i < n; i++) gain += (double)weighted[i] * (2.0 * step[i] + change[i]);
    if (!(gain < 0)) {
        memcpy(words_at(s, row, b), s->codes_before + row * s->words, s->words * sizeof(uint32_t));
        return;
    }
    float *e = s->l->matrix + row * s->cols + b * s->T, *v = s->l->work + row * s->cols + b * s->T;
    for (size_t i = 0; i < n; i++) e[i] += change[i];
    memcpy(v, fresh, s->T * sizeof *v);
}

/* Block b again in all rows, given the errors everywhere. With P = E H[:,J], the best for the block
 * is what it is now plus P H_JJ^-1. */
static pleach_status improve_block(const sweep *s, size_t b, float *change, pleach_error *err)
{
    const pl_hessian *h = s->l->input;
    const size_t first = b * s->T, n = block_width(s, b);
    if (!find_gain(s, b)) return PLEACH_OK;
    pl_matmul(s->pool, false, false, s->rows, n, h->n, 1, s->l->matrix, s->cols, s->gain, n, 0,
              s->step, n);
    for (size_t r = 0; r < s->rows; r++) {
        const float *v = s->l->work + r * s->cols + first;
        float *t = s->before + r * s->T;
        for (size_t i = 0; i < s->T; i++)
            t[i] = i < n ? scale_of(s, r) * v[i] + s->step[r * n + i] : 0;
        memcpy(s->codes_before + r * s->words, words_at(s, r, b), s->words * sizeof(uint32_t));
    }
    PL_TRY(search_block(s, b, s->before, s->T, err));
    for (size_t r = 0; r < s->rows; r++) {
        const float *v = s->l->work + r * s->cols + first, *fresh = s->before + r * s->T;
        for (size_t i = 0; i < n; i++)
            change[r * n + i] = s->l->scales[r] ? scale_of(s, r) * (v[i] - fresh[i]) : 0;
    }
    pl_matmul(s->pool, false, false, s->rows, n, n, 1, change, n, h->spare + first * h->n + first,
              h->n, 0, s->weighted, n);
    for (size_t r = 0; r < s->rows; r++)
        if (s->l->scales[r]) decide(s, r, b, change + r * n);
    return PLEACH_OK;
}

static pleach_status refine(const sweep *s, float *scratch, pleach_error *err)
{
    load_metric(s);
    refit_scales(s, scratch);
    for (int i = 0; i < s->l->coder->feedback.sweeps; i++) {
        for (size_t b = 0; b < s->blocks; b++) PL_TRY(improve_block(s, b, scratch, err));
        refit_scales(s, scratch);
    }
    return PLEACH_OK;
}

/* ---- both ----------------------------------------------------------------------------------- */

uint64_t pl_ldlq_blocks_memory(const pleach_trellis *t, uint64_t in)
{
    uint64_t block = t->rows * t->block, words = block * t->bits / 32;
    return 4 * (4 * block + words + 3 * in * t->block + STRIP * in) + 8 * t->block * t->block +
           t->rows * (sizeof(pl_block_job) + 8);
}

static void close_sweep(sweep *s)
{
    pl_free(s->jobs);
    pl_free(s->limit);
    pl_free(s->step);
    pl_free(s->before);
    pl_free(s->weighted);
    pl_free(s->gain);
    pl_free(s->codes_before);
    pl_free(s->corner);
    pl_free(s->columns);
}

static bool open_sweep(sweep *s)
{
    const size_t block = s->rows * s->T;
    s->jobs = pl_alloc(s->rows, sizeof *s->jobs);
    s->limit = pl_alloc(s->rows, sizeof *s->limit);
    s->step = pl_alloc(block, sizeof *s->step);
    s->before = pl_alloc(block, sizeof *s->before);
    s->weighted = pl_alloc(block, sizeof *s->weighted);
    s->gain = pl_alloc(s->width * s->T, sizeof *s->gain);
    s->codes_before = pl_alloc(s->rows * s->words, sizeof *s->codes_before);
    s->corner = pl_alloc(s->T * s->T, sizeof *s->corner);
    s->columns = pl_alloc(s->width * s->T, sizeof *s->columns);
    return s->jobs && s->limit && s->step && s->before && s->weighted && s->gain &&
           s->codes_before && s->corner && s->columns;
}

pleach_status pl_ldlq_blocks(const pl_ldlq *l, bool *peak, pleach_error *err)
{
    const pleach_trellis *t = &l->item->trellis;
    sweep s = {.l = l, .rows = t->rows, .cols = t->cols, .width = l->item->width, .T = t->block,
               .blocks = t->cols / t->block, .words = pl_trellis_block_words(t),
               .pool = l->coder->pool};
    bool fine = true;
    float *scratch = pl_alloc(PL_MAX(s.rows * s.T, STRIP * s.width), sizeof *scratch);
    pleach_status status;
    if (open_sweep(&s) && scratch) {
        status = code_blocks(&s, &fine, err);
        if (status == PLEACH_OK && fine) status = refine(&s, scratch, err);
        for (size_t r = 0; r < s.rows; r++)
            if (l->scales[r] == 0) pl_encoder_clear(l->encoder, l->codes, r);
    } else {
        status = pl_fail_memory(err, l->item->module.name, pl_ldlq_blocks_memory(t, s.width));
    }
    *peak = !fine;
    pl_free(scratch);
    close_sweep(&s);
    return status;
}
