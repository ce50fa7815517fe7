/* SPDX-License-Identifier: Apache-2.0
 *
 * One phase after another: each takes what it can decide on and leaves the rest until more comes.
 * Every byte is looked at a bounded number of times: what was looked at and waits is remembered,
 * and a call that turns out to be none is read again as content but once. */
#include "split.h"

#include "answer_parts.h"
#include "markers.h"

/* Before calls. */
static const char *const call_marker[] = {
    [PL_TOOLS_HERMES] = PL_CALL,
    [PL_TOOLS_XML] = PL_CALL,
    [PL_TOOLS_LLAMA] = PL_CALL_LLAMA,
    [PL_TOOLS_MISTRAL] = PL_CALLS_MISTRAL,
};

void pl_splitter_begin(pl_splitter *s, const pl_answer_settings *set)
{
    *s = (pl_splitter){.phase = set->reasoning ? PL_SPLIT_BEGIN : PL_SPLIT_ANSWER};
    if (!set->in_reasoning) return;
    s->phase = PL_SPLIT_REASONING;
    s->trim = true;
}

static bool is(const char *marker, const char *literal, size_t size)
{
    return marker && strlen(marker) == size && !memcmp(marker, literal, size);
}

bool pl_splitter_knows(const pl_answer_settings *set, const char *literal, size_t size)
{
    bool reasoning = set->reasoning || set->in_reasoning;
    if (reasoning && (is(PL_THINK, literal, size) || is(PL_THINK_END, literal, size))) return true;
    return set->tools &&
           (is(call_marker[set->tools], literal, size) || is(PL_CALL_END, literal, size));
}

pl_match pl_match_marker(const char *text, size_t size, const char *marker, bool last)
{
    size_t whole = strlen(marker);
    if (memcmp(text, marker, PL_MIN(size, whole))) return PL_MATCH_NO;
    if (size >= whole) return PL_MATCH_ALL;
    return last ? PL_MATCH_NO : PL_MATCH_PART;
}

/* ---- the text that is ready ------------------------------------------------------------------ */

static const char *text_of(const pl_answer *a, size_t *n)
{
    *n = a->ready - a->split.at;
    return a->text.data + a->split.at;
}

static void skip(pl_splitter *s, size_t n)
{
    s->at += n;
    s->scan = 0;
}

static pleach_status show(pl_answer *a, pl_answer_part part, size_t n, pleach_error *err)
{
    size_t ready;
    PL_TRY(pl_answer_emit(a, part, text_of(a, &ready), n, err));
    skip(&a->split, n);
    return PLEACH_OK;
}

/* Where the blanks end that the text begins with; those looked at before count as such. */
static size_t blanks_end(pl_answer *a)
{
    size_t n, i = a->split.scan;
    const char *p = text_of(a, &n);
    while (i < n && pl_json_blank(p[i])) i++;
    return a->split.scan = i;
}

static void trim(pl_answer *a)
{
    size_t n;
    if (!a->split.trim) return;
    skip(&a->split, blanks_end(a));
    text_of(a, &n);
    if (n) a->split.trim = false;
}

static bool enter(pl_splitter *s, int phase)
{
    s->phase = phase;
    s->scan = 0;
    return true;
}

/* ---- reasoning and content ------------------------------------------------------------------- */

/* Shows the text up to the marker (NULL: none) and the blanks before it, which wait. *mark: where
 * it begins, behind the blanks; SIZE_MAX: nowhere yet. */
static pleach_status show_until(pl_answer *a, pl_answer_part part, const char *marker, bool last,
                                size_t *mark, pleach_error *err)
{
    size_t n, solid = 0, i = a->split.scan;
    const char *p = text_of(a, &n);
    pl_match match = PL_MATCH_NO;
    for (; i < n; i++) {
        if (pl_json_blank(p[i])) continue;
        match =
            marker && p[i] == marker[0] ? pl_match_marker(p + i, n - i, marker, last) : PL_MATCH_NO;
        if (match != PL_MATCH_NO) break;
        solid = i + 1;
    }
    if (solid) PL_TRY(show(a, part, solid, err));
    a->split.scan = i - solid;
    *mark = match == PL_MATCH_ALL ? i - solid : SIZE_MAX;
    return PLEACH_OK;
}

static bool begin(pl_answer *a, bool last)
{
    size_t n, i = blanks_end(a);
    const char *p = text_of(a, &n);
    pl_match match = pl_match_marker(p + i, n - i, PL_THINK, last);
    if (match == PL_MATCH_PART) return false;
    if (match == PL_MATCH_NO) return enter(&a->split, PL_SPLIT_ANSWER);
    skip(&a->split, i + strlen(PL_THINK));
    a->split.trim = true;
    return enter(&a->split, PL_SPLIT_REASONING);
}

static pleach_status reasoning(pl_answer *a, bool last, bool *more, pleach_error *err)
{
    size_t mark;
    trim(a);
    PL_TRY(show_until(a, PL_ANSWER_REASONING, PL_THINK_END, last, &mark, err));
    if (mark == SIZE_MAX) return PLEACH_OK;
    skip(&a->split, mark + strlen(PL_THINK_END));
    a->split.trim = true;
    *more = enter(&a->split, PL_SPLIT_ANSWER);
    return PLEACH_OK;
}

static void begin_call(pl_answer *a, size_t head)
{
    pl_splitter *s = &a->split;
    s->head = s->pos = head;
    s->kind = PL_CALL_UNKNOWN;
    s->shown = false;
    enter(s, PL_SPLIT_CALL);
}

/* The answer's beginning: where a model writes calls without a marker, a brace here is one. */
static bool answer(pl_answer *a, bool last)
{
    size_t n;
    trim(a);
    const char *p = text_of(a, &n);
    if (!n) return false;
    if (a->set.tools != PL_TOOLS_LLAMA) return enter(&a->split, PL_SPLIT_CONTENT);
    size_t i = blanks_end(a);
    if (i == n && !last) return false;
    if (i < n && p[i] == '{')
        begin_call(a, i);
    else
        enter(&a->split, PL_SPLIT_CONTENT);
    return true;
}

static pleach_status content(pl_answer *a, bool last, bool *more, pleach_error *err)
{
    size_t mark, n;
    const char *marker = call_marker[a->set.tools];
    PL_TRY(show_until(a, PL_ANSWER_CONTENT, marker, last, &mark, err));
    if (mark != SIZE_MAX) {
        a->split.open = true;
        begin_call(a, mark + strlen(marker));
        *more = true;
        return PLEACH_OK;
    }
    text_of(a, &n);
    /* Blanks wait for a call alone, before which they are left out. */
    return last || !marker ? show(a, PL_ANSWER_CONTENT, n, err) : PLEACH_OK;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Finds out how the call is written. */
static pl_call_state call_kind(pl_answer *a, bool last)
{
    pl_splitter *s = &a->split;
    size_t n;
    const char *p = text_of(a, &n);
    while (s->pos < n &&
           (pl_json_blank(p[s->pos]) || (a->set.tools == PL_TOOLS_MISTRAL && p[s->pos] == '[')))
        s->pos++;
    if (s->pos == n) return PL_CALL_WAITS;
    if (p[s->pos] == '{') {
        s->kind = PL_CALL_JSON;
        s->json = (pl_json_call){0};
        return PL_CALL_WAITS;
    }
    pl_match match = pl_match_marker(p + s->pos, n - s->pos, PL_FUNCTION, last);
    if (match == PL_MATCH_NO) return PL_CALL_BAD;
    if (match == PL_MATCH_PART) return PL_CALL_WAITS;
    s->pos += strlen(PL_FUNCTION);
    s->kind = PL_CALL_XML;
    s->xml = (pl_xml_call){0};
    return PL_CALL_WAITS;
}

static pleach_status read_call(pl_answer *a, bool last, pl_call_state *state, pleach_error *err)
{
    *state = PL_CALL_WAITS;
    if (a->split.kind == PL_CALL_UNKNOWN) *state = call_kind(a, last);
    if (a->split.kind == PL_CALL_JSON) return pl_json_call_read(a, state, err);
    if (a->split.kind == PL_CALL_XML) return pl_xml_call_read(a, last, state, err);
    return PLEACH_OK;
}

/* What is behind the call is no part of the answer. */
static void end_answer(pl_answer *a)
{
    a->stopped = true;
    a->text.size = a->ready = a->split.at;
}

static pleach_status call(pl_answer *a, bool last, bool *more, pleach_error *err)
{
    pl_splitter *s = &a->split;
    pl_call_state state;
    PL_TRY(read_call(a, last, &state, err));
    if (state == PL_CALL_WAITS && last && !s->shown) state = PL_CALL_BAD;
    *more = state != PL_CALL_WAITS;
    if (state == PL_CALL_DONE) {
        skip(s, s->pos);
        enter(s, PL_SPLIT_AFTER);
        if (a->set.one_call) end_answer(a);
    } else if (state == PL_CALL_BAD) {
        if (s->shown)
            skip(s, s->pos);
        else
            PL_TRY(show(a, PL_ANSWER_CONTENT, s->head, err));
        enter(s, PL_SPLIT_CONTENT);
    }
    return PLEACH_OK;
}

static bool is_separator(const pl_answer *a, char c)
{
    if (a->set.tools == PL_TOOLS_LLAMA) return c == ';';
    return a->set.tools == PL_TOOLS_MISTRAL && a->split.open && (c == ',' || c == ']');
}

/* Another call, with or without a marker; or content. */
static bool after_call(pl_answer *a, bool last)
{
    pl_splitter *s = &a->split;
    const char *marker = call_marker[a->set.tools], *p;
    size_t n;
    skip(s, blanks_end(a));
    p = text_of(a, &n);
    if (!n) return false;
    if (is_separator(a, p[0])) {
        if (p[0] == ']') s->open = false;
        skip(s, 1);
        return true;
    }
    pl_match end = pl_match_marker(p, n, PL_CALL_END, false);
    pl_match next = pl_match_marker(p, n, marker, false);
    if (end == PL_MATCH_PART || next == PL_MATCH_PART) {
        if (last) skip(s, n); /* a marker that was cut off */
        return false;
    }
    if (end == PL_MATCH_ALL) {
        s->open = false;
        skip(s, strlen(PL_CALL_END));
    } else if (next == PL_MATCH_ALL) {
        s->open = true;
        begin_call(a, strlen(marker));
    } else if (p[0] == '{' && (s->open || a->set.tools == PL_TOOLS_LLAMA)) {
        begin_call(a, 0);
    } else {
        enter(s, PL_SPLIT_CONTENT);
    }
    return true;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static pleach_status step(pl_answer *a, bool last, bool *more, pleach_error *err)
{
    *more = false;
    switch (a->split.phase) {
    case PL_SPLIT_BEGIN:
        *more = begin(a, last);
        return PLEACH_OK;
    case PL_SPLIT_REASONING:
        return reasoning(a, last, more, err);
    case PL_SPLIT_ANSWER:
        *more = answer(a, last);
        return PLEACH_OK;
    case PL_SPLIT_CONTENT:
        return content(a, last, more, err);
    case PL_SPLIT_CALL:
        return call(a, last, more, err);
    case PL_SPLIT_AFTER:
        *more = after_call(a, last);
        return PLEACH_OK;
    }
    return PLEACH_OK;
}

/* Drops what is done, once that is most of the text: a byte moves but once on average. */
static void drop_done(pl_answer *a)
{
    size_t at = a->split.at, rest = a->text.size - at;
    if (at < rest || !at) return;
    memmove(a->text.data, a->text.data + at, rest);
    a->text.size = rest;
    a->ready -= at;
    a->split.at = 0;
}

pleach_status pl_answer_split(pl_answer *a, bool last, pleach_error *err)
{
    if (!a->text.data) return PLEACH_OK;
    for (bool more = true; more;) PL_TRY(step(a, last, &more, err));
    drop_done(a);
    return PLEACH_OK;
}
