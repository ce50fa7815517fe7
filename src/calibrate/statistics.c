/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a statistics folder: every block's file mapped and checked when it opens. */
#include "statistics.h"

#include <string.h>

#include "base/memory.h"
#include "statistics_file.h"

struct pl_statistics {
    char *dir;
    pl_statistics_info info;
    pl_safetensors **blocks; /* [info.blocks] */
};

static pleach_status open_blocks(pl_statistics *s, pleach_error *err)
{
    s->blocks = pl_calloc(s->info.blocks, sizeof *s->blocks);
    if (!s->blocks) return pl_fail_memory(err, s->dir, s->info.blocks * sizeof *s->blocks);
    for (uint32_t i = 0; i < s->info.blocks; i++)
        PL_TRY(pl_statistics_block_open(s->dir, i, NULL, &s->info, &s->blocks[i], err));
    return PLEACH_OK;
}

static pleach_status open_folder(pl_statistics *s, const char *dir, const json_t *binding,
                                 pleach_error *err)
{
    pl_statistics_head head;
    pleach_status status = pl_statistics_head_read(dir, &head, err);
    if (status == PLEACH_OK) status = pl_statistics_head_check(dir, &head, binding, err);
    if (status == PLEACH_OK && !head.whole)
        status = pl_fail(err, PLEACH_ERR_MISSING, "%s: unfinished statistics", dir);
    s->info = head.info;
    pl_statistics_head_free(&head);
    PL_TRY(status);
    s->dir = pl_path_join(dir, "");
    if (!s->dir) return pl_fail_memory(err, dir, strlen(dir));
    s->dir[strlen(s->dir) - 1] = 0;
    return open_blocks(s, err);
}

pleach_status pl_statistics_open(const char *dir, const json_t *binding, pl_statistics **out,
                                 pleach_error *err)
{
    *out = NULL;
    pl_statistics *s = pl_calloc(1, sizeof *s);
    if (!s) return pl_fail_memory(err, dir, sizeof *s);
    pleach_status status = open_folder(s, dir, binding, err);
    if (status == PLEACH_OK) *out = s;
    else pl_statistics_close(s);
    return status;
}

void pl_statistics_close(pl_statistics *s)
{
    if (!s) return;
    for (uint32_t i = 0; s->blocks && i < s->info.blocks; i++) pl_safetensors_close(s->blocks[i]);
    pl_free(s->blocks);
    pl_free(s->dir);
    pl_free(s);
}

void pl_statistics_get_info(const pl_statistics *s, pl_statistics_info *info)
{
    *info = s->info;
}

/* ---- one module ----------------------------------------------------------------------------- */

/* Matrix (or vector) of a kind, NULL when no token stands behind it. */
static pleach_status get_matrix(const pl_statistics *s, const pl_module *m, pl_statistic kind,
                                uint64_t n, const float **out, uint64_t *tokens, pleach_error *err)
{
    const pl_safetensors *file = s->blocks[m->layer];
    char name[PL_STATISTICS_NAME];
    int64_t count;
    size_t i = pl_statistic_index(kind, m);
    const pl_tensor *counts = pl_safetensors_find(file, pl_statistics_tokens_name(kind));
    pl_statistics_tensor_name(kind, m, name);
    PL_TRY(pl_statistics_check(s->dir, file, name, PL_F32, 0, err));
    PL_FAIL_IF(i >= counts->shape[0], err, PLEACH_ERR_MISMATCH,
               "%s: block %u has statistics of %llu matrices, none of %s", s->dir, m->layer,
               (unsigned long long)counts->shape[0], m->name);
    const pl_tensor *t = pl_safetensors_find(file, name);
    memcpy(&count, (const char *)counts->data + i * sizeof count, sizeof count);
    PL_FAIL_IF(t->shape[0] != pl_statistic_size(kind, n), err, PLEACH_ERR_MISMATCH,
               "%s: %s of block %u has %llu numbers, %llu are needed for a width of %llu", s->dir,
               name, m->layer, (unsigned long long)t->shape[0],
               (unsigned long long)pl_statistic_size(kind, n), (unsigned long long)n);
    PL_FAIL_IF((uintptr_t)t->data % sizeof(float) != 0, err, PLEACH_ERR_FORMAT,
               "%s: %s of block %u does not start at a multiple of 4 bytes", s->dir, name, m->layer);
    PL_FAIL_IF(count < 0, err, PLEACH_ERR_FORMAT, "%s: %s of block %u has %lld tokens", s->dir, name,
               m->layer, (long long)count);
    *out = count > 0 ? t->data : NULL;
    *tokens = (uint64_t)count;
    return PLEACH_OK;
}

static pleach_status get_weighted(const pl_statistics *s, const pl_module *m,
                                  pl_module_statistics *out, pleach_error *err)
{
    uint64_t tokens;
    const pl_tensor *t = pl_safetensors_find(s->blocks[m->layer], PL_STATISTICS_GRADIENT);
    PL_TRY(get_matrix(s, m, PL_STATISTIC_FISHER, m->in, &out->fisher, &tokens, err));
    PL_TRY(get_matrix(s, m, PL_STATISTIC_POWER, m->out, &out->power, &(uint64_t){0}, err));
    PL_FAIL_IF(m->index >= t->shape[0], err, PLEACH_ERR_MISMATCH, "%s: no gradient of %s", s->dir,
               m->name);
    if (tokens)
        memcpy(&out->gradient, (const char *)t->data + m->index * sizeof out->gradient,
               sizeof out->gradient);
    if (!s->info.output) return PLEACH_OK;
    return get_matrix(s, m, PL_STATISTIC_OUTPUT, m->out, &out->output, &tokens, err);
}

pleach_status pl_statistics_get(const pl_statistics *s, const pl_module *m,
                                pl_module_statistics *out, pleach_error *err)
{
    *out = (pl_module_statistics){.in = m->in, .out = m->out};
    if (m->kind != PL_MODULE_LINEAR) return PLEACH_OK;
    PL_FAIL_IF(m->layer >= s->info.blocks, err, PLEACH_ERR_MISMATCH,
               "%s: statistics of %u blocks, none for %s", s->dir, s->info.blocks, m->name);
    PL_TRY(get_matrix(s, m, PL_STATISTIC_INPUT, m->in, &out->input, &out->tokens, err));
    return s->info.fisher ? get_weighted(s, m, out, err) : PLEACH_OK;
}

void pl_module_statistics_release(const pl_module_statistics *m)
{
    if (m->input) pl_map_release(m->input, pl_triangle_size(m->in) * sizeof(float));
    if (m->fisher) pl_map_release(m->fisher, pl_triangle_size(m->in) * sizeof(float));
    if (m->output) pl_map_release(m->output, pl_triangle_size(m->out) * sizeof(float));
}
