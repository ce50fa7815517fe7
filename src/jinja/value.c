/* SPDX-License-Identifier: Apache-2.0
 *
 * Making, comparing and printing values. */
#include "value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "rendering.h"
#include "text/utf8.h"

/* ---- containers ------------------------------------------------------------------------------ */

value jinja_make_string(const char *s)
{
    return make_text((text){.bytes = s, .size = strlen(s)});
}

list *jinja_make_list(rendering *r)
{
    static list nothing;
    list *l = jinja_take(r, sizeof *l);
    return l ? l : &nothing;
}

value jinja_list_value(list *l)
{
    return (value){.kind = KIND_LIST, .list = l};
}

/* Twice the room of an array in the arena; the old one is left behind. */
static bool grow(rendering *r, value **items, size_t n, size_t capacity)
{
    value *more = jinja_take(r, capacity * sizeof *more);
    if (!more) return false;
    if (n) memcpy(more, *items, n * sizeof *more);
    *items = more;
    return true;
}

/* One level more than what v holds; functions that go through values rely on there being few. A
 * namespace, which could hold itself, is never gone through. */
static uint32_t depth_with(rendering *r, uint32_t depth, const value *v)
{
    enum { MOST = 500 };
    uint32_t inner = v->kind == KIND_LIST   ? v->list->depth
                     : v->kind == KIND_DICT ? v->dict->depth
                                            : 0;
    if (inner >= MOST) jinja_fail_limit(r, "values inside values");
    return PL_MAX(depth, inner + 1);
}

void jinja_list_add(rendering *r, list *l, value v)
{
    l->depth = depth_with(r, l->depth, &v);
    if (jinja_failed(r)) return;
    if (l->n == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 8;
        if (!grow(r, &l->items, l->n, capacity)) return;
        l->capacity = capacity;
    }
    l->items[l->n++] = v;
}

dict *jinja_make_dict(rendering *r)
{
    static dict nothing;
    dict *d = jinja_take(r, sizeof *d);
    return d ? d : &nothing;
}

value jinja_dict_value(dict *d)
{
    return (value){.kind = KIND_DICT, .dict = d};
}

const value *jinja_dict_find(const dict *d, const value *key)
{
    for (size_t i = 0; i < d->n; i++)
        if (jinja_equal(&d->keys[i], key)) return &d->values[i];
    return NULL;
}

const value *jinja_dict_find_name(const dict *d, const char *name)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->keys[i].kind == KIND_STRING && jinja_text_is(d->keys[i].text, name))
            return &d->values[i];
    return NULL;
}

void jinja_dict_set(rendering *r, dict *d, value key, value v)
{
    value *there = (value *)jinja_dict_find(d, &key);
    d->depth = depth_with(r, d->depth, &v);
    if (jinja_failed(r)) return;
    if (there) {
        *there = v;
        return;
    }
    if (d->n == d->capacity) {
        size_t capacity = d->capacity ? 2 * d->capacity : 8;
        if (!grow(r, &d->keys, d->n, capacity) || !grow(r, &d->values, d->n, capacity)) return;
        d->capacity = capacity;
    }
    d->keys[d->n] = key;
    d->values[d->n++] = v;
}

/* ---- texts ----------------------------------------------------------------------------------- */

text jinja_text_part(text t, size_t from, size_t to)
{
    return (text){
        .bytes = t.bytes + from, .said = t.said ? t.said + from : NULL, .size = to - from};
}

bool jinja_text_is(text t, const char *s)
{
    return strlen(s) == t.size && !memcmp(t.bytes, s, t.size);
}

bool jinja_text_equal(text a, text b)
{
    return a.size == b.size && (!a.size || !memcmp(a.bytes, b.bytes, a.size));
}

size_t jinja_text_find(text t, text what, size_t from)
{
    for (size_t i = from; i <= t.size && what.size <= t.size - i; i++)
        if (!what.size || !memcmp(t.bytes + i, what.bytes, what.size)) return i;
    return SIZE_MAX;
}

size_t jinja_text_length(text t)
{
    size_t n = 0;
    for (size_t i = 0; i < t.size; i++) n += ((unsigned char)t.bytes[i] & 0xc0) != 0x80;
    return n;
}

size_t jinja_text_offset(text t, size_t i)
{
    size_t at = 0;
    for (; i && at < t.size; i--) at += PL_MIN(pl_utf8_length(t.bytes[at]), t.size - at);
    return at;
}

static bool reserve(rendering *r, builder *b, size_t more)
{
    if (jinja_failed(r)) return false;
    if (more <= b->capacity - b->size) return true;
    size_t capacity = PL_MAX(2 * b->capacity, b->size + more + 32);
    char *bytes = jinja_take(r, capacity);
    uint8_t *said = jinja_take(r, capacity);
    if (!bytes || !said) return false;
    if (b->size) {
        memcpy(bytes, b->bytes, b->size);
        memcpy(said, b->said, b->size);
    }
    b->bytes = bytes;
    b->said = said;
    b->capacity = capacity;
    return true;
}

void jinja_build_bytes(rendering *r, builder *b, const char *bytes, size_t size, bool said)
{
    if (!size || !reserve(r, b, size)) return;
    memcpy(b->bytes + b->size, bytes, size);
    memset(b->said + b->size, said, size);
    b->any_said |= said;
    b->size += size;
}

void jinja_build_text(rendering *r, builder *b, text t)
{
    if (!t.size || !reserve(r, b, t.size)) return;
    memcpy(b->bytes + b->size, t.bytes, t.size);
    if (t.said)
        memcpy(b->said + b->size, t.said, t.size);
    else
        memset(b->said + b->size, 0, t.size);
    b->any_said |= t.said != NULL;
    b->size += t.size;
}

void jinja_build_string(rendering *r, builder *b, const char *s)
{
    jinja_build_bytes(r, b, s, strlen(s), false);
}

text jinja_build_end(const builder *b)
{
    return (text){
        .bytes = b->size ? b->bytes : "", .said = b->any_said ? b->said : NULL, .size = b->size};
}

const char *jinja_c_string(rendering *r, text t)
{
    char *copy = jinja_take(r, t.size + 1);
    if (!copy) return "";
    if (t.size) memcpy(copy, t.bytes, t.size);
    return copy;
}

text jinja_text_join(rendering *r, text a, text b)
{
    builder out = {0};
    if (!a.size) return b;
    if (!b.size) return a;
    reserve(r, &out, a.size + b.size);
    jinja_build_text(r, &out, a);
    jinja_build_text(r, &out, b);
    return jinja_build_end(&out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static value text_from_json(rendering *r, const char *s, size_t size, bool said)
{
    builder b = {0};
    jinja_build_bytes(r, &b, s, size, said);
    return make_text(jinja_build_end(&b));
}

value jinja_value_from_json(rendering *r, const json_t *j, bool said)
{
    const char *key;
    json_t *v;
    size_t i;
    if (!jinja_count_step(r)) return make_none();
    switch (json_typeof(j)) {
    case JSON_OBJECT: {
        dict *d = jinja_make_dict(r);
        json_object_foreach((json_t *)j, key, v) jinja_dict_set(
            r, d, text_from_json(r, key, strlen(key), said), jinja_value_from_json(r, v, said));
        return jinja_dict_value(d);
    }
    case JSON_ARRAY: {
        list *l = jinja_make_list(r);
        json_array_foreach(j, i, v) jinja_list_add(r, l, jinja_value_from_json(r, v, said));
        return jinja_list_value(l);
    }
    case JSON_STRING:
        return text_from_json(r, json_string_value(j), json_string_length(j), said);
    case JSON_INTEGER:
        return make_int(json_integer_value(j));
    case JSON_REAL:
        return make_real(json_real_value(j));
    case JSON_TRUE:
        return make_bool(true);
    case JSON_FALSE:
        return make_bool(false);
    case JSON_NULL:
        break;
    }
    return make_none();
}

/* ---- asking ---------------------------------------------------------------------------------- */

bool jinja_is_number(const value *v)
{
    return v->kind == KIND_INT || v->kind == KIND_FLOAT || v->kind == KIND_BOOL;
}

double jinja_as_real(const value *v)
{
    return v->kind == KIND_FLOAT ? v->real
           : v->kind == KIND_INT ? (double)v->integer
                                 : v->kind == KIND_BOOL && v->boolean;
}

static int64_t as_int(const value *v)
{
    return v->kind == KIND_BOOL ? v->boolean : v->integer;
}

bool jinja_truth(const value *v)
{
    switch (v->kind) {
    case KIND_UNDEFINED:
    case KIND_NONE:
        return false;
    case KIND_BOOL:
        return v->boolean;
    case KIND_INT:
        return v->integer != 0;
    case KIND_FLOAT:
        return v->real != 0;
    case KIND_STRING:
        return v->text.size != 0;
    case KIND_LIST:
        return v->list->n != 0;
    case KIND_DICT:
        return v->dict->n != 0;
    default:
        return true;
    }
}

const char *jinja_type_name(const value *v)
{
    static const char *const names[] = {"undefined", "None",  "bool",     "int",
                                        "float",     "str",   "list",     "dict",
                                        "namespace", "macro", "function", "method"};
    return v->kind == KIND_LIST && v->list->tuple ? "tuple" : names[v->kind];
}

static bool equal_dicts(const dict *a, const dict *b)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const value *other = jinja_dict_find(b, &a->keys[i]);
        if (!other || !jinja_equal(&a->values[i], other)) return false;
    }
    return true;
}

bool jinja_equal(const value *a, const value *b)
{
    if (jinja_is_number(a) && jinja_is_number(b))
        return a->kind == KIND_FLOAT || b->kind == KIND_FLOAT ? jinja_as_real(a) == jinja_as_real(b)
                                                              : as_int(a) == as_int(b);
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case KIND_STRING:
        return jinja_text_equal(a->text, b->text);
    case KIND_LIST:
        if (a->list->n != b->list->n || a->list->tuple != b->list->tuple) return false;
        for (size_t i = 0; i < a->list->n; i++)
            if (!jinja_equal(&a->list->items[i], &b->list->items[i])) return false;
        return true;
    case KIND_DICT:
        return equal_dicts(a->dict, b->dict);
    case KIND_NAMESPACE:
        return a->dict == b->dict;
    case KIND_MACRO:
        return a->macro == b->macro;
    case KIND_FUNCTION:
        return a->function == b->function;
    case KIND_METHOD:
        return false;
    default:
        return true; /* two that are undefined, two nones */
    }
}

static int compare_texts(text a, text b)
{
    size_t n = PL_MIN(a.size, b.size);
    int order = n ? memcmp(a.bytes, b.bytes, n) : 0; /* UTF-8 sorts as code points do */
    return order ? (order > 0) - (order < 0) : (a.size > b.size) - (a.size < b.size);
}

int jinja_compare(rendering *r, const value *a, const value *b)
{
    if (jinja_is_number(a) && jinja_is_number(b)) {
        double x = jinja_as_real(a), y = jinja_as_real(b);
        return (x > y) - (x < y);
    }
    if (a->kind == KIND_STRING && b->kind == KIND_STRING) return compare_texts(a->text, b->text);
    if (a->kind == KIND_LIST && b->kind == KIND_LIST) {
        for (size_t i = 0; i < a->list->n && i < b->list->n; i++) {
            if (jinja_equal(&a->list->items[i], &b->list->items[i])) continue;
            return jinja_compare(r, &a->list->items[i], &b->list->items[i]);
        }
        return (a->list->n > b->list->n) - (a->list->n < b->list->n);
    }
    jinja_fail(r, "%s and %s have no order", jinja_type_name(a), jinja_type_name(b));
    return 0;
}

/* ---- going through --------------------------------------------------------------------------- */

static list *characters(rendering *r, text t)
{
    list *l = jinja_make_list(r);
    for (size_t at = 0; at < t.size && jinja_count_step(r);) {
        size_t n = PL_MIN(pl_utf8_length(t.bytes[at]), t.size - at);
        jinja_list_add(r, l, make_text(jinja_text_part(t, at, at + n)));
        at += n;
    }
    return l;
}

list *jinja_iterate(rendering *r, const value *v)
{
    if (v->kind == KIND_LIST) return v->list;
    if (v->kind == KIND_STRING) return characters(r, v->text);
    list *l = jinja_make_list(r);
    if (v->kind == KIND_DICT)
        for (size_t i = 0; i < v->dict->n; i++) jinja_list_add(r, l, v->dict->keys[i]);
    else if (v->kind != KIND_UNDEFINED)
        jinja_fail(r, "cannot go through a value of type %s", jinja_type_name(v));
    return l;
}

bool jinja_contains(rendering *r, const value *item, const value *container)
{
    switch (container->kind) {
    case KIND_STRING:
        if (item->kind == KIND_STRING)
            return jinja_text_find(container->text, item->text, 0) != SIZE_MAX;
        jinja_fail(r, "'in <str>' wants a str, not %s", jinja_type_name(item));
        return false;
    case KIND_LIST:
        for (size_t i = 0; i < container->list->n; i++)
            if (jinja_equal(&container->list->items[i], item)) return true;
        return false;
    case KIND_DICT:
        return jinja_dict_find(container->dict, item) != NULL;
    case KIND_UNDEFINED:
        return false;
    default:
        jinja_fail(r, "'in' of a value of type %s", jinja_type_name(container));
        return false;
    }
}

static value method_of(rendering *r, const value *v, const char *name)
{
    value *self = jinja_take(r, sizeof *self);
    if (!self) return make_none();
    *self = *v;
    return (value){.kind = KIND_METHOD, .method = {.self = self, .name = name}};
}

value jinja_get_attribute(rendering *r, const value *v, const char *name)
{
    const value *found = NULL;
    if (v->kind == KIND_UNDEFINED) return jinja_fail(r, "'%s' is undefined", v->name);
    /* A dict's methods come before its entries of that name, as in a.b; a[b] is the other way. */
    if (jinja_has_method(v, name)) return method_of(r, v, name);
    if (v->kind == KIND_DICT || v->kind == KIND_NAMESPACE)
        found = jinja_dict_find_name(v->dict, name);
    return found ? *found : make_undefined(name);
}

value jinja_get_item(rendering *r, const value *v, const value *key)
{
    int64_t i = key->kind == KIND_INT || key->kind == KIND_BOOL ? as_int(key) : 0;
    bool number = key->kind == KIND_INT || key->kind == KIND_BOOL;
    if (v->kind == KIND_UNDEFINED) return jinja_fail(r, "'%s' is undefined", v->name);
    if (v->kind == KIND_DICT || v->kind == KIND_NAMESPACE) {
        const value *found = jinja_dict_find(v->dict, key);
        if (found) return *found;
    }
    if (v->kind == KIND_LIST && number) {
        if (i < 0) i += (int64_t)v->list->n;
        if (i >= 0 && (uint64_t)i < v->list->n) return v->list->items[i];
        return make_undefined("an item past the end");
    }
    if (v->kind == KIND_STRING && number) {
        int64_t n = (int64_t)jinja_text_length(v->text);
        if (i < 0) i += n;
        if (i < 0 || i >= n) return make_undefined("a character past the end");
        size_t at = jinja_text_offset(v->text, (size_t)i),
               to = jinja_text_offset(v->text, (size_t)i + 1);
        return make_text(jinja_text_part(v->text, at, to));
    }
    if (key->kind != KIND_STRING) return make_undefined("an item");
    const char *name = jinja_c_string(r, key->text);
    if (jinja_failed(r)) return make_none();
    if (v->kind != KIND_DICT && v->kind != KIND_NAMESPACE) return jinja_get_attribute(r, v, name);
    return jinja_has_method(v, name) ? method_of(r, v, name) : make_undefined(name);
}

/* ---- printing -------------------------------------------------------------------------------- */

/* The shortest digits that read back as x, as Python spells them. */
static void build_real(rendering *r, builder *b, double x)
{
    char digits[64];
    if (isnan(x)) return jinja_build_string(r, b, "nan");
    if (isinf(x)) return jinja_build_string(r, b, x < 0 ? "-inf" : "inf");
    int precision = 1;
    double back = 0;
    do {
        snprintf(digits, sizeof digits, "%.*e", precision - 1, x);
        sscanf(digits, "%lf", &back);
    } while (back != x && ++precision <= 17);
    int exponent = 0;
    sscanf(strchr(digits, 'e') + 1, "%d", &exponent);
    if (exponent < -4 || exponent >= 16) {
        char *e = strchr(digits, 'e');
        snprintf(e, sizeof digits - (size_t)(e - digits), "e%c%02d", exponent < 0 ? '-' : '+',
                 exponent < 0 ? -exponent : exponent);
    } else {
        snprintf(digits, sizeof digits, "%.*f", PL_MAX(precision - 1 - exponent, 1), x);
    }
    jinja_build_string(r, b, digits);
}

static void build_quoted(rendering *r, builder *b, text t)
{
    bool single = memchr(t.size ? t.bytes : "", '\'', t.size) != NULL;
    bool both = single && memchr(t.bytes, '"', t.size) != NULL;
    char quote = single && !both ? '"' : '\'';
    jinja_build_bytes(r, b, &quote, 1, false);
    for (size_t i = 0; i < t.size; i++) {
        char c = t.bytes[i], hex[8];
        const char *escape = c == '\n'    ? "\\n"
                             : c == '\r'  ? "\\r"
                             : c == '\t'  ? "\\t"
                             : c == '\\'  ? "\\\\"
                             : c == quote ? "\\'"
                                          : NULL;
        if (!escape && ((unsigned char)c < 0x20 || c == 0x7f)) {
            snprintf(hex, sizeof hex, "\\x%02x", (unsigned char)c);
            escape = hex;
        }
        if (escape)
            jinja_build_bytes(r, b, escape, strlen(escape), t.said && t.said[i]);
        else
            jinja_build_text(r, b, jinja_text_part(t, i, i + 1));
    }
    jinja_build_bytes(r, b, &quote, 1, false);
}

static void build_items(rendering *r, builder *b, const list *l)
{
    jinja_build_string(r, b, l->tuple ? "(" : "[");
    for (size_t i = 0; i < l->n && !jinja_failed(r); i++) {
        if (i) jinja_build_string(r, b, ", ");
        jinja_build_repr(r, b, &l->items[i]);
    }
    if (l->tuple && l->n == 1) jinja_build_string(r, b, ",");
    jinja_build_string(r, b, l->tuple ? ")" : "]");
}

void jinja_build_repr(rendering *r, builder *b, const value *v)
{
    char digits[32];
    if (!jinja_count_step(r)) return;
    switch (v->kind) {
    case KIND_UNDEFINED:
        jinja_build_string(r, b, "Undefined");
        break;
    case KIND_NONE:
        jinja_build_string(r, b, "None");
        break;
    case KIND_BOOL:
        jinja_build_string(r, b, v->boolean ? "True" : "False");
        break;
    case KIND_INT:
        snprintf(digits, sizeof digits, "%lld", (long long)v->integer);
        jinja_build_string(r, b, digits);
        break;
    case KIND_FLOAT:
        build_real(r, b, v->real);
        break;
    case KIND_STRING:
        build_quoted(r, b, v->text);
        break;
    case KIND_LIST:
        build_items(r, b, v->list);
        break;
    case KIND_DICT:
        jinja_build_string(r, b, "{");
        for (size_t i = 0; i < v->dict->n && !jinja_failed(r); i++) {
            if (i) jinja_build_string(r, b, ", ");
            jinja_build_repr(r, b, &v->dict->keys[i]);
            jinja_build_string(r, b, ": ");
            jinja_build_repr(r, b, &v->dict->values[i]);
        }
        jinja_build_string(r, b, "}");
        break;
    default:
        jinja_fail(r, "a value of type %s cannot be printed", jinja_type_name(v));
    }
}

text jinja_to_text(rendering *r, const value *v)
{
    builder b = {0};
    if (v->kind == KIND_STRING) return v->text;
    if (v->kind == KIND_UNDEFINED) return (text){.bytes = ""};
    jinja_build_repr(r, &b, v);
    return jinja_build_end(&b);
}

/* ---- to JSON --------------------------------------------------------------------------------- */

/* Other characters than ASCII as \u escapes, beyond 16 bits as two. */
static void json_escape(rendering *r, builder *b, text t, size_t at, size_t n)
{
    char whole[4] = {0}, escape[16];
    memcpy(whole, t.bytes + at, n);
    uint32_t c = pl_utf8_decode(whole);
    if (c >= 0x10000)
        snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                 0xdc00 + (c & 0x3ff));
    else
        snprintf(escape, sizeof escape, "\\u%04x", c);
    jinja_build_bytes(r, b, escape, strlen(escape), t.said && t.said[at]);
}

static void json_string_of(rendering *r, builder *b, const json_style *s, text t)
{
    jinja_build_string(r, b, "\"");
    for (size_t i = 0; i < t.size; i++) {
        static const char plain[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
        char c = t.bytes[i], escape[8];
        const char *at = c ? strchr(plain, c) : NULL;
        size_t n = PL_MIN(pl_utf8_length(c), t.size - i);
        if (s->ascii && n > 1 && n == pl_utf8_length(c)) {
            json_escape(r, b, t, i, n);
            i += n - 1;
            continue;
        }
        if (at)
            snprintf(escape, sizeof escape, "\\%c", letters[at - plain]);
        else if ((unsigned char)c < 0x20)
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned char)c);
        else {
            jinja_build_text(r, b, jinja_text_part(t, i, i + 1));
            continue;
        }
        jinja_build_bytes(r, b, escape, strlen(escape), t.said && t.said[i]);
    }
    jinja_build_string(r, b, "\"");
}

static void new_line(rendering *r, builder *b, const json_style *s, int depth)
{
    if (s->indent < 0) return;
    jinja_build_string(r, b, "\n");
    for (int i = 0; i < depth * s->indent && !jinja_failed(r); i++) jinja_build_string(r, b, " ");
}

/* Order in which keys are written: as they are, or sorted (insertion sort: stable and few). */
static size_t *key_order(rendering *r, const dict *d, bool sorted)
{
    size_t *order = jinja_take(r, d->n * sizeof *order);
    for (size_t i = 0; order && i < d->n; i++) {
        size_t j = i;
        for (; sorted && j && jinja_count_step(r) &&
               jinja_compare(r, &d->keys[order[j - 1]], &d->keys[i]) > 0;
             j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
    return order;
}

static void json_of(rendering *r, builder *b, const value *v, const json_style *s, int depth)
{
    if (!jinja_count_step(r)) return;
    switch (v->kind) {
    case KIND_NONE:
        jinja_build_string(r, b, "null");
        break;
    case KIND_BOOL:
        jinja_build_string(r, b, v->boolean ? "true" : "false");
        break;
    case KIND_INT:
        jinja_build_repr(r, b, v);
        break;
    case KIND_FLOAT:
        if (isfinite(v->real))
            build_real(r, b, v->real);
        else
            jinja_build_string(r, b,
                               isnan(v->real) ? "NaN"
                               : v->real < 0  ? "-Infinity"
                                              : "Infinity");
        break;
    case KIND_STRING:
        json_string_of(r, b, s, v->text);
        break;
    case KIND_LIST:
        jinja_build_string(r, b, "[");
        for (size_t i = 0; i < v->list->n && !jinja_failed(r); i++) {
            if (i) jinja_build_text(r, b, s->between_items);
            new_line(r, b, s, depth + 1);
            json_of(r, b, &v->list->items[i], s, depth + 1);
        }
        if (v->list->n) new_line(r, b, s, depth);
        jinja_build_string(r, b, "]");
        break;
    case KIND_DICT: {
        size_t *order = key_order(r, v->dict, s->sorted);
        jinja_build_string(r, b, "{");
        for (size_t i = 0; order && i < v->dict->n && !jinja_failed(r); i++) {
            const value *key = &v->dict->keys[order[i]];
            if (i) jinja_build_text(r, b, s->between_items);
            new_line(r, b, s, depth + 1);
            if (key->kind == KIND_STRING) {
                json_string_of(r, b, s, key->text);
            } else {
                jinja_build_string(r, b, "\"");
                json_of(r, b, key, s, depth);
                jinja_build_string(r, b, "\"");
            }
            jinja_build_text(r, b, s->after_key);
            json_of(r, b, &v->dict->values[order[i]], s, depth + 1);
        }
        if (v->dict->n) new_line(r, b, s, depth);
        jinja_build_string(r, b, "}");
        break;
    }
    default:
        jinja_fail(r, "a value of type %s has no JSON", jinja_type_name(v));
    }
}

text jinja_to_json(rendering *r, const value *v, const json_style *s)
{
    builder b = {0};
    json_of(r, &b, v, s, 0);
    return jinja_build_end(&b);
}
