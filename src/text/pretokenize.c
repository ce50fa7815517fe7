/* SPDX-License-Identifier: Apache-2.0
 *
 * A pre-tokenizer is a list of steps of three kinds: cutting by a pattern, SentencePiece's blanks
 * (Metaspace), and a prefix space. Every other type is one of these with a fixed pattern. The byte
 * alphabet of ByteLevel is left to the model, which reads bytes directly. */
#include "pretokenize.h"

#include "json_field.h"
#include "utf8.h"

enum { MAX_STEPS = 64, MAX_DEPTH = 8 };

typedef enum behavior {
    REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS
} behavior;
static const char *const behavior_names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                             "MergedWithNext", "Contiguous"};

typedef enum scheme { ALWAYS, FIRST, NEVER } scheme;
static const char *const scheme_names[] = {"always", "first", "never"};

typedef enum step_kind { SPLIT, METASPACE, PREFIX_SPACE } step_kind;

typedef struct step {
    step_kind kind;
    pl_pattern *pattern; /* SPLIT */
    behavior behavior;
    bool invert;
    pl_buffer blank; /* METASPACE: what stands for a space */
    scheme scheme;
} step;

struct pl_pretokenizer {
    step *steps;
    size_t n, capacity;
    bool byte_level;
};

/* A piece of a span: matched by the pattern, or between matches. */
typedef struct cut {
    size_t start, end;
    bool match;
} cut;

void pl_spans_free(pl_spans *s)
{
    pl_free(s->text.data);
    pl_free(s->spans);
    *s = (pl_spans){0};
}

/* ---- reading ------------------------------------------------------------------------------- */

/* The pattern GPT-2's tokenizer cuts words with (openai/gpt-2, src/encoder.py). */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|"
                                   " ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
/* Words as the Whitespace pre-tokenizer has them: \w of Rust's regex crate. */
#define RUST_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"
static const char whitespace_pattern[] = "[" RUST_WORD "]+|[^" RUST_WORD "\\s]+";

static pleach_status parse_name(const char *name, const char *what, const json_t *field,
                                const char *const *names, size_t n, unsigned *value,
                                pleach_error *err)
{
    const char *text = json_string_value(field);
    for (unsigned i = 0; text && i < n; i++) {
        if (strcmp(text, names[i])) continue;
        *value = i;
        return PLEACH_OK;
    }
    return pl_fail(err, PLEACH_ERR_UNSUPPORTED, "%s: %s \"%s\" is not supported", name, what,
                   text ? text : "");
}

static pleach_status parse_behavior(const char *name, const json_t *o, step *s, pleach_error *err)
{
    unsigned value = ISOLATED;
    const json_t *field = pl_json_get(o, "behavior");
    if (field)
        PL_TRY(parse_name(name, "split behavior", field, behavior_names, PL_COUNT(behavior_names),
                          &value, err));
    s->behavior = (behavior)value;
    return PLEACH_OK;
}

static pleach_status set_split(const char *name, step *s, const char *pattern, behavior behavior,
                               bool invert, pleach_error *err)
{
    s->kind = SPLIT;
    s->behavior = behavior;
    s->invert = invert;
    return pl_pattern_create(name, pattern, strlen(pattern), false, &s->pattern, err);
}

static pleach_status parse_split(const char *name, const json_t *o, step *s, pleach_error *err)
{
    const json_t *pattern = pl_json_get(o, "pattern");
    bool literal = pl_json_get(pattern, "String") != NULL;
    const char *text;
    size_t size;
    PL_TRY(pl_json_text(name, pattern, literal ? "String" : "Regex", &text, &size, err));
    PL_TRY(parse_behavior(name, o, s, err));
    PL_TRY(pl_json_bool(name, o, "invert", &s->invert, err));
    return pl_pattern_create(name, text, size, literal, &s->pattern, err);
}

static pleach_status new_step(const char *name, pl_pretokenizer *p, step **s, pleach_error *err)
{
    PL_FAIL_IF(p->n >= MAX_STEPS, err, PLEACH_ERR_UNSUPPORTED, "%s: more than %d pre-tokenizers",
               name, MAX_STEPS);
    if (pl_grow((void **)&p->steps, &p->capacity, p->n + 1, sizeof *p->steps))
        return pl_fail_memory(err, "pre-tokenizers", sizeof *p->steps);
    *s = &p->steps[p->n++];
    **s = (step){0};
    return PLEACH_OK;
}

static pleach_status parse_metaspace(const char *name, const json_t *o, pl_pretokenizer *p, step *s,
                                     pleach_error *err)
{
    const char *blank = "\xe2\x96\x81";
    size_t size = 3;
    unsigned scheme = ALWAYS;
    bool split = true, prefix = true;
    if (pl_json_get(o, "replacement"))
        PL_TRY(pl_json_text(name, o, "replacement", &blank, &size, err));
    PL_FAIL_IF(!size || pl_utf8_length(blank[0]) != size, err, PLEACH_ERR_FORMAT,
               "%s: Metaspace replacement is not one character", name);
    const json_t *field = pl_json_get(o, "prepend_scheme");
    if (field)
        PL_TRY(parse_name(name, "prepend_scheme", field, scheme_names, PL_COUNT(scheme_names),
                          &scheme, err));
    PL_TRY(pl_json_bool(name, o, "add_prefix_space", &prefix, err)); /* files of before 2024 */
    PL_TRY(pl_json_bool(name, o, "split", &split, err));
    s->kind = METASPACE;
    s->scheme = field || prefix ? (enum scheme)scheme : NEVER;
    PL_TRY(pl_buffer_append(&s->blank, blank, size, err));
    if (!split) return PLEACH_OK;
    PL_TRY(new_step(name, p, &s, err));
    s->kind = SPLIT;
    s->behavior = MERGED_WITH_NEXT;
    return pl_pattern_create(name, blank, size, true, &s->pattern, err);
}

static pleach_status parse_byte_level(const char *name, const json_t *o, pl_pretokenizer *p,
                                      step *s, pleach_error *err)
{
    bool prefix = true, pattern = true;
    PL_TRY(pl_json_bool(name, o, "add_prefix_space", &prefix, err));
    PL_TRY(pl_json_bool(name, o, "use_regex", &pattern, err));
    p->byte_level = true;
    s->kind = PREFIX_SPACE;
    if (!prefix) p->n--;
    if (!pattern) return PLEACH_OK;
    PL_TRY(new_step(name, p, &s, err));
    return set_split(name, s, gpt2_pattern, ISOLATED, false, err);
}

static pleach_status parse_one(const char *name, const json_t *o, pl_pretokenizer *p,
                               pleach_error *err)
{
    const char *type = pl_json_type(o);
    PL_FAIL_IF(p->byte_level, err, PLEACH_ERR_UNSUPPORTED,
               "%s: pre-tokenizer \"%s\" after ByteLevel is not supported", name, type);
    step *s;
    PL_TRY(new_step(name, p, &s, err));
    if (!strcmp(type, "Split")) return parse_split(name, o, s, err);
    if (!strcmp(type, "ByteLevel")) return parse_byte_level(name, o, p, s, err);
    if (!strcmp(type, "Metaspace")) return parse_metaspace(name, o, p, s, err);
    if (!strcmp(type, "Digits")) {
        bool single = false;
        PL_TRY(pl_json_bool(name, o, "individual_digits", &single, err));
        return set_split(name, s, "\\p{N}", single ? ISOLATED : CONTIGUOUS, false, err);
    }
    if (!strcmp(type, "WhitespaceSplit")) return set_split(name, s, "\\s", REMOVED, false, err);
    if (!strcmp(type, "Whitespace"))
        return set_split(name, s, whitespace_pattern, REMOVED, true, err);
    if (!strcmp(type, "Punctuation")) {
        PL_TRY(set_split(name, s, "[\\p{P}!-/:-@\\[-`{-~]", ISOLATED, false, err));
        return parse_behavior(name, o, s, err);
    }
    return pl_fail(err, PLEACH_ERR_UNSUPPORTED, "%s: pre-tokenizer \"%s\" is not supported", name,
                   type);
}

static pleach_status parse(const char *name, const json_t *o, pl_pretokenizer *p, int depth,
                           pleach_error *err)
{
    if (strcmp(pl_json_type(o), "Sequence")) return parse_one(name, o, p, err);
    PL_FAIL_IF(depth >= MAX_DEPTH, err, PLEACH_ERR_UNSUPPORTED,
               "%s: pre-tokenizers nested more than %d deep", name, MAX_DEPTH);
    const json_t *list = pl_json_get(o, "pretokenizers");
    PL_FAIL_IF(!json_is_array(list), err, PLEACH_ERR_FORMAT, "%s: pretokenizers is not a list",
               name);
    for (size_t i = 0; i < json_array_size(list); i++)
        PL_TRY(parse(name, json_array_get(list, i), p, depth + 1, err));
    return PLEACH_OK;
}

pleach_status pl_pretokenizer_create(const char *name, const json_t *config, pl_pretokenizer **out,
                                     pleach_error *err)
{
    pl_pretokenizer *p = pl_calloc(1, sizeof *p);
    if (!p) return pl_fail_memory(err, "a pre-tokenizer", sizeof *p);
    pleach_status status = config ? parse(name, config, p, 0, err) : PLEACH_OK;
    if (status) {
        pl_pretokenizer_free(p);
        return status;
    }
    *out = p;
    return PLEACH_OK;
}

void pl_pretokenizer_free(pl_pretokenizer *p)
{
    if (!p) return;
    for (size_t i = 0; i < p->n; i++) {
        pl_pattern_free(p->steps[i].pattern);
        pl_free(p->steps[i].blank.data);
    }
    pl_free(p->steps);
    pl_free(p);
}

bool pl_pretokenizer_is_byte_level(const pl_pretokenizer *p) { return p->byte_level; }

/* ---- applying ------------------------------------------------------------------------------ */

typedef struct cuts {
    cut *items;
    size_t n, capacity;
} cuts;

static pleach_status add_cut(cuts *c, size_t start, size_t end, bool match, pleach_error *err)
{
    if (start == end) return PLEACH_OK;
    if (pl_grow((void **)&c->items, &c->capacity, c->n + 1, sizeof *c->items))
        return pl_fail_memory(err, "pre-tokenizing", c->n * sizeof *c->items);
    c->items[c->n++] = (cut){start, end, match};
    return PLEACH_OK;
}

static pleach_status add_span(pl_spans *s, size_t start, size_t end, pleach_error *err)
{
    if (start == end) return PLEACH_OK;
    if (pl_grow((void **)&s->spans, &s->capacity, s->n + 1, sizeof *s->spans))
        return pl_fail_memory(err, "pre-tokenizing", s->n * sizeof *s->spans);
    s->spans[s->n++] = (pl_span){start, end};
    return PLEACH_OK;
}

/* All of a span as matches and what is between them. An empty match only cuts. */
static pleach_status find_cuts(const step *s, pl_matcher *m, const char *text, size_t size, cuts *c,
                               pleach_error *err)
{
    size_t at = 0, from = 0, start, end;
    c->n = 0;
    while (from <= size) {
        bool found;
        PL_TRY(pl_pattern_find(s->pattern, m, text, size, from, &found, &start, &end, err));
        if (!found) break;
        PL_TRY(add_cut(c, at, start, s->invert, err));
        PL_TRY(add_cut(c, start, end, !s->invert, err));
        at = from = end;
        if (start == end) from = end < size ? end + pl_utf8_length(text[end]) : size + 1;
    }
    return add_cut(c, at, size, s->invert, err);
}

/* A match joins the neighbour before (after) it unless that one is a match too: what the reference
 * does is told by the flags of neighbours alone. */
static bool joins_next(const cuts *c, size_t i, behavior behavior)
{
    bool match = c->items[i].match, next = c->items[i + 1].match;
    switch (behavior) {
    case MERGED_WITH_PREVIOUS: return next && !match;
    case MERGED_WITH_NEXT: return match && !next;
    case CONTIGUOUS: return match == next;
    default: return false;
    }
}

static pleach_status split(const step *s, pl_matcher *m, pl_spans *in, pl_spans *out,
                           pleach_error *err)
{
    cuts c = {0};
    pleach_status status = PLEACH_OK;
    out->n = 0;
    for (size_t i = 0; !status && i < in->n; i++) {
        size_t base = in->spans[i].start;
        status = find_cuts(s, m, in->text.data + base, in->spans[i].end - base, &c, err);
        for (size_t k = 0; !status && k < c.n; k++) {
            if (s->behavior == REMOVED && c.items[k].match) continue;
            size_t start = c.items[k].start;
            while (k + 1 < c.n && joins_next(&c, k, s->behavior)) k++;
            status = add_span(out, base + start, base + c.items[k].end, err);
        }
    }
    pl_free(c.items);
    pl_buffer text = in->text; /* the text is the same: it moves to the output */
    in->text = out->text;
    out->text = text;
    return status;
}

static bool begins_with(const char *text, size_t size, const char *s, size_t n)
{
    return size >= n && !memcmp(text, s, n);
}

/* Spaces become blanks, and a blank goes first where the scheme wants one. */
static pleach_status metaspace(const step *s, pl_position position, const pl_spans *in,
                               pl_spans *out, pleach_error *err)
{
    const char *blank = s->blank.data;
    size_t blank_size = s->blank.size;
    out->text.size = out->n = 0;
    for (size_t i = 0; i < in->n; i++) {
        const char *text = in->text.data + in->spans[i].start;
        size_t size = in->spans[i].end - in->spans[i].start, start = out->text.size;
        bool wanted = s->scheme == ALWAYS ? position != PL_CONTINUATION || i > 0
                                          : s->scheme == FIRST && position == PL_AT_START && !i;
        if (wanted && *text != ' ' && !begins_with(text, size, blank, blank_size))
            PL_TRY(pl_buffer_append(&out->text, blank, blank_size, err));
        PL_TRY(pl_buffer_reserve(&out->text, size, err));
        for (size_t k = 0; k < size; k++) {
            if (text[k] == ' ')
                PL_TRY(pl_buffer_append(&out->text, blank, blank_size, err));
            else
                PL_TRY(pl_buffer_append(&out->text, text + k, 1, err));
        }
        PL_TRY(add_span(out, start, out->text.size, err));
    }
    return PLEACH_OK;
}

static pleach_status prefix_space(pl_position position, const pl_spans *in, pl_spans *out,
                                  pleach_error *err)
{
    out->text.size = out->n = 0;
    for (size_t i = 0; i < in->n; i++) {
        const char *text = in->text.data + in->spans[i].start;
        size_t start = out->text.size;
        if (*text != ' ' && (position != PL_CONTINUATION || i > 0))
            PL_TRY(pl_buffer_append(&out->text, " ", 1, err));
        PL_TRY(pl_buffer_append(&out->text, text, in->spans[i].end - in->spans[i].start, err));
        PL_TRY(add_span(out, start, out->text.size, err));
    }
    return PLEACH_OK;
}

pleach_status pl_pretokenize(const pl_pretokenizer *p, pl_matcher *m, const char *text, size_t size,
                             pl_position position, pl_spans *out, pl_spans *tmp, pleach_error *err)
{
    out->text.size = out->n = 0;
    PL_TRY(pl_buffer_append(&out->text, text, size, err));
    PL_TRY(add_span(out, 0, size, err));
    for (size_t i = 0; i < p->n; i++) {
        const step *s = &p->steps[i];
        pl_spans in = *out;
        *out = *tmp;
        *tmp = in;
        switch (s->kind) {
        case SPLIT: PL_TRY(split(s, m, tmp, out, err)); break;
        case METASPACE: PL_TRY(metaspace(s, position, tmp, out, err)); break;
        case PREFIX_SPACE: PL_TRY(prefix_space(position, tmp, out, err)); break;
        }
    }
    return PLEACH_OK;
}
