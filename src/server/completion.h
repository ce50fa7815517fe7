/* SPDX-License-Identifier: Apache-2.0
 *
 * A request for text on its way to an answer: prompts, settings, choices. What chat and plain
 * completions share; completion_chat.c and completion_text.c have what is their own, and both can
 * be answered at once (completion_whole.c) or in pieces (completion_stream.c). */
#ifndef PL_SERVER_COMPLETION_H
#define PL_SERVER_COMPLETION_H

#include "exchange.h"
#include "query.h"
#include "params.h"

/* A tool call as it comes. */
typedef struct pl_call {
    char id[32];
    pl_buffer name, arguments;
} pl_call;

typedef struct pl_choice {
    pl_buffer content, reasoning; /* of whole answers; a stream keeps none of them */
    pl_call *calls;
    size_t n_calls, call_capacity;
    json_t *logprobs; /* of chat a list, of completions an object of lists; NULL: none wanted */
    size_t offset;    /* characters in front of the next token, for completions' lists */
    bool begun;       /* a stream has said something of it */
    pl_event *end; /* PL_EVENT_END, owned */
} pl_choice;

typedef struct pl_completion {
    pl_exchange *exchange;
    json_t *body; /* what params borrow from */
    pl_params params;
    bool chat, echo;
    int64_t created;
    pl_ids *prompts;
    size_t n_prompts;
    pl_buffer form;    /* the grammar of an answer that has to be a call */
    pl_buffer *echoes; /* of echo: the prompts' texts */
    pl_answer_settings answer;
    pleach_request request;
    pl_query *query;
    pl_choice *choices;
    size_t n_choices;
    /* Of a stream: */
    bool done; /* nothing comes after what is in exchange->out */
    bool broken;
} pl_completion;

/* Reads the fields that both share, then the prompts; both in *out, which is closed whatever comes
 * back. */
pleach_status pl_completion_open(pl_exchange *x, bool chat, pl_completion **out, pl_refusal *r);
void pl_completion_close(pl_completion *c); /* accepts NULL */

/* Of their own: further fields and prompts, with `answer` and `request` as they need them. */
pleach_status pl_chat_prepare(pl_completion *c, pl_refusal *r);
pleach_status pl_text_prepare(pl_completion *c, pl_refusal *r);

/* Gives the prompts to the batch. */
pleach_status pl_completion_start(pl_completion *c, pl_refusal *r);

/* Opens a request for text, and answers it. */
pleach_status pl_complete(pl_exchange *x, bool chat, pl_refusal *r);
/* The answer in one piece, and as a stream's beginning. */
pleach_status pl_completion_whole(pl_completion *c, pl_refusal *r);
pleach_status pl_completion_stream(pl_completion *c, pl_refusal *r);

/* ---- parts of answers ------------------------------------------------------------------------ */

pleach_status pl_take_logprobs(pl_completion *c, const pl_event *e, pl_refusal *r);
pl_call *pl_choice_call(pl_choice *choice, size_t call); /* NULL: out of memory */
const char *pl_finish_name(const pl_event *end);
/* {"id", "object", "created", "model", "system_fingerprint"}; chunk: of a stream. */
json_t *pl_completion_head(const pl_completion *c, bool chunk);
json_t *pl_usage_json(pl_completion *c); /* of all answers that ended; fills in the exchange */
json_t *pl_timings_json(const pl_event *end);

#endif
