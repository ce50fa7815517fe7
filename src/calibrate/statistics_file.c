/* SPDX-License-Identifier: Apache-2.0
 *
 * Names, checks and statistics.json of a statistics folder. */
#include "statistics_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "format/json.h"

enum { FORMAT_VERSION = 2, MOST_BLOCKS = 100000 };
#define HEAD_LIMIT ((size_t)16 << 20)

/* ---- names ---------------------------------------------------------------------------------- */

size_t pl_statistic_count(const pl_config *config, uint32_t block, pl_statistic kind)
{
    return kind == PL_STATISTIC_INPUT ? pl_config_layer_inputs(config, block)
                                      : pl_config_layer_modules(config, block);
}

size_t pl_statistic_index(pl_statistic kind, const pl_module *m)
{
    return kind == PL_STATISTIC_INPUT ? m->input : m->index;
}

uint64_t pl_statistic_size(pl_statistic kind, uint64_t n)
{
    return kind == PL_STATISTIC_POWER ? n : pl_triangle_size(n);
}

bool pl_statistic_gathered(const pl_statistics_info *info, pl_statistic kind)
{
    return kind == PL_STATISTIC_INPUT || (kind == PL_STATISTIC_OUTPUT ? info->output : info->fisher);
}

/* A module's name without "model.layers.N.". */
static const char *name_in_block(const pl_module *m)
{
    const char *at = m->name;
    for (int dots = 0; dots < 3 && *at; at++) dots += *at == '.';
    return at;
}

char *pl_statistics_tensor_name(pl_statistic kind, const pl_module *m,
                                char name[PL_STATISTICS_NAME])
{
    static const char *const kinds[] = {"input", "fisher", "power", "output"};
    if (kind == PL_STATISTIC_INPUT) snprintf(name, PL_STATISTICS_NAME, "input.%u", m->input);
    else snprintf(name, PL_STATISTICS_NAME, "%.50s.%s", name_in_block(m), kinds[kind]);
    return name;
}

const char *pl_statistics_tokens_name(pl_statistic kind)
{
    static const char *const names[] = {"tokens.input", "tokens.fisher", "tokens.power",
                                        "tokens.output"};
    return names[kind];
}

char *pl_statistics_block_path(const char *dir, uint32_t block, pleach_error *err)
{
    char name[40];
    snprintf(name, sizeof name, "block-%04u.safetensors", block);
    char *path = pl_path_join(dir, name);
    if (!path) pl_fail_memory(err, "a path", strlen(dir) + sizeof name);
    return path;
}

/* ---- a block -------------------------------------------------------------------------------- */

pleach_status pl_statistics_check(const char *path, const pl_safetensors *file, const char *name,
                                  pl_dtype type, uint64_t n, pleach_error *err)
{
    const pl_tensor *t = pl_safetensors_find(file, name);
    PL_FAIL_IF(!t, err, PLEACH_ERR_FORMAT, "%s: no tensor %s", path, name);
    PL_FAIL_IF(t->type != type || t->n_dims != 1, err, PLEACH_ERR_FORMAT,
               "%s: %s is %s in %u dimensions, expected %s in one", path, name,
               pl_dtype_get(t->type)->name, t->n_dims, pl_dtype_get(type)->name);
    PL_FAIL_IF(n && t->shape[0] != n, err, PLEACH_ERR_FORMAT, "%s: %s has %llu numbers, expected %llu",
               path, name, (unsigned long long)t->shape[0], (unsigned long long)n);
    return PLEACH_OK;
}

static pleach_status check_modules(const char *path, const pl_safetensors *file,
                                   const pl_config *config, uint32_t block, pl_statistic kind,
                                   pleach_error *err)
{
    char name[PL_STATISTICS_NAME];
    for (size_t i = 0; i < pl_config_layer_modules(config, block); i++) {
        pl_module m;
        pl_config_layer_module(config, block, i, &m);
        PL_TRY(pl_statistics_check(path, file, pl_statistics_tensor_name(kind, &m, name), PL_F32,
                                   0, err));
    }
    return PLEACH_OK;
}

/* As many inputs as tokens were counted for. */
static pleach_status check_inputs(const char *path, const pl_safetensors *file, pleach_error *err)
{
    char name[PL_STATISTICS_NAME];
    const pl_tensor *counts =
        pl_safetensors_find(file, pl_statistics_tokens_name(PL_STATISTIC_INPUT));
    for (uint32_t i = 0; i < counts->shape[0]; i++) {
        const pl_module m = {.input = i};
        pl_statistics_tensor_name(PL_STATISTIC_INPUT, &m, name);
        PL_TRY(pl_statistics_check(path, file, name, PL_F32, 0, err));
    }
    return PLEACH_OK;
}

static pleach_status check_block(const char *path, const pl_safetensors *file, uint32_t block,
                                 const pl_config *config, const pl_statistics_info *info,
                                 pleach_error *err)
{
    size_t linears = config ? pl_statistic_count(config, block, PL_STATISTIC_FISHER) : 0;
    for (pl_statistic kind = 0; kind < PL_STATISTIC_KINDS; kind++) {
        if (!pl_statistic_gathered(info, kind)) continue;
        size_t n = config ? pl_statistic_count(config, block, kind) : 0;
        PL_TRY(pl_statistics_check(path, file, pl_statistics_tokens_name(kind), PL_I64, n, err));
        if (config) PL_TRY(check_modules(path, file, config, block, kind, err));
    }
    PL_TRY(check_inputs(path, file, err));
    if (!info->fisher) return PLEACH_OK;
    return pl_statistics_check(path, file, PL_STATISTICS_GRADIENT, PL_F64, linears, err);
}

pleach_status pl_statistics_block_open(const char *dir, uint32_t block, const pl_config *config,
                                       const pl_statistics_info *info, pl_safetensors **out,
                                       pleach_error *err)
{
    *out = NULL;
    char *path = pl_statistics_block_path(dir, block, err);
    if (!path) return PLEACH_ERR_MEMORY;
    pleach_status status;
    if (!pl_exists(path)) status = pl_fail(err, PLEACH_ERR_MISSING, "%s: missing", path);
    else status = pl_safetensors_open(path, out, err);
    if (status == PLEACH_OK && (status = check_block(path, *out, block, config, info, err)) != PLEACH_OK) {
        pl_safetensors_close(*out);
        *out = NULL;
    }
    pl_free(path);
    return status;
}

/* ---- statistics.json ------------------------------------------------------------------------ */

static pleach_status parse_head(const char *file, const json_t *root, pl_statistics_head *head,
                                pleach_error *err)
{
    pl_json_source at = {file, ""};
    uint32_t version;
    PL_TRY(pl_json_u32(at, root, "pleach statistics", 0, UINT32_MAX, &version, err));
    PL_FAIL_IF(version != FORMAT_VERSION, err, PLEACH_ERR_UNSUPPORTED,
               "%s: format %u, this version reads %d", file, version, FORMAT_VERSION);
    PL_TRY(pl_json_bool(at, root, "whole", &head->whole, err));
    PL_TRY(pl_json_bool(at, root, "fisher", &head->info.fisher, err));
    PL_TRY(pl_json_bool(at, root, "output", &head->info.output, err));
    PL_TRY(pl_json_u32(at, root, "blocks", 1, MOST_BLOCKS, &head->info.blocks, err));
    PL_TRY(pl_json_u64(at, root, "tokens", 1, INT64_MAX, &head->info.tokens, err));
    json_t *binding = pl_json_get(root, "binding"), *left_out = pl_json_get(root, "left out");
    PL_FAIL_IF(!json_is_object(binding), err, PLEACH_ERR_FORMAT,
               "%s: binding is %s, expected an object", file, pl_json_kind(binding));
    PL_FAIL_IF(left_out && !json_is_object(left_out), err, PLEACH_ERR_FORMAT,
               "%s: \"left out\" is %s, expected an object", file, pl_json_kind(left_out));
    head->binding = json_incref(binding);
    head->left_out = left_out ? json_incref(left_out) : NULL;
    return PLEACH_OK;
}

pleach_status pl_statistics_head_read(const char *dir, pl_statistics_head *head, pleach_error *err)
{
    *head = (pl_statistics_head){0};
    char *file = pl_path_join(dir, PL_STATISTICS_HEAD);
    if (!file) return pl_fail_memory(err, "a path", 0);
    json_t *root = NULL;
    pleach_status status;
    if (!pl_exists(file))
        status = pl_fail(err, PLEACH_ERR_MISSING, "%s: no statistics (no " PL_STATISTICS_HEAD ")",
                         dir);
    else status = pl_json_read(file, HEAD_LIMIT, &root, NULL, err);
    if (status == PLEACH_OK) status = parse_head(file, root, head, err);
    json_decref(root);
    pl_free(file);
    return status;
}

pleach_status pl_statistics_head_write(const char *dir, const pl_statistics_head *head,
                                       pleach_error *err)
{
    char *file = pl_path_join(dir, PL_STATISTICS_HEAD);
    json_t *root = json_pack("{s:i, s:b, s:b, s:b, s:I, s:I, s:O*, s:O}", "pleach statistics",
                             FORMAT_VERSION, "whole", head->whole, "fisher", head->info.fisher,
                             "output", head->info.output, "blocks", (json_int_t)head->info.blocks,
                             "tokens", (json_int_t)head->info.tokens, "left out", head->left_out,
                             "binding", head->binding);
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    pleach_status status = file && text ? pl_write_file(file, text, strlen(text), err)
                                        : pl_fail_memory(err, PL_STATISTICS_HEAD, 0);
    free(text);
    json_decref(root);
    pl_free(file);
    return status;
}

void pl_statistics_head_free(pl_statistics_head *head)
{
    json_decref(head->binding);
    json_decref(head->left_out);
    *head = (pl_statistics_head){0};
}

pleach_status pl_statistics_head_check(const char *dir, const pl_statistics_head *head,
                                       const json_t *binding, pleach_error *err)
{
    char line[512];
    PL_FAIL_IF(binding && pl_json_difference(head->binding, binding, line, sizeof line), err,
               PLEACH_ERR_MISMATCH, "%s: statistics of another calibration: %s", dir, line);
    return PLEACH_OK;
}
