/* SPDX-License-Identifier: Apache-2.0
 *
 * One prompt answered: the text streams to stdout and is kept. Shared by run and chat. */
#ifndef ANSWER_H
#define ANSWER_H

#include <stdbool.h>

#include "pleach/pleach.h"

typedef struct answer {
    bool silent;  /* in: keep the text, print nothing */
    bool stopped; /* Ctrl-C ended it */
    char *text;   /* NUL-terminated, or NULL for none; pl_free */
    size_t size, capacity;
    pleach_generation_stats stats;
} answer;

/* Generates until Ctrl-C at the latest. `context` is what the session holds; a prompt that leaves
 * no room for an answer is PLEACH_ERR_LIMIT. Failing output ends the answer; finish_output then
 * returns EXIT_FAILED. */
pleach_status answer_prompt(pleach_session *s, size_t context, const int32_t *prompt, size_t n,
                            const pleach_generation *settings, answer *a, pleach_error *err);

/* "prompt: 12 tokens ...; answer: 40 tokens, 35.1 tokens/s" on stderr. */
void answer_print_stats(const answer *a);

#endif
