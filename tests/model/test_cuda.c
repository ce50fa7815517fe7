/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine on a device: golden logits and continuations, packed models beside the processor, the
 * same answer by every way of getting there, batches. Ends with 77 where there is no device. */
#include "session_ways.h"

#include <pthread.h>

#include "runtime/session.h"

static const char *const dense[] = {"llama-tied", "llama-rope3", "qwen2-bias", "qwen3-qknorm",
                                    "mistral-swa"};

static pleach_status try_device(const char *path, bool invariant, pleach_model **m,
                                pleach_error *err)
{
    pleach_model_settings s;
    pleach_model_settings_defaults(&s);
    s.device = "cuda";
    s.batch_invariant = invariant;
    return pleach_model_open(path, &s, m, err);
}

static pleach_model *open_on_device(const char *path, bool invariant)
{
    pleach_model *m;
    must(try_device(path, invariant, &m, &err));
    return m;
}

static const char *checkpoint(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, CHECKPOINTS "%s", name);
    return path;
}

/* RMS of y - x over the standard deviation of x. */
static double distance(const float *x, const float *y, size_t n)
{
    double sum = 0, squares = 0, error = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)y[i] - (double)x[i];
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
        error += d * d;
    }
    double mean = sum / (double)n;
    return sqrt(error / (double)n / (squares / (double)n - mean * mean));
}

static float *rows_of(const pleach_model *m, const char *kv, const int32_t *ids, size_t n,
                      size_t step)
{
    size_t vocab = vocab_of(m);
    float *logits = pl_alloc(n, vocab * sizeof *logits);
    pleach_session *s = open_kv(m, kv, 512, 512);
    assert_non_null(logits);
    for (size_t i = 0; i < n; i += step)
        must(pleach_session_feed_all(s, ids + i, PL_MIN(step, n - i), 0, logits + i * vocab, &err));
    pleach_session_close(s);
    return logits;
}

/* ---- golden ---------------------------------------------------------------------------------- */

static float lag(const float *logits, size_t n, int32_t id)
{
    float best = logits[0];
    for (size_t i = 1; i < n; i++) best = logits[i] > best ? logits[i] : best;
    return best - logits[id];
}

/* The golden continuation, token by token: each is the likeliest, but for ties of f32 sums. */
static float continuation_lag(const pleach_model *m, const golden *g)
{
    pleach_session *s = open_session(m, "f32", 512);
    float *last = pl_alloc(g->vocab, sizeof *last), most = 0;
    must(pleach_session_feed(s, g->ids, g->n, last, &err));
    for (int i = 0; i < 16; i++) {
        float behind = lag(last, g->vocab, g->greedy[i]);
        most = behind > most ? behind : most;
        must(pleach_session_feed(s, &g->greedy[i], 1, last, &err));
    }
    pl_free(last);
    pleach_session_close(s);
    return most;
}

static void golden_logits(void **state)
{
    (void)state;
    int bad = 0;
    for (size_t i = 0; i < PL_COUNT(dense); i++) {
        golden g = open_golden(dense[i]);
        for (int invariant = 0; invariant < 2; invariant++) {
            pleach_model *m = open_on_device(checkpoint(dense[i]), invariant);
            const size_t steps[] = {g.n, 1, 7};
            for (size_t j = 0; j < PL_COUNT(steps); j++) {
                float *logits = rows_of(m, "f32", g.ids, g.n, steps[j]);
                double most = max_difference(logits, g.logits, g.n * g.vocab);
                print_message("%s%s, %zu at a time: off by %g\n", dense[i],
                              invariant ? ", invariant" : "", steps[j], most);
                bad += !(most < 1e-3);
                pl_free(logits);
            }
            float behind = continuation_lag(m, &g);
            if (behind > 1e-4f) print_message("%s: a greedy token lags by %g\n", dense[i],
                                              (double)behind);
            bad += behind > 1e-4f;
            pleach_model_close(m);
        }
        close_golden(&g);
    }
    assert_int_equal(bad, 0);
}

/* The greedy continuation that generation finds, by the device's own argmax, is that of logits. */
static void generation_is_greedy(void **state)
{
    (void)state;
    golden g = open_golden("qwen3-qknorm");
    pleach_model *m = open_on_device(checkpoint("qwen3-qknorm"), false);
    for (int sampled = 0; sampled < 2; sampled++) {
        pleach_session *s = open_session(m, "f32", 512), *again = open_session(m, "f32", 512);
        pleach_generation set;
        pleach_generation_stats stats;
        pleach_sampler *sampler;
        const int32_t *ids;
        float *row = pl_alloc(g.vocab, sizeof *row);
        pleach_generation_defaults(&set);
        set.max_tokens = 40;
        set.ignore_end = 1;
        set.sampling.temperature = sampled ? 0.9f : 0;
        set.sampling.top_p = sampled ? 0.95f : 1;
        set.sampling.seed = 3;
        must(pleach_generate(s, g.ids, g.n, &set, NULL, NULL, &stats, &err));
        assert_int_equal(pleach_session_ids(s, &ids), g.n + 40);
        must(pleach_sampler_open(&set.sampling, &sampler, &err));
        must(pleach_session_feed(again, g.ids, g.n, row, &err));
        for (size_t i = g.n; i < g.n + 40; i++) {
            int32_t id;
            must(pleach_sample(sampler, row, g.vocab, ids, i, &id, &err));
            if (id != ids[i]) fail_msg("sampled %d: token %zu is %d, not %d", sampled, i, ids[i], id);
            must(pleach_session_feed(again, &id, 1, row, &err));
        }
        pleach_sampler_close(sampler);
        pl_free(row);
        pleach_session_close(s);
        pleach_session_close(again);
    }
    pleach_model_close(m);
    close_golden(&g);
}

/* ---- packed ---------------------------------------------------------------------------------- */

static folder work;

static void check_packed(const char *path, const char *name, const golden *g, int *bad)
{
    pleach_model *cpu = open_model(path, NULL, PLEACH_ARITH_F32, 0);
    float *want = rows_of(cpu, "f32", g->ids, g->n, g->n);
    pleach_model_close(cpu);
    for (int invariant = 0; invariant < 2; invariant++) {
        pleach_model *m = open_on_device(path, invariant);
        const size_t steps[] = {1, 2, 4, 8, 16, g->n};
        char line[200] = "";
        for (size_t j = 0; j < PL_COUNT(steps); j++) {
            float *got = rows_of(m, "f32", g->ids, g->n, steps[j]);
            double d = distance(want, got, g->n * g->vocab);
            snprintf(line + strlen(line), sizeof line - strlen(line), " %.1e", d);
            *bad += !(d < 2e-3);
            pl_free(got);
        }
        print_message("%s%s: 1, 2, 4, 8, 16, %zu rows off by%s\n", name,
                      invariant ? ", invariant" : "", g->n, line);
        pleach_model_close(m);
    }
    pl_free(want);
}

/* Both axes, every rate and rotation; affine layers of other rates beside them. */
static void packed_models_agree_with_the_processor(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        uint32_t bits, state_bits, embed_bits;
        int axis;
        pleach_rotate rotate;
    } kinds[] = {{"qwen3-qknorm", 3, 12, 8, 0, PLEACH_ROTATE_INPUT},
                 {"llama-rope3", 2, 12, 4, 1, PLEACH_ROTATE_BOTH},
                 {"qwen2-bias", 4, 12, 8, 0, PLEACH_ROTATE_INPUT_SCALE},
                 {"mistral-swa", 4, 12, 16, 1, PLEACH_ROTATE_NONE},
                 {"llama-tied", 3, 16, 8, 1, PLEACH_ROTATE_BOTH},
                 {"llama-rope3", 3, 12, 8, 0, PLEACH_ROTATE_FOLD},
                 {"wide", 3, 12, 8, 0, PLEACH_ROTATE_INPUT_SCALE},
                 {"wide", 2, 12, 8, 1, PLEACH_ROTATE_BOTH},
                 {"wide", 4, 12, 8, 1, PLEACH_ROTATE_INPUT}};
    char packed[300], wide[300], name[100];
    pleach_checkpoint *c;
    int bad = 0;
    golden g = open_golden("llama-packed");
    check_packed(checkpoint("llama-packed"), "llama-packed", &g, &bad);
    snprintf(wide, sizeof wide, "%s/wide", work.path);
    snprintf(packed, sizeof packed, "%s/packed", work.path);
    must(pleach_checkpoint_open(checkpoint("llama-packed"), &c, &err));
    must(pleach_checkpoint_dequantize(c, wide, 0, &err));
    pleach_checkpoint_close(c);
    close_golden(&g);
    for (size_t i = 0; i < PL_COUNT(kinds); i++) {
        bool is_wide = strcmp(kinds[i].source, "wide") == 0;
        pleach_quantize_settings s;
        pleach_quantize_settings_defaults(&s);
        s.bits = kinds[i].bits;
        s.state_bits = kinds[i].state_bits;
        s.embed_bits = kinds[i].embed_bits;
        s.axis = kinds[i].axis;
        s.rotate = kinds[i].rotate;
        s.calib = "none";
        s.force = 1;
        s.encode = PLEACH_SEARCH_FAST;
        must(pleach_quantize(is_wide ? wide : checkpoint(kinds[i].source), packed, &s, NULL, &err));
        g = open_golden(is_wide ? "llama-packed" : kinds[i].source);
        snprintf(name, sizeof name, "%s, %u bits, L %u, axis %d, rotation %d", kinds[i].source,
                 s.bits, s.state_bits, s.axis, (int)s.rotate);
        check_packed(packed, name, &g, &bad);
        close_golden(&g);
    }
    assert_int_equal(bad, 0);
}

/* ---- ways ------------------------------------------------------------------------------------ */

/* Every way to a prompt and on from there: the same bits where batches do not matter, near to them
 * where they do. */
static void check_ways(const char *name, bool invariant, int *bad)
{
    int32_t ids[PROMPT], want_ids[ANSWER], got_ids[ANSWER];
    make_ids(ids, PROMPT, 7);
    pleach_model *m = open_on_device(checkpoint(name), invariant);
    pleach_model *cpu = open_model(checkpoint(name), NULL, PLEACH_ARITH_F32, 0);
    size_t vocab = vocab_of(m), n = (ANSWER + 1) * vocab;
    float *want = pl_alloc(n, sizeof *want), *got = pl_alloc(n, sizeof *got);
    for (size_t t = 0; t < PL_COUNT(types); t++) {
        double most = 0;
        pleach_session *s = token_by_token(m, types[t], ids, want);
        answer(s, want, vocab, want_ids);
        pleach_session_close(s);
        s = token_by_token(cpu, types[t], ids, got);
        double beside = distance(got, want, vocab);
        pleach_session_close(s);
        for (size_t w = 0; w < PL_COUNT(ways); w++) {
            s = ways[w](m, types[t], ids, got);
            answer(s, got, vocab, got_ids);
            most = fmax(most, distance(want, got, vocab)); /* before the first token of its own */
            if (invariant && memcmp(got, want, n * sizeof *got)) {
                print_message("%s, %s, way %zu: another answer\n", name, types[t], w);
                (*bad)++;
            }
            pleach_session_close(s);
        }
        print_message("%s, %s%s: ways off by %.1e, the processor by %.1e\n", name, types[t],
                      invariant ? ", invariant" : "", most, beside);
        /* Codes of keys and values on an edge between two fall either way. */
        *bad += !(most < 2e-2) || !(beside < 2e-2);
    }
    pl_free(want);
    pl_free(got);
    pleach_model_close(m);
    pleach_model_close(cpu);
}

static void the_answer_is_the_same_by_every_way(void **state)
{
    (void)state;
    int bad = 0;
    check_ways("qwen3-qknorm", true, &bad);
    check_ways("mistral-swa", true, &bad);
    check_ways("qwen3-qknorm", false, &bad);
    assert_int_equal(bad, 0);
}

/* A session saved on one goes on on the other. */
static void sessions_move_between_device_and_processor(void **state)
{
    (void)state;
    int32_t ids[PROMPT];
    make_ids(ids, PROMPT, 5);
    pleach_model *both[] = {open_on_device(checkpoint("qwen3-qknorm"), false),
                            open_model(checkpoint("qwen3-qknorm"), NULL, PLEACH_ARITH_INT16, 0)};
    size_t vocab = vocab_of(both[0]);
    float *want = pl_alloc(vocab, sizeof *want), *got = pl_alloc(vocab, sizeof *got);
    char path[300];
    int bad = 0;
    snprintf(path, sizeof path, "%s/session", work.path);
    for (size_t t = 0; t < PL_COUNT(types); t++)
        for (int from = 0; from < 2; from++) {
            pleach_session *a = open_kv(both[from], types[t], 512, 512);
            pleach_session *b = open_kv(both[!from], types[t], 512, 512);
            must(pleach_session_feed(a, ids, 140, NULL, &err));
            must(pleach_session_save(a, path, &err));
            must(pleach_session_load(b, path, &err));
            must(pleach_session_feed(a, ids + 140, 1, want, &err));
            must(pleach_session_feed(b, ids + 140, 1, got, &err));
            double d = distance(want, got, vocab);
            if (!(d < 2e-3)) {
                print_message("%s, %s: off by %.1e\n", types[t], from ? "to the device" : "from it",
                              d);
                bad++;
            }
            pleach_session_close(a);
            pleach_session_close(b);
        }
    pl_free(want);
    pl_free(got);
    pleach_model_close(both[0]);
    pleach_model_close(both[1]);
    assert_int_equal(bad, 0);
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Sequences of different lengths step together and alone. */
static void check_batch(const char *kv, size_t n, bool invariant, int *bad)
{
    enum { MOST = 70, STEPS = 4 };
    pleach_model *m = open_on_device(checkpoint("qwen3-qknorm"), invariant);
    size_t vocab = vocab_of(m);
    pleach_session *together[MOST], *alone[MOST];
    float *rows = pl_alloc(n, vocab * sizeof *rows), *row = pl_alloc(vocab, sizeof *row);
    int32_t ids[300], next[MOST], best[MOST];
    double most = 0;
    make_ids(ids, 300, 11);
    for (size_t i = 0; i < n; i++) {
        together[i] = open_kv(m, kv, 512, 64);
        must(pleach_session_feed(together[i], ids, 1 + i * 37 % 200, NULL, &err));
        must(pleach_session_fork(together[i], &alone[i], &err));
    }
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < n; i++) next[i] = ids[(i * 13 + (size_t)step) % 300];
        must(pl_sessions_step(together, next, n, rows, best, &err));
        for (size_t i = 0; i < n; i++) {
            must(pleach_session_feed(alone[i], &next[i], 1, row, &err));
            double d = distance(row, rows + i * vocab, vocab);
            most = fmax(most, d);
            if (lag(rows + i * vocab, vocab, best[i]) != 0) {
                print_message("%s, %zu sequences: %d is not the best of row %zu\n", kv, n, best[i],
                              i);
                (*bad)++;
            }
            if (invariant && memcmp(row, rows + i * vocab, vocab * sizeof *row)) {
                print_message("%s, %zu sequences: row %zu differs from its own\n", kv, n, i);
                (*bad)++;
            }
        }
    }
    print_message("%s, %zu sequences%s: off by %.1e\n", kv, n, invariant ? ", invariant" : "", most);
    *bad += !(most < 2e-2);
    for (size_t i = 0; i < n; i++) {
        pleach_session_close(together[i]);
        pleach_session_close(alone[i]);
    }
    pl_free(rows);
    pl_free(row);
    pleach_model_close(m);
}

static void batches_of_different_lengths(void **state)
{
    (void)state;
    int bad = 0;
    check_batch("f32", 3, true, &bad);
    check_batch("f32", 70, true, &bad);
    check_batch("k8v3@64", 9, true, &bad);
    check_batch("bf16", 32, false, &bad);
    check_batch("k8v3", 17, false, &bad);
    assert_int_equal(bad, 0);
}

/* Forks that step together when their tables have neither rows nor length for them, the context is
 * no power of two, and each cuts its positions into spans. */
static void tables_and_spans_grow_within_a_step(void **state)
{
    (void)state;
    enum { N = 64, LENGTH = 1024 };
    pleach_model *m = open_on_device(checkpoint("qwen3-qknorm"), true);
    size_t vocab = vocab_of(m);
    pleach_session *first = open_kv(m, "f32", 1100, 512), *forks[N], *alone;
    float *rows = pl_alloc(N, vocab * sizeof *rows), *row = pl_alloc(vocab, sizeof *row);
    int32_t *ids = pl_alloc(LENGTH, sizeof *ids);
    int bad = 0;
    make_ids(ids, LENGTH, 17);
    must(pleach_session_feed(first, ids, LENGTH, NULL, &err));
    for (int i = 0; i < N; i++) must(pleach_session_fork(first, &forks[i], &err));
    must(pl_sessions_step(forks, ids, N, rows, NULL, &err));
    for (int i = 0; i < N; i++) {
        must(pleach_session_fork(first, &alone, &err));
        must(pleach_session_feed(alone, &ids[i], 1, row, &err));
        bad += memcmp(row, rows + (size_t)i * vocab, vocab * sizeof *row) != 0;
        pleach_session_close(alone);
        pleach_session_close(forks[i]);
    }
    print_message("%d of %d rows are not what they are alone\n", bad, N);
    pl_free(rows);
    pl_free(row);
    pl_free(ids);
    pleach_session_close(first);
    pleach_model_close(m);
    assert_int_equal(bad, 0);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 6, ROUNDS = 3 };

typedef struct worker {
    const pleach_model *m;
    const char *kv;
    const int32_t *ids;
    float *row;
    size_t n;
} worker;

/* A session of its own from opening to closing, a fork among them. */
static void *work_alone(void *worker_)
{
    worker *w = worker_;
    for (int round = 0; round < ROUNDS; round++) {
        pleach_session *s = open_kv(w->m, w->kv, 256 + 64 * w->n, 64), *f;
        must(pleach_session_feed(s, w->ids, w->n, NULL, &err));
        must(pleach_session_fork(s, &f, &err));
        must(pleach_session_feed(s, w->ids, 3, NULL, &err));
        for (int i = 0; i < 5; i++) must(pleach_session_feed(f, w->ids + i, 1, w->row, &err));
        pleach_session_close(s);
        pleach_session_close(f);
    }
    return NULL;
}

/* Sessions of one model on threads of their own give what they give one after another. */
static void sessions_live_on_different_threads(void **state)
{
    (void)state;
    pleach_model *m = open_on_device(checkpoint("qwen3-qknorm"), true);
    size_t vocab = vocab_of(m);
    int32_t ids[300];
    float *alone[THREADS], *beside[THREADS];
    worker w[THREADS];
    pthread_t threads[THREADS];
    make_ids(ids, 300, 13);
    for (int i = 0; i < THREADS; i++) {
        alone[i] = pl_alloc(vocab, sizeof *alone[i]);
        beside[i] = pl_alloc(vocab, sizeof *beside[i]);
        w[i] = (worker){m, i % 2 ? "k8v3@64" : "f32", ids + i, alone[i], 20 + 31 * (size_t)i};
        work_alone(&w[i]);
        w[i].row = beside[i];
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work_alone, &w[i]), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        assert_memory_equal(alone[i], beside[i], vocab * sizeof *alone[i]);
        pl_free(alone[i]);
        pl_free(beside[i]);
    }
    pleach_model_close(m);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void what_does_not_fit_is_refused_with_what_would(void **state)
{
    (void)state;
    pleach_model *m = open_on_device(checkpoint("qwen3-qknorm"), false);
    pleach_session_settings set;
    pleach_model_info info;
    pleach_session *s;
    pleach_model_get_info(m, &info);
    print_message("%s, %s: %llu bytes of weights\n", info.device, info.device_name,
                  (unsigned long long)info.device_bytes);
    assert_true(info.device_bytes > 500000 && strncmp(info.device, "cuda:", 5) == 0);
    pleach_session_settings_defaults(&set);
    set.context = (size_t)1 << 30;
    assert_refused(pleach_session_open(m, &set, &s, &err), PLEACH_ERR_MEMORY, " tokens fits; ");
    assert_null(s);
    s = open_kv(m, "k8v3", 512, 512);
    must(pleach_session_feed(s, (const int32_t[]){1, 2, 3}, 3, NULL, &err));
    pleach_session_close(s);
    pleach_model_close(m);
}

static void other_arithmetics_are_refused(void **state)
{
    (void)state;
    pleach_model_settings s;
    pleach_model *m;
    pleach_model_settings_defaults(&s);
    s.device = "cuda";
    s.arith = PLEACH_ARITH_INT8;
    assert_refused(pleach_model_open(checkpoint("llama-tied"), &s, &m, &err),
                   PLEACH_ERR_UNSUPPORTED, "int8");
}

/* An argument is a pattern of the tests to run. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_logits),
        cmocka_unit_test(generation_is_greedy),
        cmocka_unit_test(packed_models_agree_with_the_processor),
        cmocka_unit_test(the_answer_is_the_same_by_every_way),
        cmocka_unit_test(sessions_move_between_device_and_processor),
        cmocka_unit_test(batches_of_different_lengths),
        cmocka_unit_test(tables_and_spans_grow_within_a_step),
        cmocka_unit_test(sessions_live_on_different_threads),
        cmocka_unit_test(what_does_not_fit_is_refused_with_what_would),
        cmocka_unit_test(other_arithmetics_are_refused),
    };
    pleach_model *m;
    pleach_error err;
    if (try_device(checkpoint("llama-tied"), false, &m, &err) != PLEACH_OK) {
        printf("%s\n", err.message);
        return err.code == PLEACH_ERR_UNSUPPORTED ? 77 : 1;
    }
    pleach_model_close(m);
    work = make_folder();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", work.path);
    return system(command) || failed;
}
