/* SPDX-License-Identifier: Apache-2.0
 *
 * A session: ids, their cache, and the workspace that extends both. */
#include "session.h"

#include <string.h>

#include "base/memory.h"

void pleach_session_settings_defaults(pleach_session_settings *s)
{
    *s = (pleach_session_settings){.kv = "f32", .kv_recent = PL_KV_RECENT, .batch = 512};
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
    s->context = pl_session_context(m->transformer->config, &set);
    s->batch = pl_session_batch(m->transformer->config, &set);
    pl_backend *b = m->backend;
    pleach_status status = pl_session_cache_open(m->transformer->config, &set, &m->compute.kernels,
                                                 b->pages, &s->cache, err);
    if (status == PLEACH_OK) status = b->f->check_memory(b, s->cache, s->batch, err);
    if (status == PLEACH_OK)
        status = b->f->workspace_open(b, s->cache, s->batch, &s->workspace, err);
    if (status == PLEACH_OK)
        *out = s;
    else
        pleach_session_close(s);
    return status;
}

void pleach_session_close(pleach_session *s)
{
    if (!s) return;
    pl_backend *b = s->model->backend;
    if (s->workspace && !s->borrows) b->f->workspace_close(b, s->workspace);
    pl_cache_close(s->cache);
    pl_free(s->ids);
    pl_free(s);
}

pleach_status pl_session_branch(const pleach_session *s, size_t n, pleach_session **out,
                                pleach_error *err)
{
    *out = NULL;
    pleach_session *f = pl_calloc(1, sizeof *f);
    if (!f) return pl_fail_memory(err, "session", sizeof *f);
    *f = (pleach_session){.model = s->model, .context = s->context, .batch = s->batch,
                          .workspace = s->workspace, .borrows = true};
    pleach_status status = pl_cache_fork_at(s->cache, n, &f->cache, err);
    if (status == PLEACH_OK && pl_grow((void **)&f->ids, &f->ids_capacity, n, sizeof *f->ids))
        status = pl_fail_memory(err, "token ids", n * sizeof *f->ids);
    if (status != PLEACH_OK) {
        pleach_session_close(f);
        return status;
    }
    if (n) memcpy(f->ids, s->ids, n * sizeof *f->ids);
    *out = f;
    return PLEACH_OK;
}

pleach_status pleach_session_fork(const pleach_session *s, pleach_session **out, pleach_error *err)
{
    pl_backend *b = s->model->backend;
    pleach_session *f;
    *out = NULL;
    PL_TRY(pl_session_branch(s, pl_cache_length(s->cache), &f, err));
    f->workspace = NULL;
    f->borrows = false;
    pleach_status status = b->f->workspace_open(b, f->cache, s->batch, &f->workspace, err);
    if (status == PLEACH_OK)
        *out = f;
    else
        pleach_session_close(f);
    return status;
}

size_t pleach_session_position(const pleach_session *s)
{
    return pl_cache_length(s->cache);
}

size_t pleach_session_ids(const pleach_session *s, const int32_t **ids)
{
    *ids = s->ids;
    return pl_cache_length(s->cache);
}

/* Everything that can be refused, before anything changes. */
static pleach_status prepare(pleach_session *s, const int32_t *ids, size_t n, pleach_error *err)
{
    uint32_t vocab = s->model->transformer->config->vocab_size;
    for (size_t i = 0; i < n; i++)
        PL_FAIL_IF(ids[i] < 0 || (uint32_t)ids[i] >= vocab, err, PLEACH_ERR_ARGUMENT,
                   "token %zu: id %d is outside the vocabulary of %u", i, (int)ids[i], vocab);
    PL_TRY(pl_cache_check_room(s->cache, n, err));
    size_t needed = pl_cache_length(s->cache) + n;
    if (pl_grow((void **)&s->ids, &s->ids_capacity, needed, sizeof *s->ids))
        return pl_fail_memory(err, "token ids", needed * sizeof *s->ids);
    return PLEACH_OK;
}

/* Where a pass leaves what comes of it; NULL: nowhere. */
typedef struct results {
    float *logits, *hidden; /* of each position from the first that is asked for on */
    int32_t *best;          /* after the last */
} results;

/* One batch. Room in the cache is made batch by batch, so that a window's pages are used again
 * within a prompt. */
static pleach_status feed_batch(pleach_session *s, const int32_t *ids, size_t n, size_t skip,
                                const results *to, pleach_error *err)
{
    pl_backend *b = s->model->backend;
    size_t at = pl_cache_length(s->cache);
    pl_pass p = {.caches = &s->cache,
                 .ids = ids,
                 .n = n,
                 .first = skip,
                 .logits = skip < n ? to->logits : NULL,
                 .hidden = to->hidden,
                 .best = to->best};
    PL_TRY(pl_cache_reserve(s->cache, n, err));
    PL_TRY(b->f->run(b, s->workspace, &p, err));
    memmove(s->ids + at, ids, n * sizeof *ids); /* they may be those very ids */
    return PLEACH_OK;
}

pleach_status pleach_session_truncate(pleach_session *s, size_t n, pleach_error *err)
{
    PL_FAIL_IF(n > pl_cache_length(s->cache), err, PLEACH_ERR_ARGUMENT,
               "cannot go back to %zu tokens: the session holds %zu", n, pl_cache_length(s->cache));
    size_t reach = pl_cache_reach(s->cache, n);
    pl_cache_truncate(s->cache, reach);
    for (size_t part; reach < n; reach += part) {
        part = PL_MIN(s->batch, n - reach);
        PL_TRY(feed_batch(s, s->ids + reach, part, part, &(results){0}, err));
    }
    return PLEACH_OK;
}

/* The results of positions from `first` on. */
static pleach_status feed(pleach_session *s, const int32_t *ids, size_t n, size_t first, results to,
                          pleach_error *err)
{
    const pl_config *g = s->model->transformer->config;
    size_t start = pl_cache_length(s->cache);
    PL_TRY(prepare(s, ids, n, err));
    for (size_t done = 0; done < n;) {
        size_t part = PL_MIN(s->batch, n - done), skip = first > done ? first - done : 0;
        skip = PL_MIN(skip, part);
        results now = to;
        if (done + part < n) now.best = NULL;
        pleach_status status = feed_batch(s, ids + done, part, skip, &now, err);
        if (status != PLEACH_OK) {
            if (pl_cache_reach(s->cache, start) == start) pl_cache_truncate(s->cache, start);
            return status;
        }
        if (to.logits) to.logits += (part - skip) * g->vocab_size;
        if (to.hidden) to.hidden += (part - skip) * g->hidden_size;
        done += part;
    }
    return PLEACH_OK;
}

pleach_status pleach_session_feed_all(pleach_session *s, const int32_t *ids, size_t n, size_t first,
                                      float *logits, pleach_error *err)
{
    PL_FAIL_IF(first > n, err, PLEACH_ERR_ARGUMENT, "logits from position %zu of only %zu tokens",
               first, n);
    return feed(s, ids, n, first, (results){.logits = logits}, err);
}

pleach_status pleach_session_feed(pleach_session *s, const int32_t *ids, size_t n, float *logits,
                                  pleach_error *err)
{
    PL_FAIL_IF(logits && n == 0, err, PLEACH_ERR_ARGUMENT, "logits after no token at all");
    return pleach_session_feed_all(s, ids, n, logits ? n - 1 : n, logits, err);
}

pleach_status pl_session_feed_best(pleach_session *s, const int32_t *ids, size_t n, int32_t *best,
                                   pleach_error *err)
{
    return feed(s, ids, n, n - 1, (results){.best = best}, err);
}

pleach_status pl_session_feed_hidden(pleach_session *s, const int32_t *ids, size_t n, float *hidden,
                                     pleach_error *err)
{
    return feed(s, ids, n, 0, (results){.hidden = hidden}, err);
}

pleach_status pl_session_reserve(pleach_session *s, pleach_error *err)
{
    return pl_cache_reserve(s->cache, 1, err);
}

pleach_status pl_sessions_step(pleach_session *const *sessions, const int32_t *ids, size_t n,
                               float *logits, int32_t *best, pleach_error *err)
{
    pl_backend *b = sessions[0]->model->backend;
    pl_cache **caches = pl_alloc(n, sizeof *caches);
    pleach_status status = caches ? PLEACH_OK : pl_fail_memory(err, "batch", n * sizeof *caches);
    for (size_t i = 0; status == PLEACH_OK && i < n; i++) {
        caches[i] = sessions[i]->cache;
        status = prepare(sessions[i], ids + i, 1, err);
        if (status == PLEACH_OK) status = pl_cache_reserve(caches[i], 1, err);
    }
    pl_pass p = {.caches = caches, .apart = true, .ids = ids, .n = n, .logits = logits, .best = best};
    if (status == PLEACH_OK) status = b->f->run(b, sessions[0]->workspace, &p, err);
    for (size_t i = 0; status == PLEACH_OK && i < n; i++)
        sessions[i]->ids[pl_cache_length(caches[i]) - 1] = ids[i];
    pl_free(caches);
    return status;
}
