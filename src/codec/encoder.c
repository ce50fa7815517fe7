/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows to codes: start scale, search of every block, least-squares refit of the scale, and for rows
 * that are far from Gaussian a search over start scales. Blocks are searched in pairs, whatever
 * rows they belong to, and each writes its own words and sums, so threads never meet. */
#include "encoder.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/cpu.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/threads.h"
#include "trellis.h"
#include "viterbi.h"

#define FP16_MAX  65504.0
#define FP16_STEP 0x1p-24 /* the least scale above zero */

/* Kurtosis of a Gaussian is 3; of a row of 576 Gaussian numbers, 3 with a deviation of 0.2. */
#define FAR_KURTOSIS 1.0
static const float wider_factors[] = {0.8f, 1.25f, 1.6f, 2.0f};

/* One thread's scratch, kept in a list between calls. */
typedef struct worker {
    struct worker *next;
    void *scratch;
} worker;

struct pl_encoder {
    pleach_trellis t;
    pl_kernels kernels;
    pl_viterbi viterbi;
    int threads, exact, search, refit;
    double code_rms; /* root mean square of the code's values */
    omp_lock_t lock; /* guards idle */
    worker *idle;
};

/* What the search of one block found: sums over its numbers of number * y and y * y. */
typedef struct block_sums {
    double wy;
    int64_t yy;
} block_sums;

/* One row in the making. */
typedef struct row_job {
    const float *src;
    uint64_t row;   /* in the matrix */
    double power;   /* sum of squares */
    int far;        /* from Gaussian: worth a search over scales */
    uint16_t start; /* the scale that the search is to use */
    uint16_t scale; /* the best so far */
    double error;   /* its squared error */
} row_job;

/* ---- opening --------------------------------------------------------------------------------- */

void pleach_trellis_encode_defaults(pleach_trellis_encode_settings *s)
{
    *s = (pleach_trellis_encode_settings){.scale_search = 1, .scale_refit = 1};
}

static double rms_of_code(uint32_t L)
{
    int64_t sum = 0;
    for (uint32_t s = 0; s < 1u << L; s++) sum += pl_trellis_y(s) * pl_trellis_y(s);
    return sqrt((double)sum / (double)(1u << L)) / PL_TRELLIS_DIVISOR;
}

pleach_status pl_encoder_open(pl_encoder **out, const pleach_trellis *t,
                              const pleach_trellis_encode_settings *settings, pleach_error *err)
{
    pleach_trellis_encode_settings s;
    unsigned cpu;
    *out = NULL;
    pleach_trellis_encode_defaults(&s);
    if (settings) s = *settings;
    PL_TRY(pleach_trellis_check(t, err));
    PL_FAIL_IF(s.threads < 0, err, PLEACH_ERR_ARGUMENT, "trellis: threads is %d", s.threads);
    PL_FAIL_IF(pl_cpu_level(s.cpu, &cpu), err, PLEACH_ERR_ARGUMENT,
               "trellis: CPU level \"%s\" is unknown or not of this machine", s.cpu);

    pl_encoder *e = pl_calloc(1, sizeof *e);
    if (!e) return pl_fail_memory(err, "a trellis encoder", sizeof *e);
    e->t = *t;
    e->threads = s.threads ? PL_MIN(s.threads, PL_MAX_THREADS) : pl_default_threads();
    e->exact = s.exact;
    e->search = s.scale_search;
    e->refit = s.scale_refit;
    e->code_rms = rms_of_code(t->state_bits);
    pl_kernels_init(&e->kernels, cpu);
    omp_init_lock(&e->lock);
    pleach_status status = pl_viterbi_open(&e->viterbi, &e->kernels, t->bits, t->state_bits, err);
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
    omp_destroy_lock(&e->lock);
    pl_free(e);
}

/* ---- workers --------------------------------------------------------------------------------- */

static worker *take_idle(pl_encoder *e)
{
    omp_set_lock(&e->lock);
    worker *w = e->idle;
    if (w) e->idle = w->next;
    omp_unset_lock(&e->lock);
    return w;
}

static void give_back(pl_encoder *e, worker *w)
{
    while (w) {
        worker *next = w->next;
        omp_set_lock(&e->lock);
        w->next = e->idle;
        e->idle = w;
        omp_unset_lock(&e->lock);
        w = next;
    }
}

static worker *new_worker(const pl_encoder *e)
{
    size_t size = e->exact ? pl_viterbi_exact_scratch(e->t.state_bits, e->t.block)
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
            return pl_fail_memory(err, "the trellis search", pl_viterbi_scratch(&e->viterbi, e->t.block));
        }
        w->next = i ? each[i - 1] : NULL;
        each[i] = w;
    }
    return PLEACH_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Where a round of searches puts a block's words: in the matrix, or in a plain array of the round's
 * rows, to be compared first. */
typedef struct destination {
    uint32_t *words;
    int plain;
} destination;

static uint32_t *words_of_block(const pl_encoder *e, destination d, const row_job *job, size_t index,
                                uint64_t block)
{
    const pleach_trellis *t = &e->t;
    if (!d.plain) return d.words + pl_trellis_block_at(t, job->row, block);
    return d.words + (index * (size_t)(t->cols / t->block) + (size_t)block) * pl_trellis_block_words(t);
}

static void numbers_of_block(int16_t *x, const float *w, uint32_t T, uint16_t scale)
{
    float factor = PL_VITERBI_UNIT / pl_fp16_to_f32(scale);
    const float limit = PL_VITERBI_UNIT * PL_VITERBI_CLAMP;
    for (uint32_t i = 0; i < T; i++) {
        float v = w[i] * factor;
        x[i] = (int16_t)lrintf(v > limit ? limit : v < -limit ? -limit : v);
    }
}

static block_sums sums_of_block(const float *w, const uint16_t *states, uint32_t T)
{
    block_sums sums = {0, 0};
    for (uint32_t i = 0; i < T; i++) {
        int32_t y = pl_trellis_y(states[i]);
        sums.wy += (double)w[i] * y;
        sums.yy += y * y;
    }
    return sums;
}

/* The states that the words will decode to, from the search's: the same unless saturated costs
 * broke the path, and then only the low k bits count. */
static void finish_block(const pl_encoder *e, uint32_t *words, uint16_t *states)
{
    pl_trellis_pack(&e->t, words, states);
    pl_trellis_states(&e->t, states, words);
}

static void search_exactly(const pl_encoder *e, worker *w, uint16_t *states, const float *src,
                           uint16_t scale)
{
    float x[PL_TRELLIS_MAX_BLOCK];
    for (uint32_t i = 0; i < e->t.block; i++) x[i] = src[i] / pl_fp16_to_f32(scale);
    pl_viterbi_exact(states, x, e->t.bits, e->t.state_bits, e->t.block, w->scratch);
}

/* Searches blocks 2*pair and 2*pair + 1 of the n jobs' blocks laid end to end. */
static void search_pair(const pl_encoder *e, worker *w, const row_job *jobs, size_t n, size_t pair,
                        destination d, block_sums *sums)
{
    const uint32_t T = e->t.block;
    const size_t blocks = (size_t)(e->t.cols / T), last = n * blocks - 1;
    int16_t x[2][PL_TRELLIS_MAX_BLOCK];
    uint16_t states[2][PL_TRELLIS_MAX_BLOCK];
    const float *src[2];
    for (size_t b = 0; b < 2; b++) {
        size_t id = PL_MIN(2 * pair + b, last);
        const row_job *job = &jobs[id / blocks];
        src[b] = job->src + id % blocks * T;
        if (e->exact) search_exactly(e, w, states[b], src[b], job->start);
        else numbers_of_block(x[b], src[b], T, job->start);
    }
    if (!e->exact)
        pl_viterbi_pair(&e->viterbi, (uint16_t *const[]){states[0], states[1]},
                        (const int16_t *const[]){x[0], x[1]}, T, w->scratch);
    for (size_t b = 0; b < 2 && 2 * pair + b <= last; b++) {
        size_t id = 2 * pair + b, index = id / blocks;
        finish_block(e, words_of_block(e, d, &jobs[index], index, id % blocks), states[b]);
        sums[id] = sums_of_block(src[b], states[b], T);
    }
}

/* Searches all blocks of the jobs at their start scales. */
static pleach_status search_rows(pl_encoder *e, const row_job *jobs, size_t n, destination d,
                                 block_sums *sums, pleach_error *err)
{
    size_t pairs = (n * (size_t)(e->t.cols / e->t.block) + 1) / 2;
    int threads = (int)PL_MIN((size_t)e->threads, pairs);
    worker *workers[PL_MAX_THREADS];
    if (pairs == 0) return PLEACH_OK;
    PL_TRY(take_workers(e, workers, threads, err));
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
    for (size_t pair = 0; pair < pairs; pair++)
        search_pair(e, workers[omp_get_thread_num()], jobs, n, pair, d, sums);
    give_back(e, workers[threads - 1]);
    return PLEACH_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The code's values end at 3.1 to 3.3, so that with more bits a larger scale than RMS over RMS pays:
 * the clipped tail weighs more against a finer error. Measured on Gaussian rows. */
static double start_factor(const pleach_trellis *t)
{
    static const double factors[] = {1.0, 1 / 0.92, 1 / 0.88};
    return factors[t->bits - 2];
}

static uint16_t fp16_scale(double s)
{
    return pl_f32_to_fp16((float)PL_MIN(s, FP16_MAX));
}

/* Fills in a job's measures of its row; false for a row that no scale can hold. */
static int measure(const pl_encoder *e, row_job *job, uint64_t row, const float *src)
{
    double sum2 = 0, sum4 = 0, n = (double)e->t.cols;
    for (uint64_t i = 0; i < e->t.cols; i++) {
        double square = (double)src[i] * src[i];
        sum2 += square;
        sum4 += square * square;
    }
    double scale = sqrt(sum2 / n) / e->code_rms;
    if (!(scale <= FP16_MAX)) return 0; /* NaN and infinity too */
    if (e->search) scale *= start_factor(&e->t);
    *job = (row_job){.src = src, .row = row, .power = sum2, .error = sum2};
    job->far = e->search && sum2 > 0 && fabs(sum4 * n / (sum2 * sum2) - 3) > FAR_KURTOSIS;
    job->start = fp16_scale(PL_MAX(scale, sum2 > 0 ? FP16_STEP : 0));
    return 1;
}

/* Squared error of the row at a scale, from the sums of its blocks. */
static double error_at(const row_job *job, block_sums row, uint16_t scale)
{
    double step = pl_fp16_to_f32(scale) / (double)PL_TRELLIS_DIVISOR;
    return job->power - step * (2 * row.wy - step * (double)row.yy);
}

/* Takes the better of the scale searched with and its refit, if it beats what the job has. */
static int take_better(const pl_encoder *e, row_job *job, const block_sums *blocks)
{
    block_sums row = {0, 0};
    for (uint64_t i = 0; i < e->t.cols / e->t.block; i++) {
        row.wy += blocks[i].wy;
        row.yy += blocks[i].yy;
    }
    uint16_t scale = job->start;
    double error = error_at(job, row, scale);
    if (e->refit && row.wy > 0) {
        uint16_t fitted = fp16_scale(row.wy / (double)row.yy * (double)PL_TRELLIS_DIVISOR);
        double fitted_error = error_at(job, row, fitted);
        if (fitted_error < error) {
            scale = fitted;
            error = fitted_error;
        }
    }
    if (!(error < job->error)) return 0;
    job->scale = scale;
    job->error = error;
    return 1;
}

/* Words of a row that scale 0 decodes: all ones is a state above zero, so the row reads +0. */
static void clear_row(const pl_encoder *e, uint32_t *codes, uint64_t row)
{
    for (uint64_t block = 0; block < e->t.cols / e->t.block; block++)
        memset(codes + pl_trellis_block_at(&e->t, row, block), 0xff,
               4 * pl_trellis_block_words(&e->t));
}

static void copy_row(const pl_encoder *e, uint32_t *codes, uint64_t row, const uint32_t *plain)
{
    size_t words = pl_trellis_block_words(&e->t);
    for (uint64_t block = 0; block < e->t.cols / e->t.block; block++, plain += words)
        memcpy(codes + pl_trellis_block_at(&e->t, row, block), plain, 4 * words);
}

/* Searches the rows that are far from Gaussian again, at other scales, and keeps what is better. */
static pleach_status search_wider(pl_encoder *e, row_job *jobs, size_t n, uint32_t *codes,
                                  block_sums *sums, pleach_error *err)
{
    const size_t blocks = (size_t)(e->t.cols / e->t.block);
    const size_t row_words = blocks * pl_trellis_block_words(&e->t);
    size_t n_far = 0;
    for (size_t i = 0; i < n; i++) n_far += jobs[i].far;
    if (!n_far) return PLEACH_OK;
    pleach_status status = PLEACH_OK;
    row_job *far = pl_alloc(n_far, sizeof *far);
    uint32_t *words = pl_alloc(n_far, 4 * row_words);
    if (!far || !words) {
        status = pl_fail_memory(err, "the search of scales", n_far * 4 * row_words);
        goto out;
    }
    for (size_t f = 0; f < PL_COUNT(wider_factors) && status == PLEACH_OK; f++) {
        n_far = 0;
        for (size_t i = 0; i < n; i++) {
            if (!jobs[i].far) continue;
            far[n_far] = jobs[i];
            far[n_far++].start = fp16_scale(PL_MAX(pl_fp16_to_f32(jobs[i].start) * wider_factors[f], FP16_STEP));
        }
        status = search_rows(e, far, n_far, (destination){words, 1}, sums, err);
        for (size_t i = 0, j = 0; i < n && status == PLEACH_OK; i++) {
            if (!jobs[i].far) continue;
            if (take_better(e, &far[j], sums + j * blocks)) {
                jobs[i].scale = far[j].scale;
                jobs[i].error = far[j].error;
                copy_row(e, codes, jobs[i].row, words + j * row_words);
            }
            j++;
        }
    }
out:
    pl_free(far);
    pl_free(words);
    return status;
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

/* Jobs of `count` rows; zero rows are coded on the spot. */
static pleach_status measure_rows(const pl_encoder *e, row_job *jobs, size_t *n, uint64_t first,
                                  uint64_t count, const float *src, pleach_error *err)
{
    *n = 0;
    for (uint64_t i = 0; i < count; i++) {
        row_job *job = &jobs[*n];
        PL_FAIL_IF(!measure(e, job, first + i, src + i * e->t.cols), err, PLEACH_ERR_DATA,
                   "row %llu holds NaN, infinity, or numbers too large for an fp16 scale",
                   (unsigned long long)(first + i));
        *n += job->power > 0;
    }
    return PLEACH_OK;
}

pleach_status pl_encoder_rows(pl_encoder *e, uint64_t first, uint64_t count, uint32_t *codes,
                              uint16_t *scales, float *decoded, const float *src,
                              pleach_error *err)
{
    const size_t blocks = (size_t)(e->t.cols / e->t.block);
    if (first > e->t.rows || count > e->t.rows - first)
        return pl_fail(err, PLEACH_ERR_ARGUMENT, "trellis: rows %llu to %llu of %llu",
                       (unsigned long long)first, (unsigned long long)(first + count),
                       (unsigned long long)e->t.rows);
    row_job *jobs = pl_alloc(count, sizeof *jobs);
    block_sums *sums = pl_alloc(count * blocks, sizeof *sums);
    pleach_status status;
    size_t n;
    if (!jobs || !sums) {
        status = pl_fail_memory(err, "the trellis encoder's rows", count * blocks * sizeof *sums);
        goto out;
    }
    if ((status = measure_rows(e, jobs, &n, first, count, src, err))) goto out;
    if ((status = search_rows(e, jobs, n, (destination){codes, 0}, sums, err))) goto out;
    for (size_t i = 0; i < n; i++) take_better(e, &jobs[i], sums + i * blocks);
    if ((status = search_wider(e, jobs, n, codes, sums, err))) goto out;

    for (uint64_t i = 0; i < count; i++) scales[first + i] = 0;
    for (size_t i = 0; i < n; i++) scales[jobs[i].row] = jobs[i].scale;
    for (uint64_t i = 0; i < count; i++) {
        if (scales[first + i] == 0) clear_row(e, codes, first + i);
        if (decoded) decode_row(e, decoded + i * e->t.cols, codes, first + i, scales[first + i]);
    }
out:
    pl_free(jobs);
    pl_free(sums);
    return status;
}

pleach_status pleach_trellis_encode(const pleach_trellis *t, uint32_t *codes, uint16_t *scales,
                                    const float *src,
                                    const pleach_trellis_encode_settings *settings,
                                    pleach_error *err)
{
    pl_encoder *e;
    PL_TRY(pl_encoder_open(&e, t, settings, err));
    pleach_status status = pl_encoder_rows(e, 0, t->rows, codes, scales, NULL, src, err);
    pl_encoder_close(e);
    return status;
}
