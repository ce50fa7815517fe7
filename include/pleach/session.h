/* SPDX-License-Identifier: Apache-2.0
 *
 * A session: one timeline of tokens over a model, with its KV cache; and generation from it.
 *
 *   pleach_session *s;
 *   pleach_session_open(model, NULL, &s, &err);
 *   pleach_session_feed(s, ids, n, logits, &err);            // logits after the last id
 *   pleach_generate(s, ids, n, &settings, on_text, NULL, &stats, &err);
 *
 * A session is used by one thread at a time; different sessions are independent. */
#ifndef PLEACH_SESSION_H
#define PLEACH_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "model.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleach_session pleach_session;

typedef enum pleach_kv { PLEACH_KV_F32 = 0, PLEACH_KV_BF16 = 1 } pleach_kv;

typedef struct pleach_session_settings {
    size_t context;   /* most tokens held; 0: the model's own context length (default) */
    pleach_kv kv;     /* type of cached keys and values; default F32 */
    size_t batch;     /* tokens computed at once in a prompt; default 512. No influence on results */
    unsigned char reserved[32];
} pleach_session_settings;

PLEACH_API void pleach_session_settings_defaults(pleach_session_settings *s);

/* Memory for the cache grows as tokens come. The model is borrowed until the session is closed. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_session_open(
    const pleach_model *m, const pleach_session_settings *settings, pleach_session **out,
    pleach_error *err);
PLEACH_API void pleach_session_close(pleach_session *s); /* accepts NULL */

/* Tokens held so far, and going back to the first n of them (n <= position). */
PLEACH_API size_t pleach_session_position(const pleach_session *s);
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_session_truncate(pleach_session *s, size_t n,
                                                                   pleach_error *err);
/* Bytes the cache holds now, and bytes one token takes. */
PLEACH_API uint64_t pleach_session_cache_bytes(const pleach_session *s);
PLEACH_API uint64_t pleach_session_token_bytes(const pleach_session *s);

/* Appends ids. logits: NULL, or [vocab_size] f32 after the last id. The same bits whether ids come
 * in one call or many. PLEACH_ERR_LIMIT when the context is full, PLEACH_ERR_ARGUMENT for an id
 * outside the vocabulary; the session is then unchanged. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_session_feed(pleach_session *s,
                                                               const int32_t *ids, size_t n,
                                                               float *logits, pleach_error *err);

/* Appends ids and gives logits for every position from `first` (0 <= first <= n) on:
 * logits [n - first][vocab_size] f32. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_session_feed_all(pleach_session *s,
                                                                   const int32_t *ids, size_t n,
                                                                   size_t first, float *logits,
                                                                   pleach_error *err);

/* ---- sampling ------------------------------------------------------------------------------ */

typedef struct pleach_sampling {
    float temperature;        /* 0: greedy, ties to the lowest id (default). >= 0, finite */
    int32_t top_k;            /* keep the k likeliest; 0 or less: off (default) */
    float top_p;              /* keep the likeliest that sum to p; 1: off (default). 0..1 */
    float min_p;              /* drop tokens below p times the likeliest; 0: off (default). 0..1 */
    float repetition_penalty; /* > 0; 1: off (default). Positive logits are divided by it, others
                                 multiplied */
    int32_t repetition_window; /* tokens looked back on; -1: all (default) */
    uint64_t seed;            /* default 0 */
    unsigned char reserved[32];
} pleach_sampling;

PLEACH_API void pleach_sampling_defaults(pleach_sampling *s);

typedef struct pleach_sampler pleach_sampler;
/* Checks the settings and copies them. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_sampler_open(const pleach_sampling *settings,
                                                               pleach_sampler **out,
                                                               pleach_error *err);
PLEACH_API void pleach_sampler_close(pleach_sampler *s); /* accepts NULL */

/* The next id. logits [vocab] is changed in place; history: the ids so far (penalty). A row of NaN
 * is PLEACH_ERR_DATA. Order: penalty, temperature, top-k, top-p, min-p, draw. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_sample(pleach_sampler *s, float *logits,
                                                         size_t vocab, const int32_t *history,
                                                         size_t n_history, int32_t *id,
                                                         pleach_error *err);

/* ---- generation ---------------------------------------------------------------------------- */

typedef enum pleach_finish {
    PLEACH_FINISH_END = 0,      /* the model ended its answer */
    PLEACH_FINISH_LENGTH = 1,   /* max_tokens, or the context is full */
    PLEACH_FINISH_CANCELLED = 2 /* the callback said so */
} pleach_finish;

typedef struct pleach_generation {
    pleach_sampling sampling;
    size_t max_tokens;   /* 0: as many as the context holds (default) */
    int ignore_end;      /* 1: go on past end tokens. Default 0 */
    unsigned char reserved[32];
} pleach_generation;

PLEACH_API void pleach_generation_defaults(pleach_generation *g);

/* Called after every new token with the whole UTF-8 characters it completed, never part of one;
 * size is 0 when it completed none, and when it is asked between two pieces of a long prompt
 * whether to go on. Non-zero return stops. */
typedef int pleach_text_fn(void *user, const char *text, size_t size);

typedef struct pleach_generation_stats {
    size_t prompt_tokens; /* of the prompt in the session: all, unless stopped in the prompt */
    size_t cached_tokens; /* those of them that the session held already */
    size_t new_tokens;
    double prompt_seconds, generation_seconds;
    pleach_finish finish;
} pleach_generation_stats;

/* Brings the session to exactly the tokens `prompt` (reusing the prefix it holds already), then
 * generates. All new tokens, without the end token, are appended to the session's timeline. Stopped
 * or failing while the prompt is read, the session holds a prefix of it, which the next call
 * reuses. on_text may be NULL: the prompt is then not interrupted. stats may be NULL. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_generate(
    pleach_session *s, const int32_t *prompt, size_t n_prompt, const pleach_generation *settings,
    pleach_text_fn *on_text, void *user, pleach_generation_stats *stats, pleach_error *err);

/* Ids the session holds: *ids is borrowed until the session changes. */
PLEACH_API size_t pleach_session_ids(const pleach_session *s, const int32_t **ids);

#ifdef __cplusplus
}
#endif
#endif
