/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of a rendering, as Python has them. All live in the rendering's arena and go with it. */
#ifndef PL_JINJA_VALUE_H
#define PL_JINJA_VALUE_H

#include <stdbool.h>

#include "ast.h"
#include "jinja.h"

typedef enum kind {
    KIND_UNDEFINED,
    KIND_NONE,
    KIND_BOOL,
    KIND_INT,
    KIND_FLOAT,
    KIND_STRING,
    KIND_LIST, /* tuples too */
    KIND_DICT,
    KIND_NAMESPACE, /* a dict whose entries can be set */
    KIND_MACRO,
    KIND_FUNCTION, /* range, namespace, ... */
    KIND_METHOD    /* of a value: "abc".upper */
} kind;

typedef struct value value;
typedef struct rendering rendering;

/* Bytes, and for each whether somebody said it; said NULL: none did. */
typedef struct text {
    const char *bytes;
    const uint8_t *said;
    size_t size;
    bool markup; /* it went through `safe`: adding to it escapes, as Python's Markup does */
} text;

typedef struct list {
    value *items;
    size_t n, capacity;
    uint32_t depth; /* of lists and dicts inside, this one counted */
    bool tuple;
} list;

/* In order of entry. */
typedef struct dict {
    value *keys, *values;
    size_t n, capacity;
    uint32_t depth;
} dict;

typedef struct macro macro;
typedef struct arguments arguments;
typedef value function(rendering *r, const arguments *a);

struct value {
    kind kind;
    union {
        bool boolean;
        int64_t integer;
        double real;
        text text;
        list *list;
        dict *dict;
        const macro *macro;
        function *function;
        struct {
            const value *self;
            const char *name;
        } method;
        const char *name; /* of what is undefined, for errors */
    };
};

/* Positional ones, then named ones. */
struct arguments {
    const value *items;
    size_t n;
    const text *names;
    const value *named;
    size_t n_named;
};

/* ---- making -------------------------------------------------------------------------------- */

static inline value make_undefined(const char *name)
{
    return (value){.kind = KIND_UNDEFINED, .name = name};
}
static inline value make_none(void)
{
    return (value){.kind = KIND_NONE};
}
static inline value make_bool(bool b)
{
    return (value){.kind = KIND_BOOL, .boolean = b};
}
static inline value make_int(int64_t i)
{
    return (value){.kind = KIND_INT, .integer = i};
}
static inline value make_real(double x)
{
    return (value){.kind = KIND_FLOAT, .real = x};
}
static inline value make_text(text t)
{
    return (value){.kind = KIND_STRING, .text = t};
}
/* The template's own, NUL-terminated, of static storage or the arena. */
value jinja_make_string(const char *s);

list *jinja_make_list(rendering *r);
value jinja_list_value(list *l);
void jinja_list_add(rendering *r, list *l, value v);
dict *jinja_make_dict(rendering *r);
value jinja_dict_value(dict *d);
void jinja_dict_set(rendering *r, dict *d, value key, value v);
const value *jinja_dict_find(const dict *d, const value *key);
const value *jinja_dict_find_name(const dict *d, const char *name);

/* JSON as values; its strings are somebody's words where `said`. */
value jinja_value_from_json(rendering *r, const json_t *j, bool said);

/* ---- texts --------------------------------------------------------------------------------- */

text jinja_text_part(text t, size_t from, size_t to); /* bytes */
text jinja_text_join(rendering *r, text a, text b);
bool jinja_text_is(text t, const char *s);
bool jinja_text_equal(text a, text b);
size_t jinja_text_find(text t, text what,
                       size_t from); /* SIZE_MAX: nowhere; "" is found anywhere */
size_t jinja_text_length(text t);    /* characters */
/* Byte at which character i begins; the size from the end on. */
size_t jinja_text_offset(text t, size_t i);

/* The bytes, NUL-terminated in the arena; "" after failing. */
const char *jinja_c_string(rendering *r, text t);

/* A text under construction. */
typedef struct builder {
    char *bytes;
    uint8_t *said;
    size_t size, capacity;
    bool any_said;
} builder;
void jinja_build_text(rendering *r, builder *b, text t);
void jinja_build_bytes(rendering *r, builder *b, const char *bytes, size_t size, bool said);
void jinja_build_string(rendering *r, builder *b, const char *s);
text jinja_build_end(const builder *b);

/* ---- asking -------------------------------------------------------------------------------- */

bool jinja_truth(const value *v);
bool jinja_equal(const value *a, const value *b);
/* -1, 0, 1; fails the rendering for what has no order. */
int jinja_compare(rendering *r, const value *a, const value *b);
bool jinja_is_number(const value *v);
double jinja_as_real(const value *v);
const char *jinja_type_name(const value *v); /* "str", "dict", ... */
/* str(v) and repr(v). */
text jinja_to_text(rendering *r, const value *v);
void jinja_build_repr(rendering *r, builder *b, const value *v);

/* What a loop goes through: a list's items, a dict's keys, a text's characters. Fails the rendering
 * for what cannot be gone through. */
list *jinja_iterate(rendering *r, const value *v);
/* `in`. */
bool jinja_contains(rendering *r, const value *item, const value *container);
/* v.name and v[key]; undefined where there is none. */
value jinja_get_attribute(rendering *r, const value *v, const char *name);
value jinja_get_item(rendering *r, const value *v, const value *key);

/* How Python's json.dumps writes; indent < 0: on one line. */
typedef struct json_style {
    bool ascii, sorted;
    int indent;
    text between_items, after_key;
} json_style;
text jinja_to_json(rendering *r, const value *v, const json_style *s);

#endif
