/* SPDX-License-Identifier: Apache-2.0
 *
 * Checked access to JSON from files. jansson refuses invalid UTF-8, integers beyond 64 bits, NUL
 * characters and nesting beyond 2048 levels by itself. */
#include "json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

pleach_status pl_json_parse(const char *file, const char *text, size_t size, json_t **out,
                            pleach_error *err)
{
    json_error_t e;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &e);
    if (!root && json_error_code(&e) == json_error_out_of_memory)
        return pl_fail_memory(err, file, size);
    PL_FAIL_IF(!root, err, PLEACH_ERR_FORMAT, "%s: malformed JSON at byte %d: %s", file, e.position,
               e.text);
    if (!json_is_object(root)) {
        pl_fail(err, PLEACH_ERR_FORMAT, "%s: expected a JSON object, found %s", file,
                pl_json_kind(root));
        json_decref(root);
        return PLEACH_ERR_FORMAT;
    }
    *out = root;
    return PLEACH_OK;
}

pleach_status pl_json_read(const char *file, size_t limit, json_t **out, char **text,
                           pleach_error *err)
{
    char *content;
    size_t size;
    PL_TRY(pl_read_file(file, limit, &content, &size, err));
    pleach_status status = pl_json_parse(file, content, size, out, err);
    if (status == PLEACH_OK && text)
        *text = content;
    else
        pl_free(content);
    return status;
}

json_t *pl_json_get(const json_t *object, const char *key)
{
    json_t *v = json_object_get(object, key);
    return json_is_null(v) ? NULL : v;
}

const char *pl_json_kind(const json_t *value)
{
    if (!value) return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

/* The failure of a getter: MISSING for an absent key, FORMAT for a value of another kind. */
static pleach_status wrong_kind(pl_json_source at, const json_t *object, const char *key,
                                const char *expected, pleach_error *err)
{
    const json_t *v = json_object_get(object, key);
    if (!v || json_is_null(v))
        return pl_fail(err, PLEACH_ERR_MISSING, "%s: %s%s is missing, expected %s", at.file,
                       at.prefix, key, expected);
    return pl_fail(err, PLEACH_ERR_FORMAT, "%s: %s%s is %s, expected %s", at.file, at.prefix, key,
                   pl_json_kind(v), expected);
}

pleach_status pl_json_u64(pl_json_source at, const json_t *object, const char *key, uint64_t min,
                          uint64_t max, uint64_t *v, pleach_error *err)
{
    const json_t *value = json_object_get(object, key);
    double real = json_number_value(value);
    if (!json_is_number(value) || (json_is_real(value) && real != floor(real)))
        return wrong_kind(at, object, key, "a whole number", err);
    bool whole = json_is_integer(value), inside;
    json_int_t n = json_integer_value(value);
    /* 2^53 and more as a real number is no longer exact. */
    if (whole)
        inside = n >= 0 && (uint64_t)n >= min && (uint64_t)n <= max;
    else
        inside = real >= (double)min && real <= (double)max && real < 0x1p53;
    PL_FAIL_IF(!inside, err, PLEACH_ERR_FORMAT, "%s: %s%s is %.17g, expected %llu to %llu", at.file,
               at.prefix, key, real, (unsigned long long)min, (unsigned long long)max);
    *v = whole ? (uint64_t)n : (uint64_t)real;
    return PLEACH_OK;
}

pleach_status pl_json_u32(pl_json_source at, const json_t *object, const char *key, uint32_t min,
                          uint32_t max, uint32_t *v, pleach_error *err)
{
    uint64_t wide;
    PL_TRY(pl_json_u64(at, object, key, min, max, &wide, err));
    *v = (uint32_t)wide;
    return PLEACH_OK;
}

pleach_status pl_json_f64(pl_json_source at, const json_t *object, const char *key, double min,
                          double max, double *v, pleach_error *err)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) return wrong_kind(at, object, key, "a number", err);
    double d = json_number_value(value);
    PL_FAIL_IF(!(d >= min && d <= max), err, PLEACH_ERR_FORMAT, "%s: %s%s is %g, expected %g to %g",
               at.file, at.prefix, key, d, min, max);
    *v = d;
    return PLEACH_OK;
}

pleach_status pl_json_bool(pl_json_source at, const json_t *object, const char *key, bool *v,
                           pleach_error *err)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_boolean(value)) return wrong_kind(at, object, key, "true or false", err);
    *v = json_is_true(value);
    return PLEACH_OK;
}

pleach_status pl_json_text(pl_json_source at, const json_t *object, const char *key, const char **v,
                           pleach_error *err)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value)) return wrong_kind(at, object, key, "a string", err);
    *v = json_string_value(value);
    return PLEACH_OK;
}

pleach_status pl_json_u32_or(pl_json_source at, const json_t *object, const char *key, uint32_t min,
                             uint32_t max, uint32_t *v, pleach_error *err)
{
    return pl_json_get(object, key) ? pl_json_u32(at, object, key, min, max, v, err) : PLEACH_OK;
}

pleach_status pl_json_f64_or(pl_json_source at, const json_t *object, const char *key, double min,
                             double max, double *v, pleach_error *err)
{
    return pl_json_get(object, key) ? pl_json_f64(at, object, key, min, max, v, err) : PLEACH_OK;
}

pleach_status pl_json_bool_or(pl_json_source at, const json_t *object, const char *key, bool *v,
                              pleach_error *err)
{
    return pl_json_get(object, key) ? pl_json_bool(at, object, key, v, err) : PLEACH_OK;
}

static bool difference(const json_t *there, const json_t *asked, const char *name, char *line,
                       size_t size)
{
    if (json_is_object(there) && json_is_object(asked)) {
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)asked, key, value) {
            char inner[200];
            snprintf(inner, sizeof inner, "%s%s%s", name, *name ? "." : "", key);
            if (difference(json_object_get(there, key), value, inner, line, size)) return true;
        }
        return false;
    }
    if (there && json_equal(there, asked)) return false;
    char *a = there ? json_dumps(there, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    char *b = json_dumps(asked, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(line, size, "%s is %.100s there and %.100s now", name, a ? a : "absent", b ? b : "?");
    free(a);
    free(b);
    return true;
}

bool pl_json_difference(const json_t *there, const json_t *asked, char *line, size_t size)
{
    return difference(there, asked, "", line, size);
}
