/* SPDX-License-Identifier: Apache-2.0 */
#include "query.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "connections.h"

/* One prompt in the batch. */
typedef struct part {
    pl_query *query;
    size_t first_choice;
    uint64_t ticket;
} part;

typedef struct choice {
    pl_answer *answer;
    bool stopped; /* by a stop string */
} choice;

struct pl_query {
    pl_query_settings settings;
    part *parts;
    choice *choices;
    size_t submitted, seen; /* parts given to the batch, and seen to have ended */
    double asked;           /* when the client was last looked for */
    /* Under the lock: */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pl_event *first, **last;
    size_t bytes; /* of events in the queue */
    size_t ended; /* parts */
    bool failed;  /* an answer failed; why: */
    pleach_error error;
};

/* ---- on the batch's thread ------------------------------------------------------------------- */

/* The first failure is the query's; its other answers end at their next token. */
static void fail_query(pl_query *q, pleach_status status, const char *message)
{
    pthread_mutex_lock(&q->lock);
    if (!q->failed) pl_fail(&q->error, status, "%s", message ? message : "the answer failed");
    q->failed = true;
    pthread_cond_signal(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

static void push(pl_query *q, pl_event *e)
{
    pthread_mutex_lock(&q->lock);
    *q->last = e;
    q->last = &e->next;
    q->bytes += sizeof *e + e->size;
    bool full = q->bytes > q->settings.most_bytes;
    pthread_cond_signal(&q->changed);
    pthread_mutex_unlock(&q->lock);
    if (full) fail_query(q, PLEACH_ERR_CANCELLED, "the client does not take its answer");
}

/* NULL: out of memory, and the query has failed. */
static pl_event *new_event(pl_query *q, pl_event_kind kind, size_t choice, const void *data,
                           size_t size)
{
    pl_event *e = pl_calloc(1, sizeof *e + size);
    if (!e) {
        fail_query(q, PLEACH_ERR_MEMORY, "out of memory: an answer");
        return NULL;
    }
    e->kind = kind;
    e->choice = choice;
    e->size = size;
    if (size) memcpy(e->data, data, size);
    return e;
}

static void push_pieces(pl_query *q, size_t choice)
{
    pl_answer_piece piece;
    while (pl_answer_next(q->choices[choice].answer, &piece)) {
        pl_event *e = new_event(q, PL_EVENT_PIECE, choice, piece.text, piece.size);
        if (!e) return;
        e->part = piece.part;
        e->call = piece.call;
        push(q, e);
    }
}

static void push_token(pl_query *q, size_t choice, const pleach_token *t)
{
    pl_event_kind kind = t->prompt ? PL_EVENT_PROMPT : PL_EVENT_TOKEN;
    pl_event *e = new_event(q, kind, choice, t->top, t->n_top * sizeof t->top[0]);
    if (!e) return;
    e->id = t->id;
    e->logprob = t->logprob;
    e->n_top = t->n_top;
    push(q, e);
}

static bool has_failed(pl_query *q)
{
    pthread_mutex_lock(&q->lock);
    bool failed = q->failed;
    pthread_mutex_unlock(&q->lock);
    return failed;
}

static int on_token(void *user, const pleach_token *t)
{
    part *p = user;
    pl_query *q = p->query;
    size_t index = p->first_choice + t->answer;
    choice *c = &q->choices[index];
    pleach_error err;
    if (t->prompt || q->settings.request->logprobs) push_token(q, index, t);
    if (!t->prompt && c->answer) {
        if (pl_answer_take(c->answer, t->id, &c->stopped, &err) != PLEACH_OK)
            fail_query(q, err.code, err.message);
        push_pieces(q, index);
    }
    return c->stopped || has_failed(q);
}

static void end_choice(pl_query *q, size_t index, const pleach_answer_end *end)
{
    choice *c = &q->choices[index];
    pleach_error err;
    if (end->status != PLEACH_OK) {
        fail_query(q, end->status, end->message);
        return;
    }
    if (c->answer) {
        if (pl_answer_finish(c->answer, &err) != PLEACH_OK) fail_query(q, err.code, err.message);
        push_pieces(q, index);
    }
    size_t size = end->embedding ? q->settings.hidden_size * sizeof(float) : 0;
    pl_event *e = new_event(q, PL_EVENT_END, index, end->embedding, size);
    if (!e) return;
    e->end = *end;
    e->stopped = c->stopped;
    e->calls = c->answer ? pl_answer_calls(c->answer) : 0;
    push(q, e);
}

static void on_end(void *user, const pleach_answer_end *end)
{
    part *p = user;
    pl_query *q = p->query;
    end_choice(q, p->first_choice + end->answer, end);
    if (!end->last) return;
    pthread_mutex_lock(&q->lock);
    q->ended++;
    pthread_cond_signal(&q->changed);
    pthread_mutex_unlock(&q->lock); /* the query may be gone from here on */
}

/* ---- on the thread that takes ---------------------------------------------------------------- */

static pleach_status submit_next(pl_query *q, pleach_error *err)
{
    part *p = &q->parts[q->submitted];
    const pl_ids *prompt = &q->settings.prompts[q->submitted];
    pleach_request request = *q->settings.request;
    p->query = q;
    p->first_choice = q->submitted * request.answers;
    request.prompt = prompt->ids;
    request.n_prompt = prompt->n;
    request.on_token = on_token;
    request.on_end = on_end;
    request.user = p;
    PL_TRY(pleach_batch_submit(q->settings.batch, &request, &p->ticket, err));
    q->submitted++;
    return PLEACH_OK;
}

/* What of the request the batch refuses: the length of its prompt, else what the answer is to keep
 * to where there is such, for all the rest has been checked. */
static const char *field_of(const pl_query *q, pleach_status status)
{
    const pleach_generation *g = &q->settings.request->generation;
    if (status != PLEACH_ERR_LIMIT && g->grammar) return "grammar";
    if (status != PLEACH_ERR_LIMIT && g->json_schema) return "response_format";
    return q->settings.prompt_name;
}

/* Keeps so many prompts in the batch as may be; a full queue is a refusal to the first alone, later
 * ones wait for their turn. */
static pleach_status submit_more(pl_query *q, size_t running, pl_refusal *r)
{
    pleach_error err;
    for (; q->submitted < q->settings.n_prompts && running < q->settings.at_once; running++) {
        pleach_status status = submit_next(q, &err);
        if (status == PLEACH_ERR_BUSY && q->submitted > 0) return PLEACH_OK;
        if (status != PLEACH_OK) return pl_refuse_error(r, field_of(q, status), &err);
    }
    return PLEACH_OK;
}

static pleach_status open_choices(pl_query *q, pl_refusal *r)
{
    const pl_query_settings *s = &q->settings;
    pleach_error err;
    size_t n = s->n_prompts * s->request->answers;
    q->parts = pl_calloc(s->n_prompts, sizeof *q->parts);
    q->choices = pl_calloc(n, sizeof *q->choices);
    if (!q->parts || !q->choices) return pl_refuse_memory(r);
    for (size_t i = 0; s->answer && i < n; i++)
        if (pl_answer_open(s->tokenizer, s->answer, &q->choices[i].answer, &err) != PLEACH_OK)
            return pl_refuse_error(r, NULL, &err);
    return PLEACH_OK;
}

pleach_status pl_query_open(const pl_query_settings *s, pl_query **out, pl_refusal *r)
{
    pthread_condattr_t attributes;
    pl_query *q = pl_calloc(1, sizeof *q);
    *out = NULL;
    if (!q) return pl_refuse_memory(r);
    q->settings = *s;
    q->last = &q->first;
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&q->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pleach_status status = open_choices(q, r);
    if (status == PLEACH_OK) status = submit_more(q, 0, r);
    if (status == PLEACH_OK)
        *out = q;
    else
        pl_query_close(q);
    return status;
}

/* A tenth of a second at most. The lock is held. */
static void wait_a_moment(pl_query *q)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 100000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&q->changed, &q->lock, &until);
}

/* The oldest event; NULL where there is none yet, and after the last. */
static pl_event *pop(pl_query *q, bool *failed)
{
    pthread_mutex_lock(&q->lock);
    if (!q->first && !q->failed && q->ended < q->settings.n_prompts) wait_a_moment(q);
    pl_event *e = q->failed ? NULL : q->first;
    if (e) {
        q->first = e->next;
        if (!q->first) q->last = &q->first;
        q->bytes -= sizeof *e + e->size;
    }
    *failed = q->failed;
    q->seen = q->ended;
    pthread_mutex_unlock(&q->lock);
    return e;
}

/* Asked ten times a second, whether tokens come or not. */
static bool gave_up(pl_query *q, pl_refusal *r)
{
    double now = pl_seconds();
    if (!q->settings.given_up || now - q->asked < 0.1) return false;
    q->asked = now;
    return q->settings.given_up(q->settings.user, r);
}

pleach_status pl_query_next(pl_query *q, pl_event **event, pl_refusal *r)
{
    for (;;) {
        bool failed;
        if (gave_up(q, r)) return PLEACH_ERR_CANCELLED;
        PL_TRY(submit_more(q, q->submitted - q->seen, r));
        *event = pop(q, &failed);
        if (*event) return PLEACH_OK;
        if (failed) return pl_refuse_error(r, NULL, &q->error);
        if (q->seen == q->settings.n_prompts) return PLEACH_OK;
    }
}

bool pl_query_has_event(pl_query *q)
{
    pthread_mutex_lock(&q->lock);
    bool has = q->first || q->failed;
    pthread_mutex_unlock(&q->lock);
    return has;
}

static void cancel_rest(pl_query *q)
{
    for (size_t i = 0; i < q->submitted; i++)
        pleach_batch_cancel(q->settings.batch, q->parts[i].ticket);
    pthread_mutex_lock(&q->lock);
    while (q->ended < q->submitted) pthread_cond_wait(&q->changed, &q->lock);
    pthread_mutex_unlock(&q->lock);
}

void pl_query_close(pl_query *q)
{
    if (!q) return;
    cancel_rest(q);
    for (size_t i = 0; q->choices && i < q->settings.n_prompts * q->settings.request->answers; i++)
        pl_answer_close(q->choices[i].answer);
    while (q->first) {
        pl_event *e = q->first;
        q->first = e->next;
        pl_free(e);
    }
    pl_free(q->parts);
    pl_free(q->choices);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    pl_free(q);
}
