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
/* A parameter of this schema is a string, which PL_TOOLS_XML writes without quotes. */
bool pl_tools_is_string(const json_t *schema);

/* ---- grammars -------------------------------------------------------------------------------- */

/* What an answer has to be: a call, or JSON, or either. */
typedef struct pl_tools_form {
    pl_tool_style style;
    const json_t *tools;          /* checked; NULL: no calls */
    const char *function;         /* the one that is called; NULL: any of them */
    bool parallel;                /* several calls may follow each other */
    const json_t *schema;         /* JSON that may come in place of calls; NULL: none may */
    bool reasoning, in_reasoning; /* as in the answer's settings: reasoning may come first */
} pl_tools_form;

/* Appends a grammar (docs/grammar.md) that the answer has to keep to, NUL-terminated; what
 * pl_answer_take reads of such an answer are calls of the tools, with arguments of their schemas.
 * A schema of a tool that no grammar can keep to counts as any object unless "strict" is true; then
 * PLEACH_ERR_UNSUPPORTED names it. PLEACH_ERR_ARGUMENT: no tool has that name. */
pleach_status pl_tools_grammar(const pl_tools_form *form, pl_buffer *out, pleach_error *err);

#endif
