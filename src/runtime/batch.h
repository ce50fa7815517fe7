/* SPDX-License-Identifier: Apache-2.0
 *
 * The insides of a batch, for the other files of this folder: batch.c has the thread and the queue,
 * batch_request.c what was asked, batch_prompt.c the way to a request's first logits, batch_answer.c
 * choosing and handing over tokens, batch_step.c the tokens of all answers side by side, and kept.c
 * sequences that are kept.
 *
 * A request waits, then is under way until all of its answers have ended. It has its prompt computed
 * first, in one of `parallel` places; then each of its answers takes a place for as long as it runs.
 * All of this is the thread's alone but for what lies under the lock. */
#ifndef PL_RUNTIME_BATCH_H
#define PL_RUNTIME_BATCH_H

#include <pthread.h>
#include <stdatomic.h>

#include "constraint.h"
#include "kept.h"
#include "pleach/batch.h"
#include "session.h"

enum { PL_MOST_PARALLEL = 64, PL_MOST_ANSWERS = 128, PL_MOST_TOP = 20 };

/* ---- requests -------------------------------------------------------------------------------- */

typedef struct pl_request pl_request;
struct pl_request {
    pl_request *next; /* in its list */
    uint64_t ticket;
    pleach_request asked; /* prompt and bias are copies of our own; texts are NULL */
    pl_grammar *grammar;  /* may be NULL */
    atomic_bool cancelled;
    double submitted, started, prompted; /* seconds of the clock; 0: not yet */
    /* The prompt so far; the session is NULL before it and once the last answer has taken it. */
    pleach_session *session;
    size_t cached;
    size_t branch;       /* where others left this prompt; a copy is kept there. 0: nowhere */
    double *hidden;      /* [C] sum of outputs; NULL: no mean is asked for */
    float *last;         /* [C] an embedding */
    float *previous;     /* [vocab] the last piece's last logits, for logprobs of the prompt */
    float *logits;       /* [vocab] after the prompt, for answers that begin later */
    int32_t best;        /* or the likeliest id */
    size_t begun, ended; /* answers */
};

/* Checks what is asked of a batch and copies it. */
pleach_status pl_request_open(const pleach_batch *b, const pleach_request *asked, pl_request **out,
                              pleach_error *err);
void pl_request_close(pl_request *r); /* accepts NULL */
/* No token is generated. */
bool pl_request_no_tokens(const pl_request *r);

/* ---- answers --------------------------------------------------------------------------------- */

/* An answer that runs: the session holds all of it but `id`, the token last chosen. */
typedef struct pl_sequence {
    pl_request *request;
    size_t index;
    pleach_session *session;
    pleach_sampler *sampler;
    pl_constraint *constraint; /* may be NULL */
    float *row;                /* [vocab] a copy to sample from; NULL: the logits themselves are */
    size_t new_tokens, most;
    /* What was chosen from the last logits. */
    int32_t id;
    bool ended; /* nothing: a grammar's text is whole */
    float logprob;
    pleach_logprob top[PL_MOST_TOP];
    pleach_error error; /* or why nothing could be */
} pl_sequence;

/* ---- the batch ------------------------------------------------------------------------------- */

struct pleach_batch {
    const pleach_model *model;
    size_t parallel, queue, chunk, vocab;
    pleach_session *root; /* empty: sequences compute in its workspace */
    float *logits;        /* [rows][vocab] */
    size_t rows;
    pl_sequence *running[PL_MOST_PARALLEL];
    size_t n_running;
    pl_kept kept;
    bool ended;       /* some answer has, since bytes were counted */
    bool oldest_next; /* prompt to have its next piece; else the one with the fewest tokens left */
    pleach_batch_info sums; /* published as `info` between two steps */
    pthread_t thread;

    pthread_mutex_t lock;
    pthread_cond_t work;
    pl_request *waiting, *active; /* oldest first; the thread reads the latter without the lock */
    size_t n_waiting, places;     /* places that nobody has or is about to take */
    uint64_t tickets;
    bool closing;
    pleach_batch_info info;
};

/* One piece of a prompt, if there is any; after the last the request's first answer begins. */
void pl_batch_prompt(pleach_batch *b);
/* A token for each running answer. */
void pl_batch_step(pleach_batch *b);

/* Begins the request's next answer from what comes after its prompt: logits, which are changed, or
 * without any from the likeliest id. */
void pl_answer_begin(pleach_batch *b, pl_request *r, float *logits, int32_t best);
/* Whether tokens are chosen from logits, not from the likeliest id alone. */
bool pl_request_wants_logits(const pl_request *r);
/* Chooses the next token. Different sequences may do so at once. */
void pl_answer_choose(pl_sequence *s, float *logits, int32_t best);
/* Hands over what was chosen. False: that ended the answer, and s is closed. */
bool pl_answer_deliver(pleach_batch *b, pl_sequence *s);
/* Ends an answer that runs; status says why it failed, PLEACH_OK that it did not. */
void pl_answer_end(pleach_batch *b, pl_sequence *s, pleach_finish finish, const pleach_error *why);
/* Ends those of a request that have not begun; the request is closed if no other runs. */
void pl_request_end_rest(pleach_batch *b, pl_request *r, pleach_finish finish,
                         const pleach_error *why);
/* Before on_end: who is told of it finds the sums up to date, and the place free that it had. */
void pl_batch_publish_end(pleach_batch *b, bool had_place);
/* Takes a request that has ended off the list of those under way and closes it. */
void pl_batch_forget(pleach_batch *b, pl_request *r);

#endif
