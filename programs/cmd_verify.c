/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach verify: reads all of a model and says what is wrong with it. */
#include <stdio.h>

#include "commands.h"
#include "console.h"
#include "model_options.h"

typedef struct verify_values {
    const char *path;
    int json;
} verify_values;

static void take_finding(void *user, const char *tensor, const char *finding)
{
    json_t *list = user;
    if (list) {
        json_array_append_new(list, json_pack("{s:o, s:o}", "tensor", json_text(tensor), "finding",
                                              json_text(finding)));
        return;
    }
    print_name(tensor ? tensor : "model");
    printf(": ");
    print_name(finding);
    putchar('\n');
}

static int run(const void *values)
{
    const verify_values *v = values;
    pleach_checkpoint *c = NULL;
    pleach_error err;
    size_t n = 0;
    json_t *list = v->json ? json_array() : NULL;
    int result = EXIT_OK;
    pleach_status status = pleach_checkpoint_open(v->path, &c, &err);
    if (status == PLEACH_OK) status = pleach_checkpoint_verify(c, take_finding, list, &n, &err);
    if (status != PLEACH_OK)
        result = fail_status(&err);
    else if (v->json)
        result = print_json(json_pack("{s:I, s:O}", "tensors",
                                      (json_int_t)pleach_checkpoint_count(c), "findings", list));
    else if (n == 0)
        printf("%s: %zu tensors, nothing found\n", v->path, pleach_checkpoint_count(c));
    json_decref(list);
    pleach_checkpoint_close(c);
    return result == EXIT_OK && n > 0 ? EXIT_FAILED : result;
}

static const option options[] = {
    MODEL_OPERAND(verify_values),
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "print one JSON object",
     OPTION_AT(verify_values, json)},
};

const command verify_command = {
    .name = "verify",
    .summary = "read a whole model and list what is wrong with it",
    .description = "Reads every tensor of a model: NaN, infinity, scales out of range, shapes that "
                   "do not fit the config, weights that are missing. One line for each finding; "
                   "exit status 1 when there are some.",
    .options = options,
    .n_options = PL_COUNT(options),
    .examples = (const char *const[]){"pleach verify model-4bit", NULL},
    .values_size = sizeof(verify_values),
    .run = run,
};
