/* SPDX-License-Identifier: Apache-2.0 */
#include "messages.h"

#include <stdio.h>
#include <string.h>

#include "body.h"
#include "format/json.h"
#include "text/buffer.h"

/* Where in the body something is, for refusals: "messages[2].content[0]". */
typedef struct place {
    char name[80];
} place;

static place message_field(size_t i, const char *field)
{
    place p;
    snprintf(p.name, sizeof p.name, "messages[%zu]%s", i, field);
    return p;
}

/* ---- content --------------------------------------------------------------------------------- */

static pleach_status add_part(const json_t *part, size_t i, size_t at, pl_buffer *text,
                              pl_refusal *r)
{
    char field[40];
    snprintf(field, sizeof field, ".content[%zu]", at);
    place p = message_field(i, field);
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *said = json_object_get(part, "text");
    PL_REFUSE_IF(!type, r, 400, p.name, "%s: expected an object with a \"type\"", p.name);
    PL_REFUSE_IF(strcmp(type, "text"), r, 400, p.name,
                 "%s: parts of type \"%.40s\" are not supported, only \"text\"", p.name, type);
    PL_REFUSE_IF(!json_is_string(said), r, 400, p.name, "%s.text: expected a string, found %s",
                 p.name, pl_json_kind(said));
    return pl_buffer_append(text, json_string_value(said), json_string_length(said), NULL)
               ? pl_refuse_memory(r)
               : PLEACH_OK;
}

static pleach_status join_parts(const json_t *parts, size_t i, json_t **out, pl_refusal *r)
{
    pl_buffer text = {0};
    pleach_status status = PLEACH_OK;
    for (size_t at = 0; status == PLEACH_OK && at < json_array_size(parts); at++)
        status = add_part(json_array_get(parts, at), i, at, &text, r);
    if (status == PLEACH_OK) *out = json_stringn(text.size ? text.data : "", text.size);
    pl_free(text.data);
    return status;
}

static pleach_status read_content(const json_t *message, size_t i, bool may_lack, json_t **out,
                                  pl_refusal *r)
{
    const json_t *content = json_object_get(message, "content");
    place p = message_field(i, ".content");
    if (json_is_array(content)) return join_parts(content, i, out, r);
    bool none = !content || json_is_null(content);
    PL_REFUSE_IF(!json_is_string(content) && !(none && may_lack), r, 400, p.name,
                 "%s: expected a string or a list of text parts, found %s", p.name,
                 pl_json_kind(content));
    *out = none ? json_string("") : json_incref((json_t *)content);
    return PLEACH_OK;
}

/* ---- tool calls ------------------------------------------------------------------------------ */

static pleach_status read_call(json_t *call, const place *p, pl_refusal *r)
{
    json_t *function = json_object_get(call, "function");
    json_t *arguments = json_object_get(function, "arguments");
    PL_REFUSE_IF(!json_is_string(json_object_get(function, "name")), r, 400, p->name,
                 "%s: expected calls with a function and its name", p->name);
    PL_REFUSE_IF(!json_is_string(arguments) && !json_is_object(arguments), r, 400, p->name,
                 "%s: expected a function's arguments as a string, found %s", p->name,
                 pl_json_kind(arguments));
    pl_refusal kept; /* what is no object stays a string */
    json_t *object = NULL;
    if (json_is_string(arguments) &&
        pl_body_parse(json_string_value(arguments), json_string_length(arguments), &object,
                      &kept) == PLEACH_OK)
        json_object_set_new(function, "arguments", object);
    return PLEACH_OK;
}

static pleach_status read_calls(json_t *message, size_t i, pl_refusal *r)
{
    json_t *calls = json_object_get(message, "tool_calls");
    place p = message_field(i, ".tool_calls");
    if (!calls || json_is_null(calls)) return PLEACH_OK;
    PL_REFUSE_IF(!json_is_array(calls), r, 400, p.name, "%s: expected a list, found %s", p.name,
                 pl_json_kind(calls));
    for (size_t c = 0; c < json_array_size(calls); c++)
        PL_TRY(read_call(json_array_get(calls, c), &p, r));
    return PLEACH_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

static pleach_status read_role(const json_t *message, size_t i, const char **role, pl_refusal *r)
{
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    place p = message_field(i, ".role");
    const json_t *value = json_object_get(message, "role");
    const char *text = json_string_value(value);
    PL_REFUSE_IF(!text, r, 400, p.name, "%s: expected a string, found %s", p.name,
                 pl_json_kind(value));
    for (size_t k = 0; k < PL_COUNT(roles); k++)
        if (strcmp(text, roles[k]) == 0) {
            *role = strcmp(text, "developer") == 0 ? "system" : roles[k];
            return PLEACH_OK;
        }
    return pl_refuse(r, 400, p.name,
                     "%s: expected system, developer, user, assistant or tool, found \"%.40s\"",
                     p.name, text);
}

static pleach_status read_message(json_t *message, size_t i, pl_refusal *r)
{
    const char *role = NULL;
    json_t *content = NULL;
    place p = message_field(i, "");
    PL_REFUSE_IF(!json_is_object(message), r, 400, p.name, "%s: expected an object, found %s",
                 p.name, pl_json_kind(message));
    PL_TRY(read_role(message, i, &role, r));
    PL_TRY(read_content(message, i, strcmp(role, "assistant") == 0, &content, r));
    int failed = json_object_set_new(message, "role", json_string(role)) |
                 json_object_set_new(message, "content", content);
    return failed ? pl_refuse_memory(r) : read_calls(message, i, r);
}

pleach_status pl_messages_read(const json_t *messages, json_t **out, pl_refusal *r)
{
    *out = NULL;
    PL_REFUSE_IF(!json_is_array(messages), r, 400, "messages",
                 "messages: expected a list, found %s", pl_json_kind(messages));
    PL_REFUSE_IF(!json_array_size(messages), r, 400, "messages",
                 "messages: expected at least one message");
    json_t *copy = json_deep_copy(messages);
    if (!copy) return pl_refuse_memory(r);
    pleach_status status = PLEACH_OK;
    for (size_t i = 0; status == PLEACH_OK && i < json_array_size(copy); i++)
        status = read_message(json_array_get(copy, i), i, r);
    if (status == PLEACH_OK)
        *out = copy;
    else
        json_decref(copy);
    return status;
}
