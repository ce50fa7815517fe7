/* SPDX-License-Identifier: Apache-2.0 */
#include "chat_prompt.h"

#include <string.h>

#include "answer/told.h"
#include "inputs.h"
#include "messages.h"
#include "text/chat.h"

typedef struct chat_values {
    bool generation_prompt, thinking;
    const json_t *kwargs;
} chat_values;

static const pl_field fields[] = {
    {"add_generation_prompt", .type = PL_FIELD_BOOL, PL_FIELD_AT(chat_values, generation_prompt)},
    {"enable_thinking", .type = PL_FIELD_BOOL, PL_FIELD_AT(chat_values, thinking)},
    {"chat_template_kwargs", .type = PL_FIELD_OBJECT, PL_FIELD_AT(chat_values, kwargs)},
};

/* The request's own names win over chat_template_kwargs. */
static json_t *make_variables(const json_t *body, const chat_values *v, json_t *messages,
                              const json_t *tools)
{
    json_t *variables = v->kwargs ? json_copy((json_t *)v->kwargs) : json_object();
    int failed =
        json_object_set(variables, "messages", messages) |
        json_object_set_new(variables, "add_generation_prompt", json_boolean(v->generation_prompt));
    if (json_is_boolean(json_object_get(body, "enable_thinking")))
        failed |= json_object_set_new(variables, "enable_thinking", json_boolean(v->thinking));
    if (tools) failed |= json_object_set(variables, "tools", (json_t *)tools);
    if (!failed) return variables;
    json_decref(variables);
    return NULL;
}

static pleach_status encode(const pl_server *s, json_t *variables, pl_ids *ids, pleach_error *err)
{
    if (!variables) return pl_fail_memory(err, "a chat", 0);
    PL_TRY(pl_tools_tell(pl_tokenizer_chat_template(s->tokenizer), variables, err));
    return pl_chat_encode_json(s->tokenizer, variables, ids, err);
}

static pleach_status check_length(const pl_server *s, const json_t *messages, pl_refusal *r)
{
    size_t bytes = 0;
    for (size_t i = 0; i < json_array_size(messages); i++)
        bytes += json_string_length(json_object_get(json_array_get(messages, i), "content"));
    return pl_input_check(s, bytes, "messages", r);
}

pleach_status pl_chat_prompt(const pl_server *s, const json_t *body, const json_t *tools,
                             pl_ids *ids, pl_refusal *r)
{
    chat_values v = {.generation_prompt = true};
    json_t *messages;
    pleach_error err;
    PL_TRY(pl_fields_read(fields, PL_COUNT(fields), body, &v, r));
    PL_TRY(pl_messages_read(json_object_get(body, "messages"), &messages, r));
    pleach_status status = check_length(s, messages, r);
    json_t *variables = status == PLEACH_OK ? make_variables(body, &v, messages, tools) : NULL;
    if (status == PLEACH_OK && encode(s, variables, ids, &err) != PLEACH_OK)
        status = pl_refuse_error(r, "messages", &err);
    json_decref(variables);
    json_decref(messages);
    return status;
}
