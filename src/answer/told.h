/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations with tools as a model's chat template can tell them. */
#ifndef PL_ANSWER_TOLD_H
#define PL_ANSWER_TOLD_H

#include <jansson.h>

#include "base/error.h"

/* Changes the variables that a template is to render: "messages", a list of objects with "role" and
 * "content" as texts, and "tools" (checked, or absent).
 *
 * A template that knows no tools is told of them by the system message, in the style of Hermes,
 * and calls and their results become texts of the assistant and the user. Mistral's templates take
 * ids of nine characters: the last ones of each id. */
pleach_status pl_tools_tell(const char *chat_template, json_t *variables, pleach_error *err);

#endif
