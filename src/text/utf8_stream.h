/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes in as tokens bring them, whole UTF-8 characters out. */
#ifndef PL_TEXT_UTF8_STREAM_H
#define PL_TEXT_UTF8_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* Zero it first, pl_free(text) last. */
typedef struct pl_utf8_stream {
    char *text; /* what may be shown is [0, ready); bytes of an unfinished character follow */
    size_t ready, n, capacity;
} pl_utf8_stream;

/* Appends bytes. Each maximal part of no character becomes U+FFFD at once, as Unicode recommends
 * (chapter 3, "U+FFFD Substitution of Maximal Subparts"). */
pleach_status pl_utf8_push(pl_utf8_stream *s, const char *bytes, size_t size, pleach_error *err);
/* The end of the text: an unfinished character becomes U+FFFD. */
pleach_status pl_utf8_finish(pl_utf8_stream *s, pleach_error *err);
/* Drops what is ready once it was shown. */
void pl_utf8_shift(pl_utf8_stream *s);

#endif
