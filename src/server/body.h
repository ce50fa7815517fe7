/* SPDX-License-Identifier: Apache-2.0
 *
 * A request's body as JSON, and fields taken from it by a table: strict about types and ranges,
 * silent about names it does not know. */
#ifndef PL_SERVER_BODY_H
#define PL_SERVER_BODY_H

#include <stdbool.h>
#include <stdint.h>

#include "refusal.h"

/* bytes[0..size) must be one JSON object: no duplicate keys, no NUL in strings, no lone surrogates,
 * numbers that fit, arrays and objects nested at most PL_BODY_DEPTH deep. Release with json_decref.
 */
enum { PL_BODY_DEPTH = 128 };
pleach_status pl_body_parse(const char *bytes, size_t size, json_t **out, pl_refusal *r);

/* Each with the type of its value in the struct that is filled in. */
typedef enum pl_field_type {
    PL_FIELD_BOOL,    /* bool */
    PL_FIELD_INTEGER, /* int64_t in [min, max]; 3.0 counts as whole */
    PL_FIELD_REAL,    /* double in [min, max] */
    PL_FIELD_TEXT,    /* const char *, borrowed from the body */
    PL_FIELD_OBJECT,  /* const json_t *, borrowed */
    PL_FIELD_ARRAY,
    PL_FIELD_OTHER /* what `read` makes of it */
} pl_field_type;

typedef struct pl_field {
    const char *name; /* "stream_options.include_usage": of an object within */
    pl_field_type type;
    double min, max;
    size_t offset;
    pleach_status (*read)(const json_t *value, const char *name, void *values, pl_refusal *r);
} pl_field;

#define PL_FIELD_AT(values, field) .offset = offsetof(values, field)

/* Fills in the fields that are there and not null, in the table's order. */
pleach_status pl_fields_read(const pl_field *fields, size_t n, const json_t *body, void *values,
                             pl_refusal *r);

/* Bytes as a JSON string, each part that is no UTF-8 as U+FFFD; NULL: out of memory. */
json_t *pl_json_bytes(const char *bytes, size_t size);

#endif
