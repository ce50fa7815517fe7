/* SPDX-License-Identifier: Apache-2.0
 *
 * /v1/chat/completions: a conversation, by the model's own template. */
#include <string.h>

#include "answer/style.h"
#include "base/memory.h"
#include "chat_prompt.h"
#include "completion.h"

pleach_status pl_chat_prepare(pl_completion *c, pl_refusal *r)
{
    pl_exchange *x = c->exchange;
    c->prompts = pl_calloc(1, sizeof *c->prompts);
    if (!c->prompts) return pl_refuse_memory(r);
    c->n_prompts = 1;
    PL_REFUSE_IF(c->params.top_logprobs && !c->params.logprobs, r, 400, "top_logprobs",
                 "top_logprobs: expected \"logprobs\": true with it");
    PL_TRY(pl_chat_prompt(x->server, c->body, &c->prompts[0], r));
    pl_answer_style(x->server->tokenizer, c->prompts[0].ids, c->prompts[0].n, &c->answer);
    c->answer.tool_list = json_object_get(c->body, "tools");
    if (!json_array_size(c->answer.tool_list)) c->answer.tools = PL_TOOLS_NONE;
    return PLEACH_OK;
}

pleach_status pl_route_chat(pl_exchange *x, pl_refusal *r)
{
    return pl_complete(x, true, r);
}
