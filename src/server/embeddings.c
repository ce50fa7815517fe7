/* SPDX-License-Identifier: Apache-2.0
 *
 * /v1/embeddings: a vector of length 1 for each text. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "inputs.h"
#include "query.h"

typedef struct embedding_values {
    const char *format, *pooling;
    int64_t dimensions;
} embedding_values;

static const pl_field fields[] = {
    {"encoding_format", .type = PL_FIELD_TEXT, PL_FIELD_AT(embedding_values, format)},
    {"pooling", .type = PL_FIELD_TEXT, PL_FIELD_AT(embedding_values, pooling)},
    {"dimensions", .type = PL_FIELD_INTEGER, .min = 1, .max = INT32_MAX,
     PL_FIELD_AT(embedding_values, dimensions)},
};

/* ---- values ---------------------------------------------------------------------------------- */

static json_t *number_list(const float *x, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(list, json_real((double)x[i]))) break;
    return list;
}

/* RFC 4648, section 4, of bytes as they lie in memory: little-endian f32. */
static json_t *base64(const unsigned char *bytes, size_t size)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = 0;
    char *text = pl_alloc((size + 2) / 3, 4);
    for (size_t i = 0; text && i < size; i += 3) {
        size_t have = PL_MIN(size - i, 3);
        unsigned bits = (unsigned)bytes[i] << 16 | (have > 1 ? bytes[i + 1] : 0u) << 8 |
                        (have > 2 ? bytes[i + 2] : 0u);
        for (size_t k = 0; k < 4; k++)
            text[n++] = k <= have ? letters[bits >> (18 - 6 * k) & 63] : '=';
    }
    json_t *string = text ? json_stringn(text, n) : NULL;
    pl_free(text);
    return string;
}

static json_t *embedding_json(const pl_event *e, bool encoded)
{
    return json_pack(
        "{s:s, s:I, s:o}", "object", "embedding", "index", (json_int_t)e->choice, "embedding",
        encoded ? base64((const unsigned char *)e->data, e->size)
                : number_list((const float *)(const void *)e->data, e->size / sizeof(float)));
}

/* ---- the request ----------------------------------------------------------------------------- */

static pleach_status check(const pl_server *s, const embedding_values *v, pl_refusal *r)
{
    bool known = !strcmp(v->format, "float") || !strcmp(v->format, "base64");
    PL_REFUSE_IF(!known, r, 400, "encoding_format",
                 "encoding_format: expected float or base64, found \"%.40s\"", v->format);
    known = !strcmp(v->pooling, "mean") || !strcmp(v->pooling, "last");
    PL_REFUSE_IF(!known, r, 400, "pooling", "pooling: expected mean or last, found \"%.40s\"",
                 v->pooling);
    PL_REFUSE_IF(v->dimensions && v->dimensions != (int64_t)s->info.hidden_size, r, 400,
                 "dimensions", "dimensions: this model gives %u, and no fewer",
                 s->info.hidden_size);
    return PLEACH_OK;
}

/* Prompts end in any order; each has its place. */
static pleach_status collect(pl_exchange *x, pl_query *query, json_t **vectors, bool encoded,
                             pl_refusal *r)
{
    for (;;) {
        pl_event *e;
        PL_TRY(pl_query_next(query, &e, r));
        if (!e) return PLEACH_OK;
        if (e->kind == PL_EVENT_END) {
            vectors[e->choice] = embedding_json(e, encoded);
            x->prompt_tokens += e->end.prompt_tokens;
        }
        pl_free(e);
    }
}

static json_t *answer_json(const pl_exchange *x, json_t **vectors, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        if (json_array_append(list, vectors[i])) break;
    if (json_array_size(list) != n) {
        json_decref(list);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:s, s:{s:I, s:I}}", "object", "list", "data", list, "model",
                     x->server->settings.alias, "usage", "prompt_tokens",
                     (json_int_t)x->prompt_tokens, "total_tokens", (json_int_t)x->prompt_tokens);
}

static pleach_status embed(pl_exchange *x, const pl_ids *ids, size_t n, const embedding_values *v,
                           pl_refusal *r)
{
    pl_server *s = x->server;
    pl_query *query = NULL;
    pleach_request request;
    pleach_request_defaults(&request);
    request.embed = strcmp(v->pooling, "mean") ? PLEACH_EMBED_LAST : PLEACH_EMBED_MEAN;
    const pl_query_settings settings = {
        .batch = s->batch,
        .prompts = ids,
        .n_prompts = n,
        .request = &request,
        .prompt_name = "input",
        .at_once = s->settings.batch.parallel,
        .hidden_size = s->info.hidden_size,
        .most_bytes = (size_t)1 << 30,
        .given_up = pl_exchange_over,
        .user = x,
    };
    json_t **vectors = pl_calloc(n, sizeof *vectors);
    pleach_status status = vectors ? pl_query_open(&settings, &query, r) : pl_refuse_memory(r);
    if (status == PLEACH_OK) status = collect(x, query, vectors, !strcmp(v->format, "base64"), r);
    if (status == PLEACH_OK) status = pl_reply_json(x, answer_json(x, vectors, n), r);
    pl_query_close(query);
    for (size_t i = 0; vectors && i < n; i++) json_decref(vectors[i]);
    pl_free(vectors);
    return status;
}

static pleach_status answer(pl_exchange *x, const json_t *body, pl_refusal *r)
{
    embedding_values v = {.format = "float", .pooling = "mean"};
    pl_ids *ids = NULL;
    size_t n = 0;
    PL_TRY(pl_fields_read(fields, PL_COUNT(fields), body, &v, r));
    PL_TRY(check(x->server, &v, r));
    pleach_status status =
        pl_inputs_read(x->server, json_object_get(body, "input"), "input", &ids, &n, r);
    if (status == PLEACH_OK) status = embed(x, ids, n, &v, r);
    for (size_t i = 0; i < n; i++) pl_free(ids[i].ids);
    pl_free(ids);
    return status;
}

pleach_status pl_route_embeddings(pl_exchange *x, pl_refusal *r)
{
    pl_random_id("embd-", x->id, sizeof x->id);
    return pl_with_body(x, answer, r);
}
