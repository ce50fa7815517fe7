/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared options, from the library's defaults and to its settings. */
#include "model_options.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"

void model_values_defaults(model_values *v)
{
    pleach_model_settings s;
    pleach_model_settings_defaults(&s);
    *v = (model_values){.threads = s.threads, .cpu = s.cpu, .device = "cpu",
                        .arith = (int)s.arith};
}

void session_values_defaults(session_values *v)
{
    pleach_session_settings s;
    pleach_session_settings_defaults(&s);
    *v = (session_values){.context = (int64_t)s.context, .kv = s.kv,
                           .recent = (int64_t)s.kv_recent};
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

int check_device(const char *device)
{
    size_t digits = strncmp(device, "cuda:", 5) == 0 ? strspn(device + 5, "0123456789") : 0;
    bool numbered = digits > 0 && digits < 5 && !device[5 + digits];
    if (numbered || strcmp(device, "cpu") == 0 || strcmp(device, "cuda") == 0) return EXIT_OK;
    return fail_usage("--device: expected cpu, cuda or cuda:N, found \"%s\"", device);
}

int open_model(const char *path, const model_values *v, pleach_model **out)
{
    pleach_error err;
    pleach_model_settings s;
    int status = check_cpu(v->cpu);
    if (status == EXIT_OK) status = check_device(v->device);
    if (status != EXIT_OK) return status;
    pleach_model_settings_defaults(&s);
    s.threads = (int)v->threads;
    s.cpu = v->cpu;
    s.arith = (pleach_arith)v->arith;
    s.device = v->device;
    s.batch_invariant = v->batch_invariant;
    return pleach_model_open(path, &s, out, &err) == PLEACH_OK ? EXIT_OK : fail_status(&err);
}

void session_settings(const session_values *v, pleach_session_settings *s)
{
    pleach_session_settings_defaults(s);
    s->context = (size_t)v->context;
    s->kv = v->kv;
    s->kv_recent = (size_t)v->recent;
}

void warn_of_cache(const pleach_cache_info *info)
{
    if (info->warning) fprintf(stderr, "pleach: warning: %s: %s\n", info->types, info->warning);
}

int open_session(const pleach_model *m, const session_values *v, pleach_session **out)
{
    pleach_cache_info info;
    pleach_error err;
    pleach_session_settings s;
    session_settings(v, &s);
    if (pleach_session_open(m, &s, out, &err) != PLEACH_OK) return fail_status(&err);
    pleach_session_cache_info(*out, &info);
    warn_of_cache(&info);
    return EXIT_OK;
}

int check_session(const session_values *v)
{
    pleach_error err;
    return pleach_kv_check(v->kv, &err) == PLEACH_OK ? EXIT_OK
                                                     : fail_usage("--kv: %s", err.message);
}

void print_cache(FILE *to, const pleach_cache_info *i)
{
    char size[32], state[32];
    fprintf(to, "cache: %s, %g bits a number, ", i->types, i->bits);
    if (i->recent) fprintf(to, "recent %zu tokens in bf16 too, ", i->recent);
    if (i->state_bytes) fprintf(to, "a state of %s, ", bytes_text(i->state_bytes, state));
    fprintf(to, "%" PRIu64 " bytes a token, %s for %zu tokens\n", i->token_bytes,
            bytes_text(i->context_bytes, size), i->context);
}

/* Nothing for the processor. */
static void print_device(FILE *to, const pleach_model *m)
{
    pleach_model_info info;
    char weights[32], workspace[32];
    pleach_model_get_info(m, &info);
    if (info.device_bytes == 0) return;
    fprintf(to, "device: %s, %s, %s of weights, %s of workspace\n", info.device, info.device_name,
            bytes_text(info.device_bytes, weights), bytes_text(info.workspace_bytes, workspace));
}

void print_session_cache(FILE *to, const pleach_model *m, const pleach_session *s)
{
    pleach_cache_info info;
    pleach_session_cache_info(s, &info);
    print_cache(to, &info);
    print_device(to, m);
}

json_t *cache_json(const pleach_cache_info *i)
{
    return json_pack("{s:o, s:I, s:o, s:I, s:I, s:I, s:I, s:s?}", "types", json_text(i->types), "recent",
                     (json_int_t)i->recent, "bits", json_number(i->bits), "token_bytes",
                     (json_int_t)i->token_bytes, "state_bytes", (json_int_t)i->state_bytes, "context", (json_int_t)i->context, "context_bytes",
                     (json_int_t)i->context_bytes, "warning", i->warning);
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
