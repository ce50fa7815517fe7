/* SPDX-License-Identifier: Apache-2.0
 *
 * Template text to tokens. White space control is done here: a minus strips all white space on its
 * side; otherwise a statement or a comment takes the blanks before it on its line (lstrip_blocks)
 * and one newline after it (trim_blocks), unless a plus says not to. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ast.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "text/utf8.h"

enum { MAX_OPEN = 64 };

typedef struct lexer {
    arena *memory;
    char *source;
    size_t size, at;
    uint32_t line;
    bool strip_next, trim_next; /* what the tag before does to the text that follows */
    bool line_starts;           /* that text begins a line */
    token *tokens;
    size_t n, capacity;
    pleach_error *err;
} lexer;

#define FAIL(x, ...) pl_fail((x)->err, PLEACH_ERR_FORMAT, "chat template, line " __VA_ARGS__)

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}
static bool is_white(char c)
{
    return is_blank(c) || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}
static bool begins_name(char c)
{
    return isalpha((unsigned char)c) || c == '_';
}
static bool in_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool ahead(const lexer *x, const char *s)
{
    size_t n = strlen(s);
    return x->size - x->at >= n && !memcmp(x->source + x->at, s, n);
}

static pleach_status add(lexer *x, token t)
{
    if (pl_grow((void **)&x->tokens, &x->capacity, x->n + 1, sizeof t))
        return pl_fail_memory(x->err, "a chat template", x->n * sizeof t);
    x->tokens[x->n++] = t;
    return PLEACH_OK;
}

static pleach_status add_bytes(lexer *x, token_kind kind, const char *bytes, size_t size)
{
    char *copy = jinja_arena_take(x->memory, size + 1);
    if (!copy) return pl_fail_memory(x->err, "a chat template", size);
    memcpy(copy, bytes, size);
    return add(x, (token){.kind = kind, .line = x->line, .text = copy, .size = size});
}

static void advance(lexer *x, size_t n)
{
    for (; n; n--) x->line += x->source[x->at++] == '\n';
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Where the next tag begins. */
static size_t find_tag(const lexer *x)
{
    for (size_t i = x->at; i + 1 < x->size; i++)
        if (x->source[i] == '{' && x->source[i + 1] && strchr("{%#", x->source[i + 1])) return i;
    return x->size;
}

static pleach_status take_text(lexer *x, size_t end)
{
    size_t from = x->at, to = end;
    bool at_line_start = x->line_starts;
    if (x->strip_next)
        while (from < to && is_white(x->source[from])) from++;
    else if (x->trim_next && from < to && x->source[from] == '\n')
        from++, at_line_start = true;
    if (end < x->size) {
        char mark = end + 2 < x->size ? x->source[end + 2] : 0;
        if (mark == '-') {
            while (to > from && is_white(x->source[to - 1])) to--;
        } else if (mark != '+' && x->source[end + 1] != '{') {
            size_t blank = to;
            while (blank > from && is_blank(x->source[blank - 1])) blank--;
            bool begins = blank > from ? x->source[blank - 1] == '\n' : at_line_start;
            if (begins) to = blank;
        }
    }
    size_t size = to - from;
    x->line_starts = false;
    const char *bytes = x->source + from;
    pleach_status status = size ? add_bytes(x, TOKEN_TEXT, bytes, size) : PLEACH_OK;
    advance(x, end - x->at);
    return status;
}

/* The tag's end at x->at, `close` long with its mark. */
static void end_tag(lexer *x, char mark, size_t close, bool block)
{
    x->strip_next = mark == '-';
    x->trim_next = block && mark != '+';
    advance(x, close);
}

static pleach_status take_comment(lexer *x)
{
    uint32_t line = x->line;
    size_t i = x->at + 2;
    while (i + 1 < x->size && !(x->source[i] == '#' && x->source[i + 1] == '}')) i++;
    if (i + 1 >= x->size) return FAIL(x, "%u: a comment {# without an end", line);
    char mark = i > x->at + 2 ? x->source[i - 1] : 0;
    end_tag(x, mark, i + 2 - x->at, true);
    return PLEACH_OK;
}

/* {% raw %} was read up to its name: everything up to {% endraw %} is text. */
static pleach_status take_raw(lexer *x)
{
    uint32_t line = x->line;
    for (size_t i = x->at; i + 1 < x->size; i++) {
        if (x->source[i] != '{' || x->source[i + 1] != '%') continue;
        size_t j = i + 2;
        j += j < x->size && (x->source[j] == '-' || x->source[j] == '+');
        while (j < x->size && is_white(x->source[j])) j++;
        if (x->size - j < 6 || memcmp(x->source + j, "endraw", 6)) continue;
        j += 6;
        while (j < x->size && is_white(x->source[j])) j++;
        char mark = j < x->size ? x->source[j] : 0;
        j += mark == '-' || mark == '+';
        if (x->size - j < 2 || memcmp(x->source + j, "%}", 2)) continue;
        PL_TRY(take_text(x, i));
        end_tag(x, mark, j + 2 - x->at, true);
        return PLEACH_OK;
    }
    return FAIL(x, "%u: raw without endraw", line);
}

/* ---- inside tags ----------------------------------------------------------------------------- */

static int hex(const char *s, size_t n)
{
    int c = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isxdigit((unsigned char)s[i])) return -1;
        c = 16 * c + (isdigit((unsigned char)s[i]) ? s[i] - '0' : (s[i] | 32) - 'a' + 10);
    }
    return c;
}

/* The escape at s, n bytes up to the string's end, as UTF-8 in dst; returns the bytes read, 0 when
 * the backslash stands for itself. */
static size_t unescape(const char *s, size_t n, char dst[4], size_t *written)
{
    static const char from[] = "nrtabfv\\'\"", to[] = "\n\r\t\a\b\f\v\\'\"";
    if (n < 2) return 0;
    const char *simple = strchr(from, s[1]);
    size_t digits = s[1] == 'x' ? 2 : s[1] == 'u' ? 4 : s[1] == 'U' ? 8 : 0;
    if (s[1] == '\n') { /* the string goes on in the next line */
        *written = 0;
        return 2;
    }
    if (simple && s[1]) {
        dst[0] = to[simple - from];
        *written = 1;
        return 2;
    }
    if (!digits || n < 2 + digits) return 0;
    int c = hex(s + 2, digits);
    if (c < 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    *written = pl_utf8_encode((uint32_t)c, dst);
    return 2 + digits;
}

static pleach_status take_string(lexer *x)
{
    char quote = x->source[x->at];
    size_t end = x->at + 1, size = 0;
    while (end < x->size && x->source[end] != quote) end += x->source[end] == '\\' ? 2 : 1;
    if (end >= x->size) return FAIL(x, "%u: a string without an end", x->line);
    char *to = jinja_arena_take(x->memory, end - x->at);
    if (!to) return pl_fail_memory(x->err, "a chat template", end - x->at);
    for (size_t i = x->at + 1; i < end;) {
        size_t written = 1, read = 0;
        if (x->source[i] == '\\') read = unescape(x->source + i, end - i, to + size, &written);
        if (!read) to[size] = x->source[i], read = 1;
        size += written;
        i += read;
    }
    token t = {.kind = TOKEN_STRING, .line = x->line, .text = to, .size = size};
    advance(x, end + 1 - x->at);
    return add(x, t);
}

static pleach_status take_number(lexer *x)
{
    char digits[64], *end;
    size_t i = x->at, n = 0;
    bool real = false;
    for (; i < x->size && n + 1 < sizeof digits; i++) {
        char c = x->source[i];
        bool sign = (c == '+' || c == '-') && n && (digits[n - 1] | 32) == 'e';
        bool point =
            c == '.' && !real && i + 1 < x->size && isdigit((unsigned char)x->source[i + 1]);
        bool power = (c | 32) == 'e' && i + 1 < x->size &&
                     (isdigit((unsigned char)x->source[i + 1]) || strchr("+-", x->source[i + 1]));
        if (c == '_') continue;
        if (!isdigit((unsigned char)c) && !sign && !point && !power) break;
        real |= point || power;
        digits[n++] = c;
    }
    digits[n] = 0;
    token t = {.kind = real ? TOKEN_FLOAT : TOKEN_INT, .line = x->line, .text = "a number"};
    t.real = strtod(digits, &end);
    if (!real && (n > 18 || *end)) return FAIL(x, "%u: the number %s is too long", x->line, digits);
    t.integer = real ? 0 : strtoll(digits, NULL, 10);
    advance(x, i - x->at);
    return add(x, t);
}

static pleach_status take_symbol(lexer *x)
{
    static const char *const symbols[] = {"==", "!=", "<=", ">=", "//", "**", "(", ")", "[",
                                          "]",  "{",  "}",  ",",  ":",  ".",  "|", "=", "<",
                                          ">",  "+",  "-",  "*",  "/",  "%",  "~"};
    for (size_t i = 0; i < PL_COUNT(symbols); i++)
        if (ahead(x, symbols[i])) {
            size_t size = strlen(symbols[i]);
            token t = {.kind = TOKEN_SYMBOL, .line = x->line, .text = symbols[i], .size = size};
            advance(x, size);
            return add(x, t);
        }
    return FAIL(x, "%u: unexpected character '%c'", x->line, x->source[x->at]);
}

/* Whether the tag ends here; the mark before its end is taken in *mark. */
static bool at_close(const lexer *x, const char *close, char *mark)
{
    *mark = 0;
    if (ahead(x, close)) return true;
    char c = x->source[x->at];
    if ((c != '-' && c != '+') || x->size - x->at < 3 || memcmp(x->source + x->at + 1, close, 2))
        return false;
    *mark = c;
    return true;
}

/* One tag from its opening on. */
static pleach_status take_tag(lexer *x)
{
    bool block = x->source[x->at + 1] == '%';
    const char *close = block ? "%}" : "}}";
    size_t depth = 0, first = x->n + 1;
    uint32_t line = x->line;
    char mark;
    PL_TRY(add(x, (token){.kind = block ? TOKEN_BLOCK_OPEN : TOKEN_OUTPUT_OPEN,
                          .line = line,
                          .text = block ? "{%" : "{{"}));
    advance(x, 2);
    if (x->at < x->size && (x->source[x->at] == '-' || x->source[x->at] == '+')) advance(x, 1);
    while (x->at < x->size) {
        char c = x->source[x->at];
        if (!depth && at_close(x, close, &mark)) {
            bool raw = block && x->n == first + 1 && !strcmp(x->tokens[first].text, "raw");
            end_tag(x, mark, mark ? 3 : 2, block && !raw);
            if (raw) {
                x->n = first - 1;
                return take_raw(x);
            }
            return add(x, (token){.kind = block ? TOKEN_BLOCK_CLOSE : TOKEN_OUTPUT_CLOSE,
                                  .line = x->line,
                                  .text = close});
        }
        if (is_white(c)) {
            advance(x, 1);
        } else if (begins_name(c)) {
            size_t end = x->at;
            while (end < x->size && in_name(x->source[end])) end++;
            PL_TRY(add_bytes(x, TOKEN_NAME, x->source + x->at, end - x->at));
            advance(x, end - x->at);
        } else if (isdigit((unsigned char)c)) {
            PL_TRY(take_number(x));
        } else if (c == '"' || c == '\'') {
            PL_TRY(take_string(x));
        } else {
            if (strchr("([{", c)) depth++;
            if (strchr(")]}", c) && depth) depth--;
            PL_TRY(take_symbol(x));
        }
        if (depth > MAX_OPEN) return FAIL(x, "%u: more than %d open brackets", x->line, MAX_OPEN);
    }
    return FAIL(x, "%u: a tag without %s", line, close);
}

static pleach_status take_all(lexer *x)
{
    x->line_starts = true;
    while (x->at < x->size) {
        size_t tag = find_tag(x);
        PL_TRY(take_text(x, tag));
        x->strip_next = x->trim_next = false;
        if (tag == x->size) break;
        PL_TRY(ahead(x, "{#") ? take_comment(x) : take_tag(x));
    }
    return add(x, (token){.kind = TOKEN_END, .line = x->line, .text = "the end"});
}

/* The source with \r\n and \r as \n, without one newline at its end. */
static char *normalise(arena *memory, const char *source, size_t *size)
{
    char *to = jinja_arena_take(memory, *size + 1);
    size_t n = 0;
    if (!to) return NULL;
    for (size_t i = 0; i < *size; i++) {
        if (source[i] == '\r' && i + 1 < *size && source[i + 1] == '\n') continue;
        to[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    n -= n && to[n - 1] == '\n';
    *size = n;
    return to;
}

pleach_status pl_jinja_tokens(arena *memory, const char *source, size_t size, token **tokens,
                              size_t *n, pleach_error *err)
{
    lexer x = {.memory = memory, .size = size, .line = 1, .err = err};
    *tokens = NULL;
    *n = 0;
    x.source = normalise(memory, source, &x.size);
    if (!x.source) return pl_fail_memory(err, "a chat template", size);
    pleach_status status = take_all(&x);
    *tokens = x.tokens;
    *n = x.n;
    return status;
}
