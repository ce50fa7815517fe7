/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach tokenize: text to token ids. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "commands.h"
#include "console.h"
#include "input.h"
#include "model_options.h"

typedef struct tokenize_values {
    const char *path, *text, *file;
    int special, bos, json;
} tokenize_values;

static int print_ids(const int32_t *ids, size_t n, bool as_json)
{
    if (!as_json) {
        for (size_t i = 0; i < n; i++) printf("%s%d", i ? " " : "", ids[i]);
        putchar('\n');
        return EXIT_OK;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
    return print_json(json_pack("{s:I, s:o}", "n", (json_int_t)n, "ids", list));
}

static int run(const void *values)
{
    const tokenize_values *v = values;
    pleach_model *m = NULL;
    model_values settings;
    char *read = NULL;
    const char *text = v->text;
    size_t size = text ? strlen(text) : 0, n = 0;
    int32_t *ids = NULL;
    pleach_error err;
    if (v->text && v->file) return fail_usage("tokenize: expected TEXT or --file, found both");
    model_values_defaults(&settings);
    int status = text ? EXIT_OK : read_input(v->file ? v->file : "-", &read, &size);
    if (read) text = read;
    if (status == EXIT_OK) status = open_model(v->path, &settings, &m);
    if (status == EXIT_OK) {
        unsigned flags =
            (v->special ? PLEACH_TOKENIZE_SPECIAL : 0) | (v->bos ? PLEACH_TOKENIZE_BOS : 0);
        if (pleach_tokenize(m, text, size, flags, &ids, &n, &err) != PLEACH_OK)
            status = fail_status(&err);
        else
            status = print_ids(ids, n, v->json);
    }
    pleach_ids_free(ids);
    pleach_model_close(m);
    pl_free(read);
    return status;
}

static const option options[] = {
    MODEL_OPERAND(tokenize_values),
    {.argument = "TEXT",
     .type = OPTION_TEXT,
     .help = "the text; standard input when neither it nor --file is given",
     OPTION_AT(tokenize_values, text)},
    {.name = "file",
     .letter = 'f',
     .type = OPTION_PATH,
     .argument = "FILE",
     .help = "read the text from a file; \"-\" is standard input",
     OPTION_AT(tokenize_values, file)},
    {.name = "special",
     .type = OPTION_FLAG,
     .help = "special tokens written in the text become what they name",
     OPTION_AT(tokenize_values, special)},
    {.name = "bos",
     .type = OPTION_FLAG,
     .help = "add what the tokenizer adds round a text, such as a begin token",
     OPTION_AT(tokenize_values, bos)},
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "print one JSON object",
     OPTION_AT(tokenize_values, json)},
};

const command tokenize_command = {
    .name = "tokenize",
    .summary = "turn text into token ids",
    .description = "Prints the token ids of a text on one line, separated by blanks.",
    .options = options,
    .n_options = PL_COUNT(options),
    .examples = (const char *const[]){"pleach tokenize model-4bit 'Hello there'",
                                      "pleach tokenize model-4bit --file book.txt --json", NULL},
    .values_size = sizeof(tokenize_values),
    .run = run,
};
