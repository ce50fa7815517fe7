/* SPDX-License-Identifier: Apache-2.0
 *
 * Oniguruma patterns on PCRE2.
 *
 * Nothing here recurses on the length of the text: PCRE2 keeps its backtracking points on the heap,
 * and its compiled (JIT) form uses a fixed 32 KiB of stack and is left for the interpreter when
 * that is too little. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pattern.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdint.h>
#include <string.h>

#include "buffer.h"

struct pl_pattern {
    pcre2_code *code;
    char text[64]; /* its beginning, for error lines */
};

struct pl_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
};

/* ---- translation --------------------------------------------------------------------------- */

typedef struct translation {
    const char *name, *at, *end;
    pl_buffer out;
    pleach_error *err;
} translation;

/* Oniguruma's \w: PCRE2's lacks marks and connectors and has all numbers. The six numbers are the
 * superscripts and fractions of Latin-1. */
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

static pleach_status put(translation *t, const char *s)
{
    return pl_buffer_append(&t->out, s, strlen(s), t->err);
}

static pleach_status copy(translation *t, size_t n)
{
    PL_TRY(pl_buffer_append(&t->out, t->at, n, t->err));
    t->at += n;
    return PLEACH_OK;
}

static pleach_status refuse(const translation *t, const char *what)
{
    return pl_fail(t->err, PLEACH_ERR_UNSUPPORTED, "%s: %s in a pattern is not supported", t->name,
                   what);
}

static bool hex_digits(const translation *t, const char *at, size_t n)
{
    if ((size_t)(t->end - at) < n) return false;
    for (size_t i = 0; i < n; i++)
        if (!isxdigit((unsigned char)at[i])) return false;
    return true;
}

/* \p{...}, \P{...}, \x{...}: copied through the brace. */
static pleach_status copy_braced(translation *t)
{
    const char *close = t->at + 2 < t->end && t->at[2] == '{'
                            ? memchr(t->at, '}', (size_t)(t->end - t->at))
                            : NULL;
    if (!close) return refuse(t, "an escape without braces");
    return copy(t, (size_t)(close + 1 - t->at));
}

static pleach_status translate_escape(translation *t, bool in_class)
{
    if (t->end - t->at < 2) return refuse(t, "a backslash at the end");
    char c = t->at[1];
    switch (c) {
    case 's': t->at += 2; return put(t, "\\p{White_Space}");
    case 'S': t->at += 2; return put(t, "\\P{White_Space}");
    case 'w': t->at += 2; return put(t, in_class ? WORD : "[" WORD "]");
    case 'W':
        if (in_class) return refuse(t, "\\W inside a class");
        t->at += 2;
        return put(t, "[^" WORD "]");
    case 'v': t->at += 2; return put(t, "\\x0b");
    case 'p': case 'P': return copy_braced(t);
    case 'x': return hex_digits(t, t->at + 2, 2) ? copy(t, 4) : copy_braced(t);
    case 'u': {
        if (!hex_digits(t, t->at + 2, 4)) return refuse(t, "\\u without four digits");
        char code[16] = "\\x{....}";
        memcpy(code + 3, t->at + 2, 4);
        t->at += 6;
        return put(t, code);
    }
    case 'd': case 'D': case 'r': case 'n': case 't': case 'f': case 'a': case 'e':
        return copy(t, 2);
    case 'A': case 'z': case 'Z':
        if (!in_class) return copy(t, 2);
        break;
    default:
        if (!isalnum((unsigned char)c)) return copy(t, 1 + ((unsigned char)c < 0x80));
    }
    char what[] = "the escape \\?";
    what[sizeof what - 2] = c;
    return refuse(t, what);
}

/* A class without nesting and intersection, which PCRE2 10.42 does not know. */
static pleach_status translate_class(translation *t)
{
    PL_TRY(copy(t, 1));
    if (t->at < t->end && *t->at == '^') PL_TRY(copy(t, 1));
    if (t->at < t->end && *t->at == ']') return refuse(t, "a class that begins with ]");
    while (t->at < t->end && *t->at != ']') {
        if (*t->at == '[') return refuse(t, "a class inside a class");
        if (*t->at == '&' && t->at + 1 < t->end && t->at[1] == '&')
            return refuse(t, "&& inside a class");
        PL_TRY(*t->at == '\\' ? translate_escape(t, true) : copy(t, 1));
    }
    if (t->at == t->end) return refuse(t, "a class without an end");
    return copy(t, 1);
}

/* What follows "(": the kinds of groups that mean the same in both. */
static pleach_status translate_group(translation *t, bool first)
{
    static const char *const same[] = {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:", "?-i:"};
    PL_TRY(copy(t, 1));
    size_t left = (size_t)(t->end - t->at);
    if (!left || (*t->at != '?' && *t->at != '*')) return PLEACH_OK;
    for (size_t i = 0; i < PL_COUNT(same); i++) {
        size_t n = strlen(same[i]);
        if (left >= n && !memcmp(t->at, same[i], n)) return copy(t, n);
    }
    if (first && left >= 3 && !memcmp(t->at, "?i)", 3)) return copy(t, 3);
    return refuse(t, "this kind of group");
}

/* {n}, {n,}, {,m}, {n,m}; other braces are themselves in both. A + or ? after the brace means
 * something else in Ruby than in PCRE2. */
static pleach_status translate_interval(translation *t)
{
    const char *at = t->at + 1;
    while (at < t->end && isdigit((unsigned char)*at)) at++;
    bool from = at > t->at + 1, to = false;
    if (at < t->end && *at == ',')
        for (at++; at < t->end && isdigit((unsigned char)*at); at++) to = true;
    if (at == t->end || *at != '}' || (!from && !to)) return copy(t, 1);
    if (at + 1 < t->end && (at[1] == '+' || at[1] == '?'))
        return refuse(t, "an interval followed by + or ?");
    if (from) return copy(t, (size_t)(at + 1 - t->at));
    t->at++;
    PL_TRY(put(t, "{0"));
    return copy(t, (size_t)(at + 1 - t->at));
}

static pleach_status translate(translation *t)
{
    const char *begin = t->at;
    while (t->at < t->end) {
        switch (*t->at) {
        case '\\': PL_TRY(translate_escape(t, false)); break;
        case '[': PL_TRY(translate_class(t)); break;
        case '(': PL_TRY(translate_group(t, t->at == begin)); break;
        case '{': PL_TRY(translate_interval(t)); break;
        default: PL_TRY(copy(t, 1));
        }
    }
    return PLEACH_OK;
}

/* ---- compiling ----------------------------------------------------------------------------- */

static pleach_status compile(const char *name, const char *text, size_t size, uint32_t options,
                             pl_pattern *p, pleach_error *err)
{
    int code;
    PCRE2_SIZE where;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) return pl_fail_memory(err, "a pattern", size);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF); /* '.' stops at \n alone, as in Oniguruma */
    p->code = pcre2_compile((PCRE2_SPTR)text, size, options, &code, &where, context);
    pcre2_compile_context_free(context);
    if (!p->code) {
        char why[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return pl_fail(err, PLEACH_ERR_UNSUPPORTED, "%s: pattern %s: %s", name, p->text, why);
    }
    pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* where it fails the interpreter serves */
    return PLEACH_OK;
}

pleach_status pl_pattern_create(const char *name, const char *text, size_t size, bool literal,
                                pl_pattern **out, pleach_error *err)
{
    PL_FAIL_IF(!size, err, PLEACH_ERR_UNSUPPORTED, "%s: an empty pattern", name);
    pl_pattern *p = pl_calloc(1, sizeof *p);
    if (!p) return pl_fail_memory(err, "a pattern", sizeof *p);
    memcpy(p->text, text, PL_MIN(size, sizeof p->text - 1));
    translation t = {.name = name, .at = text, .end = text + size, .err = err};
    pleach_status status = PLEACH_OK;
    if (literal) {
        status = compile(name, text, size, PCRE2_UTF | PCRE2_LITERAL, p, err);
    } else {
        status = translate(&t);
        /* Ruby's ^ and $ are always those of lines. */
        uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
        if (!status) status = compile(name, t.out.data, t.out.size, options, p, err);
    }
    pl_free(t.out.data);
    if (status) {
        pl_pattern_free(p);
        return status;
    }
    *out = p;
    return PLEACH_OK;
}

void pl_pattern_free(pl_pattern *p)
{
    if (!p) return;
    pcre2_code_free(p->code);
    pl_free(p);
}

/* ---- matching ------------------------------------------------------------------------------ */

pleach_status pl_matcher_create(pl_matcher **out, pleach_error *err)
{
    pl_matcher *m = pl_calloc(1, sizeof *m);
    if (m) {
        m->data = pcre2_match_data_create(1, NULL);
        m->context = pcre2_match_context_create(NULL);
    }
    if (!m || !m->data || !m->context) {
        pl_matcher_free(m);
        return pl_fail_memory(err, "pattern matching", sizeof *m);
    }
    /* Time is bounded by the match limit, set for each text. */
    pcre2_set_depth_limit(m->context, UINT32_MAX);
    pcre2_set_heap_limit(m->context, UINT32_MAX);
    *out = m;
    return PLEACH_OK;
}

void pl_matcher_free(pl_matcher *m)
{
    if (!m) return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pl_free(m);
}

pleach_status pl_pattern_find(const pl_pattern *p, pl_matcher *m, const char *text, size_t size,
                              size_t from, bool *found, size_t *start, size_t *end,
                              pleach_error *err)
{
    /* A run of n characters costs a usual pattern a few n steps; one that takes far more doubles
     * its work with every character, and would never end. */
    uint64_t limit = 10000000 + 64 * (uint64_t)size;
    pcre2_set_match_limit(m->context, (uint32_t)PL_MIN(limit, UINT32_MAX));
    int rc = pcre2_match(p->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK, m->data,
                         m->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(p->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         m->data, m->context);
    *found = rc >= 0;
    if (rc == PCRE2_ERROR_NOMATCH) return PLEACH_OK;
    if (rc < 0) {
        char why[128] = "";
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
        return pl_fail(err, rc == PCRE2_ERROR_NOMEMORY ? PLEACH_ERR_MEMORY : PLEACH_ERR_LIMIT,
                       "pattern %s on a text of %zu bytes: %s", p->text, size, why);
    }
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(m->data);
    *start = range[0];
    *end = range[1];
    return PLEACH_OK;
}
