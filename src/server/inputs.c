/* SPDX-License-Identifier: Apache-2.0 */
#include "inputs.h"

#include <string.h>

#include "base/memory.h"
#include "format/json.h"

/* A normalizer may shorten what it reads, by less than this. */
enum { SHORTENED = 4 };

pleach_status pl_input_check(const pl_server *s, size_t bytes, const char *name, pl_refusal *r)
{
    size_t most = SHORTENED * s->context * s->longest_piece;
    if (bytes <= most) return PLEACH_OK;
    pl_refuse(r, 400, name, "%s: a text of %zu bytes has more tokens than the %zu of the context",
              name, bytes, s->context);
    r->code = "context_length_exceeded";
    return PLEACH_ERR_LIMIT;
}

pleach_status pl_input_text(const pl_server *s, const char *text, size_t size, unsigned flags,
                            const char *name, pl_ids *ids, pl_refusal *r)
{
    pleach_error err;
    if (pl_tokenizer_encode(s->tokenizer, text, size, flags, ids, &err) == PLEACH_OK)
        return PLEACH_OK;
    return pl_refuse_error(r, name, &err);
}

pleach_status pl_input_ids(const pl_server *s, const json_t *list, const char *name, pl_ids *ids,
                           pl_refusal *r)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t id = json_integer_value(value);
        PL_REFUSE_IF(!json_is_integer(value), r, 400, name, "%s: expected token ids, found %s",
                     name, pl_json_kind(value));
        PL_REFUSE_IF(id < 0 || id >= (json_int_t)s->info.vocab_size, r, 400, name,
                     "%s: expected token ids below %u, found %lld", name, s->info.vocab_size,
                     (long long)id);
        int32_t one = (int32_t)id;
        if (pl_ids_append(ids, &one, 1, NULL) != PLEACH_OK) return pl_refuse_memory(r);
    }
    return PLEACH_OK;
}

static pleach_status read_one(const pl_server *s, const json_t *value, const char *name,
                              pl_ids *ids, pl_refusal *r)
{
    if (json_is_string(value)) {
        PL_TRY(pl_input_check(s, json_string_length(value), name, r));
        return pl_input_text(s, json_string_value(value), json_string_length(value), PL_ENCODE_BOS,
                             name, ids, r);
    }
    PL_REFUSE_IF(!json_is_array(value), r, 400, name,
                 "%s: expected a string, a list of strings, token ids, or a list of lists of token "
                 "ids, found %s",
                 name, pl_json_kind(value));
    return pl_input_ids(s, value, name, ids, r);
}

pleach_status pl_inputs_read(const pl_server *s, const json_t *value, const char *name,
                             pl_ids **ids, size_t *n, pl_refusal *r)
{
    bool many = json_is_array(value) && !json_is_integer(json_array_get(value, 0));
    size_t count = many ? json_array_size(value) : 1;
    PL_REFUSE_IF(!value || json_is_null(value), r, 400, name, "%s is missing", name);
    PL_REFUSE_IF(count < 1 || count > PL_MAX_INPUTS, r, 400, name,
                 "%s: expected 1 to %d texts or lists of token ids, found %zu", name, PL_MAX_INPUTS,
                 count);
    *ids = pl_calloc(count, sizeof **ids);
    if (!*ids) return pl_refuse_memory(r);
    for (*n = 0; *n < count;) {
        const json_t *one = many ? json_array_get(value, *n) : value;
        PL_TRY(read_one(s, one, name, &(*ids)[(*n)++], r));
    }
    return PLEACH_OK;
}
