/* SPDX-License-Identifier: Apache-2.0 */
#include "params.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/memory.h"
#include "format/json.h"

/* ---- fields of more than one shape ----------------------------------------------------------- */

static pleach_status read_stop_text(const json_t *value, const char *name, pl_params *p,
                                    pl_refusal *r)
{
    size_t size = json_string_length(value);
    PL_REFUSE_IF(!json_is_string(value), r, 400, name,
                 "%s: expected a string or a list of strings, found %s", name, pl_json_kind(value));
    PL_REFUSE_IF(size < 1 || size > PL_MAX_STOP_BYTES, r, 400, name,
                 "%s: expected texts of 1 to %d bytes, found one of %zu", name, PL_MAX_STOP_BYTES,
                 size);
    p->stop[p->n_stop++] = json_string_value(value);
    return PLEACH_OK;
}

static pleach_status read_stop(const json_t *value, const char *name, void *values, pl_refusal *r)
{
    pl_params *p = values;
    size_t n = json_array_size(value);
    if (!json_is_array(value)) return read_stop_text(value, name, p, r);
    PL_REFUSE_IF(n > PL_MAX_STOPS, r, 400, name, "%s: expected at most %d texts, found %zu", name,
                 PL_MAX_STOPS, n);
    for (size_t i = 0; i < n; i++) PL_TRY(read_stop_text(json_array_get(value, i), name, p, r));
    return PLEACH_OK;
}

/* A token id as a key of JSON: digits, all of them. -1: it is none. */
static int64_t id_of_key(const char *key)
{
    char *end;
    errno = 0;
    long long id = strtoll(key, &end, 10);
    bool digits = key[0] >= '0' && key[0] <= '9' && !*end;
    return digits && !errno ? id : -1;
}

/* {"1234": -100, ...}. How many ids there are is known only where the model is: pl_params_read. */
static pleach_status read_bias(const json_t *value, const char *name, void *values, pl_refusal *r)
{
    pl_params *p = values;
    const char *key;
    json_t *bias;
    PL_REFUSE_IF(!json_is_object(value), r, 400, name,
                 "%s: expected an object of token ids, found %s", name, pl_json_kind(value));
    p->bias = pl_alloc(json_object_size(value), sizeof *p->bias);
    if (!p->bias) return pl_refuse_memory(r);
    json_object_foreach((json_t *)value, key, bias)
    {
        int64_t id = id_of_key(key);
        double x = json_number_value(bias);
        PL_REFUSE_IF(id < 0 || id > INT32_MAX, r, 400, name,
                     "%s: expected token ids as keys, found \"%.40s\"", name, key);
        PL_REFUSE_IF(!json_is_number(bias) || !(x >= -100 && x <= 100), r, 400, name,
                     "%s: expected a number from -100 to 100 for token %s", name, key);
        p->bias[p->n_bias++] = (pleach_logit_bias){(int32_t)id, (float)x};
    }
    return PLEACH_OK;
}

/* chat: true; completions: how many of the likeliest, with true as 0. */
static pleach_status read_logprobs(const json_t *value, const char *name, void *values,
                                   pl_refusal *r)
{
    pl_params *p = values;
    json_int_t n = json_integer_value(value);
    PL_REFUSE_IF(!json_is_boolean(value) && !(json_is_integer(value) && n >= 0 && n <= 20), r, 400,
                 name, "%s: expected true, false or a whole number from 0 to 20, found %s", name,
                 json_is_integer(value) ? "another number" : pl_json_kind(value));
    p->logprobs = !json_is_false(value);
    if (json_is_integer(value)) p->top_logprobs = n;
    return PLEACH_OK;
}

/* The schema is taken over. */
static pleach_status take_schema(json_t *schema, pl_params *p, pl_refusal *r)
{
    p->schema = schema;
    p->schema_text = json_dumps(schema, JSON_COMPACT);
    return p->schema_text ? PLEACH_OK : pl_refuse_memory(r);
}

static pleach_status read_format(const json_t *value, const char *name, void *values, pl_refusal *r)
{
    static const char schema_name[] = "response_format.json_schema.schema";
    const char *type = json_string_value(json_object_get(value, "type"));
    PL_REFUSE_IF(!type, r, 400, name, "%s: expected an object with a \"type\"", name);
    if (strcmp(type, "text") == 0) return PLEACH_OK;
    if (strcmp(type, "json_object") == 0)
        return take_schema(json_pack("{s:s}", "type", "object"), values, r);
    PL_REFUSE_IF(strcmp(type, "json_schema"), r, 400, "response_format.type",
                 "%s.type: expected text, json_object or json_schema, found \"%.40s\"", name, type);
    json_t *schema = json_object_get(json_object_get(value, "json_schema"), "schema");
    PL_REFUSE_IF(!json_is_object(schema), r, 400, schema_name,
                 "%s: expected a JSON schema, found %s", schema_name, pl_json_kind(schema));
    return take_schema(json_incref(schema), values, r);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define INTEGER(field, least, most)                                                                \
    .type = PL_FIELD_INTEGER, .min = least, .max = most, PL_FIELD_AT(pl_params, field)
#define REAL(field, least, most)                                                                   \
    .type = PL_FIELD_REAL, .min = least, .max = most, PL_FIELD_AT(pl_params, field)
#define BOOL(field)   .type = PL_FIELD_BOOL, PL_FIELD_AT(pl_params, field)
#define TEXT(field)   .type = PL_FIELD_TEXT, PL_FIELD_AT(pl_params, field)
#define OTHER(reader) .type = PL_FIELD_OTHER, .read = reader

static const pl_field fields[] = {
    {"stream", BOOL(stream)},
    {"stream_options.include_usage", BOOL(include_usage)},
    {"n", INTEGER(n, 1, PL_MAX_ANSWERS)},
    {"max_tokens", INTEGER(max_tokens, 0, INT32_MAX)},
    {"max_completion_tokens", INTEGER(max_tokens, 0, INT32_MAX)}, /* the newer name goes first */
    {"temperature", REAL(temperature, 0, 100)},
    {"top_p", REAL(top_p, 0, 1)},
    {"top_k", INTEGER(top_k, -1, INT32_MAX)},
    {"min_p", REAL(min_p, 0, 1)},
    {"seed", INTEGER(seed, -0x1p63, 0x1p63)},
    {"presence_penalty", REAL(presence_penalty, -2, 2)},
    {"frequency_penalty", REAL(frequency_penalty, -2, 2)},
    {"repetition_penalty", REAL(repetition_penalty, 0.01, 100)},
    {"repeat_penalty", REAL(repetition_penalty, 0.01, 100)},
    {"repetition_window", INTEGER(repetition_window, -1, INT32_MAX)},
    {"ignore_eos", BOOL(ignore_end)},
    {"stop", OTHER(read_stop)},
    {"logit_bias", OTHER(read_bias)},
    {"logprobs", OTHER(read_logprobs)},
    {"top_logprobs", INTEGER(top_logprobs, 0, 20)},
    {"grammar", TEXT(grammar)},
    {"response_format", OTHER(read_format)},
};

static const pl_params defaults = {
    .n = 1,
    .max_tokens = -1,
    .seed = -1,
    .temperature = 1,
    .top_p = 1,
    .repetition_penalty = 1,
    .repetition_window = -1,
};

pleach_status pl_params_read(const json_t *body, size_t vocab, pl_params *p, pl_refusal *r)
{
    *p = defaults;
    PL_TRY(pl_fields_read(fields, PL_COUNT(fields), body, p, r));
    for (size_t i = 0; i < p->n_bias; i++)
        PL_REFUSE_IF((size_t)p->bias[i].id >= vocab, r, 400, "logit_bias",
                     "logit_bias: expected token ids below %zu, found %d", vocab, p->bias[i].id);
    PL_REFUSE_IF(p->grammar && p->schema, r, 400, "grammar",
                 "grammar: expected no response_format with it");
    return PLEACH_OK;
}

void pl_params_free(pl_params *p)
{
    json_decref(p->schema);
    free(p->schema_text);
    pl_free(p->bias);
    *p = (pl_params){0};
}

static uint64_t fresh_seed(void)
{
    uint64_t seed = 0;
    ssize_t n = getrandom(&seed, sizeof seed, 0);
    (void)n; /* eight bytes never fall short */
    return seed;
}

void pl_params_request(const pl_params *p, pleach_request *request)
{
    pleach_request_defaults(request);
    pleach_generation *g = &request->generation;
    g->sampling.temperature = (float)p->temperature;
    g->sampling.top_k = (int32_t)p->top_k;
    g->sampling.top_p = (float)p->top_p;
    g->sampling.min_p = (float)p->min_p;
    g->sampling.repetition_penalty = (float)p->repetition_penalty;
    g->sampling.repetition_window = (int32_t)p->repetition_window;
    g->sampling.presence_penalty = (float)p->presence_penalty;
    g->sampling.frequency_penalty = (float)p->frequency_penalty;
    g->sampling.seed = p->seed == -1 ? fresh_seed() : (uint64_t)p->seed;
    g->max_tokens = p->max_tokens > 0 ? (size_t)p->max_tokens : 0;
    g->ignore_end = p->ignore_end;
    g->grammar = p->grammar;
    g->json_schema = p->schema_text;
    request->no_tokens = p->max_tokens == 0;
    request->answers = (size_t)p->n;
    request->bias = p->bias;
    request->n_bias = p->n_bias;
    request->logprobs = p->logprobs;
    request->top_logprobs = (size_t)p->top_logprobs;
}
