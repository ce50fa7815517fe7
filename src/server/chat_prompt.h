/* SPDX-License-Identifier: Apache-2.0
 *
 * A body's "messages" and "chat_template_kwargs" as the variables of the model's template. */
#ifndef PL_SERVER_CHAT_PROMPT_H
#define PL_SERVER_CHAT_PROMPT_H

#include "exchange.h"

/* Appends the conversation, ending where the assistant speaks next. tools: what the template is
 * told of, or NULL. What the template says against it is a refusal. */
pleach_status pl_chat_prompt(const pl_server *s, const json_t *body, const json_t *tools,
                             pl_ids *ids, pl_refusal *r);

#endif
