/* SPDX-License-Identifier: Apache-2.0
 *
 * Walking the tree: expressions to values, statements to output. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "rendering.h"

enum { MAX_DEPTH = 1000, MAX_STEPS = 20000000, MEMORY = 64 << 20 };

static value evaluate(rendering *r, const node *n);
static void execute(rendering *r, const node *n);

/* ---- failing --------------------------------------------------------------------------------- */

bool jinja_failed(const rendering *r)
{
    return r->status != PLEACH_OK;
}

value jinja_fail(rendering *r, const char *fmt, ...)
{
    char what[400];
    va_list args;
    if (jinja_failed(r)) return make_undefined("");
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    r->status = pl_fail(r->err, PLEACH_ERR_ARGUMENT, "chat template, line %u: %s", r->line, what);
    return make_undefined("");
}

value jinja_fail_limit(rendering *r, const char *what)
{
    if (!jinja_failed(r))
        r->status =
            pl_fail(r->err, PLEACH_ERR_LIMIT, "chat template, line %u: too many %s", r->line, what);
    return make_undefined("");
}

void *jinja_take(rendering *r, size_t bytes)
{
    void *p = jinja_failed(r) ? NULL : jinja_arena_take(&r->memory, bytes);
    if (!p && !jinja_failed(r)) jinja_fail_limit(r, "bytes of text");
    return p;
}

bool jinja_count_step(rendering *r)
{
    if (++r->steps > MAX_STEPS) jinja_fail_limit(r, "steps");
    return !jinja_failed(r);
}

static bool enter(rendering *r)
{
    if (++r->depth > MAX_DEPTH) jinja_fail_limit(r, "calls inside calls");
    return jinja_count_step(r);
}

/* ---- names ----------------------------------------------------------------------------------- */

static const scope *push_scope(rendering *r, const scope *outer)
{
    scope *s = jinja_take(r, sizeof *s), *before = r->scope;
    if (!s) return before;
    s->outer = outer;
    r->scope = s;
    return before;
}

/* Variables become values when they are first asked for. */
static value variable(rendering *r, const char *name)
{
    const json_t *own = r->own ? json_object_get(r->own, name) : NULL;
    const json_t *said = r->said ? json_object_get(r->said, name) : NULL;
    value function = jinja_global_function(name);
    if (!own && !said) return function.kind == KIND_FUNCTION ? function : make_undefined(name);
    value v = jinja_value_from_json(r, own ? own : said, !own);
    jinja_dict_set(r, &r->globals.names, jinja_make_string(name), v);
    return v;
}

static value look_up(rendering *r, const char *name)
{
    for (const scope *s = r->scope; s; s = s->outer) {
        const value *v = jinja_dict_find_name(&s->names, name);
        if (v) return *v;
    }
    return variable(r, name);
}

static void assign(rendering *r, const node *target, const value *v)
{
    if (target->kind == NODE_NAME) {
        jinja_dict_set(r, &r->scope->names, jinja_make_string(target->name), *v);
    } else if (target->kind == NODE_ATTRIBUTE) {
        value object = evaluate(r, target->a);
        if (object.kind == KIND_NAMESPACE)
            jinja_dict_set(r, object.dict, jinja_make_string(target->name), *v);
        else
            jinja_fail(r, "only a namespace's attributes can be set, not those of a %s",
                       jinja_type_name(&object));
    } else {
        list *items = jinja_iterate(r, v);
        if (items->n != target->n) jinja_fail(r, "%zu values for %zu names", items->n, target->n);
        for (size_t i = 0; i < target->n && !jinja_failed(r); i++)
            assign(r, target->children[i], &items->items[i]);
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* A node's argument children as values. */
static arguments evaluate_arguments(rendering *r, const node *n)
{
    list *items = jinja_make_list(r), *named = jinja_make_list(r);
    text *names = jinja_take(r, n->n * sizeof *names);
    for (size_t i = 0; i < n->n && !jinja_failed(r); i++) {
        const node *child = n->children[i];
        if (child->kind == NODE_NAMED) {
            names[named->n] = (text){.bytes = child->name, .size = child->size};
            jinja_list_add(r, named, evaluate(r, child->a));
        } else if (child->kind == NODE_SPREAD) {
            value v = evaluate(r, child->a);
            const list *more = jinja_iterate(r, &v);
            for (size_t j = 0; j < more->n; j++) jinja_list_add(r, items, more->items[j]);
        } else {
            jinja_list_add(r, items, evaluate(r, child));
        }
    }
    return (arguments){items->items, items->n, names, named->items, named->n};
}

static const value *named_argument(const arguments *a, const char *name)
{
    for (size_t i = 0; i < a->n_named; i++)
        if (jinja_text_is(a->names[i], name)) return &a->named[i];
    return NULL;
}

const value *jinja_argument(const arguments *a, size_t i, const char *name)
{
    return i < a->n ? &a->items[i] : name ? named_argument(a, name) : NULL;
}

text jinja_text_argument(rendering *r, const arguments *a, size_t i, const char *name,
                         const char *otherwise)
{
    const value *v = jinja_argument(a, i, name);
    if (!v || v->kind == KIND_NONE) return (text){.bytes = otherwise, .size = strlen(otherwise)};
    if (v->kind != KIND_STRING)
        jinja_fail(r, "expected a str as %s, not %s", name, jinja_type_name(v));
    return v->kind == KIND_STRING ? v->text : (text){.bytes = ""};
}

int64_t jinja_int_argument(rendering *r, const arguments *a, size_t i, const char *name,
                           int64_t otherwise)
{
    const value *v = jinja_argument(a, i, name);
    if (!v || v->kind == KIND_NONE) return otherwise;
    if (v->kind == KIND_BOOL) return v->boolean;
    if (v->kind != KIND_INT)
        jinja_fail(r, "expected an int as %s, not %s", name, jinja_type_name(v));
    return v->kind == KIND_INT ? v->integer : otherwise;
}

bool jinja_bool_argument(const arguments *a, size_t i, const char *name, bool otherwise)
{
    const value *v = jinja_argument(a, i, name);
    return v ? jinja_truth(v) : otherwise;
}

/* What a body writes, as a text. */
static text capture(rendering *r, const node *body)
{
    builder here = {0}, *before = r->output;
    r->output = &here;
    execute(r, body);
    r->output = before;
    return jinja_build_end(&here);
}

static value call_macro(rendering *r, const macro *m, const arguments *a)
{
    const scope *before = push_scope(r, m->scope);
    if (a->n > m->node->n)
        jinja_fail(r, "the macro takes %zu arguments, not %zu", m->node->n, a->n);
    for (size_t i = 0; i < m->node->n && !jinja_failed(r); i++) {
        const node *parameter = m->node->children[i];
        const value *given = jinja_argument(a, i, parameter->name);
        value v = given                           ? *given
                  : parameter->kind == NODE_NAMED ? evaluate(r, parameter->a)
                                                  : make_undefined(parameter->name);
        jinja_dict_set(r, &r->scope->names, jinja_make_string(parameter->name), v);
    }
    const value *caller = named_argument(a, "caller");
    if (caller) jinja_dict_set(r, &r->scope->names, jinja_make_string("caller"), *caller);
    text out = capture(r, m->node->body);
    r->leaving = LEAVING_NOT;
    r->scope = (scope *)before;
    return make_text(out);
}

value jinja_call(rendering *r, const value *callee, const arguments *a)
{
    switch (callee->kind) {
    case KIND_MACRO:
        return call_macro(r, callee->macro, a);
    case KIND_FUNCTION:
        return callee->function(r, a);
    case KIND_METHOD:
        return jinja_call_method(r, callee->method.self, callee->method.name, a);
    case KIND_UNDEFINED:
        return jinja_fail(r, "'%s' is undefined", callee->name);
    default:
        return jinja_fail(r, "a value of type %s cannot be called", jinja_type_name(callee));
    }
}

/* ---- expressions ----------------------------------------------------------------------------- */

static value evaluate_list(rendering *r, const node *n)
{
    list *l = jinja_make_list(r);
    for (size_t i = 0; i < n->n && !jinja_failed(r); i++)
        jinja_list_add(r, l, evaluate(r, n->children[i]));
    if (!jinja_failed(r)) l->tuple = n->kind == NODE_TUPLE;
    return jinja_list_value(l);
}

static value evaluate_dict(rendering *r, const node *n)
{
    dict *d = jinja_make_dict(r);
    for (size_t i = 0; i + 1 < n->n && !jinja_failed(r); i += 2) {
        value key = evaluate(r, n->children[i]), v = evaluate(r, n->children[i + 1]);
        jinja_dict_set(r, d, key, v);
    }
    return jinja_dict_value(d);
}

/* Python's rule for one end of a slice of n items. */
static int64_t slice_end(int64_t i, int64_t n, int64_t lowest, int64_t highest)
{
    if (i < 0) i = i < -n ? -1 - n : i + n;
    return PL_MIN(PL_MAX(i, lowest), highest);
}

static value evaluate_slice(rendering *r, const node *n)
{
    value v = evaluate(r, n->a), none = make_none();
    value from = n->b ? evaluate(r, n->b) : none, to = n->c ? evaluate(r, n->c) : none;
    value by = n->children[0] ? evaluate(r, n->children[0]) : none;
    const value parts[] = {from, to, by};
    arguments a = {.items = parts, .n = 3};
    int64_t step = jinja_int_argument(r, &a, 2, "a slice's step", 1);
    if (!step) return jinja_fail(r, "a slice's step is 0");
    if (v.kind != KIND_STRING && v.kind != KIND_LIST)
        return jinja_fail(r, "a value of type %s has no slices", jinja_type_name(&v));
    const list *items = jinja_iterate(r, &v);
    int64_t size = (int64_t)items->n, low = step < 0 ? -1 : 0, high = step < 0 ? size - 1 : size;
    int64_t i = slice_end(jinja_int_argument(r, &a, 0, "a slice's begin", step < 0 ? high : low),
                          size, low, high);
    int64_t end = to.kind == KIND_NONE ? (step < 0 ? low : high)
                                       : slice_end(jinja_int_argument(r, &a, 1, "a slice's end", 0),
                                                   size, low, high);
    if (v.kind == KIND_STRING && step == 1) {
        size_t begin = jinja_text_offset(v.text, (size_t)i);
        size_t past = i < end ? jinja_text_offset(v.text, (size_t)end) : begin;
        return make_text(jinja_text_part(v.text, begin, past));
    }
    list *l = jinja_make_list(r);
    builder b = {0};
    for (; (step > 0 ? i < end : i > end) && jinja_count_step(r); i += step) {
        if (v.kind == KIND_STRING)
            jinja_build_text(r, &b, items->items[i].text);
        else
            jinja_list_add(r, l, items->items[i]);
        if (step > size || step < -size) break;
    }
    if (v.kind == KIND_STRING) return make_text(jinja_build_end(&b));
    if (!jinja_failed(r)) l->tuple = v.list->tuple;
    return jinja_list_value(l);
}

static value evaluate_compare(rendering *r, const node *n)
{
    value left = evaluate(r, n->a);
    for (size_t i = 0; i < n->n && !jinja_failed(r); i++) {
        value right = evaluate(r, n->children[i]->b);
        value result = jinja_apply_operator(r, n->children[i]->operator, & left, &right);
        if (!jinja_truth(&result)) return make_bool(false);
        left = right;
    }
    return make_bool(true);
}

static value evaluate_call(rendering *r, const node *n)
{
    value callee = evaluate(r, n->a);
    if (jinja_failed(r)) return callee;
    arguments a = evaluate_arguments(r, n);
    r->line = n->line;
    return jinja_failed(r) ? make_none() : jinja_call(r, &callee, &a);
}

static value evaluate_test(rendering *r, const node *n)
{
    if (!jinja_has_test(n->name)) return jinja_fail(r, "there is no test '%.40s'", n->name);
    value v = evaluate(r, n->a);
    arguments a = evaluate_arguments(r, n);
    return make_bool(!jinja_failed(r) && jinja_apply_test(r, n->name, &v, &a));
}

/* input: what goes into the first filter of a chain that has no expression before it. */
static value evaluate_filter(rendering *r, const node *n, const value *input)
{
    value v = !n->a ? *input : input ? evaluate_filter(r, n->a, input) : evaluate(r, n->a);
    arguments a = evaluate_arguments(r, n);
    r->line = n->line;
    return jinja_failed(r) ? v : jinja_apply_filter(r, n->name, &v, &a);
}

static value evaluate_inner(rendering *r, const node *n)
{
    value v;
    switch (n->kind) {
    case NODE_STRING:
        return make_text((text){.bytes = n->name, .size = n->size});
    case NODE_INT:
        return make_int(n->integer);
    case NODE_FLOAT:
        return make_real(n->real);
    case NODE_TRUE:
        return make_bool(true);
    case NODE_FALSE:
        return make_bool(false);
    case NODE_NONE:
        return make_none();
    case NODE_NAME:
        return look_up(r, n->name);
    case NODE_LIST:
    case NODE_TUPLE:
        return evaluate_list(r, n);
    case NODE_DICT:
        return evaluate_dict(r, n);
    case NODE_ATTRIBUTE:
        v = evaluate(r, n->a);
        r->line = n->line;
        return jinja_failed(r) ? v : jinja_get_attribute(r, &v, n->name);
    case NODE_ITEM: {
        value key;
        v = evaluate(r, n->a);
        key = evaluate(r, n->b);
        r->line = n->line;
        return jinja_failed(r) ? v : jinja_get_item(r, &v, &key);
    }
    case NODE_SLICE:
        return evaluate_slice(r, n);
    case NODE_CALL:
        return evaluate_call(r, n);
    case NODE_FILTER:
        return evaluate_filter(r, n, NULL);
    case NODE_TEST:
        return evaluate_test(r, n);
    case NODE_NOT:
        v = evaluate(r, n->a);
        return make_bool(!jinja_truth(&v));
    case NODE_NEGATE:
    case NODE_PLUS: {
        value zero = make_int(0);
        v = evaluate(r, n->a);
        if (v.kind == KIND_FLOAT && n->kind == NODE_NEGATE) return make_real(-v.real);
        return jinja_apply_operator(r, n->kind == NODE_PLUS ? OP_ADD : OP_SUBTRACT, &zero, &v);
    }
    case NODE_BINARY: {
        value b;
        v = evaluate(r, n->a);
        b = evaluate(r, n->b);
        r->line = n->line;
        return jinja_failed(r) ? v : jinja_apply_operator(r, n->operator, & v, &b);
    }
    case NODE_COMPARE:
        return evaluate_compare(r, n);
    case NODE_AND:
        v = evaluate(r, n->a);
        return jinja_truth(&v) ? evaluate(r, n->b) : v;
    case NODE_OR:
        v = evaluate(r, n->a);
        return jinja_truth(&v) ? v : evaluate(r, n->b);
    case NODE_IF_ELSE:
        v = evaluate(r, n->a);
        if (jinja_truth(&v)) return evaluate(r, n->b);
        return n->c ? evaluate(r, n->c) : make_undefined("an if without else");
    default:
        return jinja_fail(r, "no expression");
    }
}

static value evaluate(rendering *r, const node *n)
{
    value v = make_none();
    if (enter(r)) v = evaluate_inner(r, n);
    r->depth--;
    return v;
}

/* ---- statements ------------------------------------------------------------------------------ */

static void loop_name(rendering *r, dict *loop, const char *name, int64_t i)
{
    jinja_dict_set(r, loop, jinja_make_string(name), make_int(i));
}

/* loop.index and the rest, for item i. */
static value make_loop(rendering *r, const list *items, size_t i)
{
    dict *d = jinja_make_dict(r);
    int64_t n = (int64_t)items->n, at = (int64_t)i;
    loop_name(r, d, "index", at + 1);
    loop_name(r, d, "index0", at);
    loop_name(r, d, "revindex", n - at);
    loop_name(r, d, "revindex0", n - at - 1);
    loop_name(r, d, "length", n);
    jinja_dict_set(r, d, jinja_make_string("first"), make_bool(!i));
    jinja_dict_set(r, d, jinja_make_string("last"), make_bool(i + 1 == items->n));
    jinja_dict_set(r, d, jinja_make_string("previtem"),
                   i ? items->items[i - 1] : make_undefined("previtem"));
    jinja_dict_set(r, d, jinja_make_string("nextitem"),
                   i + 1 < items->n ? items->items[i + 1] : make_undefined("nextitem"));
    return (value){.kind = KIND_NAMESPACE, .dict = d};
}

/* The items that a loop's condition keeps. */
static const list *kept_items(rendering *r, const node *n, const list *items)
{
    if (!n->c) return items;
    list *kept = jinja_make_list(r);
    for (size_t i = 0; i < items->n && jinja_count_step(r); i++) {
        const scope *before = push_scope(r, r->scope);
        assign(r, n->a, &items->items[i]);
        value keep = evaluate(r, n->c);
        if (jinja_truth(&keep)) jinja_list_add(r, kept, items->items[i]);
        r->scope = (scope *)before;
    }
    return kept;
}

static void execute_for(rendering *r, const node *n)
{
    value v = evaluate(r, n->b);
    const list *items =
        jinja_failed(r) ? jinja_make_list(r) : kept_items(r, n, jinja_iterate(r, &v));
    if (!items->n && n->other && !jinja_failed(r)) execute(r, n->other);
    for (size_t i = 0; i < items->n && jinja_count_step(r); i++) {
        const scope *before = push_scope(r, r->scope);
        if (jinja_failed(r)) return;
        assign(r, n->a, &items->items[i]);
        jinja_dict_set(r, &r->scope->names, jinja_make_string("loop"), make_loop(r, items, i));
        execute(r, n->body);
        r->scope = (scope *)before;
        bool end = r->leaving == LEAVING_BREAK;
        r->leaving = LEAVING_NOT;
        if (end) break;
    }
}

static void execute_set(rendering *r, const node *n)
{
    value v = n->b ? evaluate(r, n->b) : make_text(capture(r, n->body));
    if (n->c && !jinja_failed(r)) v = evaluate_filter(r, n->c, &v);
    if (!jinja_failed(r)) assign(r, n->a, &v);
}

static value make_macro(rendering *r, const node *n)
{
    macro *m = jinja_take(r, sizeof *m);
    if (!m) return make_none();
    *m = (macro){.node = n, .scope = r->scope};
    return (value){.kind = KIND_MACRO, .macro = m};
}

/* The macro is called with its block as one more argument, caller. */
static void execute_call_block(rendering *r, const node *n)
{
    value callee = evaluate(r, n->a->a), caller = make_macro(r, n);
    arguments a = evaluate_arguments(r, n->a);
    text *names = jinja_take(r, (a.n_named + 1) * sizeof *names);
    value *named = jinja_take(r, (a.n_named + 1) * sizeof *named);
    if (jinja_failed(r)) return;
    for (size_t i = 0; i < a.n_named; i++) {
        names[i] = a.names[i];
        named[i] = a.named[i];
    }
    names[a.n_named] = (text){.bytes = "caller", .size = 6};
    named[a.n_named] = caller;
    a.names = names;
    a.named = named;
    a.n_named++;
    value v = jinja_call(r, &callee, &a);
    jinja_build_text(r, r->output, jinja_to_text(r, &v));
}

static void execute_with(rendering *r, const node *n)
{
    const scope *before = push_scope(r, r->scope);
    for (size_t i = 0; i < n->n && !jinja_failed(r); i++) execute(r, n->children[i]);
    execute(r, n->body);
    r->scope = (scope *)before;
}

static void execute_inner(rendering *r, const node *n)
{
    value v;
    switch (n->kind) {
    case NODE_BLOCK:
        for (size_t i = 0; i < n->n && !jinja_failed(r) && r->leaving == LEAVING_NOT; i++)
            execute(r, n->children[i]);
        break;
    case NODE_TEXT:
        jinja_build_bytes(r, r->output, n->name, n->size, false);
        break;
    case NODE_OUTPUT:
        v = evaluate(r, n->a);
        if (!jinja_failed(r)) jinja_build_text(r, r->output, jinja_to_text(r, &v));
        break;
    case NODE_IF:
        v = evaluate(r, n->a);
        if (jinja_failed(r)) break;
        if (jinja_truth(&v))
            execute(r, n->body);
        else if (n->other)
            execute(r, n->other);
        break;
    case NODE_FOR:
        execute_for(r, n);
        break;
    case NODE_SET:
        execute_set(r, n);
        break;
    case NODE_MACRO:
        jinja_dict_set(r, &r->scope->names, jinja_make_string(n->name), make_macro(r, n));
        break;
    case NODE_CALL_BLOCK:
        execute_call_block(r, n);
        break;
    case NODE_FILTER_BLOCK:
        v = make_text(capture(r, n->body));
        v = evaluate_filter(r, n->a, &v);
        if (!jinja_failed(r)) jinja_build_text(r, r->output, jinja_to_text(r, &v));
        break;
    case NODE_WITH:
        execute_with(r, n);
        break;
    case NODE_BREAK:
        r->leaving = LEAVING_BREAK;
        break;
    case NODE_CONTINUE:
        r->leaving = LEAVING_CONTINUE;
        break;
    default:
        jinja_fail(r, "no statement");
    }
}

static void execute(rendering *r, const node *n)
{
    if (enter(r)) {
        r->line = n->line;
        execute_inner(r, n);
    }
    r->depth--;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static pleach_status copy_out(const builder *b, pl_jinja_text *out, pleach_error *err)
{
    *out = (pl_jinja_text){.bytes = pl_alloc(b->size, 1), .said = pl_alloc(b->size, 1)};
    if (!out->bytes || !out->said) {
        pl_jinja_text_free(out);
        return pl_fail_memory(err, "a chat", 2 * b->size);
    }
    if (b->size) {
        memcpy(out->bytes, b->bytes, b->size);
        memcpy(out->said, b->said, b->size);
    }
    out->size = b->size;
    return PLEACH_OK;
}

/* Bytes of all strings in j: memory is allowed in proportion. */
static size_t json_bytes(const json_t *j)
{
    const char *key;
    json_t *v;
    size_t i, n = 64;
    if (json_is_string(j)) return n + json_string_length(j);
    if (json_is_object(j))
        json_object_foreach((json_t *)j, key, v) n += strlen(key) + json_bytes(v);
    if (json_is_array(j)) json_array_foreach(j, i, v) n += json_bytes(v);
    return n;
}

pleach_status pl_jinja_render(const pl_jinja *t, const json_t *said, const json_t *own,
                              const time_t *now, pl_jinja_text *out, pleach_error *err)
{
    builder output = {0};
    rendering r = {.said = said, .own = own, .now = now, .output = &output, .line = 1, .err = err};
    *out = (pl_jinja_text){0};
    r.memory.limit = MEMORY + 64 * (said ? json_bytes(said) : 0);
    r.scope = &r.globals;
    execute(&r, t->root);
    if (!jinja_failed(&r)) r.status = copy_out(&output, out, err);
    jinja_arena_free(&r.memory);
    return r.status;
}

void pl_jinja_text_free(pl_jinja_text *t)
{
    pl_free(t->bytes);
    pl_free(t->said);
    *t = (pl_jinja_text){0};
}
