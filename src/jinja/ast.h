/* SPDX-License-Identifier: Apache-2.0
 *
 * A parsed template: a tree of nodes in the template's arena. */
#ifndef PL_JINJA_AST_H
#define PL_JINJA_AST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jinja.h"

/* ---- memory: freed all at once ------------------------------------------------------------- */

typedef struct arena_block arena_block;
typedef struct arena {
    arena_block *blocks;
    size_t used, limit; /* bytes, all blocks */
} arena;

/* Zeroed, aligned for anything; NULL when memory or the limit is exceeded. */
void *jinja_arena_take(arena *a, size_t bytes);
void jinja_arena_free(arena *a);

/* ---- nodes --------------------------------------------------------------------------------- */

typedef enum node_kind {
    /* expressions */
    NODE_STRING, /* name[0..size) */
    NODE_INT,
    NODE_FLOAT,
    NODE_TRUE,
    NODE_FALSE,
    NODE_NONE,
    NODE_NAME,      /* name */
    NODE_LIST,      /* children */
    NODE_TUPLE,     /* children */
    NODE_DICT,      /* children: key, value, key, value, ... */
    NODE_ATTRIBUTE, /* a.name */
    NODE_ITEM,      /* a[b] */
    NODE_SLICE,     /* a[b:c:children[0]], parts may be NULL */
    NODE_CALL,      /* a(children); named ones are NODE_NAMED */
    NODE_NAMED,     /* name=a */
    NODE_SPREAD,    /* *a */
    NODE_FILTER,    /* a|name(children); a NULL: the text of the block */
    NODE_TEST,      /* a is name(children) */
    NODE_NOT,
    NODE_NEGATE,
    NODE_PLUS,    /* +a */
    NODE_BINARY,  /* a operator b */
    NODE_COMPARE, /* a, then children: NODE_BINARY with b alone, one after the other */
    NODE_AND,
    NODE_OR,
    NODE_IF_ELSE, /* a if b else c; c may be NULL */
    /* statements */
    NODE_TEXT,         /* name[0..size) */
    NODE_OUTPUT,       /* a */
    NODE_BLOCK,        /* children */
    NODE_IF,           /* if a: body; else: other */
    NODE_FOR,          /* for a in b if c: body; else: other */
    NODE_SET,          /* a = b, or a = body (through the filter c) */
    NODE_MACRO,        /* name(children: NODE_NAME, or NODE_NAMED with a default): body */
    NODE_CALL_BLOCK,   /* a is the NODE_CALL; children are the caller's parameters; body */
    NODE_FILTER_BLOCK, /* a is the NODE_FILTER chain; body */
    NODE_WITH,         /* children: NODE_SET; body */
    NODE_BREAK,
    NODE_CONTINUE
} node_kind;

typedef enum operator_kind {
    OP_ADD,
    OP_SUBTRACT,
    OP_MULTIPLY,
    OP_DIVIDE,
    OP_FLOOR_DIVIDE,
    OP_MODULO,
    OP_POWER,
    OP_JOIN,
    OP_EQUAL,
    OP_UNEQUAL,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_IN,
    OP_NOT_IN
} operator_kind;

typedef struct node node;
struct node {
    node_kind kind;
    operator_kind operator;
    uint32_t line;
    const char *name;
    size_t size; /* of name: also NUL-terminated */
    int64_t integer;
    double real;
    node *a, *b, *c, *body, *other;
    node **children;
    size_t n, capacity;
};

struct pl_jinja {
    arena memory;
    node *root;
};

/* ---- tokens -------------------------------------------------------------------------------- */

typedef enum token_kind {
    TOKEN_END,
    TOKEN_TEXT,        /* outside tags, white space control done */
    TOKEN_OUTPUT_OPEN, /* {{ */
    TOKEN_OUTPUT_CLOSE,
    TOKEN_BLOCK_OPEN, /* {% */
    TOKEN_BLOCK_CLOSE,
    TOKEN_NAME,
    TOKEN_STRING, /* escapes done */
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_SYMBOL /* ( ) [ ] { } , : . | = == != < > <= >= + - * / // % ** ~ */
} token_kind;

typedef struct token {
    token_kind kind;
    uint32_t line;
    const char *text; /* NUL-terminated */
    size_t size;
    int64_t integer;
    double real;
} token;

/* The whole template as tokens in `memory`, ending with TOKEN_END. */
pleach_status pl_jinja_tokens(arena *memory, const char *source, size_t size, token **tokens,
                              size_t *n, pleach_error *err);

#endif
