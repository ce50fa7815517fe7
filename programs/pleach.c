/* SPDX-License-Identifier: Apache-2.0
 *
 * The pleach program: finds the command, parses its options, runs it. */
#include <string.h>

#include "base/memory.h"
#include "commands.h"
#include "console.h"

const command *const commands[] = {
    &quantize_command,   &run_command,      &chat_command,       &serve_command,   &eval_command,
    &logits_command,     &tokenize_command, &detokenize_command, &inspect_command, &verify_command,
    &dequantize_command, &bench_command,    &help_command,       &version_command,
};
const size_t n_commands = PL_COUNT(commands);

const command *find_command(const char *name)
{
    for (size_t i = 0; i < n_commands; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

int unknown_command(const char *name)
{
    const char *names[PL_COUNT(commands)];
    for (size_t i = 0; i < n_commands; i++) names[i] = commands[i]->name;
    const char *nearest = options_nearest(name, names, n_commands);
    if (nearest) return fail_usage("unknown command \"%s\"; did you mean %s?", name, nearest);
    return fail_usage("unknown command \"%s\"; \"pleach help\" lists them", name);
}

void *command_defaults(const command *c)
{
    void *values = pl_calloc(1, c->values_size);
    if (values && c->defaults) c->defaults(values);
    return values;
}

static int run_command_line(const command *c, int argc, char **argv)
{
    bool help;
    void *values = command_defaults(c);
    if (!values) return fail("out of memory: options");
    int status = options_parse(c, argc, argv, values, &help);
    if (status == EXIT_OK && help)
        print_command_help(c);
    else if (status == EXIT_OK)
        status = c->run(values);
    options_free(c, values);
    pl_free(values);
    return status;
}

int main(int argc, char **argv)
{
    console_start();
    if (argc < 2) return fail_usage("a command is missing; \"pleach help\" lists them");
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    if (strcmp(name, "--version") == 0) name = "version";
    const command *c = find_command(name);
    return c ? finish_output(run_command_line(c, argc - 2, argv + 2)) : unknown_command(name);
}
