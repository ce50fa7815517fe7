/* SPDX-License-Identifier: Apache-2.0
 *
 * Prompts of one request on their way through the batch. The batch's thread turns tokens into text
 * and puts events into a queue; the connection's own thread takes them out and writes JSON.
 *
 *   pl_query_open(&settings, &query, &refusal);
 *   while ((status = pl_query_next(query, &event, &refusal)) == PLEACH_OK && event) {
 *       ...
 *       pl_free(event);
 *   }
 *   pl_query_close(query);       // cancels what still runs
 */
#ifndef PL_SERVER_QUERY_H
#define PL_SERVER_QUERY_H

#include "pleach/batch.h"
#include "refusal.h"
#include "answer/answer.h"
#include "text/tokenizer.h"

typedef struct pl_query pl_query;

typedef enum pl_event_kind {
    PL_EVENT_PIECE, /* text of an answer: data[0..size) */
    PL_EVENT_TOKEN, /* where logprobs were asked for, a token of an answer: comes before its text */
    PL_EVENT_PROMPT, /* or one of the prompt: data holds n_top of pleach_logprob */
    PL_EVENT_END     /* an answer is over: data holds the embedding, size bytes */
} pl_event_kind;

typedef struct pl_event {
    struct pl_event *next; /* the queue's */
    pl_event_kind kind;
    size_t choice;       /* prompt * answers + answer */
    pl_answer_part part; /* PIECE */
    size_t call;
    int32_t id; /* TOKEN, PROMPT */
    float logprob;
    size_t n_top;
    pleach_answer_end end; /* END; message and embedding are not to be read */
    bool stopped;          /* END: by a stop string */
    size_t calls;          /* END: tool calls in it */
    size_t size;
    _Alignas(8) char data[];
} pl_event;

typedef struct pl_query_settings {
    pleach_batch *batch;
    const pl_tokenizer *tokenizer;
    const pl_ids *prompts; /* [n_prompts], borrowed until closing, as everything here */
    size_t n_prompts;
    const char *prompt_name;          /* their field, for refusals */
    size_t at_once;                   /* prompts in the batch at a time */
    const pleach_request *request;    /* the same for all but for prompt and callbacks */
    const pl_answer_settings *answer; /* NULL: no text is asked for */
    size_t hidden_size;               /* of an embedding */
    size_t most_bytes;                /* of events that nobody took; more end the answers */
    /* Asked ten times a second on the thread that takes; true ends all. May be NULL. */
    bool (*given_up)(void *user, pl_refusal *r);
    void *user;
} pl_query_settings;

/* Puts the first prompts into the batch, whose refusals come back. */
pleach_status pl_query_open(const pl_query_settings *s, pl_query **out, pl_refusal *r);
/* Waits for the next event; *event is the caller's (pl_free), NULL after the last. Of one prompt's
 * answers they come in order. Fails where an answer did, or the query was given up. */
pleach_status pl_query_next(pl_query *q, pl_event **event, pl_refusal *r);
/* Whether that would not wait. */
bool pl_query_has_event(pl_query *q);
/* Cancels what runs and waits until it has ended. Accepts NULL. */
void pl_query_close(pl_query *q);

#endif
