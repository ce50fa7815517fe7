/* SPDX-License-Identifier: Apache-2.0
 *
 * Methods of str, dict, list and loop, as Python has them; none that would change its object. */
#include <string.h>
#include <utf8proc.h>

#include "base/compiler.h"
#include "rendering.h"
#include "string_ops.h"
#include "text/utf8.h"

typedef value method(rendering *r, const value *self, const arguments *a);

/* ---- cutting --------------------------------------------------------------------------------- */

/* White space as str.strip and str.split have it. */
static bool is_strip_space(uint32_t c)
{
    return pl_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

static size_t character(text t, size_t at, uint32_t *c)
{
    size_t n = PL_MIN(pl_utf8_length(t.bytes[at]), t.size - at);
    char whole[4] = {0};
    memcpy(whole, t.bytes + at, n);
    *c = n == pl_utf8_length(t.bytes[at]) ? pl_utf8_decode(whole) : 0xfffd;
    return n;
}

static size_t before(text t, size_t at)
{
    do at--;
    while (at && ((unsigned char)t.bytes[at] & 0xc0) == 0x80);
    return at;
}

/* Whether a character is to be stripped: one of `set`, or white space. */
static bool strips(text t, size_t at, size_t n, const text *set)
{
    uint32_t c;
    if (set) return jinja_text_find(*set, jinja_text_part(t, at, at + n), 0) != SIZE_MAX;
    character(t, at, &c);
    return is_strip_space(c);
}

text jinja_strip_text(text t, const text *set, bool left, bool right)
{
    size_t from = 0, to = t.size;
    while (left && from < to) {
        uint32_t c;
        size_t n = character(t, from, &c);
        if (!strips(t, from, n, set)) break;
        from += n;
    }
    while (right && to > from) {
        size_t at = before(t, to);
        if (!strips(t, at, to - at, set)) break;
        to = at;
    }
    return jinja_text_part(t, from, to);
}

static value strip_by(rendering *r, const value *self, const arguments *a, bool left, bool right)
{
    const value *given = jinja_argument(a, 0, "chars");
    text set;
    if (!given || given->kind == KIND_NONE)
        return make_text(jinja_strip_text(self->text, NULL, left, right));
    set = jinja_text_argument(r, a, 0, "chars", "");
    return make_text(jinja_strip_text(self->text, &set, left, right));
}

static value strip(rendering *r, const value *self, const arguments *a)
{
    return strip_by(r, self, a, true, true);
}
static value lstrip(rendering *r, const value *self, const arguments *a)
{
    return strip_by(r, self, a, true, false);
}
static value rstrip(rendering *r, const value *self, const arguments *a)
{
    return strip_by(r, self, a, false, true);
}

static bool ends_in(text t, text end)
{
    return end.size <= t.size &&
           jinja_text_equal(jinja_text_part(t, t.size - end.size, t.size), end);
}
static bool begins_in(text t, text begin)
{
    return begin.size <= t.size && jinja_text_equal(jinja_text_part(t, 0, begin.size), begin);
}

/* One of the texts given, alone or in a tuple. */
static value begins_or_ends(rendering *r, const value *self, const arguments *a,
                            bool (*has)(text, text))
{
    const value *given = jinja_argument(a, 0, NULL);
    list one = {.items = (value *)given, .n = 1};
    const list *all = given && given->kind == KIND_LIST ? given->list : &one;
    if (!given) return jinja_fail(r, "expected a str");
    for (size_t i = 0; i < all->n; i++) {
        if (all->items[i].kind != KIND_STRING)
            return jinja_fail(r, "expected a str, not %s", jinja_type_name(&all->items[i]));
        if (has(self->text, all->items[i].text)) return make_bool(true);
    }
    return make_bool(false);
}

static value startswith(rendering *r, const value *self, const arguments *a)
{
    return begins_or_ends(r, self, a, begins_in);
}
static value endswith(rendering *r, const value *self, const arguments *a)
{
    return begins_or_ends(r, self, a, ends_in);
}

static value removeprefix(rendering *r, const value *self, const arguments *a)
{
    text t = self->text, prefix = jinja_text_argument(r, a, 0, "the prefix", "");
    return make_text(begins_in(t, prefix) ? jinja_text_part(t, prefix.size, t.size) : t);
}
static value removesuffix(rendering *r, const value *self, const arguments *a)
{
    text t = self->text, suffix = jinja_text_argument(r, a, 0, "the suffix", "");
    return make_text(ends_in(t, suffix) ? jinja_text_part(t, 0, t.size - suffix.size) : t);
}

/* ---- splitting and joining ------------------------------------------------------------------- */

/* At runs of white space; no empty parts. */
static list *split_words(rendering *r, text t, int64_t most)
{
    list *l = jinja_make_list(r);
    size_t at = 0;
    for (;;) {
        uint32_t c;
        text rest = jinja_strip_text(jinja_text_part(t, at, t.size), NULL, true, false);
        if (!rest.size || !jinja_count_step(r)) return l;
        at = t.size - rest.size;
        size_t end = at;
        if (most >= 0 && (int64_t)l->n >= most) {
            jinja_list_add(r, l, make_text(rest));
            return l;
        }
        while (end < t.size) {
            size_t n = character(t, end, &c);
            if (is_strip_space(c)) break;
            end += n;
        }
        jinja_list_add(r, l, make_text(jinja_text_part(t, at, end)));
        at = end;
    }
}

static void reverse_list(list *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        value v = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = v;
    }
}

static size_t find_last(text t, text what, size_t end)
{
    for (size_t i = end >= what.size ? end - what.size + 1 : 0; i--;)
        if (!what.size || !memcmp(t.bytes + i, what.bytes, what.size)) return i;
    return SIZE_MAX;
}

static list *split_at(rendering *r, text t, text separator, int64_t most, bool from_end)
{
    list *l = jinja_make_list(r);
    size_t at = 0, end = t.size;
    while (jinja_count_step(r) && (most < 0 || (int64_t)l->n < most)) {
        size_t i = from_end ? find_last(t, separator, end) : jinja_text_find(t, separator, at);
        if (i == SIZE_MAX) break;
        if (from_end) {
            jinja_list_add(r, l, make_text(jinja_text_part(t, i + separator.size, end)));
            end = i;
        } else {
            jinja_list_add(r, l, make_text(jinja_text_part(t, at, i)));
            at = i + separator.size;
        }
    }
    jinja_list_add(r, l, make_text(jinja_text_part(t, at, end)));
    if (from_end) reverse_list(l);
    return l;
}

static value split_by(rendering *r, const value *self, const arguments *a, bool from_end)
{
    const value *given = jinja_argument(a, 0, "sep");
    int64_t most = jinja_int_argument(r, a, 1, "maxsplit", -1);
    if ((!given || given->kind == KIND_NONE) && (!from_end || most < 0))
        return jinja_list_value(split_words(r, self->text, most));
    text separator = jinja_text_argument(r, a, 0, "sep", " ");
    if (!separator.size) return jinja_fail(r, "an empty separator");
    return jinja_list_value(split_at(r, self->text, separator, most, from_end));
}

static value split(rendering *r, const value *self, const arguments *a)
{
    return split_by(r, self, a, false);
}
static value rsplit(rendering *r, const value *self, const arguments *a)
{
    return split_by(r, self, a, true);
}

static value splitlines(rendering *r, const value *self, const arguments *a)
{
    bool keep = jinja_bool_argument(a, 0, "keepends", false);
    text t = self->text;
    list *l = jinja_make_list(r);
    for (size_t at = 0; at < t.size && jinja_count_step(r);) {
        size_t end = at, next;
        while (end < t.size && t.bytes[end] != '\n' && t.bytes[end] != '\r') end++;
        next = end + (end < t.size);
        if (next < t.size && t.bytes[end] == '\r' && t.bytes[next] == '\n') next++;
        jinja_list_add(r, l, make_text(jinja_text_part(t, at, keep ? next : end)));
        at = next;
    }
    return jinja_list_value(l);
}

static value partition_at(rendering *r, const value *self, const arguments *a, bool last)
{
    text t = self->text, separator = jinja_text_argument(r, a, 0, "sep", "");
    if (!separator.size) return jinja_fail(r, "an empty separator");
    size_t i = last ? find_last(t, separator, t.size) : jinja_text_find(t, separator, 0);
    text none = jinja_text_part(t, 0, 0), all = t;
    bool found = i != SIZE_MAX;
    text parts[3] = {found  ? jinja_text_part(t, 0, i)
                     : last ? none
                            : all,
                     found ? separator : none,
                     found  ? jinja_text_part(t, i + separator.size, t.size)
                     : last ? all
                            : none};
    list *l = jinja_make_list(r);
    for (int j = 0; j < 3; j++) jinja_list_add(r, l, make_text(parts[j]));
    if (!jinja_failed(r)) l->tuple = true;
    return jinja_list_value(l);
}

static value partition(rendering *r, const value *self, const arguments *a)
{
    return partition_at(r, self, a, false);
}
static value rpartition(rendering *r, const value *self, const arguments *a)
{
    return partition_at(r, self, a, true);
}

static value join(rendering *r, const value *self, const arguments *a)
{
    const value *given = jinja_argument(a, 0, NULL);
    if (!given) return jinja_fail(r, "join wants a list");
    const list *items = jinja_iterate(r, given);
    builder b = {0};
    for (size_t i = 0; i < items->n && jinja_count_step(r); i++) {
        if (items->items[i].kind != KIND_STRING)
            return jinja_fail(r, "join wants items of type str, not %s",
                              jinja_type_name(&items->items[i]));
        if (i) jinja_build_text(r, &b, self->text);
        jinja_build_text(r, &b, items->items[i].text);
    }
    return make_text(jinja_build_end(&b));
}

text jinja_replace_text(rendering *r, text t, text old, text by, int64_t most)
{
    builder b = {0};
    size_t at = 0;
    while (most != 0 && at <= t.size && jinja_count_step(r)) {
        size_t i = jinja_text_find(t, old, at);
        if (i == SIZE_MAX) break;
        if (!old.size) { /* between all characters */
            jinja_build_text(r, &b, by);
            if (i == t.size) return jinja_build_end(&b);
            size_t next = i + PL_MIN(pl_utf8_length(t.bytes[i]), t.size - i);
            jinja_build_text(r, &b, jinja_text_part(t, i, next));
            at = next;
        } else {
            jinja_build_text(r, &b, jinja_text_part(t, at, i));
            jinja_build_text(r, &b, by);
            at = i + old.size;
        }
        if (most > 0) most--;
    }
    jinja_build_text(r, &b, jinja_text_part(t, at, t.size));
    return jinja_build_end(&b);
}

static value replace(rendering *r, const value *self, const arguments *a)
{
    if (a->n < 2) return jinja_fail(r, "replace wants two texts");
    return make_text(jinja_replace_text(r, self->text, jinja_text_argument(r, a, 0, "old", ""),
                                        jinja_text_argument(r, a, 1, "new", ""),
                                        jinja_int_argument(r, a, 2, "count", -1)));
}

/* ---- looking --------------------------------------------------------------------------------- */

static value find_by(rendering *r, const value *self, const arguments *a, bool last, bool must)
{
    text t = self->text, what = jinja_text_argument(r, a, 0, "the text to find", "");
    size_t from = jinja_text_offset(t, (size_t)PL_MAX(jinja_int_argument(r, a, 1, "start", 0), 0));
    size_t i = last ? find_last(t, what, t.size) : jinja_text_find(t, what, from);
    if (i != SIZE_MAX && i < from) i = SIZE_MAX;
    if (i == SIZE_MAX) return must ? jinja_fail(r, "the text is not found") : make_int(-1);
    return make_int((int64_t)jinja_text_length(jinja_text_part(t, 0, i)));
}

static value find(rendering *r, const value *self, const arguments *a)
{
    return find_by(r, self, a, false, false);
}
static value rfind(rendering *r, const value *self, const arguments *a)
{
    return find_by(r, self, a, true, false);
}
static value index_of(rendering *r, const value *self, const arguments *a)
{
    return find_by(r, self, a, false, true);
}

static value count(rendering *r, const value *self, const arguments *a)
{
    text what = jinja_text_argument(r, a, 0, "the text to count", "");
    int64_t n = 0;
    if (!what.size) return make_int((int64_t)jinja_text_length(self->text) + 1);
    for (size_t at = 0; (at = jinja_text_find(self->text, what, at)) != SIZE_MAX; at += what.size)
        n++;
    return make_int(n);
}

typedef bool character_test(uint32_t c);
static bool is_digit(uint32_t c)
{
    return utf8proc_category((int)c) == UTF8PROC_CATEGORY_ND;
}
static bool is_letter(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((int)c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
static bool is_letter_or_digit(uint32_t c)
{
    return is_letter(c) || is_digit(c);
}

/* Of at least one character, and of all. */
static value all_are(text t, character_test *test)
{
    for (size_t at = 0; at < t.size;) {
        uint32_t c;
        at += character(t, at, &c);
        if (!test(c)) return make_bool(false);
    }
    return make_bool(t.size != 0);
}

static value isdigit_method(rendering *r, const value *self, const arguments *a)
{
    (void)r;
    (void)a;
    return all_are(self->text, is_digit);
}
static value isalpha_method(rendering *r, const value *self, const arguments *a)
{
    (void)r;
    (void)a;
    return all_are(self->text, is_letter);
}
static value isalnum_method(rendering *r, const value *self, const arguments *a)
{
    (void)r;
    (void)a;
    return all_are(self->text, is_letter_or_digit);
}
static value isspace_method(rendering *r, const value *self, const arguments *a)
{
    (void)r;
    (void)a;
    return all_are(self->text, is_strip_space);
}

/* With letters in it, and all of them of the case. */
static value in_case(text t, bool upper)
{
    bool any = false;
    for (size_t at = 0; at < t.size;) {
        uint32_t c;
        at += character(t, at, &c);
        if (upper ? utf8proc_islower((int)c) : utf8proc_isupper((int)c)) return make_bool(false);
        any |= upper ? utf8proc_isupper((int)c) : utf8proc_islower((int)c);
    }
    return make_bool(any);
}

static value isupper_method(rendering *r, const value *self, const arguments *a)
{
    (void)r;
    (void)a;
    return in_case(self->text, true);
}
static value islower_method(rendering *r, const value *self, const arguments *a)
{
    (void)r;
    (void)a;
    return in_case(self->text, false);
}

/* ---- cases ----------------------------------------------------------------------------------- */

text jinja_change_case(rendering *r, text t, letter_case how)
{
    builder b = {0};
    bool first = true;
    for (size_t at = 0; at < t.size && !jinja_failed(r);) {
        uint32_t c;
        char changed[4];
        size_t n = character(t, at, &c);
        bool up = how == CASE_UPPER || (first && how != CASE_LOWER);
        bool letter = utf8proc_isupper((int)c) || utf8proc_islower((int)c);
        uint32_t d = (uint32_t)(up ? utf8proc_toupper((int)c) : utf8proc_tolower((int)c));
        if (c == 0xdf && up) /* sharp s: the one common letter with two capitals */
            jinja_build_bytes(r, &b, first && how != CASE_UPPER ? "Ss" : "SS", 2,
                              t.said && t.said[at]);
        else if (d == c)
            jinja_build_text(r, &b, jinja_text_part(t, at, at + n));
        else
            jinja_build_bytes(r, &b, changed, pl_utf8_encode(d, changed), t.said && t.said[at]);
        first = how == CASE_TITLE ? !letter : false;
        at += n;
    }
    return jinja_build_end(&b);
}

static value upper(rendering *r, const value *self, const arguments *a)
{
    (void)a;
    return make_text(jinja_change_case(r, self->text, CASE_UPPER));
}
static value lower(rendering *r, const value *self, const arguments *a)
{
    (void)a;
    return make_text(jinja_change_case(r, self->text, CASE_LOWER));
}
static value title(rendering *r, const value *self, const arguments *a)
{
    (void)a;
    return make_text(jinja_change_case(r, self->text, CASE_TITLE));
}
static value capitalize(rendering *r, const value *self, const arguments *a)
{
    (void)a;
    return make_text(jinja_change_case(r, self->text, CASE_CAPITALIZE));
}

/* ---- filling --------------------------------------------------------------------------------- */

static value fill(rendering *r, const value *self, const arguments *a, bool left)
{
    int64_t width = jinja_int_argument(r, a, 0, "the width", 0);
    text with = jinja_text_argument(r, a, 1, "the filling", " ");
    int64_t more = width - (int64_t)jinja_text_length(self->text);
    builder b = {0};
    if (!left) jinja_build_text(r, &b, self->text);
    for (; more > 0 && jinja_count_step(r); more--) jinja_build_text(r, &b, with);
    if (left) jinja_build_text(r, &b, self->text);
    return make_text(jinja_build_end(&b));
}

static value ljust(rendering *r, const value *self, const arguments *a)
{
    return fill(r, self, a, false);
}
static value rjust(rendering *r, const value *self, const arguments *a)
{
    return fill(r, self, a, true);
}

/* "{} and {name}".format(a, name=b), without conversions. */
static value format(rendering *r, const value *self, const arguments *a)
{
    text t = self->text;
    builder b = {0};
    size_t next = 0;
    for (size_t i = 0; i < t.size && !jinja_failed(r); i++) {
        char c = t.bytes[i];
        bool doubled = i + 1 < t.size && t.bytes[i + 1] == c;
        if ((c == '{' || c == '}') && doubled) i++;
        if (c != '{' || doubled) {
            jinja_build_text(r, &b, jinja_text_part(t, i, i + 1));
            continue;
        }
        size_t end = jinja_text_find(t, (text){.bytes = "}", .size = 1}, i);
        if (end == SIZE_MAX) return jinja_fail(r, "a format with { without }");
        text name = jinja_text_part(t, i + 1, end);
        const value *v = NULL;
        bool number = name.size && name.size < 4 && all_are(name, is_digit).boolean;
        if (!name.size) {
            v = jinja_argument(a, next++, NULL);
        } else if (number) {
            size_t at = 0;
            for (size_t j = 0; j < name.size; j++) at = 10 * at + (size_t)(name.bytes[j] - '0');
            v = jinja_argument(a, at, NULL);
        } else {
            for (size_t j = 0; j < a->n_named; j++)
                if (jinja_text_equal(a->names[j], name)) v = &a->named[j];
        }
        if (!v)
            return jinja_fail(r, "a format's place {%.*s} has no value", (int)name.size,
                              name.bytes);
        jinja_build_text(r, &b, jinja_to_text(r, v));
        i = end;
    }
    return make_text(jinja_build_end(&b));
}

/* ---- dict, list, loop ------------------------------------------------------------------------ */

static value pair(rendering *r, value a, value b)
{
    list *l = jinja_make_list(r);
    jinja_list_add(r, l, a);
    jinja_list_add(r, l, b);
    if (!jinja_failed(r)) l->tuple = true;
    return jinja_list_value(l);
}

value jinja_dict_items(rendering *r, const dict *d)
{
    list *l = jinja_make_list(r);
    for (size_t i = 0; i < d->n && jinja_count_step(r); i++)
        jinja_list_add(r, l, pair(r, d->keys[i], d->values[i]));
    return jinja_list_value(l);
}

static value items(rendering *r, const value *self, const arguments *a)
{
    (void)a;
    return jinja_dict_items(r, self->dict);
}

static value keys(rendering *r, const value *self, const arguments *a)
{
    (void)a;
    return jinja_list_value(jinja_iterate(r, self));
}

static value values(rendering *r, const value *self, const arguments *a)
{
    list *l = jinja_make_list(r);
    (void)a;
    for (size_t i = 0; i < self->dict->n; i++) jinja_list_add(r, l, self->dict->values[i]);
    return jinja_list_value(l);
}

static value get(rendering *r, const value *self, const arguments *a)
{
    const value *key = jinja_argument(a, 0, NULL), *otherwise = jinja_argument(a, 1, NULL);
    if (!key) return jinja_fail(r, "get wants a key");
    const value *v = jinja_dict_find(self->dict, key);
    return v ? *v : otherwise ? *otherwise : make_none();
}

static value list_index(rendering *r, const value *self, const arguments *a)
{
    const value *v = jinja_argument(a, 0, NULL);
    for (size_t i = 0; v && i < self->list->n; i++)
        if (jinja_equal(&self->list->items[i], v)) return make_int((int64_t)i);
    return jinja_fail(r, "the list has no such item");
}

static value list_count(rendering *r, const value *self, const arguments *a)
{
    const value *v = jinja_argument(a, 0, NULL);
    int64_t n = 0;
    (void)r;
    for (size_t i = 0; v && i < self->list->n; i++) n += jinja_equal(&self->list->items[i], v);
    return make_int(n);
}

/* loop.cycle(a, b, ...) */
static value cycle(rendering *r, const value *self, const arguments *a)
{
    const value *i = jinja_dict_find_name(self->dict, "index0");
    if (!a->n) return jinja_fail(r, "cycle wants values");
    return i && i->kind == KIND_INT ? a->items[(size_t)i->integer % a->n] : make_none();
}

/* ---- the lists ------------------------------------------------------------------------------- */

static const struct {
    kind kind;
    const char *name;
    method *method;
} methods[] = {
    {KIND_STRING, "strip", strip},
    {KIND_STRING, "lstrip", lstrip},
    {KIND_STRING, "rstrip", rstrip},
    {KIND_STRING, "split", split},
    {KIND_STRING, "rsplit", rsplit},
    {KIND_STRING, "splitlines", splitlines},
    {KIND_STRING, "partition", partition},
    {KIND_STRING, "rpartition", rpartition},
    {KIND_STRING, "startswith", startswith},
    {KIND_STRING, "endswith", endswith},
    {KIND_STRING, "removeprefix", removeprefix},
    {KIND_STRING, "removesuffix", removesuffix},
    {KIND_STRING, "replace", replace},
    {KIND_STRING, "join", join},
    {KIND_STRING, "find", find},
    {KIND_STRING, "rfind", rfind},
    {KIND_STRING, "index", index_of},
    {KIND_STRING, "count", count},
    {KIND_STRING, "upper", upper},
    {KIND_STRING, "lower", lower},
    {KIND_STRING, "title", title},
    {KIND_STRING, "capitalize", capitalize},
    {KIND_STRING, "isdigit", isdigit_method},
    {KIND_STRING, "isnumeric", isdigit_method},
    {KIND_STRING, "isalpha", isalpha_method},
    {KIND_STRING, "isalnum", isalnum_method},
    {KIND_STRING, "isspace", isspace_method},
    {KIND_STRING, "isupper", isupper_method},
    {KIND_STRING, "islower", islower_method},
    {KIND_STRING, "ljust", ljust},
    {KIND_STRING, "rjust", rjust},
    {KIND_STRING, "format", format},
    {KIND_DICT, "items", items},
    {KIND_DICT, "keys", keys},
    {KIND_DICT, "values", values},
    {KIND_DICT, "get", get},
    {KIND_LIST, "index", list_index},
    {KIND_LIST, "count", list_count},
    {KIND_NAMESPACE, "cycle", cycle},
};

static method *find_method(const value *self, const char *name)
{
    for (size_t i = 0; i < PL_COUNT(methods); i++)
        if (methods[i].kind == self->kind && !strcmp(methods[i].name, name))
            return methods[i].method;
    return NULL;
}

bool jinja_has_method(const value *self, const char *name)
{
    return find_method(self, name) != NULL;
}

value jinja_call_method(rendering *r, const value *self, const char *name, const arguments *a)
{
    method *m = find_method(self, name);
    return m ? m(r, self, a) : jinja_fail(r, "%s has no method %s", jinja_type_name(self), name);
}
