/* SPDX-License-Identifier: Apache-2.0
 *
 * From a session's settings to its cache, and what that takes. */
#include <stdio.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "format/config.h"
#include "session.h"

pleach_status pleach_kv_check(const char *kv, pleach_error *err)
{
    return pl_kv_parse(kv, 0, NULL, err);
}

size_t pl_session_context(const pl_config *g, const pleach_session_settings *s)
{
    return s->context ? s->context : g->context_length;
}

pleach_status pl_session_cache_open(const pl_config *g, const pleach_session_settings *s,
                                    const pl_kernels *kernels, pl_cache **out, pleach_error *err)
{
    pl_kv types[PL_MAX_LAYERS];
    uint32_t windows[PL_MAX_LAYERS];
    PL_TRY(pl_kv_parse(s->kv ? s->kv : "f32", g->n_layers, types, err));
    for (uint32_t i = 0; i < g->n_layers; i++) windows[i] = pl_config_window(g, i);
    pl_cache_settings set = {.n_layers = g->n_layers,
                             .n_kv_heads = g->n_kv_heads,
                             .head_dim = g->head_dim,
                             .capacity = pl_session_context(g, s),
                             .types = types,
                             .windows = windows,
                             .recent = s->kv_recent,
                             .kernels = kernels};
    return pl_cache_open(&set, out, err);
}

static void describe(const pl_config *g, const pl_cache *c, size_t context, pleach_cache_info *info)
{
    pl_kv types[PL_MAX_LAYERS];
    for (uint32_t i = 0; i < g->n_layers; i++) types[i] = pl_cache_type(c, i);
    char *spec = pl_kv_spec(types, g->n_layers);
    double numbers = 2.0 * g->n_layers * g->n_kv_heads * g->head_dim;
    *info = (pleach_cache_info){.context = context,
                                .recent = pl_cache_recent(c),
                                .token_bytes = pl_cache_token_bytes(c),
                                .context_bytes = pl_cache_bytes_at(c, context),
                                .bytes = pl_cache_bytes(c)};
    info->bits = 8 * (double)info->token_bytes / numbers;
    snprintf(info->types, sizeof info->types, "%s", spec ? spec : "");
    pl_free(spec);
}

void pleach_session_cache_info(const pleach_session *s, pleach_cache_info *info)
{
    describe(s->model->transformer->config, s->cache, s->context, info);
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
    PL_TRY(pl_session_cache_open(g, &set, &kernels, &cache, err));
    describe(g, cache, pl_session_context(g, &set), info);
    pl_cache_close(cache);
    return PLEACH_OK;
}
