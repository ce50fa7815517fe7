/* SPDX-License-Identifier: Apache-2.0
 *
 * Coding one module: the buffers for it, and affine groups, row by row, with the type of scales that
 * errs least. code_trellis.c has the other coding. */
#include "code_module.h"

#include <math.h>
#include <pthread.h>

#include "affine.h"
#include "base/file.h"
#include "base/memory.h"
#include "code_trellis.h"
#include "coding_device.h"
#include "ldlq.h"
#include "rotate_matrix.h"

#define STRIP_NUMBERS ((uint64_t)1 << 21) /* encoded between two progress calls */
#define DEVICE_NUMBERS ((uint64_t)1 << 25) /* the same by a device */
#define AFFINE_ROWS 256 /* read at once, and the sample by which the type of scales is chosen */
#define MAPPED_AROUND ((uint64_t)128 << 10) /* that a system maps at most with a row that is read */

/* ---- the coder ------------------------------------------------------------------------------ */

uint64_t pl_coder_strip(const pleach_trellis *t)
{
    return PL_MIN(PL_MAX(STRIP_NUMBERS / t->cols, 1), t->rows);
}

uint64_t pl_coder_device_strip(const pleach_trellis *t)
{
    return PL_MIN(PL_MAX(DEVICE_NUMBERS / t->cols, 1), t->rows);
}

/* Each tensor of a module begins on a boundary of the allocator's. */
static size_t aligned(size_t bytes)
{
    return (bytes + PL_ALIGNMENT - 1) / PL_ALIGNMENT * PL_ALIGNMENT;
}

typedef struct buffer_sizes {
    uint64_t matrix, decoded, data, input, output; /* numbers, but data: bytes */
    uint64_t blocks; /* bytes that coding takes for itself */
} buffer_sizes;

static buffer_sizes largest(const pl_plan_item *items, size_t n, const pl_feedback_settings *f)
{
    buffer_sizes s = {1, 1, 1, 0, 0, 0};
    for (size_t i = 0; i < n; i++) {
        const pl_plan_item *item = &items[i];
        const pl_module *m = &item->module;
        const pleach_trellis *t = &item->trellis;
        if (item->coding == PL_CODING_DENSE) continue;
        s.data = PL_MAX(s.data, item->bytes + 3 * PL_ALIGNMENT);
        if (item->coding == PL_CODING_TRELLIS) {
            s.matrix = PL_MAX(s.matrix, t->rows * t->cols);
            s.decoded = PL_MAX(s.decoded, (f->inputs ? t->rows : pl_coder_strip(t)) * t->cols);
            if (f->inputs) s.input = PL_MAX(s.input, m->in * m->in);
            if (f->inputs && t->axis)
                s.blocks = PL_MAX(s.blocks, pl_ldlq_blocks_memory(t, m->in));
            if (f->outputs) s.output = PL_MAX(s.output, m->out * m->out);
        } else {
            s.matrix = PL_MAX(s.matrix, AFFINE_ROWS * m->in);
        }
    }
    return s;
}

uint64_t pl_coder_memory(const pl_plan_item *items, size_t n, const pl_feedback_settings *feedback)
{
    buffer_sizes s = largest(items, n, feedback);
    return (s.matrix + s.decoded) * sizeof(float) + (s.input + s.output) * sizeof(double) + s.data +
           s.blocks;
}

uint64_t pl_coder_pages(const pl_plan_item *item)
{
    uint64_t all = item->source.weight->n_bytes;
    if (item->coding != PL_CODING_AFFINE || item->source.coding == PL_CODING_TRELLIS) return all;
    return PL_MIN(all, AFFINE_ROWS * (all / item->module.out + MAPPED_AROUND));
}

pleach_status pl_coder_open(pl_coder *c, const pl_plan_item *items, size_t n, pleach_error *err)
{
    buffer_sizes s = largest(items, n, &c->feedback);
    c->matrix = pl_alloc(s.matrix, sizeof *c->matrix);
    c->decoded = pl_alloc(s.decoded, sizeof *c->decoded);
    c->data = pl_alloc(s.data, 1);
    bool whole = c->matrix && c->decoded && c->data;
    if (s.input) whole &= (c->input_factor = pl_alloc(s.input, sizeof(double))) != NULL;
    if (s.output) whole &= (c->output_factor = pl_alloc(s.output, sizeof(double))) != NULL;
    if (!whole) {
        pl_coder_close(c);
        return pl_fail_memory(err, "the largest module", pl_coder_memory(items, n, &c->feedback));
    }
    if (c->device) c->device->lend(c->device, c->matrix, s.matrix * sizeof *c->matrix);
    if (c->device) c->device->lend(c->device, c->data, s.data);
    return PLEACH_OK;
}

void pl_coder_close(pl_coder *c)
{
    if (c->device && c->matrix) c->device->give_back(c->device, c->matrix);
    if (c->device && c->data) c->device->give_back(c->device, c->data);
    pl_free(c->matrix);
    pl_free(c->decoded);
    pl_free(c->data);
    pl_free(c->input_factor);
    pl_free(c->output_factor);
    c->matrix = c->decoded = NULL;
    c->input_factor = c->output_factor = NULL;
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

pleach_status pl_coder_step(const pl_coder *c, uint64_t done, uint64_t total, pleach_error *err)
{
    if (done == total || !c->step || !c->step(c->user, (double)done / (double)total))
        return PLEACH_OK;
    return pl_fail(err, PLEACH_ERR_CANCELLED, "stopped; the work done so far is kept");
}

/* ---- affine --------------------------------------------------------------------------------- */

typedef struct affine_work {
    const pl_coder *coder;
    const pl_plan_item *item;
    pl_rows rows;
    pl_coded *out;
    double error[AFFINE_ROWS], power[AFFINE_ROWS];
} affine_work;

/* Rows first, first + stride, ... of a module, read and coded. */
typedef struct affine_rows {
    affine_work *w;
    uint64_t first, stride;
    pthread_mutex_t lock; /* guards the next two */
    uint64_t bad_row, bad_col;
    pl_affine affine;
    uint64_t to; /* row of the output */
} affine_rows;

static void read_affine_row(void *rows, size_t i, int thread)
{
    affine_rows *a = rows;
    affine_work *w = a->w;
    uint64_t row, col;
    (void)thread;
    if (!pl_rows_read(&w->rows, a->first + i * a->stride, 1,
                      w->coder->matrix + i * w->item->module.in, NULL, &row, &col))
        return;
    pthread_mutex_lock(&a->lock);
    if (row < a->bad_row) {
        a->bad_row = row;
        a->bad_col = col;
    }
    pthread_mutex_unlock(&a->lock);
}

static pleach_status read_affine_rows(affine_work *w, uint64_t first, uint64_t stride, uint64_t n,
                                      pleach_error *err)
{
    affine_rows rows = {.w = w, .first = first, .stride = stride,
                        .lock = PTHREAD_MUTEX_INITIALIZER, .bad_row = UINT64_MAX};
    pl_pool_run(w->coder->pool, n, read_affine_row, &rows);
    return rows.bad_row == UINT64_MAX
               ? PLEACH_OK
               : pl_fail_value(err, w->item->module.name, rows.bad_row, rows.bad_col);
}

static void code_affine_row(void *rows, size_t i, int thread)
{
    affine_rows *a = rows;
    affine_work *w = a->w;
    const pl_plan_item *item = w->item;
    size_t in = item->module.in, words = in * item->bits / 32, groups = in / item->group_size;
    uint32_t *codes = w->out->data[0];
    uint16_t *scales = w->out->data[1], *biases = w->out->data[2];
    const float *row = w->coder->matrix + i * in;
    uint64_t r = a->to + i;
    (void)thread;
    w->error[i] = pl_affine_encode_row(&a->affine, row, in, codes + r * words, scales + r * groups,
                                       biases + r * groups);
    w->power[i] = 0;
    for (size_t j = 0; j < in; j++) w->power[i] += (double)row[j] * row[j];
}

/* Codes the rows that were read, into row `to` of the output on. Returns the squared error. */
static double code_affine_rows(affine_work *w, pl_dtype type, uint64_t to, uint64_t n)
{
    const pl_plan_item *item = w->item;
    affine_rows rows = {.w = w, .to = to,
                        .affine = {.bits = item->bits, .group = item->group_size, .type = type}};
    pl_pool_run(w->coder->pool, n, code_affine_row, &rows);
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += w->error[i];
    return sum;
}

/* Gives back the source's pages of rows [0, end). */
static void release_rows(const affine_work *w, uint64_t end)
{
    const pl_tensor *t = w->item->source.weight;
    pl_map_release(t->data, t->n_bytes / w->item->module.out * end);
}

static pleach_status code_affine_all(affine_work *w, pl_dtype type, pleach_error *err)
{
    const pl_module *m = &w->item->module;
    w->out->error = w->out->power = 0;
    for (uint64_t r = 0; r < m->out; r += AFFINE_ROWS) {
        uint64_t n = PL_MIN(m->out - r, (uint64_t)AFFINE_ROWS);
        PL_TRY(read_affine_rows(w, r, 1, n, err));
        w->out->error += code_affine_rows(w, type, r, n);
        release_rows(w, r + n);
        for (uint64_t i = 0; i < n; i++) w->out->power += w->power[i];
        if (r / AFFINE_ROWS % 64 == 63) PL_TRY(pl_coder_step(w->coder, r + n, m->out, err));
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
    release_rows(w, m->out);
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
    affine_work w = {.coder = c, .item = item, .out = out};
    pleach_status status = pl_rows_open(&w.rows, item, c->kernels->rotate, err);
    if (status == PLEACH_OK) status = code_affine_work(&w, err);
    pl_map_release(item->source.weight->data, item->source.weight->n_bytes);
    pl_rows_close(&w.rows);
    return status;
}

/* ---- both ----------------------------------------------------------------------------------- */

pleach_status pl_code_module(const pl_coder *c, const pl_plan_item *item,
                             const pl_module_statistics *stats, pl_coded *out, pleach_error *err)
{
    *out = (pl_coded){0};
    lay_out(c, item, out);
    return item->coding == PL_CODING_TRELLIS ? pl_code_trellis(c, item, stats, out, err)
                                             : code_affine(c, item, out, err);
}
