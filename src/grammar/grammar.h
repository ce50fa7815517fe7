/* SPDX-License-Identifier: Apache-2.0
 *
 * Grammars that an answer has to follow, written as GBNF or made from a JSON schema, and which
 * tokens may come next.
 *
 *   pl_grammar_parse(text, size, &g, &err);                     // or pl_grammar_from_schema
 *   pl_token_list_open(tokenizer, &tokens, &err);               // once a model
 *   pl_matcher_open(g, &m, &err);                               // once an answer
 *   for (...) {
 *       pl_matcher_mask(m, tokens, allowed);                    // bit i: token i may come
 *       if (pl_matcher_may_end(m)) ... end tokens may come too
 *       pl_matcher_take(m, piece, size);
 *   }
 *
 * A grammar becomes a graph over bytes with calls between rules; a matcher walks it as a pushdown
 * automaton, of which it keeps the part it has seen as a table of states and bytes (a lazy DFA).
 *
 * Source: the GBNF notation as llama.cpp documents it (grammars/README.md); JSON Schema 2020-12. */
#ifndef PL_GRAMMAR_H
#define PL_GRAMMAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct pl_tokenizer;

/* ---- grammars: immutable, any thread -------------------------------------------------------- */

typedef struct pl_grammar pl_grammar;

/* Begins with the rule "root". PLEACH_ERR_FORMAT "grammar, line 3: ..." names what is wrong; left
 * recursion is refused. */
pleach_status pl_grammar_parse(const char *text, size_t size, pl_grammar **out, pleach_error *err);
/* JSON of the schema's shape; NULL: any JSON object. Properties come in the schema's order.
 * PLEACH_ERR_UNSUPPORTED names the keyword that cannot be kept to, PLEACH_ERR_FORMAT what is no
 * schema. */
pleach_status pl_grammar_from_schema(const json_t *schema, pl_grammar **out, pleach_error *err);
void pl_grammar_close(pl_grammar *g); /* accepts NULL */

/* ---- tokens ---------------------------------------------------------------------------------- */

/* A vocabulary in the order of its bytes. Immutable, any thread. */
typedef struct pl_token_list pl_token_list;

/* Token i is pieces[i][0..sizes[i]); those of size 0 never may come. */
pleach_status pl_token_list_make(const char *const *pieces, const size_t *sizes, size_t n,
                                 pl_token_list **out, pleach_error *err);
/* Special tokens never may come. */
pleach_status pl_token_list_open(const struct pl_tokenizer *t, pl_token_list **out,
                                 pleach_error *err);
void pl_token_list_close(pl_token_list *l); /* accepts NULL */

/* ---- matching: one thread -------------------------------------------------------------------- */

typedef struct pl_matcher pl_matcher;

/* The grammar is borrowed until closing. */
pleach_status pl_matcher_open(const pl_grammar *g, pl_matcher **out, pleach_error *err);
void pl_matcher_close(pl_matcher *m); /* accepts NULL */

/* Goes on by these bytes. False, and nothing changed, where the grammar has no such text; out of
 * memory counts as that. */
bool pl_matcher_take(pl_matcher *m, const char *bytes, size_t size);
/* The text so far is whole. */
bool pl_matcher_may_end(const pl_matcher *m);
/* Bit i % 32 of allowed[i / 32] for each token of the list; others 0. */
void pl_matcher_mask(pl_matcher *m, const pl_token_list *l, uint32_t *allowed);
/* Back to the beginning. */
void pl_matcher_restart(pl_matcher *m);

#endif
