/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapping, reading and safe writing of files. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
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

pleach_status pl_output_open(pl_output *out, const char *path, pleach_error *err)
{
    size_t n = strlen(path);
    *out = (pl_output){.fd = -1, .path = pl_alloc(n + 1, 1), .partial = pl_alloc(n + 9, 1)};
    if (!out->path || !out->partial) {
        pl_output_discard(out);
        return pl_fail_memory(err, "a path", n);
    }
    memcpy(out->path, path, n + 1);
    snprintf(out->partial, n + 9, "%s.partial", path);
    out->fd = open(out->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out->fd >= 0) return PLEACH_OK;
    pleach_status status = pl_fail_errno(err, "create", out->partial);
    pl_output_discard(out);
    return status;
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
    int closed = close(out->fd);
    out->fd = -1;
    if (closed != 0) return pl_fail_errno(err, "close", out->partial);
    if (rename(out->partial, out->path) != 0) return pl_fail_errno(err, "rename to", out->path);
    pl_free(out->partial);
    out->partial = NULL;
    pl_output_discard(out);
    return PLEACH_OK;
}

void pl_output_discard(pl_output *out)
{
    if (out->fd >= 0) close(out->fd);
    if (out->partial) unlink(out->partial);
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
