/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach help: the texts made from the option tables. */
#include "commands.h"
#include "console.h"

typedef struct help_values {
    const char *command;
    int man, completion;
} help_values;

static void defaults(void *values)
{
    help_values *v = values;
    v->completion = -1;
}

static int run(const void *values)
{
    const help_values *v = values;
    const command *c = v->command ? find_command(v->command) : NULL;
    if (v->command && !c) return unknown_command(v->command);
    if (c)
        print_command_help(c);
    else if (v->man)
        print_man_page();
    else if (v->completion >= 0)
        print_completion(v->completion);
    else
        print_overview();
    return EXIT_OK;
}

static const option options[] = {
    {.argument = "COMMAND",
     .type = OPTION_TEXT,
     .help = "the command to explain",
     OPTION_AT(help_values, command)},
    {.name = "man",
     .type = OPTION_FLAG,
     .help = "print the man page, as roff",
     OPTION_AT(help_values, man)},
    {.name = "completion",
     .type = OPTION_CHOICE,
     .choices = COMPLETION_SHELLS,
     .help = "print the completions for a shell",
     OPTION_AT(help_values, completion)},
};

const command help_command = {
    .name = "help",
    .summary = "explain a command; print the man page or shell completions",
    .description = "Explains a command, or lists them all.",
    .options = options,
    .n_options = PL_COUNT(options),
    .examples = (const char *const[]){"pleach help quantize", "pleach help --man | man -l -",
                                      "pleach help --completion bash > ~/.local/share/"
                                      "bash-completion/completions/pleach",
                                      NULL},
    .values_size = sizeof(help_values),
    .defaults = defaults,
    .run = run,
};
