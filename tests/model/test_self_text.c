/* SPDX-License-Identifier: Apache-2.0
 *
 * Many sequences a token at a time, and the text that a model writes itself with them. */
#include "text_model.h"

#include "calibrate/self_text.h"
#include "runtime/engine.h"

/* Sequences of different lengths, windows and threads: each row as if it were alone. */
static void rows_are_alone(void **state)
{
    (void)state;
    enum { N = 5, STEPS = 40 };
    static const char *const names[] = {"llama-tied", "mistral-swa", "qwen3-qknorm"};
    for (size_t k = 0; k < PL_COUNT(names); k++) {
        char path[512];
        snprintf(path, sizeof path, CHECKPOINTS "%s", names[k]);
        pleach_model *m = open_model(path, NULL, PLEACH_ARITH_INT16, 3);
        const pl_transformer *t = m->transformer;
        const pl_config *g = t->config;
        size_t V = g->vocab_size;
        pl_cache_settings set = {.n_layers = g->n_layers, .n_kv_heads = g->n_kv_heads,
                                 .head_dim = g->head_dim, .capacity = 64};
        pl_cache *together[N], *alone[N];
        pl_workspace *w, *single;
        float *logits = pl_alloc(N, V * sizeof *logits), *row = pl_alloc(V, sizeof *row);
        uint64_t random = k;
        must(pl_workspace_open(t, &m->compute, N, &w, &err));
        must(pl_workspace_open(t, &m->compute, 8, &single, &err));
        for (size_t i = 0; i < N; i++) { /* sequence i begins with i ids in one call */
            int32_t start[N] = {3, 1, 4, 1, 5};
            pl_cache **both[] = {&together[i], &alone[i]};
            for (int b = 0; b < 2; b++) {
                must(pl_cache_open(&set, both[b], &err));
                must(pl_cache_reserve(*both[b], 64, &err));
                must(pl_transformer_forward(t, &m->compute, single, *both[b], start, i, i, NULL, NULL,
                                            &err));
            }
        }
        for (int s = 0; s < STEPS; s++) {
            int32_t ids[N];
            size_t n = N - (size_t)(s % 2); /* the last one sits out */
            for (size_t i = 0; i < N; i++) ids[i] = (int32_t)(pl_random_next(&random) % V);
            must(pl_transformer_step(&m->compute, w, together, ids, n, logits, &err));
            for (size_t i = 0; i < n; i++) {
                must(pl_transformer_forward(t, &m->compute, single, alone[i], &ids[i], 1, 0, row, NULL,
                                            &err));
                assert_memory_equal(row, logits + i * V, V * sizeof *row);
            }
        }
        for (size_t i = 0; i < N; i++) {
            pl_cache_close(together[i]);
            pl_cache_close(alone[i]);
        }
        pl_workspace_close(w);
        pl_workspace_close(single);
        pl_free(logits);
        pl_free(row);
        pleach_model_close(m);
    }
}

static pl_ids write_text(const pleach_model *m, size_t tokens, size_t parallel, uint64_t seed)
{
    pl_ids ids = {0};
    pl_self_text_settings s = {.tokens = tokens, .chunk = 48, .seed = seed, .parallel = parallel};
    must(pl_self_text(m->transformer, &m->compute, m->tokenizer, &s, &ids, &err));
    assert_int_equal(ids.n, tokens);
    return ids;
}

static void the_same_text_each_time(void **state)
{
    (void)state;
    enum { TOKENS = 5 * 48 + 7 };
    folder f = make_model(NULL);
    pleach_model *one = open_model(f.path, NULL, PLEACH_ARITH_INT16, 1);
    pleach_model *three = open_model(f.path, NULL, PLEACH_ARITH_INT16, 3);
    pl_ids a = write_text(one, TOKENS, 1, 1), b = write_text(three, TOKENS, 4, 1);
    pl_ids c = write_text(three, TOKENS, 64, 1), d = write_text(one, TOKENS, 8, 2);
    assert_memory_equal(a.ids, b.ids, TOKENS * sizeof *a.ids);
    assert_memory_equal(a.ids, c.ids, TOKENS * sizeof *a.ids);
    assert_memory_not_equal(a.ids, d.ids, TOKENS * sizeof *a.ids);
    /* Sequences differ, and a shorter text is the beginning of a longer one. */
    assert_memory_not_equal(a.ids, a.ids + 48, 48 * sizeof *a.ids);
    pl_ids e = write_text(one, 48, 1, 1);
    assert_memory_equal(a.ids, e.ids, 48 * sizeof *a.ids);
    pl_ids *all[] = {&a, &b, &c, &d, &e};
    for (size_t i = 0; i < PL_COUNT(all); i++) pl_free(all[i]->ids);
    pleach_model_close(one);
    pleach_model_close(three);
    remove_folder(&f, files, PL_COUNT(files));
}

static int stop_at_once(void *user, double share)
{
    *(double *)user = share;
    return 1;
}

static void writing_can_be_stopped(void **state)
{
    (void)state;
    folder f = make_model(NULL);
    pleach_model *m = open_model(f.path, NULL, PLEACH_ARITH_INT16, 2);
    pl_ids ids = {0};
    double share = 0;
    pl_self_text_settings s = {.tokens = 96, .chunk = 48, .parallel = 2, .user = &share,
                               .progress = stop_at_once};
    assert_int_equal(pl_self_text(m->transformer, &m->compute, m->tokenizer, &s, &ids, NULL),
                     PLEACH_ERR_CANCELLED);
    assert_true(fabs(share - 2.0 / 96) < 1e-9);
    pl_free(ids.ids);
    pleach_model_close(m);
    remove_folder(&f, files, PL_COUNT(files));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_alone),
        cmocka_unit_test(the_same_text_each_time),
        cmocka_unit_test(writing_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
