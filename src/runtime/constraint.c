/* SPDX-License-Identifier: Apache-2.0 */
#include "constraint.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

struct pl_constraint {
    const pleach_model *model;
    size_t vocab;
    const pl_token_list *tokens;
    pl_matcher *matcher;
    uint32_t *allowed; /* a bit for each id of the logits or the tokenizer */
};

pleach_status pl_constraint_grammar(const char *grammar, const char *json_schema, pl_grammar **out,
                                    pleach_error *err)
{
    json_error_t at;
    *out = NULL;
    PL_FAIL_IF(grammar && json_schema, err, PLEACH_ERR_ARGUMENT,
               "expected a grammar or a JSON schema, not both");
    if (grammar) return pl_grammar_parse(grammar, strlen(grammar), out, err);
    if (!json_schema) return PLEACH_OK;
    json_t *schema = json_loads(json_schema, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &at);
    PL_FAIL_IF(!schema, err, PLEACH_ERR_FORMAT, "JSON schema, line %d: %s", at.line, at.text);
    pleach_status status = pl_grammar_from_schema(schema, out, err);
    json_decref(schema);
    return status;
}

pleach_status pl_constraint_open(const pleach_model *m, const pl_grammar *g, pl_constraint **out,
                                 pleach_error *err)
{
    *out = NULL;
    pl_constraint *c = pl_calloc(1, sizeof *c);
    if (!c) return pl_fail_memory(err, "a grammar", sizeof *c);
    c->model = m;
    c->vocab = m->transformer->config->vocab_size;
    pleach_status status = pl_model_token_list(m, &c->tokens, err);
    if (status == PLEACH_OK) status = pl_matcher_open(g, &c->matcher, err);
    if (status == PLEACH_OK) {
        size_t words = PL_MAX(c->vocab, pl_tokenizer_size(m->tokenizer)) / 32 + 1;
        c->allowed = pl_calloc(words, sizeof *c->allowed);
        if (!c->allowed) status = pl_fail_memory(err, "a grammar's mask", words * 4);
    }
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
