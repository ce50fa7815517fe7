/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach detokenize: token ids to text. */
#include <stdio.h>

#include "base/memory.h"
#include "commands.h"
#include "console.h"
#include "input.h"
#include "model_options.h"

typedef struct detokenize_values {
    const char *path, *file;
    option_texts ids;
    int special;
} detokenize_values;

static int gather_ids(const detokenize_values *v, id_list *list)
{
    int status = EXIT_OK;
    if (v->file && v->ids.n > 0)
        return fail_usage("detokenize: expected IDS or --file, found both");
    if (v->ids.n == 0) return read_ids(v->file ? v->file : "-", list);
    for (size_t i = 0; i < v->ids.n && status == EXIT_OK; i++)
        status = parse_ids("IDS", v->ids.items[i], list);
    return status == EXIT_OK ? EXIT_OK : EXIT_USAGE;
}

static int run(const void *values)
{
    const detokenize_values *v = values;
    pleach_model *m = NULL;
    model_values settings;
    id_list list = {0};
    char *text = NULL;
    size_t size = 0;
    pleach_error err;
    model_values_defaults(&settings);
    int status = gather_ids(v, &list);
    if (status == EXIT_OK) status = open_model(v->path, &settings, &m);
    if (status == EXIT_OK) {
        if (pleach_detokenize(m, list.ids, list.n, v->special, &text, &size, &err) != PLEACH_OK) {
            status = fail_status(&err);
        } else {
            fwrite(text, 1, size, stdout);
            putchar('\n');
        }
    }
    pleach_text_free(text);
    pleach_model_close(m);
    pl_free(list.ids);
    return status;
}

static const option options[] = {
    MODEL_OPERAND(detokenize_values),
    {.argument = "IDS",
     .type = OPTION_TEXTS,
     .help = "the ids; standard input when neither they nor --file are given",
     OPTION_AT(detokenize_values, ids)},
    {.name = "file",
     .letter = 'f',
     .type = OPTION_PATH,
     .argument = "FILE",
     .help = "ids from a text or an I32 safetensors file",
     OPTION_AT(detokenize_values, file)},
    {.name = "special",
     .type = OPTION_FLAG,
     .help = "show special tokens too",
     OPTION_AT(detokenize_values, special)},
};

const command detokenize_command = {
    .name = "detokenize",
    .summary = "turn token ids into text",
    .description = "Prints the text that token ids stand for, and a line end.",
    .options = options,
    .n_options = PL_COUNT(options),
    .examples =
        (const char *const[]){"pleach detokenize model-4bit 19556 665",
                              "pleach tokenize model-4bit 'Hello there' | pleach detokenize "
                              "model-4bit",
                              NULL},
    .values_size = sizeof(detokenize_values),
    .run = run,
};
