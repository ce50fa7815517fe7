/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and applying a precompiled character map. */
#include "charsmap.h"

#include <utf8proc.h>

#include "utf8.h"

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static pleach_status decode_base64(const char *name, const char *s, size_t size, pl_buffer *out,
                                   pleach_error *err)
{
    uint32_t bits = 0;
    unsigned n = 0;
    while (size && s[size - 1] == '=') size--;
    PL_TRY(pl_buffer_reserve(out, size, err));
    for (size_t i = 0; i < size; i++) {
        int digit = base64_digit(s[i]);
        PL_FAIL_IF(digit < 0, err, PLEACH_ERR_FORMAT, "%s: precompiled_charsmap is not base64",
                   name);
        bits = bits << 6 | (uint32_t)digit;
        n += 6;
        if (n < 8) continue;
        n -= 8;
        out->data[out->size++] = (char)(bits >> n);
    }
    return PLEACH_OK;
}

static pleach_status read_map(pl_charsmap *m, const char *name, const pl_buffer *raw,
                              pleach_error *err)
{
    const unsigned char *b = (const unsigned char *)raw->data;
    PL_FAIL_IF(raw->size < 4, err, PLEACH_ERR_FORMAT, "%s: precompiled_charsmap of %zu bytes", name,
               raw->size);
    size_t trie = b[0] | (size_t)b[1] << 8 | (size_t)b[2] << 16 | (size_t)b[3] << 24;
    PL_FAIL_IF(!trie || trie % 4 || trie > raw->size - 4, err, PLEACH_ERR_FORMAT,
               "%s: precompiled_charsmap has a trie of %zu bytes in %zu", name, trie, raw->size);
    m->n_units = trie / 4;
    m->n_replacements = raw->size - 4 - trie + 1;
    m->units = pl_alloc(m->n_units, sizeof *m->units);
    m->replacements = pl_calloc(m->n_replacements, 1);
    if (!m->units || !m->replacements) return pl_fail_memory(err, "a character map", raw->size);
    for (size_t i = 0; i < m->n_units; i++) {
        const unsigned char *u = b + 4 + 4 * i;
        m->units[i] = u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
    }
    memcpy(m->replacements, raw->data + 4 + trie, m->n_replacements - 1);
    PL_FAIL_IF(pl_utf8_valid_prefix(m->replacements, m->n_replacements) != m->n_replacements, err,
               PLEACH_ERR_FORMAT, "%s: precompiled_charsmap holds invalid UTF-8", name);
    return PLEACH_OK;
}

pleach_status pl_charsmap_init(pl_charsmap *m, const char *name, const char *base64, size_t size,
                               pleach_error *err)
{
    pl_buffer raw = {0};
    pleach_status status = decode_base64(name, base64, size, &raw, err);
    if (!status) status = read_map(m, name, &raw, err);
    pl_free(raw.data);
    return status;
}

void pl_charsmap_free(pl_charsmap *m)
{
    pl_free(m->units);
    pl_free(m->replacements);
    *m = (pl_charsmap){0};
}

static size_t unit_offset(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The replacement of the shortest known prefix of s, or NULL. */
static const char *find(const pl_charsmap *m, const char *s, size_t size)
{
    size_t node = unit_offset(m->units[0]);
    for (size_t i = 0; i < size && s[i]; i++) {
        unsigned char c = (unsigned char)s[i];
        node ^= c;
        if (node >= m->n_units) return NULL;
        uint32_t unit = m->units[node];
        if ((unit & 0x800000ffu) != c) return NULL;
        node ^= unit_offset(unit);
        if (!(unit >> 8 & 1)) continue;
        if (node >= m->n_units) return NULL;
        size_t at = m->units[node] & 0x7fffffffu;
        /* A value inside a character, or outside all, comes from a damaged file. */
        if (at >= m->n_replacements || ((unsigned char)m->replacements[at] & 0xc0) == 0x80)
            return NULL;
        return m->replacements + at;
    }
    return NULL;
}

static size_t grapheme_length(const char *s, size_t size)
{
    utf8proc_int32_t state = 0;
    size_t at = pl_utf8_length(s[0]);
    uint32_t last = pl_utf8_decode(s);
    while (at < size) {
        uint32_t c = pl_utf8_decode(s + at);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)last, (utf8proc_int32_t)c, &state))
            break;
        last = c;
        at += pl_utf8_length(s[at]);
    }
    return at;
}

pleach_status pl_charsmap_apply(const pl_charsmap *m, const char *text, size_t size, pl_buffer *out,
                                pleach_error *err)
{
    for (size_t at = 0; at < size;) {
        size_t whole = grapheme_length(text + at, size - at), end = at + whole;
        const char *mapped = whole < 6 ? find(m, text + at, whole) : NULL;
        if (mapped) {
            PL_TRY(pl_buffer_append(out, mapped, strlen(mapped), err));
            at = end;
        }
        while (at < end) {
            size_t length = pl_utf8_length(text[at]);
            mapped = find(m, text + at, length);
            PL_TRY(pl_buffer_append(out, mapped ? mapped : text + at,
                                    mapped ? strlen(mapped) : length, err));
            at += length;
        }
    }
    return PLEACH_OK;
}
