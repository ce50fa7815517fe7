/* SPDX-License-Identifier: Apache-2.0 */
#include "body.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "format/json.h"
#include "text/utf8.h"

/* ---- parsing --------------------------------------------------------------------------------- */

/* How deep brackets nest outside strings: the parser goes down by recursion. */
static size_t nesting(const char *bytes, size_t size)
{
    size_t depth = 0, deepest = 0;
    bool string = false;
    for (size_t i = 0; i < size; i++) {
        char c = bytes[i];
        if (string && c == '\\')
            i++;
        else if (c == '"')
            string = !string;
        else if (string)
            continue;
        else if (c == '{' || c == '[')
            depth++;
        else if ((c == '}' || c == ']') && depth)
            depth--;
        if (depth > deepest) deepest = depth;
    }
    return deepest;
}

pleach_status pl_body_parse(const char *bytes, size_t size, json_t **out, pl_refusal *r)
{
    json_error_t error;
    *out = NULL;
    PL_REFUSE_IF(!size, r, 400, NULL, "the body is empty; expected a JSON object");
    PL_REFUSE_IF(nesting(bytes, size) > PL_BODY_DEPTH, r, 400, NULL,
                 "the body is no JSON that is read here: it nests more than %d deep",
                 PL_BODY_DEPTH);
    json_t *body = json_loadb(bytes, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    PL_REFUSE_IF(!body, r, 400, NULL, "the body is not valid JSON: line %d, column %d: %s",
                 error.line, error.column, error.text);
    if (!json_is_object(body)) {
        pl_refuse(r, 400, NULL, "the body is %s; expected a JSON object", pl_json_kind(body));
        json_decref(body);
        return PLEACH_ERR_ARGUMENT;
    }
    *out = body;
    return PLEACH_OK;
}

/* ---- fields ---------------------------------------------------------------------------------- */

static pleach_status refuse_type(pl_refusal *r, const char *name, const char *expected,
                                 const json_t *value)
{
    pl_refuse(r, 400, name, "%s: expected %s, found %s", name, expected, pl_json_kind(value));
    r->code = "invalid_type";
    return PLEACH_ERR_ARGUMENT;
}

static pleach_status read_number(const pl_field *f, const json_t *value, void *at, pl_refusal *r)
{
    bool whole = f->type == PL_FIELD_INTEGER;
    double x = json_number_value(value);
    if (!json_is_number(value) || (whole && x != floor(x)))
        return refuse_type(r, f->name, whole ? "a whole number" : "a number", value);
    bool fits = !whole || json_is_integer(value) || fabs(x) < 0x1p63;
    PL_REFUSE_IF(!(x >= f->min && x <= f->max && fits), r, 400, f->name,
                 "%s: expected %s from %.15g to %.15g, found %.15g", f->name,
                 whole ? "a whole number" : "a number", f->min, f->max, x);
    int64_t integer = json_is_integer(value) ? json_integer_value(value) : whole ? (int64_t)x : 0;
    if (whole)
        memcpy(at, &integer, sizeof integer);
    else
        memcpy(at, &x, sizeof x);
    return PLEACH_OK;
}

static pleach_status read_reference(const pl_field *f, const json_t *value, void *at, pl_refusal *r)
{
    bool array = f->type == PL_FIELD_ARRAY;
    if (!(array ? json_is_array(value) : json_is_object(value)))
        return refuse_type(r, f->name, array ? "a list" : "an object", value);
    memcpy(at, &value, sizeof value);
    return PLEACH_OK;
}

static pleach_status read_field(const pl_field *f, const json_t *value, void *values, pl_refusal *r)
{
    char *at = (char *)values + f->offset;
    const char *text = json_string_value(value);
    switch (f->type) {
    case PL_FIELD_BOOL:
        if (!json_is_boolean(value)) return refuse_type(r, f->name, "true or false", value);
        *(bool *)at = json_is_true(value);
        return PLEACH_OK;
    case PL_FIELD_TEXT:
        if (!text) return refuse_type(r, f->name, "a string", value);
        memcpy(at, &text, sizeof text);
        return PLEACH_OK;
    case PL_FIELD_INTEGER:
    case PL_FIELD_REAL:
        return read_number(f, value, at, r);
    case PL_FIELD_OBJECT:
    case PL_FIELD_ARRAY:
        return read_reference(f, value, at, r);
    default:
        return f->read(value, f->name, values, r);
    }
}

/* What the name leads to; NULL where nothing is. */
static pleach_status find_field(const json_t *body, const char *name, const json_t **value,
                                pl_refusal *r)
{
    const char *dot = strchr(name, '.');
    char outer[64];
    *value = json_object_get(body, name);
    if (!dot) return PLEACH_OK;
    snprintf(outer, sizeof outer, "%.*s", (int)(dot - name), name);
    const json_t *object = json_object_get(body, outer);
    *value = NULL;
    if (!object || json_is_null(object)) return PLEACH_OK;
    if (!json_is_object(object)) return refuse_type(r, outer, "an object", object);
    *value = json_object_get(object, dot + 1);
    return PLEACH_OK;
}

pleach_status pl_fields_read(const pl_field *fields, size_t n, const json_t *body, void *values,
                             pl_refusal *r)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *value;
        PL_TRY(find_field(body, fields[i].name, &value, r));
        if (value && !json_is_null(value)) PL_TRY(read_field(&fields[i], value, values, r));
    }
    return PLEACH_OK;
}

json_t *pl_json_bytes(const char *bytes, size_t size)
{
    pl_buffer clean = {0};
    json_t *text = NULL;
    if (pl_utf8_valid_prefix(bytes, size) == size) return json_stringn(bytes, size);
    if (pl_utf8_sanitize(bytes, size, &clean, NULL) == PLEACH_OK)
        text = json_stringn(clean.data, clean.size);
    pl_free(clean.data);
    return text;
}
