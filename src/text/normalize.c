/* SPDX-License-Identifier: Apache-2.0
 *
 * A normalizer is a list of steps, each from one buffer to another. */
#include "normalize.h"

#include <utf8proc.h>

#include "charsmap.h"
#include "json_field.h"
#include "unicode_form.h"
#include "utf8.h"

enum { MAX_STEPS = 64, MAX_DEPTH = 8 };

typedef enum step_kind { FORM, LOWERCASE, STRIP, PREPEND, REPLACE, CHARSMAP } step_kind;

typedef struct step {
    step_kind kind;
    bool compose, compatible; /* FORM */
    bool left, right;         /* STRIP */
    pl_buffer text;           /* PREPEND, REPLACE */
    pl_pattern *pattern;      /* REPLACE */
    pl_charsmap map;          /* CHARSMAP */
} step;

struct pl_normalizer {
    step *steps;
    size_t n, capacity;
};

/* ---- reading ------------------------------------------------------------------------------- */

static pleach_status parse_text(const char *name, const json_t *o, const char *key, step *s,
                                pleach_error *err)
{
    const char *text;
    size_t size;
    PL_TRY(pl_json_text(name, o, key, &text, &size, err));
    return pl_buffer_append(&s->text, text, size, err);
}

/* {"String": ...} or {"Regex": ...}. */
static pleach_status parse_pattern(const char *name, const json_t *o, pl_pattern **out,
                                   pleach_error *err)
{
    const json_t *pattern = pl_json_get(o, "pattern");
    bool literal = pl_json_get(pattern, "String") != NULL;
    const char *text;
    size_t size;
    PL_TRY(pl_json_text(name, pattern, literal ? "String" : "Regex", &text, &size, err));
    return pl_pattern_create(name, text, size, literal, out, err);
}

static pleach_status parse_step(const char *name, const json_t *o, step *s, pleach_error *err)
{
    static const char *const forms[] = {"NFD", "NFC", "NFKD", "NFKC"};
    const char *type = pl_json_type(o);
    for (size_t i = 0; i < PL_COUNT(forms); i++) {
        if (strcmp(type, forms[i])) continue;
        *s = (step){.kind = FORM, .compose = i & 1, .compatible = i & 2};
        return PLEACH_OK;
    }
    if (!strcmp(type, "Lowercase")) {
        s->kind = LOWERCASE;
        return PLEACH_OK;
    }
    if (!strcmp(type, "Strip")) {
        s->kind = STRIP;
        s->left = s->right = true;
        PL_TRY(pl_json_bool(name, o, "strip_left", &s->left, err));
        return pl_json_bool(name, o, "strip_right", &s->right, err);
    }
    if (!strcmp(type, "Prepend")) {
        s->kind = PREPEND;
        return parse_text(name, o, "prepend", s, err);
    }
    if (!strcmp(type, "Replace")) {
        s->kind = REPLACE;
        PL_TRY(parse_text(name, o, "content", s, err));
        return parse_pattern(name, o, &s->pattern, err);
    }
    if (!strcmp(type, "Precompiled")) {
        const char *map;
        size_t size;
        s->kind = CHARSMAP;
        PL_TRY(pl_json_text(name, o, "precompiled_charsmap", &map, &size, err));
        return pl_charsmap_init(&s->map, name, map, size, err);
    }
    return pl_fail(err, PLEACH_ERR_UNSUPPORTED, "%s: normalizer \"%s\" is not supported", name,
                   type);
}

static pleach_status parse(const char *name, const json_t *o, pl_normalizer *n, int depth,
                           pleach_error *err)
{
    if (strcmp(pl_json_type(o), "Sequence")) {
        PL_FAIL_IF(n->n >= MAX_STEPS, err, PLEACH_ERR_UNSUPPORTED,
                   "%s: more than %d normalizers", name, MAX_STEPS);
        if (pl_grow((void **)&n->steps, &n->capacity, n->n + 1, sizeof *n->steps))
            return pl_fail_memory(err, "normalizers", sizeof *n->steps);
        n->steps[n->n] = (step){0};
        return parse_step(name, o, &n->steps[n->n++], err);
    }
    PL_FAIL_IF(depth >= MAX_DEPTH, err, PLEACH_ERR_UNSUPPORTED,
               "%s: normalizers nested more than %d deep", name, MAX_DEPTH);
    const json_t *list = pl_json_get(o, "normalizers");
    PL_FAIL_IF(!json_is_array(list), err, PLEACH_ERR_FORMAT, "%s: normalizers is not a list", name);
    for (size_t i = 0; i < json_array_size(list); i++)
        PL_TRY(parse(name, json_array_get(list, i), n, depth + 1, err));
    return PLEACH_OK;
}

pleach_status pl_normalizer_create(const char *name, const json_t *config, pl_normalizer **out,
                                   pleach_error *err)
{
    pl_normalizer *n = pl_calloc(1, sizeof *n);
    if (!n) return pl_fail_memory(err, "a normalizer", sizeof *n);
    pleach_status status = config ? parse(name, config, n, 0, err) : PLEACH_OK;
    if (status) {
        pl_normalizer_free(n);
        return status;
    }
    *out = n;
    return PLEACH_OK;
}

void pl_normalizer_free(pl_normalizer *n)
{
    if (!n) return;
    for (size_t i = 0; i < n->n; i++) {
        pl_free(n->steps[i].text.data);
        pl_pattern_free(n->steps[i].pattern);
        pl_charsmap_free(&n->steps[i].map);
    }
    pl_free(n->steps);
    pl_free(n);
}

/* ---- applying ------------------------------------------------------------------------------ */

static bool all_ascii(const char *s, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)s[i] >= 0x80) return false;
    return true;
}

static pleach_status lowercase(const char *s, size_t size, pl_buffer *out, pleach_error *err)
{
    for (size_t at = 0; at < size; at += pl_utf8_length(s[at])) {
        PL_TRY(pl_buffer_reserve(out, 4, err));
        uint32_t c = pl_utf8_decode(s + at);
        /* The one character whose lower case is two: capital I with a dot above. */
        if (c == 0x130) PL_TRY(pl_buffer_append(out, "i\xcc\x87", 3, err));
        else
            out->size += pl_utf8_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)c),
                                        out->data + out->size);
    }
    return PLEACH_OK;
}

static pleach_status replace(const step *s, pl_matcher *m, const char *text, size_t size,
                             pl_buffer *out, pleach_error *err)
{
    size_t at = 0, from = 0, start, end;
    while (from <= size) {
        bool found;
        PL_TRY(pl_pattern_find(s->pattern, m, text, size, from, &found, &start, &end, err));
        if (!found) break;
        if (start == end) { /* nothing to replace */
            from = end < size ? end + pl_utf8_length(text[end]) : size + 1;
            continue;
        }
        PL_TRY(pl_buffer_append(out, text + at, start - at, err));
        PL_TRY(pl_buffer_append(out, s->text.data, s->text.size, err));
        at = from = end;
    }
    return pl_buffer_append(out, text + at, size - at, err);
}

/* One step from *text to out; *text then points at the result. */
static pleach_status apply(const step *s, pl_matcher *m, const char **text, size_t *size,
                           pl_buffer *out, pleach_error *err)
{
    out->size = 0;
    switch (s->kind) {
    case FORM:
        if (all_ascii(*text, *size)) return PLEACH_OK;
        PL_TRY(pl_unicode_form(*text, *size, s->compose, s->compatible, out, err));
        break;
    case LOWERCASE: PL_TRY(lowercase(*text, *size, out, err)); break;
    case STRIP: {
        if (s->right) *size = pl_trailing_space(*text, *size);
        size_t skip = s->left ? pl_leading_space(*text, *size) : 0;
        *text += skip;
        *size -= skip;
        return PLEACH_OK;
    }
    case PREPEND:
        if (!*size) return PLEACH_OK;
        PL_TRY(pl_buffer_append(out, s->text.data, s->text.size, err));
        PL_TRY(pl_buffer_append(out, *text, *size, err));
        break;
    case REPLACE: PL_TRY(replace(s, m, *text, *size, out, err)); break;
    case CHARSMAP: PL_TRY(pl_charsmap_apply(&s->map, *text, *size, out, err)); break;
    }
    *text = out->data ? out->data : "";
    *size = out->size;
    return PLEACH_OK;
}

pleach_status pl_normalize(const pl_normalizer *n, pl_matcher *m, const char *text, size_t size,
                           bool no_prefix, pl_buffer *a, pl_buffer *b, const char **result,
                           size_t *result_size, pleach_error *err)
{
    for (size_t i = 0; i < n->n; i++) {
        if (no_prefix && n->steps[i].kind == PREPEND) continue;
        const char *before = text;
        PL_TRY(apply(&n->steps[i], m, &text, &size, a, err));
        if (text == before || text != a->data) continue;
        pl_buffer *swap = a; /* the next step reads a and writes b */
        a = b;
        b = swap;
    }
    *result = text;
    *result_size = size;
    return PLEACH_OK;
}
