/* SPDX-License-Identifier: Apache-2.0
 *
 * Regular expressions of tokenizer.json, which are written for Oniguruma (Ruby syntax), run by
 * PCRE2. What the two understand differently is rewritten, and what cannot be is refused. */
#ifndef PL_TEXT_PATTERN_H
#define PL_TEXT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

typedef struct pl_pattern pl_pattern;
typedef struct pl_matcher pl_matcher;

/* `literal`: the text itself is looked for. name is for error lines. */
pleach_status pl_pattern_create(const char *name, const char *text, size_t size, bool literal,
                                pl_pattern **out, pleach_error *err);
void pl_pattern_free(pl_pattern *p);

/* Working memory for matching any pattern; one for each thread. */
pleach_status pl_matcher_create(pl_matcher **out, pleach_error *err);
void pl_matcher_free(pl_matcher *m);

/* The first match in text[from..size) (well-formed UTF-8). *found is false when there is none. */
pleach_status pl_pattern_find(const pl_pattern *p, pl_matcher *m, const char *text, size_t size,
                              size_t from, bool *found, size_t *start, size_t *end,
                              pleach_error *err);

#endif
