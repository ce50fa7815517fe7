/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8: one character at a time, and text from outside made well-formed. */
#ifndef PL_TEXT_UTF8_H
#define PL_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffer.h"

/* Bytes of the character that begins with `lead`, in well-formed text. */
static inline size_t pl_utf8_length(char lead)
{
    unsigned char c = (unsigned char)lead;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* The character at s, which must be well-formed. */
uint32_t pl_utf8_decode(const char *s);

/* Writes character c and returns its length. */
size_t pl_utf8_encode(uint32_t c, char dst[4]);

/* Length of the well-formed prefix of s[0..size). */
size_t pl_utf8_valid_prefix(const char *s, size_t size);

/* Appends s with every maximal ill-formed part replaced by U+FFFD, as Unicode 3.9 advises. */
pleach_status pl_utf8_sanitize(const char *s, size_t size, pl_buffer *out, pleach_error *err);

/* The White_Space property. */
bool pl_is_space(uint32_t c);
/* A letter, mark, decimal number or connector: what "single_word" tokens may not touch. */
bool pl_is_word(uint32_t c);

/* Where the run of white space that ends (begins) the text begins (ends). */
size_t pl_trailing_space(const char *s, size_t size);
size_t pl_leading_space(const char *s, size_t size);

#endif
