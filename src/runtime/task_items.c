/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiple-choice items from lines of JSON. Context and choice are joined here, so that a tokenizer
 * sees them as one text. */
#include "task_items.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "format/json.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The texts a, b and c in fresh memory, or NULL. */
static char *join(const char *a, const char *b, const char *c)
{
    size_t size = strlen(a) + strlen(b) + strlen(c) + 1;
    char *text = pl_alloc(size, 1);
    if (text) snprintf(text, size, "%s%s%s", a, b, c);
    return text;
}

/* The context as it is written, or a question put in words. */
static pleach_status read_context(pl_json_source at, const json_t *o, char **context,
                                  pleach_error *err)
{
    const char *text;
    bool question = pl_json_get(o, "question") != NULL;
    PL_FAIL_IF(question == (pl_json_get(o, "context") != NULL), err, PLEACH_ERR_FORMAT,
               "%s: expected one of \"context\" and \"question\"", at.file);
    PL_TRY(pl_json_text(at, o, question ? "question" : "context", &text, err));
    PL_FAIL_IF(text[strspn(text, " \t\r\n")] == 0, err, PLEACH_ERR_FORMAT, "%s: %s is empty",
               at.file, question ? "question" : "context");
    *context = question ? join("Question: ", text, "\nAnswer:") : join(text, "", "");
    return *context ? PLEACH_OK : pl_fail_memory(err, at.file, strlen(text));
}

static pleach_status read_choice(pl_json_source at, const json_t *value, pl_task_item *item,
                                 pleach_error *err)
{
    const char *choice = json_string_value(value), *context = item->context;
    size_t i = item->n_choices;
    PL_FAIL_IF(!choice || !choice[strspn(choice, " \t\r\n")], err, PLEACH_ERR_FORMAT,
               "%s: choice %zu is %s, expected a text", at.file, i,
               choice ? "empty" : pl_json_kind(value));
    bool apart = is_blank(context[strlen(context) - 1]) || is_blank(choice[0]);
    item->bytes[i] = strlen(choice);
    item->text[i] = join(context, apart ? "" : " ", choice);
    if (!item->text[i]) return pl_fail_memory(err, at.file, item->bytes[i]);
    item->n_choices++;
    return PLEACH_OK;
}

static pleach_status read_item(pl_json_source at, const json_t *o, pl_task_item *item,
                               pleach_error *err)
{
    const json_t *choices = pl_json_get(o, "choices"), *value;
    size_t i, n = json_array_size(choices);
    uint64_t answer;
    PL_TRY(read_context(at, o, &item->context, err));
    PL_FAIL_IF(!json_is_array(choices) || n < 2 || n > PL_MAX_CHOICES, err, PLEACH_ERR_FORMAT,
               "%s: choices: expected a list of 2 to %d texts", at.file, PL_MAX_CHOICES);
    PL_TRY(pl_json_u64(at, o, "answer", 0, n - 1, &answer, err));
    item->answer = (size_t)answer;
    json_array_foreach(choices, i, value) PL_TRY(read_choice(at, value, item, err));
    size_t end = strlen(item->context);
    while (is_blank(item->context[end - 1])) end--;
    item->context[end] = 0;
    return PLEACH_OK;
}

static pleach_status read_line(const char *line, size_t size, pl_task_item *item,
                               pleach_error *err)
{
    char name[32];
    json_t *o;
    snprintf(name, sizeof name, "line %zu", item->line);
    PL_TRY(pl_json_parse(name, line, size, &o, err));
    pleach_status status = read_item((pl_json_source){name, ""}, o, item, err);
    json_decref(o);
    return status;
}

static pleach_status read_all(const char *lines, size_t size, pl_task_item **items, size_t *n,
                              pleach_error *err)
{
    size_t capacity = 0, number = 0;
    for (size_t at = 0; at < size;) {
        const char *line = lines + at, *end = memchr(line, '\n', size - at);
        size_t length = end ? (size_t)(end - line) : size - at, blanks = 0;
        at += length + 1;
        number++;
        while (blanks < length && is_blank(line[blanks])) blanks++;
        if (blanks == length) continue;
        if (pl_grow((void **)items, &capacity, *n + 1, sizeof **items) != 0)
            return pl_fail_memory(err, "task items", (*n + 1) * sizeof **items);
        pl_task_item *item = &(*items)[(*n)++];
        *item = (pl_task_item){.line = number};
        PL_TRY(read_line(line, length, item, err));
    }
    PL_FAIL_IF(*n == 0, err, PLEACH_ERR_FORMAT, "no task items: every line is blank");
    return PLEACH_OK;
}

pleach_status pl_task_items_read(const char *lines, size_t size, pl_task_item **items, size_t *n,
                                 pleach_error *err)
{
    *items = NULL;
    *n = 0;
    pleach_status status = read_all(lines, size, items, n, err);
    if (status == PLEACH_OK) return status;
    pl_task_items_free(*items, *n);
    *items = NULL;
    *n = 0;
    return status;
}

void pl_task_items_free(pl_task_item *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < items[i].n_choices; c++) pl_free(items[i].text[c]);
        pl_free(items[i].context);
    }
    pl_free(items);
}
