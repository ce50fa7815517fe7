/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalisation forms from utf8proc's tables. utf8proc_map is not used as it stands: it orders
 * combining marks by exchanging neighbours, so a long run of them takes quadratic time. */
#include "unicode_form.h"

#include <stdint.h>
#include <utf8proc.h>

#include "utf8.h"

typedef struct characters {
    utf8proc_int32_t *c;
    size_t n, capacity;
} characters;

static unsigned combining_class(utf8proc_int32_t c)
{
    return (unsigned)utf8proc_get_property(c)->combining_class;
}

/* Stable counting sort by combining class of the run c[0..n), none of class 0. Counting pays for
 * long runs alone; short ones are sorted by insertion. */
static int order_run(utf8proc_int32_t *c, size_t n)
{
    if (n <= 32) {
        for (size_t i = 1; i < n; i++) {
            utf8proc_int32_t moved = c[i];
            size_t at = i;
            for (; at && combining_class(c[at - 1]) > combining_class(moved); at--)
                c[at] = c[at - 1];
            c[at] = moved;
        }
        return 0;
    }
    size_t start[257] = {0};
    utf8proc_int32_t *sorted = pl_alloc(n, sizeof *sorted);
    if (!sorted) return -1;
    for (size_t i = 0; i < n; i++) start[(combining_class(c[i]) & 255) + 1]++;
    for (size_t k = 1; k < 257; k++) start[k] += start[k - 1];
    for (size_t i = 0; i < n; i++) sorted[start[combining_class(c[i]) & 255]++] = c[i];
    memcpy(c, sorted, n * sizeof *c);
    pl_free(sorted);
    return 0;
}

static pleach_status decompose(const char *text, size_t size, int options, characters *out,
                               pleach_error *err)
{
    for (size_t at = 0; at < size; at += pl_utf8_length(text[at])) {
        /* No character decomposes to more than 18 (Unicode, UAX 15). */
        if (pl_grow((void **)&out->c, &out->capacity, out->n + 32, sizeof *out->c))
            return pl_fail_memory(err, "Unicode decomposition", 4 * out->n);
        utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)pl_utf8_decode(text + at),
                                                     out->c + out->n, 32, options, NULL);
        PL_FAIL_IF(n < 0 || n > 32, err, PLEACH_ERR_DATA, "cannot decompose a character: %s",
                   utf8proc_errmsg(n));
        out->n += (size_t)n;
    }
    return PLEACH_OK;
}

static int order_marks(characters *s)
{
    for (size_t i = 0; i < s->n;) {
        size_t from = i;
        while (i < s->n && combining_class(s->c[i])) i++;
        if (i > from + 1 && order_run(s->c + from, i - from)) return -1;
        if (i == from) i++;
    }
    return 0;
}

pleach_status pl_unicode_form(const char *text, size_t size, bool compose, bool compatible,
                              pl_buffer *out, pleach_error *err)
{
    characters s = {0};
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    pleach_status status = decompose(text, size, options, &s, err);
    if (!status && order_marks(&s)) status = pl_fail_memory(err, "ordering marks", 4 * s.n);
    if (!status && compose && s.n) {
        utf8proc_ssize_t n = utf8proc_normalize_utf32(s.c, (utf8proc_ssize_t)s.n,
                                                      UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (n < 0) status = pl_fail(err, PLEACH_ERR_DATA, "cannot compose: %s", utf8proc_errmsg(n));
        else s.n = (size_t)n;
    }
    if (!status) status = pl_buffer_reserve(out, 4 * s.n, err);
    for (size_t i = 0; !status && i < s.n; i++)
        out->size += pl_utf8_encode((uint32_t)s.c[i], out->data + out->size);
    pl_free(s.c);
    return status;
}
