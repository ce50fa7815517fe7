/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands, one file each (cmd_<name>.c), and the texts made from their tables. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "options.h"

extern const command quantize_command, run_command, chat_command, serve_command, eval_command,
    logits_command, tokenize_command, detokenize_command, inspect_command, verify_command,
    dequantize_command, bench_command, help_command, version_command;

/* All of them, in the order in which help shows them. */
extern const command *const commands[];
extern const size_t n_commands;

const command *find_command(const char *name); /* NULL: no such command */
/* One line, with the nearest name where there is one; EXIT_USAGE. */
int unknown_command(const char *name);

/* To stdout (help.c, man.c, completion.c). */
void print_overview(void);
void print_command_help(const command *c);
void print_man_page(void);
void print_completion(int shell); /* place in COMPLETION_SHELLS */

#define COMPLETION_SHELLS "bash|zsh|fish"
#define PROGRAM_SUMMARY   "pack language models into 2 to 4 bits a weight, and run them"
#define EXIT_STATUS_TEXT                                                                           \
    "0: done. 1: it failed, or verify found something. 2: the command line is wrong. "             \
    "130: interrupted."

/* The defaults of a command, in fresh zeroed memory (pl_free); NULL: out of memory. */
void *command_defaults(const command *c);

#endif
