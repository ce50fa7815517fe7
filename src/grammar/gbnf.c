/* SPDX-License-Identifier: Apache-2.0
 *
 * GBNF text to rules: name ::= alternatives; literals "...", classes [a-z] and [^a-z], "." for any
 * character, brackets, the repetitions * + ? {m} {m,} {m,n}, comments from # to the line's end; and
 * %json SCHEMA for JSON of a schema that stands there. */
#include <ctype.h>
#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "rules.h"
#include "text/utf8.h"

enum { MAX_NESTED = 200, MAX_REPEATS = 10000 };

typedef struct reader {
    rules *r;
    const char *at, *end;
    uint32_t line, depth;
} reader;

static const expression *read_either(reader *x);

static void fail_here(reader *x, const char *what)
{
    int n = 0;
    while (x->at + n < x->end && n < 20 && x->at[n] != '\n') n++;
    grammar_fail(x->r, PLEACH_ERR_FORMAT, ", line %u: expected %s, found '%.*s'", x->line, what, n,
                 x->at);
}

static bool good(const reader *x)
{
    return x->r->status == PLEACH_OK;
}
static char next(const reader *x)
{
    return x->at < x->end ? *x->at : 0;
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_';
}

/* Blanks and comments; line ends too where a rule cannot end. */
static void skip(reader *x, bool lines)
{
    for (; x->at < x->end; x->at++) {
        if (*x->at == '#')
            while (x->at < x->end && *x->at != '\n') x->at++;
        if (x->at == x->end) break;
        if (*x->at == '\n' && !lines) break;
        if (!strchr(" \t\r\n", *x->at) || !*x->at) break;
        x->line += *x->at == '\n';
    }
}

static bool take(reader *x, const char *s)
{
    size_t n = strlen(s);
    if ((size_t)(x->end - x->at) < n || memcmp(x->at, s, n)) return false;
    x->at += n;
    return true;
}

/* ---- characters ------------------------------------------------------------------------------ */

static uint32_t read_hex(reader *x, int digits)
{
    uint32_t c = 0;
    for (; digits; digits--, x->at++) {
        if (!isxdigit((unsigned char)next(x))) {
            fail_here(x, "a hexadecimal digit");
            return 0;
        }
        c = 16 * c +
            (uint32_t)(isdigit((unsigned char)*x->at) ? *x->at - '0' : (*x->at | 32) - 'a' + 10);
    }
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) fail_here(x, "a character's number");
    return c;
}

/* One character of a literal or a class, escapes done. */
static uint32_t read_character(reader *x)
{
    static const char from[] = "nrt\\\"[]-/^", to[] = "\n\r\t\\\"[]-/^";
    if (next(x) != '\\') {
        size_t size = PL_MIN((size_t)(x->end - x->at), pl_utf8_length(next(x)));
        if (!size || pl_utf8_valid_prefix(x->at, size) != size) {
            fail_here(x, "a character of UTF-8");
            return 0;
        }
        uint32_t c = pl_utf8_decode(x->at);
        x->line += c == '\n';
        x->at += size;
        return c;
    }
    x->at++;
    char c = next(x);
    const char *simple = c ? strchr(from, c) : NULL;
    if (!simple && !(c && strchr("xuU", c))) {
        fail_here(x, "an escape: n r t \\ \" [ ] x u U");
        return 0;
    }
    x->at++;
    return simple ? (uint32_t)to[simple - from] : read_hex(x, c == 'x' ? 2 : c == 'u' ? 4 : 8);
}

static const expression *read_literal(reader *x)
{
    const expression *e = grammar_nothing();
    char bytes[256];
    size_t n = 0;
    while (good(x) && !take(x, "\"")) {
        if (x->at == x->end) fail_here(x, "\" at the end of a literal");
        if (!good(x)) break;
        if (n + 4 > sizeof bytes) {
            e = grammar_all(x->r, e, grammar_bytes(x->r, bytes, n));
            n = 0;
        }
        n += pl_utf8_encode(read_character(x), bytes + n);
    }
    return n ? grammar_all(x->r, e, grammar_bytes(x->r, bytes, n)) : e;
}

static const expression *read_class(reader *x)
{
    range *ranges = NULL;
    size_t n = 0, capacity = 0;
    bool except = take(x, "^");
    while (good(x) && !take(x, "]")) {
        if (x->at == x->end) fail_here(x, "] at the end of a class");
        if (!good(x)) break;
        range one = {.first = read_character(x)};
        one.last = one.first;
        if (next(x) == '-' && x->at + 1 < x->end && x->at[1] != ']') {
            x->at++;
            one.last = read_character(x);
            if (one.last < one.first) fail_here(x, "a range's end that is no less than its begin");
        }
        if (pl_grow((void **)&ranges, &capacity, n + 1, sizeof one)) {
            x->r->status = pl_fail_memory(x->r->err, "a grammar", n);
            break;
        }
        ranges[n++] = one;
    }
    const expression *e = !good(x) ? grammar_nothing()
                          : except ? grammar_class_except(x->r, ranges, n)
                                   : grammar_class(x->r, ranges, n);
    pl_free(ranges);
    return e;
}

/* ---- expressions ----------------------------------------------------------------------------- */

static uint32_t read_count(reader *x)
{
    uint32_t n = 0;
    if (!isdigit((unsigned char)next(x))) fail_here(x, "a number");
    for (; isdigit((unsigned char)next(x)) && n <= MAX_REPEATS; x->at++)
        n = 10 * n + (uint32_t)(*x->at - '0');
    if (n > MAX_REPEATS) fail_here(x, "no more than 10000 repetitions");
    return n;
}

static const expression *read_repeats(reader *x, const expression *e)
{
    for (;;) {
        if (take(x, "*")) {
            e = grammar_repeat(x->r, e, 0, UINT32_MAX);
        } else if (take(x, "+")) {
            e = grammar_repeat(x->r, e, 1, UINT32_MAX);
        } else if (take(x, "?")) {
            e = grammar_optional(x->r, e);
        } else if (take(x, "{")) {
            uint32_t least = next(x) == ',' ? 0 : read_count(x), most = least;
            if (take(x, ",")) most = next(x) == '}' ? UINT32_MAX : read_count(x);
            if (good(x) && (!take(x, "}") || most < least)) fail_here(x, "{m}, {m,} or {m,n}");
            e = grammar_repeat(x->r, e, least, most);
        } else {
            return e;
        }
    }
}

static const expression *read_name(reader *x)
{
    const char *begin = x->at;
    while (x->at < x->end && is_name(*x->at)) x->at++;
    return grammar_call(x->r, grammar_rule(x->r, begin, (size_t)(x->at - begin)));
}

/* A schema, and how far it goes is the JSON library's to say. */
static const expression *read_schema(reader *x)
{
    json_error_t at;
    json_t *schema =
        json_loadb(x->at, (size_t)(x->end - x->at),
                   JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, &at);
    if (!schema) {
        grammar_fail(x->r, PLEACH_ERR_FORMAT, ", line %u: %%json, line %d: %.100s", x->line,
                     at.line, at.text);
        return grammar_nothing();
    }
    for (const char *end = x->at + at.position; x->at < end; x->at++) x->line += *x->at == '\n';
    const expression *e = grammar_schema(x->r, schema);
    json_decref(schema);
    return e;
}

/* What follows each other, up to |, ) or the rule's end. */
static const expression *read_all(reader *x)
{
    static const range any = {0, 0x10ffff};
    const expression *all = grammar_nothing();
    while (good(x)) {
        const expression *e;
        skip(x, x->depth > 0);
        if (take(x, "\"")) {
            e = read_literal(x);
        } else if (take(x, "[")) {
            e = read_class(x);
        } else if (take(x, ".")) {
            e = grammar_class(x->r, &any, 1);
        } else if (take(x, "(")) {
            if (++x->depth > MAX_NESTED) fail_here(x, "fewer brackets");
            e = read_either(x);
            if (good(x) && !take(x, ")")) fail_here(x, ")");
            x->depth--;
        } else if (take(x, "%json")) {
            e = read_schema(x);
        } else if (is_name(next(x))) {
            e = read_name(x);
        } else {
            return all;
        }
        all = grammar_all(x->r, all, read_repeats(x, e));
    }
    return all;
}

static const expression *read_either(reader *x)
{
    const expression *e = read_all(x);
    for (;;) {
        const char *at = x->at;
        uint32_t line = x->line;
        skip(x, true); /* an alternative may begin the next line */
        if (!good(x) || !take(x, "|")) {
            if (!x->depth) {
                x->at = at;
                x->line = line;
            }
            return e;
        }
        skip(x, true);
        e = grammar_either(x->r, e, read_all(x));
    }
}

static void read_rule(reader *x)
{
    const char *begin = x->at;
    while (x->at < x->end && is_name(*x->at)) x->at++;
    if (x->at == begin) {
        fail_here(x, "a rule's name");
        return;
    }
    uint32_t rule = grammar_rule(x->r, begin, (size_t)(x->at - begin));
    skip(x, false);
    if (good(x) && !take(x, "::=")) fail_here(x, "::=");
    skip(x, true);
    const expression *e = read_either(x);
    skip(x, false);
    if (good(x) && x->at < x->end && *x->at != '\n') fail_here(x, "the rule's end");
    if (!good(x)) return;
    if (x->r->list[rule].is)
        grammar_fail(x->r, PLEACH_ERR_FORMAT, ", line %u: rule %.60s is there already", x->line,
                     x->r->list[rule].name);
    else
        x->r->list[rule].is = e;
}

pleach_status pl_grammar_parse(const char *text, size_t size, pl_grammar **out, pleach_error *err)
{
    rules r = {.err = err};
    reader x = {.r = &r, .at = text, .end = text + size, .line = 1};
    *out = NULL;
    grammar_rule(&r, "root", 4);
    for (skip(&x, true); good(&x) && x.at < x.end; skip(&x, true)) read_rule(&x);
    pleach_status status = good(&x) ? grammar_compile(&r, out, err) : r.status;
    grammar_rules_free(&r);
    return status;
}
