/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread of a batch and the queue before it. */
#include "batch.h"

#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

void pleach_batch_settings_defaults(pleach_batch_settings *s)
{
    *s = (pleach_batch_settings){
        .parallel = 8, .queue = 64, .chunk = 128, .kept_bytes = (uint64_t)1 << 30};
    pleach_session_settings_defaults(&s->session);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void append(pl_request **list, pl_request *r)
{
    while (*list) list = &(*list)->next;
    r->next = NULL;
    *list = r;
}

static void unlink_request(pl_request **list, const pl_request *r)
{
    while (*list != r) list = &(*list)->next;
    *list = r->next;
}

void pl_batch_forget(pleach_batch *b, pl_request *r)
{
    pthread_mutex_lock(&b->lock);
    unlink_request(&b->active, r);
    pthread_mutex_unlock(&b->lock);
    pl_request_close(r);
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Places that are had, and those that answers of requests under way would take at once. */
static void count_places(const pleach_batch *b, size_t *had, size_t *wanted)
{
    *had = b->n_running;
    *wanted = 0;
    for (const pl_request *r = b->active; r; r = r->next) {
        if (!r->prompted) ++*had;
        *wanted += r->asked.answers - r->begun - !r->prompted;
    }
}

static void publish_places(pleach_batch *b)
{
    size_t had, wanted;
    count_places(b, &had, &wanted);
    b->places = b->parallel > had + wanted ? b->parallel - had - wanted : 0;
}

/* The oldest whose prompt is done and whose answers have not all begun. */
static pl_request *next_to_begin(const pleach_batch *b)
{
    for (pl_request *r = b->active; r; r = r->next)
        if (r->prompted && r->begun < r->asked.answers) return r;
    return NULL;
}

void pl_batch_publish_end(pleach_batch *b, bool had_place)
{
    pthread_mutex_lock(&b->lock);
    b->info = b->sums;
    if (had_place && !next_to_begin(b)) b->places++;
    pthread_mutex_unlock(&b->lock);
}

static void begin_later(pleach_batch *b, pl_request *r)
{
    if (r->logits) memcpy(b->logits, r->logits, b->vocab * sizeof *b->logits);
    pl_answer_begin(b, r, r->logits ? b->logits : NULL, r->best);
}

/* The next in the queue is under way from now on; false when none waits. */
static bool take_waiting(pleach_batch *b)
{
    pthread_mutex_lock(&b->lock);
    pl_request *r = b->waiting;
    if (r) {
        b->waiting = r->next;
        b->n_waiting--;
        append(&b->active, r);
    }
    publish_places(b);
    pthread_mutex_unlock(&b->lock);
    return r != NULL;
}

static void fill_places(pleach_batch *b)
{
    for (;;) {
        size_t had, wanted;
        count_places(b, &had, &wanted);
        if (had >= b->parallel) return;
        pl_request *r = next_to_begin(b);
        if (r)
            begin_later(b, r);
        else if (!take_waiting(b))
            return;
    }
}

/* ---- cancelling ------------------------------------------------------------------------------ */

static void cancel_running(pleach_batch *b)
{
    size_t n = b->n_running;
    b->n_running = 0;
    for (size_t i = 0; i < n; i++) {
        pl_sequence *s = b->running[i];
        if (atomic_load(&s->request->cancelled))
            pl_answer_end(b, s, PLEACH_FINISH_CANCELLED, NULL);
        else
            b->running[b->n_running++] = s;
    }
}

/* A cancelled one that waits is put under way, to be ended there. */
static void take_cancelled(pleach_batch *b)
{
    pthread_mutex_lock(&b->lock);
    for (pl_request **at = &b->waiting, *r; (r = *at);) {
        if (atomic_load(&r->cancelled)) {
            *at = r->next;
            b->n_waiting--;
            append(&b->active, r);
        } else {
            at = &r->next;
        }
    }
    pthread_mutex_unlock(&b->lock);
}

static void end_cancelled(pleach_batch *b)
{
    cancel_running(b);
    take_cancelled(b);
    for (pl_request *r = b->active, *next; r; r = next) {
        next = r->next;
        if (atomic_load(&r->cancelled) && r->begun < r->asked.answers)
            pl_request_end_rest(b, r, PLEACH_FINISH_CANCELLED, NULL);
    }
}

void pleach_batch_cancel(pleach_batch *b, uint64_t ticket)
{
    pthread_mutex_lock(&b->lock);
    pl_request *lists[] = {b->waiting, b->active};
    for (int i = 0; i < 2; i++)
        for (pl_request *r = lists[i]; r; r = r->next)
            if (r->ticket == ticket) atomic_store(&r->cancelled, true);
    pthread_mutex_unlock(&b->lock);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Adding up pages takes its time: not after every step. */
static void count_bytes(pleach_batch *b)
{
    double bytes = 0;
    if (!b->ended && b->sums.steps % PL_CACHE_PAGE) return;
    b->ended = false;
    pl_kept_trim(&b->kept);
    for (size_t i = 0; i < b->n_running; i++)
        bytes += pl_cache_share(b->running[i]->session->cache);
    for (const pl_request *r = b->active; r; r = r->next)
        if (r->session) bytes += pl_cache_share(r->session->cache);
    b->sums.cache_bytes = (uint64_t)(bytes + 0.5);
}

static void publish(pleach_batch *b)
{
    count_bytes(b);
    b->sums.kept_bytes = b->kept.bytes;
    b->sums.kept = b->kept.n;
    b->sums.running = b->n_running;
    pthread_mutex_lock(&b->lock);
    b->info = b->sums;
    publish_places(b);
    pthread_mutex_unlock(&b->lock);
}

/* False: the batch is closed and nothing is under way. */
static bool wait_for_work(pleach_batch *b)
{
    pthread_mutex_lock(&b->lock);
    while (!b->waiting && !b->active && !b->closing) pthread_cond_wait(&b->work, &b->lock);
    for (pl_request *r = b->waiting; r && b->closing; r = r->next) atomic_store(&r->cancelled, true);
    for (pl_request *r = b->active; r && b->closing; r = r->next) atomic_store(&r->cancelled, true);
    bool any = b->waiting || b->active;
    pthread_mutex_unlock(&b->lock);
    return any;
}

static void *serve(void *batch)
{
    pleach_batch *b = batch;
    while (wait_for_work(b)) {
        end_cancelled(b);
        fill_places(b);
        pl_batch_prompt(b);
        pl_batch_step(b);
        publish(b);
    }
    return NULL;
}

/* ---- opening --------------------------------------------------------------------------------- */

static pleach_status check_settings(const pleach_batch_settings *s, pleach_error *err)
{
    PL_FAIL_IF(s->parallel == 0 || s->parallel > PL_MOST_PARALLEL, err, PLEACH_ERR_ARGUMENT,
               "%zu answers at once: expected 1 to %d", s->parallel, PL_MOST_PARALLEL);
    PL_FAIL_IF(s->chunk == 0, err, PLEACH_ERR_ARGUMENT,
               "expected pieces of at least one token of a prompt");
    return PLEACH_OK;
}

static pleach_status open_parts(pleach_batch *b, const pleach_batch_settings *s, pleach_error *err)
{
    enum { PROMPT_ROWS = 32 }; /* of logits at once, where a prompt's are asked for */
    pleach_session_settings session = s->session;
    session.batch = PL_MAX(s->parallel, s->chunk);
    PL_TRY(pleach_session_open(b->model, &session, &b->root, err));
    b->rows = PL_MAX(s->parallel, (size_t)PROMPT_ROWS);
    b->logits = pl_alloc(b->rows, b->vocab * sizeof *b->logits);
    if (!b->logits) return pl_fail_memory(err, "logits", b->rows * b->vocab * sizeof *b->logits);
    b->sums.context = b->root->context;
    b->info = b->sums;
    b->places = s->parallel;
    return PLEACH_OK;
}

static void close_parts(pleach_batch *b)
{
    pl_kept_close(&b->kept);
    pleach_session_close(b->root);
    pl_free(b->logits);
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->work);
    pl_free(b);
}

pleach_status pleach_batch_open(const pleach_model *m, const pleach_batch_settings *settings,
                                pleach_batch **out, pleach_error *err)
{
    pleach_batch_settings set;
    pleach_batch_settings_defaults(&set);
    if (settings) set = *settings;
    *out = NULL;
    PL_TRY(check_settings(&set, err));
    pleach_batch *b = pl_calloc(1, sizeof *b);
    if (!b) return pl_fail_memory(err, "batch", sizeof *b);
    *b = (pleach_batch){.model = m, .parallel = set.parallel, .queue = set.queue,
                        .chunk = set.chunk, .vocab = m->transformer->config->vocab_size,
                        .kept = {.most = set.kept_bytes}};
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->work, NULL);
    pleach_status status = open_parts(b, &set, err);
    if (status == PLEACH_OK && pthread_create(&b->thread, NULL, serve, b) != 0)
        status = pl_fail(err, PLEACH_ERR_MEMORY, "the system gives no thread for a batch");
    if (status == PLEACH_OK)
        *out = b;
    else
        close_parts(b);
    return status;
}

void pleach_batch_close(pleach_batch *b)
{
    if (!b) return;
    pthread_mutex_lock(&b->lock);
    b->closing = true;
    pthread_cond_signal(&b->work);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
    close_parts(b);
}

pleach_status pleach_batch_submit(pleach_batch *b, const pleach_request *asked, uint64_t *ticket,
                                  pleach_error *err)
{
    pl_request *r;
    PL_TRY(pl_request_open(b, asked, &r, err));
    r->submitted = pl_seconds();
    pthread_mutex_lock(&b->lock);
    size_t waiting = b->n_waiting;
    bool closing = b->closing, full = waiting >= b->places && waiting - b->places >= b->queue;
    if (!closing && !full) {
        *ticket = r->ticket = ++b->tickets;
        append(&b->waiting, r);
        b->n_waiting++;
        pthread_cond_signal(&b->work);
    }
    pthread_mutex_unlock(&b->lock);
    if (!closing && !full) return PLEACH_OK;
    pl_request_close(r);
    return closing ? pl_fail(err, PLEACH_ERR_CANCELLED, "the batch is closing")
                   : pl_fail(err, PLEACH_ERR_BUSY, "%zu requests wait: no more may", waiting);
}

/* ---- state ----------------------------------------------------------------------------------- */

void pleach_batch_get_info(pleach_batch *b, pleach_batch_info *info)
{
    pthread_mutex_lock(&b->lock);
    *info = b->info;
    info->waiting = b->n_waiting;
    pthread_mutex_unlock(&b->lock);
}

void pleach_batch_cache_info(const pleach_batch *b, pleach_cache_info *info)
{
    pleach_session_cache_info(b->root, info);
}
