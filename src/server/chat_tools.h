/* SPDX-License-Identifier: Apache-2.0
 *
 * "tools", "tool_choice" and "parallel_tool_calls" of a chat. */
#ifndef PL_SERVER_CHAT_TOOLS_H
#define PL_SERVER_CHAT_TOOLS_H

#include "answer/answer.h"
#include "refusal.h"
#include "text/buffer.h"

typedef struct pl_chat_tools {
    const json_t *list;   /* borrowed from the body; NULL: none, or none may be called */
    const char *function; /* the one that must be called; NULL: any */
    bool required, parallel;
} pl_chat_tools;

pleach_status pl_chat_tools_read(const json_t *body, pl_chat_tools *t, pl_refusal *r);

/* The grammar of an answer that has to be a call, or JSON of the schema (NULL: need not); style is
 * how the model reasons and calls. Appended with a NUL; nothing where the answer is free. */
pleach_status pl_chat_tools_grammar(const pl_chat_tools *t, const pl_answer_settings *style,
                                    const json_t *schema, pl_buffer *out, pl_refusal *r);

#endif
