/* SPDX-License-Identifier: Apache-2.0
 *
 * Continuous batching: many requests answered side by side by one model.
 *
 *   pleach_batch *b;
 *   pleach_batch_open(model, NULL, &b, &err);
 *   pleach_request r;
 *   pleach_request_defaults(&r);
 *   r.prompt = ids, r.n_prompt = n, r.on_token = got, r.on_end = ended, r.user = me;
 *   pleach_batch_submit(b, &r, &ticket, &err);           // returns at once
 *
 * A thread of its own computes: every step one token for each running answer, and between two steps
 * a piece of the prompt of one that is about to run, so that a long prompt stalls nobody. Pages of
 * the cache are shared by answers of one request and kept, within a bound, for requests that begin
 * with the same tokens; the least recently used go first. An answer has the same tokens as it would
 * have alone, greedy or seeded, whatever runs beside it, however its prompt was cut and whatever of
 * it was kept (on a device: where the model is open with batch_invariant). */
#ifndef PLEACH_BATCH_H
#define PLEACH_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "session.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleach_batch pleach_batch;

typedef struct pleach_batch_settings {
    pleach_session_settings session; /* of each answer: context, cache types, batch */
    size_t parallel;    /* answers computed at once, 1 to 64; default 8 */
    size_t queue;       /* requests that wait at most; default 64; 0: none, who cannot run is refused */
    size_t chunk;       /* prompt tokens between two steps; default 128. No influence on results */
    uint64_t kept_bytes; /* of cache kept for later requests, beside what answers hold; default
                            1 GiB; 0: nothing is kept */
    unsigned char reserved[32];
} pleach_batch_settings;

PLEACH_API void pleach_batch_settings_defaults(pleach_batch_settings *s);

/* Starts the thread. The model is borrowed until closing. settings may be NULL. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_batch_open(const pleach_model *m,
                                                             const pleach_batch_settings *settings,
                                                             pleach_batch **out, pleach_error *err);
/* Cancels what waits or runs, waits for the last on_end, stops the thread. Accepts NULL. */
PLEACH_API void pleach_batch_close(pleach_batch *b);

/* ---- requests ------------------------------------------------------------------------------ */

typedef struct pleach_logprob {
    int32_t id;
    float logprob; /* ln of its probability at temperature 1, before penalties, biases and filters */
} pleach_logprob;

/* A new token of an answer, or with `prompt` one of the prompt. Arrays are borrowed for the call. */
typedef struct pleach_token {
    size_t answer;   /* 0 .. answers-1; 0 for the prompt */
    size_t position; /* in the answer, or in the prompt */
    int prompt;
    int32_t id;
    float logprob; /* where logprobs were asked for; NaN for the prompt's first token */
    const pleach_logprob *top; /* the likeliest, best first */
    size_t n_top;
} pleach_token;

/* How an answer ended; every answer of a request that was taken ends once. */
typedef struct pleach_answer_end {
    size_t answer;
    int last;               /* no call for this request comes after this one */
    pleach_finish finish;   /* CANCELLED: by pleach_batch_cancel, closing or on_token, or failed */
    pleach_status status;   /* PLEACH_OK, or why it failed; */
    const char *message;    /* then what pleach_error would say. Borrowed for the call */
    size_t prompt_tokens, cached_tokens; /* of the prompt, those that were kept from before */
    size_t new_tokens;
    double queue_seconds, prompt_seconds, generation_seconds;
    const float *embedding; /* where `embed` was asked for: [hidden_size]. Borrowed for the call */
} pleach_answer_end;

typedef struct pleach_logit_bias {
    int32_t id;
    float bias; /* added to the logit, before filters */
} pleach_logit_bias;

typedef enum pleach_embed {
    PLEACH_EMBED_NONE = 0, /* generate (default) */
    PLEACH_EMBED_MEAN = 1, /* no token is generated: the mean of the last norm's outputs, or */
    PLEACH_EMBED_LAST = 2  /* the last token's, scaled to length 1. Not on a device */
} pleach_embed;

typedef struct pleach_request {
    const int32_t *prompt; /* copied */
    size_t n_prompt;
    pleach_generation generation; /* texts in it are copied. max_tokens as there; and: */
    int no_tokens;                /* 1: not even one token, the prompt alone. Default 0 */
    size_t answers;               /* default 1, up to 128. Answer i draws by its own seed, made of
                                     generation.sampling.seed and i; answer 0 by the seed itself */
    const pleach_logit_bias *bias; /* copied */
    size_t n_bias;
    int logprobs;        /* 1: of each new token, with so many of the likeliest: */
    size_t top_logprobs; /* up to 20 */
    int prompt_logprobs; /* 1: on_token for each token of the prompt first; nothing kept is used */
    pleach_embed embed;
    /* On the batch's thread, which waits meanwhile: neither may block nor call pleach_batch_.. but
     * submit and cancel. on_token: non-zero ends the answer. Both may be NULL. */
    int (*on_token)(void *user, const pleach_token *t);
    void (*on_end)(void *user, const pleach_answer_end *e);
    void *user;
    unsigned char reserved[32];
} pleach_request;

PLEACH_API void pleach_request_defaults(pleach_request *r);

/* Checks the request, then puts it into the queue; *ticket names it. Any thread.
 * PLEACH_ERR_BUSY: as many wait as may. PLEACH_ERR_LIMIT: the prompt leaves no room in the context.
 * Other refusals as of pleach_generate. Nothing is called for a request that was refused. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_batch_submit(pleach_batch *b,
                                                               const pleach_request *r,
                                                               uint64_t *ticket, pleach_error *err);
/* Ends all answers of a request soon, waiting, in its prompt or generating; nothing happens when it
 * has ended. Any thread. */
PLEACH_API void pleach_batch_cancel(pleach_batch *b, uint64_t ticket);

/* ---- state --------------------------------------------------------------------------------- */

typedef struct pleach_batch_info {
    size_t waiting, running;      /* requests; answers */
    size_t context;               /* tokens an answer may hold, its prompt among them */
    uint64_t requests;            /* ended since opening, */
    uint64_t prompt_tokens, cached_tokens, new_tokens; /* and tokens */
    uint64_t steps;               /* passes that gave tokens */
    double prompt_seconds, step_seconds; /* spent in pieces of prompts and in steps */
    uint64_t cache_bytes, kept_bytes; /* held by running answers; kept for later */
    size_t kept;                  /* sequences kept */
} pleach_batch_info;

PLEACH_API void pleach_batch_get_info(pleach_batch *b, pleach_batch_info *info);
/* What the cache of one answer is made of, as pleach_session_cache_info. */
PLEACH_API void pleach_batch_cache_info(const pleach_batch *b, pleach_cache_info *info);

#ifdef __cplusplus
}
#endif
#endif
