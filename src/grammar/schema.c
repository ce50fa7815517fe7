/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON schemas to rules. What is written is JSON with at most one blank or an indented new line
 * between its parts; properties come in the schema's order, those not required may be left out, and
 * others follow where additionalProperties asks for them. Keywords that say nothing about a value's
 * shape (title, description, default, examples, $schema, $id, ...) are passed over; those that do
 * and cannot be kept to are refused by name. Rules have blanks in their names, which GBNF's cannot
 * have. */
#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "rules.h"
#include "schema_number.h"

enum { MAX_DEPTH = 64, MAX_TIMES = 10000 };

typedef struct builder {
    rules *r;
    const json_t *root;
    uint32_t depth, space, string, number, integer, value, object;
    /* $defs met: schema i is rule defined_as[i]. */
    const json_t **defined;
    uint32_t *defined_as;
    size_t n_defined, capacity, as_capacity;
} builder;

static const expression *schema_of(builder *b, const json_t *s);

static bool good(const builder *b)
{
    return b->r->status == PLEACH_OK;
}

static const expression *text(builder *b, const char *s)
{
    return grammar_text(b->r, s);
}

static const expression *all(builder *b, const expression *x, const expression *y)
{
    return grammar_all(b->r, x, y);
}

/* "," or another mark with blanks after it. */
static const expression *mark(builder *b, const char *s)
{
    return all(b, text(b, s), grammar_call(b->r, b->space));
}

static void refuse(builder *b, const char *what, const char *keyword)
{
    grammar_fail(b->r, PLEACH_ERR_UNSUPPORTED, ": schema: %s \"%.60s\" is not supported", what,
                 keyword);
}

/* ---- JSON itself ----------------------------------------------------------------------------- */

static uint32_t new_rule(builder *b, const char *name) /* of a name that nobody else has */
{
    return grammar_rule(b->r, name, strlen(name));
}

static void define(builder *b, uint32_t rule, const expression *e)
{
    if (good(b)) b->r->list[rule].is = e;
}

/* One character of a string: any but controls, the quote and the backslash, or an escape. */
static const expression *string_character(builder *b)
{
    static const range not [] = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}, {0x7f, 0x7f}};
    static const range escapes[] = {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'},
                                    {'f', 'f'}, {'n', 'n'},   {'r', 'r'}, {'t', 't'}};
    static const range hex[] = {{'0', '9'}, {'a', 'f'}, {'A', 'F'}};
    const expression *four = grammar_repeat(b->r, grammar_class(b->r, hex, 3), 4, 4);
    const expression *escape =
        grammar_either(b->r, grammar_class(b->r, escapes, 8), all(b, text(b, "u"), four));
    return grammar_either(b->r, grammar_class_except(b->r, not, 4), all(b, text(b, "\\"), escape));
}

static const expression *between(builder *b, const char *open, const expression *inside,
                                 const char *close)
{
    return all(b, text(b, open), all(b, inside, text(b, close)));
}

/* first, then what comes behind a comma any number of times; or nothing. */
static const expression *listed(builder *b, const expression *item, uint32_t least, uint32_t most)
{
    if (!most) return grammar_nothing();
    const expression *more = all(b, mark(b, ","), item);
    uint32_t rest = most == UINT32_MAX ? most : most - 1;
    const expression *some = all(b, item, grammar_repeat(b->r, more, least ? least - 1 : 0, rest));
    return least ? some : grammar_optional(b->r, some);
}

static const expression *digits(builder *b, uint32_t least)
{
    static const range digit = {'0', '9'};
    return grammar_repeat(b->r, grammar_class(b->r, &digit, 1), least, UINT32_MAX);
}

static const expression *integer(builder *b)
{
    static const range digit = {'1', '9'};
    const expression *more = all(b, grammar_class(b->r, &digit, 1), digits(b, 0));
    return all(b, grammar_optional(b->r, text(b, "-")), grammar_either(b->r, text(b, "0"), more));
}

static const expression *number(builder *b)
{
    static const range e[] = {{'e', 'e'}, {'E', 'E'}}, sign[] = {{'+', '+'}, {'-', '-'}};
    const expression *fraction = all(b, text(b, "."), digits(b, 1));
    const expression *exponent =
        all(b, grammar_class(b->r, e, 2),
            all(b, grammar_optional(b->r, grammar_class(b->r, sign, 2)), digits(b, 1)));
    return all(b, grammar_call(b->r, b->integer),
               all(b, grammar_optional(b->r, fraction), grammar_optional(b->r, exponent)));
}

static const expression *property(builder *b, const expression *key, const expression *value)
{
    return all(b, key, all(b, mark(b, ":"), value));
}

static const expression *object_of(builder *b, const expression *members)
{
    const expression *space = grammar_call(b->r, b->space);
    return all(b, text(b, "{"), all(b, space, all(b, members, all(b, space, text(b, "}")))));
}

static const expression *array_of(builder *b, const expression *items)
{
    const expression *space = grammar_call(b->r, b->space);
    return all(b, text(b, "["), all(b, space, all(b, items, all(b, space, text(b, "]")))));
}

static const expression *either_text(builder *b, const char *const *words, size_t n)
{
    const expression *e = text(b, words[0]);
    for (size_t i = 1; i < n; i++) e = grammar_either(b->r, e, text(b, words[i]));
    return e;
}

static void define_json(builder *b)
{
    static const char *const constants[] = {"true", "false", "null"};
    static const range blanks = {' ', ' '};
    rules *r = b->r;
    b->space = new_rule(b, "json space");
    b->string = new_rule(b, "json string");
    b->integer = new_rule(b, "json integer");
    b->number = new_rule(b, "json number");
    b->value = new_rule(b, "json value");
    b->object = new_rule(b, "json object");
    if (!good(b) || r->list[b->space].is) return; /* another schema of these rules made them */
    const expression *line =
        all(b, text(b, "\n"), grammar_repeat(r, grammar_class(r, &blanks, 1), 0, 32));
    define(b, b->space, grammar_optional(r, grammar_either(r, text(b, " "), line)));
    define(b, b->string,
           between(b, "\"", grammar_repeat(r, string_character(b), 0, UINT32_MAX), "\""));
    define(b, b->integer, integer(b));
    define(b, b->number, number(b));
    const expression *value = grammar_call(r, b->value), *string = grammar_call(r, b->string);
    define(b, b->object, object_of(b, listed(b, property(b, string, value), 0, UINT32_MAX)));
    const expression *e =
        grammar_either(r, grammar_call(r, b->object), array_of(b, listed(b, value, 0, UINT32_MAX)));
    e = grammar_either(r, e, grammar_either(r, string, grammar_call(r, b->number)));
    define(b, b->value, grammar_either(r, e, either_text(b, constants, 3)));
}

/* ---- keywords -------------------------------------------------------------------------------- */

/* A count from a keyword; `otherwise` where it is absent. */
static uint32_t count_of(builder *b, const json_t *s, const char *keyword, uint32_t otherwise)
{
    const json_t *v = json_object_get(s, keyword);
    if (!v) return otherwise;
    json_int_t n = json_is_real(v) ? (json_int_t)json_real_value(v) : json_integer_value(v);
    if (!json_is_number(v) || n < 0 || n > MAX_TIMES) {
        grammar_fail(b->r, PLEACH_ERR_FORMAT, ": schema: \"%s\" is no number from 0 to %d", keyword,
                     MAX_TIMES);
        return otherwise;
    }
    return (uint32_t)n;
}

/* Refuses keywords that are neither allowed nor without meaning for the shape. */
static void check_keywords(builder *b, const json_t *s, const char *const *allowed, size_t n)
{
    static const char *const passed[] = {"title",       "description", "default",  "examples",
                                         "$schema",     "$id",         "$comment", "$defs",
                                         "definitions", "type",        "nullable", "deprecated",
                                         "readOnly",    "writeOnly",   "strict",   "$anchor"};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)s, key, v)
    {
        bool known = false;
        for (size_t i = 0; i < PL_COUNT(passed); i++) known |= !strcmp(key, passed[i]);
        for (size_t i = 0; i < n; i++) known |= !strcmp(key, allowed[i]);
        if (!known) refuse(b, "the keyword", key);
    }
}

static const expression *constant(builder *b, const json_t *v)
{
    char *s = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!s) {
        b->r->status = pl_fail_memory(b->r->err, "a grammar", 0);
        return grammar_nothing();
    }
    const expression *e = text(b, s);
    free(s);
    return e;
}

static const expression *any_of(builder *b, const json_t *list, const char *keyword, bool values)
{
    const expression *e = NULL;
    size_t i;
    json_t *v;
    if (!json_is_array(list) || !json_array_size(list))
        grammar_fail(b->r, PLEACH_ERR_FORMAT, ": schema: \"%s\" is no list with something in it",
                     keyword);
    json_array_foreach(list, i, v)
    {
        const expression *one = values ? constant(b, v) : schema_of(b, v);
        e = e ? grammar_either(b->r, e, one) : one;
        if (!good(b)) break;
    }
    return e ? e : grammar_nothing();
}

static const expression *string_of(builder *b, const json_t *s)
{
    static const char *const allowed[] = {"minLength", "maxLength", "format"};
    static const range digit = {'0', '9'}, hex[] = {{'0', '9'}, {'a', 'f'}, {'A', 'F'}};
    check_keywords(b, s, allowed, PL_COUNT(allowed));
    const char *format = json_string_value(json_object_get(s, "format"));
    const expression *d2 = grammar_repeat(b->r, grammar_class(b->r, &digit, 1), 2, 2);
    const expression *d4 = grammar_repeat(b->r, grammar_class(b->r, &digit, 1), 4, 4);
    const expression *date = all(b, d4, all(b, text(b, "-"), all(b, d2, all(b, text(b, "-"), d2))));
    const expression *clock =
        all(b, d2, all(b, text(b, ":"), all(b, d2, all(b, text(b, ":"), d2))));
    const expression *zone = grammar_either(b->r, text(b, "Z"),
                                            all(b, grammar_either(b->r, text(b, "+"), text(b, "-")),
                                                all(b, d2, all(b, text(b, ":"), d2))));
    const expression *time =
        all(b, clock, all(b, grammar_optional(b->r, all(b, text(b, "."), digits(b, 1))), zone));
    if (format && !strcmp(format, "date")) return between(b, "\"", date, "\"");
    if (format && !strcmp(format, "time")) return between(b, "\"", time, "\"");
    if (format && !strcmp(format, "date-time"))
        return between(b, "\"", all(b, date, all(b, text(b, "T"), time)), "\"");
    if (format && !strcmp(format, "uuid")) {
        const expression *h = grammar_class(b->r, hex, 3), *e = grammar_repeat(b->r, h, 8, 8);
        static const uint32_t sizes[] = {4, 4, 4, 12};
        for (size_t i = 0; i < PL_COUNT(sizes); i++)
            e = all(b, e, all(b, text(b, "-"), grammar_repeat(b->r, h, sizes[i], sizes[i])));
        return between(b, "\"", e, "\"");
    }
    if (format) refuse(b, "the format", format);
    uint32_t least = count_of(b, s, "minLength", 0);
    uint32_t most = count_of(b, s, "maxLength", UINT32_MAX);
    if (!least && most == UINT32_MAX) return grammar_call(b->r, b->string);
    if (most < least)
        grammar_fail(b->r, PLEACH_ERR_FORMAT, ": schema: minLength %u is over maxLength %u", least,
                     most);
    return between(b, "\"", grammar_repeat(b->r, string_character(b), least, most), "\"");
}

static const expression *number_of(builder *b, const json_t *s, bool whole)
{
    static const char *const allowed[] = {"minimum", "maximum", "exclusiveMinimum",
                                          "exclusiveMaximum"};
    check_keywords(b, s, allowed, PL_COUNT(allowed));
    const json_t *low = json_object_get(s, "minimum"), *high = json_object_get(s, "maximum");
    const json_t *above = json_object_get(s, "exclusiveMinimum");
    const json_t *below = json_object_get(s, "exclusiveMaximum");
    if (!low && !high && !above && !below)
        return grammar_call(b->r, whole ? b->integer : b->number);
    if (!whole) {
        refuse(b, "a bound of a number that is no integer,", low || above ? "minimum" : "maximum");
        return grammar_nothing();
    }
    if ((low && !json_is_integer(low)) || (high && !json_is_integer(high)) ||
        (above && !json_is_integer(above)) || (below && !json_is_integer(below))) {
        grammar_fail(b->r, PLEACH_ERR_FORMAT, ": schema: an integer's bound is no integer");
        return grammar_nothing();
    }
    json_int_t least = low ? json_integer_value(low) : INT64_MIN;
    json_int_t most = high ? json_integer_value(high) : INT64_MAX;
    if (above && json_integer_value(above) >= least) least = json_integer_value(above) + 1;
    if (below && json_integer_value(below) <= most) most = json_integer_value(below) - 1;
    return grammar_integer_between(b->r, least, most);
}

static const expression *array_schema(builder *b, const json_t *s)
{
    static const char *const allowed[] = {"items", "prefixItems", "minItems", "maxItems"};
    check_keywords(b, s, allowed, PL_COUNT(allowed));
    const json_t *items = json_object_get(s, "items"), *prefix = json_object_get(s, "prefixItems");
    uint32_t least = count_of(b, s, "minItems", 0), most = count_of(b, s, "maxItems", UINT32_MAX);
    if (prefix) { /* all of them, and nothing behind */
        const expression *e = grammar_nothing();
        size_t i;
        json_t *v;
        json_array_foreach(prefix, i, v)
        {
            const expression *one = schema_of(b, v);
            e = i ? all(b, e, all(b, mark(b, ","), one)) : one;
        }
        return array_of(b, e);
    }
    if (most < least)
        grammar_fail(b->r, PLEACH_ERR_FORMAT, ": schema: minItems %u is over maxItems %u", least,
                     most);
    const expression *item = items ? schema_of(b, items) : grammar_call(b->r, b->value);
    return array_of(b, listed(b, item, least, most));
}

static bool is_required(const json_t *s, const char *name)
{
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(s, "required"), i,
                       v) if (json_is_string(v) && !strcmp(json_string_value(v), name)) return true;
    return false;
}

/* Members i, i + 1, ... in order. `first`: nothing stands before them, so no comma comes first.
 * What may follow once something stands is a rule of its own, shared by all who come to it. */
typedef struct members {
    const expression **one; /* "name": value */
    bool *required;
    size_t n;
    const expression *others; /* further members: NULL for none */
    uint32_t *after;          /* rules: members from i on, something before them */
} members;

static const expression *members_from(builder *b, const members *m, size_t i, bool first)
{
    if (i == m->n) {
        if (!m->others) return grammar_nothing();
        if (first) return listed(b, m->others, 0, UINT32_MAX);
        return grammar_repeat(b->r, all(b, mark(b, ","), m->others), 0, UINT32_MAX);
    }
    const expression *with = first ? m->one[i] : all(b, mark(b, ","), m->one[i]);
    with = all(b, with, grammar_call(b->r, m->after[i + 1]));
    if (m->required[i]) return with;
    const expression *without =
        first ? members_from(b, m, i + 1, true) : grammar_call(b->r, m->after[i + 1]);
    return grammar_either(b->r, with, without);
}

static uint32_t numbered_rule(builder *b, const char *what)
{
    char name[32];
    snprintf(name, sizeof name, "%s %zu", what, b->r->n);
    return new_rule(b, name);
}

static const expression *object_schema(builder *b, const json_t *s)
{
    static const char *const allowed[] = {"properties", "required", "additionalProperties"};
    check_keywords(b, s, allowed, PL_COUNT(allowed));
    const json_t *properties = json_object_get(s, "properties");
    const json_t *more = json_object_get(s, "additionalProperties");
    const char *key;
    json_t *v;
    size_t n = json_object_size(properties), i = 0;
    json_array_foreach(json_object_get(s, "required"), i,
                       v) if (!json_is_string(v) ||
                              !json_object_get(properties, json_string_value(v)))
        grammar_fail(b->r, PLEACH_ERR_FORMAT, ": schema: required \"%.60s\" is no property",
                     json_is_string(v) ? json_string_value(v) : "");
    members m = {.n = n,
                 .one = grammar_memory(b->r, (n + 1) * sizeof *m.one),
                 .required = grammar_memory(b->r, n + 1),
                 .after = grammar_memory(b->r, (n + 1) * sizeof *m.after)};
    if (!good(b)) return grammar_nothing();
    bool open = more ? !json_is_false(more) : !n; /* said, or an object without properties */
    if (open) {
        const expression *value =
            json_is_object(more) ? schema_of(b, more) : grammar_call(b->r, b->value);
        m.others = property(b, grammar_call(b->r, b->string), value);
    }
    i = 0;
    json_object_foreach((json_t *)properties, key, v)
    {
        json_t *name = json_string(key);
        m.one[i] = property(b, constant(b, name), schema_of(b, v));
        m.required[i++] = is_required(s, key);
        json_decref(name);
    }
    for (i = 0; i <= n && good(b); i++) m.after[i] = numbered_rule(b, "members");
    for (i = n + 1; i-- && good(b);) define(b, m.after[i], members_from(b, &m, i, false));
    return good(b) ? object_of(b, members_from(b, &m, 0, true)) : grammar_nothing();
}

/* ---- references ------------------------------------------------------------------------------ */

/* "#/$defs/name": a pointer into the schema itself. */
static const json_t *follow(builder *b, const char *pointer)
{
    const json_t *at = b->root;
    const char *s = pointer + 1;
    if (pointer[0] != '#') refuse(b, "a reference outside the schema,", pointer);
    while (good(b) && at && *s == '/') {
        char name[128];
        size_t n = 0;
        for (s++; *s && *s != '/' && n + 1 < sizeof name; s++) {
            bool escape = s[0] == '~' && (s[1] == '0' || s[1] == '1');
            name[n++] = escape ? (s[1] == '0' ? '~' : '/') : *s;
            s += escape;
        }
        name[n] = 0;
        at = json_is_array(at) ? json_array_get(at, strtoul(name, NULL, 10))
                               : json_object_get(at, name);
    }
    if (good(b) && (!at || *s))
        grammar_fail(b->r, PLEACH_ERR_FORMAT, ": schema: nothing is at %.80s", pointer);
    return good(b) ? at : NULL;
}

/* Each schema that is referred to is a rule, so that it may refer to itself. */
static const expression *reference(builder *b, const char *pointer)
{
    const json_t *s = follow(b, pointer);
    if (!s) return grammar_nothing();
    for (size_t i = 0; i < b->n_defined; i++)
        if (b->defined[i] == s) return grammar_call(b->r, b->defined_as[i]);
    if (pl_grow((void **)&b->defined, &b->capacity, b->n_defined + 1, sizeof *b->defined) ||
        pl_grow((void **)&b->defined_as, &b->as_capacity, b->n_defined + 1,
                sizeof *b->defined_as)) {
        b->r->status = pl_fail_memory(b->r->err, "a grammar", b->n_defined);
        return grammar_nothing();
    }
    uint32_t rule = numbered_rule(b, "definition");
    b->defined[b->n_defined] = s;
    b->defined_as[b->n_defined++] = rule;
    define(b, rule, schema_of(b, s));
    return grammar_call(b->r, rule);
}

/* ---- a schema -------------------------------------------------------------------------------- */

static const expression *of_type(builder *b, const json_t *s, const char *type)
{
    static const char *const booleans[] = {"true", "false"};
    if (!strcmp(type, "object")) return object_schema(b, s);
    if (!strcmp(type, "array")) return array_schema(b, s);
    if (!strcmp(type, "string")) return string_of(b, s);
    if (!strcmp(type, "integer")) return number_of(b, s, true);
    if (!strcmp(type, "number")) return number_of(b, s, false);
    if (!strcmp(type, "boolean")) return either_text(b, booleans, 2);
    if (!strcmp(type, "null")) return text(b, "null");
    grammar_fail(b->r, PLEACH_ERR_FORMAT, ": schema: there is no type \"%.60s\"", type);
    return grammar_nothing();
}

/* The type that the other keywords speak of, when none is named. */
static const char *implied_type(const json_t *s)
{
    static const struct {
        const char *keyword, *type;
    } hints[] = {{"properties", "object"}, {"additionalProperties", "object"},
                 {"required", "object"},   {"items", "array"},
                 {"prefixItems", "array"}, {"minItems", "array"},
                 {"maxItems", "array"},    {"minLength", "string"},
                 {"maxLength", "string"},  {"format", "string"}};
    for (size_t i = 0; i < PL_COUNT(hints); i++)
        if (json_object_get(s, hints[i].keyword)) return hints[i].type;
    return NULL;
}

/* Of several types each has its own keywords: the others' are no matter. */
static const expression *of_types(builder *b, const json_t *s, const json_t *types)
{
    const expression *e = NULL;
    size_t i;
    json_t *type;
    json_array_foreach(types, i, type)
    {
        json_t *one = json_copy((json_t *)s);
        static const char *const by_type[][6] = {
            {"object", "properties", "required", "additionalProperties"},
            {"array", "items", "prefixItems", "minItems", "maxItems"},
            {"string", "minLength", "maxLength", "format"},
        };
        for (size_t k = 0; k < PL_COUNT(by_type); k++)
            for (size_t j = 1; j < 6 && by_type[k][j]; j++)
                if (!json_is_string(type) || strcmp(by_type[k][0], json_string_value(type)))
                    json_object_del(one, by_type[k][j]);
        const expression *x = of_type(b, one, json_is_string(type) ? json_string_value(type) : "");
        json_decref(one);
        e = e ? grammar_either(b->r, e, x) : x;
        if (!good(b)) break;
    }
    if (!e) grammar_fail(b->r, PLEACH_ERR_FORMAT, ": schema: \"type\" is an empty list");
    return e ? e : grammar_nothing();
}

static const expression *inner_schema(builder *b, const json_t *s)
{
    const json_t *type = json_object_get(s, "type"), *v;
    if ((v = json_object_get(s, "$ref")) && json_is_string(v))
        return reference(b, json_string_value(v));
    if ((v = json_object_get(s, "const"))) return constant(b, v);
    if ((v = json_object_get(s, "enum"))) return any_of(b, v, "enum", true);
    if ((v = json_object_get(s, "anyOf"))) return any_of(b, v, "anyOf", false);
    if ((v = json_object_get(s, "oneOf"))) return any_of(b, v, "oneOf", false);
    if ((v = json_object_get(s, "allOf")) && json_array_size(v) == 1)
        return schema_of(b, json_array_get(v, 0));
    if (json_is_array(type)) return of_types(b, s, type);
    const char *name = json_is_string(type) ? json_string_value(type) : implied_type(s);
    if (name) return of_type(b, s, name);
    check_keywords(b, s, NULL, 0);
    return grammar_call(b->r, b->value);
}

static const expression *schema_of(builder *b, const json_t *s)
{
    const expression *e = grammar_nothing();
    if (!good(b)) return e;
    if (json_is_true(s)) return grammar_call(b->r, b->value);
    if (!json_is_object(s)) {
        grammar_fail(b->r, PLEACH_ERR_FORMAT, ": schema: expected an object or true");
    } else if (++b->depth > MAX_DEPTH) {
        grammar_fail(b->r, PLEACH_ERR_UNSUPPORTED, ": schema: nested deeper than %d", MAX_DEPTH);
    } else {
        e = inner_schema(b, s);
        b->depth--;
    }
    return e;
}

const expression *grammar_schema(rules *r, const json_t *schema)
{
    builder b = {.r = r, .root = schema};
    define_json(&b);
    const expression *e = schema ? schema_of(&b, schema) : grammar_call(r, b.object);
    pl_free(b.defined);
    pl_free(b.defined_as);
    return e;
}

pleach_status pl_grammar_from_schema(const json_t *schema, pl_grammar **out, pleach_error *err)
{
    rules r = {.err = err};
    *out = NULL;
    uint32_t root = grammar_rule(&r, "root", 4);
    const expression *e = grammar_schema(&r, schema);
    if (r.status == PLEACH_OK) r.list[root].is = e;
    pleach_status status = r.status ? r.status : grammar_compile(&r, out, err);
    grammar_rules_free(&r);
    return status;
}
