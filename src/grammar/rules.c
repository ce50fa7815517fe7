/* SPDX-License-Identifier: Apache-2.0 */
#include "rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "text/utf8.h"

enum {
    MAX_BYTES = 64 << 20, /* of trees */
    MAX_VERTICES = 1 << 20,
    MAX_DEPTH = 2000 /* of trees, and of rules that begin with each other */
};

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct rules_block {
    struct rules_block *next;
    _Alignas(16) char data[];
} rules_block;

void grammar_fail(rules *r, pleach_status status, const char *fmt, ...)
{
    char text[400];
    va_list args;
    if (r->status != PLEACH_OK) return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    r->status = pl_fail(r->err, status, "grammar%s", text);
}

void *grammar_memory(rules *r, size_t bytes)
{
    if (r->status != PLEACH_OK) return NULL;
    if (bytes > MAX_BYTES - r->bytes) {
        grammar_fail(r, PLEACH_ERR_UNSUPPORTED, ": it takes more than %d MB", MAX_BYTES >> 20);
        return NULL;
    }
    rules_block *b = pl_calloc(1, sizeof *b + bytes);
    if (!b) {
        r->status = pl_fail_memory(r->err, "a grammar", bytes);
        return NULL;
    }
    b->next = r->memory;
    r->memory = b;
    r->bytes += bytes;
    return b->data;
}

void grammar_rules_free(rules *r)
{
    while (r->memory) {
        rules_block *next = r->memory->next;
        pl_free(r->memory);
        r->memory = next;
    }
    pl_free(r->list);
    r->list = NULL;
}

/* ---- trees ----------------------------------------------------------------------------------- */

const expression *grammar_nothing(void)
{
    static const expression nothing = {.kind = EXPRESSION_NOTHING};
    return &nothing;
}

static const expression *make(rules *r, expression e)
{
    expression *made = grammar_memory(r, sizeof *made);
    if (!made) return grammar_nothing();
    *made = e;
    return made;
}

const expression *grammar_bytes(rules *r, const char *text, size_t size)
{
    char *copy = size ? grammar_memory(r, size) : NULL;
    if (!copy) return grammar_nothing();
    memcpy(copy, text, size);
    return make(r, (expression){.kind = EXPRESSION_BYTES, .text = copy, .size = size});
}

const expression *grammar_text(rules *r, const char *text)
{
    return grammar_bytes(r, text, strlen(text));
}

const expression *grammar_class(rules *r, const range *ranges, size_t n)
{
    range *copy = grammar_memory(r, n * sizeof *copy);
    if (!copy) return grammar_nothing();
    memcpy(copy, ranges, n * sizeof *copy);
    return make(r, (expression){.kind = EXPRESSION_CLASS, .ranges = copy, .n = n});
}

const expression *grammar_class_except(rules *r, const range *ranges, size_t n)
{
    range *rest = grammar_memory(r, (n + 1) * sizeof *rest);
    size_t n_rest = 0;
    uint32_t at = 0;
    if (!rest) return grammar_nothing();
    while (at <= 0x10ffff) { /* from `at` up to the next range that begins there or later */
        uint32_t next = 0x110000, past = at;
        for (size_t i = 0; i < n; i++) {
            if (ranges[i].first <= at && ranges[i].last >= at)
                past = PL_MAX(past, ranges[i].last + 1);
            else if (ranges[i].first > at)
                next = PL_MIN(next, ranges[i].first);
        }
        if (past > at) {
            at = past;
            continue;
        }
        rest[n_rest++] = (range){at, next - 1};
        at = next;
    }
    return make(r, (expression){.kind = EXPRESSION_CLASS, .ranges = rest, .n = n_rest});
}

const expression *grammar_all(rules *r, const expression *a, const expression *b)
{
    if (a->kind == EXPRESSION_NOTHING) return b;
    if (b->kind == EXPRESSION_NOTHING) return a;
    return make(r, (expression){.kind = EXPRESSION_ALL, .a = a, .b = b});
}

const expression *grammar_either(rules *r, const expression *a, const expression *b)
{
    return make(r, (expression){.kind = EXPRESSION_EITHER, .a = a, .b = b});
}

const expression *grammar_repeat(rules *r, const expression *a, uint32_t least, uint32_t most)
{
    return make(r, (expression){.kind = EXPRESSION_REPEAT, .a = a, .least = least, .most = most});
}

const expression *grammar_optional(rules *r, const expression *a)
{
    return grammar_repeat(r, a, 0, 1);
}

const expression *grammar_call(rules *r, uint32_t rule)
{
    return make(r, (expression){.kind = EXPRESSION_RULE, .rule = rule});
}

uint32_t grammar_rule(rules *r, const char *name, size_t size)
{
    for (size_t i = 0; i < r->n; i++)
        if (strlen(r->list[i].name) == size && !memcmp(r->list[i].name, name, size))
            return (uint32_t)i;
    char *copy = grammar_memory(r, size + 1);
    if (!copy) return 0;
    memcpy(copy, name, size);
    if (pl_grow((void **)&r->list, &r->capacity, r->n + 1, sizeof *r->list)) {
        r->status = pl_fail_memory(r->err, "a grammar", r->n * sizeof *r->list);
        return 0;
    }
    r->list[r->n] = (rule){.name = copy};
    return (uint32_t)r->n++;
}

/* ---- checks ---------------------------------------------------------------------------------- */

typedef struct checker {
    rules *r;
    uint8_t *nullable; /* [rules] may be the empty text */
    uint8_t *seen;     /* [rules] 1: being entered, 2: done */
    uint32_t depth;
} checker;

static bool is_nullable(const checker *c, const expression *e, uint32_t depth)
{
    if (depth > MAX_DEPTH) {
        grammar_fail(c->r, PLEACH_ERR_FORMAT, ": nested deeper than %d", MAX_DEPTH);
        return false;
    }
    switch (e->kind) {
    case EXPRESSION_NOTHING:
        return true;
    case EXPRESSION_BYTES:
    case EXPRESSION_CLASS:
        return false;
    case EXPRESSION_RULE:
        return c->nullable[e->rule];
    case EXPRESSION_ALL:
        return is_nullable(c, e->a, depth + 1) && is_nullable(c, e->b, depth + 1);
    case EXPRESSION_EITHER:
        return is_nullable(c, e->a, depth + 1) || is_nullable(c, e->b, depth + 1);
    case EXPRESSION_REPEAT:
        return !e->least || is_nullable(c, e->a, depth + 1);
    }
    return false;
}

static void find_nullable(checker *c)
{
    for (bool again = true; again && c->r->status == PLEACH_OK;) {
        again = false;
        for (size_t i = 0; i < c->r->n; i++)
            if (!c->nullable[i] && is_nullable(c, c->r->list[i].is, 0))
                c->nullable[i] = again = true;
    }
}

static void enter_rule(checker *c, uint32_t rule);

/* Enters the rules that e may begin with. */
static void enter_first(checker *c, const expression *e)
{
    switch (e->kind) {
    case EXPRESSION_RULE:
        enter_rule(c, e->rule);
        break;
    case EXPRESSION_ALL:
        enter_first(c, e->a);
        if (is_nullable(c, e->a, 0)) enter_first(c, e->b);
        break;
    case EXPRESSION_EITHER:
        enter_first(c, e->a);
        enter_first(c, e->b);
        break;
    case EXPRESSION_REPEAT:
        if (e->most) enter_first(c, e->a);
        break;
    default:
        break;
    }
}

static void enter_rule(checker *c, uint32_t rule)
{
    if (c->seen[rule] == 2 || c->r->status != PLEACH_OK) return;
    if (c->seen[rule] == 1) {
        grammar_fail(c->r, PLEACH_ERR_FORMAT, ": rule %.60s begins with itself (left recursion)",
                     c->r->list[rule].name);
        return;
    }
    if (++c->depth > MAX_DEPTH)
        grammar_fail(c->r, PLEACH_ERR_FORMAT, ": nested deeper than %d", MAX_DEPTH);
    c->seen[rule] = 1;
    if (c->r->status == PLEACH_OK) enter_first(c, c->r->list[rule].is);
    c->seen[rule] = 2;
    c->depth--;
}

static void check(rules *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (!r->list[i].is)
            grammar_fail(r, PLEACH_ERR_FORMAT, ": there is no rule %.60s", r->list[i].name);
    checker c = {.r = r, .nullable = grammar_memory(r, r->n), .seen = grammar_memory(r, r->n)};
    if (r->status == PLEACH_OK) find_nullable(&c);
    for (size_t i = 0; i < r->n && r->status == PLEACH_OK; i++) enter_rule(&c, (uint32_t)i);
}

/* ---- the graph ------------------------------------------------------------------------------- */

typedef struct compiler {
    rules *r;
    pl_grammar *g;
} compiler;

static uint32_t add(compiler *c, vertex v)
{
    pl_grammar *g = c->g;
    if (c->r->status != PLEACH_OK) return 0;
    if (g->n >= MAX_VERTICES) {
        grammar_fail(c->r, PLEACH_ERR_UNSUPPORTED, ": it is too large");
        return 0;
    }
    if (pl_grow((void **)&g->vertices, &g->capacity, g->n + 1, sizeof v)) {
        c->r->status = pl_fail_memory(c->r->err, "a grammar", g->n * sizeof v);
        return 0;
    }
    g->vertices[g->n] = v;
    return (uint32_t)g->n++;
}

static uint32_t add_byte(compiler *c, uint8_t first, uint8_t last, uint32_t next)
{
    return add(c, (vertex){.kind = VERTEX_BYTE, .first = first, .last = last, .a = next});
}

static uint32_t add_split(compiler *c, uint32_t a, uint32_t b)
{
    return add(c, (vertex){.kind = VERTEX_SPLIT, .a = a, .b = b});
}

/* Characters first .. last of the same encoded length, as byte ranges: cut where the leading bytes
 * differ and the rest is not the full range. Adds to *either, an alternative of vertices. */
static void add_range(compiler *c, uint32_t first, uint32_t last, uint32_t next, uint32_t *either,
                      bool *any)
{
    char a[4], b[4];
    size_t n = pl_utf8_encode(first, a);
    pl_utf8_encode(last, b);
    for (size_t i = 1; i < n; i++) {
        uint32_t mask = (1u << 6 * i) - 1;
        if ((first & ~mask) == (last & ~mask)) continue;
        if (first & mask) {
            add_range(c, first, first | mask, next, either, any);
            add_range(c, (first | mask) + 1, last, next, either, any);
            return;
        }
        if ((last & mask) != mask) {
            add_range(c, first, (last & ~mask) - 1, next, either, any);
            add_range(c, last & ~mask, last, next, either, any);
            return;
        }
    }
    uint32_t at = next;
    for (size_t i = n; i--;) at = add_byte(c, (uint8_t)a[i], (uint8_t)b[i], at);
    *either = *any ? add_split(c, at, *either) : at;
    *any = true;
}

static uint32_t compile_class(compiler *c, const expression *e, uint32_t next)
{
    /* Lengths of UTF-8, and the surrogates that it leaves out. */
    static const range parts[] = {
        {0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, 0x10ffff}};
    uint32_t either = 0;
    bool any = false;
    for (size_t i = 0; i < e->n; i++)
        for (size_t k = 0; k < PL_COUNT(parts); k++) {
            uint32_t first = PL_MAX(e->ranges[i].first, parts[k].first);
            uint32_t last = PL_MIN(e->ranges[i].last, parts[k].last);
            if (first <= last) add_range(c, first, last, next, &either, &any);
        }
    return any ? either : add_byte(c, 1, 0, next); /* no character: never */
}

/* The vertex at which e begins when it is followed by `next`. */
static uint32_t compile(compiler *c, const expression *e, uint32_t next)
{
    uint32_t loop;
    if (c->r->status != PLEACH_OK) return 0;
    switch (e->kind) {
    case EXPRESSION_NOTHING:
        return next;
    case EXPRESSION_BYTES:
        for (size_t i = e->size; i--;)
            next = add_byte(c, (uint8_t)e->text[i], (uint8_t)e->text[i], next);
        return next;
    case EXPRESSION_CLASS:
        return compile_class(c, e, next);
    case EXPRESSION_RULE: /* a rule's vertex is not known yet: its number */
        return add(c, (vertex){.kind = VERTEX_CALL, .a = e->rule, .b = next});
    case EXPRESSION_ALL:
        return compile(c, e->a, compile(c, e->b, next));
    case EXPRESSION_EITHER: {
        uint32_t a = compile(c, e->a, next);
        return add_split(c, a, compile(c, e->b, next));
    }
    case EXPRESSION_REPEAT:
        if (e->most == UINT32_MAX) {
            loop = add_split(c, 0, next);
            uint32_t body = compile(c, e->a, loop);
            if (c->r->status == PLEACH_OK) c->g->vertices[loop].a = body;
            next = loop;
        } else {
            uint32_t after = next;
            for (uint32_t i = e->least; i < e->most && c->r->status == PLEACH_OK; i++)
                next = add_split(c, compile(c, e->a, next), after);
        }
        for (uint32_t i = 0; i < e->least && c->r->status == PLEACH_OK; i++) {
            uint32_t after = next;
            next = compile(c, e->a, after);
            if (next == after) break; /* nothing, however often */
        }
        return next;
    }
    return next;
}

pleach_status grammar_compile(rules *r, pl_grammar **out, pleach_error *err)
{
    *out = NULL;
    check(r);
    if (r->status != PLEACH_OK) return r->status;
    pl_grammar *g = pl_calloc(1, sizeof *g);
    if (!g) return pl_fail_memory(err, "a grammar", sizeof *g);
    compiler c = {.r = r, .g = g};
    uint32_t end = add(&c, (vertex){.kind = VERTEX_END});
    uint32_t *begins = grammar_memory(r, r->n * sizeof *begins);
    for (size_t i = 0; i < r->n && r->status == PLEACH_OK; i++)
        begins[i] = compile(&c, r->list[i].is, end);
    if (r->status != PLEACH_OK) {
        pl_grammar_close(g);
        return r->status;
    }
    for (size_t i = 0; i < g->n; i++)
        if (g->vertices[i].kind == VERTEX_CALL) g->vertices[i].a = begins[g->vertices[i].a];
    g->begin = begins[0];
    *out = g;
    return PLEACH_OK;
}

void pl_grammar_close(pl_grammar *g)
{
    if (!g) return;
    pl_free(g->vertices);
    pl_free(g);
}
