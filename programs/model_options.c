/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared options, from the library's defaults and to its settings. */
#include "model_options.h"

#include <stdio.h>

#include "base/cpu.h"
#include "console.h"

void model_values_defaults(model_values *v)
{
    pleach_model_settings s;
    pleach_model_settings_defaults(&s);
    *v = (model_values){.threads = s.threads, .cpu = s.cpu, .arith = (int)s.arith};
}

void session_values_defaults(session_values *v)
{
    pleach_session_settings s;
    pleach_session_settings_defaults(&s);
    *v = (session_values){.context = (int64_t)s.context, .kv = (int)s.kv};
}

void sampling_values_defaults(sampling_values *v)
{
    pleach_sampling s;
    pleach_sampling_defaults(&s);
    *v = (sampling_values){.temperature = s.temperature,
                           .top_p = s.top_p,
                           .min_p = s.min_p,
                           .repeat_penalty = s.repetition_penalty,
                           .top_k = s.top_k,
                           .repeat_window = s.repetition_window,
                           .seed = (int64_t)s.seed};
}

const char *cpu_level(size_t i)
{
    static const char *const levels[] = {"c", "avx2", "avx512", "avx512bf16", "neon", "dotprod"};
    unsigned flags;
    for (size_t l = 0; l < PL_COUNT(levels); l++)
        if (pl_cpu_level(levels[l], &flags) == 0 && i-- == 0) return levels[l];
    return NULL;
}

int check_cpu(const char *cpu)
{
    char here[64];
    size_t used = 0;
    unsigned flags;
    if (pl_cpu_level(cpu, &flags) == 0) return EXIT_OK;
    for (size_t i = 0; cpu_level(i); i++)
        used +=
            (size_t)snprintf(here + used, sizeof here - used, "%s%s", i ? ", " : "", cpu_level(i));
    return fail_usage("--cpu: expected a level of this machine (%s), found \"%s\"", here, cpu);
}

int open_model(const char *path, const model_values *v, pleach_model **out)
{
    pleach_error err;
    pleach_model_settings s;
    int status = check_cpu(v->cpu);
    if (status != EXIT_OK) return status;
    pleach_model_settings_defaults(&s);
    s.threads = (int)v->threads;
    s.cpu = v->cpu;
    s.arith = (pleach_arith)v->arith;
    return pleach_model_open(path, &s, out, &err) == PLEACH_OK ? EXIT_OK : fail_status(&err);
}

int open_session(const pleach_model *m, const session_values *v, pleach_session **out)
{
    pleach_error err;
    pleach_session_settings s;
    pleach_session_settings_defaults(&s);
    s.context = (size_t)v->context;
    s.kv = (pleach_kv)v->kv;
    return pleach_session_open(m, &s, out, &err) == PLEACH_OK ? EXIT_OK : fail_status(&err);
}

void sampling_from_values(const sampling_values *v, pleach_sampling *s)
{
    pleach_sampling_defaults(s);
    s->temperature = (float)v->temperature;
    s->top_k = (int32_t)v->top_k;
    s->top_p = (float)v->top_p;
    s->min_p = (float)v->min_p;
    s->repetition_penalty = (float)v->repeat_penalty;
    s->repetition_window = (int32_t)v->repeat_window;
    s->seed = (uint64_t)v->seed;
}
