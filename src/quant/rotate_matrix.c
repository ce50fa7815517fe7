/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and rotating a matrix. One pass over the rows of W rotates the inputs and writes stored
 * rows (transposing for axis 0); a second one scales and rotates the outputs in place. */
#include "rotate_matrix.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/file.h"
#include "base/half.h"
#include "base/memory.h"
#include "model/linear.h"

#define GROUP PL_ROTATE_COLUMNS /* rows read at once: one cache line of f32 when transposed */

uint32_t pl_rotation_block(uint64_t width)
{
    uint32_t block = 1;
    while (block < PL_ROTATION_MAX_BLOCK && width % (block * 2) == 0) block *= 2;
    return block > 1 ? block : 0;
}

pleach_status pl_fail_value(pleach_error *err, const char *module, uint64_t row, uint64_t col)
{
    return pl_fail(err, PLEACH_ERR_DATA,
                   "%s.weight: NaN or infinity in row %llu, column %llu of the source", module,
                   (unsigned long long)row, (unsigned long long)col);
}

pleach_status pl_read_whole(const pl_weight *w, float **whole, pleach_error *err)
{
    *whole = NULL;
    if (w->coding != PL_CODING_TRELLIS) return PLEACH_OK;
    float *dst = pl_alloc(w->out * w->in, sizeof *dst);
    if (!dst) return pl_fail_memory(err, "a matrix", w->out * w->in * sizeof *dst);
    pleach_status status = pl_weight_dense_f32(w, dst, err);
    if (status == PLEACH_OK) *whole = dst;
    else pl_free(dst);
    return status;
}

/* x - x is 0 for finite numbers and NaN for others; the sum keeps a NaN. */
static bool all_finite(const float *x, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] - x[i];
    return sum == 0;
}

bool pl_read_rows(const pl_weight *w, const float *whole, uint64_t row, uint64_t n, float *dst,
                  uint64_t *bad_row, uint64_t *bad_col)
{
    if (whole) memcpy(dst, whole + row * w->in, n * w->in * sizeof *dst);
    else pl_weight_rows_f32(w, row, n, dst);
    if (all_finite(dst, n * w->in)) return false;
    size_t i = 0;
    while (isfinite(dst[i])) i++;
    *bad_row = row + i / w->in;
    *bad_col = i % w->in;
    return true;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static double sum_of_squares(const float *x, size_t n)
{
    double lane[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) lane[k] += (double)x[i + k] * x[i + k];
    double sum = 0;
    for (int k = 0; k < 8; k++) sum += lane[k];
    for (; i < n; i++) sum += (double)x[i] * x[i];
    return sum;
}

pleach_status pl_rows_open(pl_rows *r, const pl_plan_item *item, pl_rotate_fn *rotate,
                           pleach_error *err)
{
    const pl_module *m = &item->module;
    *r = (pl_rows){.item = item, .rotate = rotate};
    PL_TRY(pl_read_whole(&item->source, &r->whole, err));
    if (!item->rotate_in.block) return PLEACH_OK;
    r->signs = pl_rotation_make_signs(&item->rotate_in, m->in);
    if (r->signs) return PLEACH_OK;
    pl_rows_close(r);
    return pl_fail_memory(err, m->name, m->in * sizeof(float));
}

void pl_rows_close(pl_rows *r)
{
    pl_free(r->whole);
    pl_free(r->signs);
    *r = (pl_rows){0};
}

bool pl_rows_read(const pl_rows *r, uint64_t row, uint64_t n, float *dst, double *power,
                  uint64_t *bad_row, uint64_t *bad_col)
{
    const pl_plan_item *item = r->item;
    const float *gain = item->gain;
    const size_t in = item->module.in;
    if (pl_read_rows(&item->source, r->whole, row, n, dst, bad_row, bad_col)) return true;
    for (size_t i = 0; i < n; i++) {
        float *x = dst + i * in;
        for (size_t j = 0; gain && j < in; j++) x[j] *= gain[j];
        if (power) power[i] = sum_of_squares(x, in);
        if (r->signs) r->rotate(x, r->signs, in, item->rotate_in.block);
    }
    return false;
}

void pl_rotate_across(pl_rotate_fn *rotate, const float *signs, size_t block, float *rows,
                      size_t width, size_t stride, float *tile)
{
    for (size_t j = 0; j < width; j += PL_ROTATE_COLUMNS) {
        size_t n = PL_MIN(width - j, (size_t)PL_ROTATE_COLUMNS);
        for (size_t o = 0; o < block; o++)
            for (size_t i = 0; i < n; i++) tile[i * block + o] = rows[o * stride + j + i];
        for (size_t i = 0; i < n; i++) rotate(tile + i * block, signs, block, block);
        for (size_t o = 0; o < block; o++)
            for (size_t i = 0; i < n; i++) rows[o * stride + j + i] = tile[i * block + o];
    }
}

/* ---- one matrix in work --------------------------------------------------------------------- */

typedef struct loader {
    const pl_plan_item *item;
    const pl_kernels *kernels;
    pl_pool *pool;
    const double *importance;
    float *dst;
    pl_rows rows;
    float *out_signs;
    double *power;     /* [out] sum of squares of a row */
    float *inverse;    /* [out] 1 / output scale */
    float *scratch;    /* [threads][scratch_size] */
    size_t scratch_size;
    pthread_mutex_t lock;      /* guards the next three */
    uint64_t bad_row, bad_col; /* first bad value; UINT64_MAX: none */
    bool overflow;             /* a number left the range of f32 on the way */
} loader;

/* Stored rows of axis 0 are columns of W: n rows of W become a run of n in each. */
static void store_transposed(const loader *l, const float *rows, uint64_t row, size_t n)
{
    size_t in = l->item->module.in, cols = l->item->trellis.cols;
    for (size_t j = 0; j < in; j++) {
        float *to = l->dst + j * cols + row;
        for (size_t i = 0; i < n; i++) to[i] = rows[i * in + j];
    }
}

static void store_rows(const loader *l, const float *rows, uint64_t row, size_t n)
{
    size_t in = l->item->module.in, cols = l->item->trellis.cols;
    for (size_t i = 0; i < n; i++) {
        float *to = l->dst + (row + i) * cols;
        memcpy(to, rows + i * in, in * sizeof *to);
        memset(to + in, 0, (cols - in) * sizeof *to);
    }
}

static void load_group(void *loader_, size_t group, int thread)
{
    loader *l = loader_;
    float *rows = l->scratch + (size_t)thread * l->scratch_size;
    uint64_t row = group * GROUP;
    size_t n = PL_MIN(l->item->module.out - row, (uint64_t)GROUP);
    uint64_t bad_row, bad_col;
    if (pl_rows_read(&l->rows, row, n, rows, l->power + row, &bad_row, &bad_col)) {
        pthread_mutex_lock(&l->lock);
        if (bad_row < l->bad_row) {
            l->bad_row = bad_row;
            l->bad_col = bad_col;
        }
        pthread_mutex_unlock(&l->lock);
        return;
    }
    if (l->item->trellis.axis == 0) store_transposed(l, rows, row, n);
    else store_rows(l, rows, row, n);
}

/* power becomes the scale that is wanted. */
static void find_output_scale(const loader *l, uint16_t *output_scale)
{
    size_t out = l->item->module.out;
    double mean = 0, p = l->importance ? l->item->output_weighting : 0;
    for (size_t o = 0; o < out; o++) {
        l->power[o] = pow(l->power[o], (1 - p) / 2);
        if (p > 0) l->power[o] *= pow(l->importance[o], -p / 2);
        mean += l->power[o] / (double)out;
    }
    for (size_t o = 0; o < out; o++) {
        double a = mean > 0 && l->power[o] > 0 ? l->power[o] / mean : 1;
        /* Below fp16's normal numbers a row is nothing beside the others. */
        output_scale[o] = pl_f32_to_fp16((float)fmin(fmax(a, 0x1p-14), 65504));
        l->inverse[o] = 1 / pl_fp16_to_f32(output_scale[o]);
    }
}

/* Axis 0: a stored row holds all outputs of one input. */
static void finish_stored_row(void *loader_, size_t j, int thread)
{
    const loader *l = loader_;
    const pl_plan_item *item = l->item;
    size_t out = item->module.out;
    float *row = l->dst + j * item->trellis.cols;
    (void)thread;
    if (l->inverse)
        for (size_t o = 0; o < out; o++) row[o] *= l->inverse[o];
    if (l->out_signs) l->kernels->rotate(row, l->out_signs, out, item->rotate_out.block);
    memset(row + out, 0, (item->trellis.cols - out) * sizeof *row);
}

/* Axis 1: outputs lie across stored rows. */
static void rotate_outputs(void *loader_, size_t block, int thread)
{
    const loader *l = loader_;
    const pl_plan_item *item = l->item;
    uint64_t first = block * item->rotate_out.block;
    float *tile = l->scratch + (size_t)thread * l->scratch_size;
    pl_rotate_across(l->kernels->rotate, l->out_signs + first, item->rotate_out.block,
                     l->dst + first * item->trellis.cols, item->module.in, item->trellis.cols,
                     tile);
}

static void find_overflow(void *loader_, size_t row, int thread)
{
    loader *l = loader_;
    (void)thread;
    if (all_finite(l->dst + row * l->item->trellis.cols, l->item->trellis.cols)) return;
    pthread_mutex_lock(&l->lock);
    l->overflow = true;
    pthread_mutex_unlock(&l->lock);
}

/* All numbers of the source are finite: sums of them in f32 need not be. */
static pleach_status check_overflow(loader *l, double largest, pleach_error *err)
{
    pl_pool_run(l->pool, l->item->trellis.rows, find_overflow, l);
    PL_FAIL_IF(l->overflow, err, PLEACH_ERR_DATA,
               "%s.weight: too large to rotate: the root mean square of a row is %g",
               l->item->module.name, sqrt(largest / (double)l->item->module.in));
    return PLEACH_OK;
}

static double largest_power(const loader *l)
{
    double largest = 0;
    for (size_t o = 0; o < l->item->module.out; o++) largest = fmax(largest, l->power[o]);
    return largest;
}

static pleach_status load(loader *l, uint16_t *output_scale, pleach_error *err)
{
    const pl_plan_item *item = l->item;
    const pl_module *m = &item->module;
    pl_pool_run(l->pool, (m->out + GROUP - 1) / GROUP, load_group, l);
    if (item->source.weight)
        pl_map_release(item->source.weight->data, item->source.weight->n_bytes);
    if (l->bad_row != UINT64_MAX) return pl_fail_value(err, m->name, l->bad_row, l->bad_col);
    double largest = largest_power(l);
    if (item->output_scale) find_output_scale(l, output_scale);

    if (item->trellis.axis == 0)
        pl_pool_run(l->pool, m->in, finish_stored_row, l);
    else if (l->out_signs)
        pl_pool_run(l->pool, m->out / item->rotate_out.block, rotate_outputs, l);
    return check_overflow(l, largest, err);
}

static pleach_status allocate(loader *l, pleach_error *err)
{
    const pl_plan_item *item = l->item;
    const pl_module *m = &item->module;
    l->scratch_size = GROUP * PL_MAX(m->in, PL_ROTATION_MAX_BLOCK);
    l->power = pl_alloc(m->out, sizeof *l->power);
    l->scratch = pl_alloc((size_t)pl_pool_threads(l->pool) * l->scratch_size, sizeof *l->scratch);
    bool whole = l->power && l->scratch;
    if (item->rotate_out.block)
        whole &= (l->out_signs = pl_rotation_make_signs(&item->rotate_out, m->out)) != NULL;
    if (item->output_scale)
        whole &= (l->inverse = pl_alloc(m->out, sizeof *l->inverse)) != NULL;
    return whole ? PLEACH_OK : pl_fail_memory(err, m->name, l->scratch_size * sizeof(float));
}

pleach_status pl_load_rotated(const pl_plan_item *item, const pl_kernels *kernels, pl_pool *pool,
                              const double *importance, float *dst, uint16_t *output_scale,
                              pleach_error *err)
{
    loader l = {.item = item, .kernels = kernels, .pool = pool, .dst = dst,
                .importance = importance, .lock = PTHREAD_MUTEX_INITIALIZER,
                .bad_row = UINT64_MAX};
    pleach_status status = allocate(&l, err);
    if (status == PLEACH_OK) status = pl_rows_open(&l.rows, item, kernels->rotate, err);
    if (status == PLEACH_OK) status = load(&l, output_scale, err);
    pl_rows_close(&l.rows);
    pl_free(l.scratch);
    pl_free(l.inverse);
    pl_free(l.power);
    pl_free(l.out_signs);
    return status;
}
