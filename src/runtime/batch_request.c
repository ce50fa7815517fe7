/* SPDX-License-Identifier: Apache-2.0
 *
 * What was asked: checked by whoever submits it, and copied. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "batch.h"

void pleach_request_defaults(pleach_request *r)
{
    *r = (pleach_request){.answers = 1};
    pleach_generation_defaults(&r->generation);
}

static bool generates_nothing(const pleach_request *q)
{
    return q->no_tokens || q->embed != PLEACH_EMBED_NONE;
}

bool pl_request_no_tokens(const pl_request *r)
{
    return generates_nothing(&r->asked);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static pleach_status check_prompt(const pleach_batch *b, const pleach_request *q,
                                  pleach_error *err)
{
    size_t context = b->root->context;
    PL_FAIL_IF(q->n_prompt == 0, err, PLEACH_ERR_ARGUMENT,
               "expected a prompt of at least one token");
    PL_FAIL_IF(q->n_prompt > context, err, PLEACH_ERR_LIMIT,
               "the prompt has %zu tokens and the context holds %zu", q->n_prompt, context);
    PL_FAIL_IF(q->n_prompt == context && !generates_nothing(q), err, PLEACH_ERR_LIMIT,
               "the prompt of %zu tokens fills the context and leaves no room for an answer",
               q->n_prompt);
    for (size_t i = 0; i < q->n_prompt; i++)
        PL_FAIL_IF(q->prompt[i] < 0 || (size_t)q->prompt[i] >= b->vocab, err, PLEACH_ERR_ARGUMENT,
                   "token %zu: id %d is outside the vocabulary of %zu", i, (int)q->prompt[i],
                   b->vocab);
    return PLEACH_OK;
}

static pleach_status check_bias(const pleach_batch *b, const pleach_request *q, pleach_error *err)
{
    PL_FAIL_IF(q->n_bias > b->vocab, err, PLEACH_ERR_ARGUMENT,
               "%zu biases for a vocabulary of %zu", q->n_bias, b->vocab);
    for (const pleach_logit_bias *i = q->bias; i < q->bias + q->n_bias; i++) {
        PL_FAIL_IF(i->id < 0 || (size_t)i->id >= b->vocab, err, PLEACH_ERR_ARGUMENT,
                   "bias: id %d is outside the vocabulary of %zu", (int)i->id, b->vocab);
        PL_FAIL_IF(!isfinite(i->bias), err, PLEACH_ERR_ARGUMENT,
                   "bias of id %d: %g: expected a finite number", (int)i->id, (double)i->bias);
    }
    return PLEACH_OK;
}

static pleach_status check_embedding(const pleach_batch *b, const pleach_request *q,
                                     pleach_error *err)
{
    const pl_backend *backend = b->model->backend;
    if (q->embed == PLEACH_EMBED_NONE) return PLEACH_OK;
    PL_FAIL_IF(q->embed != PLEACH_EMBED_MEAN && q->embed != PLEACH_EMBED_LAST, err,
               PLEACH_ERR_ARGUMENT, "unknown embedding %d", (int)q->embed);
    PL_FAIL_IF(!backend->gives_hidden, err, PLEACH_ERR_UNSUPPORTED,
               "device %s gives no embeddings: open the model on the processor", backend->device);
    PL_FAIL_IF(q->answers != 1 || q->prompt_logprobs, err, PLEACH_ERR_ARGUMENT,
               "an embedding is one answer, without logprobs of the prompt");
    return PLEACH_OK;
}

static pleach_status check(const pleach_batch *b, const pleach_request *q, pleach_error *err)
{
    pleach_sampler *sampler;
    PL_FAIL_IF(q->answers == 0 || q->answers > PL_MOST_ANSWERS, err, PLEACH_ERR_ARGUMENT,
               "%zu answers: expected 1 to %d", q->answers, PL_MOST_ANSWERS);
    PL_FAIL_IF(q->top_logprobs > PL_MOST_TOP, err, PLEACH_ERR_ARGUMENT,
               "%zu likeliest tokens: expected up to %d", q->top_logprobs, PL_MOST_TOP);
    PL_TRY(check_prompt(b, q, err));
    PL_TRY(check_bias(b, q, err));
    PL_TRY(check_embedding(b, q, err));
    PL_TRY(pleach_sampler_open(&q->generation.sampling, &sampler, err));
    pleach_sampler_close(sampler);
    return PLEACH_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static pleach_status copy_items(const void *from, size_t n, size_t size, const void **to,
                                pleach_error *err)
{
    void *copy = pl_alloc(n, size);
    if (!copy) return pl_fail_memory(err, "request", (unsigned long long)n * size);
    if (n) memcpy(copy, from, n * size);
    *to = copy;
    return PLEACH_OK;
}

static pleach_status read_texts(const pleach_batch *b, pl_request *r, const pleach_generation *g,
                                pleach_error *err)
{
    const pl_token_list *tokens;
    r->asked.generation.grammar = r->asked.generation.json_schema = NULL;
    PL_TRY(pl_constraint_grammar(g->grammar, g->json_schema, &r->grammar, err));
    return r->grammar ? pl_model_token_list(b->model, &tokens, err) : PLEACH_OK;
}

pleach_status pl_request_open(const pleach_batch *b, const pleach_request *asked, pl_request **out,
                              pleach_error *err)
{
    *out = NULL;
    PL_TRY(check(b, asked, err));
    pl_request *r = pl_calloc(1, sizeof *r);
    if (!r) return pl_fail_memory(err, "request", sizeof *r);
    r->asked = *asked;
    r->asked.prompt = NULL;
    r->asked.bias = NULL;
    atomic_init(&r->cancelled, false);
    pleach_status status = copy_items(asked->prompt, asked->n_prompt, sizeof *asked->prompt,
                                      (const void **)&r->asked.prompt, err);
    if (status == PLEACH_OK)
        status = copy_items(asked->bias, asked->n_bias, sizeof *asked->bias,
                            (const void **)&r->asked.bias, err);
    if (status == PLEACH_OK) status = read_texts(b, r, &asked->generation, err);
    if (status == PLEACH_OK)
        *out = r;
    else
        pl_request_close(r);
    return status;
}

void pl_request_close(pl_request *r)
{
    if (!r) return;
    pleach_session_close(r->session);
    pl_grammar_close(r->grammar);
    pl_free((void *)r->asked.prompt);
    pl_free((void *)r->asked.bias);
    pl_free(r->hidden);
    pl_free(r->last);
    pl_free(r->previous);
    pl_free(r->logits);
    pl_free(r);
}
