/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 decoding, repair, and the few character classes that are needed outside patterns. */
#include "utf8.h"

#include <utf8proc.h>

uint32_t pl_utf8_decode(const char *s)
{
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) return u[0];
    if (u[0] < 0xe0) return (uint32_t)(u[0] & 0x1f) << 6 | (u[1] & 0x3f);
    if (u[0] < 0xf0)
        return (uint32_t)(u[0] & 0x0f) << 12 | (uint32_t)(u[1] & 0x3f) << 6 | (u[2] & 0x3f);
    return (uint32_t)(u[0] & 0x07) << 18 | (uint32_t)(u[1] & 0x3f) << 12 |
           (uint32_t)(u[2] & 0x3f) << 6 | (u[3] & 0x3f);
}

size_t pl_utf8_encode(uint32_t c, char dst[4])
{
    if (c < 0x80) {
        dst[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        dst[0] = (char)(0xc0 | c >> 6);
        dst[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        dst[0] = (char)(0xe0 | c >> 12);
        dst[1] = (char)(0x80 | (c >> 6 & 0x3f));
        dst[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    dst[0] = (char)(0xf0 | c >> 18);
    dst[1] = (char)(0x80 | (c >> 12 & 0x3f));
    dst[2] = (char)(0x80 | (c >> 6 & 0x3f));
    dst[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* Bytes of the well-formed character at s, or 0 with *bad the length of the maximal ill-formed
 * part. The second byte's range excludes overlong forms, surrogates and what lies past U+10FFFF
 * (Unicode table 3-7). */
static size_t check_one(const unsigned char *s, size_t size, size_t *bad)
{
    *bad = 1;
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    size_t length = pl_utf8_length((char)s[0]);
    unsigned char low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    for (size_t i = 1; i < length; i++) {
        if (i >= size || s[i] < low || s[i] > high) {
            *bad = i;
            return 0;
        }
        low = 0x80;
        high = 0xbf;
    }
    return length;
}

size_t pl_utf8_valid_prefix(const char *s, size_t size)
{
    size_t at = 0, bad;
    while (at < size) {
        size_t length = check_one((const unsigned char *)s + at, size - at, &bad);
        if (!length) break;
        at += length;
    }
    return at;
}

pleach_status pl_utf8_sanitize(const char *s, size_t size, pl_buffer *out, pleach_error *err)
{
    for (size_t at = 0; at < size;) {
        size_t good = pl_utf8_valid_prefix(s + at, size - at), bad = 0;
        PL_TRY(pl_buffer_append(out, s + at, good, err));
        at += good;
        if (at == size) break;
        check_one((const unsigned char *)s + at, size - at, &bad);
        PL_TRY(pl_buffer_append(out, "\xef\xbf\xbd", 3, err));
        at += bad;
    }
    return PLEACH_OK;
}

bool pl_is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

bool pl_is_word(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM: case UTF8PROC_CATEGORY_LO: case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC: case UTF8PROC_CATEGORY_ME: case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL: case UTF8PROC_CATEGORY_PC: return true;
    default: return c == 0x200c || c == 0x200d; /* Join_Control */
    }
}

size_t pl_trailing_space(const char *s, size_t size)
{
    while (size) {
        size_t at = size - 1;
        while (at && ((unsigned char)s[at] & 0xc0) == 0x80) at--;
        if (!pl_is_space(pl_utf8_decode(s + at))) break;
        size = at;
    }
    return size;
}

size_t pl_leading_space(const char *s, size_t size)
{
    size_t at = 0;
    while (at < size && pl_is_space(pl_utf8_decode(s + at))) at += pl_utf8_length(s[at]);
    return at;
}
