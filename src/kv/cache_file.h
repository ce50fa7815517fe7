/* SPDX-License-Identifier: Apache-2.0
 *
 * A cache and its token ids as one safetensors file; docs/kv.md, "The session file". */
#ifndef PL_KV_CACHE_FILE_H
#define PL_KV_CACHE_FILE_H

#include "cache.h"
#include "format/safetensors.h"

/* What a file's numbers were computed with, and what it must have been for them to be of use. */
typedef struct pl_cache_origin {
    const char *model; /* the model's fingerprint */
    const char *arith;
    uint32_t vocab;
} pl_cache_origin;

/* Written under a temporary name. ids [length]. */
pleach_status pl_cache_save(const pl_cache *c, const int32_t *ids, const pl_cache_origin *origin,
                            const char *path, pleach_error *err);
/* The cache of a file, of c's make, and its ids in fresh memory (pl_free); name stands for the file
 * in errors. Checks everything before it allocates. c is not changed. */
pleach_status pl_cache_load(const pl_cache *c, const pl_safetensors *file, const char *name,
                            const pl_cache_origin *origin, pl_cache **out, int32_t **ids,
                            pleach_error *err);

#endif
