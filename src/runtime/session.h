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
    pl_workspace *workspace;
    int32_t *ids; /* as many as the cache holds */
    size_t ids_capacity;
};

/* The context and the batch these settings ask for, and an empty cache for them. kernels are
 * borrowed. */
size_t pl_session_context(const pl_config *g, const pleach_session_settings *s);
size_t pl_session_batch(const pl_config *g, const pleach_session_settings *s);
pleach_status pl_session_cache_open(const pl_config *g, const pleach_session_settings *s,
                                    const pl_kernels *kernels, pl_cache **out, pleach_error *err);

#endif
