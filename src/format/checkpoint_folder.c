/* SPDX-License-Identifier: Apache-2.0
 *
 * A Hugging Face folder: config.json, and model.safetensors or the shards that
 * model.safetensors.index.json names. Other safetensors files in the folder are ignored. */
#include <string.h>

#include "base/memory.h"
#include "checkpoint_files.h"
#include "config.h"

#define CONFIG_LIMIT (64u << 20) /* a map of every module of a large model is some MB */
#define INDEX_LIMIT  (256u << 20)

/* ---- tensors ------------------------------------------------------------------------------- */

static pleach_status open_shard(pleach_checkpoint *c, const char *name, pleach_error *err)
{
    char *path = pl_path_join(c->path, name);
    if (!path) return pl_fail_memory(err, name, strlen(name));
    size_t capacity = c->n_shards;
    pleach_status status = PLEACH_OK;
    if (pl_grow((void **)&c->shards, &capacity, c->n_shards + 1, sizeof *c->shards) != 0)
        status = pl_fail_memory(err, path, sizeof *c->shards);
    if (status == PLEACH_OK) status = pl_safetensors_open(path, &c->shards[c->n_shards], err);
    if (status == PLEACH_OK) c->file_bytes += pl_safetensors_file_size(c->shards[c->n_shards++]);
    pl_free(path);
    return status;
}

static pleach_status add_tensors(pleach_checkpoint *c, const pl_safetensors *s, const char *shard,
                                 const json_t *map, size_t room, pleach_error *err)
{
    for (size_t i = 0; i < pl_safetensors_count(s); i++) {
        const pl_tensor *t = pl_safetensors_tensor(s, i);
        if (map) {
            const char *file = json_string_value(json_object_get(map, t->name));
            if (!file || strcmp(file, shard) != 0) continue; /* the index has the last word */
        }
        PL_FAIL_IF(c->n_tensors == room, err, PLEACH_ERR_FORMAT, "%s: too many tensors", c->path);
        c->tensors[c->n_tensors++] = *t;
    }
    return PLEACH_OK;
}

static pleach_status open_single(pleach_checkpoint *c, pleach_error *err)
{
    PL_TRY(open_shard(c, "model.safetensors", err));
    size_t n = pl_safetensors_count(c->shards[0]);
    c->tensors = pl_alloc(n, sizeof *c->tensors);
    if (!c->tensors) return pl_fail_memory(err, c->path, n * sizeof *c->tensors);
    return add_tensors(c, c->shards[0], NULL, NULL, n, err);
}

/* A shard's name is that of a file in the folder itself. */
static pleach_status check_shard_name(const char *index, const char *tensor, const json_t *value,
                                      pleach_error *err)
{
    const char *name = json_string_value(value);
    size_t n = name ? strlen(name) : 0;
    static const char ending[] = ".safetensors";
    PL_FAIL_IF(!name || strchr(name, '/') || n < sizeof ending ||
                   strcmp(name + n - (sizeof ending - 1), ending) != 0,
               err, PLEACH_ERR_FORMAT, "%s: tensor %s: %s is not the name of a safetensors file",
               index, tensor, name ? name : pl_json_kind(value));
    return PLEACH_OK;
}

/* Opens each shard when it is first named. `seen` is a set of names. */
static pleach_status open_shards(pleach_checkpoint *c, const char *index, const json_t *map,
                                 json_t *seen, pleach_error *err)
{
    size_t n = json_object_size(map);
    c->tensors = pl_alloc(n, sizeof *c->tensors);
    if (!c->tensors) return pl_fail_memory(err, index, n * sizeof *c->tensors);
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, value)
    {
        PL_TRY(check_shard_name(index, tensor, value, err));
        const char *file = json_string_value(value);
        if (!json_object_get(seen, file)) {
            PL_TRY(open_shard(c, file, err));
            PL_TRY(add_tensors(c, c->shards[c->n_shards - 1], file, map, n, err));
            if (json_object_set_new(seen, file, json_integer((json_int_t)c->n_shards - 1)) != 0)
                return pl_fail_memory(err, file, 1);
        }
        const pl_safetensors *s = c->shards[json_integer_value(json_object_get(seen, file))];
        PL_FAIL_IF(!pl_safetensors_find(s, tensor), err, PLEACH_ERR_MISSING,
                   "%s: tensor %s is not in %s", index, tensor, file);
    }
    return PLEACH_OK;
}

static pleach_status open_sharded(pleach_checkpoint *c, const char *index, pleach_error *err)
{
    json_t *root = NULL, *seen = json_object();
    pleach_status status = pl_json_read(index, INDEX_LIMIT, &root, NULL, err);
    const json_t *map = json_object_get(root, "weight_map");
    if (status == PLEACH_OK && !json_is_object(map))
        status = pl_fail(err, PLEACH_ERR_FORMAT, "%s: weight_map is %s, expected an object", index,
                         pl_json_kind(map));
    if (status == PLEACH_OK) status = open_shards(c, index, map, seen, err);
    json_decref(seen);
    json_decref(root);
    return status;
}

static pleach_status open_tensors(pleach_checkpoint *c, pleach_error *err)
{
    char *single = pl_path_join(c->path, "model.safetensors");
    char *index = pl_path_join(c->path, "model.safetensors.index.json");
    pleach_status status = PLEACH_OK;
    if (!single || !index)
        status = pl_fail_memory(err, c->path, 0);
    else if (pl_exists(single))
        status = open_single(c, err);
    else if (pl_exists(index))
        status = open_sharded(c, index, err);
    else
        status = pl_fail(err, PLEACH_ERR_MISSING,
                         "%s: neither model.safetensors nor model.safetensors.index.json is there",
                         c->path);
    pl_free(single);
    pl_free(index);
    return status;
}

/* ---- config -------------------------------------------------------------------------------- */

static pleach_status read_generation_config(const pleach_checkpoint *c, json_t **out,
                                            pleach_error *err)
{
    char *path = pl_path_join(c->path, "generation_config.json");
    if (!path) return pl_fail_memory(err, c->path, 0);
    pleach_status status = PLEACH_OK;
    if (pl_exists(path)) status = pl_json_read(path, CONFIG_LIMIT, out, NULL, err);
    pl_free(path);
    return status;
}

static pleach_status open_config(pleach_checkpoint *c, pleach_error *err)
{
    c->config_file = pl_path_join(c->path, "config.json");
    if (!c->config_file) return pl_fail_memory(err, c->path, 0);
    if (!pl_exists(c->config_file)) {
        pl_fail(&c->config_error, PLEACH_ERR_MISSING, "%s is missing", c->config_file);
        return PLEACH_OK;
    }
    PL_TRY(pl_json_read(c->config_file, CONFIG_LIMIT, &c->config_json, &c->config_text, err));
    PL_TRY(pl_quant_map_read(&c->quant, c->config_file, c->config_json, err));
    json_t *generation = NULL;
    PL_TRY(read_generation_config(c, &generation, err));
    /* A config that this build cannot run does not keep anyone from looking at the tensors. */
    if (pl_config_from_json(c->config_file, c->config_json, generation, &c->config,
                            &c->config_error) == PLEACH_OK)
        c->config_error = (pleach_error){0};
    json_decref(generation);
    return PLEACH_OK;
}

pleach_status pl_checkpoint_open_folder(pleach_checkpoint *c, pleach_error *err)
{
    PL_TRY(open_config(c, err));
    PL_TRY(open_tensors(c, err));
    return pl_checkpoint_name(c, err);
}
