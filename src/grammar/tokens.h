/* SPDX-License-Identifier: Apache-2.0
 *
 * The insides of a token list. */
#ifndef PL_GRAMMAR_TOKENS_H
#define PL_GRAMMAR_TOKENS_H

#include "grammar.h"

enum { PL_LONGEST_TOKEN = 1024 }; /* longer ones never may come */

typedef struct listed_token {
    const char *bytes;
    uint32_t id;
    uint16_t size, shared; /* bytes in common with the token before */
} listed_token;

struct pl_token_list {
    listed_token *tokens; /* ascending by bytes */
    size_t n, n_ids;
    char *bytes;
};

#endif
