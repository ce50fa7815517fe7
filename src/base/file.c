/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapping, reading and safe writing of files. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"

/* Opens a regular file for reading and gives its size. */
static int open_regular(const char *path, size_t *size, pleach_error *err, pleach_status *status)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hold us up */
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        *status = pl_fail_errno(err, "open", path);
    } else if (!S_ISREG(st.st_mode)) {
        *status = pl_fail(err, PLEACH_ERR_IO, "%s: expected a regular file", path);
    } else {
        *size = (size_t)st.st_size;
        *status = PLEACH_OK;
        return fd;
    }
    if (fd >= 0) close(fd);
    return -1;
}

pleach_status pl_map_open(pl_map *map, const char *path, pleach_error *err)
{
    pleach_status status;
    *map = (pl_map){0};
    size_t size;
    int fd = open_regular(path, &size, err, &status);
    if (fd < 0) return status;
    if (size > 0) {
        void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) status = pl_fail_errno(err, "map", path);
        else *map = (pl_map){.data = p, .size = size};
    }
    close(fd);
    return status;
}

void pl_map_close(pl_map *map)
{
    if (map->data) munmap((void *)(uintptr_t)map->data, map->size);
    *map = (pl_map){0};
}

void pl_map_release(const void *data, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = ((uintptr_t)data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)data + size) / page * page;
    if (start < end) madvise((void *)start, end - start, MADV_DONTNEED);
}

pleach_status pl_read_file(const char *path, size_t limit, char **out, size_t *size,
                           pleach_error *err)
{
    pleach_status status;
    size_t n, got = 0;
    int fd = open_regular(path, &n, err, &status);
    if (fd < 0) return status;
    char *text = NULL;
    if (n > limit) {
        status = pl_fail(err, PLEACH_ERR_FORMAT, "%s: %zu bytes, expected at most %zu", path, n,
                         limit);
    } else if (!(text = pl_alloc(n + 1, 1))) {
        status = pl_fail_memory(err, path, n + 1);
    }
    while (status == PLEACH_OK && got < n) {
        ssize_t r = read(fd, text + got, n - got);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) status = pl_fail_errno(err, "read", path);
        if (r <= 0) break; /* a file that shrank meanwhile is as long as what was read */
        got += (size_t)r;
    }
    close(fd);
    if (status != PLEACH_OK) {
        pl_free(text);
        return status;
    }
    text[got] = 0;
    *out = text;
    if (size) *size = got;
    return PLEACH_OK;
}

/* The file that `path` stands for, links followed, in fresh memory; exists: its mode is in *st. */
static pleach_status resolve(const char *path, char **out, struct stat *st, bool *exists,
                             pleach_error *err)
{
    size_t n = strlen(path);
    char *real = realpath(path, NULL);
    *exists = real && stat(real, st) == 0;
    pleach_status status = PLEACH_OK;
    if (n == 0)
        status = pl_fail(err, PLEACH_ERR_MISSING, "cannot create a file without a name");
    else if (*exists && !S_ISREG(st->st_mode))
        status = pl_fail(err, PLEACH_ERR_IO, "cannot write %s: it is there and no regular file",
                         path);
    else if (!real && pl_exists(path))
        status = pl_fail_errno(err, "follow", path);
    else if (!(*out = pl_alloc(PL_MAX(n, real ? strlen(real) : 0) + 1, 1)))
        status = pl_fail_memory(err, "a path", n);
    else
        strcpy(*out, real ? real : path);
    free(real);
    return status;
}

/* Opens and locks a partial file, which a killed writer may have left. Its lock lasts until it is
 * renamed or removed, so whoever gets it later finds another file, or none, under the name. */
static pleach_status open_partial(const char *path, mode_t mode, int *out, pleach_error *err)
{
    for (;;) {
        struct stat mine = {0}, there;
        int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
        int fd = open(path, flags, mode);
        if (fd < 0) return pl_fail_errno(err, "create", path);
        bool held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        if (!held && fstat(fd, &mine) == 0 && S_ISREG(mine.st_mode) && lstat(path, &there) == 0 &&
            mine.st_dev == there.st_dev && mine.st_ino == there.st_ino) {
            *out = fd;
            return PLEACH_OK;
        }
        close(fd);
        PL_FAIL_IF(held, err, PLEACH_ERR_EXISTS, "%s: another process is writing it", path);
        PL_FAIL_IF(!S_ISREG(mine.st_mode), err, PLEACH_ERR_IO, "%s: expected a regular file", path);
    }
}

pleach_status pl_output_open(pl_output *out, const char *path, pleach_error *err)
{
    struct stat st;
    bool exists;
    *out = (pl_output){.fd = -1};
    PL_TRY(resolve(path, &out->path, &st, &exists, err));
    size_t n = strlen(out->path) + sizeof ".partial";
    pleach_status status = PLEACH_OK;
    out->partial = pl_alloc(n, 1);
    if (!out->partial) {
        status = pl_fail_memory(err, "a path", n);
    } else {
        snprintf(out->partial, n, "%s.partial", out->path);
        status = open_partial(out->partial, exists ? 0600 : 0666, &out->fd, err);
    }
    if (status == PLEACH_OK && exists && fchmod(out->fd, st.st_mode & 0777) != 0)
        status = pl_fail_errno(err, "set the mode of", out->partial);
    if (status == PLEACH_OK && ftruncate(out->fd, 0) != 0)
        status = pl_fail_errno(err, "empty", out->partial);
    if (status != PLEACH_OK) pl_output_discard(out);
    return status;
}

pleach_status pl_output_check(const char *path, pleach_error *err)
{
    pl_output out;
    PL_TRY(pl_output_open(&out, path, err));
    pl_output_discard(&out);
    return PLEACH_OK;
}

pleach_status pl_output_write(pl_output *out, const void *data, size_t size, pleach_error *err)
{
    const char *p = data;
    while (size > 0) {
        ssize_t w = write(out->fd, p, size < (1u << 30) ? size : 1u << 30);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0 && (errno == ENOSPC || errno == EDQUOT))
            return pl_fail(err, PLEACH_ERR_NO_SPACE,
                           "cannot write %s: no space left on the disk; %llu bytes written, at "
                           "least %zu more needed",
                           out->partial, (unsigned long long)out->written, size);
        if (w < 0) return pl_fail_errno(err, "write", out->partial);
        p += w;
        size -= (size_t)w;
        out->written += (uint64_t)w;
    }
    return PLEACH_OK;
}

pleach_status pl_output_commit(pl_output *out, pleach_error *err)
{
    if (fsync(out->fd) != 0 && errno != EINVAL && errno != EROFS)
        return pl_fail_errno(err, "sync", out->partial);
    if (rename(out->partial, out->path) != 0) return pl_fail_errno(err, "rename to", out->path);
    int closed = close(out->fd); /* and with it the lock, only now */
    out->fd = -1;
    pleach_status status = closed ? pl_fail_errno(err, "close", out->path) : PLEACH_OK;
    pl_output_discard(out);
    return status;
}

void pl_output_discard(pl_output *out)
{
    if (out->fd >= 0) {
        unlink(out->partial);
        close(out->fd);
    }
    pl_free(out->partial);
    pl_free(out->path);
    *out = (pl_output){.fd = -1};
}

pleach_status pl_write_file(const char *path, const void *data, size_t size, pleach_error *err)
{
    pl_output out;
    PL_TRY(pl_output_open(&out, path, err));
    pleach_status status = pl_output_write(&out, data, size, err);
    if (status == PLEACH_OK) status = pl_output_commit(&out, err);
    pl_output_discard(&out);
    return status;
}

char *pl_path_join(const char *dir, const char *name)
{
    size_t n = strlen(dir) + strlen(name) + 2;
    char *path = pl_alloc(n, 1);
    if (path) snprintf(path, n, "%s/%s", dir, name);
    return path;
}

bool pl_is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool pl_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

bool pl_same_file(const char *a, const char *b)
{
    struct stat sa, sb;
    return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
           sa.st_ino == sb.st_ino;
}
