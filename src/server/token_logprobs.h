/* SPDX-License-Identifier: Apache-2.0
 *
 * Log probabilities of tokens in the shapes of both APIs. */
#ifndef PL_SERVER_TOKEN_LOGPROBS_H
#define PL_SERVER_TOKEN_LOGPROBS_H

#include "query.h"

/* A token with its likeliest others, as chat completions have it:
 * {"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}, ...]}. */
json_t *pl_logprob_json(const pl_tokenizer *t, const pl_event *e);

/* The lists of completions: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. */
json_t *pl_logprob_lists(void);
/* Appends the token, which begins at character *offset of the text; *offset goes on by its own. */
int pl_logprob_append(json_t *lists, const pl_tokenizer *t, const pl_event *e, size_t *offset);

/* Characters of a text in UTF-8; bytes that continue none count as none. */
size_t pl_count_characters(const char *text, size_t size);

#endif
