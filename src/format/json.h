/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON that came from a file: parsed strictly, and values taken from it with their range checked.
 * Getters name the file and the key when they fail. */
#ifndef PL_FORMAT_JSON_H
#define PL_FORMAT_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Where an object came from: the file, and the path of keys to it ("" or "rope_scaling."). */
typedef struct pl_json_source {
    const char *file, *prefix;
} pl_json_source;

/* text[0..size) must be one JSON object without duplicate keys. Release with json_decref. */
pleach_status pl_json_parse(const char *file, const char *text, size_t size, json_t **out,
                            pleach_error *err);
/* The same of a whole file of at most `limit` bytes; *text (may be NULL) keeps the text, pl_free.
 */
pleach_status pl_json_read(const char *file, size_t limit, json_t **out, char **text,
                           pleach_error *err);

/* Value of `key`, or NULL when it is absent or null. */
json_t *pl_json_get(const json_t *object, const char *key);

/* A whole number in [min, max]; real numbers without a fraction count as whole. */
pleach_status pl_json_u64(pl_json_source at, const json_t *object, const char *key, uint64_t min,
                          uint64_t max, uint64_t *v, pleach_error *err);
pleach_status pl_json_u32(pl_json_source at, const json_t *object, const char *key, uint32_t min,
                          uint32_t max, uint32_t *v, pleach_error *err);
/* A finite number in [min, max]. */
pleach_status pl_json_f64(pl_json_source at, const json_t *object, const char *key, double min,
                          double max, double *v, pleach_error *err);
pleach_status pl_json_bool(pl_json_source at, const json_t *object, const char *key, bool *v,
                           pleach_error *err);
/* A string that lives as long as the object. */
pleach_status pl_json_text(pl_json_source at, const json_t *object, const char *key, const char **v,
                           pleach_error *err);

/* Each with a suffix: an absent or null value leaves *v as it is. */
pleach_status pl_json_u32_or(pl_json_source at, const json_t *object, const char *key, uint32_t min,
                             uint32_t max, uint32_t *v, pleach_error *err);
pleach_status pl_json_f64_or(pl_json_source at, const json_t *object, const char *key, double min,
                             double max, double *v, pleach_error *err);
pleach_status pl_json_bool_or(pl_json_source at, const json_t *object, const char *key, bool *v,
                              pleach_error *err);

/* What kind of value it is, for error lines: "a string", "null", "nothing" for NULL. */
const char *pl_json_kind(const json_t *value);

/* Writes "a.b is 3 there and 4 now" for the first value of `asked`, objects within objects, that
 * `there` lacks or has otherwise; false when there is none. */
bool pl_json_difference(const json_t *there, const json_t *asked, char *line, size_t size);

#endif
