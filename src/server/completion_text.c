/* SPDX-License-Identifier: Apache-2.0
 *
 * /v1/completions: plain texts or token ids that are gone on with. */
#include <string.h>

#include "base/memory.h"
#include "completion.h"
#include "inputs.h"

enum { DEFAULT_TOKENS = 16 }; /* as OpenAI's */

typedef struct text_values {
    bool echo;
    const char *suffix;
    int64_t best_of;
} text_values;

static const pl_field fields[] = {
    {"echo", .type = PL_FIELD_BOOL, PL_FIELD_AT(text_values, echo)},
    {"suffix", .type = PL_FIELD_TEXT, PL_FIELD_AT(text_values, suffix)},
    {"best_of", .type = PL_FIELD_INTEGER, .min = 1, .max = PL_MAX_ANSWERS,
     PL_FIELD_AT(text_values, best_of)},
};

/* What echo puts in front: the text as it came, or what token ids stand for. */
static pleach_status read_echoes(pl_completion *c, const json_t *prompt, pl_refusal *r)
{
    const pl_tokenizer *t = c->exchange->server->tokenizer;
    bool list = json_is_string(json_array_get(prompt, 0));
    c->echoes = pl_calloc(c->n_prompts, sizeof *c->echoes);
    if (!c->echoes) return pl_refuse_memory(r);
    for (size_t i = 0; i < c->n_prompts; i++) {
        const json_t *text = list ? json_array_get(prompt, i) : prompt;
        pl_buffer *echo = &c->echoes[i];
        pleach_error err;
        pleach_status status =
            json_is_string(text)
                ? pl_buffer_append(echo, json_string_value(text), json_string_length(text), &err)
                : pl_tokenizer_decode(t, c->prompts[i].ids, c->prompts[i].n, true, &echo->data,
                                      &echo->size, &err);
        if (status != PLEACH_OK) return pl_refuse_error(r, "prompt", &err);
    }
    return PLEACH_OK;
}

/* Harnesses score a prompt by echo, logprobs and one token more, of which they drop the last: that
 * one has to come also where the model would end. */
static void prepare_scoring(pl_completion *c)
{
    c->request.prompt_logprobs = c->echo && c->params.logprobs;
    if (c->request.prompt_logprobs && c->params.max_tokens == 1)
        c->request.generation.ignore_end = 1;
}

pleach_status pl_text_prepare(pl_completion *c, pl_refusal *r)
{
    text_values v = {.best_of = c->params.n};
    const json_t *prompt = json_object_get(c->body, "prompt");
    PL_TRY(pl_fields_read(fields, PL_COUNT(fields), c->body, &v, r));
    PL_REFUSE_IF(v.suffix && v.suffix[0], r, 400, "suffix",
                 "suffix: text between two others is not supported");
    PL_REFUSE_IF(v.best_of != c->params.n, r, 400, "best_of",
                 "best_of: expected n, %d; choosing among more is not supported", (int)c->params.n);
    PL_TRY(pl_inputs_read(c->exchange->server, prompt, "prompt", &c->prompts, &c->n_prompts, r));
    if (c->params.max_tokens < 0) c->request.generation.max_tokens = DEFAULT_TOKENS;
    c->echo = v.echo;
    if (c->echo) PL_TRY(read_echoes(c, prompt, r));
    prepare_scoring(c);
    return PLEACH_OK;
}

pleach_status pl_route_completions(pl_exchange *x, pl_refusal *r)
{
    return pl_complete(x, false, r);
}
