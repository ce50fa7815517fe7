/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of --help, made from the option tables. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "commands.h"

enum { WIDTH = 80, COLUMN = 28 };

/* Prints text from column `at` on, lines indented by `indent`. An empty line stays one. */
static void print_wrapped(const char *text, size_t at, size_t indent)
{
    bool start = true; /* no word on this line yet */
    while (*text) {
        size_t n = strcspn(text, " \n");
        if (n > 0 && !start && at + 1 + n > WIDTH) {
            printf("\n%*s", (int)indent, "");
            at = indent;
            start = true;
        }
        if (n > 0) {
            printf("%s%.*s", start ? "" : " ", (int)n, text);
            at += n + !start;
            start = false;
        }
        text += n;
        if (*text == '\n') {
            printf("\n%*s", text[1] == '\n' ? 0 : (int)indent, "");
            at = indent;
            start = true;
        }
        if (*text) text++;
    }
    putchar('\n');
}

static void print_option(const option *o, const void *values)
{
    char heading[160], text[600], fallback[64];
    const char *argument = o->choices ? o->choices : o->argument;
    if (!o->name)
        snprintf(heading, sizeof heading, "%s", o->argument);
    else
        snprintf(heading, sizeof heading, "%c%c%c --%s%s%s", o->letter ? '-' : ' ',
                 o->letter ? o->letter : ' ', o->letter ? ',' : ' ', o->name,
                 o->type == OPTION_FLAG ? "" : " ", o->type == OPTION_FLAG ? "" : argument);
    bool has_default = o->name && options_default(o, values, fallback, sizeof fallback);
    snprintf(text, sizeof text, "%s%s%s%s", o->help, has_default ? " (default: " : "",
             has_default ? fallback : "", has_default ? ")" : "");
    size_t width = (size_t)printf("  %s", heading);
    if (width + 2 > COLUMN)
        printf("\n%*s", COLUMN, "");
    else
        printf("%*s", (int)(COLUMN - width), "");
    print_wrapped(text, COLUMN, COLUMN);
}

static void print_usage(const command *c)
{
    printf("usage: pleach %s [options]", c->name);
    for (size_t i = 0; i < c->n_options; i++) {
        const option *o = &c->options[i];
        if (o->name && o->required) printf(" --%s %s", o->name, o->argument);
    }
    for (size_t i = 0; i < c->n_options; i++) {
        const option *o = &c->options[i];
        if (!o->name)
            printf(o->required ? " %s%s" : " [%s%s]", o->argument,
                   o->type == OPTION_TEXTS ? "..." : "");
    }
    printf("\n\n");
}

void print_command_help(const command *c)
{
    static const option help = {.name = "help", .letter = 'h', .help = "show this text"};
    void *values = command_defaults(c);
    if (!values) return;
    print_usage(c);
    print_wrapped(c->description, 0, 0);
    putchar('\n');
    for (size_t i = 0; i < c->n_options; i++)
        if (!c->options[i].name) print_option(&c->options[i], values);
    printf("\noptions:\n");
    for (size_t i = 0; i < c->n_options; i++)
        if (c->options[i].name) print_option(&c->options[i], values);
    print_option(&help, values);
    printf("\nexamples:\n");
    for (const char *const *e = c->examples; *e; e++) printf("  %s\n", *e);
    pl_free(values);
}

void print_overview(void)
{
    printf("pleach: " PROGRAM_SUMMARY "\n\nusage: pleach COMMAND [options] ...\n\n");
    for (size_t i = 0; i < n_commands; i++)
        printf("  %-12s %s\n", commands[i]->name, commands[i]->summary);
    printf("\n\"pleach COMMAND --help\" explains one of them.\n\nexit status: " EXIT_STATUS_TEXT
           "\n");
}
