/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json and the files beside the weights. Each is synced before it has its name; the folder
 * as a whole is published by output_path.c. */
#include "model_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "format/gguf.h"
#include "text/tokenizer.h"

/* ---- config and small files ----------------------------------------------------------------- */

pleach_status pl_source_config(const pleach_checkpoint *source, json_t **out, pleach_error *err)
{
    json_error_t error;
    const char *text = pl_checkpoint_config_text(source);
    const pl_config *g;
    PL_TRY(pl_checkpoint_config(source, &g, err));
    PL_FAIL_IF(g->delta.tiled, err, PLEACH_ERR_UNSUPPORTED,
               "%s: a folder from a GGUF file whose value heads are in an order of their own is not "
               "supported; start from the model's own folder", pl_checkpoint_path(source));
    char *made = text ? NULL : pl_checkpoint_make_config_text(source, err);
    if (!text && !made) return err ? err->code : PLEACH_ERR_FORMAT;
    json_t *config = json_loads(text ? text : made, 0, &error);
    pl_free(made);
    if (!json_is_object(config)) {
        json_decref(config);
        return pl_fail(err, PLEACH_ERR_FORMAT, "%s: config.json: %s", pl_checkpoint_path(source),
                       config ? "expected an object" : error.text);
    }
    json_object_del(config, "quantization");
    json_object_del(config, "quantization_config");
    *out = config;
    return PLEACH_OK;
}

pleach_status pl_write_json(const char *dir, const char *name, const json_t *json,
                            pleach_error *err)
{
    char *path = pl_path_join(dir, name), *text = json_dumps(json, JSON_INDENT(1));
    pleach_status status = path && text ? pl_write_file(path, text, strlen(text), err)
                                        : pl_fail_memory(err, name, 0);
    free(text);
    pl_free(path);
    return status;
}

/* Files of a Hugging Face folder that belong to the model and not to its weights. */
static const char *const side_files[] = {
    "generation_config.json", "tokenizer.json",     "tokenizer_config.json",
    "tokenizer.model",        "vocab.json",         "merges.txt",
    "vocab.txt",              "added_tokens.json",  "special_tokens_map.json",
    "chat_template.jinja",    "chat_template.json", "LICENSE",
    "LICENSE.txt",            "LICENSE.md",         "NOTICE",
};
#define SIDE_FILE_LIMIT ((size_t)1 << 28)

static pleach_status copy_file(const char *from_dir, const char *to_dir, const char *name,
                               pleach_error *err)
{
    char *from = pl_path_join(from_dir, name), *to = pl_path_join(to_dir, name), *data = NULL;
    size_t size;
    pleach_status status = from && to ? PLEACH_OK : pl_fail_memory(err, "a path", 0);
    if (status == PLEACH_OK && access(from, F_OK) == 0) {
        status = pl_read_file(from, SIDE_FILE_LIMIT, &data, &size, err);
        if (status == PLEACH_OK) status = pl_write_file(to, data, size, err);
    }
    pl_free(data);
    pl_free(to);
    pl_free(from);
    return status;
}

pleach_status pl_source_tokenizer(const pleach_checkpoint *source, pl_tokenizer **out,
                                  pleach_error *err)
{
    const pl_gguf *g = pl_checkpoint_gguf(source);
    return g ? pl_tokenizer_open_gguf(g, out, err)
             : pl_tokenizer_open_folder(pl_checkpoint_path(source), out, err);
}

/* *out is NULL when the file holds no tokenizer. */
static pleach_status open_gguf_tokenizer(const pleach_checkpoint *source, pl_tokenizer **out,
                                         pleach_error *err)
{
    *out = NULL;
    const pl_gguf *g = pl_checkpoint_gguf(source);
    if (!g || !pl_gguf_has(g, "tokenizer.ggml.model")) return PLEACH_OK;
    return pl_tokenizer_open_gguf(g, out, err);
}

pleach_status pl_check_side_files(const pleach_checkpoint *source, pleach_error *err)
{
    pl_tokenizer *tokenizer;
    PL_TRY(open_gguf_tokenizer(source, &tokenizer, err));
    pl_tokenizer_close(tokenizer);
    return PLEACH_OK;
}

pleach_status pl_write_side_files(const pleach_checkpoint *source, const char *dir,
                                  pleach_error *err)
{
    if (!pl_checkpoint_gguf(source)) {
        for (size_t i = 0; i < PL_COUNT(side_files); i++)
            PL_TRY(copy_file(pl_checkpoint_path(source), dir, side_files[i], err));
        return PLEACH_OK;
    }
    pl_tokenizer *tokenizer;
    PL_TRY(open_gguf_tokenizer(source, &tokenizer, err));
    pleach_status status = tokenizer ? pl_tokenizer_write(tokenizer, dir, err) : PLEACH_OK;
    pl_tokenizer_close(tokenizer);
    return status;
}
