/* SPDX-License-Identifier: Apache-2.0
 *
 * Quality on a text: perplexity, and distance from a teacher; and on multiple-choice tasks. */
#ifndef PLEACH_EVAL_H
#define PLEACH_EVAL_H

#include <stddef.h>
#include <stdint.h>

#include "model.h"
#include "session.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pleach_score {
    PLEACH_SCORE_ALL = 0,        /* every prediction of a chunk */
    PLEACH_SCORE_SECOND_HALF = 1 /* predictions of tokens ctx/2+1 .. ctx-1 (257..511 of 512) */
} pleach_score;

typedef struct pleach_eval_settings {
    size_t context;      /* tokens in a chunk; default 512. Each chunk is its own, no BOS added */
    size_t chunks;       /* at most; 0: the whole text (default) */
    pleach_score score;  /* default ALL */
    const char *kv;      /* types of the model's cache, as in pleach_session_settings; default "f32".
                            The teacher's is f32 */
    size_t kv_recent;    /* as in pleach_session_settings; default 128 */
    /* Called after each chunk; non-zero return stops. May be NULL. */
    int (*progress)(void *user, size_t done, size_t total, double perplexity);
    void *user;
    unsigned char reserved[32];
} pleach_eval_settings;

PLEACH_API void pleach_eval_settings_defaults(pleach_eval_settings *s);

typedef struct pleach_eval_result {
    size_t chunks, tokens;          /* tokens scored */
    double nll, nll_error;          /* mean negative log likelihood in nats, its standard error */
    double perplexity, perplexity_error;
    /* With a teacher; zero without. KL(teacher || model) in nats per token. */
    double teacher_perplexity;
    double kl, kl_error, kl_p99, kl_max;
    double same_top;                /* share of tokens with the same likeliest token, 0..1 */
    double seconds;
    pleach_cache_info cache;        /* of the model */
} pleach_eval_result;

/* teacher may be NULL; it must have the same vocabulary. Sums in double, in order. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_eval(const pleach_model *model,
                                                       const pleach_model *teacher,
                                                       const char *text, size_t size,
                                                       const pleach_eval_settings *settings,
                                                       pleach_eval_result *result,
                                                       pleach_error *err);

/* ---- multiple choice ----------------------------------------------------------------------- */

typedef struct pleach_tasks_settings {
    const char *kv; /* as in pleach_eval_settings */
    size_t kv_recent;
    /* Called after each item; non-zero return stops. May be NULL. */
    int (*progress)(void *user, size_t done, size_t total, double accuracy);
    void *user;
    unsigned char reserved[32];
} pleach_tasks_settings;

PLEACH_API void pleach_tasks_settings_defaults(pleach_tasks_settings *s);

/* Shares are 0..1; errors are standard errors of means. */
typedef struct pleach_tasks_result {
    size_t items, choices;          /* choices of all items together */
    double acc, acc_error;          /* the likeliest choice is the answer */
    double acc_norm, acc_norm_error; /* the likeliest by log likelihood over bytes is */
    /* With a teacher; zero without. */
    double teacher_acc, teacher_acc_norm;
    double same_choice, same_choice_norm; /* both models take the same one */
    double seconds;
} pleach_tasks_result;

/* Scores multiple-choice items by the log likelihood of each choice after the context. One JSON
 * object a line: "context" (taken as it is) or "question" (asked as "Question: ...\nAnswer:"),
 * "choices" (2 to 64 texts) and "answer" (the index of the right one); other keys are ignored. A
 * blank goes between context and choice unless one is there. Lines that are not so are refused by
 * their number before any is scored. settings and teacher may be NULL. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_eval_tasks(
    const pleach_model *model, const pleach_model *teacher, const char *lines, size_t size,
    const pleach_tasks_settings *settings, pleach_tasks_result *result, pleach_error *err);

#ifdef __cplusplus
}
#endif
#endif
