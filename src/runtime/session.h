/* SPDX-License-Identifier: Apache-2.0
 *
 * The insides of a session, for the other files of this folder. */
#ifndef PL_RUNTIME_SESSION_H
#define PL_RUNTIME_SESSION_H

#include "engine.h"
#include "pleach/session.h"

/* Measured: docs/kv.md, "Quality". */
enum { PL_KV_RECENT = 128 };

struct pleach_session {
    const pleach_model *model;
    size_t context, batch;
    pl_cache *cache;
    void *workspace; /* the backend's */
    bool borrows;    /* it is another session's */
    int32_t *ids; /* as many as the cache holds */
    size_t ids_capacity;
};

/* One id for each of n sessions of one model, all different, in one pass. Afterwards logits [n][vocab]
 * or best [n] (model/backend.h), either of which may be NULL. */
pleach_status pl_sessions_step(pleach_session *const *sessions, const int32_t *ids, size_t n,
                               float *logits, int32_t *best, pleach_error *err);
/* pleach_session_feed, n > 0, that hands over the likeliest next id alone, as pl_pass.best. The
 * model's backend must find it. */
pleach_status pl_session_feed_best(pleach_session *s, const int32_t *ids, size_t n, int32_t *best,
                                   pleach_error *err);

/* pleach_session_feed, n > 0, with what comes out of the last norm for each of the ids, hidden [n][C],
 * in place of logits. The model's backend must give it. */
pleach_status pl_session_feed_hidden(pleach_session *s, const int32_t *ids, size_t n, float *hidden,
                                     pleach_error *err);
/* Room for one more token in the cache. */
pleach_status pl_session_reserve(pleach_session *s, pleach_error *err);

/* A second session with the first n tokens of s, n as pl_cache_reach has it, that computes in the
 * workspace of s: s is closed after it, and one of the two runs at a time. */
pleach_status pl_session_branch(const pleach_session *s, size_t n, pleach_session **out,
                                pleach_error *err);

/* The likeliest id of the logits as they are, whatever came before. */
bool pl_sampling_is_greedy(const pleach_sampling *s);

/* The context and the batch these settings ask for, and an empty cache for them. kernels and memory
 * are borrowed. */
size_t pl_session_context(const pl_config *g, const pleach_session_settings *s);
size_t pl_session_batch(const pl_config *g, const pleach_session_settings *s);
pleach_status pl_session_cache_open(const pl_config *g, const pleach_session_settings *s,
                                    const pl_kernels *kernels, pl_page_memory *memory,
                                    pl_cache **out, pleach_error *err);

#endif
