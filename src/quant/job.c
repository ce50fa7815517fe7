/* SPDX-License-Identifier: Apache-2.0
 *
 * The work folder. It is flat but for "statistics", what calibration found, "out", the result being
 * put together, and "old", an output about to be replaced. */
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/random.h"
#include "format/json.h"

#define JOB_FILE "job.json"
#define PART_SUFFIX ".safetensors"
#define JOB_LIMIT (1u << 20)

/* ---- fingerprint ---------------------------------------------------------------------------- */

#define PIECE ((size_t)16 << 20)

enum { PIECES_AT_ONCE = 64 };

/* Pieces first, first + 1, ... of a tensor. */
typedef struct hash_job {
    const pl_tensor *t;
    size_t first;
    uint64_t hashes[PIECES_AT_ONCE];
} hash_job;

static void hash_piece(void *job, size_t i, int thread)
{
    hash_job *j = job;
    size_t at = (j->first + i) * PIECE, size = PL_MIN((size_t)j->t->n_bytes - at, PIECE);
    const uint8_t *data = (const uint8_t *)j->t->data + at;
    (void)thread;
    j->hashes[i] = pl_hash(data, size, j->first + i);
    pl_map_release(data, size);
}

static uint64_t hash_tensor(const pl_tensor *t, uint64_t h, pl_pool *pool)
{
    size_t pieces = (size_t)((t->n_bytes + PIECE - 1) / PIECE);
    hash_job job = {.t = t};
    for (; job.first < pieces; job.first += PIECES_AT_ONCE) {
        size_t n = PL_MIN(pieces - job.first, (size_t)PIECES_AT_ONCE);
        pl_pool_run(pool, n, hash_piece, &job);
        for (size_t i = 0; i < n; i++) h = pl_mix64(h * 3 + job.hashes[i]);
    }
    return h;
}

static json_t *hex(uint64_t h)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, h);
    return json_string(text);
}

json_t *pl_source_fingerprint(const pleach_checkpoint *c, pl_pool *pool)
{
    size_t n = pl_checkpoint_tensor_count(c);
    uint64_t names = 0, data = 0, bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const pl_tensor *t = pl_checkpoint_tensor_at(c, i);
        uint64_t shape[PL_MAX_DIMS + 2] = {(uint64_t)t->type, t->n_dims};
        memcpy(shape + 2, t->shape, t->n_dims * sizeof *shape);
        names = pl_hash(t->name, strlen(t->name), names);
        names = pl_hash(shape, sizeof shape, names);
        data = hash_tensor(t, data, pool);
        bytes += t->n_bytes;
    }
    const char *config = pl_checkpoint_config_text(c);
    return json_pack("{s:I, s:I, s:o, s:o, s:o}", "tensors", (json_int_t)n, "bytes",
                     (json_int_t)bytes, "names and shapes", hex(names), "data", hex(data), "config",
                     hex(config ? pl_hash(config, strlen(config), 0) : 0));
}

/* ---- the job file --------------------------------------------------------------------------- */

static pleach_status compare_job(const char *file, const json_t *binding, pleach_error *err)
{
    char *text, line[512];
    size_t size;
    json_error_t error;
    PL_TRY(pl_read_file(file, JOB_LIMIT, &text, &size, err));
    json_t *there = json_loadb(text, size, 0, &error);
    pl_free(text);
    pleach_status status = PLEACH_OK;
    if (!there) status = pl_fail(err, PLEACH_ERR_FORMAT, "%s: %s", file, error.text);
    else if (pl_json_difference(there, binding, line, sizeof line))
        status =
            pl_fail(err, PLEACH_ERR_MISMATCH,
                    "%s: unfinished work of another run: %s (--restart starts over)", file, line);
    json_decref(there);
    return status;
}

static pleach_status write_job(const char *file, const json_t *binding, pleach_error *err)
{
    char *text = json_dumps(binding, JSON_INDENT(1));
    if (!text) return pl_fail_memory(err, file, 0);
    pleach_status status = pl_write_file(file, text, strlen(text), err);
    free(text);
    return status;
}

/* ---- the folder ----------------------------------------------------------------------------- */

/* A folder in the work folder, gone with the files in it. */
static pleach_status remove_inside(const pl_output_path *path, const char *name, pleach_error *err)
{
    char *folder = pl_path_join(path->partial, name);
    if (!folder) return pl_fail_memory(err, "a path", 0);
    pleach_status status = pl_remove_flat_folder(folder, err);
    pl_free(folder);
    return status;
}

/* The job file goes last, so that a removal that is cut short can be taken up again. */
static pleach_status remove_all(const pl_output_path *path, pleach_error *err)
{
    pleach_status status = PLEACH_OK;
    PL_TRY(remove_inside(path, "old", err));
    PL_TRY(remove_inside(path, "statistics", err));
    PL_TRY(pl_remove_flat_folder(path->staging, err));
    DIR *dir = opendir(path->partial);
    if (!dir) return pl_fail_errno(err, "read", path->partial);
    for (struct dirent *e; (e = readdir(dir));)
        if (strstr(e->d_name, PART_SUFFIX)) unlinkat(dirfd(dir), e->d_name, 0);
    unlinkat(dirfd(dir), "published", 0);
    unlinkat(dirfd(dir), JOB_FILE ".partial", 0);
    unlinkat(dirfd(dir), JOB_FILE, 0);
    if (rmdir(path->partial) != 0) status = pl_fail_errno(err, "remove", path->partial);
    closedir(dir);
    return status;
}

static pleach_status lock_folder(pl_job *job, pleach_error *err)
{
    const char *folder = job->path->partial;
    job->lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (job->lock < 0) return pl_fail_errno(err, "open", folder);
    if (flock(job->lock, LOCK_EX | LOCK_NB) == 0) return PLEACH_OK;
    if (errno != EWOULDBLOCK) return PLEACH_OK; /* a file system without locks */
    return pl_fail(err, PLEACH_ERR_EXISTS, "%s: another process is at work there", folder);
}

static pleach_status make_folder(pl_job *job, pleach_error *err)
{
    if (mkdir(job->path->partial, 0777) != 0 && errno != EEXIST)
        return pl_fail_errno(err, "create", job->path->partial);
    return lock_folder(job, err);
}

/* A run that was stopped before its job file was whole left nothing else. */
static pleach_status check_new(const pl_job *job, pleach_error *err)
{
    unlinkat(job->lock, JOB_FILE ".partial", 0);
    PL_FAIL_IF(rmdir(job->path->partial) != 0, err, PLEACH_ERR_EXISTS,
               "%s: exists and is no work folder (no " JOB_FILE ")", job->path->partial);
    return PLEACH_OK;
}

/* True when the folder holds its job file alone, as after a run that was refused before it began. */
static bool is_idle(const pl_job *job)
{
    bool idle = true;
    DIR *dir = opendir(job->path->partial);
    if (!dir) return false;
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.' && strcmp(e->d_name, JOB_FILE) != 0) idle = false;
    closedir(dir);
    return idle;
}

static pleach_status open_work(pl_job *job, const char *file, const json_t *binding, bool discard,
                               pleach_error *err)
{
    PL_TRY(make_folder(job, err));
    if (pl_exists(file)) {
        pleach_status status = compare_job(file, binding, err);
        if (status == PLEACH_OK || !(discard || is_idle(job))) return status;
        PL_TRY(remove_all(job->path, err));
    } else {
        PL_TRY(check_new(job, err));
    }
    close(job->lock);
    job->lock = -1;
    PL_TRY(make_folder(job, err));
    return write_job(file, binding, err);
}

pleach_status pl_job_open(pl_job *job, const pl_output_path *path, const json_t *binding,
                          bool discard, pleach_error *err)
{
    *job = (pl_job){.path = path, .lock = -1};
    char *file = pl_path_join(path->partial, JOB_FILE);
    if (!file) return pl_fail_memory(err, "a path", 0);
    pleach_status status = open_work(job, file, binding, discard, err);
    pl_free(file);
    if (status != PLEACH_OK) pl_job_close(job);
    return status;
}

void pl_job_close(pl_job *job)
{
    if (job->lock >= 0) close(job->lock);
    job->lock = -1;
}

pleach_status pl_job_remove(pl_job *job, pleach_error *err)
{
    return remove_all(job->path, err);
}

char *pl_job_part_path(const pl_job *job, const char *module, pleach_error *err)
{
    size_t n = strlen(job->path->partial) + strlen(module) + 16;
    char *path = pl_alloc(n, 1);
    if (path) snprintf(path, n, "%s/%s" PART_SUFFIX, job->path->partial, module);
    else pl_fail_memory(err, "a path", n);
    return path;
}
