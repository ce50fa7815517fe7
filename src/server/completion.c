/* SPDX-License-Identifier: Apache-2.0 */
#include "completion.h"

#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "token_logprobs.h"

enum { MOST_CHOICES = 2048, STREAM_BYTES = 4 << 20, WHOLE_BYTES = 256 << 20 };

/* ---- opening --------------------------------------------------------------------------------- */

static pleach_status open_choices(pl_completion *c, pl_refusal *r)
{
    c->n_choices = c->n_prompts * (size_t)c->params.n;
    PL_REFUSE_IF(c->n_choices > MOST_CHOICES, r, 400, "n",
                 "%zu prompts with %d answers each: expected at most %d answers", c->n_prompts,
                 (int)c->params.n, MOST_CHOICES);
    c->choices = pl_calloc(c->n_choices, sizeof *c->choices);
    if (!c->choices) return pl_refuse_memory(r);
    for (size_t i = 0; c->params.logprobs && i < c->n_choices; i++)
        if (!(c->choices[i].logprobs = c->chat ? json_array() : pl_logprob_lists()))
            return pl_refuse_memory(r);
    return PLEACH_OK;
}

static pleach_status fill(pl_completion *c, pl_refusal *r)
{
    pl_exchange *x = c->exchange;
    PL_TRY(pl_body_parse(x->body.data, x->body.size, &c->body, r));
    PL_TRY(pl_params_read(c->body, x->server->info.vocab_size, &c->params, r));
    pl_params_request(&c->params, &c->request);
    c->answer = (pl_answer_settings){.stop = c->params.stop, .n_stop = c->params.n_stop};
    PL_TRY(c->chat ? pl_chat_prepare(c, r) : pl_text_prepare(c, r));
    return open_choices(c, r);
}

pleach_status pl_completion_open(pl_exchange *x, bool chat, pl_completion **out, pl_refusal *r)
{
    *out = pl_calloc(1, sizeof **out);
    if (!*out) return pl_refuse_memory(r);
    (*out)->exchange = x;
    (*out)->chat = chat;
    (*out)->created = (int64_t)time(NULL);
    pl_random_id(chat ? "chatcmpl-" : "cmpl-", x->id, sizeof x->id);
    return fill(*out, r);
}

static void free_choice(pl_choice *choice)
{
    for (size_t i = 0; i < choice->n_calls; i++) {
        pl_free(choice->calls[i].name.data);
        pl_free(choice->calls[i].arguments.data);
    }
    pl_free(choice->calls);
    pl_free(choice->content.data);
    pl_free(choice->reasoning.data);
    json_decref(choice->logprobs);
    pl_free(choice->end);
}

void pl_completion_close(pl_completion *c)
{
    if (!c) return;
    pl_query_close(c->query);
    for (size_t i = 0; c->choices && i < c->n_choices; i++) free_choice(&c->choices[i]);
    for (size_t i = 0; c->prompts && i < c->n_prompts; i++) pl_free(c->prompts[i].ids);
    for (size_t i = 0; c->echoes && i < c->n_prompts; i++) pl_free(c->echoes[i].data);
    pl_free(c->choices);
    pl_free(c->prompts);
    pl_free(c->echoes);
    pl_free(c->form.data);
    pl_params_free(&c->params);
    json_decref(c->body);
    pl_free(c);
}

pleach_status pl_completion_start(pl_completion *c, pl_refusal *r)
{
    pl_server *server = c->exchange->server;
    const pl_query_settings settings = {
        .batch = server->batch,
        .tokenizer = server->tokenizer,
        .prompts = c->prompts,
        .n_prompts = c->n_prompts,
        .prompt_name = c->chat ? "messages" : "prompt",
        .at_once = server->settings.batch.parallel,
        .request = &c->request,
        .answer = &c->answer,
        .most_bytes = c->params.stream ? STREAM_BYTES : WHOLE_BYTES,
        .given_up = pl_exchange_over,
        .user = c->exchange,
    };
    for (size_t i = 0; i < c->n_prompts; i++) /* for the log of an answer that is cut off */
        c->exchange->prompt_tokens += c->prompts[i].n;
    return pl_query_open(&settings, &c->query, r);
}

pleach_status pl_complete(pl_exchange *x, bool chat, pl_refusal *r)
{
    pl_completion *c;
    pleach_status status = pl_completion_open(x, chat, &c, r);
    bool stream = status == PLEACH_OK && c->params.stream;
    if (status == PLEACH_OK)
        status = stream ? pl_completion_stream(c, r) : pl_completion_whole(c, r);
    if (status == PLEACH_OK && stream)
        x->stream = c;
    else
        pl_completion_close(c);
    return status;
}

/* ---- parts of answers ------------------------------------------------------------------------ */

/* A prompt's token belongs to all answers to it. */
pleach_status pl_take_logprobs(pl_completion *c, const pl_event *e, pl_refusal *r)
{
    size_t n = e->kind == PL_EVENT_PROMPT ? (size_t)c->params.n : 1;
    const pl_tokenizer *t = c->exchange->server->tokenizer;
    for (size_t i = e->choice; i < e->choice + n; i++) {
        pl_choice *choice = &c->choices[i];
        int failed = c->chat ? json_array_append_new(choice->logprobs, pl_logprob_json(t, e))
                             : pl_logprob_append(choice->logprobs, t, e, &choice->offset);
        if (failed) return pl_refuse_memory(r);
    }
    return PLEACH_OK;
}

pl_call *pl_choice_call(pl_choice *choice, size_t call)
{
    if (call < choice->n_calls) return &choice->calls[call];
    if (pl_grow((void **)&choice->calls, &choice->call_capacity, call + 1, sizeof *choice->calls))
        return NULL;
    for (; choice->n_calls <= call; choice->n_calls++) {
        choice->calls[choice->n_calls] = (pl_call){0};
        pl_random_id("call_", choice->calls[choice->n_calls].id, sizeof choice->calls->id);
    }
    return &choice->calls[call];
}

const char *pl_finish_name(const pl_event *end)
{
    if (!end->stopped && end->end.finish == PLEACH_FINISH_LENGTH) return "length";
    return end->calls ? "tool_calls" : "stop";
}

json_t *pl_completion_head(const pl_completion *c, bool chunk)
{
    const char *object = !c->chat ? "text_completion"
                         : chunk  ? "chat.completion.chunk"
                                  : "chat.completion";
    return json_pack("{s:s, s:s, s:I, s:s, s:s}", "id", c->exchange->id, "object", object,
                     "created", (json_int_t)c->created, "model",
                     c->exchange->server->settings.alias, "system_fingerprint", "pleach");
}

json_t *pl_usage_json(pl_completion *c)
{
    pl_exchange *x = c->exchange;
    x->prompt_tokens = x->cached_tokens = x->new_tokens = 0;
    for (size_t i = 0; i < c->n_choices; i++) {
        const pl_event *end = c->choices[i].end;
        if (!end) continue;
        x->new_tokens += end->end.new_tokens;
        if (i % (size_t)c->params.n) continue; /* a prompt counts once */
        x->prompt_tokens += end->end.prompt_tokens;
        x->cached_tokens += end->end.cached_tokens;
    }
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)x->prompt_tokens,
                     "completion_tokens", (json_int_t)x->new_tokens, "total_tokens",
                     (json_int_t)(x->prompt_tokens + x->new_tokens), "prompt_tokens_details",
                     "cached_tokens", (json_int_t)x->cached_tokens);
}

static double per_second(size_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

json_t *pl_timings_json(const pl_event *event)
{
    const pleach_answer_end *e = &event->end;
    size_t computed = e->prompt_tokens - e->cached_tokens;
    return json_pack(
        "{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f}", "cached_tokens", (json_int_t)e->cached_tokens,
        "prompt_tokens", (json_int_t)computed, "queue_ms", 1e3 * e->queue_seconds, "prompt_ms",
        1e3 * e->prompt_seconds, "prompt_per_second", per_second(computed, e->prompt_seconds),
        "predicted_tokens", (json_int_t)e->new_tokens, "predicted_ms", 1e3 * e->generation_seconds,
        "predicted_per_second", per_second(e->new_tokens, e->generation_seconds));
}
