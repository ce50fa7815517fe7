/* SPDX-License-Identifier: Apache-2.0
 *
 * The man page, as roff for man(7), made from the option tables. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "commands.h"
#include "pleach/pleach.h"

/* Text as roff: dashes as typed, no line that begins with a request. */
static void print_roff(const char *text)
{
    bool start = true;
    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\'')) printf("\\&");
        if (*text == '-')
            printf("\\-");
        else if (*text == '\\')
            printf("\\e");
        else if (*text == '\n' && text[1] == '\n')
            printf("\n.PP");
        else
            putchar(*text);
        start = *text == '\n';
    }
}

static void print_heading(const option *o)
{
    printf(".TP\n");
    if (o->letter) printf("\\fB\\-%c\\fR, ", o->letter);
    if (o->name) {
        printf("\\fB\\-\\-");
        print_roff(o->name);
        printf("\\fR");
    }
    if (o->type != OPTION_FLAG) {
        printf(o->name ? " \\fI" : "\\fI");
        print_roff(o->choices ? o->choices : o->argument);
        printf("\\fR");
    }
    putchar('\n');
}

static void print_option(const option *o, const void *values)
{
    char fallback[64];
    print_heading(o);
    print_roff(o->help);
    if (o->name && options_default(o, values, fallback, sizeof fallback)) {
        printf(" (default: ");
        print_roff(fallback);
        putchar(')');
    }
    putchar('\n');
}

static void print_command(const command *c)
{
    void *values = command_defaults(c);
    if (!values) return;
    printf(".SS \"pleach %s [options]", c->name);
    for (size_t i = 0; i < c->n_options; i++)
        if (!c->options[i].name)
            printf(c->options[i].required ? " %s" : " [%s]", c->options[i].argument);
    printf("\"\n");
    print_roff(c->description);
    putchar('\n');
    for (size_t i = 0; i < c->n_options; i++) print_option(&c->options[i], values);
    printf(".PP\nFor example:\n.PP\n.nf\n.RS\n");
    for (const char *const *e = c->examples; *e; e++) {
        print_roff(*e);
        putchar('\n');
    }
    printf(".RE\n.fi\n");
    pl_free(values);
}

void print_man_page(void)
{
    printf(
        ".TH PLEACH 1 \"\" \"pleach " PLEACH_VERSION "\" \"User Commands\"\n"
        ".SH NAME\npleach \\- " PROGRAM_SUMMARY "\n"
        ".SH SYNOPSIS\n.B pleach\n.I command\n[options] ...\n.SH DESCRIPTION\n"
        "Pleach packs the weights of a language model into a bitshift trellis of 2, 3 or 4 bits\n"
        "a weight, and runs such models, Hugging Face folders and GGUF files on processors.\n"
        "Results do not depend on the number of threads.\n.SH COMMANDS\n");
    for (size_t i = 0; i < n_commands; i++) print_command(commands[i]);
    printf(".SH EXIT STATUS\n" EXIT_STATUS_TEXT "\n");
}
