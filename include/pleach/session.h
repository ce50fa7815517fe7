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

#include "checkpoint.h"
#include "model.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleach_session pleach_session;

typedef struct pleach_session_settings {
    size_t context;   /* most tokens held; 0: the model's own context length (default) */
    const char *kv;   /* types of cached keys and values: "f32" (default), "bf16", or packed, "k8v3":
                         8-bit keys (8, 5, 4, 2) and 3-bit values (8, 5, 4, 3, 2); some layers in
                         another: "k8v3,0-1:bf16". docs/kv.md. Borrowed for the call */
    size_t kv_recent; /* a packed layer sees a query's own block of so many tokens, rounded up to a
                         multiple of 64, in bf16; default 128; 0: none */
    size_t batch;     /* tokens computed at once in a prompt; default 512. No influence on results */
    unsigned char reserved[32];
} pleach_session_settings;

PLEACH_API void pleach_session_settings_defaults(pleach_session_settings *s);

/* PLEACH_ERR_ARGUMENT for types that are not of the form of pleach_session_settings.kv; NULL stands
 * for the default. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_kv_check(const char *kv, pleach_error *err);

/* Memory for the cache grows as tokens come. The model is borrowed until the session is closed.
 * PLEACH_ERR_SHAPE for a cache type that cannot serve the model's head size, or a context too large
 * to address. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_session_open(
    const pleach_model *m, const pleach_session_settings *settings, pleach_session **out,
    pleach_error *err);
PLEACH_API void pleach_session_close(pleach_session *s); /* accepts NULL */

/* A second session with the tokens of the first, sharing the pages of its cache until one of the
 * two writes to them; each goes on, and is closed, on its own, on any thread. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_session_fork(const pleach_session *s,
                                                               pleach_session **out,
                                                               pleach_error *err);

/* Tokens held so far, and going back to the first n of them (n <= position). What token n would
 * see and was dropped, by a sliding window or as no longer recent, is computed again; failing
 * there, the session holds a part of the n tokens. */
PLEACH_API size_t pleach_session_position(const pleach_session *s);
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_session_truncate(pleach_session *s, size_t n,
                                                                   pleach_error *err);

/* The tokens and their cache to a file, which has its name only once it is whole; and such a file
 * in place of what the session holds. Refused, with what was expected and found and the session
 * unchanged: a file of another model, arithmetic, cache types or version, of more tokens than the
 * context holds, and one cut short or altered. docs/kv.md, "The session file". */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_session_save(const pleach_session *s,
                                                               const char *path,
                                                               pleach_error *err);
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_session_load(pleach_session *s, const char *path,
                                                               pleach_error *err);

/* What a cache is made of and takes, scales and zeros counted. */
typedef struct pleach_cache_info {
    char types[256];        /* as in pleach_session_settings.kv; "..." at the end: it was longer */
    double bits;            /* of a number, on average */
    size_t context;         /* most tokens held */
    size_t recent;          /* of them in bf16 too, in whole pages and no more than the context's;
                               0 when no layer is packed */
    uint64_t token_bytes;   /* of one token in all layers, recent ones apart */
    uint64_t context_bytes; /* held at most, at any time up to the full context, in pages of 64
                               tokens; with windows or recent tokens that counts a batch */
    uint64_t state_bytes;   /* of the recurrent layers' state, whatever the length; a few earlier
                               ones are kept beside it. 0: there are none */
    uint64_t bytes;         /* held now; forked sessions count what they share each */
    const char *warning;    /* what these types are known to do to this model, or NULL */
} pleach_cache_info;

PLEACH_API void pleach_session_cache_info(const pleach_session *s, pleach_cache_info *info);
/* The same before anything is loaded: what a session with these settings (NULL: the defaults) would
 * take. PLEACH_ERR_UNSUPPORTED names an architecture without a cache. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_checkpoint_cache_info(
    const pleach_checkpoint *c, const pleach_session_settings *settings, pleach_cache_info *info,
    pleach_error *err);

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
    float presence_penalty;   /* taken from the logit of each id that this sampler has given so far,
                                 the answer's; 0: off (default). -2..2 */
    float frequency_penalty;  /* the same for each time it gave the id; 0: off (default). -2..2 */
    unsigned char reserved[24];
} pleach_sampling;

PLEACH_API void pleach_sampling_defaults(pleach_sampling *s);

typedef struct pleach_sampler pleach_sampler;
/* Checks the settings and copies them. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_sampler_open(const pleach_sampling *settings,
                                                               pleach_sampler **out,
                                                               pleach_error *err);
PLEACH_API void pleach_sampler_close(pleach_sampler *s); /* accepts NULL */

/* The next id. logits [vocab] is changed in place; history: the ids so far (repetition penalty). A
 * row of NaN is PLEACH_ERR_DATA. Order: penalties, temperature, top-k, top-p, min-p, draw. */
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
    /* Texts that the answer keeps to, one of them or none (NULL, default): a grammar in GBNF, or a
     * JSON schema, of which a keyword that cannot be kept to is refused. docs/grammar.md. Borrowed
     * for the call. */
    const char *grammar, *json_schema;
    unsigned char reserved[16];
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
