/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands and their options as tables. Parsing, --help (help.c), the man page (man.c) and shell
 * completions (completion.c) all read the same tables, so none of them can lag behind.
 *
 * A command's values live in a struct of its own; each option says where its value goes. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each type with the type of its value. */
typedef enum option_type {
    OPTION_FLAG,    /* int: 1 when given */
    OPTION_INTEGER, /* int64_t, in [min, max], and one of `choices` where there are any */
    OPTION_REAL,    /* double, in [min, max] */
    OPTION_CHOICE,  /* int: the place in `choices`; -1 while none is chosen */
    OPTION_TEXT,    /* const char *, borrowed from the command line */
    OPTION_PATH,    /* the same, naming a file or folder */
    OPTION_TEXTS    /* option_texts: may be given again and again */
} option_type;

typedef struct option_texts {
    const char **items; /* borrowed strings in fresh memory */
    size_t n, capacity;
} option_texts;

typedef struct option {
    const char *name; /* long name without dashes; NULL for an operand */
    char letter;      /* short name, or 0 */
    option_type type;
    bool required;
    const char *argument; /* what the value is called: "N", "FILE"; unused by flags and choices */
    const char *choices;  /* "none|input|both" */
    double min, max;
    const char *automatic; /* the default in words, where no fixed value is one */
    const char *help;
    size_t offset; /* of the value in the command's struct */
} option;

#define OPTION_AT(values, field) .offset = offsetof(values, field)

typedef struct command {
    const char *name;
    const char *summary;     /* one line, for the list of commands */
    const char *description; /* paragraphs, separated by an empty line */
    const option *options;   /* operands among them, in their order */
    size_t n_options;
    const char *const *examples; /* shell lines; NULL ends them */
    size_t values_size;
    size_t given; /* offset of a uint64_t that learns which options the line has; 0: of none */
    void (*defaults)(void *values); /* fills a zeroed struct; may be NULL */
    int (*run)(const void *values); /* returns the exit status */
} command;

/* Fills `values` (already holding the defaults) from the words after the command's name. Returns
 * EXIT_OK, or EXIT_USAGE after one line on stderr. *help: --help was asked for; the rest is then
 * not looked at. */
int options_parse(const command *c, int argc, char **argv, void *values, bool *help);
/* Frees what OPTION_TEXTS values hold. */
void options_free(const command *c, void *values);

/* Whether the line has the option, for commands that ask for it by `given`. */
bool options_given(const command *c, const void *values, const char *name);

/* The value of a number option in words, as --help shows a default: false when it has none. */
bool options_default(const option *o, const void *values, char *text, size_t size);
/* What an option's value may be: "a whole number from 1 to 8", "one of a, b, c". */
void options_expected(const option *o, char *text, size_t size);
/* Choice number i of "a|b|c" copied into text; false past the last one. */
bool options_choice(const char *choices, size_t i, char *text, size_t size);

/* The candidate nearest to `word` in spelling, or NULL when none is near. */
const char *options_nearest(const char *word, const char *const *candidates, size_t n);

#endif
