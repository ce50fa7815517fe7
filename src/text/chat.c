/* SPDX-License-Identifier: Apache-2.0 */
#include "chat.h"

#include "base/compiler.h"
#include "jinja/jinja.h"
#include "tokenizer_parts.h"
#include "utf8.h"

const char *pl_chat_format_name(const char *chat_template)
{
    static const struct {
        const char *token, *name;
    } formats[] = {{"<|im_start|>", "chatml"},
                   {"<|start_header_id|>", "llama3"},
                   {"[INST]", "mistral"},
                   {"<start_of_turn>", "gemma"}};
    for (size_t i = 0; chat_template && i < PL_COUNT(formats); i++)
        if (strstr(chat_template, formats[i].token)) return formats[i].name;
    return chat_template ? "other" : NULL;
}

/* ---- variables ------------------------------------------------------------------------------- */

/* {"bos_token": "<s>", ...}: those that the tokenizer has. */
static json_t *own_variables(const pl_tokenizer *t)
{
    const struct {
        const char *name;
        int32_t id;
    } tokens[] = {{"bos_token", pl_tokenizer_bos(t)}, {"eos_token", pl_tokenizer_eos(t)}};
    json_t *own = json_object();
    for (size_t i = 0; i < PL_COUNT(tokens); i++) {
        size_t size;
        const char *text = tokens[i].id < 0 ? NULL : pl_tokenizer_piece(t, tokens[i].id, &size);
        if (text) json_object_set_new(own, tokens[i].name, json_stringn(text, size));
    }
    return own;
}

/* Text as JSON; what is no UTF-8 becomes U+FFFD. */
static json_t *json_text(const char *s, pleach_error *err)
{
    pl_buffer clean = {0};
    json_t *j = NULL;
    if (pl_utf8_sanitize(s, strlen(s), &clean, err) == PLEACH_OK)
        j = json_stringn(clean.size ? clean.data : "", clean.size);
    pl_free(clean.data);
    return j;
}

static pleach_status add_message(json_t *list, const pleach_message *m, size_t i, pleach_error *err)
{
    PL_FAIL_IF(!m->role || !m->content, err, PLEACH_ERR_ARGUMENT,
               "message %zu has no role or no content", i);
    PL_FAIL_IF(strcmp(m->role, "system") && strcmp(m->role, "user") && strcmp(m->role, "assistant"),
               err, PLEACH_ERR_ARGUMENT,
               "message %zu: role \"%.40s\" is not system, user or assistant", i, m->role);
    json_t *content = json_text(m->content, err);
    json_t *message = json_pack("{s:s, s:o}", "role", m->role, "content", content);
    if (!message || json_array_append_new(list, message))
        return pl_fail_memory(err, "a chat", strlen(m->content));
    return PLEACH_OK;
}

pleach_status pl_chat_encode(const pl_tokenizer *t, const pleach_message *messages, size_t n,
                             pl_ids *out, pleach_error *err)
{
    PL_FAIL_IF(!n, err, PLEACH_ERR_ARGUMENT, "a chat without messages");
    json_t *list = json_array();
    pleach_status status = PLEACH_OK;
    for (size_t i = 0; status == PLEACH_OK && i < n; i++)
        status = add_message(list, &messages[i], i, err);
    json_t *variables =
        json_pack("{s:o, s:b}", "messages", list, "add_generation_prompt", (int)true);
    if (status == PLEACH_OK) status = pl_chat_encode_json(t, variables, out, err);
    json_decref(variables);
    return status;
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* Runs of one origin. */
static pleach_status make_parts(const pl_jinja_text *text, pl_text_part **parts, size_t *n,
                                pleach_error *err)
{
    size_t capacity = 0;
    for (size_t from = 0, to; from < text->size; from = to) {
        for (to = from + 1; to < text->size && text->said[to] == text->said[from];) to++;
        if (pl_grow((void **)parts, &capacity, *n + 1, sizeof **parts))
            return pl_fail_memory(err, "a chat", *n * sizeof **parts);
        (*parts)[(*n)++] = (pl_text_part){text->bytes + from, to - from, -1, !text->said[from]};
    }
    return PLEACH_OK;
}

pleach_status pl_chat_encode_json(const pl_tokenizer *t, const json_t *variables, pl_ids *out,
                                  pleach_error *err)
{
    const char *source = pl_tokenizer_chat_template(t);
    PL_FAIL_IF(!source, err, PLEACH_ERR_UNSUPPORTED, "this model has no chat template");
    pl_jinja *chat;
    pl_jinja_text text = {0};
    pl_text_part *parts = NULL;
    size_t n = 0;
    PL_TRY(pl_jinja_parse(source, strlen(source), &chat, err));
    json_t *own = own_variables(t);
    pleach_status status = pl_jinja_render(chat, variables, own, NULL, &text, err);
    if (status == PLEACH_OK) status = make_parts(&text, &parts, &n, err);
    if (status == PLEACH_OK) status = pl_tokenizer_encode_parts(t, parts, n, out, err);
    pl_free(parts);
    pl_jinja_text_free(&text);
    json_decref(own);
    pl_jinja_close(chat);
    return status;
}
