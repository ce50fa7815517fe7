/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations to ids by the model's own chat template (jinja/jinja.h). What the template writes
 * itself may hold control tokens; contents never become any. */
#ifndef PL_TEXT_CHAT_H
#define PL_TEXT_CHAT_H

#include <jansson.h>

#include "tokenizer.h"
#include "pleach/model.h" /* pleach_message */

/* By its control tokens: "chatml", "llama3", "mistral", "gemma", else "other"; NULL for NULL. */
const char *pl_chat_format_name(const char *chat_template);

/* Appends the conversation to *out, ending where the assistant speaks next. Roles are system, user
 * and assistant. PLEACH_ERR_UNSUPPORTED without a template. */
pleach_status pl_chat_encode(const pl_tokenizer *t, const pleach_message *messages, size_t n,
                             pl_ids *out, pleach_error *err);

/* The same for a JSON object of the template's variables: "messages" and, as the template has them,
 * "tools", "add_generation_prompt", "enable_thinking", ... */
pleach_status pl_chat_encode_json(const pl_tokenizer *t, const json_t *variables, pl_ids *out,
                                  pleach_error *err);

#endif
