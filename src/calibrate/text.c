/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading calibration text. Files may be far larger than what is used of them: they are mapped, and
 * no more is tokenised than the ids asked for take. */
#include "text.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "format/json.h"
#include "text/chat.h"
#include "text/utf8.h"

enum {
    BYTES_PER_TOKEN = 8,  /* more than most texts have; a first guess */
    SLACK = 256,          /* ids before a cut in the middle of the text that may depend on it */
    MOST_MESSAGES = 10000
};

typedef struct reader {
    const pl_tokenizer *t;
    const char *path;
    size_t limit, chunk;
    int32_t bos, end; /* -1: none */
    pl_ids *out;
    pleach_error *err;
} reader;

/* Ids of a text, each chunk begun with BOS. */
static pleach_status append(const reader *r, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n && r->out->n < r->limit; i++) {
        if (r->bos >= 0 && r->out->n % r->chunk == 0 && ids[i] != r->bos)
            PL_TRY(pl_ids_append(r->out, &r->bos, 1, r->err));
        if (r->out->n < r->limit) PL_TRY(pl_ids_append(r->out, &ids[i], 1, r->err));
    }
    return PLEACH_OK;
}

/* ---- plain text ----------------------------------------------------------------------------- */

/* Tokenises a prefix that gives enough ids, or the whole. */
static pleach_status encode_prefix(const reader *r, const char *text, size_t size, pl_ids *ids)
{
    size_t n = PL_MIN(size / BYTES_PER_TOKEN, r->limit + SLACK) * BYTES_PER_TOKEN;
    for (n = PL_MAX(n, (size_t)1);; n *= 2) {
        n = PL_MIN(n, size);
        size_t valid = pl_utf8_valid_prefix(text, n);
        PL_FAIL_IF(valid + 3 < n || (valid < n && n == size), r->err, PLEACH_ERR_FORMAT,
                   "%s: byte %zu is no UTF-8; calibration takes text, or lines of JSON in a file "
                   "named .jsonl", r->path, valid);
        ids->n = 0;
        PL_TRY(pl_tokenizer_encode(r->t, text, valid, PL_ENCODE_PLAIN, ids, r->err));
        if (n == size || ids->n >= r->limit + SLACK) return PLEACH_OK;
    }
}

static pleach_status read_plain(const reader *r, const char *text, size_t size)
{
    pl_ids ids = {0};
    pleach_status status = encode_prefix(r, text, size, &ids);
    if (status == PLEACH_OK) status = append(r, ids.ids, ids.n);
    pl_free(ids.ids);
    return status;
}

/* ---- JSONL ---------------------------------------------------------------------------------- */

/* As the model meets it: the question by the template, its answer token by token, the end. */
static pleach_status encode_chat(const reader *r, const char *where,
                                 const pleach_message *messages, size_t n, pl_ids *ids)
{
    bool answered = n > 1 && strcmp(messages[n - 1].role, "assistant") == 0;
    const char *answer = messages[n - 1].content;
    pleach_error inner = {0};
    pleach_status status = pl_chat_encode(r->t, messages, n - answered, ids, &inner);
    if (status != PLEACH_OK)
        return pl_fail(r->err, status, "%s: %.400s", where, inner.message);
    if (!answered) return PLEACH_OK;
    PL_TRY(pl_tokenizer_encode(r->t, answer, strlen(answer), PL_ENCODE_CONTINUE, ids, r->err));
    return r->end < 0 ? PLEACH_OK : pl_ids_append(ids, &r->end, 1, r->err);
}

static pleach_status encode_messages(const reader *r, const char *where, const json_t *list,
                                     pl_ids *ids)
{
    size_t n = json_array_size(list);
    PL_FAIL_IF(!json_is_array(list) || n == 0 || n > MOST_MESSAGES, r->err, PLEACH_ERR_FORMAT,
               "%s: \"messages\" is %s of %zu, expected an array of 1 to %d", where,
               pl_json_kind(list), n, MOST_MESSAGES);
    pleach_message *messages = pl_calloc(n, sizeof *messages);
    if (!messages) return pl_fail_memory(r->err, where, n * sizeof *messages);
    pleach_status status = PLEACH_OK;
    for (size_t i = 0; status == PLEACH_OK && i < n; i++) {
        const json_t *m = json_array_get(list, i);
        pl_json_source at = {where, "messages."};
        status = pl_json_text(at, m, "role", &messages[i].role, r->err);
        if (status == PLEACH_OK)
            status = pl_json_text(at, m, "content", &messages[i].content, r->err);
    }
    if (status == PLEACH_OK) status = encode_chat(r, where, messages, n, ids);
    pl_free(messages);
    return status;
}

static pleach_status encode_line(const reader *r, const char *where, const json_t *line,
                                 pl_ids *ids)
{
    const json_t *messages = pl_json_get(line, "messages"), *text = pl_json_get(line, "text");
    if (messages) return encode_messages(r, where, messages, ids);
    PL_FAIL_IF(!json_is_string(text), r->err, PLEACH_ERR_FORMAT,
               "%s: expected \"text\" with a string or \"messages\" with an array", where);
    PL_TRY(pl_tokenizer_encode(r->t, json_string_value(text), json_string_length(text),
                               PL_ENCODE_PLAIN, ids, r->err));
    return r->end < 0 ? PLEACH_OK : pl_ids_append(ids, &r->end, 1, r->err);
}

static pleach_status read_line(const reader *r, const char *text, size_t size, size_t number,
                               pl_ids *ids)
{
    char where[300];
    json_t *line;
    snprintf(where, sizeof where, "%.250s, line %zu", r->path, number);
    PL_TRY(pl_json_parse(where, text, size, &line, r->err));
    ids->n = 0;
    pleach_status status = encode_line(r, where, line, ids);
    json_decref(line);
    if (status == PLEACH_OK) status = append(r, ids->ids, ids->n);
    return status;
}

static bool is_blank(const char *text, size_t size)
{
    while (size > 0 && strchr(" \t\r", text[size - 1])) size--;
    return size == 0;
}

static pleach_status read_lines(const reader *r, const char *text, size_t size)
{
    pl_ids ids = {0};
    pleach_status status = PLEACH_OK;
    size_t number = 1;
    for (size_t at = 0; status == PLEACH_OK && at < size && r->out->n < r->limit; number++) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end ? (size_t)(end - text) - at : size - at;
        if (!is_blank(text + at, length)) status = read_line(r, text + at, length, number, &ids);
        at += length + 1;
    }
    pl_free(ids.ids);
    return status;
}

/* ---- calls ---------------------------------------------------------------------------------- */

pleach_status pl_calibration_bos(const pl_tokenizer *t, int32_t *bos, pleach_error *err)
{
    pl_ids ids = {0};
    pleach_status status = pl_tokenizer_encode(t, "a", 1, PL_ENCODE_BOS, &ids, err);
    *bos = status == PLEACH_OK && ids.n > 0 && ids.ids[0] == pl_tokenizer_bos(t) ? ids.ids[0] : -1;
    pl_free(ids.ids);
    return status;
}

pleach_status pl_calibration_text(const pl_tokenizer *t, const char *path, size_t limit,
                                  size_t chunk, pl_ids *out, pleach_error *err)
{
    reader r = {.t = t, .path = path, .limit = limit, .chunk = chunk,
                .end = pl_tokenizer_eos(t), .out = out, .err = err};
    size_t name = strlen(path);
    pl_map map;
    PL_TRY(pl_calibration_bos(t, &r.bos, err));
    PL_TRY(pl_map_open(&map, path, err));
    pleach_status status = PLEACH_OK;
    const char *text = (const char *)map.data;
    if (name >= 6 && strcmp(path + name - 6, ".jsonl") == 0)
        status = read_lines(&r, text, map.size);
    else if (map.size > 0)
        status = read_plain(&r, text, map.size);
    pl_map_close(&map);
    PL_TRY(status);
    PL_FAIL_IF(out->n < PL_CALIBRATION_LEAST, err, PLEACH_ERR_DATA,
               "%s: %zu tokens are too few to calibrate on, expected %d at least", path, out->n,
               PL_CALIBRATION_LEAST);
    return PLEACH_OK;
}
