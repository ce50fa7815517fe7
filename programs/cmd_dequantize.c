/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach dequantize: a plain bf16 folder that other programs load. */
#include "commands.h"
#include "console.h"
#include "model_options.h"

typedef struct dequantize_values {
    const char *path, *out;
    int force;
} dequantize_values;

static int run(const void *values)
{
    const dequantize_values *v = values;
    pleach_checkpoint *c = NULL;
    pleach_error err;
    pleach_status status = pleach_checkpoint_open(v->path, &c, &err);
    if (status == PLEACH_OK) status = pleach_checkpoint_dequantize(c, v->out, v->force, &err);
    pleach_checkpoint_close(c);
    return status == PLEACH_OK ? EXIT_OK : fail_status(&err);
}

static const option options[] = {
    MODEL_OPERAND(dequantize_values),
    {.argument = "OUT",
     .type = OPTION_PATH,
     .required = true,
     .help = "the folder to write",
     OPTION_AT(dequantize_values, out)},
    {.name = "force",
     .type = OPTION_FLAG,
     .help = "replace OUT if it is there",
     OPTION_AT(dequantize_values, force)},
};

const command dequantize_command = {
    .name = "dequantize",
    .summary = "write a model as a plain bf16 Hugging Face folder",
    .description = "Decodes every weight, undoes the rotations and writes a bf16 Hugging Face "
                   "folder with config and tokenizer. OUT appears only when it is whole.",
    .options = options,
    .n_options = PL_COUNT(options),
    .examples = (const char *const[]){"pleach dequantize model-4bit model-bf16", NULL},
    .values_size = sizeof(dequantize_values),
    .run = run,
};
