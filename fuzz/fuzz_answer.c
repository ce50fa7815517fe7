/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as an answer: the first say how it is read and cut. However it is cut the parts are the
 * same; the arguments of each call are the beginning of a JSON object; and content and reasoning
 * come in the order of the text, all of it where nothing was a call or reasoning. */
#include <ctype.h>
#include <jansson.h>
#include <stdint.h>

#include "../tests/unit/answer_feed.h"
#include "text/utf8.h"

/* ---- beginnings of JSON: found out by writing an end that a JSON library takes --------------- */

/* Appends s as this library takes it: no halves of surrogate pairs, zeros in keys or large numbers,
 * which are JSON. */
static void tame(const char *s, size_t n, pl_buffer *out)
{
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        size_t size = out->size;
        bool digits = size > 1 && isdigit((unsigned char)out->data[size - 1]) &&
                      isdigit((unsigned char)out->data[size - 2]);
        if (!in_string && digits && isdigit((unsigned char)s[i])) continue;
        if (s[i] == '"') in_string = !in_string;
        feed_must(!pl_buffer_append(out, s + i, 1, NULL));
        if (in_string && s[i] == '\\' && ++i < n) {
            feed_must(!pl_buffer_append(out, s + i, 1, NULL));
            if (s[i] == 'u' && ++i < n) feed_must(!pl_buffer_append(out, "1", 1, NULL));
        }
    }
}

static bool is_json(const pl_buffer *b)
{
    pl_buffer tamed = {0};
    tame(b->data, b->size, &tamed);
    json_t *j = json_loadb(tamed.data, tamed.size, JSON_ALLOW_NUL, NULL);
    bool yes = j != NULL;
    json_decref(j);
    pl_free(tamed.data);
    return yes;
}

/* Brackets that are open at the end of s, as they are to be closed, and whether a string is. */
static bool open_brackets(const char *s, size_t n, pl_buffer *close)
{
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char end = s[i] == '{' ? '}' : ']';
        if (in_string && s[i] == '\\')
            i++;
        else if (s[i] == '"')
            in_string = !in_string;
        else if (in_string)
            continue;
        else if (s[i] == '{' || s[i] == '[')
            feed_must(!pl_buffer_append(close, &end, 1, NULL));
        else if ((s[i] == '}' || s[i] == ']') && close->size)
            close->size--;
    }
    for (size_t i = 0; i < close->size / 2; i++) {
        char c = close->data[i];
        close->data[i] = close->data[close->size - 1 - i];
        close->data[close->size - 1 - i] = c;
    }
    return in_string;
}

static bool begins_json(const char *s, size_t n)
{
    static const char *const in_string[] = {"", "n", "0000", "000", "00", "0"};
    static const char *const outside[] = {"",     "0",   "\"k\":0", ":0",  "rue", "ue", "e",
                                          "alse", "lse", "se",      "ull", "ll",  "l",  "}"};
    pl_buffer close = {0}, whole = {0};
    bool yes = false, string = open_brackets(s, n, &close);
    const char *const *tails = string ? in_string : outside;
    size_t n_tails = string ? PL_COUNT(in_string) : PL_COUNT(outside);
    for (size_t i = 0; i < 2 * n_tails && !yes; i++) {
        const char *tail = tails[i / 2];
        whole.size = 0;
        feed_must(!pl_buffer_append(&whole, s, n, NULL));
        feed_must(!pl_buffer_append(&whole, tail, strlen(tail), NULL));
        if (string)
            feed_must(!pl_buffer_append(&whole, i % 2 ? "\":0" : "\"", i % 2 ? 3 : 1, NULL));
        if (close.size) feed_must(!pl_buffer_append(&whole, close.data, close.size, NULL));
        yes = is_json(&whole);
    }
    pl_free(close.data);
    pl_free(whole.data);
    return yes;
}

/* ---- one answer ------------------------------------------------------------------------------ */

/* Feeds text cut as the bytes of cuts say; checks each call's arguments. */
static char *feed(const pl_answer_settings *s, const char *text, size_t size, const uint8_t *cuts,
                  size_t n_cuts, pl_buffer *shown)
{
    answer_feed f = feed_open(s);
    pl_buffer arguments = {0};
    for (size_t at = 0, i = 0; at <= size; i++) {
        size_t part = n_cuts ? PL_MIN(cuts[i % n_cuts] % 8u, size - at) : size - at;
        if (at < size)
            feed_must(!pl_answer_take_text(f.answer, text + at, part, &f.stopped, NULL));
        else
            feed_must(!pl_answer_finish(f.answer, NULL));
        pl_answer_piece p;
        while (pl_answer_next(f.answer, &p)) {
            feed_must(p.size && pl_utf8_valid_prefix(p.text, p.size) == p.size);
            if (p.part == PL_ANSWER_CALL) {
                if (p.call) feed_must(begins_json(arguments.data, arguments.size));
                arguments.size = 0;
            }
            pl_buffer *to = p.part == PL_ANSWER_ARGUMENTS ? &arguments : shown;
            if (p.part != PL_ANSWER_CALL) feed_must(!pl_buffer_append(to, p.text, p.size, NULL));
            feed_piece(&f, &p);
        }
        if (at == size) break;
        at += part;
        if (i > 8 * size + 8) n_cuts = 0; /* cuts of nothing alone */
    }
    if (pl_answer_calls(f.answer)) feed_must(begins_json(arguments.data, arguments.size));
    pl_free(arguments.data);
    return feed_end(&f);
}

/* part's bytes come in whole, in order. */
static bool is_within(const pl_buffer *part, const pl_buffer *whole)
{
    size_t i = 0;
    for (size_t k = 0; k < whole->size && i < part->size; k++) i += part->data[i] == whole->data[k];
    return i == part->size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const stop[] = {"STOP", "\n\n\n", "a\"}"};
    if (size < 2) return 0;
    pl_answer_settings s = {.tools = (data[0] & 7u) % 5u,
                            .reasoning = data[0] & 8,
                            .in_reasoning = data[0] & 16,
                            .one_call = data[0] & 64,
                            .stop = stop,
                            .n_stop = data[0] & 32 ? 3 : 0};
    size_t n_cuts = PL_MIN(data[1] % 16u, size - 2);
    const char *text = (const char *)data + 2 + n_cuts;
    size_t n = size - 2 - n_cuts;
    pl_buffer shown = {0}, again = {0}, clean = {0};
    char *cut = feed(&s, text, n, data + 2, n_cuts, &shown);
    char *whole = feed(&s, text, n, NULL, 0, &again);
    feed_must(!strcmp(cut, whole));
    feed_must(!pl_utf8_sanitize(text, n, &clean, NULL));
    feed_must(is_within(&shown, &clean));
    bool plain = !s.tools && !s.reasoning && !s.in_reasoning && !s.n_stop;
    if (plain) feed_must(shown.size == clean.size);
    pl_free(cut);
    pl_free(whole);
    pl_free(shown.data);
    pl_free(again.data);
    pl_free(clean.data);
    return 0;
}
