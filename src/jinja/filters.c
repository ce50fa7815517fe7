/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters and tests by name, those of Jinja that make sense without HTML. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "rendering.h"
#include "string_ops.h"

typedef value filter(rendering *r, const value *v, const arguments *a);
typedef bool test(rendering *r, const value *v, const value *with);

/* A value's attribute by a path such as "function.name"; numbers are indices. */
static value by_path(rendering *r, const value *v, text path)
{
    value at = *v;
    for (size_t i = 0; i <= path.size && !jinja_failed(r);) {
        size_t dot = jinja_text_find(path, (text){.bytes = ".", .size = 1}, i);
        text name = jinja_text_part(path, i, dot == SIZE_MAX ? path.size : dot);
        const char *word = jinja_c_string(r, name);
        if (jinja_failed(r)) break;
        char *end;
        value key = make_int(strtol(word, &end, 10));
        if (*end || end == word) key = make_text((text){.bytes = word, .size = name.size});
        at = jinja_get_item(r, &at, &key);
        i += name.size + 1;
    }
    return at;
}

/* ---- text ------------------------------------------------------------------------------------ */

static value trim_filter(rendering *r, const value *v, const arguments *a)
{
    const value *given = jinja_argument(a, 0, "chars");
    text set = jinja_text_argument(r, a, 0, "chars", "");
    bool white = !given || given->kind == KIND_NONE;
    return make_text(jinja_strip_text(jinja_to_text(r, v), white ? NULL : &set, true, true));
}

static value upper_filter(rendering *r, const value *v, const arguments *a)
{
    (void)a;
    return make_text(jinja_change_case(r, jinja_to_text(r, v), CASE_UPPER));
}
static value lower_filter(rendering *r, const value *v, const arguments *a)
{
    (void)a;
    return make_text(jinja_change_case(r, jinja_to_text(r, v), CASE_LOWER));
}
/* A letter after a blank, a hyphen or an opening bracket is a capital, unlike in str.title. */
static value title_filter(rendering *r, const value *v, const arguments *a)
{
    text t = jinja_to_text(r, v);
    builder b = {0};
    (void)a;
    for (size_t at = 0; at < t.size && !jinja_failed(r);) {
        size_t end = at;
        while (end < t.size && (t.bytes[end] == '\0' || !strchr("- \t\n\r\f\v({[<", t.bytes[end])))
            end++;
        jinja_build_text(r, &b, jinja_change_case(r, jinja_text_part(t, at, end), CASE_CAPITALIZE));
        if (end < t.size) jinja_build_text(r, &b, jinja_text_part(t, end, end + 1));
        at = end + 1;
    }
    return make_text(jinja_build_end(&b));
}
static value capitalize_filter(rendering *r, const value *v, const arguments *a)
{
    (void)a;
    return make_text(jinja_change_case(r, jinja_to_text(r, v), CASE_CAPITALIZE));
}

static value replace_filter(rendering *r, const value *v, const arguments *a)
{
    return make_text(jinja_replace_text(
        r, jinja_to_text(r, v), jinja_text_argument(r, a, 0, "old", ""),
        jinja_text_argument(r, a, 1, "new", ""), jinja_int_argument(r, a, 2, "count", -1)));
}

static value string_filter(rendering *r, const value *v, const arguments *a)
{
    (void)a;
    return make_text(jinja_to_text(r, v));
}

/* Lines after the first moved to the right. */
static value indent_filter(rendering *r, const value *v, const arguments *a)
{
    const value *given = jinja_argument(a, 0, "width");
    bool first = jinja_bool_argument(a, 1, "first", false),
         blank = jinja_bool_argument(a, 2, "blank", false);
    text t = jinja_to_text(r, v), by = {.bytes = ""};
    builder spaces = {0}, b = {0};
    if (given && given->kind == KIND_STRING) {
        by = given->text;
    } else {
        int64_t width = jinja_int_argument(r, a, 0, "width", 4);
        for (; width > 0 && jinja_count_step(r); width--) jinja_build_string(r, &spaces, " ");
        by = jinja_build_end(&spaces);
    }
    for (size_t at = 0; at <= t.size && !jinja_failed(r);) {
        size_t end = jinja_text_find(t, (text){.bytes = "\n", .size = 1}, at);
        size_t to = end == SIZE_MAX ? t.size : end;
        if ((at || first) && (to > at || blank)) jinja_build_text(r, &b, by);
        jinja_build_text(r, &b, jinja_text_part(t, at, to));
        if (end == SIZE_MAX) break;
        jinja_build_text(r, &b, jinja_text_part(t, end, end + 1));
        at = end + 1;
    }
    return make_text(jinja_build_end(&b));
}

text jinja_escape_text(rendering *r, text t)
{
    static const char from[] = "&<>\"'";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    builder b = {0};
    for (size_t i = 0; i < t.size; i++) {
        const char *at = t.bytes[i] ? strchr(from, t.bytes[i]) : NULL;
        if (at)
            jinja_build_bytes(r, &b, to[at - from], strlen(to[at - from]), t.said && t.said[i]);
        else
            jinja_build_text(r, &b, jinja_text_part(t, i, i + 1));
    }
    return jinja_build_end(&b);
}

static value escape_filter(rendering *r, const value *v, const arguments *a)
{
    text t = jinja_to_text(r, v);
    (void)a;
    if (!t.markup) t = jinja_escape_text(r, t);
    t.markup = true;
    return make_text(t);
}

static value format_filter(rendering *r, const value *v, const arguments *a)
{
    list *l = jinja_make_list(r);
    for (size_t i = 0; i < a->n; i++) jinja_list_add(r, l, a->items[i]);
    if (!jinja_failed(r)) l->tuple = true;
    value all = jinja_list_value(l);
    return v->kind == KIND_STRING ? jinja_apply_operator(r, OP_MODULO, v, &all)
                                  : jinja_fail(r, "format wants a str, not %s", jinja_type_name(v));
}

/* json.dumps as transformers gives it to templates. */
static value tojson_filter(rendering *r, const value *v, const arguments *a)
{
    const value *separators = jinja_argument(a, 2, "separators");
    json_style s = {.ascii = jinja_bool_argument(a, 0, "ensure_ascii", false),
                    .sorted = jinja_bool_argument(a, 3, "sort_keys", false),
                    .indent = (int)PL_MIN(jinja_int_argument(r, a, 1, "indent", -1), (int64_t)64),
                    .between_items = {.bytes = ", ", .size = 2},
                    .after_key = {.bytes = ": ", .size = 2}};
    if (s.indent >= 0) s.between_items.size = 1;
    if (separators && separators->kind == KIND_LIST && separators->list->n == 2) {
        s.between_items = jinja_to_text(r, &separators->list->items[0]);
        s.after_key = jinja_to_text(r, &separators->list->items[1]);
    }
    return make_text(jinja_to_json(r, v, &s));
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* A text as a number, blanks round it left out. False where it is none. */
static bool read_number(text t, double *real, int64_t *whole)
{
    char digits[64], *end;
    t = jinja_strip_text(t, NULL, true, true);
    size_t n = PL_MIN(t.size, sizeof digits - 1);
    memcpy(digits, t.bytes, n);
    digits[n] = 0;
    *real = strtod(digits, &end);
    if (end == digits || *end || t.size != n) return false;
    *whole = strtoll(digits, &end, 10);
    if (*end) *whole = fabs(*real) < 9e18 ? (int64_t)*real : 0;
    return true;
}

static value int_filter(rendering *r, const value *v, const arguments *a)
{
    int64_t otherwise = jinja_int_argument(r, a, 0, "default", 0), whole;
    double real;
    if (v->kind == KIND_STRING)
        return make_int(read_number(v->text, &real, &whole) && fabs(real) < 9e18 ? whole
                                                                                 : otherwise);
    if (v->kind == KIND_FLOAT) return make_int(fabs(v->real) < 9e18 ? (int64_t)v->real : otherwise);
    if (v->kind == KIND_BOOL) return make_int(v->boolean);
    return make_int(v->kind == KIND_INT ? v->integer : otherwise);
}

static value float_filter(rendering *r, const value *v, const arguments *a)
{
    const value *given = jinja_argument(a, 0, "default");
    double otherwise = given && jinja_is_number(given) ? jinja_as_real(given) : 0;
    (void)r;
    double real;
    int64_t whole;
    if (v->kind == KIND_STRING)
        return make_real(read_number(v->text, &real, &whole) ? real : otherwise);
    return make_real(jinja_is_number(v) ? jinja_as_real(v) : otherwise);
}

static value abs_filter(rendering *r, const value *v, const arguments *a)
{
    (void)a;
    if (v->kind == KIND_INT && v->integer != INT64_MIN)
        return make_int(v->integer < 0 ? -v->integer : v->integer);
    return jinja_is_number(v) ? make_real(fabs(jinja_as_real(v)))
                              : jinja_fail(r, "abs wants a number, not %s", jinja_type_name(v));
}

static value round_filter(rendering *r, const value *v, const arguments *a)
{
    int64_t precision = jinja_int_argument(r, a, 0, "precision", 0);
    text how = jinja_text_argument(r, a, 1, "method", "common");
    if (!jinja_is_number(v))
        return jinja_fail(r, "round wants a number, not %s", jinja_type_name(v));
    double x = jinja_as_real(v), unit = pow(10, (double)PL_MIN(PL_MAX(precision, -300), 300));
    if (jinja_text_is(how, "ceil")) return make_real(ceil(x * unit) / unit);
    if (jinja_text_is(how, "floor")) return make_real(floor(x * unit) / unit);
    char digits[400]; /* ties as Python: by the number's exact value */
    if (precision < 0 || precision > 17 || !(fabs(x) < 1e300))
        return make_real(rint(x * unit) / unit);
    snprintf(digits, sizeof digits, "%.*f", (int)precision, x);
    return make_real(strtod(digits, NULL));
}

/* ---- any value ------------------------------------------------------------------------------- */

static value default_filter(rendering *r, const value *v, const arguments *a)
{
    const value *otherwise = jinja_argument(a, 0, "default_value");
    bool also_false = jinja_bool_argument(a, 1, "boolean", false);
    (void)r;
    if (v->kind != KIND_UNDEFINED && !(also_false && !jinja_truth(v))) return *v;
    return otherwise ? *otherwise : jinja_make_string("");
}

static value safe_filter(rendering *r, const value *v, const arguments *a)
{
    text t = jinja_to_text(r, v);
    (void)a;
    t.markup = true;
    return make_text(t);
}

static value length_filter(rendering *r, const value *v, const arguments *a)
{
    (void)a;
    if (v->kind == KIND_STRING) return make_int((int64_t)jinja_text_length(v->text));
    if (v->kind == KIND_DICT) return make_int((int64_t)v->dict->n);
    return make_int((int64_t)jinja_iterate(r, v)->n);
}

static value wordcount_filter(rendering *r, const value *v, const arguments *a)
{
    value t = make_text(jinja_to_text(r, v)), words = jinja_call_method(r, &t, "split", a);
    return jinja_failed(r) ? words : make_int((int64_t)words.list->n);
}

static value center_filter(rendering *r, const value *v, const arguments *a)
{
    text t = jinja_to_text(r, v);
    int64_t spare = jinja_int_argument(r, a, 0, "width", 80) - (int64_t)jinja_text_length(t);
    builder b = {0};
    if (spare < 0) spare = 0;
    int64_t left = spare / 2 + (spare & (spare + (int64_t)jinja_text_length(t)) & 1);
    for (int64_t i = 0; i < left && jinja_count_step(r); i++) jinja_build_string(r, &b, " ");
    jinja_build_text(r, &b, t);
    for (int64_t i = left; i < spare && jinja_count_step(r); i++) jinja_build_string(r, &b, " ");
    return make_text(jinja_build_end(&b));
}

/* An attribute, never an item. */
static value attr_filter(rendering *r, const value *v, const arguments *a)
{
    text name = jinja_text_argument(r, a, 0, "name", "");
    return v->kind == KIND_NAMESPACE ? by_path(r, v, name) : make_undefined("an attribute");
}

/* ---- lists ----------------------------------------------------------------------------------- */

static value first_filter(rendering *r, const value *v, const arguments *a)
{
    const list *l = jinja_iterate(r, v);
    (void)a;
    return l->n ? l->items[0] : make_undefined("the first item");
}
static value last_filter(rendering *r, const value *v, const arguments *a)
{
    const list *l = jinja_iterate(r, v);
    (void)a;
    return l->n ? l->items[l->n - 1] : make_undefined("the last item");
}

static value list_filter(rendering *r, const value *v, const arguments *a)
{
    const list *items = jinja_iterate(r, v);
    list *l = jinja_make_list(r);
    (void)a;
    for (size_t i = 0; i < items->n; i++) jinja_list_add(r, l, items->items[i]);
    return jinja_list_value(l);
}

static value reverse_filter(rendering *r, const value *v, const arguments *a)
{
    const list *items = jinja_iterate(r, v);
    list *l = jinja_make_list(r);
    builder b = {0};
    (void)a;
    for (size_t i = items->n; i--;) {
        if (v->kind == KIND_STRING)
            jinja_build_text(r, &b, items->items[i].text);
        else
            jinja_list_add(r, l, items->items[i]);
    }
    return v->kind == KIND_STRING ? make_text(jinja_build_end(&b)) : jinja_list_value(l);
}

static value join_filter(rendering *r, const value *v, const arguments *a)
{
    text between = jinja_text_argument(r, a, 0, "d", "");
    const value *attribute = jinja_argument(a, 1, "attribute");
    const list *items = jinja_iterate(r, v);
    builder b = {0};
    for (size_t i = 0; i < items->n && jinja_count_step(r); i++) {
        value item =
            attribute ? by_path(r, &items->items[i], jinja_to_text(r, attribute)) : items->items[i];
        if (i) jinja_build_text(r, &b, between);
        jinja_build_text(r, &b, jinja_to_text(r, &item));
    }
    return make_text(jinja_build_end(&b));
}

static value items_filter(rendering *r, const value *v, const arguments *a)
{
    (void)a;
    if (v->kind == KIND_UNDEFINED) return jinja_list_value(jinja_make_list(r));
    return v->kind == KIND_DICT ? jinja_dict_items(r, v->dict)
                                : jinja_fail(r, "items wants a dict, not %s", jinja_type_name(v));
}

static value sum_filter(rendering *r, const value *v, const arguments *a)
{
    const value *attribute = jinja_argument(a, 0, "attribute"),
                *start = jinja_argument(a, 1, "start");
    const list *items = jinja_iterate(r, v);
    value total = start ? *start : make_int(0);
    for (size_t i = 0; i < items->n && jinja_count_step(r); i++) {
        value item = attribute && attribute->kind != KIND_NONE
                         ? by_path(r, &items->items[i], jinja_to_text(r, attribute))
                         : items->items[i];
        total = jinja_apply_operator(r, OP_ADD, &total, &item);
    }
    return total;
}

/* What a list is ordered by: an item, a part of it, its lower case unless case counts. */
static value sort_key(rendering *r, const value *item, const value *attribute, bool exact)
{
    value key = attribute && attribute->kind != KIND_NONE
                    ? by_path(r, item, jinja_to_text(r, attribute))
                    : *item;
    return key.kind == KIND_STRING && !exact ? make_text(jinja_change_case(r, key.text, CASE_LOWER))
                                             : key;
}

/* Merge sort: stable, and bounded in steps. */
static void sort_items(rendering *r, value *items, value *keys, value *spare, size_t n, bool down)
{
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t at = 0; at < n; at += 2 * width) {
            size_t middle = PL_MIN(at + width, n), end = PL_MIN(at + 2 * width, n);
            size_t i = at, j = middle;
            for (size_t k = at; k < end && jinja_count_step(r); k++) {
                int order = i < middle && j < end ? jinja_compare(r, &keys[i], &keys[j]) : 0;
                bool left = i < middle && (j == end || (down ? order >= 0 : order <= 0));
                size_t from = left ? i++ : j++;
                spare[k] = items[from];
                spare[n + k] = keys[from];
            }
        }
        if (jinja_failed(r)) return;
        memcpy(items, spare, n * sizeof *items);
        memcpy(keys, spare + n, n * sizeof *keys);
    }
}

static value sorted(rendering *r, const list *items, const value *attribute, bool exact, bool down)
{
    list *l = jinja_make_list(r);
    value *keys = jinja_take(r, items->n * sizeof *keys),
          *spare = jinja_take(r, 2 * items->n * sizeof *spare);
    for (size_t i = 0; i < items->n && !jinja_failed(r); i++) {
        jinja_list_add(r, l, items->items[i]);
        keys[i] = sort_key(r, &items->items[i], attribute, exact);
    }
    if (!jinja_failed(r)) sort_items(r, l->items, keys, spare, l->n, down);
    return jinja_list_value(l);
}

static value sort_filter(rendering *r, const value *v, const arguments *a)
{
    return sorted(r, jinja_iterate(r, v), jinja_argument(a, 2, "attribute"),
                  jinja_bool_argument(a, 1, "case_sensitive", false),
                  jinja_bool_argument(a, 0, "reverse", false));
}

static value dictsort_filter(rendering *r, const value *v, const arguments *a)
{
    value by = make_int(jinja_text_is(jinja_text_argument(r, a, 1, "by", "key"), "value"));
    value items = items_filter(r, v, a);
    if (jinja_failed(r)) return items;
    value path = make_text(jinja_to_text(r, &by));
    return sorted(r, items.list, &path, jinja_bool_argument(a, 0, "case_sensitive", false),
                  jinja_bool_argument(a, 2, "reverse", false));
}

static value unique_filter(rendering *r, const value *v, const arguments *a)
{
    const list *items = jinja_iterate(r, v);
    bool exact = jinja_bool_argument(a, 0, "case_sensitive", false);
    list *l = jinja_make_list(r), *seen = jinja_make_list(r);
    for (size_t i = 0; i < items->n && !jinja_failed(r); i++) {
        value key = sort_key(r, &items->items[i], jinja_argument(a, 1, "attribute"), exact);
        value all = jinja_list_value(seen);
        if (jinja_contains(r, &key, &all)) continue;
        r->steps += seen->n;
        jinja_list_add(r, seen, key);
        jinja_list_add(r, l, items->items[i]);
    }
    return jinja_list_value(l);
}

static value extreme(rendering *r, const value *v, const arguments *a, int sign)
{
    const list *items = jinja_iterate(r, v);
    const value *attribute = jinja_argument(a, 1, "attribute");
    bool exact = jinja_bool_argument(a, 0, "case_sensitive", false);
    value best = make_undefined("the extreme of nothing"), best_key = best;
    for (size_t i = 0; i < items->n && jinja_count_step(r); i++) {
        value key = sort_key(r, &items->items[i], attribute, exact);
        if (i && sign * jinja_compare(r, &key, &best_key) <= 0) continue;
        best = items->items[i];
        best_key = key;
    }
    return best;
}

static value min_filter(rendering *r, const value *v, const arguments *a)
{
    return extreme(r, v, a, -1);
}
static value max_filter(rendering *r, const value *v, const arguments *a)
{
    return extreme(r, v, a, 1);
}

/* Lists of n items; the last is filled up when there is something to fill with. */
static value batch_filter(rendering *r, const value *v, const arguments *a)
{
    const list *items = jinja_iterate(r, v);
    int64_t n = jinja_int_argument(r, a, 0, "linecount", 1);
    const value *fill = jinja_argument(a, 1, "fill_with");
    list *all = jinja_make_list(r), *row = NULL;
    if (n < 1) return jinja_fail(r, "batch wants a positive number");
    for (size_t i = 0; i < items->n && !jinja_failed(r); i++) {
        if (i % (uint64_t)n == 0) {
            if (row) jinja_list_add(r, all, jinja_list_value(row));
            row = jinja_make_list(r);
        }
        jinja_list_add(r, row, items->items[i]);
    }
    while (row && fill && fill->kind != KIND_NONE && row->n < (uint64_t)n && jinja_count_step(r))
        jinja_list_add(r, row, *fill);
    if (row) jinja_list_add(r, all, jinja_list_value(row));
    return jinja_list_value(all);
}

/* Arguments from the i-th on. */
static arguments rest(const arguments *a, size_t i)
{
    arguments b = *a;
    i = PL_MIN(i, a->n);
    b.items += i;
    b.n -= i;
    return b;
}

/* Of what is false, nothing: these filters ask before they go through it. */
static const list *items_if_any(rendering *r, const value *v)
{
    return jinja_truth(v) ? jinja_iterate(r, v) : jinja_make_list(r);
}

/* map('filter', ...) or map(attribute='name', default=...) */
static value map_filter(rendering *r, const value *v, const arguments *a)
{
    const list *items = items_if_any(r, v);
    const value *attribute = a->n ? NULL : jinja_argument(a, 0, "attribute");
    const value *otherwise = jinja_argument(a, SIZE_MAX, "default");
    text name = a->n ? jinja_to_text(r, &a->items[0]) : (text){.bytes = ""};
    arguments more = rest(a, 1);
    list *l = jinja_make_list(r);
    const char *word = jinja_c_string(r, name);
    if (!a->n && !attribute) return jinja_fail(r, "map wants a filter or an attribute");
    for (size_t i = 0; i < items->n && jinja_count_step(r); i++) {
        value item = attribute ? by_path(r, &items->items[i], jinja_to_text(r, attribute))
                               : jinja_apply_filter(r, word, &items->items[i], &more);
        if (item.kind == KIND_UNDEFINED && attribute && otherwise) item = *otherwise;
        jinja_list_add(r, l, item);
    }
    return jinja_list_value(l);
}

/* select and reject, with the items or their attribute. */
static value selected(rendering *r, const value *v, const arguments *a, bool by_attribute,
                      bool keep)
{
    const list *items = items_if_any(r, v);
    arguments more = rest(a, by_attribute);
    list *l = jinja_make_list(r);
    text name = more.n ? jinja_to_text(r, &more.items[0]) : (text){.bytes = ""};
    const char *word = jinja_c_string(r, name);
    if (by_attribute && !a->n) return jinja_fail(r, "selectattr wants an attribute");
    if (jinja_failed(r)) return make_none();
    if (more.n && !jinja_has_test(word)) return jinja_fail(r, "there is no test '%.40s'", word);
    arguments with = rest(&more, 1);
    for (size_t i = 0; i < items->n && jinja_count_step(r); i++) {
        value item = by_attribute ? by_path(r, &items->items[i], jinja_to_text(r, &a->items[0]))
                                  : items->items[i];
        bool yes = more.n ? jinja_apply_test(r, word, &item, &with) : jinja_truth(&item);
        if (yes == keep) jinja_list_add(r, l, items->items[i]);
    }
    return jinja_list_value(l);
}

static value select_filter(rendering *r, const value *v, const arguments *a)
{
    return selected(r, v, a, false, true);
}
static value reject_filter(rendering *r, const value *v, const arguments *a)
{
    return selected(r, v, a, false, false);
}
static value selectattr_filter(rendering *r, const value *v, const arguments *a)
{
    return selected(r, v, a, true, true);
}
static value rejectattr_filter(rendering *r, const value *v, const arguments *a)
{
    return selected(r, v, a, true, false);
}

value jinja_apply_filter(rendering *r, const char *name, const value *v, const arguments *a)
{
    static const struct {
        const char *name;
        filter *filter;
    } filters[] = {
        {"abs", abs_filter},         {"attr", attr_filter},
        {"batch", batch_filter},     {"capitalize", capitalize_filter},
        {"center", center_filter},   {"wordcount", wordcount_filter},
        {"count", length_filter},    {"d", default_filter},
        {"default", default_filter}, {"dictsort", dictsort_filter},
        {"e", escape_filter},        {"escape", escape_filter},
        {"first", first_filter},     {"float", float_filter},
        {"format", format_filter},   {"indent", indent_filter},
        {"int", int_filter},         {"items", items_filter},
        {"join", join_filter},       {"last", last_filter},
        {"length", length_filter},   {"list", list_filter},
        {"lower", lower_filter},     {"map", map_filter},
        {"max", max_filter},         {"min", min_filter},
        {"reject", reject_filter},   {"rejectattr", rejectattr_filter},
        {"replace", replace_filter}, {"reverse", reverse_filter},
        {"round", round_filter},     {"safe", safe_filter},
        {"select", select_filter},   {"selectattr", selectattr_filter},
        {"sort", sort_filter},       {"string", string_filter},
        {"sum", sum_filter},         {"title", title_filter},
        {"tojson", tojson_filter},   {"trim", trim_filter},
        {"unique", unique_filter},   {"upper", upper_filter},
    };
    for (size_t i = 0; i < PL_COUNT(filters); i++)
        if (!strcmp(filters[i].name, name)) return filters[i].filter(r, v, a);
    return jinja_fail(r, "there is no filter '%.40s'", name);
}

/* ---- tests ----------------------------------------------------------------------------------- */

#define TEST(name, expression)                                                                     \
    static bool name##_test(rendering *r, const value *v, const value *with)                       \
    {                                                                                              \
        (void)r;                                                                                   \
        (void)with;                                                                                \
        return expression;                                                                         \
    }

TEST(defined, v->kind != KIND_UNDEFINED)
TEST(undefined, v->kind == KIND_UNDEFINED)
TEST(none, v->kind == KIND_NONE)
TEST(boolean, v->kind == KIND_BOOL)
TEST(true, v->kind == KIND_BOOL && v->boolean)
TEST(false, v->kind == KIND_BOOL && !v->boolean)
TEST(integer, v->kind == KIND_INT)
TEST(float, v->kind == KIND_FLOAT)
TEST(number, jinja_is_number(v))
TEST(string, v->kind == KIND_STRING)
TEST(mapping, v->kind == KIND_DICT)
TEST(sequence, v->kind == KIND_STRING || v->kind == KIND_LIST || v->kind == KIND_DICT ||
                   v->kind == KIND_UNDEFINED)
TEST(iterable, v->kind == KIND_STRING || v->kind == KIND_LIST || v->kind == KIND_DICT ||
                   v->kind == KIND_UNDEFINED)
TEST(callable, v->kind == KIND_MACRO || v->kind == KIND_FUNCTION || v->kind == KIND_METHOD)
TEST(odd, v->kind == KIND_INT && v->integer % 2 != 0)
TEST(even, v->kind == KIND_INT && v->integer % 2 == 0)
TEST(lower, v->kind == KIND_STRING && v->text.size &&
                jinja_text_equal(jinja_change_case(r, v->text, CASE_LOWER), v->text))
TEST(upper, v->kind == KIND_STRING && v->text.size &&
                jinja_text_equal(jinja_change_case(r, v->text, CASE_UPPER), v->text))
TEST(eq, jinja_equal(v, with))
TEST(ne, !jinja_equal(v, with))
TEST(lt, jinja_compare(r, v, with) < 0)
TEST(le, jinja_compare(r, v, with) <= 0)
TEST(gt, jinja_compare(r, v, with) > 0)
TEST(ge, jinja_compare(r, v, with) >= 0)
TEST(in, jinja_contains(r, v, with))
TEST(sameas, v->kind == with->kind && jinja_equal(v, with))
TEST(divisibleby, v->kind == KIND_INT && with->kind == KIND_INT && with->integer &&
                      (with->integer == -1 || v->integer % with->integer == 0))

static const struct {
    const char *name;
    test *test;
    bool with; /* takes an argument */
} tests[] = {
    {"defined", defined_test, false},
    {"undefined", undefined_test, false},
    {"none", none_test, false},
    {"boolean", boolean_test, false},
    {"true", true_test, false},
    {"false", false_test, false},
    {"integer", integer_test, false},
    {"float", float_test, false},
    {"number", number_test, false},
    {"string", string_test, false},
    {"mapping", mapping_test, false},
    {"sequence", sequence_test, false},
    {"iterable", iterable_test, false},
    {"callable", callable_test, false},
    {"odd", odd_test, false},
    {"even", even_test, false},
    {"lower", lower_test, false},
    {"upper", upper_test, false},
    {"eq", eq_test, true},
    {"equalto", eq_test, true},
    {"==", eq_test, true},
    {"ne", ne_test, true},
    {"!=", ne_test, true},
    {"lt", lt_test, true},
    {"lessthan", lt_test, true},
    {"<", lt_test, true},
    {"le", le_test, true},
    {"<=", le_test, true},
    {"gt", gt_test, true},
    {"greaterthan", gt_test, true},
    {">", gt_test, true},
    {"ge", ge_test, true},
    {">=", ge_test, true},
    {"in", in_test, true},
    {"sameas", sameas_test, true},
    {"divisibleby", divisibleby_test, true},
};

static size_t find_test(const char *name)
{
    size_t i = 0;
    while (i < PL_COUNT(tests) && strcmp(tests[i].name, name)) i++;
    return i;
}

bool jinja_has_test(const char *name)
{
    return find_test(name) < PL_COUNT(tests);
}

bool jinja_apply_test(rendering *r, const char *name, const value *v, const arguments *a)
{
    size_t i = find_test(name);
    const value *with = jinja_argument(a, 0, NULL);
    if (tests[i].with && !with) {
        jinja_fail(r, "the test '%s' wants a value", name);
        return false;
    }
    return tests[i].test(r, v, with);
}
