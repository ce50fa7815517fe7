/* SPDX-License-Identifier: Apache-2.0
 *
 * A request's tools: checked, told to models, and grammars of calls to them. Tools are OpenAI's:
 * [{"type": "function", "function": {"name": .., "description": .., "parameters": schema}}]. */
#ifndef PL_ANSWER_TOOLS_H
#define PL_ANSWER_TOOLS_H

#include "answer.h"
#include "text/buffer.h"

/* PLEACH_ERR_ARGUMENT names the field: "tools[1].function.name: ..." */
pleach_status pl_tools_check(const json_t *tools, pleach_error *err);

/* The "function" of that name, or NULL. */
const json_t *pl_tools_find(const json_t *tools, const char *name);
/* There is such a function, or tools is NULL and the name is not empty. */
bool pl_tools_allow(const json_t *tools, const char *name);

#endif
