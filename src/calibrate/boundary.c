/* SPDX-License-Identifier: Apache-2.0
 *
 * Files between blocks. */
#include "boundary.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

static char *boundary_path(const pl_boundary *b, pl_boundary_kind kind, uint32_t i)
{
    char name[40];
    snprintf(name, sizeof name, "%s-%04u.f32", kind == PL_BOUNDARY_HIDDEN ? "hidden" : "gradient",
             i);
    return pl_path_join(b->dir, name);
}

bool pl_boundary_exists(const pl_boundary *b, pl_boundary_kind kind, uint32_t i)
{
    char *path = boundary_path(b, kind, i);
    struct stat st;
    bool there = path && stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
                 (uint64_t)st.st_size == (uint64_t)b->tokens * b->width * sizeof(float);
    pl_free(path);
    return there;
}

void pl_boundary_remove(const pl_boundary *b, pl_boundary_kind kind, uint32_t i)
{
    char *path = boundary_path(b, kind, i);
    if (path) unlink(path);
    pl_free(path);
}

pleach_status pl_boundary_open(const pl_boundary *b, pl_boundary_kind kind, uint32_t i, pl_map *map,
                               pleach_error *err)
{
    char *path = boundary_path(b, kind, i);
    if (!path) return pl_fail_memory(err, "a path", 0);
    pleach_status status = pl_map_open(map, path, err);
    if (status == PLEACH_OK && map->size != b->tokens * b->width * sizeof(float)) {
        status = pl_fail(err, PLEACH_ERR_FORMAT, "%s: %zu bytes, expected %zu", path, map->size,
                         b->tokens * b->width * sizeof(float));
        pl_map_close(map);
    }
    pl_free(path);
    return status;
}

void pl_boundary_read(const pl_boundary *b, const pl_map *map, size_t first, size_t n, float *rows)
{
    const uint8_t *data = map->data + first * b->width * sizeof *rows;
    memcpy(rows, data, n * b->width * sizeof *rows);
    pl_map_release(data, n * b->width * sizeof *rows);
}

pleach_status pl_boundary_create(const pl_boundary *b, pl_boundary_kind kind, uint32_t i,
                                 pl_output *out, pleach_error *err)
{
    char *path = boundary_path(b, kind, i);
    if (!path) return pl_fail_memory(err, "a path", 0);
    pleach_status status = pl_output_open(out, path, err);
    pl_free(path);
    return status;
}
