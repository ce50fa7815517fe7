/* SPDX-License-Identifier: Apache-2.0
 *
 * A session: ids, their cache, and the workspace that extends both. */
#include "session.h"

#include <string.h>

#include "base/memory.h"

void pleach_session_settings_defaults(pleach_session_settings *s)
{
    *s = (pleach_session_settings){.kv = PLEACH_KV_F32, .batch = 512};
}

static pleach_status open_parts(pleach_session *s, pleach_kv kv, pleach_error *err)
{
    const pl_transformer *t = s->model->transformer;
    const pl_config *g = t->config;
    PL_TRY(pl_cache_open(g->n_layers, g->n_kv_heads, g->head_dim, s->context, kv, &s->cache, err));
    return pl_workspace_open(t, &s->model->compute, s->batch, &s->workspace, err);
}

pleach_status pleach_session_open(const pleach_model *m, const pleach_session_settings *settings,
                                  pleach_session **out, pleach_error *err)
{
    pleach_session_settings set;
    pleach_session_settings_defaults(&set);
    if (settings) set = *settings;
    *out = NULL;
    pleach_session *s = pl_calloc(1, sizeof *s);
    if (!s) return pl_fail_memory(err, "session", sizeof *s);
    s->model = m;
    s->context = set.context ? set.context : m->transformer->config->context_length;
    s->batch = PL_MIN(set.batch ? set.batch : 512, s->context);
    pleach_status status = open_parts(s, set.kv, err);
    if (status == PLEACH_OK) *out = s;
    else pleach_session_close(s);
    return status;
}

void pleach_session_close(pleach_session *s)
{
    if (!s) return;
    pl_workspace_close(s->workspace);
    pl_cache_close(s->cache);
    pl_free(s->ids);
    pl_free(s);
}

size_t pleach_session_position(const pleach_session *s) { return pl_cache_length(s->cache); }

size_t pleach_session_ids(const pleach_session *s, const int32_t **ids)
{
    *ids = s->ids;
    return pl_cache_length(s->cache);
}

pleach_status pleach_session_truncate(pleach_session *s, size_t n, pleach_error *err)
{
    PL_FAIL_IF(n > pl_cache_length(s->cache), err, PLEACH_ERR_ARGUMENT,
               "cannot go back to %zu tokens: the session holds %zu", n,
               pl_cache_length(s->cache));
    pl_cache_truncate(s->cache, n);
    return PLEACH_OK;
}

uint64_t pleach_session_cache_bytes(const pleach_session *s) { return pl_cache_bytes(s->cache); }
uint64_t pleach_session_token_bytes(const pleach_session *s)
{
    return pl_cache_token_bytes(s->cache);
}

/* Everything that can be refused, before anything changes. */
static pleach_status prepare(pleach_session *s, const int32_t *ids, size_t n, pleach_error *err)
{
    uint32_t vocab = s->model->transformer->config->vocab_size;
    for (size_t i = 0; i < n; i++)
        PL_FAIL_IF(ids[i] < 0 || (uint32_t)ids[i] >= vocab, err, PLEACH_ERR_ARGUMENT,
                   "token %zu: id %d is outside the vocabulary of %u", i, (int)ids[i], vocab);
    PL_TRY(pl_cache_reserve(s->cache, n, err));
    size_t needed = pl_cache_length(s->cache) + n;
    if (pl_grow((void **)&s->ids, &s->ids_capacity, needed, sizeof *s->ids))
        return pl_fail_memory(err, "token ids", needed * sizeof *s->ids);
    return PLEACH_OK;
}

pleach_status pleach_session_feed_all(pleach_session *s, const int32_t *ids, size_t n, size_t first,
                                      float *logits, pleach_error *err)
{
    const pleach_model *m = s->model;
    size_t start = pl_cache_length(s->cache);
    PL_FAIL_IF(first > n, err, PLEACH_ERR_ARGUMENT,
               "logits from position %zu of only %zu tokens", first, n);
    PL_TRY(prepare(s, ids, n, err));
    for (size_t done = 0; done < n;) {
        size_t part = PL_MIN(s->batch, n - done), skip = first > done ? first - done : 0;
        skip = PL_MIN(skip, part);
        pleach_status status =
            pl_transformer_forward(m->transformer, &m->compute, s->workspace, s->cache,
                                   ids + done, part, skip, skip < part ? logits : NULL, err);
        if (status != PLEACH_OK) {
            pl_cache_truncate(s->cache, start);
            return status;
        }
        if (logits) logits += (part - skip) * m->transformer->config->vocab_size;
        done += part;
    }
    if (n) memcpy(s->ids + start, ids, n * sizeof *ids);
    return PLEACH_OK;
}

pleach_status pleach_session_feed(pleach_session *s, const int32_t *ids, size_t n, float *logits,
                                  pleach_error *err)
{
    PL_FAIL_IF(logits && n == 0, err, PLEACH_ERR_ARGUMENT, "logits after no token at all");
    return pleach_session_feed_all(s, ids, n, logits ? n - 1 : n, logits, err);
}
