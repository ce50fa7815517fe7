/* SPDX-License-Identifier: Apache-2.0
 *
 * What the model tests share: opening golden checkpoints, and making folders to open. */
#ifndef PLEACH_TESTS_MODEL_SUPPORT_H
#define PLEACH_TESTS_MODEL_SUPPORT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "format/safetensors.h"
#include "pleach/pleach.h"

#define CHECKPOINTS PLEACH_TEST_DATA "/golden/checkpoints/"

/* Fails the test with the library's own message. */
#define must(expr)                                                                                 \
    do {                                                                                           \
        pleach_error err = {0};                                                                    \
        if ((expr) != PLEACH_OK) fail_msg("%s: %s", #expr, err.message);                           \
    } while (0)

/* The call fails so, with these words in its line. */
#define assert_refused(expr, status, part)                                                         \
    do {                                                                                           \
        pleach_error err = {0};                                                                    \
        int got_ = (expr);                                                                         \
        if (got_ != (status) || !strstr(err.message, part))                                        \
            fail_msg("%s: status %d, line \"%s\"", #expr, got_, err.message);                      \
    } while (0)

static inline pleach_model *open_model(const char *path, const char *cpu, pleach_arith arith,
                                       int threads)
{
    pleach_model_settings s;
    pleach_model *m;
    pleach_model_settings_defaults(&s);
    s.cpu = cpu;
    s.arith = arith;
    s.threads = threads;
    must(pleach_model_open(path, &s, &m, &err));
    return m;
}

static inline pleach_session *open_session(const pleach_model *m, const char *kv, size_t batch)
{
    pleach_session_settings s;
    pleach_session *session;
    pleach_session_settings_defaults(&s);
    s.kv = kv;
    s.batch = batch;
    must(pleach_session_open(m, &s, &session, &err));
    return session;
}

static inline size_t vocab_of(const pleach_model *m)
{
    pleach_model_info info;
    pleach_model_get_info(m, &info);
    return info.vocab_size;
}

/* The reference's answers: golden.safetensors beside a checkpoint. */
typedef struct golden {
    pl_safetensors *file;
    size_t n, vocab;
    int32_t *ids;    /* [n] */
    float *logits;   /* [n][vocab] */
    int32_t greedy[16];
} golden;

static inline golden open_golden(const char *name)
{
    char path[512];
    golden g = {0};
    snprintf(path, sizeof path, CHECKPOINTS "%s/golden.safetensors", name);
    must(pl_safetensors_open(path, &g.file, &err));
    const pl_tensor *ids = pl_safetensors_find(g.file, "input_ids");
    const pl_tensor *logits = pl_safetensors_find(g.file, "logits");
    const pl_tensor *greedy = pl_safetensors_find(g.file, "greedy");
    assert_true(ids && logits && greedy && ids->type == PL_I32 && logits->type == PL_F32);
    assert_int_equal(greedy->n_bytes, sizeof g.greedy);
    g.n = logits->shape[0];
    g.vocab = logits->shape[1];
    g.ids = pl_alloc(1, ids->n_bytes);
    g.logits = pl_alloc(1, logits->n_bytes);
    assert_true(g.ids && g.logits);
    memcpy(g.ids, ids->data, ids->n_bytes);
    memcpy(g.logits, logits->data, logits->n_bytes);
    memcpy(g.greedy, greedy->data, greedy->n_bytes);
    return g;
}

static inline void close_golden(golden *g)
{
    pl_safetensors_close(g->file);
    pl_free(g->ids);
    pl_free(g->logits);
}

static inline double max_difference(const float *a, const float *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= most)) most = d; /* NaN counts as a difference */
    }
    return most;
}

/* ---- folders --------------------------------------------------------------------------------- */

typedef struct folder {
    char path[256];
} folder;

static inline folder make_folder(void)
{
    folder f;
    const char *tmp = getenv("TMPDIR");
    snprintf(f.path, sizeof f.path, "%s/pleach-test-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(f.path));
    return f;
}

static inline void folder_write(const folder *f, const char *name, const char *text)
{
    char *path = pl_path_join(f->path, name);
    must(pl_write_file(path, text, strlen(text), &err));
    pl_free(path);
}

static inline void folder_link(const folder *f, const char *name, const char *target)
{
    char *path = pl_path_join(f->path, name);
    assert_int_equal(symlink(target, path), 0);
    pl_free(path);
}

static inline void remove_folder(const folder *f, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *path = pl_path_join(f->path, names[i]);
        unlink(path);
        pl_free(path);
    }
    assert_int_equal(rmdir(f->path), 0);
}

#endif
