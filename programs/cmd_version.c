/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach version: the version, and what this build can do on this machine. */
#include <stdio.h>

#include "base/cpu.h"
#include "base/threads.h"
#include "commands.h"
#include "console.h"
#include "model_options.h"
#include "pleach/pleach.h"

#define KV_TYPES                                                                                   \
    "f32|bf16|k8v8|k8v5|k8v4|k8v3|k8v2|k5v8|k5v5|k5v4|k5v3|k5v2|"                                  \
    "k4v8|k4v5|k4v4|k4v3|k4v2|k2v8|k2v5|k2v4|k2v3|k2v2"

typedef struct version_values {
    int json;
} version_values;

/* What --device knows in this build; whether a device is there shows when it is asked for. */
#ifdef PLEACH_CUDA
#define DEVICES "cpu|cuda"
#else
#define DEVICES "cpu"
#endif

static json_t *cpu_levels(void)
{
    json_t *list = json_array();
    for (size_t i = 0; cpu_level(i); i++) json_array_append_new(list, json_string(cpu_level(i)));
    return list;
}

/* "a|b|c" as an array of strings. */
static json_t *split(const char *choices)
{
    char text[64];
    json_t *list = json_array();
    for (size_t i = 0; options_choice(choices, i, text, sizeof text); i++)
        json_array_append_new(list, json_string(text));
    return list;
}

static int run(const void *values)
{
    const version_values *v = values;
    if (!v->json) {
        printf("pleach %s\n", pleach_version());
        return EXIT_OK;
    }
    unsigned cpu = PL_CPU_C;
    pl_cpu_level(NULL, &cpu);
    return print_json(json_pack(
        "{s:s, s:s, s:o, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "version", pleach_version(),
        "cpu", pl_cpu_name(cpu), "cpu_levels", cpu_levels(), "devices", split(DEVICES), "threads",
        pl_default_threads(), "arith", split(ARITH_CHOICES), "kv", split(KV_TYPES), "bits", split("2|3|4"),
        "state_bits", split("12|16"), "rotate", split(ROTATE_CHOICES), "formats",
        split("pleach|safetensors|gguf"), "chat_templates", split("jinja")));
}

static const option options[] = {
    {.name = "json",
     .type = OPTION_FLAG,
     .help = "list what this build can do: processor levels, arithmetics, cache types, formats",
     OPTION_AT(version_values, json)},
};

const command version_command = {
    .name = "version",
    .summary = "print the version, and with --json what this build can do",
    .description = "Prints the version. \"pleach --version\" is the same.",
    .options = options,
    .n_options = PL_COUNT(options),
    .examples = (const char *const[]){"pleach --version", "pleach --version --json", NULL},
    .values_size = sizeof(version_values),
    .run = run,
};
