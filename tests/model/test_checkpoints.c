/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole checkpoints against the logits and the greedy continuation of the reference
 * implementation. */
#include "support.h"

#include "base/cpu.h"

static const char *const families[] = {"llama-tied",  "llama-rope3", "qwen2-bias", "qwen3-qknorm",
                                       "mistral-swa", "gemma3",      "qwen3-moe",  "qwen35-hybrid",
                                       "qwen35-moe"};

static void checkpoint_path(char path[512], const char *name)
{
    snprintf(path, 512, CHECKPOINTS "%s", name);
}

/* How far below the largest logit that of `id` lies. */
static float lag(const float *logits, size_t n, int32_t id)
{
    float best = logits[0];
    for (size_t i = 1; i < n; i++) best = logits[i] > best ? logits[i] : best;
    return best - logits[id];
}

/* All logits of the golden's ids, fed `step` at a time, and then its greedy continuation: each of
 * its tokens must be the likeliest. Returns the largest lag, above 0 only for a tie: in one
 * checkpoint two logits are 1.5e-6 apart in exact arithmetic, less than f32 sums resolve. */
static float run(const pleach_model *m, const golden *g, size_t step, float *logits)
{
    pleach_session *s = open_session(m, "f32", 512);
    for (size_t i = 0; i < g->n; i += step) {
        size_t n = PL_MIN(step, g->n - i);
        must(pleach_session_feed_all(s, g->ids + i, n, 0, logits + i * g->vocab, &err));
    }
    float *last = pl_alloc(g->vocab, sizeof *last), most = 0;
    memcpy(last, logits + (g->n - 1) * g->vocab, g->vocab * sizeof *last);
    for (int i = 0; i < 16; i++) {
        float behind = lag(last, g->vocab, g->greedy[i]);
        most = behind > most ? behind : most;
        must(pleach_session_feed(s, &g->greedy[i], 1, last, &err));
    }
    pl_free(last);
    pleach_session_close(s);
    return most;
}

/* The folder's logits against the golden ones of `name`. step 0: all at once. */
static void check_close(const char *path, const char *name, const char *cpu, size_t step)
{
    unsigned flags;
    if (pl_cpu_level(cpu, &flags)) return;
    golden g = open_golden(name);
    pleach_model *m = open_model(path, cpu, PLEACH_ARITH_INT16, step ? 1 : 2);
    assert_int_equal(vocab_of(m), g.vocab);
    float *logits = pl_alloc(g.n * g.vocab, sizeof *logits);
    float behind = run(m, &g, step ? step : g.n, logits);
    double most = max_difference(logits, g.logits, g.n * g.vocab);
    if (!(most < 1e-3)) fail_msg("%s, %s, %zu at a time: logits are off by %g", name, cpu, step, most);
    if (behind > 1e-4f) fail_msg("%s, %s: a greedy token lags by %g", name, cpu, (double)behind);
    pl_free(logits);
    pleach_model_close(m);
    close_golden(&g);
}

static void check_close_on_levels(const char *path, const char *name)
{
    const char *const levels[] = {"c", "avx2", "avx512"};
    for (size_t l = 0; l < PL_COUNT(levels); l++) {
        check_close(path, name, levels[l], 0);
        check_close(path, name, levels[l], 1);
    }
}

static void checkpoints_match(void **state)
{
    (void)state;
    for (size_t i = 0; i < PL_COUNT(families); i++) {
        char path[512];
        checkpoint_path(path, families[i]);
        check_close_on_levels(path, families[i]);
    }
}

/* The golden logits of the packed checkpoint are those of its weights by the expand contract with
 * activations in f32: what it dequantises to. */
static void packed_checkpoint_matches_dequantised(void **state)
{
    (void)state;
    char path[512], plain[600], command[700];
    pleach_checkpoint *c;
    folder f = make_folder();
    checkpoint_path(path, "llama-packed");
    snprintf(plain, sizeof plain, "%s/plain", f.path);
    must(pleach_checkpoint_open(path, &c, &err));
    must(pleach_checkpoint_dequantize(c, plain, 0, &err));
    pleach_checkpoint_close(c);
    check_close_on_levels(plain, "llama-packed");
    snprintf(command, sizeof command, "rm -rf '%s'", f.path);
    assert_int_equal(system(command), 0);
}

/* The arithmetics differ from that by the rounding of weights or of activations. This checkpoint's
 * other layers are affine, of 3 and 4 bits with bf16 scales: the golden weights are rounded to bf16
 * twice, and integer arithmetic has them as they are meant, which is .0107 of the difference. */
static void packed_checkpoint_is_close(void **state)
{
    (void)state;
    const pleach_arith ariths[] = {PLEACH_ARITH_INT16, PLEACH_ARITH_INT16X2, PLEACH_ARITH_F32,
                                   PLEACH_ARITH_BF16, PLEACH_ARITH_INT8};
    const double bounds[] = {0.015, 0.015, 0.01, 0.01, 0.04};
    char path[512];
    checkpoint_path(path, "llama-packed");
    golden g = open_golden("llama-packed");
    size_t n = g.n * g.vocab;
    float *logits = pl_alloc(n, sizeof *logits);
    for (size_t a = 0; a < PL_COUNT(ariths); a++) {
        pleach_model *m = open_model(path, NULL, ariths[a], 2);
        run(m, &g, g.n, logits);
        double sum = 0, squares = 0, error = 0;
        for (size_t i = 0; i < n; i++) {
            double x = (double)g.logits[i], d = (double)logits[i] - x;
            sum += x;
            squares += x * x;
            error += d * d;
        }
        double deviation = sqrt(squares / (double)n - sum / (double)n * (sum / (double)n));
        double share = sqrt(error / (double)n) / deviation;
        print_message("%s: logits off by %.5f of their deviation\n", pleach_arith_name(ariths[a]),
                      share);
        assert_true(share < bounds[a]);
        pleach_model_close(m);
    }
    pl_free(logits);
    close_golden(&g);
}

/* ---- the same bits --------------------------------------------------------------------------- */

/* ids fed in pieces of the given sizes, used in turn. */
static void feed_in_pieces(pleach_session *s, const int32_t *ids, size_t n, const size_t *pieces,
                           size_t n_pieces, size_t vocab, float *logits)
{
    for (size_t i = 0, p = 0; i < n; p++) {
        size_t part = PL_MIN(pieces[p % n_pieces], n - i);
        must(pleach_session_feed_all(s, ids + i, part, 0, logits + i * vocab, &err));
        i += part;
    }
}

static void bits_depend_on_nothing(const char *name, pleach_arith arith)
{
    static const size_t cuts[][3] = {{1, 1, 1}, {7, 3, 11}, {16, 1, 2}, {33, 33, 33}, {512, 512, 512}};
    enum { N = 150 };
    char path[512];
    int32_t ids[N];
    checkpoint_path(path, name);
    for (int i = 0; i < N; i++) ids[i] = (i * 37 + i * i % 11) % 384;
    float *want = NULL, *got = NULL;
    size_t vocab = 0;
    for (int threads = 1; threads <= 4; threads++) {
        pleach_model *m = open_model(path, NULL, arith, threads);
        vocab = vocab_of(m);
        if (!want) {
            want = pl_alloc(N * vocab, sizeof *want);
            got = pl_alloc(N * vocab, sizeof *got);
        }
        for (size_t cut = threads == 1 ? 0 : 1; cut < PL_COUNT(cuts); cut += (size_t)threads) {
            pleach_session *s = open_session(m, "f32", cut % 2 ? 512 : 13);
            float *to = threads == 1 && cut == 0 ? want : got;
            feed_in_pieces(s, ids, N, cuts[cut], 3, vocab, to);
            if (to == got) assert_memory_equal(got, want, N * vocab * sizeof *got);
            pleach_session_close(s);
        }
        pleach_model_close(m);
    }
    pl_free(want);
    pl_free(got);
}

static void bits_are_the_same_for_threads_and_cuts(void **state)
{
    (void)state;
    bits_depend_on_nothing("llama-tied", PLEACH_ARITH_INT16);
    bits_depend_on_nothing("mistral-swa", PLEACH_ARITH_INT16);
    bits_depend_on_nothing("gemma3", PLEACH_ARITH_INT16);
    bits_depend_on_nothing("qwen3-moe", PLEACH_ARITH_INT16);
    bits_depend_on_nothing("qwen35-hybrid", PLEACH_ARITH_INT16);
    bits_depend_on_nothing("qwen35-moe", PLEACH_ARITH_INT16);
    bits_depend_on_nothing("llama-packed", PLEACH_ARITH_INT16);
    bits_depend_on_nothing("llama-packed", PLEACH_ARITH_BF16);
}

static void going_back_gives_the_same_bits(void **state)
{
    (void)state;
    golden g = open_golden("qwen3-qknorm");
    pleach_model *m = open_model(CHECKPOINTS "qwen3-qknorm", NULL, PLEACH_ARITH_INT16, 2);
    pleach_session *s = open_session(m, "f32", 512);
    float *want = pl_alloc(g.n * g.vocab, sizeof *want), *got = pl_alloc(g.vocab, sizeof *got);
    const int32_t other[] = {5, 6, 7, 8, 9}, *held;
    must(pleach_session_feed_all(s, g.ids, g.n, 0, want, &err));
    must(pleach_session_truncate(s, 10, &err));
    must(pleach_session_feed(s, other, 5, got, &err));
    must(pleach_session_truncate(s, 10, &err));
    must(pleach_session_feed(s, g.ids + 10, g.n - 10, got, &err));
    assert_memory_equal(got, want + (g.n - 1) * g.vocab, g.vocab * sizeof *got);
    assert_int_equal(pleach_session_ids(s, &held), g.n);
    assert_memory_equal(held, g.ids, g.n * sizeof *held);
    pl_free(want);
    pl_free(got);
    pleach_session_close(s);
    pleach_model_close(m);
    close_golden(&g);
}

static void bf16_cache_is_close(void **state)
{
    (void)state;
    golden g = open_golden("llama-tied");
    pleach_model *m = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_INT16, 2);
    float *logits = pl_alloc(g.n * g.vocab, sizeof *logits);
    pleach_session *s = open_session(m, "bf16", 512);
    must(pleach_session_feed_all(s, g.ids, g.n, 0, logits, &err));
    double most = max_difference(logits, g.logits, g.n * g.vocab);
    assert_true(most > 0 && most < 0.1);
    /* 2 kv heads, 3 layers, keys and values of 32 numbers in two bytes. */
    pleach_cache_info info;
    pleach_session_cache_info(s, &info);
    assert_string_equal(info.types, "bf16");
    assert_int_equal(info.token_bytes, 2 * 3 * 2 * 32 * 2);
    assert_true(info.bytes >= g.n * info.token_bytes);
    assert_true(info.bits == 16 && info.context == 512);
    assert_int_equal(info.context_bytes, 512 * info.token_bytes);
    pl_free(logits);
    pleach_session_close(s);
    pleach_model_close(m);
    close_golden(&g);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void sessions_refuse_and_stay_as_they_were(void **state)
{
    (void)state;
    pleach_model *m = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_INT16, 1);
    pleach_session_settings set;
    pleach_session *s;
    pleach_error err;
    const int32_t good[] = {1, 2, 3, 4, 5, 6}, bad[] = {1, 384}, negative[] = {-1};
    float *logits = pl_alloc(384, sizeof *logits);
    pleach_session_settings_defaults(&set);
    set.context = 8;
    assert_int_equal(pleach_session_open(m, &set, &s, &err), PLEACH_OK);
    assert_int_equal(pleach_session_feed(s, good, 6, logits, &err), PLEACH_OK);
    assert_int_equal(pleach_session_feed(s, bad, 2, logits, &err), PLEACH_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "384"));
    assert_int_equal(pleach_session_feed(s, negative, 1, logits, &err), PLEACH_ERR_ARGUMENT);
    assert_int_equal(pleach_session_feed(s, good, 3, logits, &err), PLEACH_ERR_LIMIT);
    assert_int_equal(pleach_session_feed(s, good, 0, logits, &err), PLEACH_ERR_ARGUMENT);
    assert_int_equal(pleach_session_feed_all(s, good, 2, 3, logits, &err), PLEACH_ERR_ARGUMENT);
    assert_int_equal(pleach_session_truncate(s, 7, &err), PLEACH_ERR_ARGUMENT);
    assert_int_equal(pleach_session_position(s), 6);
    assert_int_equal(pleach_session_feed(s, good, 2, logits, &err), PLEACH_OK);
    assert_int_equal(pleach_session_position(s), 8);
    pl_free(logits);
    pleach_session_close(s);
    set.kv = "f16";
    assert_refused(pleach_session_open(m, &set, &s, &err), PLEACH_ERR_ARGUMENT, "\"f16\"");
    assert_null(s);
    set.kv = "bf16,2-3:f32";
    assert_refused(pleach_session_open(m, &set, &s, &err), PLEACH_ERR_ARGUMENT, "layers 0 to 2");
    set.kv = "k8v3";
    assert_refused(pleach_session_open(m, &set, &s, &err), PLEACH_ERR_SHAPE,
                   "k8v3: head size 32: a packed cache takes 64, ");
    pleach_model_close(m);
}

static void models_refuse_bad_settings(void **state)
{
    (void)state;
    pleach_model_settings set;
    pleach_model *m;
    pleach_error err;
    pleach_arith arith;
    pleach_model_settings_defaults(&set);
    set.cpu = "mmx";
    assert_int_equal(pleach_model_open(CHECKPOINTS "llama-tied", &set, &m, &err),
                     PLEACH_ERR_ARGUMENT);
    assert_null(m);
    assert_non_null(strstr(err.message, "mmx"));
    assert_non_null(strstr(err.message, "c"));
    pleach_model_settings_defaults(&set);
    set.threads = -1;
    assert_int_equal(pleach_model_open(CHECKPOINTS "llama-tied", &set, &m, &err),
                     PLEACH_ERR_ARGUMENT);
    assert_int_not_equal(pleach_model_open(CHECKPOINTS "absent", NULL, &m, &err), PLEACH_OK);
    assert_null(m);
    assert_int_equal(pleach_arith_parse("bf16", &arith, &err), PLEACH_OK);
    assert_int_equal(arith, PLEACH_ARITH_BF16);
    assert_int_equal(pleach_arith_parse("int4", &arith, &err), PLEACH_ERR_ARGUMENT);
    assert_int_equal(pleach_arith_parse(NULL, &arith, &err), PLEACH_ERR_ARGUMENT);
    assert_null(pleach_arith_name((pleach_arith)5));
}

static void models_tell_what_they_are(void **state)
{
    (void)state;
    pleach_model *m = open_model(CHECKPOINTS "qwen3-qknorm", "c", PLEACH_ARITH_INT16, 3);
    pleach_model_info info;
    pleach_model_get_info(m, &info);
    assert_string_equal(info.architecture, "qwen3");
    assert_string_equal(info.cpu, "c");
    assert_int_equal(info.threads, 3);
    assert_int_equal(info.has_tokenizer, 0);
    assert_null(info.chat_format);
    assert_int_equal(info.heads, 4);
    assert_int_equal(info.kv_heads, 2);
    assert_int_equal(info.head_dim, 64);
    assert_int_equal(info.bos, 1);
    assert_int_equal(info.n_end_tokens, 1);
    assert_int_equal(info.end_tokens[0], 2);
    assert_true(info.weight_bytes > 1000000);
    int32_t *ids;
    size_t n;
    pleach_error err;
    assert_int_equal(pleach_tokenize(m, "x", 1, 0, &ids, &n, &err), PLEACH_ERR_MISSING);
    pleach_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_match),
        cmocka_unit_test(packed_checkpoint_matches_dequantised),
        cmocka_unit_test(packed_checkpoint_is_close),
        cmocka_unit_test(bits_are_the_same_for_threads_and_cuts),
        cmocka_unit_test(going_back_gives_the_same_bits),
        cmocka_unit_test(bf16_cache_is_close),
        cmocka_unit_test(sessions_refuse_and_stay_as_they_were),
        cmocka_unit_test(models_refuse_bad_settings),
        cmocka_unit_test(models_tell_what_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
