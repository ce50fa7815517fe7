/* SPDX-License-Identifier: Apache-2.0
 *
 * /tokenize, /detokenize and /apply-template: text to ids and back, without an answer. */
#include "base/memory.h"
#include "chat_prompt.h"
#include "chat_tools.h"
#include "format/json.h"
#include "inputs.h"

typedef struct token_values {
    const char *content;
    bool add_special, parse_special, with_pieces;
    const json_t *tokens;
} token_values;

static const pl_field fields[] = {
    {"content", .type = PL_FIELD_TEXT, PL_FIELD_AT(token_values, content)},
    {"prompt", .type = PL_FIELD_TEXT, PL_FIELD_AT(token_values, content)}, /* as vLLM says it */
    {"add_special", .type = PL_FIELD_BOOL, PL_FIELD_AT(token_values, add_special)},
    {"add_special_tokens", .type = PL_FIELD_BOOL, PL_FIELD_AT(token_values, add_special)},
    {"parse_special", .type = PL_FIELD_BOOL, PL_FIELD_AT(token_values, parse_special)},
    {"with_pieces", .type = PL_FIELD_BOOL, PL_FIELD_AT(token_values, with_pieces)},
    {"tokens", .type = PL_FIELD_ARRAY, PL_FIELD_AT(token_values, tokens)},
};

static json_t *id_list(const pl_tokenizer *t, const pl_ids *ids, bool pieces)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ids->n; i++) {
        json_t *one = json_integer(ids->ids[i]);
        size_t size;
        const char *piece = pl_tokenizer_piece(t, ids->ids[i], &size);
        if (pieces) one = json_pack("{s:o, s:o}", "id", one, "piece", pl_json_bytes(piece, size));
        if (json_array_append_new(list, one)) break;
    }
    return list;
}

static pleach_status reply_ids(pl_exchange *x, const pl_ids *ids, bool pieces, pl_refusal *r)
{
    json_t *list = id_list(x->server->tokenizer, ids, pieces);
    return pl_reply_json(x, json_pack("{s:o, s:I}", "tokens", list, "count", (json_int_t)ids->n),
                         r);
}

static pleach_status tokenize(pl_exchange *x, const json_t *body, pl_refusal *r)
{
    token_values v = {0};
    pl_ids ids = {0};
    PL_TRY(pl_fields_read(fields, PL_COUNT(fields), body, &v, r));
    PL_REFUSE_IF(!v.content, r, 400, "content", "content is missing");
    unsigned flags =
        (v.add_special ? PL_ENCODE_BOS : 0) | (v.parse_special ? PL_ENCODE_SPECIAL : 0);
    pleach_status status =
        pl_input_text(x->server, v.content, strlen(v.content), flags, "content", &ids, r);
    if (status == PLEACH_OK) status = reply_ids(x, &ids, v.with_pieces, r);
    pl_free(ids.ids);
    return status;
}

static pleach_status detokenize(pl_exchange *x, const json_t *body, pl_refusal *r)
{
    token_values v = {0};
    pl_ids ids = {0};
    pleach_error err;
    char *text = NULL;
    size_t size = 0;
    PL_TRY(pl_fields_read(fields, PL_COUNT(fields), body, &v, r));
    PL_REFUSE_IF(!v.tokens, r, 400, "tokens", "tokens is missing");
    pleach_status status = pl_input_ids(x->server, v.tokens, "tokens", &ids, r);
    if (status == PLEACH_OK &&
        pl_tokenizer_decode(x->server->tokenizer, ids.ids, ids.n, true, &text, &size, &err))
        status = pl_refuse_error(r, "tokens", &err);
    if (status == PLEACH_OK)
        status = pl_reply_json(x, json_pack("{s:o}", "content", pl_json_bytes(text, size)), r);
    pl_free(text);
    pl_free(ids.ids);
    return status;
}

static pleach_status apply_template(pl_exchange *x, const json_t *body, pl_refusal *r)
{
    pl_ids ids = {0};
    pleach_error err;
    char *text = NULL;
    size_t size = 0;
    pl_chat_tools tools;
    PL_TRY(pl_chat_tools_read(body, &tools, r));
    pleach_status status = pl_chat_prompt(x->server, body, tools.list, &ids, r);
    if (status == PLEACH_OK &&
        pl_tokenizer_decode(x->server->tokenizer, ids.ids, ids.n, true, &text, &size, &err))
        status = pl_refuse_error(r, "messages", &err);
    if (status == PLEACH_OK)
        status = pl_reply_json(x,
                               json_pack("{s:o, s:o}", "prompt", pl_json_bytes(text, size),
                                         "tokens", id_list(x->server->tokenizer, &ids, false)),
                               r);
    pl_free(text);
    pl_free(ids.ids);
    return status;
}

pleach_status pl_route_tokenize(pl_exchange *x, pl_refusal *r)
{
    return pl_with_body(x, tokenize, r);
}

pleach_status pl_route_detokenize(pl_exchange *x, pl_refusal *r)
{
    return pl_with_body(x, detokenize, r);
}

pleach_status pl_route_apply_template(pl_exchange *x, pl_refusal *r)
{
    return pl_with_body(x, apply_template, r);
}
