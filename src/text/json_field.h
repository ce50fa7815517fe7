/* SPDX-License-Identifier: Apache-2.0
 *
 * Typed fields of a JSON object: absent or null gives the default, another type is an error that
 * names the field. */
#ifndef PL_TEXT_JSON_FIELD_H
#define PL_TEXT_JSON_FIELD_H

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"

/* The field, or NULL when it is absent or null. */
static inline const json_t *pl_json_get(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_null(v) ? NULL : v;
}

static inline pleach_status pl_json_bool(const char *name, const json_t *o, const char *key,
                                         bool *v, pleach_error *err)
{
    const json_t *field = pl_json_get(o, key);
    if (!field) return PLEACH_OK;
    PL_FAIL_IF(!json_is_boolean(field), err, PLEACH_ERR_FORMAT, "%s: %s is not true or false", name,
               key);
    *v = json_is_true(field);
    return PLEACH_OK;
}

/* Borrowed from the object. */
static inline pleach_status pl_json_text(const char *name, const json_t *o, const char *key,
                                         const char **s, size_t *size, pleach_error *err)
{
    const json_t *field = pl_json_get(o, key);
    *s = "";
    *size = 0;
    PL_FAIL_IF(!json_is_string(field), err, PLEACH_ERR_FORMAT, "%s: %s is not a string", name, key);
    *s = json_string_value(field);
    *size = json_string_length(field);
    return PLEACH_OK;
}

/* The "type" of a component; "" when it has none. */
static inline const char *pl_json_type(const json_t *o)
{
    const char *type = json_string_value(json_object_get(o, "type"));
    return type ? type : "";
}

#endif
