/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators, and the functions that templates find without anybody giving them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "rendering.h"
#include "string_ops.h"

/* ---- operators ------------------------------------------------------------------------------- */

static value fail_operands(rendering *r, const char *operator, const value * a, const value *b)
{
    return jinja_fail(r, "unsupported operands for %s: %s and %s", operator, jinja_type_name(a),
                      jinja_type_name(b));
}

static int64_t whole(const value *v)
{
    return v->kind == KIND_BOOL ? v->boolean : v->integer;
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

static value whole_power(rendering *r, int64_t a, int64_t n)
{
    int64_t product = 1;
    if (n < 0) return make_real(pow((double)a, (double)n));
    if (a == 0 || a == 1) return make_int(n ? a : 1);
    if (a == -1) return make_int(n % 2 ? -1 : 1);
    for (; n; n--)
        if (__builtin_mul_overflow(product, a, &product)) return jinja_fail_limit(r, "digits");
    return make_int(product);
}

static value whole_arithmetic(rendering *r, operator_kind operator, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool over = false;
    if ((operator== OP_DIVIDE || operator== OP_FLOOR_DIVIDE || operator== OP_MODULO) && !b)
        return jinja_fail(r, "division by zero");
    if (b == -1 && (operator== OP_FLOOR_DIVIDE || operator== OP_MODULO)) {
        over = operator== OP_FLOOR_DIVIDE && __builtin_sub_overflow((int64_t)0, a, &result);
        return over ? jinja_fail_limit(r, "digits") : make_int(result);
    }
    switch (operator) {
    case OP_ADD:
        over = __builtin_add_overflow(a, b, &result);
        break;
    case OP_SUBTRACT:
        over = __builtin_sub_overflow(a, b, &result);
        break;
    case OP_MULTIPLY:
        over = __builtin_mul_overflow(a, b, &result);
        break;
    case OP_DIVIDE:
        return make_real((double)a / (double)b);
    case OP_FLOOR_DIVIDE:
        result = floor_divide(a, b);
        break;
    case OP_MODULO:
        result = a - floor_divide(a, b) * b;
        break;
    default:
        return whole_power(r, a, b);
    }
    return over ? jinja_fail_limit(r, "digits") : make_int(result);
}

static value real_arithmetic(rendering *r, operator_kind operator, double a, double b)
{
    if ((operator== OP_DIVIDE || operator== OP_FLOOR_DIVIDE || operator== OP_MODULO) && b == 0)
        return jinja_fail(r, "division by zero");
    switch (operator) {
    case OP_ADD:
        return make_real(a + b);
    case OP_SUBTRACT:
        return make_real(a - b);
    case OP_MULTIPLY:
        return make_real(a * b);
    case OP_DIVIDE:
        return make_real(a / b);
    case OP_FLOOR_DIVIDE:
        return make_real(floor(a / b));
    case OP_MODULO:
        return make_real(a - floor(a / b) * b);
    default:
        return make_real(pow(a, b));
    }
}

/* n times a text or a list. */
static value repeat(rendering *r, const value *v, int64_t n)
{
    builder b = {0};
    list *l = jinja_make_list(r);
    for (int64_t i = 0; i < n && jinja_count_step(r); i++) {
        if (v->kind == KIND_STRING) {
            if (!v->text.size) break;
            jinja_build_text(r, &b, v->text);
            continue;
        }
        if (!v->list->n) break;
        for (size_t j = 0; j < v->list->n; j++) jinja_list_add(r, l, v->list->items[j]);
    }
    return v->kind == KIND_STRING ? make_text(jinja_build_end(&b)) : jinja_list_value(l);
}

static value concatenate(rendering *r, const list *a, const list *b)
{
    list *l = jinja_make_list(r);
    for (size_t i = 0; i < a->n; i++) jinja_list_add(r, l, a->items[i]);
    for (size_t i = 0; i < b->n; i++) jinja_list_add(r, l, b->items[i]);
    if (!jinja_failed(r)) l->tuple = a->tuple;
    return jinja_list_value(l);
}

/* "%s and %d" % (a, b) */
static value format_text(rendering *r, text form, const value *items, size_t n)
{
    builder b = {0};
    size_t used = 0;
    for (size_t i = 0; i < form.size && !jinja_failed(r); i++) {
        if (form.bytes[i] != '%') {
            jinja_build_text(r, &b, jinja_text_part(form, i, i + 1));
            continue;
        }
        char spec[16] = "%", number[400];
        size_t k = 1;
        for (i++;
             i < form.size && k < 10 && form.bytes[i] && strchr("0123456789.+- ", form.bytes[i]);)
            spec[k++] = form.bytes[i++];
        char type = i < form.size ? form.bytes[i] : 0;
        if (type == '%') {
            jinja_build_string(r, &b, "%");
            continue;
        }
        if (used >= n) return jinja_fail(r, "more places in a format than values");
        const value *v = &items[used++];
        if (type == 's') {
            jinja_build_text(r, &b, jinja_to_text(r, v));
        } else if (type == 'r') {
            jinja_build_repr(r, &b, v);
        } else if (jinja_is_number(v) && (type == 'd' || type == 'i')) {
            snprintf(spec + k, sizeof spec - k, "lld");
            long long whole_number = v->kind == KIND_FLOAT
                                         ? (long long)fmin(fmax(v->real, -9e18), 9e18)
                                         : (long long)whole(v);
            snprintf(number, sizeof number, spec, whole_number);
            jinja_build_string(r, &b, number);
        } else if (jinja_is_number(v) && type && strchr("feg", type)) {
            snprintf(spec + k, sizeof spec - k, "%c", type);
            snprintf(number, sizeof number, spec, jinja_as_real(v));
            jinja_build_string(r, &b, number);
        } else {
            return jinja_fail(r, "a format %%%c of a value of type %s", type ? type : ' ',
                              jinja_type_name(v));
        }
    }
    return make_text(jinja_build_end(&b));
}

static value add_texts(rendering *r, text a, text b)
{
    bool markup = a.markup || b.markup;
    if (markup && !a.markup) a = jinja_escape_text(r, a);
    if (markup && !b.markup) b = jinja_escape_text(r, b);
    text both = jinja_text_join(r, a, b);
    both.markup = markup;
    return make_text(both);
}

static value sum(rendering *r, operator_kind operator, const value * a, const value *b)
{
    if (operator== OP_ADD && a->kind == KIND_STRING && b->kind == KIND_STRING)
        return add_texts(r, a->text, b->text);
    if (operator== OP_ADD && a->kind == KIND_LIST && b->kind == KIND_LIST)
        return concatenate(r, a->list, b->list);
    if (operator== OP_MULTIPLY &&(a->kind == KIND_STRING || a->kind == KIND_LIST) &&
        b->kind == KIND_INT)
        return repeat(r, a, b->integer);
    if (operator== OP_MULTIPLY &&
        a->kind == KIND_INT &&(b->kind == KIND_STRING || b->kind == KIND_LIST))
        return repeat(r, b, a->integer);
    if (operator== OP_MODULO && a->kind == KIND_STRING)
        return b->kind == KIND_LIST && b->list->tuple
                   ? format_text(r, a->text, b->list->items, b->list->n)
                   : format_text(r, a->text, b, 1);
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (!jinja_is_number(a) || !jinja_is_number(b)) {
        const value *missing = a->kind == KIND_UNDEFINED ? a : b;
        if (missing->kind == KIND_UNDEFINED)
            return jinja_fail(r, "'%s' is undefined", missing->name);
        return fail_operands(r, names[operator], a, b);
    }
    if (a->kind == KIND_FLOAT || b->kind == KIND_FLOAT)
        return real_arithmetic(r, operator, jinja_as_real(a), jinja_as_real(b));
    return whole_arithmetic(r, operator, whole(a), whole(b));
}

value jinja_apply_operator(rendering *r, operator_kind operator, const value * a, const value *b)
{
    switch (operator) {
    case OP_JOIN:
        return make_text(jinja_text_join(r, jinja_to_text(r, a), jinja_to_text(r, b)));
    case OP_EQUAL:
        return make_bool(jinja_equal(a, b));
    case OP_UNEQUAL:
        return make_bool(!jinja_equal(a, b));
    case OP_LESS:
        return make_bool(jinja_compare(r, a, b) < 0);
    case OP_LESS_EQUAL:
        return make_bool(jinja_compare(r, a, b) <= 0);
    case OP_GREATER:
        return make_bool(jinja_compare(r, a, b) > 0);
    case OP_GREATER_EQUAL:
        return make_bool(jinja_compare(r, a, b) >= 0);
    case OP_IN:
        return make_bool(jinja_contains(r, a, b));
    case OP_NOT_IN:
        return make_bool(!jinja_contains(r, a, b));
    default:
        return sum(r, operator, a, b);
    }
}

/* ---- functions ------------------------------------------------------------------------------- */

static value range_function(rendering *r, const arguments *a)
{
    int64_t from = a->n > 1 ? jinja_int_argument(r, a, 0, "range's begin", 0) : 0;
    int64_t to = jinja_int_argument(r, a, a->n > 1, "range's end", 0);
    int64_t step = jinja_int_argument(r, a, 2, "range's step", 1);
    list *l = jinja_make_list(r);
    if (!step) return jinja_fail(r, "range's step is 0");
    for (int64_t i = from; (step > 0 ? i < to : i > to) && jinja_count_step(r);) {
        jinja_list_add(r, l, make_int(i));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return jinja_list_value(l);
}

static dict *dict_of_arguments(rendering *r, const arguments *a)
{
    dict *d = jinja_make_dict(r);
    for (size_t i = 0; i < a->n; i++) {
        const value *v = &a->items[i];
        if (v->kind != KIND_DICT && v->kind != KIND_NAMESPACE)
            jinja_fail(r, "expected a dict, not %s", jinja_type_name(v));
        else
            for (size_t j = 0; j < v->dict->n; j++)
                jinja_dict_set(r, d, v->dict->keys[j], v->dict->values[j]);
    }
    for (size_t i = 0; i < a->n_named; i++)
        jinja_dict_set(r, d, make_text(a->names[i]), a->named[i]);
    return d;
}

static value namespace_function(rendering *r, const arguments *a)
{
    return (value){.kind = KIND_NAMESPACE, .dict = dict_of_arguments(r, a)};
}

static value dict_function(rendering *r, const arguments *a)
{
    return jinja_dict_value(dict_of_arguments(r, a));
}

/* The template's own refusal: its words alone. */
static value raise_function(rendering *r, const arguments *a)
{
    text t = jinja_text_argument(r, a, 0, "the message", "the template refuses");
    if (!jinja_failed(r))
        r->status = pl_fail(r->err, PLEACH_ERR_ARGUMENT, "chat template: %.*s",
                            (int)PL_MIN(t.size, (size_t)400), t.bytes);
    return make_none();
}

static value now_function(rendering *r, const arguments *a)
{
    char form[128], date[256];
    text t = jinja_text_argument(r, a, 0, "the format", "%Y-%m-%d");
    time_t now = r->now ? *r->now : time(NULL);
    struct tm parts = {0};
    if (t.size >= sizeof form) return jinja_fail_limit(r, "characters in a date's format");
    memcpy(form, t.bytes, t.size);
    form[t.size] = 0;
    localtime_r(&now, &parts);
    size_t n = strftime(date, sizeof date, form, &parts);
    builder b = {0};
    jinja_build_bytes(r, &b, date, n, false);
    return make_text(jinja_build_end(&b));
}

value jinja_global_function(const char *name)
{
    static const struct {
        const char *name;
        function *function;
    } functions[] = {{"range", range_function},
                     {"namespace", namespace_function},
                     {"dict", dict_function},
                     {"raise_exception", raise_function},
                     {"strftime_now", now_function}};
    for (size_t i = 0; i < PL_COUNT(functions); i++)
        if (!strcmp(functions[i].name, name))
            return (value){.kind = KIND_FUNCTION, .function = functions[i].function};
    return make_undefined(name);
}
