/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients of a batch that write down what they are told, and the answers that they should get: those
 * of a session alone. */
#ifndef PLEACH_TESTS_MODEL_BATCH_CLIENTS_H
#define PLEACH_TESTS_MODEL_BATCH_CLIENTS_H

#include <pthread.h>

#include "support.h"

enum { MOST_IDS = 512, MOST_LOGGED = 16 };

typedef struct answer_log {
    int32_t ids[MOST_IDS];
    float logprobs[MOST_IDS];
    pleach_logprob top[MOST_IDS][20];
    size_t n, n_top, ends;
    pleach_answer_end end;
    char message[256];
    float embedding[256];
} answer_log;

typedef struct client {
    pleach_batch *batch;
    uint64_t ticket;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    answer_log *answers; /* [MOST_LOGGED] */
    answer_log *prompt;
    size_t tokens, ends, lasts;
    size_t embedding; /* numbers of one */
    size_t stop_at;   /* on_token refuses to go on at the so-manieth token; 0: never */
    bool held;        /* on_token waits until this is over: the batch stands still */
    bool broken;      /* a token came where none should */
} client;

static inline int client_token(void *user, const pleach_token *t)
{
    client *c = user;
    pthread_mutex_lock(&c->lock);
    answer_log *a = t->prompt ? c->prompt : &c->answers[t->answer];
    c->broken = c->broken || t->position != a->n || a->ends || c->lasts;
    a->ids[a->n] = t->id;
    a->logprobs[a->n] = t->logprob;
    a->n_top = t->n_top;
    for (size_t i = 0; i < t->n_top; i++) a->top[a->n][i] = t->top[i];
    a->n++;
    bool stop = ++c->tokens == c->stop_at;
    pthread_cond_broadcast(&c->changed);
    while (c->held) pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    return stop;
}

static inline void client_end(void *user, const pleach_answer_end *e)
{
    client *c = user;
    pthread_mutex_lock(&c->lock);
    answer_log *a = &c->answers[e->answer];
    a->end = *e;
    a->ends++;
    c->broken = c->broken || c->lasts;
    if (e->message) snprintf(a->message, sizeof a->message, "%s", e->message);
    if (e->embedding) memcpy(a->embedding, e->embedding, c->embedding * sizeof *e->embedding);
    c->ends++;
    c->lasts += e->last != 0;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static inline void client_open(client *c, pleach_batch *b)
{
    *c = (client){.batch = b};
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    c->answers = pl_calloc(MOST_LOGGED + 1, sizeof *c->answers);
    assert_non_null(c->answers);
    c->prompt = &c->answers[MOST_LOGGED];
}

static inline void client_close(client *c)
{
    assert_false(c->broken);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    pl_free(c->answers);
}

static inline pleach_status client_submit(client *c, pleach_request *r, pleach_error *err)
{
    r->on_token = client_token;
    r->on_end = client_end;
    r->user = c;
    return pleach_batch_submit(c->batch, r, &c->ticket, err);
}

/* Until all answers have ended. */
static inline void client_wait(client *c)
{
    pthread_mutex_lock(&c->lock);
    while (!c->lasts) pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

/* Until n tokens have come or all answers have ended. */
static inline void client_wait_tokens(client *c, size_t n)
{
    pthread_mutex_lock(&c->lock);
    while (!c->lasts && c->tokens < n) pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static inline void client_release(client *c)
{
    pthread_mutex_lock(&c->lock);
    c->held = false;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static inline pleach_batch_settings batch_settings(const char *kv, size_t parallel)
{
    pleach_batch_settings s;
    pleach_batch_settings_defaults(&s);
    s.session.kv = kv;
    s.parallel = parallel;
    return s;
}

static inline pleach_batch *open_batch(const pleach_model *m, const pleach_batch_settings *s)
{
    pleach_batch *b;
    must(pleach_batch_open(m, s, &b, &err));
    return b;
}

static inline pleach_request request_of(const int32_t *prompt, size_t n, size_t max_tokens)
{
    pleach_request r;
    pleach_request_defaults(&r);
    r.prompt = prompt;
    r.n_prompt = n;
    r.generation.max_tokens = max_tokens;
    r.generation.ignore_end = 1;
    return r;
}

/* The answer of a session of its own. */
static inline size_t lone_answer(const pleach_model *m, const pleach_session_settings *set,
                                 const pleach_request *r, int32_t *out)
{
    pleach_session *s;
    const int32_t *ids;
    must(pleach_session_open(m, set, &s, &err));
    must(pleach_generate(s, r->prompt, r->n_prompt, &r->generation, NULL, NULL, NULL, &err));
    size_t n = pleach_session_ids(s, &ids) - r->n_prompt;
    memcpy(out, ids + r->n_prompt, n * sizeof *out);
    pleach_session_close(s);
    return n;
}

#endif
