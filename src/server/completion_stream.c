/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers in pieces, as server-sent events: one chunk of JSON for each piece of text,
 * "data: [DONE]" last. */
#include <string.h>

#include "base/memory.h"
#include "completion.h"
#include "token_logprobs.h"

/* ---- chunks ---------------------------------------------------------------------------------- */

static pleach_status write_event(pl_completion *c, json_t *value, pl_refusal *r)
{
    pl_buffer *out = &c->exchange->out;
    pleach_status status = pl_buffer_append(out, "data: ", 6, NULL);
    if (status != PLEACH_OK)
        json_decref(value);
    else
        status = pl_append_json(out, value, r);
    if (status == PLEACH_OK) status = pl_buffer_append(out, "\n\n", 2, NULL);
    return status == PLEACH_OK ? PLEACH_OK : pl_refuse_memory(r);
}

/* What was heard of tokens since the choice's last chunk. */
static json_t *take_pending(pl_completion *c, pl_choice *choice)
{
    json_t *pending = choice->logprobs;
    if (!pending) return json_null();
    choice->logprobs = c->chat ? json_array() : pl_logprob_lists();
    return c->chat ? json_pack("{s:o}", "content", pending) : pending;
}

/* One chunk of one choice; `said` (released) is its delta or its text. */
static pleach_status write_chunk(pl_completion *c, size_t index, json_t *said, const pl_event *end,
                                 pl_refusal *r)
{
    pl_choice *choice = &c->choices[index];
    json_t *chunk = pl_completion_head(c, true);
    json_t *one = json_pack("{s:I, s:o, s:o, s:s?}", "index", (json_int_t)index,
                            c->chat ? "delta" : "text", said, "logprobs", take_pending(c, choice),
                            "finish_reason", end ? pl_finish_name(end) : NULL);
    int failed = !one || json_object_set_new(chunk, "choices", json_pack("[o]", one));
    if (c->params.include_usage) failed |= json_object_set_new(chunk, "usage", json_null());
    if (end) failed |= json_object_set_new(chunk, "timings", pl_timings_json(end));
    if (!failed) return write_event(c, chunk, r);
    json_decref(chunk);
    return pl_refuse_memory(r);
}

static json_t *call_delta(pl_choice *choice, const pl_event *e)
{
    pl_call *call = pl_choice_call(choice, e->call);
    json_t *text = json_stringn(e->data, e->size);
    if (!call || e->part == PL_ANSWER_ARGUMENTS)
        return json_pack("{s:[{s:I, s:{s:o}}]}", "tool_calls", "index", (json_int_t)e->call,
                         "function", "arguments", text);
    return json_pack("{s:[{s:I, s:s, s:s, s:{s:o, s:s}}]}", "tool_calls", "index",
                     (json_int_t)e->call, "id", call->id, "type", "function", "function", "name",
                     text, "arguments", "");
}

static pleach_status write_piece(pl_completion *c, const pl_event *e, pl_refusal *r)
{
    json_t *said;
    if (!c->chat)
        said = json_stringn(e->data, e->size);
    else if (e->part == PL_ANSWER_CONTENT || e->part == PL_ANSWER_REASONING)
        said = json_pack("{s:o}", e->part == PL_ANSWER_CONTENT ? "content" : "reasoning_content",
                         json_stringn(e->data, e->size));
    else
        said = call_delta(&c->choices[e->choice], e);
    return write_chunk(c, e->choice, said, NULL, r);
}

/* Tokens of a stop string's own have no text to go with. */
static pleach_status write_end(pl_completion *c, pl_event *e, pl_refusal *r)
{
    pl_choice *choice = &c->choices[e->choice];
    if (e->stopped && choice->logprobs) json_decref(take_pending(c, choice));
    choice->end = e;
    return write_chunk(c, e->choice, c->chat ? json_object() : json_string(""), e, r);
}

static pleach_status write_last(pl_completion *c, pl_refusal *r)
{
    static const char done[] = "data: [DONE]\n\n";
    json_t *usage = pl_usage_json(c); /* the log wants it in any case */
    c->done = true;
    if (c->params.include_usage) {
        json_t *chunk = pl_completion_head(c, true);
        if (json_object_set_new(chunk, "choices", json_array()))
            json_decref(usage);
        else
            json_object_set_new(chunk, "usage", usage);
        PL_TRY(write_event(c, chunk, r));
    } else {
        json_decref(usage);
    }
    return pl_buffer_append(&c->exchange->out, done, sizeof done - 1, NULL);
}

/* ---- the stream ------------------------------------------------------------------------------ */

/* The role, and with echo the prompt. */
static pleach_status write_first(pl_completion *c, size_t index, pl_refusal *r)
{
    const pl_buffer *echo = c->echo ? &c->echoes[index / (size_t)c->params.n] : NULL;
    c->choices[index].begun = true;
    if (c->chat)
        return write_chunk(c, index, json_pack("{s:s, s:s}", "role", "assistant", "content", ""),
                           NULL, r);
    return echo ? write_chunk(c, index, pl_json_bytes(echo->data, echo->size), NULL, r) : PLEACH_OK;
}

/* The prompt's logprobs go out with the prompt's text: before the first other event. */
static pleach_status take_event(pl_completion *c, pl_event *e, pl_refusal *r)
{
    pl_choice *choice = &c->choices[e->choice];
    pleach_status status = PLEACH_OK;
    if (e->kind != PL_EVENT_PROMPT && !choice->begun) status = write_first(c, e->choice, r);
    if (status == PLEACH_OK && e->kind == PL_EVENT_END) return write_end(c, e, r);
    if (status == PLEACH_OK)
        status = e->kind == PL_EVENT_PIECE ? write_piece(c, e, r) : pl_take_logprobs(c, e, r);
    pl_free(e);
    return status;
}

/* Writes something to the exchange's out, or finds that all is over. */
static pleach_status go_on(pl_completion *c, pl_refusal *r)
{
    pl_buffer *out = &c->exchange->out;
    do {
        pl_event *event;
        PL_TRY(pl_query_next(c->query, &event, r));
        PL_TRY(event ? take_event(c, event, r) : write_last(c, r));
    } while (!c->done && (!out->size || pl_query_has_event(c->query)));
    return PLEACH_OK;
}

/* The refusal is the last event: the status has gone out long ago. The log keeps the prompt's
 * tokens, known from the start; how many came after them, no answer's end has said. */
static void break_off(pl_completion *c, const pl_refusal *r)
{
    pl_refusal again;
    c->done = true;
    c->broken = write_event(c, pl_refusal_json(r), &again) != PLEACH_OK;
}

long pl_stream_read(pl_exchange *x, char *bytes, size_t size)
{
    pl_completion *c = x->stream;
    pl_refusal refusal = {0};
    if (!x->out.size && !c->done && go_on(c, &refusal) != PLEACH_OK) break_off(c, &refusal);
    if (c->broken) return -1;
    size_t n = PL_MIN(size, x->out.size);
    if (n) memcpy(bytes, x->out.data, n);
    memmove(x->out.data, x->out.data + n, x->out.size - n);
    x->out.size -= n;
    return (long)n;
}

/* What is refused before the answer is queued has a status of its own; a failure after it is an
 * event of the stream. */
pleach_status pl_completion_stream(pl_completion *c, pl_refusal *r)
{
    pl_exchange *x = c->exchange;
    PL_TRY(pl_completion_start(c, r));
    for (size_t i = 0; c->chat && i < c->n_choices; i++) PL_TRY(write_first(c, i, r));
    x->status = 200;
    x->content_type = "text/event-stream";
    return PLEACH_OK;
}
