/* SPDX-License-Identifier: Apache-2.0
 *
 * Files: mapped for reading, whole for reading, and written under a temporary name. */
#ifndef PL_BASE_FILE_H
#define PL_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#include "error.h"

/* A file mapped read-only. data is page-aligned and NULL for an empty file. */
typedef struct pl_map {
    const uint8_t *data;
    size_t size;
} pl_map;

pleach_status pl_map_open(pl_map *map, const char *path, pleach_error *err);
void pl_map_close(pl_map *map); /* accepts a zeroed map; clears it */
/* Gives back the memory of the whole pages inside data[0..size) of a mapped file; they are read
 * again when next used. Keeps a pass over a large file from filling the process. */
void pl_map_release(const void *data, size_t size);

/* Reads a whole file of at most `limit` bytes into *out (NUL-terminated, freed with pl_free). */
pleach_status pl_read_file(const char *path, size_t limit, char **out, size_t *size,
                           pleach_error *err);

/* A file being written. It lives under PATH.partial, locked, until pl_output_commit renames it:
 * PLEACH_ERR_EXISTS while another writes there. A file that is there keeps its mode, and a link
 * stays: what it leads to is replaced. */
typedef struct pl_output {
    char *path, *partial;
    int fd;
    uint64_t written;
} pl_output;

pleach_status pl_output_open(pl_output *out, const char *path, pleach_error *err);
/* Whether that would go well, for a file that long work is to end in. */
pleach_status pl_output_check(const char *path, pleach_error *err);
pleach_status pl_output_write(pl_output *out, const void *data, size_t size, pleach_error *err);
/* Syncs, closes and renames into place. */
pleach_status pl_output_commit(pl_output *out, pleach_error *err);
/* Closes and removes the partial file; a no-op after commit. */
void pl_output_discard(pl_output *out);

/* All of `data` under `path`, by way of a partial file. */
pleach_status pl_write_file(const char *path, const void *data, size_t size, pleach_error *err);

/* "dir/name" in fresh memory (pl_free), or NULL. */
char *pl_path_join(const char *dir, const char *name);
bool pl_is_directory(const char *path);
bool pl_exists(const char *path);
/* Both exist and are the same file or folder, whatever links lead there. */
bool pl_same_file(const char *a, const char *b);

#endif
