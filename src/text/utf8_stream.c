/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 made whole: Unicode, table 3-7, decides byte by byte what may follow. */
#include "utf8_stream.h"

#include <string.h>

#include "base/memory.h"

/* Length of the character that `lead` starts and the range of its second byte; 0 for no lead. */
static size_t expect(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead < 0x80) return 1;
    if (lead >= 0xc2 && lead <= 0xdf) return 2;
    if (lead >= 0xe0 && lead <= 0xef) {
        if (lead == 0xe0) *low = 0xa0;
        if (lead == 0xed) *high = 0x9f;
        return 3;
    }
    if (lead >= 0xf0 && lead <= 0xf4) {
        if (lead == 0xf0) *low = 0x90;
        if (lead == 0xf4) *high = 0x8f;
        return 4;
    }
    return 0;
}

/* Bytes of text[0..n), n > 0, that form a character or its beginning. *whole: all of it is there;
 * *bad: the byte after them can not continue it. */
static size_t scan(const char *text, size_t n, bool *whole, bool *bad)
{
    unsigned char low, high;
    size_t length = expect((unsigned char)text[0], &low, &high), i = 1;
    *whole = *bad = false;
    if (length == 0) {
        *bad = true;
        return 1;
    }
    for (; i < length && i < n; i++, low = 0x80, high = 0xbf) {
        unsigned char byte = (unsigned char)text[i];
        if (byte >= low && byte <= high) continue;
        *bad = true;
        return i;
    }
    *whole = i == length;
    return i;
}

static pleach_status append(pl_utf8_stream *s, const char *bytes, size_t size, pleach_error *err)
{
    if (pl_grow((void **)&s->text, &s->capacity, s->n + size, 1))
        return pl_fail_memory(err, "generated text", s->n + size);
    memcpy(s->text + s->n, bytes, size);
    s->n += size;
    return PLEACH_OK;
}

/* The unfinished bytes [ready, n) become U+FFFD. */
static pleach_status replace(pl_utf8_stream *s, pleach_error *err)
{
    s->n = s->ready;
    PL_TRY(append(s, "\xef\xbf\xbd", 3, err));
    s->ready = s->n;
    return PLEACH_OK;
}

pleach_status pl_utf8_push(pl_utf8_stream *s, const char *bytes, size_t size, pleach_error *err)
{
    for (size_t i = 0; i < size;) {
        bool whole, bad;
        PL_TRY(append(s, bytes + i, 1, err));
        size_t part = scan(s->text + s->ready, s->n - s->ready, &whole, &bad);
        /* A byte that can not continue the character is looked at again, as the next one's first. */
        bool again = bad && part < s->n - s->ready;
        if (bad) PL_TRY(replace(s, err));
        if (whole) s->ready = s->n;
        if (!again) i++;
    }
    return PLEACH_OK;
}

pleach_status pl_utf8_finish(pl_utf8_stream *s, pleach_error *err)
{
    return s->ready < s->n ? replace(s, err) : PLEACH_OK;
}

void pl_utf8_shift(pl_utf8_stream *s)
{
    if (s->ready == 0) return; /* there may be no text yet at all */
    memmove(s->text, s->text + s->ready, s->n - s->ready);
    s->n -= s->ready;
    s->ready = 0;
}
