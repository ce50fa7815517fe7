/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-tokenizers of tokenizer.json: a text cut into spans that the model codes one by one. */
#ifndef PL_TEXT_PRETOKENIZE_H
#define PL_TEXT_PRETOKENIZE_H

#include <jansson.h>
#include <stdbool.h>

#include "buffer.h"
#include "pattern.h"

typedef struct pl_span {
    size_t start, end;
} pl_span;

/* A text and the spans of it, in order. */
typedef struct pl_spans {
    pl_buffer text;
    pl_span *spans;
    size_t n, capacity;
} pl_spans;

void pl_spans_free(pl_spans *s);

typedef struct pl_pretokenizer pl_pretokenizer;

pleach_status pl_pretokenizer_create(const char *name, const json_t *config, pl_pretokenizer **out,
                                     pleach_error *err);
void pl_pretokenizer_free(pl_pretokenizer *p);

/* True when spans are to be read as bytes, each a letter of the byte alphabet (ByteLevel). */
bool pl_pretokenizer_is_byte_level(const pl_pretokenizer *p);

/* Whether the text begins the document, which is where a prefix space goes. */
typedef enum pl_position {
    PL_AT_START,    /* every prefix rule applies */
    PL_INSIDE,      /* after an added token: only what goes before every part */
    PL_CONTINUATION /* after other text: no prefix at all */
} pl_position;

/* text[0..size), well-formed, into *out; *tmp is working memory. */
pleach_status pl_pretokenize(const pl_pretokenizer *p, pl_matcher *m, const char *text, size_t size,
                             pl_position position, pl_spans *out, pl_spans *tmp, pleach_error *err);

#endif
