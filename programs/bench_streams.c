/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests side by side through pleach_batch: tokens per second together, and the time to a first
 * token with and without a kept beginning. */
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"
#include "bench.h"
#include "console.h"
#include "pleach/batch.h"

/* One run. Generation is timed from when every stream has a token. */
typedef struct run {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t streams, begun, ended, tokens;
    size_t at_start; /* tokens then */
    double start, end;
    pleach_status status;
    pleach_error *err;
} run;

static int got_token(void *user, const pleach_token *t)
{
    run *r = user;
    pthread_mutex_lock(&r->lock);
    r->tokens++;
    if (t->position == 0 && ++r->begun == r->streams) {
        r->start = pl_seconds();
        r->at_start = r->tokens;
    }
    pthread_mutex_unlock(&r->lock);
    return interrupted();
}

static void got_end(void *user, const pleach_answer_end *e)
{
    run *r = user;
    pthread_mutex_lock(&r->lock);
    if (e->status != PLEACH_OK) r->status = pl_fail(r->err, e->status, "%s", e->message);
    r->end = pl_seconds();
    r->ended++;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static pleach_status run_requests(pleach_batch *b, pleach_request *q, const int32_t *ids,
                                  size_t apart, run *r)
{
    size_t taken = 0;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    q->on_token = got_token;
    q->on_end = got_end;
    q->user = r;
    for (; r->status == PLEACH_OK && taken < r->streams; taken++) {
        uint64_t ticket;
        q->prompt = ids + taken * apart;
        r->status = pleach_batch_submit(b, q, &ticket, r->err);
        if (r->status != PLEACH_OK) break;
    }
    pthread_mutex_lock(&r->lock);
    while (r->ended < taken) pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    if (r->status == PLEACH_OK && interrupted())
        r->status = pl_fail(r->err, PLEACH_ERR_CANCELLED, "interrupted");
    return r->status;
}

static int32_t *random_ids(const pleach_model *m, size_t n, pleach_error *err)
{
    pleach_model_info info;
    uint64_t random = 2;
    int32_t *ids = pl_alloc(n, sizeof *ids);
    pleach_model_get_info(m, &info);
    if (!ids) pl_fail_memory(err, "token ids", n * sizeof *ids);
    for (size_t i = 0; ids && i < n; i++)
        ids[i] = (int32_t)(pl_random_next(&random) % info.vocab_size);
    return ids;
}

pleach_status measure_streams(const pleach_model *m, const pleach_session_settings *session,
                              size_t streams, size_t tokens, float temperature, size_t repeats,
                              rate *out, pleach_error *err)
{
    enum { PROMPT = 8 };
    double seconds[MOST_REPEATS];
    pleach_batch_settings set;
    pleach_batch *b = NULL;
    pleach_batch_settings_defaults(&set);
    set.session = *session;
    set.parallel = streams;
    set.kept_bytes = 0;
    int32_t *ids = random_ids(m, streams * PROMPT, err);
    if (!ids) return PLEACH_ERR_MEMORY;
    pleach_status status = pleach_batch_open(m, &set, &b, err);
    for (size_t i = 0; status == PLEACH_OK && i < repeats; i++) {
        pleach_request q;
        run r = {.streams = streams, .err = err};
        progress_line("%zu streams of %zu tokens, run %zu of %zu", streams, tokens, i + 1, repeats);
        pleach_request_defaults(&q);
        q.n_prompt = PROMPT;
        q.generation.max_tokens = tokens;
        q.generation.ignore_end = 1;
        q.generation.sampling.temperature = temperature;
        q.generation.sampling.top_p = temperature > 0 ? 0.95f : 1;
        status = run_requests(b, &q, ids, PROMPT, &r);
        seconds[i] = (r.end - r.start) / (double)PL_MAX(r.tokens - r.at_start, (size_t)1);
    }
    pleach_batch_close(b);
    pl_free(ids);
    if (status == PLEACH_OK) *out = rate_of(seconds, repeats, 1);
    return status;
}

/* One request alone; the seconds to its first token. */
static pleach_status first_token(pleach_batch *b, const int32_t *ids, size_t n, double *seconds,
                                 pleach_error *err)
{
    pleach_request q;
    run r = {.streams = 1, .err = err};
    pleach_request_defaults(&q);
    q.n_prompt = n;
    q.generation.max_tokens = 1;
    q.generation.ignore_end = 1;
    double start = pl_seconds();
    pleach_status status = run_requests(b, &q, ids, 0, &r);
    *seconds = r.start - start;
    return status;
}

pleach_status measure_prefix(const pleach_model *m, const pleach_session_settings *session,
                             size_t prefix, size_t repeats, rate *without, rate *with,
                             pleach_error *err)
{
    enum { OWN = 16 };
    double seconds[2][MOST_REPEATS];
    pleach_batch_settings set;
    pleach_status status = PLEACH_OK;
    pleach_batch_settings_defaults(&set);
    set.session = *session;
    int32_t *ids = random_ids(m, prefix + OWN, err);
    if (!ids) return PLEACH_ERR_MEMORY;
    for (size_t i = 0; status == PLEACH_OK && i < repeats; i++) {
        pleach_batch *b = NULL;
        double second;
        progress_line("first token after %zu kept ones, run %zu of %zu", prefix, i + 1, repeats);
        status = pleach_batch_open(m, &set, &b, err);
        /* The second request shows where requests part; the third finds that. */
        if (status == PLEACH_OK) status = first_token(b, ids, prefix + OWN, &seconds[0][i], err);
        for (int k = 1; status == PLEACH_OK && k < 3; k++) {
            for (size_t j = 0; j < OWN; j++) ids[prefix + j] = (ids[prefix + j] + 1) % 100;
            status = first_token(b, ids, prefix + OWN, k == 1 ? &second : &seconds[1][i], err);
        }
        pleach_batch_close(b);
    }
    pl_free(ids);
    if (status != PLEACH_OK) return status;
    *without = rate_of(seconds[0], repeats, 1);
    *with = rate_of(seconds[1], repeats, 1);
    return PLEACH_OK;
}
