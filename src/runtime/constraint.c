/* SPDX-License-Identifier: Apache-2.0 */
#include "constraint.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "grammar/grammar.h"

struct pl_constraint {
    const pleach_model *model;
    size_t vocab;
    pl_grammar *grammar;
    pl_token_list *tokens;
    pl_matcher *matcher;
    uint32_t *allowed; /* a bit for each id of the logits or the tokenizer */
};

static pleach_status read_grammar(const char *grammar, const char *json_schema, pl_grammar **out,
                                  pleach_error *err)
{
    json_error_t at;
    if (grammar) return pl_grammar_parse(grammar, strlen(grammar), out, err);
    json_t *schema = json_loads(json_schema, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &at);
    PL_FAIL_IF(!schema, err, PLEACH_ERR_FORMAT, "JSON schema, line %d: %s", at.line, at.text);
    pleach_status status = pl_grammar_from_schema(schema, out, err);
    json_decref(schema);
    return status;
}

static pleach_status open_parts(pl_constraint *c, const char *grammar, const char *json_schema,
                                pleach_error *err)
{
    const pl_tokenizer *t = c->model->tokenizer;
    PL_FAIL_IF(!t, err, PLEACH_ERR_MISSING, "a grammar wants a model with a tokenizer");
    size_t ids = PL_MAX(c->vocab, pl_tokenizer_size(t));
    PL_TRY(read_grammar(grammar, json_schema, &c->grammar, err));
    PL_TRY(pl_token_list_open(t, &c->tokens, err));
    PL_TRY(pl_matcher_open(c->grammar, &c->matcher, err));
    c->allowed = pl_calloc(ids / 32 + 1, sizeof *c->allowed);
    return c->allowed ? PLEACH_OK : pl_fail_memory(err, "a grammar's mask", ids / 8);
}

pleach_status pl_constraint_open(const pleach_model *m, const char *grammar,
                                 const char *json_schema, pl_constraint **out, pleach_error *err)
{
    *out = NULL;
    PL_FAIL_IF(grammar && json_schema, err, PLEACH_ERR_ARGUMENT,
               "expected a grammar or a JSON schema, not both");
    pl_constraint *c = pl_calloc(1, sizeof *c);
    if (!c) return pl_fail_memory(err, "a grammar", sizeof *c);
    c->model = m;
    c->vocab = m->transformer->config->vocab_size;
    pleach_status status = open_parts(c, grammar, json_schema, err);
    if (status == PLEACH_OK)
        *out = c;
    else
        pl_constraint_close(c);
    return status;
}

void pl_constraint_close(pl_constraint *c)
{
    if (!c) return;
    pl_matcher_close(c->matcher);
    pl_token_list_close(c->tokens);
    pl_grammar_close(c->grammar);
    pl_free(c->allowed);
    pl_free(c);
}

pleach_status pl_constraint_apply(pl_constraint *c, float *logits, bool *ended, pleach_error *err)
{
    const pleach_model *m = c->model;
    bool whole = pl_matcher_may_end(c->matcher), any = false;
    pl_matcher_mask(c->matcher, c->tokens, c->allowed);
    for (size_t i = 0; i < c->vocab; i++) any |= c->allowed[i / 32] >> i % 32 & 1;
    *ended = whole && !any;
    PL_FAIL_IF(!whole && !any, err, PLEACH_ERR_DATA,
               "no token of the vocabulary goes on as the grammar asks");
    if (*ended) return PLEACH_OK;
    for (uint32_t i = 0; i < m->n_end_tokens && whole; i++)
        if ((size_t)m->end_tokens[i] < c->vocab)
            c->allowed[m->end_tokens[i] / 32] |= 1u << m->end_tokens[i] % 32;
    for (size_t i = 0; i < c->vocab; i++)
        if (!(c->allowed[i / 32] >> i % 32 & 1)) logits[i] = -INFINITY;
    return PLEACH_OK;
}

void pl_constraint_take(pl_constraint *c, int32_t id)
{
    size_t size;
    const char *piece = pl_tokenizer_piece(c->model->tokenizer, id, &size);
    if (!pl_tokenizer_is_special(c->model->tokenizer, id)) pl_matcher_take(c->matcher, piece, size);
}
