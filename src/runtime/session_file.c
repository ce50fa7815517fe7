/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions saved to files and loaded again, bound to the model that computed them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "kv/cache_file.h"
#include "session.h"

/* Some pages of a tensor's bytes, evenly spread: another training changes them all. */
static uint64_t hash_samples(const pl_tensor *t, uint64_t h)
{
    enum { SAMPLE = 4096, SAMPLES = 16 };
    uint64_t n = t->n_bytes, last = n > SAMPLE ? n - SAMPLE : 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        uint64_t at = last / (SAMPLES - 1) * i;
        h = pl_hash((const uint8_t *)t->data + at, PL_MIN(n - at, (uint64_t)SAMPLE), h);
        if (last == 0) break;
    }
    return h;
}

/* The model's shape, its tensors' names and types, and samples of their bytes. */
static pleach_status fingerprint(const pleach_model *m, char text[17], pleach_error *err)
{
    const pl_config *g;
    PL_TRY(pl_checkpoint_config(m->checkpoint, &g, err));
    char *config = pl_checkpoint_make_config_text(m->checkpoint, err);
    if (!config) return PLEACH_ERR_MEMORY;
    uint64_t h = pl_hash(config, strlen(config), 0);
    pl_free(config);
    for (size_t i = 0; i < pl_checkpoint_tensor_count(m->checkpoint); i++) {
        const pl_tensor *t = pl_checkpoint_tensor_at(m->checkpoint, i);
        uint64_t about[] = {(uint64_t)t->type, t->n_bytes};
        h = pl_hash(t->name, strlen(t->name), h);
        h = hash_samples(t, pl_hash(about, sizeof about, h));
    }
    snprintf(text, 17, "%016" PRIx64, h);
    return PLEACH_OK;
}

static pl_cache_origin origin_of(const pleach_model *m, const char *fingerprint)
{
    return (pl_cache_origin){.model = fingerprint,
                             .arith = pleach_arith_name(m->compute.arith),
                             .vocab = m->transformer->config->vocab_size};
}

pleach_status pleach_session_save(const pleach_session *s, const char *path, pleach_error *err)
{
    char model[17];
    PL_TRY(fingerprint(s->model, model, err));
    pl_cache_origin origin = origin_of(s->model, model);
    return pl_cache_save(s->cache, s->ids, &origin, path, err);
}

static pleach_status load(pleach_session *s, const pl_safetensors *file, const char *path,
                          pleach_error *err)
{
    char model[17];
    pl_cache *cache;
    int32_t *ids;
    PL_TRY(fingerprint(s->model, model, err));
    pl_cache_origin origin = origin_of(s->model, model);
    PL_TRY(pl_cache_load(s->cache, file, path, &origin, &cache, &ids, err));
    size_t n = pl_cache_length(cache);
    pleach_status status = PLEACH_OK;
    if (pl_grow((void **)&s->ids, &s->ids_capacity, n, sizeof *s->ids)) {
        status = pl_fail_memory(err, "token ids", n * sizeof *s->ids);
        pl_cache_close(cache);
    } else {
        if (n) memcpy(s->ids, ids, n * sizeof *ids);
        pl_cache_close(s->cache);
        s->cache = cache;
    }
    pl_free(ids);
    return status;
}

pleach_status pleach_session_load(pleach_session *s, const char *path, pleach_error *err)
{
    pl_safetensors *file;
    PL_TRY(pl_safetensors_open(path, &file, err));
    pleach_status status = load(s, file, path, err);
    pl_safetensors_close(file);
    return status;
}
