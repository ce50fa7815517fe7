/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation and evaluation with a small model that has a tokenizer: one token a byte. */
#include "text_model.h"

#include "text/utf8_stream.h"

/* ---- generation ------------------------------------------------------------------------------ */

typedef struct collected {
    char text[4096];
    size_t n, calls, stop_after; /* stop_after 0: never */
    bool broken;                 /* some call did not hold whole characters */
} collected;

static int collect(void *user, const char *text, size_t size)
{
    collected *c = user;
    pl_utf8_stream s = {0};
    if (size == 0) return ++c->calls == c->stop_after;
    must(pl_utf8_push(&s, text, size, &err));
    c->broken = c->broken || s.ready != size || memcmp(s.text, text, size);
    pl_free(s.text);
    assert_true(c->n + size < sizeof c->text);
    memcpy(c->text + c->n, text, size);
    c->n += size;
    return ++c->calls == c->stop_after;
}

static pleach_generation settings(size_t max_tokens)
{
    pleach_generation g;
    pleach_generation_defaults(&g);
    g.max_tokens = max_tokens;
    g.ignore_end = 1;
    return g;
}

static const int32_t prompt[] = {72, 101, 108, 108, 111, 32, 1, 5, 7};

static void text_streams_in_whole_characters(void **state)
{
    (void)state;
    folder f = make_model(NULL);
    pleach_model *m = open_model(f.path, NULL, PLEACH_ARITH_INT16, 2);
    for (uint64_t seed = 0; seed < 4; seed++) {
        pleach_session *s = open_session(m, "f32", 512);
        pleach_generation g = settings(200);
        pleach_generation_stats stats;
        collected c = {0};
        const int32_t *ids;
        g.sampling.temperature = 2; /* bytes at random: broken characters in plenty */
        g.sampling.seed = seed;
        must(pleach_generate(s, prompt, 9, &g, collect, &c, &stats, &err));
        assert_false(c.broken);
        assert_true(c.calls == 200 || c.calls == 201); /* a token each, and what is left over */
        assert_int_equal(stats.new_tokens, 200);
        assert_int_equal(stats.finish, PLEACH_FINISH_LENGTH);
        assert_int_equal(pleach_session_ids(s, &ids), 209);
        /* The same text as the bytes at once. */
        pl_utf8_stream want = {0};
        for (size_t i = 9; i < 209; i++) {
            char byte = (char)ids[i];
            if (ids[i] < 256) must(pl_utf8_push(&want, &byte, 1, &err));
        }
        must(pl_utf8_finish(&want, &err));
        assert_int_equal(c.n, want.ready);
        assert_memory_equal(c.text, want.text, c.n);
        pl_free(want.text);
        pleach_session_close(s);
    }
    pleach_model_close(m);
    remove_folder(&f, files, 4);
}

/* The greedy continuation as ids. */
static size_t greedy(pleach_session *s, const int32_t *ids, size_t n, size_t max_tokens,
                     const int32_t **out, pleach_generation_stats *stats)
{
    pleach_generation g = settings(max_tokens);
    must(pleach_generate(s, ids, n, &g, NULL, NULL, stats, &err));
    return pleach_session_ids(s, out);
}

static void a_held_prefix_is_reused_and_changes_nothing(void **state)
{
    (void)state;
    pleach_model *m = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_INT16, 2);
    pleach_session *fresh = open_session(m, "f32", 512);
    pleach_session *used = open_session(m, "f32", 512);
    pleach_generation_stats stats;
    const int32_t *a, *b, other[] = {72, 101, 108, 9, 9, 9, 9};
    size_t n = greedy(fresh, prompt, 9, 20, &a, &stats);
    assert_int_equal(n, 29);
    assert_int_equal(stats.cached_tokens, 0);
    assert_int_equal(stats.prompt_tokens, 9);
    greedy(used, other, 7, 5, &b, &stats);
    assert_int_equal(greedy(used, prompt, 9, 20, &b, &stats), 29);
    assert_int_equal(stats.cached_tokens, 3);
    assert_memory_equal(a, b, 29 * sizeof *a);
    /* All of the prompt is held: its last token alone is computed again. */
    assert_int_equal(greedy(used, prompt, 9, 20, &b, &stats), 29);
    assert_int_equal(stats.cached_tokens, 8);
    assert_memory_equal(a, b, 29 * sizeof *a);
    pleach_session_close(fresh);
    pleach_session_close(used);
    pleach_model_close(m);
}

/* Asked between pieces of 64 tokens; stopped there, the session holds those pieces. */
static void a_long_prompt_can_be_stopped(void **state)
{
    (void)state;
    enum { LONG = 300 };
    pleach_model *m = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_INT16, 2);
    pleach_session *fresh = open_session(m, "f32", 512);
    pleach_session *used = open_session(m, "f32", 512);
    pleach_generation_stats stats;
    int32_t ids[LONG];
    const int32_t *a, *b;
    for (int i = 0; i < LONG; i++) ids[i] = (i * 7 + i * i % 13) % 384;
    for (size_t stop = 1; stop <= 5; stop++) {
        collected c = {.stop_after = stop};
        pleach_generation g = settings(20);
        size_t want = stop < 5 ? 64 * stop : LONG + 1; /* the fifth call is for the first token */
        must(pleach_session_truncate(used, 0, &err));
        must(pleach_generate(used, ids, LONG, &g, collect, &c, &stats, &err));
        assert_int_equal(stats.finish, PLEACH_FINISH_CANCELLED);
        assert_int_equal(c.calls, stop);
        assert_int_equal(pleach_session_ids(used, &b), want);
        assert_memory_equal(b, ids, PL_MIN(want, (size_t)LONG) * sizeof *b);
        assert_int_equal(stats.prompt_tokens, PL_MIN(want, (size_t)LONG));
        assert_int_equal(stats.new_tokens, stop < 5 ? 0 : 1);
    }
    /* The rest is fed later, with the same result as at once. */
    assert_int_equal(greedy(fresh, ids, LONG, 20, &a, &stats), LONG + 20);
    must(pleach_session_truncate(used, 128, &err));
    assert_int_equal(greedy(used, ids, LONG, 20, &b, &stats), LONG + 20);
    assert_int_equal(stats.cached_tokens, 128);
    assert_memory_equal(a, b, (LONG + 20) * sizeof *a);
    /* An id outside the vocabulary in a later piece. */
    collected c = {0};
    pleach_generation g = settings(1);
    pleach_error refused;
    ids[200] = -1;
    must(pleach_session_truncate(used, 3, &err));
    assert_int_equal(pleach_generate(used, ids, LONG, &g, collect, &c, &stats, &refused),
                     PLEACH_ERR_ARGUMENT);
    assert_int_equal(pleach_session_ids(used, &b), 3 + 3 * 64);
    assert_memory_equal(b, ids, (3 + 3 * 64) * sizeof *b);
    pleach_session_close(fresh);
    pleach_session_close(used);
    pleach_model_close(m);
}

/* Fault A16: the first greedy tokens of a run are made end tokens one by one. */
static void every_end_token_ends(void **state)
{
    (void)state;
    pleach_model *plain = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_INT16, 2);
    pleach_session *s = open_session(plain, "f32", 512);
    pleach_generation_stats stats;
    const int32_t *ids, *held;
    int32_t first[29];
    greedy(s, prompt, 9, 20, &ids, &stats);
    memcpy(first, ids, sizeof first);
    pleach_session_close(s);
    pleach_model_close(plain);
    for (size_t i = 9; i < 12; i++) {
        char text[64];
        size_t end = 9; /* where the end token comes first */
        while (first[end] != first[i]) end++;
        snprintf(text, sizeof text, "{\"eos_token_id\": [300, %d]}", first[i]);
        folder f = make_model(text);
        pleach_model *m = open_model(f.path, NULL, PLEACH_ARITH_INT16, 2);
        pleach_model_info info;
        pleach_model_get_info(m, &info);
        assert_true(info.n_end_tokens >= 3);
        s = open_session(m, "f32", 512);
        pleach_generation g = settings(20);
        g.ignore_end = 0;
        must(pleach_generate(s, prompt, 9, &g, NULL, NULL, &stats, &err));
        assert_int_equal(stats.finish, PLEACH_FINISH_END);
        assert_int_equal(stats.new_tokens, end - 9);
        assert_int_equal(pleach_session_ids(s, &held), end);
        assert_memory_equal(held, first, end * sizeof *held);
        pleach_session_close(s);
        pleach_model_close(m);
        remove_folder(&f, files, 4);
    }
}

static void limits_and_callbacks_stop(void **state)
{
    (void)state;
    folder f = make_model(NULL);
    pleach_model *m = open_model(f.path, NULL, PLEACH_ARITH_INT16, 2);
    pleach_session_settings set;
    pleach_session *s;
    pleach_generation_stats stats;
    pleach_error err;
    pleach_generation g = settings(0);
    pleach_session_settings_defaults(&set);
    set.context = 16;
    assert_int_equal(pleach_session_open(m, &set, &s, &err), PLEACH_OK);
    assert_int_equal(pleach_generate(s, prompt, 9, &g, NULL, NULL, &stats, &err), PLEACH_OK);
    assert_int_equal(stats.new_tokens, 7);
    assert_int_equal(stats.finish, PLEACH_FINISH_LENGTH);
    assert_int_equal(pleach_session_position(s), 16);
    g = settings(1);
    assert_int_equal(pleach_generate(s, prompt, 9, &g, NULL, NULL, &stats, &err), PLEACH_OK);
    assert_int_equal(stats.new_tokens, 1);
    collected c = {.stop_after = 2};
    g = settings(0);
    g.sampling.temperature = 3;
    assert_int_equal(pleach_generate(s, prompt, 2, &g, collect, &c, &stats, &err), PLEACH_OK);
    assert_int_equal(stats.finish, PLEACH_FINISH_CANCELLED);
    assert_int_equal(c.calls, 2);
    assert_int_equal(pleach_session_position(s), 2 + stats.new_tokens);
    assert_int_equal(pleach_generate(s, prompt, 0, &g, NULL, NULL, &stats, &err),
                     PLEACH_ERR_ARGUMENT);
    int32_t many[17] = {0};
    assert_int_equal(pleach_generate(s, many, 17, &g, NULL, NULL, &stats, &err), PLEACH_ERR_LIMIT);
    assert_int_equal(pleach_generate(s, many, 16, &g, NULL, NULL, &stats, &err), PLEACH_OK);
    assert_int_equal(stats.new_tokens, 0);
    g.sampling.temperature = -1;
    assert_int_equal(pleach_generate(s, prompt, 2, &g, NULL, NULL, &stats, &err),
                     PLEACH_ERR_ARGUMENT);
    pleach_session_close(s);
    pleach_model_close(m);
    remove_folder(&f, files, 4);
}

/* ---- evaluation ------------------------------------------------------------------------------ */

enum { TEXT = 1000, CONTEXT = 64 };

static void make_text(char text[TEXT])
{
    for (int i = 0; i < TEXT; i++) text[i] = "the quick brown fox\n"[(i * 7 + i * i % 13) % 20];
}

/* Mean negative log likelihood and its standard error from one whole chunk of logits at a time. */
static void plain_nll(const pleach_model *m, const char *text, size_t chunks, size_t first,
                      double *mean, double *error)
{
    size_t vocab = vocab_of(m), n = 0;
    float *logits = pl_alloc(CONTEXT * vocab, sizeof *logits);
    double sum = 0, squares = 0;
    for (size_t c = 0; c < chunks; c++) {
        int32_t ids[CONTEXT];
        pleach_session *s = open_session(m, "f32", 512);
        for (int i = 0; i < CONTEXT; i++) ids[i] = (unsigned char)text[c * CONTEXT + (size_t)i];
        must(pleach_session_feed_all(s, ids, CONTEXT, 0, logits, &err));
        for (size_t i = first; i + 1 < CONTEXT; i++, n++) {
            double total = 0;
            for (size_t j = 0; j < vocab; j++) total += exp((double)logits[i * vocab + j]);
            double nll = log(total) - (double)logits[i * vocab + (size_t)ids[i + 1]];
            sum += nll;
            squares += nll * nll;
        }
        pleach_session_close(s);
    }
    *mean = sum / (double)n;
    *error = sqrt((squares / (double)n - *mean * *mean) / ((double)n - 1));
    pl_free(logits);
}

typedef struct progress_log {
    size_t calls, done, total, stop_at;
} progress_log;

static int note_progress(void *user, size_t done, size_t total, double perplexity)
{
    progress_log *p = user;
    p->calls++;
    p->done = done;
    p->total = total;
    assert_true(perplexity > 1);
    return done == p->stop_at;
}

static void perplexity_is_that_of_the_logits(void **state)
{
    (void)state;
    char text[TEXT];
    folder f = make_model(NULL);
    pleach_model *m = open_model(f.path, NULL, PLEACH_ARITH_INT16, 2);
    make_text(text);
    for (int half = 0; half < 2; half++) {
        pleach_eval_settings set;
        pleach_eval_result r;
        progress_log log = {0};
        double mean, error;
        pleach_eval_settings_defaults(&set);
        set.context = CONTEXT;
        set.chunks = half ? 0 : 5;
        set.score = half ? PLEACH_SCORE_SECOND_HALF : PLEACH_SCORE_ALL;
        set.progress = note_progress;
        set.user = &log;
        must(pleach_eval(m, NULL, text, TEXT, &set, &r, &err));
        size_t chunks = half ? TEXT / CONTEXT : 5;
        plain_nll(m, text, chunks, half ? CONTEXT / 2 : 0, &mean, &error);
        assert_int_equal(r.chunks, chunks);
        assert_int_equal(r.tokens, chunks * (half ? CONTEXT / 2 - 1 : CONTEXT - 1));
        assert_true(fabs(r.nll - mean) < 1e-9 && fabs(r.nll_error - error) < 1e-9);
        assert_true(fabs(r.perplexity - exp(mean)) < 1e-6);
        assert_true(r.kl == 0 && r.teacher_perplexity == 0);
        assert_true(log.calls == chunks && log.done == chunks && log.total == chunks);
    }
    pleach_model_close(m);
    remove_folder(&f, files, 4);
}

static void a_teacher_is_measured_against(void **state)
{
    (void)state;
    char text[TEXT];
    folder f = make_model(NULL);
    pleach_model *m = open_model(f.path, NULL, PLEACH_ARITH_INT16, 2);
    pleach_model *other = open_model(CHECKPOINTS "llama-rope3", NULL, PLEACH_ARITH_INT16, 2);
    pleach_eval_settings set;
    pleach_eval_result r;
    make_text(text);
    pleach_eval_settings_defaults(&set);
    set.context = CONTEXT;
    set.chunks = 4;
    must(pleach_eval(m, m, text, TEXT, &set, &r, &err));
    assert_true(r.kl == 0 && r.kl_max == 0 && r.same_top == 1);
    assert_true(r.teacher_perplexity == r.perplexity);
    must(pleach_eval(m, other, text, TEXT, &set, &r, &err));
    assert_true(r.kl > 0.01 && r.kl_error > 0 && r.kl_p99 <= r.kl_max && r.kl_p99 > r.kl);
    assert_true(r.same_top < 0.9);
    /* The model without a tokenizer speaks through the other's. */
    double kl = r.kl, perplexity = r.perplexity;
    must(pleach_eval(other, m, text, TEXT, &set, &r, &err));
    assert_true(r.kl != kl && r.teacher_perplexity == perplexity);
    pleach_model_close(other);
    pleach_model_close(m);
    remove_folder(&f, files, 4);
}

static void evaluation_refuses_clearly(void **state)
{
    (void)state;
    char text[TEXT];
    folder f = make_model(NULL);
    pleach_model *m = open_model(f.path, NULL, PLEACH_ARITH_INT16, 2);
    pleach_model *small = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_INT16, 2);
    pleach_eval_settings set;
    pleach_eval_result r;
    pleach_error err;
    progress_log log = {.stop_at = 2};
    make_text(text);
    pleach_eval_settings_defaults(&set);
    assert_int_equal(pleach_eval(m, NULL, text, 100, &set, &r, &err), PLEACH_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "100 tokens"));
    set.context = 1;
    assert_int_equal(pleach_eval(m, NULL, text, TEXT, &set, &r, &err), PLEACH_ERR_ARGUMENT);
    set.context = 2;
    set.score = PLEACH_SCORE_SECOND_HALF;
    assert_int_equal(pleach_eval(m, NULL, text, TEXT, &set, &r, &err), PLEACH_ERR_ARGUMENT);
    set.context = 3;
    assert_int_equal(pleach_eval(m, NULL, text, TEXT, &set, &r, &err), PLEACH_OK);
    set.context = CONTEXT;
    set.progress = note_progress;
    set.user = &log;
    assert_int_equal(pleach_eval(m, NULL, text, TEXT, &set, &r, &err), PLEACH_ERR_CANCELLED);
    assert_int_equal(log.calls, 2);
    assert_int_equal(pleach_eval(small, NULL, text, TEXT, &set, &r, &err), PLEACH_ERR_MISSING);
    pleach_model_close(small);
    pleach_model_close(m);
    remove_folder(&f, files, 4);

    json_t *cases = json_load_file(PLEACH_TEST_DATA "/golden/models/cases.json", 0, NULL);
    char *config = json_dumps(json_object_get(json_array_get(cases, 0), "config"), 0);
    folder tiny = make_folder();
    folder_write(&tiny, files[0], config);
    folder_link(&tiny, files[1], PLEACH_TEST_DATA "/golden/models/weights_wide.safetensors");
    folder g = make_model(NULL);
    m = open_model(g.path, NULL, PLEACH_ARITH_INT16, 2);
    small = open_model(tiny.path, NULL, PLEACH_ARITH_INT16, 2);
    assert_int_equal(pleach_eval(m, small, text, TEXT, &set, &r, &err), PLEACH_ERR_MISMATCH);
    assert_true(strstr(err.message, "32") && strstr(err.message, "384"));
    free(config);
    json_decref(cases);
    pleach_model_close(small);
    pleach_model_close(m);
    remove_folder(&tiny, files, 2);
    remove_folder(&g, files, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_streams_in_whole_characters),
        cmocka_unit_test(a_held_prefix_is_reused_and_changes_nothing),
        cmocka_unit_test(a_long_prompt_can_be_stopped),
        cmocka_unit_test(every_end_token_ends),
        cmocka_unit_test(limits_and_callbacks_stop),
        cmocka_unit_test(perplexity_is_that_of_the_logits),
        cmocka_unit_test(a_teacher_is_measured_against),
        cmocka_unit_test(evaluation_refuses_clearly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
