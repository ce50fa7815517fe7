/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensor "ids", a tensor "layers.N.pages" or "layers.N.state" for each layer and, where recent
 * tokens are kept, one "layers.N.recent"; what they are, and a checksum of them, as strings of __metadata__. */
#include "cache_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

#define FORMAT  "pleach-session"
#define VERSION "1"
#define VERSION_WITH_STATES "2"
enum { HASH_SIZE = 17, NUMBER_SIZE = 24 };

static char *types_of(const pl_cache *c)
{
    uint32_t n = pl_cache_layers(c);
    pl_kv *types = pl_alloc(n, sizeof *types);
    for (uint32_t i = 0; types && i < n; i++) types[i] = pl_cache_type(c, i);
    char *spec = types ? pl_kv_spec(types, n) : NULL;
    pl_free(types);
    return spec;
}

/* The strings of a file, which its checksum begins with. */
typedef struct description {
    const char *version, *model, *arith, *kv;
    char recent[NUMBER_SIZE];
} description;

/* kv is borrowed. */
static description describe(const pl_cache *c, const pl_cache_origin *origin, const char *kv)
{
    const char *version = pl_cache_state_bytes(c) ? VERSION_WITH_STATES : VERSION;
    description d = {version, origin->model, origin->arith, kv, ""};
    snprintf(d.recent, sizeof d.recent, "%zu", pl_cache_recent(c));
    return d;
}

static uint64_t hash_description(const description *d)
{
    const char *const parts[] = {d->version, d->model, d->arith, d->kv, d->recent};
    uint64_t h = 0;
    for (size_t i = 0; i < PL_COUNT(parts); i++) h = pl_hash(parts[i], strlen(parts[i]), h);
    return h;
}

/* ---- saving ---------------------------------------------------------------------------------- */

typedef struct saving {
    const pl_cache *c;
    const int32_t *ids;
    uint8_t *page; /* scratch */
    pl_safetensors_writer *writer;
} saving;

/* Every byte of the tensors, in order: into the hash, or the file. */
static pleach_status each_byte(const saving *s, uint64_t *hash, pleach_error *err)
{
    size_t n = pl_cache_length(s->c) * sizeof *s->ids;
    if (hash)
        *hash = pl_hash(s->ids, n, *hash);
    else
        PL_TRY(pl_safetensors_append(s->writer, s->ids, n, err));
    for (size_t store = 0; store < pl_cache_stores(s->c); store++) {
        size_t bytes = pl_cache_page_bytes(s->c, store);
        for (size_t i = 0; i < pl_cache_kept_pages(s->c, store); i++) {
            PL_TRY(pl_cache_get_page(s->c, store, i, s->page, err));
            if (hash)
                *hash = pl_hash(s->page, bytes, *hash);
            else
                PL_TRY(pl_safetensors_append(s->writer, s->page, bytes, err));
        }
    }
    return PLEACH_OK;
}

static pleach_status write_file(saving *s, const description *d, const char *path,
                                pl_tensor *tensors, char (*names)[PL_CACHE_STORE_NAME],
                                pleach_error *err)
{
    uint64_t hash = hash_description(d);
    size_t n = pl_cache_stores(s->c);
    char checksum[HASH_SIZE];
    PL_TRY(each_byte(s, &hash, err));
    snprintf(checksum, sizeof checksum, "%016" PRIx64, hash);
    const char *const metadata[] = {"format", FORMAT,    "version",  d->version, "model",
                                    d->model, "arith",   d->arith,   "kv",       d->kv,
                                    "recent", d->recent, "checksum", checksum,   NULL};
    tensors[0] =
        (pl_tensor){.name = "ids", .type = PL_I32, .n_dims = 1, .shape = {pl_cache_length(s->c)}};
    for (size_t i = 0; i < n; i++) {
        pl_cache_store_name(s->c, i, names[i]);
        tensors[i + 1] =
            (pl_tensor){.name = names[i],
                        .type = PL_U8,
                        .n_dims = 2,
                        .shape = {pl_cache_kept_pages(s->c, i), pl_cache_page_bytes(s->c, i)}};
    }
    PL_TRY(pl_safetensors_create_with(path, tensors, n + 1, metadata, &s->writer, err));
    pleach_status status = each_byte(s, NULL, err);
    if (status == PLEACH_OK) return pl_safetensors_commit(s->writer, err);
    pl_safetensors_discard(s->writer);
    return status;
}

pleach_status pl_cache_save(const pl_cache *c, const int32_t *ids, const pl_cache_origin *origin,
                            const char *path, pleach_error *err)
{
    size_t n = pl_cache_stores(c), most = 0;
    for (size_t i = 0; i < n; i++) most = PL_MAX(most, pl_cache_page_bytes(c, i));
    char *kv = types_of(c);
    saving s = {.c = c, .ids = ids, .page = pl_alloc(1, most)};
    pl_tensor *tensors = pl_alloc(n + 1, sizeof *tensors);
    char(*names)[PL_CACHE_STORE_NAME] = pl_alloc(n, sizeof *names);
    description d = describe(c, origin, kv);
    pleach_status status = kv && s.page && tensors && names
                               ? write_file(&s, &d, path, tensors, names, err)
                               : pl_fail_memory(err, "session file", most);
    pl_free(kv);
    pl_free(s.page);
    pl_free(tensors);
    pl_free(names);
    return status;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* The file's string of this key is `expected`, or one line says what it is. */
static pleach_status check_string(const pl_safetensors *file, const char *name, const char *key,
                                  const char *what, const char *expected, pleach_error *err)
{
    const char *found = pl_safetensors_metadata(file, key);
    PL_FAIL_IF(!found || strcmp(found, expected) != 0, err, PLEACH_ERR_MISMATCH,
               "%s: %s: expected %s, found %.100s", name, what, expected,
               found ? found : "nothing");
    return PLEACH_OK;
}

static pleach_status check_description(const pl_safetensors *file, const char *name,
                                       const description *d, pleach_error *err)
{
    const char *format = pl_safetensors_metadata(file, "format");
    PL_FAIL_IF(!format || strcmp(format, FORMAT) != 0, err, PLEACH_ERR_FORMAT,
               "%s: no session file: expected the format %s, found %.100s", name, FORMAT,
               format ? format : "nothing");
    PL_TRY(check_string(file, name, "version", "version of the session file", d->version, err));
    PL_TRY(check_string(file, name, "model", "session of another model", d->model, err));
    PL_TRY(check_string(file, name, "arith", "session in another arithmetic", d->arith, err));
    PL_TRY(check_string(file, name, "kv", "session with other cache types", d->kv, err));
    return check_string(file, name, "recent", "session with other recent tokens", d->recent, err);
}

static pleach_status check_ids(const pl_cache *c, const pl_tensor *t, const char *name,
                               uint32_t vocab, pleach_error *err)
{
    PL_FAIL_IF(!t || t->type != PL_I32 || t->n_dims != 1, err, PLEACH_ERR_FORMAT,
               "%s: expected a tensor ids of I32, found %s", name, t ? "another" : "none");
    PL_FAIL_IF(t->shape[0] > pl_cache_capacity(c), err, PLEACH_ERR_LIMIT,
               "%s: the session has %llu tokens and the context holds %zu", name,
               (unsigned long long)t->shape[0], pl_cache_capacity(c));
    for (size_t i = 0; i < t->shape[0]; i++) {
        int32_t id;
        memcpy(&id, (const uint8_t *)t->data + i * sizeof id, sizeof id);
        PL_FAIL_IF(id < 0 || (uint32_t)id >= vocab, err, PLEACH_ERR_FORMAT,
                   "%s: token %zu: id %d is outside the vocabulary of %u", name, i, (int)id, vocab);
    }
    return PLEACH_OK;
}

/* The pages of a store, of the right size and enough of them. */
static pleach_status find_pages(const pl_cache *c, const pl_safetensors *file, const char *name,
                                size_t store, size_t length, const pl_tensor **out,
                                pleach_error *err)
{
    char tensor[PL_CACHE_STORE_NAME];
    pl_cache_store_name(c, store, tensor);
    const pl_tensor *t = pl_safetensors_find(file, tensor);
    size_t bytes = pl_cache_page_bytes(c, store);
    PL_FAIL_IF(!t || t->type != PL_U8 || t->n_dims != 2 || t->shape[1] != bytes ||
                   !pl_cache_pages_suffice(c, store, length, t->shape[0]),
               err, PLEACH_ERR_FORMAT,
               "%s: tensor %s: expected U8 pages of %zu bytes for %zu tokens, found %s", name,
               tensor, bytes, length, t ? "others" : "none");
    *out = t;
    return PLEACH_OK;
}

static pleach_status check_data(const pl_cache *c, const pl_safetensors *file, const char *name,
                                const description *d, const pl_tensor *ids, pleach_error *err)
{
    uint64_t hash = pl_hash(ids->data, ids->n_bytes, hash_description(d));
    char checksum[HASH_SIZE];
    for (size_t i = 0; i < pl_cache_stores(c); i++) {
        const pl_tensor *t;
        PL_TRY(find_pages(c, file, name, i, ids->shape[0], &t, err));
        for (size_t p = 0; p < t->shape[0]; p++)
            hash = pl_hash((const uint8_t *)t->data + p * t->shape[1], t->shape[1], hash);
    }
    snprintf(checksum, sizeof checksum, "%016" PRIx64, hash);
    return check_string(file, name, "checksum", "the session file was altered: checksum", checksum,
                        err);
}

static pleach_status take_data(pl_cache *c, const pl_safetensors *file, const char *name,
                               const pl_tensor *tensor, int32_t **ids, pleach_error *err)
{
    size_t length = tensor->shape[0];
    *ids = pl_alloc(length, sizeof **ids);
    if (!*ids) return pl_fail_memory(err, "token ids", length * sizeof **ids);
    if (length) memcpy(*ids, tensor->data, length * sizeof **ids);
    for (size_t i = 0; i < pl_cache_stores(c); i++) {
        const pl_tensor *t;
        PL_TRY(find_pages(c, file, name, i, length, &t, err));
        PL_TRY(pl_cache_set_pages(c, i, length, t->data, t->shape[0], err));
    }
    return PLEACH_OK;
}

static pleach_status load(const pl_cache *c, const pl_safetensors *file, const char *name,
                          const pl_cache_origin *origin, const char *kv, pl_cache **out,
                          int32_t **ids, pleach_error *err)
{
    description d = describe(c, origin, kv);
    PL_TRY(check_description(file, name, &d, err));
    const pl_tensor *tensor = pl_safetensors_find(file, "ids");
    PL_TRY(check_ids(c, tensor, name, origin->vocab, err));
    PL_TRY(check_data(c, file, name, &d, tensor, err));
    PL_TRY(pl_cache_open_like(c, out, err));
    return take_data(*out, file, name, tensor, ids, err);
}

pleach_status pl_cache_load(const pl_cache *c, const pl_safetensors *file, const char *name,
                            const pl_cache_origin *origin, pl_cache **out, int32_t **ids,
                            pleach_error *err)
{
    char *kv = types_of(c);
    *out = NULL;
    *ids = NULL;
    pleach_status status = kv ? load(c, file, name, origin, kv, out, ids, err)
                              : pl_fail_memory(err, "session file", 0);
    pl_free(kv);
    if (status == PLEACH_OK) return status;
    pl_cache_close(*out);
    pl_free(*ids);
    *out = NULL;
    *ids = NULL;
    return status;
}
