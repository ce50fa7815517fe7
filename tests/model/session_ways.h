/* SPDX-License-Identifier: Apache-2.0
 *
 * Ways to a session that holds one and the same prompt, over every kind of cache. */
#ifndef PLEACH_TESTS_MODEL_SESSION_WAYS_H
#define PLEACH_TESTS_MODEL_SESSION_WAYS_H

#include "support.h"

enum { PROMPT = 150, ANSWER = 12 };

/* "@N": with N recent tokens in bf16. */
static const char *const types[] = {"f32",         "bf16",    "k8v3",   "k4v4,0:bf16",
                                    "k5v2,2:k8v8", "k8v3@64", "k4v2@1", "k2v2,1:f32@100"};

static inline pleach_session *open_kv(const pleach_model *m, const char *kv, size_t context,
                                      size_t batch)
{
    pleach_session_settings set;
    pleach_session *s;
    char types_alone[64];
    const char *at = strchr(kv, '@');
    pleach_session_settings_defaults(&set);
    snprintf(types_alone, sizeof types_alone, "%.*s", (int)strcspn(kv, "@"), kv);
    set.kv = types_alone;
    set.kv_recent = at ? (size_t)atoi(at + 1) : 0;
    set.context = context;
    set.batch = batch;
    must(pleach_session_open(m, &set, &s, &err));
    return s;
}

static inline void make_ids(int32_t *ids, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(pl_random_next(&seed) % 384);
}

/* Greedy tokens after the logits in rows[0]; rows [ANSWER + 1][vocab] gets what follows each. */
static inline void answer(pleach_session *s, float *rows, size_t vocab, int32_t out[ANSWER])
{
    for (int i = 0; i < ANSWER; i++, rows += vocab) {
        out[i] = 0;
        for (size_t j = 1; j < vocab; j++)
            if (rows[j] > rows[out[i]]) out[i] = (int32_t)j;
        must(pleach_session_feed(s, &out[i], 1, rows + vocab, &err));
    }
}

/* ---- the same answer ------------------------------------------------------------------------- */

/* Ways to a session that holds the prompt, and the logits after it. */
typedef pleach_session *way_fn(const pleach_model *m, const char *kv, const int32_t *ids,
                               float *logits);

static inline pleach_session *token_by_token(const pleach_model *m, const char *kv,
                                             const int32_t *ids, float *logits)
{
    pleach_session *s = open_kv(m, kv, 512, 512);
    for (size_t i = 0; i < PROMPT; i++) must(pleach_session_feed(s, ids + i, 1, logits, &err));
    return s;
}

static inline pleach_session *in_one_prefill(const pleach_model *m, const char *kv,
                                             const int32_t *ids, float *logits)
{
    pleach_session *s = open_kv(m, kv, 512, 512);
    must(pleach_session_feed(s, ids, PROMPT, logits, &err));
    return s;
}

static inline pleach_session *in_small_batches(const pleach_model *m, const char *kv,
                                               const int32_t *ids, float *logits)
{
    pleach_session *s = open_kv(m, kv, 512, 13);
    must(pleach_session_feed(s, ids, PROMPT, logits, &err));
    return s;
}

/* The prefix computed for another text, which goes on before and after we do. */
static inline pleach_session *with_a_reused_prefix(const pleach_model *m, const char *kv,
                                                   const int32_t *ids, float *logits)
{
    pleach_session *first = open_kv(m, kv, 512, 512), *s;
    int32_t other[70];
    make_ids(other, 70, 99);
    must(pleach_session_feed(first, ids, 100, NULL, &err));
    must(pleach_session_fork(first, &s, &err));
    must(pleach_session_feed(first, other, 70, NULL, &err));
    must(pleach_session_feed(s, ids + 100, PROMPT - 100, logits, &err));
    must(pleach_session_feed(first, other, 70, NULL, &err));
    pleach_session_close(first);
    return s;
}

/* Back from another text: a little, and further than any window reaches. */
static inline pleach_session *after_going_back(const pleach_model *m, const char *kv,
                                               const int32_t *ids, float *logits)
{
    pleach_session *s = open_kv(m, kv, 512, 512);
    int32_t other[200];
    make_ids(other, 200, 98);
    must(pleach_session_feed(s, ids, 90, NULL, &err));
    must(pleach_session_feed(s, other, 5, NULL, &err));
    must(pleach_session_truncate(s, 90, &err));
    must(pleach_session_feed(s, other, 200, NULL, &err));
    must(pleach_session_truncate(s, 37, &err));
    assert_int_equal(pleach_session_position(s), 37);
    must(pleach_session_feed(s, ids + 37, PROMPT - 37, logits, &err));
    return s;
}

static inline pleach_session *after_save_and_load(const pleach_model *m, const char *kv,
                                                  const int32_t *ids, float *logits)
{
    folder f = make_folder();
    char *path = pl_path_join(f.path, "session");
    pleach_session *saved = open_kv(m, kv, 512, 512), *s = open_kv(m, kv, 400, 512);
    const int32_t *held;
    must(pleach_session_feed(saved, ids, 141, NULL, &err));
    must(pleach_session_save(saved, path, &err));
    must(pleach_session_feed(s, ids + 30, 17, NULL, &err));
    must(pleach_session_load(s, path, &err));
    assert_int_equal(pleach_session_ids(s, &held), 141);
    assert_memory_equal(held, ids, 141 * sizeof *held);
    must(pleach_session_feed(s, ids + 141, PROMPT - 141, logits, &err));
    pleach_session_close(saved);
    remove_folder(&f, (const char *const[]){"session"}, 1);
    pl_free(path);
    return s;
}

static way_fn *const ways[] = {token_by_token,       in_one_prefill,   in_small_batches,
                               with_a_reused_prefix, after_going_back, after_save_and_load};

#endif
