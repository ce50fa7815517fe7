/* SPDX-License-Identifier: Apache-2.0
 *
 * Options that several commands share: opening a model, its session, and sampling. */
#ifndef MODEL_OPTIONS_H
#define MODEL_OPTIONS_H

#include <stdio.h>

#include "console.h"
#include "options.h"
#include "pleach/pleach.h"

/* In the order of the enums pleach_arith and pleach_rotate. */
#define ARITH_CHOICES  "int16|int16x2|f32|bf16|int8"
#define ROTATE_CHOICES "none|input|both|online|fold|scale"
enum { ROTATE_SCALE = 5 }; /* another name of online, by what it has beside "input" */

typedef struct model_values {
    int64_t threads;
    const char *cpu, *device;
    int arith, batch_invariant;
} model_values;

typedef struct session_values {
    int64_t context;
    const char *kv;
    int64_t recent;
} session_values;

typedef struct sampling_values {
    double temperature, top_p, min_p, repeat_penalty;
    int64_t top_k, repeat_window, seed;
} sampling_values;

void model_values_defaults(model_values *v);
void session_values_defaults(session_values *v);
void sampling_values_defaults(sampling_values *v);

/* Each opens with one line on stderr when it fails, and returns the exit status. */
int open_model(const char *path, const model_values *v, pleach_model **out);
int open_session(const pleach_model *m, const session_values *v, pleach_session **out);
/* EXIT_USAGE when it is no device's name: cpu, cuda, cuda:N. */
int check_device(const char *device);
/* EXIT_USAGE when `cpu` (NULL: the best) is no level of this machine. */
int check_cpu(const char *cpu);
/* EXIT_USAGE when these cannot be cache types of any model. */
int check_session(const session_values *v);
/* Level i of those that this machine has; NULL past the last. */
const char *cpu_level(size_t i);

/* "cache: k8v3, 6.25 bits a number, 2250 bytes a token, 18.4 MB for 8192 tokens". */
void print_cache(FILE *to, const pleach_cache_info *info);
/* The same, and the device if one computes. */
void print_session_cache(FILE *to, const pleach_model *m, const pleach_session *s);
/* One line on stderr where a type is known to be bad for the model. */
void warn_of_cache(const pleach_cache_info *info);
json_t *cache_json(const pleach_cache_info *info);

void session_settings(const session_values *v, pleach_session_settings *s);
void sampling_from_values(const sampling_values *v, pleach_sampling *s);

/* clang-format off */

#define MODEL_OPERAND(values)                                                                      \
    {.argument = "MODEL", .type = OPTION_PATH, .required = true,                                   \
     .help = "a packed folder, a Hugging Face folder or a GGUF file", OPTION_AT(values, path)}

#define THREADS_OPTION(values, field)                                                              \
    {.name = "threads", .letter = 't', .type = OPTION_INTEGER, .argument = "N", .min = 1,          \
     .max = 256, .automatic = "all cores this process may use",                                    \
     .help = "threads to work with; results do not depend on it", OPTION_AT(values, field)}

#define CPU_OPTION(values, field)                                                                  \
    {.name = "cpu", .type = OPTION_TEXT, .argument = "LEVEL",                                      \
     .automatic = "the best of this machine",                                                      \
     .help = "processor level: c, avx2, avx512, avx512bf16, neon, dotprod",                        \
     OPTION_AT(values, field)}

#define DEVICE_OPTION(values, field)                                                               \
    {.name = "device", .type = OPTION_TEXT, .argument = "DEVICE", .automatic = "cpu",              \
     .help = "who computes: cpu, or an NVIDIA GPU, cuda or cuda:N", OPTION_AT(values, field)}

#define MODEL_OPTIONS(values)                                                                      \
    THREADS_OPTION(values, model.threads), CPU_OPTION(values, model.cpu),                          \
    DEVICE_OPTION(values, model.device),                                                           \
    {.name = "batch-invariant", .type = OPTION_FLAG,                                               \
     .help = "on a device too, the same bits for a token alone and in any batch (slower)",         \
     OPTION_AT(values, model.batch_invariant)},                                                    \
    {                                                                                              \
        .name = "arith", .type = OPTION_CHOICE, .choices = ARITH_CHOICES,                          \
        .help = "arithmetic of products with packed weights", OPTION_AT(values, model.arith)       \
    }

#define SESSION_OPTIONS(values)                                                                    \
    {.name = "ctx", .type = OPTION_INTEGER, .argument = "N", .min = 1, .max = 16777216,            \
     .automatic = "the model's own", .help = "most tokens held at once",                           \
     OPTION_AT(values, session.context)},                                                          \
    KV_OPTIONS(values)

#define KV_OPTIONS(values)                                                                         \
    {.name = "kv", .type = OPTION_TEXT, .argument = "TYPES", .automatic = "f32",                   \
     .help = "type of cached keys and values: f32, bf16, or kKvV with K of 8, 5, 4 or 2 bits and " \
             "V of 8, 5, 4, 3 or 2; some layers in another: k8v3,0-1:bf16",                        \
     OPTION_AT(values, session.kv)},                                                               \
    {                                                                                              \
        .name = "kv-recent", .type = OPTION_INTEGER, .argument = "N", .min = 0, .max = 16777216,   \
        .help = "packed layers see the newest block of N tokens in bf16; 0: none",                 \
        OPTION_AT(values, session.recent)                                                          \
    }

#define SAMPLING_OPTIONS(values)                                                                   \
    {.name = "temp", .type = OPTION_REAL, .argument = "X", .min = 0, .max = 100,                   \
     .help = "temperature; 0 takes the likeliest token each time",                                 \
     OPTION_AT(values, sampling.temperature)},                                                     \
    {.name = "top-k", .type = OPTION_INTEGER, .argument = "K", .min = -1, .max = 16777216,         \
     .help = "keep the K likeliest tokens; 0: all", OPTION_AT(values, sampling.top_k)},            \
    {.name = "top-p", .type = OPTION_REAL, .argument = "P", .min = 0, .max = 1,                    \
     .help = "keep the likeliest tokens that sum to P; 1: all",                                    \
     OPTION_AT(values, sampling.top_p)},                                                           \
    {.name = "min-p", .type = OPTION_REAL, .argument = "P", .min = 0, .max = 1,                    \
     .help = "drop tokens below P times the likeliest; 0: none",                                   \
     OPTION_AT(values, sampling.min_p)},                                                           \
    {.name = "repeat-penalty", .type = OPTION_REAL, .argument = "X", .min = 0.01, .max = 100,      \
     .help = "make tokens seen before less likely; 1: off",                                        \
     OPTION_AT(values, sampling.repeat_penalty)},                                                  \
    {.name = "repeat-window", .type = OPTION_INTEGER, .argument = "N", .min = -1,                  \
     .max = 16777216, .help = "tokens the penalty looks back on; -1: all",                         \
     OPTION_AT(values, sampling.repeat_window)},                                                   \
    {                                                                                              \
        .name = "seed", .type = OPTION_INTEGER, .argument = "N", .min = 0,                         \
        .max = 9007199254740991, .help = "seed of the random draws",                               \
        OPTION_AT(values, sampling.seed)                                                           \
    }

/* clang-format on */

#endif
