/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening and closing a checkpoint, and what is known of it afterwards. The two kinds are opened in
 * checkpoint_folder.c and checkpoint_gguf.c. */
#include "checkpoint_files.h"

#include <string.h>

#include "base/memory.h"
#include "tensor.h"
#include "tensor_names.h"

static pleach_status open_parts(pleach_checkpoint *c, pleach_error *err)
{
    if (pl_is_directory(c->path))
        PL_TRY(pl_checkpoint_open_folder(c, err));
    else
        PL_TRY(pl_checkpoint_open_gguf(c, err));
    c->sorted = pl_tensor_sort(c->tensors, c->n_tensors);
    if (!c->sorted) return pl_fail_memory(err, c->path, c->n_tensors * sizeof *c->sorted);
    const char *twice = pl_tensor_duplicate(c->sorted, c->n_tensors);
    PL_FAIL_IF(twice, err, PLEACH_ERR_FORMAT, "%s: tensor %s occurs twice", c->path, twice);
    return pl_checkpoint_list(c, err);
}

pleach_status pl_checkpoint_name(pleach_checkpoint *c, pleach_error *err)
{
    pl_named_tensors named;
    const pl_config *config = c->config_error.code == PLEACH_OK ? &c->config : NULL;
    PL_TRY(pl_tensors_name(c->path, c->tensors, c->n_tensors, config, &named, err));
    pl_free(c->tensors);
    pl_free(c->names);
    c->tensors = named.tensors;
    c->names = named.names;
    c->n_tensors = named.n;
    c->n_foreign = named.foreign;
    return PLEACH_OK;
}

pleach_status pl_checkpoint_open(const char *path, pleach_checkpoint **out, pleach_error *err)
{
    *out = NULL;
    pleach_checkpoint *c = pl_calloc(1, sizeof *c);
    size_t length = strlen(path) + 1;
    if (!c || !(c->path = pl_alloc(length, 1))) {
        pl_free(c);
        return pl_fail_memory(err, path, sizeof *c + length);
    }
    memcpy(c->path, path, length);
    pleach_status status = open_parts(c, err);
    if (status == PLEACH_OK)
        *out = c;
    else
        pleach_checkpoint_close(c);
    return status;
}

pleach_status pleach_checkpoint_open(const char *path, pleach_checkpoint **out, pleach_error *err)
{
    return pl_checkpoint_open(path, out, err);
}

void pleach_checkpoint_close(pleach_checkpoint *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n_shards; i++) pl_safetensors_close(c->shards[i]);
    pl_free(c->shards);
    pl_gguf_close(c->gguf);
    pl_quant_map_close(&c->quant);
    json_decref(c->config_json);
    pl_free(c->config_file);
    pl_free(c->config_text);
    pl_free(c->names);
    pl_free(c->numbers);
    pl_free(c->tensors);
    pl_free(c->sorted);
    pl_free(c->entries);
    pl_free(c->path);
    pl_free(c);
}

const char *pl_checkpoint_path(const pleach_checkpoint *c)
{
    return c->path;
}

pleach_status pl_checkpoint_config(const pleach_checkpoint *c, const pl_config **out,
                                   pleach_error *err)
{
    *out = c->config_error.code == PLEACH_OK ? &c->config : NULL;
    if (!*out) return pl_fail(err, c->config_error.code, "%s", c->config_error.message);
    return PLEACH_OK;
}

size_t pl_checkpoint_tensor_count(const pleach_checkpoint *c)
{
    return c->n_tensors;
}

const pl_tensor *pl_checkpoint_tensor_at(const pleach_checkpoint *c, size_t i)
{
    return &c->tensors[i];
}

const pl_tensor *pl_checkpoint_find(const pleach_checkpoint *c, const char *name)
{
    return pl_tensor_search(c->sorted, c->n_tensors, name);
}

size_t pl_checkpoint_skipped(const pleach_checkpoint *c)
{
    return c->n_foreign;
}

const pl_gguf *pl_checkpoint_gguf(const pleach_checkpoint *c)
{
    return c->gguf;
}

const char *pl_checkpoint_config_text(const pleach_checkpoint *c)
{
    return c->config_text;
}
