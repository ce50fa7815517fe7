/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls as Qwen3-Coder writes them. Parameters become members of a JSON object: what the schema
 * calls a string is shown as it comes; other values wait until they are whole, and are strings
 * where they are no JSON. */
#include "answer_parts.h"
#include "markers.h"
#include "tools.h"

enum { LONGEST_NAME = 128 }; /* of functions and parameters */

/* What is not shown yet: from the name's end on everything read is done. */
static const char *rest(const pl_answer *a, size_t *n)
{
    size_t done = a->split.at + a->split.pos;
    *n = a->ready - done;
    return a->text.data + done;
}

static void skip(pl_answer *a, size_t n)
{
    a->split.at += a->split.pos + n;
    a->split.pos = 0;
}

static pleach_status show(pl_answer *a, const char *text, pleach_error *err)
{
    return pl_answer_emit(a, PL_ANSWER_ARGUMENTS, text, strlen(text), err);
}

/* The name up to '>', NUL-terminated; its size, 0 where there is none (yet: *state). */
static size_t read_name(const pl_answer *a, char name[LONGEST_NAME + 1], pl_call_state *state)
{
    size_t n, i = 0;
    const char *p = rest(a, &n);
    while (i < n && i < LONGEST_NAME && p[i] != '>' && p[i] != '<' && p[i] != '\n' && p[i]) i++;
    *state = i == n ? PL_CALL_WAITS : PL_CALL_BAD;
    if (i == n || p[i] != '>') return 0;
    memcpy(name, p, i);
    name[i] = 0;
    return i;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* How Python writes constants. */
static const char *python_constant(const char *s, size_t n)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < PL_COUNT(words); i++)
        if (strlen(words[i][0]) == n && !memcmp(words[i][0], s, n)) return words[i][1];
    return NULL;
}

static bool is_json(const char *s, size_t n)
{
    json_t *j = json_loadb(s, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    bool yes = j != NULL;
    json_decref(j);
    return yes;
}

/* s[0..n) is the beginning of a JSON value. */
static bool begins_json(const char *s, size_t n)
{
    pl_json_scan scan = {0};
    for (size_t i = 0; i < n; i++)
        if ((scan.state == PL_JSON_STRING && (unsigned char)s[i] < 0x20) ||
            !pl_json_scan_take(&scan, s[i]))
            return false;
    return true;
}

/* A value that waited. `cut`: the answer ends within. */
static pleach_status show_value(pl_answer *a, const char *s, size_t n, bool cut, pleach_error *err)
{
    const char *end = s + n, *constant;
    const char *from = s, *to = end;
    while (from < to && pl_json_blank(*from)) from++;
    while (to > from && pl_json_blank(to[-1])) to--;
    size_t size = (size_t)(to - from);
    if (cut ? begins_json(from, size) : is_json(from, size))
        return pl_answer_emit(a, PL_ANSWER_ARGUMENTS, from, size, err);
    if (!cut && (constant = python_constant(from, size))) return show(a, constant, err);
    PL_TRY(show(a, "\"", err));
    PL_TRY(pl_answer_emit_escaped(a, s, n, err));
    return cut ? PLEACH_OK : show(a, "\"", err);
}

/* Where the value's end is, or from where it may begin. The line end before it is not the value's.
 */
static pl_match find_end(const pl_answer *a, bool last, size_t *size, size_t *marker)
{
    size_t n, i = a->split.xml.scan;
    const char *p = rest(a, &n);
    pl_match match = PL_MATCH_NO;
    for (; i < n; i++) {
        if (p[i] != '<') continue;
        match = pl_match_marker(p + i, n - i, PL_PARAMETER_END, last);
        if (match != PL_MATCH_NO) break;
    }
    *marker = i;
    *size = i && p[i - 1] == '\n' && (match != PL_MATCH_NO || !last) ? i - 1 : i;
    return match;
}

static pleach_status read_value(pl_answer *a, bool last, pl_call_state *state, pleach_error *err)
{
    pl_xml_call *x = &a->split.xml;
    size_t n, size, marker;
    const char *p = rest(a, &n);
    if (!x->began && n) {
        skip(a, p[0] == '\n');
        x->began = true;
        p = rest(a, &n);
    }
    pl_match match = find_end(a, last, &size, &marker);
    bool whole = match == PL_MATCH_ALL;
    *state = whole ? PL_CALL_DONE : PL_CALL_WAITS;
    if (x->string) {
        PL_TRY(pl_answer_emit_escaped(a, p, size, err));
        if (whole) PL_TRY(show(a, "\"", err));
    } else if (whole || last) {
        PL_TRY(show_value(a, p, size, !whole, err));
    }
    size_t shown = whole ? marker + strlen(PL_PARAMETER_END) : x->string || last ? size : 0;
    skip(a, shown);
    x->scan = whole ? 0 : marker - shown;
    if (whole) x->where = PL_XML_BETWEEN;
    return PLEACH_OK;
}

/* ---- names and what is between --------------------------------------------------------------- */

static pleach_status read_function(pl_answer *a, pl_call_state *state, pleach_error *err)
{
    char name[LONGEST_NAME + 1];
    pl_xml_call *x = &a->split.xml;
    size_t n = read_name(a, name, state);
    if (!n || !pl_tools_allow(a->set.tool_list, name)) {
        if (n) *state = PL_CALL_BAD;
        return PLEACH_OK;
    }
    const json_t *f = pl_tools_find(a->set.tool_list, name);
    x->properties = json_object_get(json_object_get(f, "parameters"), "properties");
    x->where = PL_XML_BETWEEN;
    skip(a, n + 1);
    *state = PL_CALL_DONE;
    PL_TRY(pl_answer_begin_call(a, name, err));
    return show(a, "{", err);
}

static pleach_status read_key(pl_answer *a, pl_call_state *state, pleach_error *err)
{
    char name[LONGEST_NAME + 1];
    pl_xml_call *x = &a->split.xml;
    size_t n = read_name(a, name, state);
    if (!n) return PLEACH_OK;
    skip(a, n + 1);
    *state = PL_CALL_DONE;
    PL_TRY(show(a, x->any ? ", \"" : "\"", err));
    PL_TRY(pl_answer_emit_escaped(a, name, n, err));
    x->any = true;
    x->string = pl_tools_is_string(json_object_get(x->properties, name));
    x->began = false;
    x->scan = 0;
    x->where = PL_XML_VALUE;
    return show(a, x->string ? "\": \"" : "\": ", err);
}

static pleach_status read_between(pl_answer *a, bool last, bool *ended, pl_call_state *state,
                                  pleach_error *err)
{
    size_t n;
    const char *p = rest(a, &n);
    while (n && pl_json_blank(*p)) skip(a, 1), p = rest(a, &n);
    pl_match parameter = pl_match_marker(p, n, PL_PARAMETER, last);
    pl_match end = pl_match_marker(p, n, PL_FUNCTION_END, last);
    pl_match call_end = pl_match_marker(p, n, PL_CALL_END, last);
    *state = PL_CALL_DONE;
    if (parameter == PL_MATCH_ALL) {
        skip(a, strlen(PL_PARAMETER));
        a->split.xml.where = PL_XML_KEY;
    } else if (end == PL_MATCH_ALL || call_end == PL_MATCH_ALL) { /* which some models leave out */
        if (end == PL_MATCH_ALL) skip(a, strlen(PL_FUNCTION_END));
        *ended = true;
        return show(a, "}", err);
    } else {
        bool part = parameter || end || call_end || !n;
        *state = part ? PL_CALL_WAITS : PL_CALL_BAD;
    }
    return PLEACH_OK;
}

pleach_status pl_xml_call_read(pl_answer *a, bool last, pl_call_state *state, pleach_error *err)
{
    bool ended = false;
    *state = PL_CALL_DONE; /* of a step */
    while (*state == PL_CALL_DONE && !ended) {
        switch (a->split.xml.where) {
        case PL_XML_NAME:
            PL_TRY(read_function(a, state, err));
            break;
        case PL_XML_BETWEEN:
            PL_TRY(read_between(a, last, &ended, state, err));
            break;
        case PL_XML_KEY:
            PL_TRY(read_key(a, state, err));
            break;
        case PL_XML_VALUE:
            PL_TRY(read_value(a, last, state, err));
            break;
        }
    }
    return PLEACH_OK;
}
