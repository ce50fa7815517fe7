/* SPDX-License-Identifier: Apache-2.0
 *
 * A Jinja template in canonical spelling: comments gone, white space control done (trim_blocks and
 * lstrip_blocks on, as transformers sets them), no white space in tags but between words, every
 * string in single quotes, m["role"] as m.role, text between tags as {{'text'}}, outputs and
 * strings that follow each other joined. Templates that differ in these alone render the same.
 * Source: the Jinja documentation, "Template Designer", sections on white space control. */
#include <ctype.h>

#include "chat_template.h"

typedef struct canonical {
    const char *at, *end;
    pl_buffer *out, tag;
    bool line_start;  /* only white space so far on the current line */
    bool strip_next;  /* the tag before ended with a minus */
    bool after_block; /* the tag before was a statement or a comment */
    bool conditional; /* the last output was "a if b else c", which does not join */
    pleach_error *err;
} canonical;

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static pleach_status put(pl_buffer *b, const char *s, pleach_error *err)
{
    return pl_buffer_append(b, s, strlen(s), err);
}

static bool ends_with(const pl_buffer *b, const char *s)
{
    size_t n = strlen(s);
    return b->size >= n && !memcmp(b->data + b->size - n, s, n);
}

/* One character of a string, escaped where it has to be. */
static pleach_status put_character(pl_buffer *b, char c, pleach_error *err)
{
    if (c == '\n') return put(b, "\\n", err);
    if (c == '\'' || c == '\\') PL_TRY(pl_buffer_append(b, "\\", 1, err));
    return pl_buffer_append(b, &c, 1, err);
}

/* ---- inside tags --------------------------------------------------------------------------- */

/* A quoted string at c->at. Escapes other than the usual ones keep their backslash. */
static pleach_status take_string(canonical *c)
{
    char quote = *c->at++;
    if (ends_with(&c->tag, "'+")) c->tag.size -= 2; /* 'a'+'b' is 'ab' */
    else PL_TRY(put(&c->tag, "'", c->err));
    while (c->at < c->end && *c->at != quote) {
        char s = *c->at++;
        if (s == '\\' && c->at < c->end) {
            char e = *c->at++;
            if (e == 'n') s = '\n';
            else if (e == 't') s = '\t';
            else if (e == '\\' || e == '\'' || e == '"') s = e;
            else {
                PL_TRY(put_character(&c->tag, s, c->err));
                s = e;
            }
        }
        PL_TRY(put_character(&c->tag, s, c->err));
    }
    if (c->at < c->end) c->at++;
    return put(&c->tag, "'", c->err);
}

/* a["role"] as a.role: the brackets and quotes are taken from the end of the tag so far. */
static pleach_status close_bracket(canonical *c)
{
    pl_buffer *t = &c->tag;
    size_t open = t->size, name;
    if (!ends_with(t, "'")) return put(t, "]", c->err);
    for (open--; open && is_word(t->data[open - 1]);) open--;
    name = open;
    if (open < 3 || t->data[open - 1] != '\'' || t->data[open - 2] != '[' || name == t->size - 1 ||
        !(is_word(t->data[open - 3]) || strchr("])", t->data[open - 3])))
        return put(t, "]", c->err);
    t->data[open - 2] = '.';
    memmove(t->data + open - 1, t->data + open, t->size - 1 - open);
    t->size -= 2;
    return PLEACH_OK;
}

/* The inside of a tag up to `close` ("}}" or "%}"), in canonical form, to c->tag. */
static pleach_status take_tag(canonical *c, const char *close)
{
    bool space = false;
    c->tag.size = 0;
    while (c->at < c->end) {
        char s = *c->at;
        if (c->end - c->at >= 2 && !memcmp(c->at, close, 2)) break;
        if (s == '-' && c->end - c->at >= 3 && !memcmp(c->at + 1, close, 2)) break;
        if (isspace((unsigned char)s)) {
            space = true;
            c->at++;
            continue;
        }
        if (space && c->tag.size && is_word(s) && is_word(c->tag.data[c->tag.size - 1]))
            PL_TRY(put(&c->tag, " ", c->err));
        space = false;
        if (s == '"' || s == '\'') {
            PL_TRY(take_string(c));
            continue;
        }
        PL_TRY(s == ']' ? close_bracket(c) : pl_buffer_append(&c->tag, &s, 1, c->err));
        c->at++;
    }
    c->strip_next = c->at < c->end && *c->at == '-';
    c->at += PL_MIN((size_t)(c->end - c->at), c->strip_next ? 3u : 2u);
    return PLEACH_OK;
}

/* Adds {{tag}}, joined to an output just before. */
static pleach_status put_output(canonical *c)
{
    bool conditional = false;
    const char *tag = c->tag.data;
    size_t size = c->tag.size;
    for (size_t i = 0; i + 4 <= size; i++) conditional |= !memcmp(tag + i, " if ", 4);
    if (size == 2 && tag[0] == '\'') return PLEACH_OK; /* an empty string */
    if (!conditional && !c->conditional && ends_with(c->out, "}}")) {
        c->out->size -= 2;
        PL_TRY(put(c->out, "+", c->err));
        if (size && *tag == '\'' && ends_with(c->out, "'+")) {
            c->out->size -= 2;
            tag++;
            size--;
        }
    } else {
        PL_TRY(put(c->out, "{{", c->err));
    }
    c->conditional = conditional;
    PL_TRY(pl_buffer_append(c->out, tag, size, c->err));
    return put(c->out, "}}", c->err);
}

/* ---- between tags -------------------------------------------------------------------------- */

/* Text up to the next tag (or the end), with what white space control leaves of it. */
static pleach_status take_text(canonical *c)
{
    const char *start = c->at, *stop = start;
    while (stop < c->end &&
           !(stop + 1 < c->end && *stop == '{' && memchr("{%#", stop[1], 3)))
        stop++;
    c->at = stop;
    char kind = stop + 1 < c->end ? stop[1] : 0, mark = stop + 2 < c->end ? stop[2] : 0;
    if (c->strip_next) {
        while (start < stop && isspace((unsigned char)*start)) c->line_start = *start++ == '\n';
    } else if (c->after_block && start < stop && *start == '\n') {
        start++;
        c->line_start = true;
    }
    const char *end = stop;
    if (kind && mark == '-') {
        while (end > start && isspace((unsigned char)end[-1])) end--;
    } else if (kind && kind != '{' && mark != '+') {
        const char *line = end;
        while (line > start && (line[-1] == ' ' || line[-1] == '\t')) line--;
        if (line > start ? line[-1] == '\n' : c->line_start) end = line;
    }
    if (start == end) return PLEACH_OK;
    c->line_start = false;
    c->tag.size = 0;
    PL_TRY(put(&c->tag, "'", c->err));
    for (; start < end; start++) PL_TRY(put_character(&c->tag, *start, c->err));
    PL_TRY(put(&c->tag, "'", c->err));
    return put_output(c);
}

static pleach_status take_comment(canonical *c)
{
    while (c->at < c->end && !(c->end - c->at >= 2 && !memcmp(c->at, "#}", 2))) c->at++;
    c->strip_next = c->at < c->end && c->at[-1] == '-';
    c->at += PL_MIN((size_t)(c->end - c->at), 2u);
    return PLEACH_OK;
}

pleach_status pl_chat_template_canonical(const char *chat_template, pl_buffer *out,
                                         pleach_error *err)
{
    size_t size = strlen(chat_template);
    canonical c = {.at = chat_template, .end = chat_template + size, .out = out, .err = err,
                   .line_start = true};
    if (size && c.end[-1] == '\n') c.end--; /* Jinja drops one newline at the end */
    pleach_status status = PLEACH_OK;
    while (!status && c.at < c.end) {
        status = take_text(&c);
        if (status || c.end - c.at < 2) break;
        char kind = c.at[1];
        c.at += 2;
        if (c.at < c.end && (*c.at == '-' || *c.at == '+')) c.at++;
        c.line_start = false;
        c.after_block = kind != '{';
        if (kind == '#') {
            status = take_comment(&c);
            continue;
        }
        status = take_tag(&c, kind == '{' ? "}}" : "%}");
        if (status) break;
        if (kind == '{') {
            status = put_output(&c);
            continue;
        }
        status = put(out, "{%", err);
        if (!status) status = pl_buffer_append(out, c.tag.data, c.tag.size, err);
        if (!status) status = put(out, "%}", err);
    }
    pl_free(c.tag.data);
    return status;
}
