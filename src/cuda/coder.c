/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies in, what is queued, copies out. Each call has a coder for itself: a stream, and buffers
 * that grow to the largest module and stay. Coding feature by feature keeps few multiprocessors busy, so
 * several modules are coded side by side. */
#include "coder.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "codec/trellis.h"
#include "encode.h"
#include "products.h"

#define FP16_MAX 65504.0
#define ROOM_FOR_MORE ((size_t)32 << 30) /* device memory for more than one coder */

enum { MOST_CODERS = 3 };


typedef enum buffer_name {
    MATRIX, WORK, UNIT, CODES, SCALES, SUMS, INFO, SQUARES, WEIGHT, VALUES, PARTIALS, CRESTS, ORDER,
    BAD, SCRATCH, N_BUFFERS
} buffer_name;

typedef struct coder {
    pl_cuda *cuda;
    pl_cuda own; /* what cuda points to: the device with a stream of its own */
    pl_cuda_products *products;
    bool taken;
    void *buffer[N_BUFFERS];
    size_t size[N_BUFFERS];
} coder;

typedef struct coders {
    pl_coding_device base;
    pl_cuda *cuda;
    pl_cuda_products *products; /* for pools */
    pthread_mutex_t lock;       /* of `taken` */
    pthread_cond_t freed;
    int n;
    coder each[MOST_CODERS];
} coders;

/* ---- memory and copies ----------------------------------------------------------------------- */

/* Waits for a free coder. The device is chosen by thread. */
static coder *take(pl_coding_device *d)
{
    coders *all = (coders *)d;
    coder *c = NULL;
    pthread_mutex_lock(&all->lock);
    for (;;) {
        for (int i = 0; i < all->n && !c; i++)
            if (!all->each[i].taken) c = &all->each[i];
        if (c) break;
        pthread_cond_wait(&all->freed, &all->lock);
    }
    c->taken = true;
    pthread_mutex_unlock(&all->lock);
    cudaSetDevice(c->cuda->index);
    return c;
}

/* Nothing may be under way when the caller's memory goes. */
static pleach_status put_back(pl_coding_device *d, coder *c, pleach_status status)
{
    coders *all = (coders *)d;
    if (status != PLEACH_OK) cudaStreamSynchronize(c->cuda->stream);
    pthread_mutex_lock(&all->lock);
    c->taken = false;
    pthread_cond_signal(&all->freed);
    pthread_mutex_unlock(&all->lock);
    return status;
}

static pleach_status need(coder *c, buffer_name name, size_t bytes, pleach_error *err)
{
    if (bytes <= c->size[name]) return PLEACH_OK;
    pl_cuda_free(c->buffer[name]);
    c->size[name] = 0;
    PL_TRY(pl_cuda_alloc(c->cuda, &c->buffer[name], bytes, "coding a module", err));
    c->size[name] = bytes;
    return PLEACH_OK;
}

static pleach_status put(coder *c, buffer_name name, const void *from, size_t bytes,
                         pleach_error *err)
{
    PL_TRY(need(c, name, bytes, err));
    return pl_cuda_check(cudaMemcpyAsync(c->buffer[name], from, bytes, cudaMemcpyHostToDevice,
                                         c->cuda->stream), "copying to the device", err);
}

static pleach_status get(coder *c, void *to, buffer_name name, size_t bytes, pleach_error *err)
{
    return pl_cuda_check(cudaMemcpyAsync(to, c->buffer[name], bytes, cudaMemcpyDeviceToHost,
                                         c->cuda->stream), "copying from the device", err);
}

static pleach_status clear(coder *c, buffer_name name, size_t bytes, pleach_error *err)
{
    PL_TRY(need(c, name, bytes, err));
    return pl_cuda_check(cudaMemsetAsync(c->buffer[name], 0, bytes, c->cuda->stream),
                         "clearing device memory", err);
}

static pleach_status need_scratch(coder *c, const pleach_trellis *t, size_t blocks,
                                  pleach_error *err)
{
    PL_FAIL_IF(!pl_cuda_viterbi_fits(c->cuda, t->bits, t->state_bits, t->block), err,
               PLEACH_ERR_UNSUPPORTED,
               "device cuda:%d: %u state bits at %u bits a weight need more shared memory than the "
               "%zu KB that it has", c->cuda->index, t->state_bits, t->bits,
               c->cuda->shared_bytes / 1024);
    return need(c, SCRATCH,
                pl_cuda_viterbi_scratch(c->cuda, t->bits, t->state_bits, t->block, blocks), err);
}

static size_t row_words(const pleach_trellis *t)
{
    return (size_t)(t->cols / t->block) * pl_trellis_block_words(t);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static pl_cuda_viterbi search_of(const coder *c, const pleach_trellis *t, size_t rows)
{
    return (pl_cuda_viterbi){.k = t->bits, .L = t->state_bits, .T = t->block, .rows = rows,
                             .blocks = (size_t)(t->cols / t->block), .src = c->buffer[MATRIX],
                             .src_stride = (size_t)t->cols, .scales = c->buffer[SCALES],
                             .codes = c->buffer[CODES], .code_stride = row_words(t),
                             .sums = c->buffer[SUMS]};
}

static pleach_status queue_rows(coder *c, const pl_device_rows *r, uint64_t first, size_t n,
                                pleach_error *err)
{
    const pleach_trellis *t = r->t;
    const size_t cols = (size_t)t->cols, blocks = n * (cols / t->block);
    PL_TRY(put(c, MATRIX, r->matrix + first * cols, n * cols * sizeof(float), err));
    if (r->weight) PL_TRY(put(c, WEIGHT, r->weight, (size_t)r->width * sizeof(float), err));
    PL_TRY(need(c, CODES, n * row_words(t) * sizeof(uint32_t), err));
    PL_TRY(need(c, SCALES, n * sizeof(uint16_t), err));
    PL_TRY(need(c, SUMS, blocks * sizeof(pl_cuda_block_sums), err));
    PL_TRY(need(c, INFO, n * sizeof(pl_cuda_row_size), err));
    PL_TRY(need(c, SQUARES, n * sizeof(double), err));
    PL_TRY(need_scratch(c, t, blocks, err));
    const pl_cuda_viterbi s = search_of(c, t, n);
    pl_cuda_measure_rows(c->cuda, t->bits, r->code_rms, c->buffer[MATRIX], n, cols,
                         c->buffer[SCALES], c->buffer[INFO]);
    pl_cuda_viterbi_run(c->cuda, &s, c->buffer[SCRATCH]);
    pl_cuda_finish_rows(c->cuda, &s, (size_t)r->width, c->buffer[MATRIX], c->buffer[INFO],
                        c->buffer[SCALES], r->weight ? c->buffer[WEIGHT] : NULL,
                        c->buffer[SQUARES]);
    return PLEACH_OK;
}

/* Refuses the first row that is not finite or that no scale can hold. */
static pleach_status check_rows(const pl_cuda_row_size *rows, uint64_t first, size_t n,
                                pleach_error *err)
{
    for (size_t i = 0; i < n; i++) {
        unsigned long long row = first + i;
        PL_FAIL_IF(!isfinite(rows[i].power), err, PLEACH_ERR_DATA, "row %llu holds NaN or infinity",
                   row);
        PL_FAIL_IF(rows[i].ratio > FP16_MAX, err, PLEACH_ERR_DATA,
                   "row %llu is too large for an fp16 scale: %g, expected at most %g", row,
                   rows[i].ratio, FP16_MAX);
    }
    return PLEACH_OK;
}

static pleach_status fetch_rows(coder *c, const pl_device_rows *r, uint64_t first, size_t n,
                                pl_cuda_row_size *info, pleach_error *err)
{
    const size_t cols = (size_t)r->t->cols, words = row_words(r->t);
    PL_TRY(get(c, info, INFO, n * sizeof *info, err));
    PL_TRY(get(c, r->codes + first * words, CODES, n * words * sizeof(uint32_t), err));
    PL_TRY(get(c, r->scales + first, SCALES, n * sizeof(uint16_t), err));
    PL_TRY(get(c, r->squares + first, SQUARES, n * sizeof(double), err));
    PL_TRY(pl_cuda_sync(c->cuda, err));
    PL_TRY(check_rows(info, first, n, err));
    if (!r->errors) return PLEACH_OK;
    PL_TRY(get(c, r->matrix + first * cols, MATRIX, n * cols * sizeof(float), err));
    return pl_cuda_sync(c->cuda, err);
}

static pleach_status code_rows(pl_coding_device *d, const pl_device_rows *r, uint64_t first,
                               uint64_t count, pleach_error *err)
{
    const size_t n = (size_t)count;
    pl_cuda_row_size *info = pl_alloc(n, sizeof *info);
    if (!info) return pl_fail_memory(err, "rows", n * sizeof *info);
    coder *c = take(d);
    pleach_status status = queue_rows(c, r, first, n, err);
    if (status == PLEACH_OK) status = fetch_rows(c, r, first, n, info, err);
    put_back(d, c, status);
    pl_free(info);
    return status;
}

/* ---- features -------------------------------------------------------------------------------- */

static pleach_status put_features(coder *c, const pl_ldlq *l, pl_cuda_features *f,
                                  pleach_error *err)
{
    const pleach_trellis *t = &l->item->trellis;
    const size_t n = l->input->n, cols = (size_t)t->cols, bytes = n * cols * sizeof(float);
    PL_TRY(put(c, MATRIX, l->matrix, bytes, err));
    PL_TRY(put(c, UNIT, l->input->unit, n * n * sizeof(float), err));
    PL_TRY(put(c, ORDER, l->input->order, n * sizeof(uint32_t), err));
    PL_TRY(need(c, WORK, bytes, err));
    PL_TRY(need(c, CODES, n * row_words(t) * sizeof(uint32_t), err));
    PL_TRY(need(c, SCALES, n * sizeof(uint16_t), err));
    PL_TRY(need(c, CRESTS, n * sizeof(double), err));
    PL_TRY(need(c, VALUES, cols * sizeof(float), err));
    PL_TRY(need(c, SUMS, cols / t->block * sizeof(pl_cuda_block_sums), err));
    PL_TRY(clear(c, PARTIALS, pl_cuda_features_partials(cols), err));
    PL_TRY(clear(c, BAD, sizeof(int), err));
    PL_TRY(need_scratch(c, t, cols / t->block, err));
    *f = (pl_cuda_features){.k = t->bits, .L = t->state_bits, .T = t->block, .n = n,
                            .width = (size_t)l->item->width, .cols = cols, .unit = c->buffer[UNIT],
                            .matrix = c->buffer[MATRIX], .work = c->buffer[WORK],
                            .values = c->buffer[VALUES], .sums = c->buffer[SUMS],
                            .partials = c->buffer[PARTIALS], .start = pl_ldlq_start(l),
                            .codes = c->buffer[CODES], .scales = c->buffer[SCALES],
                            .bad = c->buffer[BAD]};
    return PLEACH_OK;
}

/* The peak that is let pass: fourfold the highest of all features. */
static pleach_status find_highest(coder *c, pl_cuda_features *f, pleach_error *err)
{
    double *crests = pl_alloc(f->n, sizeof *crests);
    if (!crests) return pl_fail_memory(err, "features", f->n * sizeof *crests);
    pl_cuda_features_begin(c->cuda, f, c->buffer[ORDER], c->buffer[CRESTS]);
    pleach_status status = get(c, crests, CRESTS, f->n * sizeof *crests, err);
    if (status == PLEACH_OK) status = pl_cuda_sync(c->cuda, err);
    for (size_t j = 0; j < f->n; j++)
        f->highest = PL_MAX(f->highest, PL_LDLQ_PEAK_LIMIT * crests[j]);
    pl_free(crests);
    return status;
}

/* Features first .. end-1; their errors then reach all later ones: row-major, work[end..) +=
 * unit[first..end)[end..)^T work[first..end). */
static pleach_status code_batch(coder *c, const pl_ldlq *l, const pl_cuda_features *f, size_t first,
                                size_t end, bool *fine, pleach_error *err)
{
    const float one = 1;
    const int cols = (int)f->cols, n = (int)f->n, later = (int)(f->n - end);
    int bad = 0;
    for (size_t j = first; j < end; j++)
        pl_cuda_features_code(c->cuda, f, first, j, l->input->order[j], c->buffer[SCRATCH]);
    if (later)
        PL_TRY(pl_cuda_blas_check(
            cublasSgemm(c->products->blas, CUBLAS_OP_N, CUBLAS_OP_T, cols, later,
                        (int)(end - first), &one, f->work + first * f->cols, cols,
                        f->unit + first * f->n + end, n, &one, f->work + end * f->cols, cols),
            err));
    PL_TRY(get(c, &bad, BAD, sizeof bad, err));
    PL_TRY(pl_cuda_sync(c->cuda, err));
    *fine = bad == 0;
    return PLEACH_OK;
}

static pleach_status run_features(coder *c, const pl_ldlq *l, bool *fine, pleach_error *err)
{
    const pleach_trellis *t = &l->item->trellis;
    pl_cuda_features f;
    PL_TRY(put_features(c, l, &f, err));
    PL_TRY(find_highest(c, &f, err));
    for (size_t first = 0, end; first < f.n && *fine; first = end) {
        end = PL_MIN(first + l->batch, f.n);
        PL_TRY(code_batch(c, l, &f, first, end, fine, err));
        PL_TRY(pl_coder_step(l->coder, end, f.n, err));
    }
    if (!*fine) return PLEACH_OK;
    PL_TRY(get(c, l->matrix, MATRIX, f.n * f.cols * sizeof(float), err));
    PL_TRY(get(c, l->codes, CODES, f.n * row_words(t) * sizeof(uint32_t), err));
    PL_TRY(get(c, l->scales, SCALES, f.n * sizeof(uint16_t), err));
    return pl_cuda_sync(c->cuda, err);
}

static pleach_status code_features(pl_coding_device *d, const pl_ldlq *l, bool *peak,
                                   pleach_error *err)
{
    bool fine = true;
    coder *c = take(d);
    pleach_status status = put_back(d, c, run_features(c, l, &fine, err));
    *peak = !fine;
    return status;
}

/* ---- one block of all rows ------------------------------------------------------------------- */

static pleach_status run_block(coder *c, const pl_ldlq *l, float *x, size_t ld, uint32_t *codes,
                               float *values, pleach_error *err)
{
    const pleach_trellis *t = &l->item->trellis;
    const size_t rows = (size_t)t->rows, width = t->block * sizeof(float);
    pleach_trellis one = *t;
    one.cols = t->block;
    PL_TRY(need(c, MATRIX, rows * width, err));
    PL_TRY(pl_cuda_check(cudaMemcpy2DAsync(c->buffer[MATRIX], width, x, ld * sizeof(float), width,
                                           rows, cudaMemcpyHostToDevice, c->cuda->stream),
                         "copying to the device", err));
    PL_TRY(put(c, SCALES, l->scales, rows * sizeof(uint16_t), err));
    PL_TRY(need(c, CODES, rows * row_words(&one) * sizeof(uint32_t), err));
    PL_TRY(need_scratch(c, t, rows, err));
    pl_cuda_viterbi s = search_of(c, &one, rows);
    s.sums = NULL;
    s.values = c->buffer[MATRIX];
    s.value_stride = s.src_stride;
    pl_cuda_viterbi_run(c->cuda, &s, c->buffer[SCRATCH]);
    PL_TRY(get(c, codes, CODES, rows * row_words(&one) * sizeof(uint32_t), err));
    PL_TRY(get(c, values, MATRIX, rows * width, err));
    return pl_cuda_sync(c->cuda, err);
}

static pleach_status code_block(pl_coding_device *d, const pl_ldlq *l, size_t b, float *x,
                                size_t ld, pleach_error *err)
{
    const pleach_trellis *t = &l->item->trellis;
    const size_t rows = (size_t)t->rows, T = t->block, words = pl_trellis_block_words(t);
    uint32_t *codes = pl_alloc(rows, words * sizeof *codes);
    float *values = pl_alloc(rows, T * sizeof *values);
    pleach_status status = PLEACH_OK;
    if (!codes || !values) status = pl_fail_memory(err, "a block", rows * T * 8);
    if (status == PLEACH_OK) {
        coder *c = take(d);
        status = put_back(d, c, run_block(c, l, x, ld, codes, values, err));
    }
    for (size_t r = 0; status == PLEACH_OK && r < rows; r++) {
        if (l->scales[r] == 0) continue;
        memcpy(l->codes + pl_trellis_block_at(t, r, b), codes + r * words, words * sizeof *codes);
        memcpy(x + r * ld, values + r * T, T * sizeof *values);
    }
    pl_free(codes);
    pl_free(values);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Pages that cannot be pinned are copied all the same. */
static void lend(pl_coding_device *d, void *p, size_t bytes)
{
    cudaSetDevice(((coders *)d)->cuda->index);
    if (cudaHostRegister(p, bytes, cudaHostRegisterDefault) != cudaSuccess) cudaGetLastError();
}

static void give_back(pl_coding_device *d, void *p)
{
    cudaSetDevice(((coders *)d)->cuda->index);
    if (cudaHostUnregister(p) != cudaSuccess) cudaGetLastError();
}

static void close_coder(coder *c)
{
    for (int i = 0; i < N_BUFFERS; i++) pl_cuda_free(c->buffer[i]);
    pl_cuda_products_close(c->products);
    if (c->own.stream) cudaStreamDestroy(c->own.stream);
}

static pleach_status open_coder(coder *c, const pl_cuda *d, pleach_error *err)
{
    c->own = *d;
    c->own.stream = NULL;
    c->cuda = &c->own;
    PL_TRY(pl_cuda_check(cudaStreamCreateWithFlags(&c->own.stream, cudaStreamNonBlocking),
                         "making a stream", err));
    return pl_cuda_products_open(c->cuda, &c->products, err);
}

static void close_all(pl_coding_device *d)
{
    coders *all = (coders *)d;
    for (int i = 0; i < all->n; i++) close_coder(&all->each[i]);
    pl_cuda_products_close(all->products);
    pl_cuda_close(all->cuda);
    pthread_cond_destroy(&all->freed);
    pthread_mutex_destroy(&all->lock);
    pl_free(all);
}

static pleach_status open_all(coders *all, const char *name, pleach_error *err)
{
    PL_TRY(pl_cuda_open(name, &all->cuda, err));
    PL_TRY(pl_cuda_viterbi_init(all->cuda, err));
    PL_TRY(pl_cuda_products_open(all->cuda, &all->products, err));
    all->base.products = &all->products->base;
    const int wanted = all->cuda->memory >= ROOM_FOR_MORE ? MOST_CODERS : 1;
    while (all->n < wanted) PL_TRY(open_coder(&all->each[all->n++], all->cuda, err));
    return PLEACH_OK;
}

pleach_status pl_cuda_coder_open(const char *name, pl_coding_device **out, pleach_error *err)
{
    coders *all = pl_calloc(1, sizeof *all);
    *out = NULL;
    if (!all) return pl_fail_memory(err, "the device", sizeof *all);
    all->base = (pl_coding_device){.close = close_all, .lend = lend, .give_back = give_back,
                                   .rows = code_rows, .features = code_features,
                                   .block = code_block};
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->freed, NULL);
    pleach_status status = open_all(all, name, err);
    if (status == PLEACH_OK) *out = &all->base;
    else close_all(&all->base);
    return status;
}
