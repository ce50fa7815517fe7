/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates: the part of Jinja that models' own templates use, rendered as transformers
 * renders it (trim_blocks and lstrip_blocks on, undefined names empty, tojson without escaping).
 *
 *   pl_jinja *t;
 *   pl_jinja_parse(text, size, &t, &err);
 *   pl_jinja_text out = {0};
 *   pl_jinja_render(t, said, own, NULL, &out, &err);      // two JSON objects of variables
 *   ... out.bytes, out.said ...
 *   pl_jinja_text_free(&out);
 *   pl_jinja_close(t);
 *
 * Every byte of the result knows where it comes from: `said` is 1 for bytes of the variables that
 * somebody else wrote (messages, tools), 0 for the template's own and for variables in `own` (the
 * names of control tokens). Joining, cutting and replacing keep that apart, so a tokenizer can
 * match control tokens in the template's own text alone.
 *
 * A template is data from a file: nesting, steps, memory and output are limited, and nothing it
 * says reaches a file, a process or a clock other than strftime_now's.
 *
 * Source: the Jinja documentation, "Template Designer Documentation"; Python's own documentation
 * for methods of str, dict and list. */
#ifndef PL_JINJA_H
#define PL_JINJA_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/error.h"

typedef struct pl_jinja pl_jinja;

/* PLEACH_ERR_FORMAT "chat template, line 3: ..." for what is no Jinja, PLEACH_ERR_UNSUPPORTED for
 * Jinja that is not done here (include, import, extends). The text is copied. */
pleach_status pl_jinja_parse(const char *text, size_t size, pl_jinja **out, pleach_error *err);
void pl_jinja_close(pl_jinja *t); /* accepts NULL */

typedef struct pl_jinja_text {
    char *bytes; /* well-formed UTF-8 as long as template and variables are; not NUL-terminated */
    uint8_t *said;
    size_t size;
} pl_jinja_text;
void pl_jinja_text_free(pl_jinja_text *t); /* accepts a zeroed one */

/* said and own are JSON objects or NULL; now: what strftime_now tells, NULL for the clock.
 * PLEACH_ERR_ARGUMENT with the template's own words when it calls raise_exception, with the line
 * and what went wrong when it fails, PLEACH_ERR_LIMIT when it takes too much. Any thread. */
pleach_status pl_jinja_render(const pl_jinja *t, const json_t *said, const json_t *own,
                              const time_t *now, pl_jinja_text *out, pleach_error *err);

#endif
