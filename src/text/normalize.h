/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalizers of tokenizer.json: Unicode forms, case, stripping, prefix, replacement and
 * SentencePiece's precompiled map. */
#ifndef PL_TEXT_NORMALIZE_H
#define PL_TEXT_NORMALIZE_H

#include <jansson.h>
#include <stdbool.h>

#include "buffer.h"
#include "pattern.h"

typedef struct pl_normalizer pl_normalizer;

/* config: the "normalizer" object; NULL gives one that changes nothing. */
pleach_status pl_normalizer_create(const char *name, const json_t *config, pl_normalizer **out,
                                   pleach_error *err);
void pl_normalizer_free(pl_normalizer *n);

/* *result is text itself or memory of *a or *b, which are only working memory. no_prefix leaves
 * out what Prepend would put first. text is well-formed UTF-8. */
pleach_status pl_normalize(const pl_normalizer *n, pl_matcher *m, const char *text, size_t size,
                           bool no_prefix, pl_buffer *a, pl_buffer *b, const char **result,
                           size_t *result_size, pleach_error *err);

#endif
