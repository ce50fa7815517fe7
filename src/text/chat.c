/* SPDX-License-Identifier: Apache-2.0
 *
 * Rendering conversations as the known chat templates do. What a template writes itself is marked
 * as the format's own; contents are not, so nothing in them becomes a control token. */
#include "chat_template.h"

#include <stdio.h>
#include <time.h>

#include "tokenizer_parts.h"
#include "utf8.h"

const char *pl_chat_format_name(pl_chat_format f)
{
    switch (f) {
    case PL_CHAT_NONE: break;
    case PL_CHAT_CHATML: return "chatml";
    case PL_CHAT_LLAMA3: return "llama3";
    case PL_CHAT_MISTRAL: return "mistral";
    case PL_CHAT_GEMMA: return "gemma";
    }
    return NULL;
}

pl_chat_format pl_chat_recognise(const char *chat_template)
{
    const pl_chat_style *style = NULL;
    pl_buffer text = {0};
    if (chat_template && pl_chat_template_match(chat_template, &style, &text, NULL)) style = NULL;
    pl_free(text.data);
    return style ? style->format : PL_CHAT_NONE;
}

/* ---- parts --------------------------------------------------------------------------------- */

typedef enum role { SYSTEM, USER, ASSISTANT } role;

typedef struct chat {
    const pl_tokenizer *t;
    const pl_chat_style *style;
    pl_buffer text; /* the template's default system text or date */
    const pleach_message *messages;
    size_t n;
    pl_text_part *parts;
    size_t n_parts, capacity;
    pleach_error *err;
} chat;

static pleach_status add(chat *c, pl_text_part part)
{
    if (pl_grow((void **)&c->parts, &c->capacity, c->n_parts + 1, sizeof *c->parts))
        return pl_fail_memory(c->err, "a chat", c->n_parts * sizeof *c->parts);
    c->parts[c->n_parts++] = part;
    return PLEACH_OK;
}

/* What the template writes itself. */
static pleach_status own(chat *c, const char *text)
{
    return add(c, (pl_text_part){text, strlen(text), -1, true});
}

static pleach_status own_buffer(chat *c)
{
    return add(c, (pl_text_part){c->text.data, c->text.size, -1, true});
}

/* What somebody said. */
static pleach_status said(chat *c, const char *text, size_t size)
{
    return add(c, (pl_text_part){text, size, -1, false});
}

static pleach_status token(chat *c, int32_t id)
{
    return id < 0 ? PLEACH_OK : add(c, (pl_text_part){.text = "", .id = id});
}

/* White space as Python's str.strip has it: White_Space and four separators. */
static bool is_strip_space(uint32_t c) { return pl_is_space(c) || (c >= 0x1c && c <= 0x1f); }

static pleach_status said_trimmed(chat *c, const char *text)
{
    size_t size = strlen(text), at = 0;
    size = pl_utf8_valid_prefix(text, size) == size ? size : 0;
    if (!size) return said(c, text, strlen(text)); /* ill-formed: as it is */
    while (at < size && is_strip_space(pl_utf8_decode(text + at))) at += pl_utf8_length(text[at]);
    while (size > at) {
        size_t last = size - 1;
        while (last > at && ((unsigned char)text[last] & 0xc0) == 0x80) last--;
        if (!is_strip_space(pl_utf8_decode(text + last))) break;
        size = last;
    }
    return said(c, text + at, size - at);
}

static role role_of(const chat *c, size_t i)
{
    const char *name = c->messages[i].role;
    return !strcmp(name, "system") ? SYSTEM : !strcmp(name, "user") ? USER : ASSISTANT;
}

/* ---- ChatML -------------------------------------------------------------------------------- */

static pleach_status chatml_turn(chat *c, const char *name, const char *text, size_t size)
{
    PL_TRY(own(c, "<|im_start|>"));
    PL_TRY(own(c, name));
    PL_TRY(own(c, "\n"));
    PL_TRY(said(c, text, size));
    return own(c, "<|im_end|>\n");
}

static bool is_tool_response(const char *s)
{
    static const char first[] = "<tool_response>", last[] = "</tool_response>";
    size_t size = strlen(s), n = sizeof last - 1;
    return !strncmp(s, first, sizeof first - 1) && size >= n && !strcmp(s + size - n, last);
}

/* Qwen 3's answers. Thoughts before the last question are left out; an answer after it, which only
 * comes when it is the last message or has thoughts, shows them. */
static pleach_status think_turn(chat *c, size_t i, size_t last_question)
{
    const char *text = c->messages[i].content, *end = text + strlen(text);
    const char *thought = "", *thought_end = thought, *close = NULL;
    for (const char *s = text; (s = strstr(s, "</think>")); s += 8) {
        if (!close) thought_end = s;
        close = s + 8;
    }
    if (close) {
        thought = text;
        while (thought_end > thought && thought_end[-1] == '\n') thought_end--;
        for (const char *s = text; (s = strstr(s, "<think>")) && s + 7 <= thought_end; s += 7)
            thought = s + 7;
        while (thought < thought_end && *thought == '\n') thought++;
        text = close;
        while (*text == '\n') text++;
    }
    if (i <= last_question || (i + 1 < c->n && thought == thought_end))
        return chatml_turn(c, "assistant", text, (size_t)(end - text));
    while (*text == '\n') text++;
    PL_TRY(own(c, "<|im_start|>assistant\n<think>\n"));
    PL_TRY(said(c, thought, (size_t)(thought_end - thought)));
    PL_TRY(own(c, "\n</think>\n\n"));
    PL_TRY(said(c, text, (size_t)(end - text)));
    return own(c, "<|im_end|>\n");
}

static pleach_status render_chatml(chat *c)
{
    size_t last_question = c->n - 1;
    if (c->style->extra == PL_EXTRA_DEFAULT && role_of(c, 0) != SYSTEM) {
        PL_TRY(own(c, "<|im_start|>system\n"));
        PL_TRY(own_buffer(c));
        PL_TRY(own(c, "<|im_end|>\n"));
    }
    for (size_t i = c->n; i--;) {
        if (role_of(c, i) != USER || is_tool_response(c->messages[i].content)) continue;
        last_question = i;
        break;
    }
    for (size_t i = 0; i < c->n; i++) {
        const pleach_message *m = &c->messages[i];
        if (c->style->extra == PL_EXTRA_THINK && role_of(c, i) == ASSISTANT)
            PL_TRY(think_turn(c, i, last_question));
        else
            PL_TRY(chatml_turn(c, m->role, m->content, strlen(m->content)));
    }
    return own(c, "<|im_start|>assistant\n");
}

/* ---- Llama 3 ------------------------------------------------------------------------------- */

static pleach_status llama_header(chat *c, const char *name)
{
    PL_TRY(own(c, "<|start_header_id|>"));
    PL_TRY(own(c, name));
    return own(c, "<|end_header_id|>\n\n");
}

/* Today as strftime's "%d %b %Y" has it in English. */
static pleach_status set_today(chat *c)
{
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    char date[32];
    struct tm now = {0};
    time_t seconds = time(NULL);
    localtime_r(&seconds, &now);
    snprintf(date, sizeof date, "%02d %s %d", now.tm_mday, months[now.tm_mon % 12],
             now.tm_year + 1900);
    c->text.size = 0;
    return pl_buffer_append(&c->text, date, strlen(date), c->err);
}

static pleach_status render_llama3(chat *c)
{
    size_t i = 0;
    if (c->style->extra == PL_EXTRA_TODAY) PL_TRY(set_today(c));
    if (c->style->extra != PL_EXTRA_NONE) {
        PL_TRY(llama_header(c, "system"));
        PL_TRY(own(c, "Cutting Knowledge Date: December 2023\nToday Date: "));
        PL_TRY(own_buffer(c));
        PL_TRY(own(c, "\n\n"));
        if (role_of(c, 0) == SYSTEM) PL_TRY(said_trimmed(c, c->messages[i++].content));
        PL_TRY(own(c, "<|eot_id|>"));
    }
    for (; i < c->n; i++) {
        PL_TRY(llama_header(c, c->messages[i].role));
        PL_TRY(said_trimmed(c, c->messages[i].content));
        PL_TRY(own(c, "<|eot_id|>"));
    }
    return llama_header(c, "assistant");
}

/* ---- Mistral and Gemma --------------------------------------------------------------------- */

/* A system text first, if allowed; then questions at even places and none at odd ones, which is all
 * that these templates look at: Gemma's then has a system turn in an answer's place. */
static pleach_status check_turns(const chat *c)
{
    size_t first = role_of(c, 0) == SYSTEM && c->style->system != PL_SYSTEM_REFUSED;
    PL_FAIL_IF(!first && role_of(c, 0) == SYSTEM, c->err, PLEACH_ERR_ARGUMENT,
               "this model's chat template does not support the system role");
    for (size_t i = first; i < c->n; i++) {
        role r = role_of(c, i);
        PL_FAIL_IF((r == USER) != ((i - first) % 2 == 0), c->err, PLEACH_ERR_ARGUMENT,
                   "message %zu (%s): %s", i, c->messages[i].role, c->style->alternate);
        PL_FAIL_IF(r == SYSTEM && c->style->format == PL_CHAT_MISTRAL, c->err, PLEACH_ERR_ARGUMENT,
                   "message %zu: a system message can only be the first", i);
    }
    return PLEACH_OK;
}

static pleach_status render_mistral(chat *c)
{
    const pl_chat_style *s = c->style;
    size_t first = role_of(c, 0) == SYSTEM;
    for (size_t i = first; i < c->n; i++) {
        const char *text = c->messages[i].content;
        bool with_system = first && (s->system == PL_SYSTEM_FIRST ? i == first : i + 1 == c->n);
        if (role_of(c, i) == USER) {
            PL_TRY(own(c, s->open));
            if (with_system) {
                PL_TRY(said(c, c->messages[0].content, strlen(c->messages[0].content)));
                PL_TRY(own(c, "\n\n"));
            }
            PL_TRY(said(c, text, strlen(text)));
            PL_TRY(own(c, s->close));
        } else {
            PL_TRY(own(c, s->answer));
            PL_TRY(s->trim_answer ? said_trimmed(c, text) : said(c, text, strlen(text)));
            PL_TRY(token(c, pl_tokenizer_eos(c->t)));
            PL_TRY(own(c, s->after));
        }
    }
    return PLEACH_OK;
}

static pleach_status render_gemma(chat *c)
{
    size_t first = role_of(c, 0) == SYSTEM;
    for (size_t i = first; i < c->n; i++) {
        PL_TRY(own(c, "<start_of_turn>"));
        PL_TRY(own(c, role_of(c, i) == ASSISTANT ? "model" : c->messages[i].role));
        PL_TRY(own(c, "\n"));
        if (first && i == first) {
            PL_TRY(said(c, c->messages[0].content, strlen(c->messages[0].content)));
            PL_TRY(own(c, "\n\n"));
        }
        PL_TRY(said_trimmed(c, c->messages[i].content));
        PL_TRY(own(c, "<end_of_turn>\n"));
    }
    return own(c, "<start_of_turn>model\n");
}

/* ---- encoding ------------------------------------------------------------------------------ */

static pleach_status check_messages(const chat *c)
{
    PL_FAIL_IF(!c->n, c->err, PLEACH_ERR_ARGUMENT, "a chat without messages");
    for (size_t i = 0; i < c->n; i++) {
        const char *name = c->messages[i].role;
        PL_FAIL_IF(!name || !c->messages[i].content, c->err, PLEACH_ERR_ARGUMENT,
                   "message %zu has no role or no content", i);
        PL_FAIL_IF(strcmp(name, "system") && strcmp(name, "user") && strcmp(name, "assistant"),
                   c->err, PLEACH_ERR_ARGUMENT,
                   "message %zu: role \"%.40s\" is not system, user or assistant", i, name);
    }
    return c->style->alternate ? check_turns(c) : PLEACH_OK;
}

static pleach_status render(chat *c)
{
    PL_TRY(check_messages(c));
    if (c->style->bos) PL_TRY(token(c, pl_tokenizer_bos(c->t)));
    switch (c->style->format) {
    case PL_CHAT_NONE: return PLEACH_OK;
    case PL_CHAT_CHATML: return render_chatml(c);
    case PL_CHAT_LLAMA3: return render_llama3(c);
    case PL_CHAT_MISTRAL: return render_mistral(c);
    case PL_CHAT_GEMMA: return render_gemma(c);
    }
    return PLEACH_OK;
}

pleach_status pl_chat_encode(const pl_tokenizer *t, const pleach_message *messages, size_t n,
                             pl_ids *out, pleach_error *err)
{
    const char *source = pl_tokenizer_chat_template(t);
    chat c = {.t = t, .messages = messages, .n = n, .err = err};
    PL_FAIL_IF(!source, err, PLEACH_ERR_UNSUPPORTED, "this model has no chat template");
    pleach_status status = pl_chat_template_match(source, &c.style, &c.text, err);
    if (!status && !c.style)
        status = pl_fail(err, PLEACH_ERR_UNSUPPORTED,
                         "the chat template is none that is known (chatml, llama3, mistral, "
                         "gemma); it begins: %.100s", source);
    if (!status) status = render(&c);
    if (!status) status = pl_tokenizer_encode_parts(t, c.parts, c.n_parts, out, err);
    pl_free(c.parts);
    pl_free(c.text.data);
    return status;
}
