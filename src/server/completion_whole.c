/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers in one piece. */
#include <string.h>

#include "base/memory.h"
#include "completion.h"

/* ---- collecting ------------------------------------------------------------------------------ */

static pleach_status take_piece(pl_choice *choice, const pl_event *e, pl_refusal *r)
{
    pl_buffer *to = e->part == PL_ANSWER_REASONING ? &choice->reasoning : &choice->content;
    if (e->part == PL_ANSWER_CALL || e->part == PL_ANSWER_ARGUMENTS) {
        pl_call *call = pl_choice_call(choice, e->call);
        if (!call) return pl_refuse_memory(r);
        to = e->part == PL_ANSWER_CALL ? &call->name : &call->arguments;
    }
    return pl_buffer_append(to, e->data, e->size, NULL) == PLEACH_OK ? PLEACH_OK
                                                                     : pl_refuse_memory(r);
}

/* An END is kept by its choice, others are let go. */
static pleach_status take_event(pl_completion *c, pl_event *e, pl_refusal *r)
{
    pl_choice *choice = &c->choices[e->choice];
    pleach_status status = PLEACH_OK;
    if (e->kind == PL_EVENT_END) {
        choice->end = e;
        return PLEACH_OK;
    }
    status = e->kind == PL_EVENT_PIECE ? take_piece(choice, e, r) : pl_take_logprobs(c, e, r);
    pl_free(e);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *text_of(const pl_buffer *b)
{
    return json_stringn(b->size ? b->data : "", b->size);
}

static json_t *calls_json(const pl_choice *choice)
{
    json_t *list = json_array();
    for (size_t i = 0; i < choice->n_calls; i++) {
        const pl_call *call = &choice->calls[i];
        json_t *one =
            json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", call->id, "type", "function", "function",
                      "name", text_of(&call->name), "arguments", text_of(&call->arguments));
        if (json_array_append_new(list, one)) break;
    }
    return list;
}

static json_t *message_json(const pl_choice *choice)
{
    bool silent = choice->n_calls && !choice->content.size; /* as OpenAI's: null beside calls */
    json_t *message = json_pack("{s:s, s:o}", "role", "assistant", "content",
                                silent ? json_null() : text_of(&choice->content));
    if (choice->reasoning.size)
        json_object_set_new(message, "reasoning_content", text_of(&choice->reasoning));
    if (choice->n_calls) json_object_set_new(message, "tool_calls", calls_json(choice));
    return message;
}

static json_t *logprobs_json(const pl_completion *c, const pl_choice *choice)
{
    if (!choice->logprobs) return json_null();
    return c->chat ? json_pack("{s:O}", "content", choice->logprobs)
                   : json_incref(choice->logprobs);
}

static json_t *echoed_json(const pl_completion *c, const pl_choice *choice, size_t index)
{
    const pl_buffer *prompt = c->echo ? &c->echoes[index / (size_t)c->params.n] : NULL;
    pl_buffer joined = {0};
    json_t *text = NULL;
    if (!prompt) return text_of(&choice->content);
    if (pl_buffer_append(&joined, prompt->data, prompt->size, NULL) == PLEACH_OK &&
        pl_buffer_append(&joined, choice->content.data, choice->content.size, NULL) == PLEACH_OK)
        text = pl_json_bytes(joined.data, joined.size);
    pl_free(joined.data);
    return text;
}

static json_t *choice_json(const pl_completion *c, size_t i)
{
    const pl_choice *choice = &c->choices[i];
    return json_pack("{s:I, s:o, s:o, s:s}", "index", (json_int_t)i, c->chat ? "message" : "text",
                     c->chat ? message_json(choice) : echoed_json(c, choice, i), "logprobs",
                     logprobs_json(c, choice), "finish_reason", pl_finish_name(choice->end));
}

static json_t *answer_json(pl_completion *c)
{
    json_t *answer = pl_completion_head(c, false), *choices = json_array();
    for (size_t i = 0; i < c->n_choices; i++)
        if (json_array_append_new(choices, choice_json(c, i))) break;
    bool whole = json_array_size(choices) == c->n_choices;
    int failed = json_object_set_new(answer, "choices", choices) |
                 json_object_set_new(answer, "usage", pl_usage_json(c)) |
                 json_object_set_new(answer, "timings", pl_timings_json(c->choices[0].end));
    if (!failed && whole) return answer;
    json_decref(answer);
    return NULL;
}

pleach_status pl_completion_whole(pl_completion *c, pl_refusal *r)
{
    pl_event *event;
    PL_TRY(pl_completion_start(c, r));
    for (;;) {
        PL_TRY(pl_query_next(c->query, &event, r));
        if (!event) return pl_reply_json(c->exchange, answer_json(c), r);
        PL_TRY(take_event(c, event, r));
    }
}
