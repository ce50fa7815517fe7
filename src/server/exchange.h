/* SPDX-License-Identifier: Apache-2.0
 *
 * One request and its answer, whoever carries them: the network, a test, a fuzzer. */
#ifndef PL_SERVER_EXCHANGE_H
#define PL_SERVER_EXCHANGE_H

#include "body.h"
#include "state.h"
#include "text/buffer.h"

struct pl_completion;
struct pl_page_file;

/* Stays where it is while there is a stream. */
typedef struct pl_exchange {
    pl_server *server;
    const char *method, *path;
    const char *if_none_match; /* the header, or NULL */
    pl_buffer body;
    bool (*gone)(void *user); /* the client went away; NULL: never */
    void *user;

    /* the answer: */
    int status;
    const char *content_type;
    pl_buffer out;                   /* all of it, or what pl_stream_read still has to give */
    struct pl_completion *stream;    /* not NULL: it comes in pieces */
    const struct pl_page_file *page; /* not NULL: it is this file of the chat page */

    /* and for the log: */
    char id[40];
    size_t prompt_tokens, cached_tokens, new_tokens;
    double began; /* pl_seconds */
} pl_exchange;

/* Answers: afterwards status, content_type and out or stream are filled in. */
void pl_dispatch(pl_exchange *x);
/* Only whether such a request may come: the route's existence, method, key, size. PLEACH_OK, or the
 * refusal is x's answer. */
pleach_status pl_admit(pl_exchange *x, const char *authorization, uint64_t body_size);
/* Puts a refusal in place of the answer. */
void pl_reply_refusal(pl_exchange *x, const pl_refusal *r);
void pl_exchange_free(pl_exchange *x); /* what it holds */

/* Answers with a JSON value, which is released; NULL: out of memory. */
pleach_status pl_reply_json(pl_exchange *x, json_t *value, pl_refusal *r);
/* Appends a JSON value in its shortest form and releases it. */
pleach_status pl_append_json(pl_buffer *out, json_t *value, pl_refusal *r);

/* What a route makes of its request's body, once that is known to be a JSON object. */
typedef pleach_status pl_body_fn(pl_exchange *x, const json_t *body, pl_refusal *r);
pleach_status pl_with_body(pl_exchange *x, pl_body_fn *answer, pl_refusal *r);

/* The next bytes of a stream, waiting for them; 0: it is over, -1: it broke off. */
long pl_stream_read(pl_exchange *x, char *bytes, size_t size);

/* Whether a running answer has to end: the client went away, or the server stops. */
bool pl_exchange_over(void *exchange, pl_refusal *r);

/* "chatcmpl-" and 24 random letters and digits; id[size] holds all of it. */
void pl_random_id(const char *prefix, char *id, size_t size);

/* The routes: each fills in the answer or refuses. */
typedef pleach_status pl_route_fn(pl_exchange *x, pl_refusal *r);
pl_route_fn pl_route_chat, pl_route_completions, pl_route_embeddings, pl_route_tokenize,
    pl_route_detokenize, pl_route_apply_template, pl_route_models, pl_route_health,
    pl_route_metrics, pl_route_props, pl_route_page;

#endif
