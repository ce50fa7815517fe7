/* SPDX-License-Identifier: Apache-2.0
 *
 * Who computes the forward pass of a model: this processor (forward.c) or a device (cuda/). A
 * session knows neither. */
#ifndef PL_MODEL_BACKEND_H
#define PL_MODEL_BACKEND_H

#include "model.h"

typedef struct pl_backend pl_backend;

/* What one call computes: a token for each of n sequences at their ends, or n tokens of one. Room
 * is reserved in the caches (kv/cache.h), which are advanced. */
typedef struct pl_pass {
    pl_cache *const *caches; /* [n], all different, or one */
    bool apart;              /* a cache for each */
    const int32_t *ids;      /* [n] in the vocabulary */
    size_t n, first;         /* results are of rows first .. n-1 */
    float *logits;           /* [n - first][vocab], or NULL */
    float *hidden;           /* [n - first][C] what the head takes, unrotated; or NULL, as it is for
                                backends that do not give it and for rows apart */
    int32_t *best;           /* [n - first] the lowest id of the largest logits, -1 where one is NaN
                                or none finite; or NULL */
} pl_pass;

typedef struct pl_backend_functions {
    void (*close)(pl_backend *b);
    /* Whether a cache of so many bytes at most, and passes of up to `batch` rows, find room beside
     * what is held now: PLEACH_ERR_MEMORY says what would. cache: an empty one of the make. */
    pleach_status (*check_memory)(pl_backend *b, const pl_cache *cache, size_t batch,
                                  pleach_error *err);
    /* What passes of up to `batch` rows over caches of the make of `cache` need, of one session. */
    pleach_status (*workspace_open)(pl_backend *b, const pl_cache *cache, size_t batch, void **out,
                                    pleach_error *err);
    void (*workspace_close)(pl_backend *b, void *workspace);
    pleach_status (*run)(pl_backend *b, void *workspace, const pl_pass *p, pleach_error *err);
} pl_backend_functions;

/* Any thread, with a workspace of its own. */
struct pl_backend {
    const pl_backend_functions *f;
    pl_page_memory *pages; /* of its caches; NULL: this process's */
    const char *device;    /* "cpu", "cuda:0" */
    const char *name;      /* the device's own name, "" for this processor */
    uint64_t bytes;        /* of device memory, weights */
    uint64_t workspace;    /* and what passes need beside them, once a session is open */
    bool finds_best;       /* cheaper than handing logits over */
    bool gives_hidden;
};

/* device: NULL or "cpu", or as pl_cuda_open has it. t and c are borrowed until closing. */
pleach_status pl_backend_open(const pl_transformer *t, const pl_compute *c, const char *device,
                              bool batch_invariant, pl_backend **out, pleach_error *err);
void pl_backend_close(pl_backend *b); /* accepts NULL */

/* In src/cuda, for builds with it. */
pleach_status pl_cuda_backend_open(const pl_transformer *t, const pl_compute *c, const char *device,
                                   bool batch_invariant, pl_backend **out, pleach_error *err);

#endif
