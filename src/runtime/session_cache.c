/* SPDX-License-Identifier: Apache-2.0
 *
 * From a session's settings to its cache, and what that takes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "format/config.h"
#include "session.h"

pleach_status pleach_kv_check(const char *kv, pleach_error *err)
{
    return pl_kv_parse(kv ? kv : "f32", 0, NULL, err);
}

size_t pl_session_context(const pl_config *g, const pleach_session_settings *s)
{
    return s->context ? s->context : g->context_length;
}

size_t pl_session_batch(const pl_config *g, const pleach_session_settings *s)
{
    return PL_MIN(s->batch ? s->batch : 512, pl_session_context(g, s));
}

pleach_status pl_session_cache_open(const pl_config *g, const pleach_session_settings *s,
                                    const pl_kernels *kernels, pl_page_memory *memory,
                                    pl_cache **out, pleach_error *err)
{
    pl_kv types[PL_MAX_LAYERS];
    uint32_t windows[PL_MAX_LAYERS];
    size_t states[PL_MAX_LAYERS];
    PL_TRY(pl_kv_parse(s->kv ? s->kv : "f32", g->n_layers, types, err));
    for (uint32_t i = 0; i < g->n_layers; i++) {
        windows[i] = pl_config_window(g, i);
        states[i] = g->layer[i].delta ? pl_delta_state_bytes(&g->delta) : 0;
    }
    pl_cache_settings set = {.n_layers = g->n_layers,
                             .n_kv_heads = g->n_kv_heads,
                             .head_dim = g->head_dim,
                             .capacity = pl_session_context(g, s),
                             .types = types,
                             .windows = windows,
                             .states = states,
                             .recent = s->kv_recent,
                             .kernels = kernels,
                             .memory = memory};
    return pl_cache_open(&set, out, err);
}

/* ---- what a cache takes ---------------------------------------------------------------------- */

/* Some channels of a layer's keys are made far larger than the others of their group, whose numbers
 * then share a few codes. */
static bool has_outliers(const pl_layer *l, uint32_t dim)
{
    enum { GROUP = PL_TURBOQUANT_GROUP, FAR = 8 };
    const float *gain = l->attention.k_norm;
    for (uint32_t i = 0; gain && i < dim; i += GROUP) {
        uint32_t end = PL_MIN(i + GROUP, dim);
        float sum = 0, most = 0;
        for (uint32_t d = i; d < end; d++) {
            sum += fabsf(gain[d]);
            most = fmaxf(most, fabsf(gain[d]));
        }
        if (most * (float)(end - i) > FAR * sum) return true;
    }
    return false;
}

/* layers: NULL when only the config is known. */
static const char *warning_of(const pl_config *g, const pl_layer *layers, const pl_cache *c)
{
    const char *warning = NULL;
    for (uint32_t i = 0; i < g->n_layers; i++) {
        uint32_t bits = pl_kv_code(pl_cache_type(c, i), g->head_dim).key_bits;
        if (g->layer[i].delta || !pl_cache_packed(c, i) || bits == 8) continue;
        if (bits == 2)
            return "2-bit keys: answers are nonsense with most models; use 4 bits or more";
        if (g->attention_bias || (layers && has_outliers(&layers[i], g->head_dim)))
            warning =
                "some channels of this model's keys are far larger than others and spoil keys "
                "of less than 8 bits; use 8";
    }
    return warning;
}

/* A list too long to print ends at a comma, and in "...". */
static void copy_types(const char *spec, char *to, size_t size)
{
    if ((size_t)snprintf(to, size, "%s", spec) < size) return;
    to[size - 4] = 0;
    char *comma = strrchr(to, ',');
    strcpy(comma ? comma + 1 : to, "...");
}

static void describe(const pl_config *g, const pl_layer *layers, const pl_cache *c, size_t batch,
                     pleach_cache_info *info)
{
    pl_kv types[PL_MAX_LAYERS];
    for (uint32_t i = 0; i < g->n_layers; i++) types[i] = pl_cache_type(c, i);
    char *spec = pl_kv_spec(types, g->n_layers);
    uint32_t attend = 0;
    for (uint32_t i = 0; i < g->n_layers; i++) attend += !g->layer[i].delta;
    double numbers = 2.0 * attend * g->n_kv_heads * g->head_dim;
    *info = (pleach_cache_info){.context = pl_cache_capacity(c),
                                .recent = pl_cache_recent(c),
                                .token_bytes = pl_cache_token_bytes(c),
                                .state_bytes = pl_cache_state_bytes(c),
                                .context_bytes = pl_cache_most_bytes(c, batch),
                                .bytes = pl_cache_bytes(c),
                                .warning = warning_of(g, layers, c)};
    info->bits = attend ? 8 * (double)info->token_bytes / numbers : 0;
    copy_types(spec ? spec : "", info->types, sizeof info->types);
    pl_free(spec);
}

void pleach_session_cache_info(const pleach_session *s, pleach_cache_info *info)
{
    const pl_transformer *t = s->model->transformer;
    describe(t->config, t->layers, s->cache, s->batch, info);
}

pleach_status pleach_checkpoint_cache_info(const pleach_checkpoint *c,
                                           const pleach_session_settings *settings,
                                           pleach_cache_info *info, pleach_error *err)
{
    pleach_session_settings set;
    const pl_config *g;
    pl_kernels kernels;
    pl_cache *cache;
    pleach_session_settings_defaults(&set);
    if (settings) set = *settings;
    *info = (pleach_cache_info){0};
    PL_TRY(pl_checkpoint_config(c, &g, err));
    pl_kernels_init(&kernels, PL_CPU_C);
    PL_TRY(pl_session_cache_open(g, &set, &kernels, NULL, &cache, err));
    describe(g, NULL, cache, pl_session_batch(g, &set), info);
    pl_cache_close(cache);
    return PLEACH_OK;
}
