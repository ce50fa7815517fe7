/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows to codes: the scale that a model of the error likes best, the search of every block at that
 * scale, and a least-squares refit of the scale to the codes found. Blocks are searched in pairs,
 * whatever rows they belong to, and each writes its own words and sums, so threads never meet. */
#include "encoder.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/cpu.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/threads.h"
#include "trellis.h"
#include "viterbi.h"

#define FP16_MAX  65504.0
#define FP16_STEP 0x1p-24 /* the least scale above zero */

/* One thread's scratch, kept in a list between calls. */
typedef struct worker {
    struct worker *next;
    void *scratch;
} worker;

struct pl_encoder {
    pleach_trellis t;
    pl_kernels kernels;
    pl_viterbi viterbi;
    pl_pool *pool;
    int search_scale, refit;
    pleach_trellis_search search;
    double code_rms; /* root mean square of the code's values */
    pthread_mutex_t lock; /* guards idle */
    worker *idle;
};

/* One row in the making. */
typedef struct row_job {
    const float *src;
    uint64_t row;   /* in the matrix */
    double power;   /* sum of squares */
    double ratio;   /* RMS(row)/RMS(code) */
    uint16_t scale; /* to search with */
} row_job;

/* ---- opening --------------------------------------------------------------------------------- */

void pleach_trellis_encode_defaults(pleach_trellis_encode_settings *s)
{
    *s = (pleach_trellis_encode_settings){.scale_search = 1, .scale_refit = 1};
}

double pl_encoder_gaussian_error(uint32_t k, uint32_t state_bits)
{
    static const double error[2][3] = {{.0749, .01937, .00503}, {.0692, .01735, .00447}};
    return error[state_bits == 16][k - 2];
}

static double rms_of_code(uint32_t L)
{
    int64_t sum = 0;
    for (uint32_t s = 0; s < 1u << L; s++) sum += pl_trellis_y(s) * pl_trellis_y(s);
    return sqrt((double)sum / (double)(1u << L)) / PL_TRELLIS_DIVISOR;
}

pleach_status pl_encoder_open(pl_encoder **out, const pleach_trellis *t,
                              const pleach_trellis_encode_settings *settings, pl_pool *pool,
                              pleach_error *err)
{
    pleach_trellis_encode_settings s;
    unsigned cpu;
    *out = NULL;
    pleach_trellis_encode_defaults(&s);
    if (settings) s = *settings;
    PL_TRY(pleach_trellis_check(t, err));
    PL_FAIL_IF((unsigned)s.search > PLEACH_SEARCH_EXACT, err, PLEACH_ERR_ARGUMENT,
               "trellis: search is %d, expected 0 to 2", (int)s.search);
    PL_FAIL_IF(pl_cpu_level(s.cpu, &cpu), err, PLEACH_ERR_ARGUMENT,
               "trellis: CPU level \"%s\" is unknown or not of this machine", s.cpu);

    pl_encoder *e = pl_calloc(1, sizeof *e);
    if (!e) return pl_fail_memory(err, "a trellis encoder", sizeof *e);
    e->t = *t;
    e->pool = pool;
    e->search = s.search;
    e->search_scale = s.scale_search;
    e->refit = s.scale_refit;
    e->code_rms = rms_of_code(t->state_bits);
    pl_kernels_init(&e->kernels, cpu);
    pthread_mutex_init(&e->lock, NULL);
    pleach_status status = pl_viterbi_open(&e->viterbi, &e->kernels, t->bits, t->state_bits,
                                           s.search == PLEACH_SEARCH_FAST, err);
    if (status != PLEACH_OK) {
        pl_encoder_close(e);
        return status;
    }
    *out = e;
    return PLEACH_OK;
}

static void free_workers(worker *w)
{
    while (w) {
        worker *next = w->next;
        pl_free(w->scratch);
        pl_free(w);
        w = next;
    }
}

void pl_encoder_close(pl_encoder *e)
{
    if (!e) return;
    free_workers(e->idle);
    pl_viterbi_close(&e->viterbi);
    pthread_mutex_destroy(&e->lock);
    pl_free(e);
}

/* ---- workers --------------------------------------------------------------------------------- */

static worker *take_idle(pl_encoder *e)
{
    pthread_mutex_lock(&e->lock);
    worker *w = e->idle;
    if (w) e->idle = w->next;
    pthread_mutex_unlock(&e->lock);
    return w;
}

static void give_back(pl_encoder *e, worker *w)
{
    while (w) {
        worker *next = w->next;
        pthread_mutex_lock(&e->lock);
        w->next = e->idle;
        e->idle = w;
        pthread_mutex_unlock(&e->lock);
        w = next;
    }
}

static worker *new_worker(const pl_encoder *e)
{
    size_t size = e->search == PLEACH_SEARCH_EXACT ? pl_viterbi_exact_scratch(e->t.state_bits, e->t.block)
                           : pl_viterbi_scratch(&e->viterbi, e->t.block);
    worker *w = pl_calloc(1, sizeof *w);
    if (w) w->scratch = pl_alloc(1, size);
    if (w && w->scratch) return w;
    pl_free(w);
    return NULL;
}

/* Workers for n threads, as an array and as a list. */
static pleach_status take_workers(pl_encoder *e, worker **each, int n, pleach_error *err)
{
    for (int i = 0; i < n; i++) {
        worker *w = take_idle(e);
        if (!w) w = new_worker(e);
        if (!w) {
            if (i) give_back(e, each[i - 1]);
            return pl_fail_memory(err, "the trellis search",
                                  pl_viterbi_scratch(&e->viterbi, e->t.block));
        }
        w->next = i ? each[i - 1] : NULL;
        each[i] = w;
    }
    return PLEACH_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void numbers_of_block(int16_t *x, const float *w, uint32_t T, uint16_t scale)
{
    float factor = PL_VITERBI_UNIT / pl_fp16_to_f32(scale);
    const float limit = PL_VITERBI_UNIT * PL_VITERBI_CLAMP;
    for (uint32_t i = 0; i < T; i++) {
        float v = w[i] * factor;
        x[i] = (int16_t)lrintf(v > limit ? limit : v < -limit ? -limit : v);
    }
}

/* Sums and values of the states found; values as in the decode contract, before the scale. */
static void measure_block(pl_block_job *job, const uint16_t *states, uint32_t T)
{
    job->sums = (pl_block_sums){0, 0};
    for (uint32_t i = 0; i < T; i++) {
        int32_t y = pl_trellis_y(states[i]);
        job->sums.wy += (double)job->src[i] * y;
        job->sums.yy += y * y;
    }
    if (job->values) pl_trellis_decode_states(job->values, states, T, 1);
}

static void search_exactly(const pl_encoder *e, worker *w, uint16_t *states, const float *src,
                           uint16_t scale)
{
    float x[PL_TRELLIS_MAX_BLOCK];
    for (uint32_t i = 0; i < e->t.block; i++) x[i] = src[i] / pl_fp16_to_f32(scale);
    pl_viterbi_exact(states, x, e->t.bits, e->t.state_bits, e->t.block, w->scratch);
}

/* Searches the jobs 2*pair and 2*pair + 1 of n. */
static void search_pair(const pl_encoder *e, worker *w, pl_block_job *jobs, size_t n, size_t pair,
                        uint32_t *codes)
{
    const uint32_t T = e->t.block;
    int16_t x[2][PL_TRELLIS_MAX_BLOCK];
    uint16_t states[2][PL_TRELLIS_MAX_BLOCK];
    for (size_t b = 0; b < 2; b++) {
        const pl_block_job *job = &jobs[PL_MIN(2 * pair + b, n - 1)];
        if (e->search == PLEACH_SEARCH_EXACT)
            search_exactly(e, w, states[b], job->src, job->scale);
        else
            numbers_of_block(x[b], job->src, T, job->scale);
    }
    if (e->search != PLEACH_SEARCH_EXACT)
        pl_viterbi_pair(&e->viterbi, (uint16_t *const[]){states[0], states[1]},
                        (const int16_t *const[]){x[0], x[1]}, T, w->scratch);
    for (size_t b = 0; b < 2 && 2 * pair + b < n; b++) {
        pl_block_job *job = &jobs[2 * pair + b];
        uint32_t *words = codes + pl_trellis_block_at(&e->t, job->row, job->block);
        /* The states that the words decode to: the search's own, unless saturated costs broke its
         * path, and then only the low k bits count. */
        pl_trellis_pack(&e->t, words, states[b]);
        pl_trellis_states(&e->t, states[b], words);
        measure_block(job, states[b], T);
    }
}

typedef struct blocks_job {
    const pl_encoder *e;
    worker *const *workers; /* of each thread */
    pl_block_job *jobs;
    size_t n;
    uint32_t *codes;
} blocks_job;

static void run_pair(void *job, size_t pair, int thread)
{
    const blocks_job *j = job;
    search_pair(j->e, j->workers[thread], j->jobs, j->n, pair, j->codes);
}

pleach_status pl_encoder_blocks(pl_encoder *e, pl_block_job *jobs, size_t n, uint32_t *codes,
                                pleach_error *err)
{
    size_t pairs = (n + 1) / 2;
    int threads = (int)PL_MIN((size_t)pl_pool_threads(e->pool), pairs);
    worker *workers[PL_MAX_THREADS];
    if (pairs == 0) return PLEACH_OK;
    PL_TRY(take_workers(e, workers, threads, err));
    blocks_job job = {e, workers, jobs, n, codes};
    pl_pool_run_on(e->pool, threads, pairs, run_pair, &job);
    give_back(e, workers[threads - 1]);
    return PLEACH_OK;
}

/* ---- scales ---------------------------------------------------------------------------------- */

static uint16_t fp16_scale(double s)
{
    return pl_f32_to_fp16((float)PL_MIN(s, FP16_MAX));
}

/* The factor over RMS(row)/RMS(code) that makes the row's error least, by a model of it per number
 * and in units of the row's mean square:
 *
 *   error(f) = grain * f^2 + mean of max(0, |x| - edge * f)^2
 *
 * the code's own noise, and what its far end cannot reach. Convex; solved by bisection of the
 * derivative, at a few per cent of the search's cost. The constants are fitted to measured errors
 * of rows from uniform to Student t with 3 degrees of freedom and to single outliers: on average
 * within 4 % of the error at the best factor for each kind of row, 1 % for Gaussian ones. Below
 * `least` the model no longer holds. */
static double best_factor(const pl_encoder *e, const float *src, double rms)
{
    static const struct {
        double grain, edge, least;
    } models[] = {{0.020, 2.6, 1.03}, {0.008, 2.6, 1.08}, {0.002, 2.8, 1.12}};
    const double grain = models[e->t.bits - 2].grain, edge = models[e->t.bits - 2].edge;
    const double n = (double)e->t.cols;
    double low = models[e->t.bits - 2].least, high = low * 64, f = low;
    for (int i = 0; i < 12; i++, f = sqrt(low * high)) {
        double beyond = 0, reach = edge * f * rms;
        for (uint64_t j = 0; j < e->t.cols; j++) {
            double over = fabs((double)src[j]) - reach;
            beyond += over > 0 ? over : 0;
        }
        if (grain * f * n * rms < edge * beyond)
            low = f;
        else if (i == 0)
            break;
        else
            high = f;
    }
    return f;
}

static row_job measure(const pl_encoder *e, uint64_t row, const float *src)
{
    row_job job = {.src = src, .row = row};
    for (uint64_t i = 0; i < e->t.cols; i++) job.power += (double)src[i] * src[i];
    double rms = sqrt(job.power / (double)e->t.cols), scale = rms / e->code_rms;
    job.ratio = scale;
    if (scale > 0 && scale <= FP16_MAX && e->search_scale) scale *= best_factor(e, src, rms);
    job.scale = fp16_scale(PL_MAX(scale, FP16_STEP));
    return job;
}

double pl_encoder_code_rms(const pl_encoder *e)
{
    return e->code_rms;
}

uint16_t pl_encoder_scale(double s)
{
    return fp16_scale(PL_MAX(s, FP16_STEP));
}

/* Squared error of a row at a scale. */
static double error_at(double power, pl_block_sums row, uint16_t scale)
{
    double step = pl_fp16_to_f32(scale) / (double)PL_TRELLIS_DIVISOR;
    return power - step * (2 * row.wy - step * (double)row.yy);
}

uint16_t pl_encoder_refit(double power, pl_block_sums row, uint16_t scale)
{
    uint16_t best = error_at(power, row, scale) < power ? scale : 0;
    if (row.wy <= 0) return best;
    uint16_t fitted = fp16_scale(row.wy / (double)row.yy * (double)PL_TRELLIS_DIVISOR);
    return error_at(power, row, fitted) < error_at(power, row, best) ? fitted : best;
}

static uint16_t final_scale(const pl_encoder *e, const row_job *job, const pl_block_job *blocks)
{
    pl_block_sums row = {0, 0};
    for (uint64_t i = 0; i < e->t.cols / e->t.block; i++) {
        row.wy += blocks[i].sums.wy;
        row.yy += blocks[i].sums.yy;
    }
    if (e->refit) return pl_encoder_refit(job->power, row, job->scale);
    return error_at(job->power, row, job->scale) < job->power ? job->scale : 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* All ones is a state whose y is above zero, so the row decodes to +0. */
void pl_encoder_clear(const pl_encoder *e, uint32_t *codes, uint64_t row)
{
    for (uint64_t block = 0; block < e->t.cols / e->t.block; block++)
        memset(codes + pl_trellis_block_at(&e->t, row, block), 0xff,
               4 * pl_trellis_block_words(&e->t));
}

static void decode_row(const pl_encoder *e, float *dst, const uint32_t *codes, uint64_t row,
                       uint16_t scale)
{
    uint16_t states[PL_TRELLIS_MAX_BLOCK];
    for (uint64_t block = 0; block < e->t.cols / e->t.block; block++, dst += e->t.block) {
        pl_trellis_states(&e->t, states, codes + pl_trellis_block_at(&e->t, row, block));
        pl_trellis_decode_states(dst, states, e->t.block, pl_fp16_to_f32(scale));
    }
}

/* Drops the rows of zeros from the n jobs; refuses the first row that no scale can hold. */
static pleach_status check_jobs(row_job *jobs, size_t *n, pleach_error *err)
{
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++) {
        unsigned long long row = jobs[i].row;
        PL_FAIL_IF(!isfinite(jobs[i].power), err, PLEACH_ERR_DATA, "row %llu holds NaN or infinity",
                   row);
        PL_FAIL_IF(jobs[i].ratio > FP16_MAX, err, PLEACH_ERR_DATA,
                   "row %llu is too large for an fp16 scale: %g, expected at most %g", row,
                   jobs[i].ratio, FP16_MAX);
        if (jobs[i].power > 0) jobs[kept++] = jobs[i];
    }
    *n = kept;
    return PLEACH_OK;
}

/* A row whose scale is known: what it decodes to. */
static void finish_row(const pl_encoder *e, uint32_t *codes, uint64_t row, uint16_t scale,
                       float *decoded)
{
    if (scale == 0) pl_encoder_clear(e, codes, row);
    if (decoded) decode_row(e, decoded, codes, row, scale);
}

static void list_blocks(const pl_encoder *e, const row_job *rows, size_t n, pl_block_job *to)
{
    const size_t blocks = (size_t)(e->t.cols / e->t.block);
    for (size_t i = 0; i < n * blocks; i++) {
        const row_job *row = &rows[i / blocks];
        to[i] = (pl_block_job){.row = row->row, .block = i % blocks, .scale = row->scale,
                               .src = row->src + i % blocks * e->t.block};
    }
}

/* A call's rows: their numbers in and out. */
typedef struct rows_job {
    const pl_encoder *e;
    uint64_t first;
    row_job *jobs;
    const float *src;
    uint32_t *codes;
    const uint16_t *scales;
    float *decoded;
} rows_job;

static void measure_unit(void *job, size_t i, int thread)
{
    const rows_job *j = job;
    (void)thread;
    j->jobs[i] = measure(j->e, j->first + i, j->src + i * j->e->t.cols);
}

static void finish_unit(void *job, size_t i, int thread)
{
    const rows_job *j = job;
    uint64_t row = j->first + i;
    (void)thread;
    finish_row(j->e, j->codes, row, j->scales[row],
               j->decoded ? j->decoded + i * j->e->t.cols : NULL);
}

pleach_status pl_encoder_rows(pl_encoder *e, uint64_t first, uint64_t count, uint32_t *codes,
                              uint16_t *scales, float *decoded, const float *src, pleach_error *err)
{
    const size_t cols = (size_t)e->t.cols, blocks = cols / e->t.block;
    PL_FAIL_IF(first > e->t.rows || count > e->t.rows - first, err, PLEACH_ERR_ARGUMENT,
               "trellis: %llu rows from row %llu on, of %llu", (unsigned long long)count,
               (unsigned long long)first, (unsigned long long)e->t.rows);
    if (count == 0) return PLEACH_OK;
    const size_t rows = (size_t)count;
    row_job *jobs = pl_alloc(rows, sizeof *jobs);
    pl_block_job *searches = pl_alloc(rows * blocks, sizeof *searches);
    pleach_status status;
    size_t n = rows;
    if (!jobs || !searches) {
        status = pl_fail_memory(err, "the trellis encoder's rows",
                                rows * blocks * sizeof *searches);
        goto out;
    }
    rows_job job = {e, first, jobs, src, codes, scales, decoded};
    pl_pool_run(e->pool, rows, measure_unit, &job);
    if ((status = check_jobs(jobs, &n, err))) goto out;
    list_blocks(e, jobs, n, searches);
    if ((status = pl_encoder_blocks(e, searches, n * blocks, codes, err))) goto out;

    memset(scales + first, 0, rows * sizeof *scales);
    for (size_t i = 0; i < n; i++)
        scales[jobs[i].row] = final_scale(e, &jobs[i], searches + i * blocks);
    pl_pool_run(e->pool, rows, finish_unit, &job);
out:
    pl_free(jobs);
    pl_free(searches);
    return status;
}

pleach_status pleach_trellis_encode(const pleach_trellis *t, uint32_t *codes, uint16_t *scales,
                                    const float *src,
                                    const pleach_trellis_encode_settings *settings,
                                    pleach_error *err)
{
    pl_encoder *e = NULL;
    pl_pool *pool = NULL;
    int threads = settings ? settings->threads : 0;
    PL_FAIL_IF(threads < 0, err, PLEACH_ERR_ARGUMENT, "trellis: threads is %d", threads);
    threads = threads ? PL_MIN(threads, PL_MAX_THREADS) : pl_default_threads();
    pleach_status status = pl_pool_open(threads, &pool, err);
    if (status == PLEACH_OK) status = pl_encoder_open(&e, t, settings, pool, err);
    if (status == PLEACH_OK)
        status = pl_encoder_rows(e, 0, t->rows, codes, scales, NULL, src, err);
    pl_encoder_close(e);
    pl_pool_close(pool);
    return status;
}
