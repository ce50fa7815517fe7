/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules as trees, as both notations build them, and the graph that they become. */
#ifndef PL_GRAMMAR_RULES_H
#define PL_GRAMMAR_RULES_H

#include "grammar.h"

/* ---- trees ----------------------------------------------------------------------------------- */

typedef enum expression_kind {
    EXPRESSION_NOTHING, /* the empty text */
    EXPRESSION_BYTES,   /* text[0..size) */
    EXPRESSION_CLASS,   /* one character of ranges[0..n) */
    EXPRESSION_RULE,    /* rule i */
    EXPRESSION_ALL,     /* a, then b */
    EXPRESSION_EITHER,  /* a or b */
    EXPRESSION_REPEAT   /* a, least to most times; most UINT32_MAX: any number */
} expression_kind;

typedef struct range {
    uint32_t first, last; /* code points */
} range;

typedef struct expression {
    expression_kind kind;
    const char *text;
    size_t size;
    const range *ranges;
    size_t n;
    uint32_t rule, least, most;
    const struct expression *a, *b;
} expression;

typedef struct rule {
    const char *name;
    const expression *is; /* NULL until defined */
} rule;

/* What a notation builds: freed as a whole. */
typedef struct rules {
    struct rules_block *memory;
    rule *list;
    size_t n, capacity;
    size_t bytes;
    pleach_status status; /* the first failure; later calls do nothing and give `nothing` */
    pleach_error *err;
} rules;

void grammar_rules_free(rules *r);
/* Sets the status unless it is set. */
void grammar_fail(rules *r, pleach_status status, const char *fmt, ...) PL_PRINTF(3, 4);
/* Zeroed memory of the rules; NULL after failing. */
void *grammar_memory(rules *r, size_t bytes);

const expression *grammar_nothing(void);
const expression *grammar_bytes(rules *r, const char *text, size_t size); /* copied */
const expression *grammar_text(rules *r, const char *text);
const expression *grammar_class(rules *r, const range *ranges, size_t n); /* copied */
/* All characters but those. */
const expression *grammar_class_except(rules *r, const range *ranges, size_t n);
const expression *grammar_all(rules *r, const expression *a, const expression *b);
const expression *grammar_either(rules *r, const expression *a, const expression *b);
const expression *grammar_repeat(rules *r, const expression *a, uint32_t least, uint32_t most);
const expression *grammar_optional(rules *r, const expression *a);
const expression *grammar_call(rules *r, uint32_t rule);
/* The rule of that name, made where there is none yet. */
uint32_t grammar_rule(rules *r, const char *name, size_t size);

/* JSON of the schema's shape, which need not outlive the call; NULL: any object. */
const expression *grammar_schema(rules *r, const json_t *schema);

/* ---- the graph ------------------------------------------------------------------------------- */

typedef enum vertex_kind {
    VERTEX_BYTE,  /* a byte first .. last leads to a */
    VERTEX_SPLIT, /* to a and to b */
    VERTEX_CALL,  /* through the rule that begins at a, then to b */
    VERTEX_END    /* of a rule */
} vertex_kind;

typedef struct vertex {
    uint8_t kind, first, last;
    uint32_t a, b;
} vertex;

struct pl_grammar {
    vertex *vertices;
    size_t n, capacity;
    uint32_t begin;
};

/* Checks that all rules are there and none is left recursive, and builds the graph from rule 0. */
pleach_status grammar_compile(rules *r, pl_grammar **out, pleach_error *err);

#endif
