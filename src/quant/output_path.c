/* SPDX-License-Identifier: Apache-2.0
 *
 * Safety of output paths. Identity is device and inode throughout, so symbolic links, hard links,
 * bind mounts and "./x/../x" are all seen through. */
#define _GNU_SOURCE /* renameat2 */
#include "output_path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

/* ---- identity ------------------------------------------------------------------------------- */

/* True if `folder` is `path` or one of the folders above it. Both must exist. */
static bool holds(const char *folder, const char *path)
{
    char *real = realpath(path, NULL);
    bool found = false;
    while (real && !found) {
        found = pl_same_file(folder, real);
        char *slash = strrchr(real, '/');
        if (!slash || real[1] == 0) break;
        slash[slash == real] = 0;
    }
    free(real);
    return found;
}

/* True if a file of the source (also one that a link in the source folder leads to) lies in
 * `folder`. */
static bool holds_source(const char *folder, const char *source)
{
    if (holds(folder, source)) return true;
    DIR *dir = opendir(source);
    if (!dir) return false;
    bool found = false;
    for (struct dirent *e; !found && (e = readdir(dir));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        char *path = pl_path_join(source, e->d_name);
        found = path && holds(folder, path);
        pl_free(path);
    }
    closedir(dir);
    return found;
}

/* ---- an output that exists ------------------------------------------------------------------ */

/* An old output may be replaced when it is a folder of plain files with a config.json, or empty. */
static pleach_status check_replaceable(const char *out, pleach_error *err)
{
    struct stat st;
    if (lstat(out, &st) != 0) return pl_fail_errno(err, "look at", out);
    PL_FAIL_IF(!S_ISDIR(st.st_mode), err, PLEACH_ERR_EXISTS,
               "%s: exists and is not a folder; it is not replaced", out);
    DIR *dir = opendir(out);
    if (!dir) return pl_fail_errno(err, "read", out);
    bool config = false, files = false, folder = false;
    for (struct dirent *e; (e = readdir(dir));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
            folder = true;
        files = true;
        if (!strcmp(e->d_name, "config.json")) config = true;
    }
    closedir(dir);
    PL_FAIL_IF(folder || (files && !config), err, PLEACH_ERR_EXISTS,
               "%s: exists and is no model folder (%s); it is not replaced", out,
               folder ? "it has folders inside" : "it has no config.json");
    return PLEACH_OK;
}

pleach_status pl_remove_flat_folder(const char *path, pleach_error *err)
{
    DIR *dir = opendir(path);
    if (!dir && errno == ENOENT) return PLEACH_OK;
    if (!dir) return pl_fail_errno(err, "read", path);
    int failed = 0;
    for (struct dirent *e; !failed && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            failed = unlinkat(dirfd(dir), e->d_name, 0);
    if (!failed) failed = rmdir(path);
    pleach_status status = failed ? pl_fail_errno(err, "remove", path) : PLEACH_OK;
    closedir(dir);
    return status;
}

pleach_status pl_output_check_free(const pl_output_path *p, bool force, pleach_error *err)
{
    if (!pl_exists(p->out)) return PLEACH_OK;
    PL_FAIL_IF(!force, err, PLEACH_ERR_EXISTS, "%s: exists already", p->out);
    return check_replaceable(p->out, err);
}

/* ---- opening -------------------------------------------------------------------------------- */

static char *text_append(const char *a, const char *b)
{
    size_t n = strlen(a) + strlen(b) + 1;
    char *text = pl_alloc(n, 1);
    if (text) snprintf(text, n, "%s%s", a, b);
    return text;
}

static pleach_status set_paths(pl_output_path *p, const char *out, pleach_error *err)
{
    size_t n = strlen(out);
    while (n > 1 && out[n - 1] == '/') n--;
    if (!(p->out = pl_alloc(n + 1, 1))) return pl_fail_memory(err, "a path", n);
    memcpy(p->out, out, n);
    p->out[n] = 0;
    const char *slash = strrchr(p->out, '/'), *name = slash ? slash + 1 : p->out;
    PL_FAIL_IF(!*name || !strcmp(name, ".") || !strcmp(name, ".."), err, PLEACH_ERR_ARGUMENT,
               "output \"%s\": expected a path that ends in the new folder's name", out);
    p->partial = text_append(p->out, ".partial");
    p->staging = text_append(p->out, ".partial/out");
    p->parent = slash ? text_append(p->out, "") : text_append(".", "");
    if (!p->partial || !p->staging || !p->parent) return pl_fail_memory(err, "a path", n);
    if (slash) p->parent[slash == p->out ? 1 : slash - p->out] = 0;
    PL_FAIL_IF(!pl_is_directory(p->parent), err, PLEACH_ERR_MISSING,
               "output %s: the folder %s does not exist", p->out, p->parent);
    return PLEACH_OK;
}

static pleach_status check_paths(const pl_output_path *p, const char *source, bool force,
                                 pleach_error *err)
{
    struct stat st;
    PL_FAIL_IF(pl_same_file(p->out, source), err, PLEACH_ERR_ARGUMENT,
               "output %s is the source %s itself", p->out, source);
    PL_FAIL_IF(holds(source, p->parent), err, PLEACH_ERR_ARGUMENT,
               "output %s lies inside the source %s", p->out, source);
    PL_FAIL_IF(pl_exists(p->out) && holds_source(p->out, source), err, PLEACH_ERR_ARGUMENT,
               "output %s holds files of the source %s", p->out, source);
    PL_FAIL_IF(pl_exists(p->partial) && holds_source(p->partial, source), err, PLEACH_ERR_ARGUMENT,
               "work folder %s holds files of the source %s", p->partial, source);
    PL_FAIL_IF(lstat(p->partial, &st) == 0 && !S_ISDIR(st.st_mode), err, PLEACH_ERR_EXISTS,
               "%s: exists and is not a folder; it is needed for work in progress", p->partial);
    return pl_output_published(p) ? PLEACH_OK : pl_output_check_free(p, force, err);
}

pleach_status pl_output_path_open(pl_output_path *p, const char *source, const char *out,
                                  bool force, pleach_error *err)
{
    *p = (pl_output_path){0};
    pleach_status status = set_paths(p, out, err);
    if (status == PLEACH_OK) status = check_paths(p, source, force, err);
    if (status != PLEACH_OK) pl_output_path_close(p);
    return status;
}

void pl_output_path_close(pl_output_path *p)
{
    pl_free(p->out);
    pl_free(p->partial);
    pl_free(p->staging);
    pl_free(p->parent);
    *p = (pl_output_path){0};
}

/* ---- publishing ----------------------------------------------------------------------------- */

/* The file OUT.partial/published holds the identity that the result keeps through its renaming. */
static char *published_path(const pl_output_path *p)
{
    return pl_path_join(p->partial, "published");
}

static int identity(const char *folder, char *text, size_t size)
{
    struct stat st;
    if (lstat(folder, &st) != 0 || !S_ISDIR(st.st_mode)) return -1;
    return snprintf(text, size, "%llu:%llu\n", (unsigned long long)st.st_dev,
                    (unsigned long long)st.st_ino);
}

bool pl_output_published(const pl_output_path *p)
{
    char text[64], *path = published_path(p), *noted = NULL;
    bool same = path && identity(p->out, text, sizeof text) > 0 &&
                pl_read_file(path, sizeof text, &noted, NULL, NULL) == PLEACH_OK &&
                strcmp(noted, text) == 0;
    pl_free(noted);
    pl_free(path);
    return same;
}

static pleach_status sync_folder(const char *path, pleach_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return pl_fail_errno(err, "open", path);
    int failed = fsync(fd);
    pleach_status status =
        failed && errno != EINVAL && errno != EROFS ? pl_fail_errno(err, "sync", path) : PLEACH_OK;
    close(fd);
    return status;
}

/* Swaps staging and OUT, so that one of them is under the name at every moment; where the file
 * system cannot swap, the old one steps aside first. Either way it ends up in the work folder. */
static int exchange(const pl_output_path *p, const char *old)
{
    if (renameat2(AT_FDCWD, p->staging, AT_FDCWD, p->out, RENAME_EXCHANGE) == 0)
        return rename(p->staging, old);
    if (rename(p->out, old) != 0) return -1;
    if (rename(p->staging, p->out) == 0) return 0;
    int e = errno, restored = rename(old, p->out);
    errno = e;
    return restored == 0 ? -1 : -2;
}

pleach_status pl_output_stage(const pl_output_path *p, pleach_error *err)
{
    PL_TRY(pl_remove_flat_folder(p->staging, err));
    return mkdir(p->staging, 0777) == 0 ? PLEACH_OK : pl_fail_errno(err, "create", p->staging);
}

pleach_status pl_output_publish(const pl_output_path *p, pleach_error *err)
{
    char text[64];
    char *note = published_path(p), *old = pl_path_join(p->partial, "old");
    int n = identity(p->staging, text, sizeof text);
    pleach_status status = PLEACH_OK;
    if (!note || !old) status = pl_fail_memory(err, "a path", 0);
    else if (n < 0) status = pl_fail_errno(err, "look at", p->staging);
    if (status == PLEACH_OK) status = sync_folder(p->staging, err);
    if (status == PLEACH_OK) status = pl_remove_flat_folder(old, err);
    if (status == PLEACH_OK) status = pl_write_file(note, text, (size_t)n, err);
    if (status == PLEACH_OK) {
        int failed = pl_exists(p->out) ? exchange(p, old) : rename(p->staging, p->out);
        if (failed) status = pl_fail_errno(err, "rename to", p->out);
    }
    if (status == PLEACH_OK) status = sync_folder(p->parent, err);
    if (status == PLEACH_OK) status = pl_remove_flat_folder(old, err);
    pl_free(old);
    pl_free(note);
    return status;
}

uint64_t pl_disk_free(const char *path)
{
    struct statvfs s;
    if (statvfs(path, &s) != 0) return UINT64_MAX;
    return (uint64_t)s.f_bavail * (s.f_frsize ? s.f_frsize : s.f_bsize);
}
