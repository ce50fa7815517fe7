/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of its own for a test that writes files, and small files in it. */
#ifndef PL_TESTS_SCRATCH_H
#define PL_TESTS_SCRATCH_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

typedef struct scratch {
    char dir[200];
} scratch;

static inline void scratch_open(scratch *s)
{
    const char *base = getenv("TMPDIR");
    snprintf(s->dir, sizeof s->dir, "%s/pleach-test-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(s->dir)) abort();
}

/* Removes the folder's files and the folder. */
static inline void scratch_close(scratch *s)
{
    DIR *d = opendir(s->dir);
    char path[600];
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", s->dir, e->d_name);
        unlink(path);
    }
    if (d) closedir(d);
    rmdir(s->dir);
}

/* "<dir>/<name>" in static storage, good until the fourth call after. */
static inline const char *scratch_path(const scratch *s, const char *name)
{
    static char paths[4][600];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", s->dir, name);
    return path;
}

static inline void scratch_write(const scratch *s, const char *name, const void *data, size_t size)
{
    pleach_error err;
    if (pl_write_file(scratch_path(s, name), data, size, &err) != PLEACH_OK) abort();
}

static inline void scratch_text(const scratch *s, const char *name, const char *text)
{
    scratch_write(s, name, text, strlen(text));
}

#endif
