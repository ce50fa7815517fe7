/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens to a tree, by recursive descent. Precedence, loosest first: if else, or, and, not,
 * comparisons, + -, ~, * / // %, **, filters and tests, unary + -; postfixes bind closest. */
#include <string.h>

#include "ast.h"
#include "base/compiler.h"
#include "base/memory.h"

enum { MAX_DEPTH = 200, MEMORY = 64 << 20 };

typedef struct parser {
    arena *memory;
    const token *at;
    uint32_t depth;
    pleach_status status; /* the first failure; from then on everything is a name */
    pleach_error *err;
    node broken;
} parser;

static node *parse_expression(parser *p);
static node *parse_unary(parser *p, bool with_filters);
static node *parse_body(parser *p, const char *const *ends);

/* ---- failing --------------------------------------------------------------------------------- */

#define FAIL(p, code, what, ...)                                                                   \
    do {                                                                                           \
        if ((p)->status == PLEACH_OK)                                                              \
            (p)->status = pl_fail((p)->err, code, "chat template, line %u: " what, (p)->at->line,  \
                                  __VA_ARGS__);                                                    \
    } while (0)

static node *expected(parser *p, const char *what)
{
    FAIL(p, PLEACH_ERR_FORMAT, "expected %s, found %.40s", what, p->at->text);
    return &p->broken;
}

static node *make(parser *p, node_kind kind)
{
    node *n = p->status == PLEACH_OK ? jinja_arena_take(p->memory, sizeof *n) : NULL;
    if (!n) {
        if (p->status == PLEACH_OK)
            p->status = pl_fail_memory(p->err, "a chat template", p->memory->used);
        return &p->broken;
    }
    n->kind = kind;
    n->line = p->at->line;
    return n;
}

static void add_child(parser *p, node *parent, node *child)
{
    if (p->status != PLEACH_OK) return;
    if (parent->n == parent->capacity) {
        size_t capacity = parent->capacity ? 2 * parent->capacity : 4;
        node **children = jinja_arena_take(p->memory, capacity * sizeof *children);
        if (!children) {
            p->status = pl_fail_memory(p->err, "a chat template", p->memory->used);
            return;
        }
        if (parent->n) memcpy(children, parent->children, parent->n * sizeof *children);
        parent->children = children;
        parent->capacity = capacity;
    }
    parent->children[parent->n++] = child;
}

static bool enter(parser *p)
{
    if (++p->depth > MAX_DEPTH) FAIL(p, PLEACH_ERR_FORMAT, "nested deeper than %d", MAX_DEPTH);
    return p->status == PLEACH_OK;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static bool is(const parser *p, token_kind kind, const char *text)
{
    return p->status == PLEACH_OK && p->at->kind == kind && (!text || !strcmp(p->at->text, text));
}
static bool is_symbol(const parser *p, const char *s)
{
    return is(p, TOKEN_SYMBOL, s);
}
static bool is_word(const parser *p, const char *s)
{
    return is(p, TOKEN_NAME, s);
}

static void step(parser *p)
{
    p->at += p->at->kind != TOKEN_END;
}

static bool take_symbol(parser *p, const char *s)
{
    bool yes = is_symbol(p, s);
    if (yes) step(p);
    return yes;
}

static bool take_word(parser *p, const char *s)
{
    bool yes = is_word(p, s);
    if (yes) step(p);
    return yes;
}

static void need(parser *p, token_kind kind, const char *text, const char *what)
{
    if (is(p, kind, text))
        step(p);
    else
        expected(p, what);
}

static void need_symbol(parser *p, const char *s)
{
    need(p, TOKEN_SYMBOL, s, s);
}

/* A node with the name at hand. */
static node *take_name(parser *p, node_kind kind)
{
    if (!is(p, TOKEN_NAME, NULL)) return expected(p, "a name");
    node *n = make(p, kind);
    n->name = p->at->text;
    n->size = p->at->size;
    step(p);
    return n;
}

/* ---- expressions ----------------------------------------------------------------------------- */

/* Arguments up to the closing bracket, the opening one taken. */
static void parse_arguments(parser *p, node *call)
{
    while (p->status == PLEACH_OK && !take_symbol(p, ")")) {
        node *argument;
        bool named =
            is(p, TOKEN_NAME, NULL) && p->at[1].kind == TOKEN_SYMBOL && !strcmp(p->at[1].text, "=");
        if (named) {
            argument = take_name(p, NODE_NAMED);
            step(p);
            argument->a = parse_expression(p);
        } else if (take_symbol(p, "*")) {
            argument = make(p, NODE_SPREAD);
            argument->a = parse_expression(p);
        } else {
            argument = parse_expression(p);
        }
        add_child(p, call, argument);
        if (!is_symbol(p, ")")) need_symbol(p, ",");
    }
}

static node *parse_list(parser *p)
{
    node *n = make(p, NODE_LIST);
    while (p->status == PLEACH_OK && !take_symbol(p, "]")) {
        add_child(p, n, parse_expression(p));
        if (!is_symbol(p, "]")) need_symbol(p, ",");
    }
    return n;
}

static node *parse_dict(parser *p)
{
    node *n = make(p, NODE_DICT);
    while (p->status == PLEACH_OK && !take_symbol(p, "}")) {
        add_child(p, n, parse_expression(p));
        need_symbol(p, ":");
        add_child(p, n, parse_expression(p));
        if (!is_symbol(p, "}")) need_symbol(p, ",");
    }
    return n;
}

/* After "(": an expression in brackets or a tuple. */
static node *parse_brackets(parser *p)
{
    node *tuple = make(p, NODE_TUPLE);
    if (take_symbol(p, ")")) return tuple;
    node *first = parse_expression(p);
    if (take_symbol(p, ")")) return first;
    add_child(p, tuple, first);
    while (p->status == PLEACH_OK && !take_symbol(p, ")")) {
        need_symbol(p, ",");
        if (!is_symbol(p, ")")) add_child(p, tuple, parse_expression(p));
    }
    return tuple;
}

static node *parse_string(parser *p)
{
    node *n = make(p, NODE_STRING);
    n->name = p->at->text;
    n->size = p->at->size;
    step(p);
    while (is(p, TOKEN_STRING, NULL)) { /* 'a' 'b' is 'ab' */
        char *both = jinja_arena_take(p->memory, n->size + p->at->size + 1);
        if (!both) {
            p->status = pl_fail_memory(p->err, "a chat template", p->memory->used);
            break;
        }
        memcpy(both, n->name, n->size);
        memcpy(both + n->size, p->at->text, p->at->size);
        n->name = both;
        n->size += p->at->size;
        step(p);
    }
    return n;
}

static node *parse_primary(parser *p)
{
    static const struct {
        const char *name;
        node_kind kind;
    } constants[] = {{"true", NODE_TRUE},   {"True", NODE_TRUE}, {"false", NODE_FALSE},
                     {"False", NODE_FALSE}, {"none", NODE_NONE}, {"None", NODE_NONE}};
    if (is(p, TOKEN_STRING, NULL)) return parse_string(p);
    if (is(p, TOKEN_INT, NULL) || is(p, TOKEN_FLOAT, NULL)) {
        node *n = make(p, p->at->kind == TOKEN_INT ? NODE_INT : NODE_FLOAT);
        n->integer = p->at->integer;
        n->real = p->at->real;
        step(p);
        return n;
    }
    for (size_t i = 0; i < PL_COUNT(constants); i++)
        if (take_word(p, constants[i].name)) return make(p, constants[i].kind);
    if (is(p, TOKEN_NAME, NULL)) return take_name(p, NODE_NAME);
    if (take_symbol(p, "(")) return parse_brackets(p);
    if (take_symbol(p, "[")) return parse_list(p);
    if (take_symbol(p, "{")) return parse_dict(p);
    return expected(p, "an expression");
}

/* a[b] or a[b:c:d], the bracket taken. */
static node *parse_subscript(parser *p, node *a)
{
    node *n = make(p, NODE_ITEM), *parts[3] = {0};
    size_t colons = 0;
    n->a = a;
    while (p->status == PLEACH_OK && !take_symbol(p, "]")) {
        if (take_symbol(p, ":")) {
            if (++colons > 2) expected(p, "]");
        } else if (!parts[colons]) {
            parts[colons] = parse_expression(p);
        } else {
            expected(p, "]");
        }
    }
    n->b = parts[0];
    if (colons) {
        n->kind = NODE_SLICE;
        n->c = parts[1];
        add_child(p, n, parts[2]);
    } else if (!parts[0]) {
        expected(p, "an expression");
    }
    return n;
}

static node *parse_postfix(parser *p, node *n)
{
    while (p->status == PLEACH_OK) {
        if (take_symbol(p, ".")) {
            node *attribute;
            if (is(p, TOKEN_INT, NULL)) { /* a.0 is a[0] */
                attribute = make(p, NODE_ITEM);
                attribute->b = parse_primary(p);
            } else {
                attribute = take_name(p, NODE_ATTRIBUTE);
            }
            attribute->a = n;
            n = attribute;
        } else if (take_symbol(p, "[")) {
            n = parse_subscript(p, n);
        } else if (take_symbol(p, "(")) {
            node *call = make(p, NODE_CALL);
            call->a = n;
            parse_arguments(p, call);
            n = call;
        } else {
            break;
        }
    }
    return n;
}

static node *parse_filter(parser *p, node *a)
{
    node *n = take_name(p, NODE_FILTER);
    n->a = a;
    if (take_symbol(p, "(")) parse_arguments(p, n);
    return n;
}

/* After "is". A test takes one argument without brackets, as in `is divisibleby 3`. */
static node *parse_test(parser *p, node *a)
{
    bool negated = take_word(p, "not");
    node *n = take_name(p, NODE_TEST);
    n->a = a;
    if (take_symbol(p, "(")) {
        parse_arguments(p, n);
    } else if (is(p, TOKEN_STRING, NULL) || is(p, TOKEN_INT, NULL) || is(p, TOKEN_FLOAT, NULL) ||
               is_symbol(p, "[") || is_symbol(p, "{") ||
               (is(p, TOKEN_NAME, NULL) && !is_word(p, "else") && !is_word(p, "or") &&
                !is_word(p, "and") && !is_word(p, "is") && !is_word(p, "if") && !is_word(p, "in") &&
                !is_word(p, "not") && !is_word(p, "recursive"))) {
        add_child(p, n, parse_postfix(p, parse_primary(p)));
    }
    if (!negated) return n;
    node *no = make(p, NODE_NOT);
    no->a = n;
    return no;
}

static node *parse_filters(parser *p, node *n)
{
    while (p->status == PLEACH_OK) {
        if (take_symbol(p, "|"))
            n = parse_filter(p, n);
        else if (take_word(p, "is"))
            n = parse_test(p, n);
        else if (is_symbol(p, "(")) /* a call of what a filter gave */
            n = parse_postfix(p, n);
        else
            break;
    }
    return n;
}

static node *binary(parser *p, operator_kind operator, node * a, node *b)
{
    node *n = make(p, NODE_BINARY);
    n->operator= operator;
    n->a = a;
    n->b = b;
    return n;
}

static node *parse_power(parser *p)
{
    node *n = parse_unary(p, true);
    while (take_symbol(p, "**")) n = binary(p, OP_POWER, n, parse_unary(p, true));
    return n;
}

static node *parse_unary(parser *p, bool with_filters)
{
    node *n;
    if (!enter(p)) return &p->broken;
    if (take_symbol(p, "-")) {
        n = make(p, NODE_NEGATE);
        n->a = parse_unary(p, false);
    } else if (take_symbol(p, "+")) {
        n = make(p, NODE_PLUS);
        n->a = parse_unary(p, false);
    } else {
        n = parse_postfix(p, parse_primary(p));
    }
    p->depth--;
    return with_filters ? parse_filters(p, n) : n;
}

typedef struct operator_token {
    const char *text;
    operator_kind operator;
} operator_token;

/* One level of operators that group from the left. */
static node *parse_level(parser *p, const operator_token *operators, size_t n_operators,
                         node *(*next)(parser *))
{
    node *n = next(p);
    for (size_t i = 0; i < n_operators && p->status == PLEACH_OK; i++)
        if (take_symbol(p, operators[i].text)) {
            n = binary(p, operators[i].operator, n, next(p));
            i = (size_t)-1;
        }
    return n;
}

static node *parse_product(parser *p)
{
    static const operator_token operators[] = {
        {"*", OP_MULTIPLY}, {"/", OP_DIVIDE}, {"//", OP_FLOOR_DIVIDE}, {"%", OP_MODULO}};
    return parse_level(p, operators, PL_COUNT(operators), parse_power);
}

static node *parse_join(parser *p)
{
    static const operator_token operators[] = {{"~", OP_JOIN}};
    return parse_level(p, operators, PL_COUNT(operators), parse_product);
}

static node *parse_sum(parser *p)
{
    static const operator_token operators[] = {{"+", OP_ADD}, {"-", OP_SUBTRACT}};
    return parse_level(p, operators, PL_COUNT(operators), parse_join);
}

static bool take_comparison(parser *p, operator_kind *operator)
{
    static const operator_token symbols[] = {{"==", OP_EQUAL},  {"!=", OP_UNEQUAL},
                                             {"<", OP_LESS},    {"<=", OP_LESS_EQUAL},
                                             {">", OP_GREATER}, {">=", OP_GREATER_EQUAL}};
    for (size_t i = 0; i < PL_COUNT(symbols); i++)
        if (take_symbol(p, symbols[i].text)) {
            *operator= symbols[i].operator;
            return true;
        }
    *operator= OP_IN;
    if (take_word(p, "in")) return true;
    if (!is_word(p, "not") || p->at[1].kind != TOKEN_NAME || strcmp(p->at[1].text, "in"))
        return false;
    step(p);
    step(p);
    *operator= OP_NOT_IN;
    return true;
}

static node *parse_comparison(parser *p)
{
    node *first = parse_sum(p), *n = NULL;
    operator_kind operator;
    while (p->status == PLEACH_OK && take_comparison(p, &operator)) {
        if (!n) {
            n = make(p, NODE_COMPARE);
            n->a = first;
        }
        add_child(p, n, binary(p, operator, NULL, parse_sum(p)));
    }
    return n ? n : first;
}

static node *parse_not(parser *p)
{
    if (!take_word(p, "not")) return parse_comparison(p);
    if (!enter(p)) return &p->broken;
    node *n = make(p, NODE_NOT);
    n->a = parse_not(p);
    p->depth--;
    return n;
}

static node *parse_and(parser *p)
{
    node *n = parse_not(p);
    while (take_word(p, "and")) {
        node *both = make(p, NODE_AND);
        both->a = n;
        both->b = parse_not(p);
        n = both;
    }
    return n;
}

static node *parse_or(parser *p)
{
    node *n = parse_and(p);
    while (take_word(p, "or")) {
        node *either = make(p, NODE_OR);
        either->a = n;
        either->b = parse_and(p);
        n = either;
    }
    return n;
}

/* Without "if else": what a for loop goes through. */
static node *parse_plain(parser *p)
{
    if (!enter(p)) return &p->broken;
    node *n = parse_or(p);
    p->depth--;
    return n;
}

static node *parse_expression(parser *p)
{
    if (!enter(p)) return &p->broken;
    node *n = parse_or(p);
    while (take_word(p, "if")) {
        node *choice = make(p, NODE_IF_ELSE);
        choice->b = n;
        choice->a = parse_or(p);
        if (take_word(p, "else")) choice->c = parse_expression(p);
        n = choice;
    }
    p->depth--;
    return n;
}

/* An expression, or several with commas between: a tuple. */
static node *parse_tuple(parser *p)
{
    node *first = parse_expression(p);
    if (!is_symbol(p, ",")) return first;
    node *tuple = make(p, NODE_TUPLE);
    add_child(p, tuple, first);
    while (take_symbol(p, ","))
        if (!is(p, TOKEN_BLOCK_CLOSE, NULL) && !is(p, TOKEN_OUTPUT_CLOSE, NULL))
            add_child(p, tuple, parse_expression(p));
    return tuple;
}

/* ---- statements ------------------------------------------------------------------------------ */

static void close_block(parser *p)
{
    need(p, TOKEN_BLOCK_CLOSE, NULL, "%}");
}

/* The rest of a block's tag, and its inside up to the word that ends it. */
static node *parse_inside(parser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    close_block(p);
    node *n = parse_body(p, ends);
    need(p, TOKEN_NAME, end, end);
    return n;
}

static const char *const end_if[] = {"elif", "else", "endif", NULL};
static const char *const end_for[] = {"else", "endfor", NULL};

/* Names that a loop or a set gives values to: a, or a, b; with attributes where `set` has them. */
static node *parse_target(parser *p)
{
    node *tuple = NULL, *target;
    do {
        bool bracket = take_symbol(p, "(");
        target = bracket ? parse_target(p) : take_name(p, NODE_NAME);
        if (bracket) need_symbol(p, ")");
        if (!bracket && take_symbol(p, ".")) {
            node *attribute = take_name(p, NODE_ATTRIBUTE);
            attribute->a = target;
            target = attribute;
        }
        if (!tuple && is_symbol(p, ",")) tuple = make(p, NODE_TUPLE);
        if (tuple) add_child(p, tuple, target);
    } while (p->status == PLEACH_OK && take_symbol(p, ",") && is(p, TOKEN_NAME, NULL));
    return tuple ? tuple : target;
}

/* After "if" or "elif". */
static node *parse_if(parser *p)
{
    node *n = make(p, NODE_IF);
    if (!enter(p)) return &p->broken;
    n->a = parse_tuple(p);
    close_block(p);
    n->body = parse_body(p, end_if);
    if (take_word(p, "elif")) {
        n->other = parse_if(p);
    } else {
        if (take_word(p, "else")) {
            close_block(p);
            n->other = parse_body(p, end_if + 2);
        }
        need(p, TOKEN_NAME, "endif", "endif");
    }
    p->depth--;
    return n;
}

static node *parse_for(parser *p)
{
    node *n = make(p, NODE_FOR);
    n->a = parse_target(p);
    need(p, TOKEN_NAME, "in", "in");
    node *first = parse_plain(p);
    if (is_symbol(p, ",")) {
        node *tuple = make(p, NODE_TUPLE);
        add_child(p, tuple, first);
        while (take_symbol(p, ",")) add_child(p, tuple, parse_plain(p));
        first = tuple;
    }
    n->b = first;
    if (take_word(p, "if")) n->c = parse_plain(p);
    if (is_word(p, "recursive"))
        FAIL(p, PLEACH_ERR_UNSUPPORTED, "%s loops are not supported", "recursive");
    close_block(p);
    n->body = parse_body(p, end_for);
    if (take_word(p, "else")) {
        close_block(p);
        n->other = parse_body(p, end_for + 1);
    }
    need(p, TOKEN_NAME, "endfor", "endfor");
    return n;
}

static node *parse_set(parser *p)
{
    node *n = make(p, NODE_SET);
    n->a = parse_target(p);
    if (take_symbol(p, "=")) {
        n->b = parse_tuple(p);
        return n;
    }
    while (take_symbol(p, "|")) n->c = parse_filter(p, n->c);
    n->body = parse_inside(p, "endset");
    return n;
}

static void parse_parameters(parser *p, node *n)
{
    need_symbol(p, "(");
    while (p->status == PLEACH_OK && !take_symbol(p, ")")) {
        node *parameter = take_name(p, NODE_NAME);
        if (take_symbol(p, "=")) {
            parameter->kind = NODE_NAMED;
            parameter->a = parse_expression(p);
        }
        add_child(p, n, parameter);
        if (!is_symbol(p, ")")) need_symbol(p, ",");
    }
}

static node *parse_macro(parser *p)
{
    node *n = take_name(p, NODE_MACRO);
    parse_parameters(p, n);
    n->body = parse_inside(p, "endmacro");
    take_word(p, n->name ? n->name : "");
    return n;
}

static node *parse_call_block(parser *p)
{
    node *n = make(p, NODE_CALL_BLOCK);
    if (is_symbol(p, "(")) parse_parameters(p, n);
    n->a = parse_expression(p);
    if (p->status == PLEACH_OK && n->a->kind != NODE_CALL) expected(p, "a call");
    n->body = parse_inside(p, "endcall");
    return n;
}

static node *parse_filter_block(parser *p)
{
    node *n = make(p, NODE_FILTER_BLOCK);
    do n->a = parse_filter(p, n->a);
    while (take_symbol(p, "|"));
    n->body = parse_inside(p, "endfilter");
    return n;
}

static node *parse_with(parser *p)
{
    node *n = make(p, NODE_WITH);
    while (p->status == PLEACH_OK && !is(p, TOKEN_BLOCK_CLOSE, NULL)) {
        node *set = make(p, NODE_SET);
        set->a = take_name(p, NODE_NAME);
        need_symbol(p, "=");
        set->b = parse_expression(p);
        add_child(p, n, set);
        if (!is(p, TOKEN_BLOCK_CLOSE, NULL)) need_symbol(p, ",");
    }
    n->body = parse_inside(p, "endwith");
    return n;
}

static node *parse_statement(parser *p)
{
    if (take_word(p, "if")) return parse_if(p);
    if (take_word(p, "for")) return parse_for(p);
    if (take_word(p, "set")) return parse_set(p);
    if (take_word(p, "macro")) return parse_macro(p);
    if (take_word(p, "call")) return parse_call_block(p);
    if (take_word(p, "filter")) return parse_filter_block(p);
    if (take_word(p, "with")) return parse_with(p);
    /* It marks the assistant's words for training, and renders as what it holds. */
    if (take_word(p, "generation")) return parse_inside(p, "endgeneration");
    if (take_word(p, "break")) return make(p, NODE_BREAK);
    if (take_word(p, "continue")) return make(p, NODE_CONTINUE);
    if (!is(p, TOKEN_NAME, NULL)) return expected(p, "a statement");
    FAIL(p, PLEACH_ERR_UNSUPPORTED, "the statement '%.40s' is not supported", p->at->text);
    return &p->broken;
}

static bool at_end(const parser *p, const char *const *ends)
{
    for (; *ends; ends++)
        if (is_word(p, *ends)) return true;
    return false;
}

/* Statements up to one of the words in `ends` (none: the template's end), which is left for the
 * caller with its {% taken. */
static node *parse_body(parser *p, const char *const *ends)
{
    node *n = make(p, NODE_BLOCK);
    if (!enter(p)) return &p->broken;
    while (p->status == PLEACH_OK && !is(p, TOKEN_END, NULL)) {
        node *child;
        if (is(p, TOKEN_TEXT, NULL)) {
            child = make(p, NODE_TEXT);
            child->name = p->at->text;
            child->size = p->at->size;
            step(p);
        } else if (is(p, TOKEN_OUTPUT_OPEN, NULL)) {
            step(p);
            child = make(p, NODE_OUTPUT);
            child->a = parse_tuple(p);
            need(p, TOKEN_OUTPUT_CLOSE, NULL, "}}");
        } else {
            need(p, TOKEN_BLOCK_OPEN, NULL, "{%");
            if (at_end(p, ends)) {
                p->depth--;
                return n;
            }
            child = parse_statement(p);
            close_block(p);
        }
        add_child(p, n, child);
    }
    if (*ends) expected(p, *ends);
    p->depth--;
    return n;
}

/* ---- the template ---------------------------------------------------------------------------- */

pleach_status pl_jinja_parse(const char *text, size_t size, pl_jinja **out, pleach_error *err)
{
    static const char *const none[] = {NULL};
    token *tokens = NULL;
    size_t n = 0;
    *out = NULL;
    pl_jinja *t = pl_calloc(1, sizeof *t);
    if (!t) return pl_fail_memory(err, "a chat template", sizeof *t);
    t->memory.limit = MEMORY;
    pleach_status status = pl_jinja_tokens(&t->memory, text, size, &tokens, &n, err);
    if (status == PLEACH_OK) {
        parser p = {.memory = &t->memory, .at = tokens, .err = err, .broken.kind = NODE_NONE};
        t->root = parse_body(&p, none);
        status = p.status;
    }
    pl_free(tokens);
    if (status == PLEACH_OK)
        *out = t;
    else
        pl_jinja_close(t);
    return status;
}

void pl_jinja_close(pl_jinja *t)
{
    if (!t) return;
    jinja_arena_free(&t->memory);
    pl_free(t);
}
