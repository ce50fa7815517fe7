/* SPDX-License-Identifier: Apache-2.0
 *
 * Making, taking over and finishing a statistics folder. */
#include "statistics_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- opening --------------------------------------------------------------------------------- */

static pleach_status lock_folder(pl_statistics_folder *f, pleach_error *err)
{
    if (mkdir(f->dir, 0777) != 0 && errno != EEXIST) return pl_fail_errno(err, "create", f->dir);
    f->lock = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->lock < 0) return pl_fail_errno(err, "open", f->dir);
    if (flock(f->lock, LOCK_EX | LOCK_NB) == 0) return PLEACH_OK;
    if (errno != EWOULDBLOCK) return PLEACH_OK; /* a file system without locks */
    return pl_fail(err, PLEACH_ERR_EXISTS, "%s: another process is at work there", f->dir);
}

/* A folder without statistics.json may hold nothing but what a run leaves that is stopped before
 * that file is whole. */
static pleach_status check_new(const pl_statistics_folder *f, pleach_error *err)
{
    DIR *dir = opendir(f->dir);
    if (!dir) return pl_fail_errno(err, "read", f->dir);
    bool empty = true;
    for (struct dirent *e; (e = readdir(dir));)
        empty = empty && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
                          strcmp(e->d_name, PL_STATISTICS_HEAD ".partial") == 0);
    closedir(dir);
    PL_FAIL_IF(!empty, err, PLEACH_ERR_EXISTS,
               "%s: exists and holds no statistics (no " PL_STATISTICS_HEAD ")", f->dir);
    return PLEACH_OK;
}

static pleach_status differs(const char *dir, const char *field, uint64_t there, uint64_t now,
                             pleach_error *err)
{
    return pl_fail(err, PLEACH_ERR_MISMATCH,
                   "%s: statistics of another calibration: %s is %llu there and %llu now", dir,
                   field, (unsigned long long)there, (unsigned long long)now);
}

static pleach_status check_head(const pl_statistics_folder *f, const json_t *binding,
                                const pl_statistics_info *info, pleach_error *err)
{
    const pl_statistics_info *there = &f->head.info;
    PL_TRY(pl_statistics_head_check(f->dir, &f->head, binding, err));
    if (there->blocks != info->blocks)
        return differs(f->dir, "blocks", there->blocks, info->blocks, err);
    if (there->tokens != info->tokens)
        return differs(f->dir, "tokens", there->tokens, info->tokens, err);
    if (there->fisher != info->fisher)
        return differs(f->dir, "fisher", there->fisher, info->fisher, err);
    if (there->output != info->output)
        return differs(f->dir, "output", there->output, info->output, err);
    return PLEACH_OK;
}

static pleach_status open_folder(pl_statistics_folder *f, const json_t *binding,
                                 const pl_statistics_info *info, pleach_error *err)
{
    PL_TRY(lock_folder(f, err));
    pleach_status status = pl_statistics_head_read(f->dir, &f->head, err);
    if (status == PLEACH_OK) return check_head(f, binding, info, err);
    if (status != PLEACH_ERR_MISSING) return status;
    PL_TRY(check_new(f, err));
    f->head = (pl_statistics_head){.info = *info, .binding = json_deep_copy(binding)};
    if (!f->head.binding) return pl_fail_memory(err, PL_STATISTICS_HEAD, 0);
    return pl_statistics_head_write(f->dir, &f->head, err);
}

pleach_status pl_statistics_folder_open(pl_statistics_folder *f, const char *dir,
                                        const json_t *binding, const pl_statistics_info *info,
                                        pleach_error *err)
{
    *f = (pl_statistics_folder){.dir = dir, .lock = -1};
    pleach_status status = open_folder(f, binding, info, err);
    if (status != PLEACH_OK) pl_statistics_folder_close(f);
    return status;
}

void pl_statistics_folder_close(pl_statistics_folder *f)
{
    if (f->lock >= 0) close(f->lock);
    f->lock = -1;
    pl_statistics_head_free(&f->head);
}

/* ---- finishing ------------------------------------------------------------------------------- */

/* Notes each matrix of a block for which some tokens were left out; an expert sees some alone anyway. */
static int note_left_out(json_t *notes, const pl_config *config, uint32_t block,
                         const pl_safetensors *file, const pl_statistics_info *info)
{
    int failed = 0;
    size_t n = pl_config_layer_modules(config, block);
    for (pl_statistic kind = 0; kind < PL_STATISTIC_KINDS; kind++) {
        if (!pl_statistic_gathered(info, kind)) continue;
        const pl_tensor *counts = pl_safetensors_find(file, pl_statistics_tokens_name(kind));
        for (size_t i = 0; i < n; i++) {
            char name[PL_STATISTICS_NAME], key[PL_STATISTICS_NAME + 16];
            int64_t tokens;
            pl_module m;
            pl_config_layer_module(config, block, i, &m);
            memcpy(&tokens,
                   (const char *)counts->data + pl_statistic_index(kind, &m) * sizeof tokens,
                   sizeof tokens);
            if (m.expert || (uint64_t)tokens == info->tokens) continue;
            snprintf(key, sizeof key, "%u.%s", block, pl_statistics_tensor_name(kind, &m, name));
            failed |= json_object_set_new(notes, key,
                                          json_integer((json_int_t)info->tokens - tokens));
        }
    }
    return failed;
}

pleach_status pl_statistics_folder_finish(pl_statistics_folder *f, const pl_config *config,
                                          pleach_error *err)
{
    json_t *notes = json_object();
    pleach_status status = notes ? PLEACH_OK : pl_fail_memory(err, PL_STATISTICS_HEAD, 0);
    for (uint32_t i = 0; status == PLEACH_OK && i < f->head.info.blocks; i++) {
        pl_safetensors *file;
        status = pl_statistics_block_open(f->dir, i, config, &f->head.info, &file, err);
        if (status == PLEACH_OK && note_left_out(notes, config, i, file, &f->head.info) != 0)
            status = pl_fail_memory(err, PL_STATISTICS_HEAD, 0);
        pl_safetensors_close(file);
    }
    json_decref(f->head.left_out);
    f->head.left_out = notes;
    f->head.whole = true;
    return status == PLEACH_OK ? pl_statistics_head_write(f->dir, &f->head, err) : status;
}
