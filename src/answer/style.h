/* SPDX-License-Identifier: Apache-2.0
 *
 * How a model reasons and calls tools, as its chat template tells. */
#ifndef PL_ANSWER_STYLE_H
#define PL_ANSWER_STYLE_H

#include "answer.h"

/* By the markers that the template writes; PL_TOOLS_HERMES where it writes none, for models are
 * told that style then (tools.h). Accepts NULL. */
pl_tool_style pl_tools_style(const char *chat_template);
/* The template writes tools by itself. Accepts NULL. */
bool pl_tools_in_template(const char *chat_template);

/* Sets reasoning, in_reasoning and tools of the settings: for the tokenizer's chat template, and a
 * prompt that it rendered, of which the end tells whether the model reasons already. Other fields
 * stay. */
void pl_answer_style(const pl_tokenizer *t, const int32_t *prompt, size_t n, pl_answer_settings *s);

#endif
