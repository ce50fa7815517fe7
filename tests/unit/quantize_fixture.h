/* SPDX-License-Identifier: Apache-2.0
 *
 * What the quantiser's tests share: a scratch folder, files compared and changed, and one matrix as
 * a module of its own. */
#ifndef QUANTIZE_FIXTURE_H
#define QUANTIZE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "pleach/pleach.h"

#define TIED PLEACH_TEST_DATA "/golden/checkpoints/llama-tied"

static char scratch[160];

/* A path inside the scratch folder; eight may be in use at once. */
static inline const char *at(const char *name)
{
    static char paths[8][256];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

/* The folder and all in it, folders inside included. */
static inline void remove_tree(const char *path)
{
    char command[320];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0) fail_msg("cannot remove %s", path);
}

static inline int make_scratch(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/pleach-test-XXXXXX", base ? base : "/tmp");
    return mkdtemp(scratch) ? 0 : -1;
}

static inline int drop_scratch(void **state)
{
    (void)state;
    remove_tree(scratch);
    return 0;
}

static inline pleach_quantize_settings bits(uint32_t k)
{
    pleach_quantize_settings s;
    pleach_quantize_settings_defaults(&s);
    s.bits = k;
    s.threads = 2;
    return s;
}

/* The call succeeds, or the test fails with its error line. */
#define assert_ok(expr)                                                                            \
    do {                                                                                           \
        pleach_error e_ = {0};                                                                     \
        pleach_error *err = &e_;                                                                   \
        if ((expr) != PLEACH_OK) fail_msg("%s: %s", #expr, e_.message);                            \
    } while (0)

/* The call fails with this status and a line that holds `part`. */
#define assert_refused(expr, status, part)                                                         \
    do {                                                                                           \
        pleach_error e_ = {0};                                                                     \
        pleach_error *err = &e_;                                                                   \
        int got_ = (expr);                                                                         \
        if (got_ != (status) || e_.code != got_ || !strstr(e_.message, part))                      \
            fail_msg("%s: status %d, line \"%s\", expected \"%s\"", #expr, got_, e_.message,       \
                     part);                                                                        \
    } while (0)

static inline void read_all(const char *path, char **data, size_t *size)
{
    assert_ok(pl_read_file(path, (size_t)1 << 30, data, size, err));
}

static inline void assert_same_file(const char *dir_a, const char *dir_b, const char *name)
{
    char a[512], b[512], *x, *y;
    size_t n, m;
    snprintf(a, sizeof a, "%s/%s", dir_a, name);
    snprintf(b, sizeof b, "%s/%s", dir_b, name);
    read_all(a, &x, &n);
    read_all(b, &y, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    pl_free(x);
    pl_free(y);
}

static inline void assert_same_folder(const char *a, const char *b)
{
    assert_same_file(a, b, "model.safetensors");
    assert_same_file(a, b, "config.json");
}

static inline void copy_to(const char *from_dir, const char *name, const char *to_dir)
{
    char path[512], *data;
    size_t n;
    snprintf(path, sizeof path, "%s/%s", from_dir, name);
    read_all(path, &data, &n);
    snprintf(path, sizeof path, "%s/%s", to_dir, name);
    assert_ok(pl_write_file(path, data, n, err));
    pl_free(data);
}

/* A copy of the tied checkpoint that a test may change. */
static inline void copy_checkpoint(const char *to)
{
    assert_int_equal(mkdir(to, 0777), 0);
    copy_to(TIED, "config.json", to);
    copy_to(TIED, "model.safetensors", to);
}

/* One normal number by Box and Muller. */
static inline float normal(uint64_t *state)
{
    double u = 1 - pl_random_unit(state), v = pl_random_unit(state);
    return (float)(__builtin_sqrt(-2 * __builtin_log(u)) * __builtin_cos(6.283185307179586 * v));
}

#endif
