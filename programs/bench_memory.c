/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast memory is read and written: what speeds of kernels and models are compared with. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/pool.h"
#include "base/threads.h"
#include "bench.h"
#include "console.h"

enum { ROOF_BYTES = 256 << 20 };

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

rate rate_of(double *seconds, size_t repeats, double amount)
{
    qsort(seconds, repeats, sizeof *seconds, compare);
    return (rate){.best = amount / seconds[0], .median = amount / seconds[repeats / 2]};
}

static uint64_t sum_words(const uint64_t *words, size_t n)
{
    uint64_t sum[8] = {0};
    for (size_t i = 0; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) sum[j] += words[i + (size_t)j];
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

/* Each thread's part of a buffer, and the sum of its words. */
typedef struct roof_job {
    uint64_t *words, sums[PL_MAX_THREADS];
    size_t part;
} roof_job;

static void fill_part(void *job, size_t i, int thread)
{
    const roof_job *j = job;
    (void)thread;
    memset(j->words + i * j->part, (int)i + 1, j->part * sizeof *j->words);
}

static void sum_part(void *job, size_t i, int thread)
{
    roof_job *j = job;
    (void)thread;
    j->sums[i] = sum_words(j->words + i * j->part, j->part);
}

int measure_reading(int threads, size_t repeats, rate *roof)
{
    pleach_error err;
    double seconds[MOST_REPEATS];
    size_t n = ROOF_BYTES / sizeof(uint64_t), parts = (size_t)threads;
    roof_job job = {.words = pl_alloc(n, sizeof *job.words), .part = n / parts};
    pl_pool *pool = NULL;
    if (!job.words) return fail("out of memory: the buffer that measures memory");
    if (pl_pool_open(threads, &pool, &err) != PLEACH_OK) {
        pl_free(job.words);
        return fail_status(&err);
    }
    pl_pool_run(pool, parts, fill_part, &job);
    for (size_t r = 0; r < repeats; r++) {
        double start = pl_seconds();
        pl_pool_run(pool, parts, sum_part, &job);
        seconds[r] = pl_seconds() - start;
    }
    *roof = rate_of(seconds, repeats, (double)(job.part * parts * sizeof *job.words));
    pl_pool_close(pool);
    pl_free(job.words);
    uint64_t total = 0;
    for (size_t i = 0; i < parts; i++) total += job.sums[i];
    /* Always false; keeps the reads from being left out. */
    return total == 1 ? fail("memory was not read") : EXIT_OK;
}

int measure_writing(size_t repeats, rate *roof)
{
    double seconds[MOST_REPEATS];
    uint8_t *bytes = pl_alloc(ROOF_BYTES, 1);
    if (!bytes) return fail("out of memory: the buffer that measures memory");
    memset(bytes, 1, ROOF_BYTES);
    for (size_t r = 0; r < repeats; r++) {
        double start = pl_seconds();
        memset(bytes, (int)r, ROOF_BYTES);
        seconds[r] = pl_seconds() - start;
    }
    *roof = rate_of(seconds, repeats, ROOF_BYTES);
    int odd = bytes[ROOF_BYTES / 2] != (uint8_t)(repeats - 1);
    pl_free(bytes);
    return odd ? fail("memory was not written") : EXIT_OK;
}
