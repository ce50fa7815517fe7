/* SPDX-License-Identifier: Apache-2.0
 *
 * Shell completions for bash, zsh and fish, made from the option tables. */
#include <stdio.h>
#include <string.h>

#include "commands.h"

static void print_choices(const char *choices)
{
    for (; *choices; choices++) putchar(*choices == '|' ? ' ' : *choices);
}

static void print_options(const command *c)
{
    for (size_t i = 0; i < c->n_options; i++)
        if (c->options[i].name) printf("--%s ", c->options[i].name);
    printf("--help");
}

/* Text inside single quotes, with the characters of `special` escaped by a backslash. */
static void print_quoted(const char *text, const char *special)
{
    for (; *text; text++) {
        if (*text == '\'')
            printf("'\\''");
        else
            printf(strchr(special, *text) ? "\\%c" : "%c", *text);
    }
}

static void print_bash(void)
{
    printf("# bash completion for pleach\n_pleach() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} list=\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        list='");
    for (size_t i = 0; i < n_commands; i++) printf("%s ", commands[i]->name);
    printf("--help --version'\n    else\n        case ${COMP_WORDS[1]}:$before in\n");
    for (size_t i = 0; i < n_commands; i++) {
        const command *c = commands[i];
        for (const option *o = c->options; o < c->options + c->n_options; o++) {
            if (!o->name || !o->choices) continue;
            printf("        %s:--%s) list='", c->name, o->name);
            print_choices(o->choices);
            printf("' ;;\n");
        }
    }
    printf("        *)\n            case ${COMP_WORDS[1]}:$word in\n");
    for (size_t i = 0; i < n_commands; i++) {
        printf("            %s:-*) list='", commands[i]->name);
        print_options(commands[i]);
        printf("' ;;\n");
    }
    printf("            esac ;;\n        esac\n    fi\n"
           "    [ -z \"$list\" ] || COMPREPLY=($(compgen -W \"$list\" -- \"$word\"))\n}\n"
           "complete -o default -F _pleach pleach\n");
}

static void print_zsh_option(const option *o)
{
    printf(" \\\n            '%s--%s", o->type == OPTION_TEXTS ? "*" : "", o->name);
    putchar('[');
    print_quoted(o->help, "[]:\\");
    putchar(']');
    if (o->type != OPTION_FLAG) {
        printf(":%s:", o->argument ? o->argument : o->name);
        if (o->choices) {
            putchar('(');
            print_choices(o->choices);
            putchar(')');
        } else if (o->type == OPTION_PATH) {
            printf("_files");
        }
    }
    putchar('\'');
}

static void print_zsh(void)
{
    printf("#compdef pleach\n_pleach() {\n    local -a commands\n    commands=(\n");
    for (size_t i = 0; i < n_commands; i++) {
        printf("        '%s:", commands[i]->name);
        print_quoted(commands[i]->summary, ":\\");
        printf("'\n");
    }
    printf("    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n"
           "        return\n    fi\n    local command=$words[2]\n"
           "    shift words\n    (( CURRENT-- ))\n    case $command in\n");
    for (size_t i = 0; i < n_commands; i++) {
        const command *c = commands[i];
        printf("    %s)\n        _arguments -s", c->name);
        for (const option *o = c->options; o < c->options + c->n_options; o++)
            if (o->name) print_zsh_option(o);
        printf(" \\\n            '--help[show help]' '*:file:_files' ;;\n");
    }
    printf("    esac\n}\n_pleach \"$@\"\n");
}

static void print_fish_option(const command *c, const option *o)
{
    printf("complete -c pleach -n '__fish_seen_subcommand_from %s' -l %s", c->name, o->name);
    if (o->letter) printf(" -s %c", o->letter);
    if (o->choices) {
        printf(" -x -a '");
        print_choices(o->choices);
        putchar('\'');
    } else if (o->type != OPTION_FLAG) {
        printf(o->type == OPTION_PATH ? " -r" : " -x");
    }
    printf(" -d '");
    for (const char *h = o->help; *h; h++) printf(*h == '\'' || *h == '\\' ? "\\%c" : "%c", *h);
    printf("'\n");
}

static void print_fish(void)
{
    printf("# fish completion for pleach\n");
    for (size_t i = 0; i < n_commands; i++) {
        const command *c = commands[i];
        printf("complete -c pleach -n __fish_use_subcommand -f -a %s -d '%s'\n", c->name,
               c->summary);
        for (const option *o = c->options; o < c->options + c->n_options; o++)
            if (o->name) print_fish_option(c, o);
        printf(
            "complete -c pleach -n '__fish_seen_subcommand_from %s' -l help -s h -d 'show help'\n",
            c->name);
    }
}

void print_completion(int shell)
{
    static void (*const print[])(void) = {print_bash, print_zsh, print_fish};
    print[shell]();
}
