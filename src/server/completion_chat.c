/* SPDX-License-Identifier: Apache-2.0
 *
 * /v1/chat/completions: a conversation, by the model's own template. */
#include <string.h>

#include "answer/style.h"
#include "base/memory.h"
#include "chat_prompt.h"
#include "chat_tools.h"
#include "completion.h"

/* Where the answer has to be a call, or may reason before it is JSON, a grammar of ours says so. */
static pleach_status prepare_form(pl_completion *c, const pl_chat_tools *tools, pl_refusal *r)
{
    bool plain = !tools->list && !c->answer.reasoning; /* JSON alone: the library's own matter */
    PL_REFUSE_IF(tools->required && c->params.grammar, r, 400, "grammar",
                 "grammar: expected no tool that must be called with it");
    if (!tools->required && (plain || !c->params.schema)) return PLEACH_OK;
    PL_TRY(pl_chat_tools_grammar(tools, &c->answer, c->params.schema, &c->form, r));
    c->request.generation.json_schema = NULL;
    c->request.generation.grammar = c->form.data;
    return PLEACH_OK;
}

pleach_status pl_chat_prepare(pl_completion *c, pl_refusal *r)
{
    const pl_server *s = c->exchange->server;
    pl_chat_tools tools;
    PL_REFUSE_IF(c->params.top_logprobs && !c->params.logprobs, r, 400, "top_logprobs",
                 "top_logprobs: expected \"logprobs\": true with it");
    PL_TRY(pl_chat_tools_read(c->body, &tools, r));
    c->prompts = pl_calloc(1, sizeof *c->prompts);
    if (!c->prompts) return pl_refuse_memory(r);
    c->n_prompts = 1;
    PL_TRY(pl_chat_prompt(s, c->body, tools.list, &c->prompts[0], r));
    pl_answer_style(s->tokenizer, c->prompts[0].ids, c->prompts[0].n, &c->answer);
    if (!tools.list) c->answer.tools = PL_TOOLS_NONE;
    c->answer.tool_list = tools.list;
    c->answer.one_call = tools.list && !tools.parallel;
    return prepare_form(c, &tools, r);
}

pleach_status pl_route_chat(pl_exchange *x, pl_refusal *r)
{
    return pl_complete(x, true, r);
}
