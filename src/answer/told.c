/* SPDX-License-Identifier: Apache-2.0 */
#include "told.h"

#include <string.h>

#include "style.h"
#include "text/buffer.h"

/* A text in the making; after a failure nothing is added. */
typedef struct telling {
    pl_buffer text;
    pleach_status status;
    pleach_error *err;
} telling;

static void tell(telling *t, const char *s)
{
    if (t->status == PLEACH_OK) t->status = pl_buffer_append(&t->text, s, strlen(s), t->err);
}

static void tell_json(telling *t, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    if (text)
        tell(t, text);
    else if (t->status == PLEACH_OK)
        t->status = pl_fail_memory(t->err, "a chat", 0);
    free(text);
}

/* The text becomes the message's content. */
static pleach_status end_content(telling *t, json_t *message)
{
    json_t *content =
        t->status ? NULL : json_stringn(t->text.size ? t->text.data : "", t->text.size);
    pl_free(t->text.data);
    if (t->status != PLEACH_OK) return t->status;
    if (json_object_set_new(message, "content", content))
        return pl_fail_memory(t->err, "a chat", t->text.size);
    return PLEACH_OK;
}

static const char *text_of(const json_t *message, const char *key)
{
    const char *text = json_string_value(json_object_get(message, key));
    return text ? text : "";
}

/* ---- templates without tools ----------------------------------------------------------------- */

static pleach_status tell_system(json_t *message, const json_t *tools, pleach_error *err)
{
    telling t = {.err = err};
    const char *before = text_of(message, "content");
    tell(&t, before);
    if (before[0]) tell(&t, "\n\n");
    tell(&t, "You can call functions. They are, one to a line:\n<tools>\n");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        tell_json(&t, json_object_get(json_array_get(tools, i), "function"));
        tell(&t, "\n");
    }
    tell(&t, "</tools>\n\nTo call one, write its name and its arguments as JSON between tags:\n"
             "<tool_call>\n{\"name\": \"...\", \"arguments\": {...}}\n</tool_call>\n"
             "What it returns comes back between <tool_response> and </tool_response>. Where no "
             "function helps, answer without a call.");
    return end_content(&t, message);
}

static pleach_status tell_calls(json_t *message, pleach_error *err)
{
    telling t = {.err = err};
    const json_t *calls = json_object_get(message, "tool_calls");
    tell(&t, text_of(message, "content"));
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *f = json_object_get(json_array_get(calls, i), "function");
        tell(&t, t.text.size ? "\n<tool_call>\n{\"name\": " : "<tool_call>\n{\"name\": ");
        tell_json(&t, json_object_get(f, "name"));
        tell(&t, ", \"arguments\": ");
        tell_json(&t, json_object_get(f, "arguments"));
        tell(&t, "}\n</tool_call>");
    }
    json_object_del(message, "tool_calls");
    return end_content(&t, message);
}

static bool is_result(const json_t *message)
{
    const char *role = text_of(message, "role");
    return !strcmp(role, "tool") || !strcmp(role, "function");
}

/* Results that follow each other are one message of the user: templates want roles to alternate. */
static pleach_status tell_results(json_t *messages, size_t first, pleach_error *err)
{
    telling t = {.err = err};
    json_t *into = json_array_get(messages, first);
    for (size_t i = first; is_result(json_array_get(messages, i)); i++) {
        tell(&t, i > first ? "\n<tool_response>\n" : "<tool_response>\n");
        tell(&t, text_of(json_array_get(messages, i), "content"));
        tell(&t, "\n</tool_response>");
    }
    while (is_result(json_array_get(messages, first + 1))) json_array_remove(messages, first + 1);
    json_object_set_new(into, "role", json_string("user"));
    return end_content(&t, into);
}

static pleach_status tell_messages(json_t *messages, pleach_error *err)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i);
        if (json_array_size(json_object_get(m, "tool_calls"))) PL_TRY(tell_calls(m, err));
        if (is_result(m)) PL_TRY(tell_results(messages, i, err));
    }
    return PLEACH_OK;
}

static pleach_status tell_all(json_t *variables, pleach_error *err)
{
    json_t *messages = json_object_get(variables, "messages");
    json_t *tools = json_object_get(variables, "tools");
    PL_TRY(tell_messages(messages, err));
    if (!json_array_size(tools)) return PLEACH_OK;
    bool has_system = !strcmp(text_of(json_array_get(messages, 0), "role"), "system");
    if (!has_system && json_array_insert_new(messages, 0, json_pack("{s:s}", "role", "system")))
        return pl_fail_memory(err, "a chat", 0);
    PL_TRY(tell_system(json_array_get(messages, 0), tools, err));
    json_object_del(variables, "tools");
    return PLEACH_OK;
}

/* ---- Mistral's ids --------------------------------------------------------------------------- */

enum { MISTRAL_ID = 9 };

static void shorten(json_t *object, const char *key)
{
    char id[MISTRAL_ID + 1] = "000000000";
    const char *whole = json_string_value(json_object_get(object, key));
    size_t n = whole ? strlen(whole) : 0, kept = PL_MIN(n, MISTRAL_ID);
    if (!whole || n == MISTRAL_ID) return;
    memcpy(id + MISTRAL_ID - kept, whole + n - kept, kept);
    json_object_set_new(object, key, json_string(id));
}

static void shorten_ids(json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i), *calls = json_object_get(m, "tool_calls");
        shorten(m, "tool_call_id");
        for (size_t k = 0; k < json_array_size(calls); k++) shorten(json_array_get(calls, k), "id");
    }
}

pleach_status pl_tools_tell(const char *chat_template, json_t *variables, pleach_error *err)
{
    if (pl_tools_style(chat_template) == PL_TOOLS_MISTRAL)
        shorten_ids(json_object_get(variables, "messages"));
    return pl_tools_in_template(chat_template) ? PLEACH_OK : tell_all(variables, err);
}
