/* SPDX-License-Identifier: Apache-2.0 */
#include "chat_tools.h"

#include <string.h>

#include "answer/tools.h"
#include "body.h"
#include "format/json.h"

typedef struct tool_values {
    const json_t *tools;
    bool parallel;
} tool_values;

static const pl_field fields[] = {
    {"tools", .type = PL_FIELD_ARRAY, PL_FIELD_AT(tool_values, tools)},
    {"parallel_tool_calls", .type = PL_FIELD_BOOL, PL_FIELD_AT(tool_values, parallel)},
};

/* {"type": "function", "function": {"name": ...}} */
static pleach_status read_named(const json_t *choice, pl_chat_tools *t, pl_refusal *r)
{
    const json_t *function = json_object_get(choice, "function");
    t->function = json_string_value(json_object_get(function, "name"));
    PL_REFUSE_IF(!t->function, r, 400, "tool_choice",
                 "tool_choice: expected none, auto, required or a function's name in "
                 "{\"type\": \"function\", \"function\": {\"name\": ...}}");
    PL_REFUSE_IF(!t->list || !pl_tools_find(t->list, t->function), r, 400, "tool_choice",
                 "tool_choice: there is no function \"%.60s\" in tools", t->function);
    t->required = true;
    return PLEACH_OK;
}

static pleach_status read_choice(const json_t *choice, pl_chat_tools *t, pl_refusal *r)
{
    const char *word = json_string_value(choice);
    if (!choice || json_is_null(choice) || (word && strcmp(word, "auto") == 0)) return PLEACH_OK;
    if (!word || (strcmp(word, "none") && strcmp(word, "required")))
        return read_named(choice, t, r);
    t->required = strcmp(word, "required") == 0;
    PL_REFUSE_IF(t->required && !t->list, r, 400, "tool_choice",
                 "tool_choice: \"required\" without tools");
    if (!t->required) t->list = NULL;
    return PLEACH_OK;
}

pleach_status pl_chat_tools_read(const json_t *body, pl_chat_tools *t, pl_refusal *r)
{
    tool_values v = {.parallel = true};
    pleach_error err;
    *t = (pl_chat_tools){0};
    PL_REFUSE_IF(pl_json_get(body, "functions"), r, 400, "functions",
                 "functions: the older form of tools is not supported; expected \"tools\"");
    PL_TRY(pl_fields_read(fields, PL_COUNT(fields), body, &v, r));
    if (json_array_size(v.tools)) {
        if (pl_tools_check(v.tools, &err) != PLEACH_OK) return pl_refuse_error(r, "tools", &err);
        t->list = v.tools;
    }
    t->parallel = v.parallel;
    return read_choice(json_object_get(body, "tool_choice"), t, r);
}

pleach_status pl_chat_tools_grammar(const pl_chat_tools *t, const pl_answer_settings *style,
                                    const json_t *schema, pl_buffer *out, pl_refusal *r)
{
    const pl_tools_form form = {
        .style = style->tools,
        .tools = t->list,
        .function = t->function,
        .parallel = t->parallel,
        .schema = t->required ? NULL : schema,
        .reasoning = style->reasoning,
        .in_reasoning = style->in_reasoning,
    };
    pleach_error err;
    if (!t->required && !schema) return PLEACH_OK;
    pleach_status status = pl_tools_grammar(&form, out, &err);
    return status == PLEACH_OK
               ? status
               : pl_refuse_error(r, t->required ? "tools" : "response_format", &err);
}
