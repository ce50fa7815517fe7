/* SPDX-License-Identifier: Apache-2.0
 *
 * Parsing a command line by its option table. Strict: a number is a number to its last character,
 * a name is a whole name. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "console.h"

enum { LONGEST_WORD = 64, MOST_NAMES = 64 };

bool options_choice(const char *choices, size_t i, char *text, size_t size)
{
    for (; i > 0; i--) {
        choices = strchr(choices, '|');
        if (!choices) return false;
        choices++;
    }
    snprintf(text, size, "%.*s", (int)strcspn(choices, "|"), choices);
    return true;
}

static int find_choice(const char *choices, const char *word)
{
    char text[LONGEST_WORD];
    for (size_t i = 0; options_choice(choices, i, text, sizeof text); i++)
        if (strcmp(text, word) == 0) return (int)i;
    return -1;
}

void options_expected(const option *o, char *text, size_t size)
{
    if (o->choices) {
        size_t used = (size_t)snprintf(text, size, "one of ");
        for (const char *c = o->choices; *c && used + 2 < size; c++) {
            text[used++] = *c == '|' ? ',' : *c;
            if (*c == '|') text[used++] = ' ';
        }
        text[used] = 0;
    } else if (o->type == OPTION_INTEGER) {
        snprintf(text, size, "a whole number from %.0f to %.0f", o->min, o->max);
    } else if (o->type == OPTION_REAL) {
        snprintf(text, size, "a number from %g to %g", o->min, o->max);
    } else {
        snprintf(text, size, "%s", o->argument);
    }
}

bool options_default(const option *o, const void *values, char *text, size_t size)
{
    const char *at = (const char *)values + o->offset;
    text[0] = 0;
    if (o->type == OPTION_CHOICE) {
        int i;
        memcpy(&i, at, sizeof i);
        if (i >= 0) options_choice(o->choices, (size_t)i, text, size);
    } else if (o->type == OPTION_INTEGER) {
        int64_t n;
        memcpy(&n, at, sizeof n);
        if ((double)n >= o->min && (double)n <= o->max && !o->automatic)
            snprintf(text, size, "%lld", (long long)n);
    } else if (o->type == OPTION_REAL) {
        double x;
        memcpy(&x, at, sizeof x);
        if (!o->automatic) snprintf(text, size, "%g", x);
    }
    if (!text[0] && o->automatic) snprintf(text, size, "%s", o->automatic);
    return text[0] != 0;
}

/* ---- nearest name -------------------------------------------------------------------------- */

/* Edits (insert, drop, change, swap of neighbours) between two words of at most LONGEST_WORD. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), d[3][LONGEST_WORD + 1];
    if (n > LONGEST_WORD || m > LONGEST_WORD) return LONGEST_WORD;
    for (size_t j = 0; j <= m; j++) d[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *row = d[i % 3], *last = d[(i + 2) % 3], *before = d[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t change = last[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = PL_MIN(PL_MIN(last[j], row[j - 1]) + 1, change);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = PL_MIN(row[j], before[j - 2] + 1);
        }
    }
    return d[n % 3][m];
}

const char *options_nearest(const char *word, const char *const *candidates, size_t n)
{
    const char *nearest = NULL;
    size_t length = strlen(word), least = length / 3 + 2; /* anything further is a coincidence */
    for (size_t i = 0; i < n; i++) {
        bool begins = length >= 2 && strncmp(word, candidates[i], length) == 0;
        size_t d = begins ? 1 : edit_distance(word, candidates[i]);
        if (d < least) {
            least = d;
            nearest = candidates[i];
        }
    }
    return nearest;
}

/* ---- values -------------------------------------------------------------------------------- */

static bool parse_integer(const char *word, int64_t *value)
{
    const char *digits = word + (*word == '-');
    if (!*digits || digits[strspn(digits, "0123456789")]) return false;
    errno = 0;
    *value = strtoll(word, NULL, 10);
    return errno == 0;
}

static bool parse_real(const char *word, double *value)
{
    char *end;
    if (!*word || word[strspn(word, "0123456789.eE+-")]) return false; /* no hex, inf or nan */
    *value = strtod(word, &end);
    return *end == 0 && end != word && isfinite(*value);
}

static int add_text(option_texts *list, const char *word)
{
    if (pl_grow((void **)&list->items, &list->capacity, list->n + 1, sizeof list->items[0]) != 0)
        return fail("out of memory: the command line");
    list->items[list->n++] = word;
    return EXIT_OK;
}

/* "-n, --tokens" or "OUT": how an error line calls it. */
static const char *label(const option *o, char *text, size_t size)
{
    if (!o->name)
        snprintf(text, size, "%s", o->argument);
    else if (o->letter)
        snprintf(text, size, "-%c, --%s", o->letter, o->name);
    else
        snprintf(text, size, "--%s", o->name);
    return text;
}

static int set_value(const option *o, void *values, const char *word)
{
    void *at = (char *)values + o->offset;
    bool good = true;
    if (o->type == OPTION_INTEGER) {
        int64_t n = 0;
        good = parse_integer(word, &n) &&
               (o->choices ? find_choice(o->choices, word) >= 0 : n >= o->min && n <= o->max);
        if (good) memcpy(at, &n, sizeof n);
    } else if (o->type == OPTION_REAL) {
        double x = 0;
        good = parse_real(word, &x) && x >= o->min && x <= o->max;
        if (good) memcpy(at, &x, sizeof x);
    } else if (o->type == OPTION_CHOICE) {
        int i = find_choice(o->choices, word);
        good = i >= 0;
        if (good) memcpy(at, &i, sizeof i);
    } else if (o->type == OPTION_TEXTS) {
        return add_text(at, word);
    } else {
        memcpy(at, &word, sizeof word);
    }
    if (good) return EXIT_OK;
    char name[LONGEST_WORD], expected[200];
    options_expected(o, expected, sizeof expected);
    return fail_usage("%s: expected %s, found \"%s\"", label(o, name, sizeof name), expected, word);
}

/* ---- the command line ---------------------------------------------------------------------- */

typedef struct parser {
    const command *command;
    void *values;
    int argc, next;
    char **argv;
    size_t operand; /* place in the table after the last operand filled */
    uint64_t given; /* bit i: option i has a value */
} parser;

static const option *find_option(const command *c, const char *name, size_t size, char letter)
{
    for (size_t i = 0; i < c->n_options; i++) {
        const option *o = &c->options[i];
        if (!o->name) continue;
        if (letter ? o->letter == letter
                   : strlen(o->name) == size && memcmp(o->name, name, size) == 0)
            return o;
    }
    return NULL;
}

static int unknown_option(const command *c, const char *word, size_t size)
{
    const char *names[MOST_NAMES];
    char name[LONGEST_WORD];
    size_t n = 0;
    names[n++] = "help";
    for (size_t i = 0; i < c->n_options && n < MOST_NAMES; i++)
        if (c->options[i].name) names[n++] = c->options[i].name;
    snprintf(name, sizeof name, "%.*s", (int)size, word);
    const char *dashes = name + strspn(name, "-");
    const char *nearest = strlen(dashes) > 1 ? options_nearest(dashes, names, n) : NULL;
    if (nearest)
        return fail_usage("%s: unknown option %s; did you mean --%s?", c->name, name, nearest);
    return fail_usage("%s: unknown option %s; \"pleach %s --help\" lists them", c->name, name,
                      c->name);
}

/* Sets o from its attached value, or from the next word. */
static int take_value(parser *p, const option *o, const char *attached)
{
    char name[LONGEST_WORD], expected[200];
    p->given |= (uint64_t)1 << (o - p->command->options);
    if (o->type == OPTION_FLAG) {
        int one = 1;
        if (attached) return fail_usage("--%s takes no value, found \"%s\"", o->name, attached);
        memcpy((char *)p->values + o->offset, &one, sizeof one);
        return EXIT_OK;
    }
    if (!attached && p->next < p->argc) attached = p->argv[p->next++];
    if (attached) return set_value(o, p->values, attached);
    options_expected(o, expected, sizeof expected);
    return fail_usage("%s: expected %s, found the end of the line", label(o, name, sizeof name),
                      expected);
}

static int take_long(parser *p, const char *word, bool *help)
{
    size_t size = strcspn(word, "=");
    if (strcmp(word, "help") == 0) {
        *help = true;
        return EXIT_OK;
    }
    const option *o = find_option(p->command, word, size, 0);
    if (!o) return unknown_option(p->command, word - 2, size + 2);
    return take_value(p, o, word[size] ? word + size + 1 : NULL);
}

/* "-n5", "-n 5"; flags may stand together. */
static int take_short(parser *p, const char *word, bool *help)
{
    for (const char *c = word + 1; *c; c++) {
        if (*c == 'h') {
            *help = true;
            return EXIT_OK;
        }
        const option *o = find_option(p->command, NULL, 0, *c);
        if (!o) return unknown_option(p->command, word, strlen(word));
        if (o->type != OPTION_FLAG) return take_value(p, o, c[1] ? c + 1 : NULL);
        take_value(p, o, NULL);
    }
    return EXIT_OK;
}

static int take_operand(parser *p, const char *word)
{
    const command *c = p->command;
    for (; p->operand < c->n_options; p->operand++) {
        const option *o = &c->options[p->operand];
        if (o->name) continue;
        p->given |= (uint64_t)1 << p->operand;
        if (o->type != OPTION_TEXTS) p->operand++; /* a list takes all that follow */
        return set_value(o, p->values, word);
    }
    return fail_usage(
        "%s: \"%s\" is one word too many; \"pleach %s --help\" shows what is expected", c->name,
        word, c->name);
}

static int check_required(const parser *p)
{
    const command *c = p->command;
    for (size_t i = 0; i < c->n_options; i++) {
        char name[LONGEST_WORD];
        if (!c->options[i].required || p->given >> i & 1) continue;
        return fail_usage("%s: %s is missing; \"pleach %s --help\" shows what is expected", c->name,
                          label(&c->options[i], name, sizeof name), c->name);
    }
    return EXIT_OK;
}

int options_parse(const command *c, int argc, char **argv, void *values, bool *help)
{
    parser p = {.command = c, .values = values, .argc = argc, .argv = argv};
    bool operands_alone = false;
    int status = EXIT_OK;
    *help = false;
    while (status == EXIT_OK && !*help && p.next < argc) {
        const char *word = argv[p.next++];
        if (operands_alone || word[0] != '-' || !word[1])
            status = take_operand(&p, word);
        else if (strcmp(word, "--") == 0)
            operands_alone = true;
        else if (word[1] == '-')
            status = take_long(&p, word + 2, help);
        else
            status = take_short(&p, word, help);
    }
    if (c->given) memcpy((char *)values + c->given, &p.given, sizeof p.given);
    return status == EXIT_OK && !*help ? check_required(&p) : status;
}

bool options_given(const command *c, const void *values, const char *name)
{
    uint64_t given;
    memcpy(&given, (const char *)values + c->given, sizeof given);
    return given >> (find_option(c, name, strlen(name), 0) - c->options) & 1;
}

void options_free(const command *c, void *values)
{
    for (size_t i = 0; i < c->n_options; i++) {
        if (c->options[i].type != OPTION_TEXTS) continue;
        option_texts list;
        memcpy(&list, (char *)values + c->options[i].offset, sizeof list);
        pl_free(list.items);
    }
}
