/* SPDX-License-Identifier: Apache-2.0 */
#include "token_logprobs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "body.h"
#include "text/utf8.h"

/* What JSON cannot say: no number for the first token of a prompt, a very small one for none. */
static json_t *number(float logprob)
{
    return isnan(logprob) ? json_null() : json_real(isfinite(logprob) ? (double)logprob : -9999.0);
}

static json_t *byte_list(const char *bytes, size_t size)
{
    json_t *list = json_array();
    for (size_t i = 0; i < size; i++)
        if (json_array_append_new(list, json_integer((unsigned char)bytes[i]))) break;
    return list;
}

static json_t *token_json(const pl_tokenizer *t, int32_t id, float logprob)
{
    size_t size;
    const char *piece = pl_tokenizer_piece(t, id, &size);
    return json_pack("{s:o, s:o, s:o}", "token", pl_json_bytes(piece, size), "logprob",
                     number(logprob), "bytes", byte_list(piece, size));
}

static pleach_logprob top_at(const pl_event *e, size_t i)
{
    pleach_logprob top;
    memcpy(&top, e->data + i * sizeof top, sizeof top);
    return top;
}

json_t *pl_logprob_json(const pl_tokenizer *t, const pl_event *e)
{
    json_t *token = token_json(t, e->id, e->logprob), *list = json_array();
    for (size_t i = 0; i < e->n_top; i++) {
        pleach_logprob top = top_at(e, i);
        if (json_array_append_new(list, token_json(t, top.id, top.logprob))) break;
    }
    if (json_object_set_new(token, "top_logprobs", list)) {
        json_decref(token);
        return NULL;
    }
    return token;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* The text of a token by which lists name it: bytes that are no text as "bytes:\xe2\x96". */
static json_t *name_of(const pl_tokenizer *t, int32_t id)
{
    size_t size;
    const char *piece = pl_tokenizer_piece(t, id, &size);
    if (pl_utf8_valid_prefix(piece, size) == size) return json_stringn(piece, size);
    char name[256] = "bytes:";
    size_t used = 6;
    for (size_t i = 0; i < size && used + 5 < sizeof name; i++)
        used += (size_t)snprintf(name + used, sizeof name - used, "\\x%02x",
                                 (unsigned)(unsigned char)piece[i]);
    return json_stringn(name, used);
}

size_t pl_count_characters(const char *text, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++) n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

json_t *pl_logprob_lists(void)
{
    return json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs", "top_logprobs",
                     "text_offset");
}

static json_t *top_json(const pl_tokenizer *t, const pl_event *e)
{
    json_t *all = json_object();
    if (isnan(e->logprob)) {
        json_decref(all);
        return json_null();
    }
    for (size_t i = 0; i < e->n_top; i++) {
        pleach_logprob top = top_at(e, i);
        json_t *name = name_of(t, top.id);
        const char *key = json_string_value(name);
        if (key && !json_object_get(all, key)) json_object_set_new(all, key, number(top.logprob));
        json_decref(name);
    }
    return all;
}

int pl_logprob_append(json_t *lists, const pl_tokenizer *t, const pl_event *e, size_t *offset)
{
    size_t size;
    const char *piece = pl_tokenizer_piece(t, e->id, &size);
    size_t at = *offset;
    *offset += pl_count_characters(piece, size);
    return json_array_append_new(json_object_get(lists, "tokens"), name_of(t, e->id)) |
           json_array_append_new(json_object_get(lists, "token_logprobs"), number(e->logprob)) |
           json_array_append_new(json_object_get(lists, "top_logprobs"), top_json(t, e)) |
           json_array_append_new(json_object_get(lists, "text_offset"),
                                 json_integer((json_int_t)at));
}
