/* SPDX-License-Identifier: Apache-2.0
 *
 * What a request asks of generation: fields of the body, checked, and the settings of the library
 * that they become. */
#ifndef PL_SERVER_PARAMS_H
#define PL_SERVER_PARAMS_H

#include "body.h"
#include "pleach/batch.h"

enum { PL_MAX_STOPS = 16, PL_MAX_STOP_BYTES = 1024, PL_MAX_ANSWERS = 128 };

typedef struct pl_params {
    bool stream, include_usage, ignore_end, logprobs;
    int64_t n, max_tokens; /* max_tokens -1: as many as the context holds */
    int64_t seed;          /* -1: another one each time */
    int64_t top_logprobs, top_k, repetition_window;
    double temperature, top_p, min_p;
    double presence_penalty, frequency_penalty, repetition_penalty;
    const char *grammar;            /* of the answer; NULL: any */
    json_t *schema;                 /* the same; owned, */
    char *schema_text;              /* as its text */
    const char *stop[PL_MAX_STOPS]; /* borrowed from the body */
    size_t n_stop;
    pleach_logit_bias *bias; /* owned */
    size_t n_bias;
} pl_params;

/* vocab: ids of logit_bias are below it. Release with pl_params_free, also after a failure. */
pleach_status pl_params_read(const json_t *body, size_t vocab, pl_params *p, pl_refusal *r);
void pl_params_free(pl_params *p);

/* Prompt and callbacks are the caller's. Borrows p. */
void pl_params_request(const pl_params *p, pleach_request *request);

#endif
