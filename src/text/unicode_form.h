/* SPDX-License-Identifier: Apache-2.0
 *
 * Unicode normalisation forms in linear time. */
#ifndef PL_TEXT_UNICODE_FORM_H
#define PL_TEXT_UNICODE_FORM_H

#include <stdbool.h>

#include "buffer.h"

/* Appends text[0..size) (well-formed) in NFD (both false), NFC (compose), NFKD (compatible) or
 * NFKC (both). */
pleach_status pl_unicode_form(const char *text, size_t size, bool compose, bool compatible,
                              pl_buffer *out, pleach_error *err);

#endif
