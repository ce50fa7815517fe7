/* SPDX-License-Identifier: Apache-2.0
 *
 * Calibration of small checkpoints: against sums made here in double, the same bits whatever the
 * threads, the memory and the interruptions, and activations that are not finite. */
#include "support.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "calibrate/block.h"
#include "calibrate/calibrate.h"
#include "calibrate/loss.h"
#include "calibrate/statistics_file.h"
#include "runtime/engine.h"

enum { CHUNK = 48, TOKENS = 2 * CHUNK + 40 }; /* two chunks and a shorter one */

static const char *const checkpoints[] = {"llama-tied", "mistral-swa", "qwen2-bias",
                                          "qwen3-qknorm", "llama-rope3", "gemma3", "qwen3-moe"};
static char scratch[] = "/tmp/pleach-calibrate-XXXXXX";
static int32_t ids[TOKENS];

static int make_scratch(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (size_t i = 0; i < TOKENS; i++) ids[i] = (int32_t)(pl_random_next(&random) % 384);
    return mkdtemp(scratch) ? 0 : -1;
}

static int drop_scratch(void **state)
{
    char command[80];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    return system(command);
}

/* A path in the scratch folder; four may be in use at once. */
static const char *at(const char *name)
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

static pleach_model *open_named(const char *name, int threads)
{
    char path[512];
    snprintf(path, sizeof path, CHECKPOINTS "%s", name);
    return open_model(path, NULL, PLEACH_ARITH_F32, threads);
}

static pl_calibrate_settings settings_of(bool fisher, bool output)
{
    return (pl_calibrate_settings){.chunk = CHUNK, .fisher = fisher, .output = output, .seed = 1};
}

static pleach_status calibrate(const pleach_model *m, const pl_calibrate_settings *s,
                               const char *dir, pleach_error *err)
{
    json_t *binding = json_pack("{s:s, s:{s:i}}", "model", "it", "text", "tokens", TOKENS);
    pleach_status status =
        pl_calibrate(m->transformer, &m->compute, ids, TOKENS, s, binding, dir, err);
    json_decref(binding);
    return status;
}

static void assert_same_statistics(const char *a, const char *b, uint32_t blocks)
{
    for (uint32_t i = 0; i < blocks; i++) {
        char *data[2];
        size_t size[2];
        for (int k = 0; k < 2; k++) {
            char *path = pl_statistics_block_path(k ? b : a, i, NULL);
            must(pl_read_file(path, 1 << 24, &data[k], &size[k], &err));
            pl_free(path);
        }
        assert_int_equal(size[0], size[1]);
        assert_memory_equal(data[0], data[1], size[0]);
        pl_free(data[0]);
        pl_free(data[1]);
    }
}

/* ---- sums made here ---------------------------------------------------------------------------- */

/* sum += w x x^T, full and square. */
static void add_outer(double *sum, const float *x, size_t n, double w)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) sum[i * n + j] += w * (double)x[i] * (double)x[j];
}

/* The stored triangle is sum / weight. */
static void assert_mean(const float *triangle, const double *sum, size_t n, double weight)
{
    double trace = 0, worst = 0;
    assert_non_null(triangle);
    for (size_t i = 0; i < n; i++) trace += sum[i * n + i] / weight / (double)n;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++)
            worst = fmax(worst, fabs((double)*triangle++ - sum[i * n + j] / weight));
    assert_true(trace > 0 && worst <= 2e-6 * trace * (double)n / 16);
}

static void check_module(const pl_statistics *s, const pleach_model *m, const pl_tape *tapes,
                         size_t n_tapes, uint32_t layer, size_t linear)
{
    pl_module module;
    pl_module_statistics got;
    pl_config_layer_module(m->transformer->config, layer, linear, &module);
    must(pl_statistics_get(s, &module, &got, &err));
    size_t in = module.in, out = module.out;
    double *h = calloc(in * in, sizeof *h), *f = calloc(in * in, sizeof *f);
    double *g = calloc(out * out, sizeof *g), weight = 0, tokens = 0;
    for (size_t k = 0; k < n_tapes; k++)
        for (size_t t = 0; t < tapes[k].rows[linear]; t++, tokens++) {
            const float *x = pl_tape_input(&tapes[k], linear) + t * in;
            const float *by = tapes[k].gradient[linear] + t * out;
            double w = 0;
            for (size_t i = 0; i < out; i++) w += (double)by[i] * (double)by[i];
            add_outer(h, x, in, 1);
            add_outer(f, x, in, w);
            add_outer(g, by, out, 1);
            weight += w;
        }
    assert_int_equal(got.tokens, tokens);
    assert_true(module.expert || got.tokens == TOKENS);
    assert_mean(got.input, h, in, tokens);
    assert_mean(got.fisher, f, in, weight);
    assert_mean(got.output, g, out, tokens);
    for (size_t i = 0; i < out; i++)
        assert_true(fabs(got.power[i] - g[i * out + i] / tokens) <= 1e-4 * g[i * out + i] / tokens + 1e-30);
    assert_true(fabs(got.gradient - weight / tokens) <= 1e-5 * weight / tokens);
    free(h);
    free(f);
    free(g);
}

/* The whole model in memory, by the same blocks. */
static void test_against_sums_in_double(void **state)
{
    (void)state;
    enum { CHUNKS = 3 };
    for (size_t c = 0; c < PL_COUNT(checkpoints); c++) {
        pleach_model *m = open_named(checkpoints[c], 2);
        const pl_transformer *t = m->transformer;
        const uint32_t L = t->config->n_layers, C = t->config->hidden_size;
        pl_calibrate_settings settings = settings_of(true, true);
        pl_statistics *s;
        must(calibrate(m, &settings, at(checkpoints[c]), &err));
        must(pl_statistics_open(at(checkpoints[c]), NULL, &s, &err));
        float *x = pl_alloc((L + 1) * TOKENS, C * sizeof *x), *dx = pl_alloc(TOKENS, C * sizeof *x);
        pl_tape tapes[CHUNKS];
        pl_block b;
        for (int k = 0; k < CHUNKS; k++) must(pl_tape_open(&tapes[k], t, CHUNK, true, &err));
        pl_embed(t, &m->compute, ids, TOKENS, x);
        for (uint32_t i = 0; i < L; i++) {
            must(pl_block_open(&b, t, &m->compute, i, &err));
            for (size_t k = 0; k < CHUNKS; k++) {
                size_t from = k * CHUNK, n = PL_MIN(TOKENS - from, (size_t)CHUNK);
                pl_block_forward(&b, &tapes[k], x + (i * TOKENS + from) * C, n,
                                 x + ((i + 1) * TOKENS + from) * C);
            }
            pl_block_close(&b);
        }
        pl_loss loss;
        pl_target target = {.seed = 1};
        must(pl_loss_open(&loss, t, &m->compute, 64, true, &err));
        pl_loss_gradient(&loss, x + (size_t)L * TOKENS * C, TOKENS, &target, dx);
        pl_loss_close(&loss);
        for (uint32_t i = L; i-- > 0;) {
            must(pl_block_open(&b, t, &m->compute, i, &err));
            for (size_t k = 0; k < CHUNKS; k++) {
                size_t from = k * CHUNK, n = PL_MIN(TOKENS - from, (size_t)CHUNK);
                pl_block_forward(&b, &tapes[k], x + (i * TOKENS + from) * C, n, NULL);
                pl_block_backward(&b, &tapes[k], dx + from * C, dx + from * C);
            }
            pl_block_close(&b);
            for (size_t linear = 0; linear < pl_config_layer_modules(t->config, i); linear++)
                check_module(s, m, tapes, CHUNKS, i, linear);
        }
        for (int k = 0; k < CHUNKS; k++) pl_tape_close(&tapes[k]);
        pl_free(x);
        pl_free(dx);
        pl_statistics_close(s);
        pleach_model_close(m);
    }
}

/* The first block's input without the library's help. */
static void test_first_input(void **state)
{
    (void)state;
    pleach_model *m = open_named("llama-tied", 1);
    const pl_transformer *t = m->transformer;
    size_t C = t->config->hidden_size;
    pl_calibrate_settings settings = settings_of(false, false);
    pl_statistics *s;
    pl_module module;
    pl_module_statistics got;
    must(calibrate(m, &settings, at("first"), &err));
    must(pl_statistics_open(at("first"), NULL, &s, &err));
    pl_config_module(t->config, 1, &module);
    must(pl_statistics_get(s, &module, &got, &err));
    assert_null(got.fisher);
    assert_null(got.output);
    double *sum = calloc(C * C, sizeof *sum);
    float *row = calloc(C, sizeof *row);
    for (size_t i = 0; i < TOKENS; i++) {
        double power = 0;
        pl_linear_row(&t->embedding, (uint64_t)ids[i], row);
        for (size_t j = 0; j < C; j++) power += (double)row[j] * (double)row[j];
        double scale = 1 / sqrt(power / (double)C + (double)t->config->rms_norm_eps);
        for (size_t j = 0; j < C; j++)
            row[j] = (float)((double)row[j] * scale * (double)t->layers[0].input_norm[j]);
        add_outer(sum, row, C, 1);
    }
    assert_mean(got.input, sum, C, TOKENS);
    free(sum);
    free(row);
    pl_statistics_close(s);
    pleach_model_close(m);
}

/* ---- the same bits ----------------------------------------------------------------------------- */

static void test_threads_and_memory(void **state)
{
    (void)state;
    for (int fisher = 0; fisher < 2; fisher++) {
        pleach_model *one = open_named("qwen3-qknorm", 1), *three = open_named("qwen3-qknorm", 3);
        const pl_config *g = one->transformer->config;
        pl_calibrate_settings s = settings_of(fisher, fisher);
        const char *a = at(fisher ? "a1" : "a0"), *b = at(fisher ? "b1" : "b0");
        uint64_t all = pl_calibrate_memory(g, &s);
        must(calibrate(one, &s, a, &err));
        must(calibrate(three, &s, b, &err));
        assert_same_statistics(a, b, g->n_layers);
        s.memory = 1;
        uint64_t least = pl_calibrate_memory(g, &s);
        assert_true(least < all);
        s.memory = least - 1;
        pleach_error e = {0};
        assert_int_equal(calibrate(one, &s, at("never"), &e), PLEACH_ERR_LIMIT);
        assert_false(pl_exists(at("never")));
        for (int k = 0; k < 3; k++) { /* one statistic at a time, and several */
            const char *c = at(fisher ? (k ? k > 1 ? "m5" : "m4" : "m3") : (k ? k > 1 ? "m2" : "m1" : "m0"));
            s.memory = least + (all - least) * (uint64_t)k / 3;
            assert_true(pl_calibrate_memory(g, &s) <= s.memory);
            must(calibrate(three, &s, c, &err));
            assert_same_statistics(a, c, g->n_layers);
        }
        pleach_model_close(one);
        pleach_model_close(three);
    }
}

typedef struct stopper {
    size_t calls, stop_at;
    double share;
} stopper;

static int stop(void *user, const pl_calibrate_progress *p)
{
    stopper *s = user;
    assert_true(p->share >= s->share && p->share <= 1);
    s->share = p->share;
    return ++s->calls == s->stop_at;
}

static void test_stopped_anywhere(void **state)
{
    (void)state;
    pleach_model *m = open_named("llama-tied", 2);
    uint32_t blocks = m->transformer->config->n_layers;
    for (int fisher = 0; fisher < 2; fisher++) {
        pl_calibrate_settings s = settings_of(fisher, false);
        const char *whole = at(fisher ? "whole1" : "whole0");
        must(calibrate(m, &s, whole, &err));
        for (size_t n = 1;; n++) {
            char name[32];
            stopper stopper = {.stop_at = n};
            pleach_error e = {0};
            snprintf(name, sizeof name, "stop%d-%zu", fisher, n);
            const char *dir = at(name);
            s.progress = stop;
            s.user = &stopper;
            pleach_status status = calibrate(m, &s, dir, &e);
            if (status == PLEACH_OK) {
                assert_int_equal(n - 1, fisher ? 3 * (2 * blocks + 1) : 3 * blocks);
                assert_true(stopper.share > 0.999);
                break;
            }
            assert_int_equal(status, PLEACH_ERR_CANCELLED);
            pl_statistics *opened;
            assert_int_equal(pl_statistics_open(dir, NULL, &opened, NULL), PLEACH_ERR_MISSING);
            s.progress = NULL;
            must(calibrate(m, &s, dir, &err));
            assert_same_statistics(whole, dir, blocks);
            char *left = pl_path_join(dir, "hidden-0000.f32");
            assert_false(pl_exists(left));
            pl_free(left);
        }
    }
    pleach_model_close(m);
}

/* ---- bad activations --------------------------------------------------------------------------- */

static void test_overflow(void **state)
{
    (void)state;
    for (int fisher = 0; fisher < 2; fisher++) {
        pleach_model *m = open_named("llama-tied", 2);
        const pl_config *g = m->transformer->config;
        pl_calibrate_settings s = settings_of(fisher, fisher);
        const char *dir = at(fisher ? "overflow1" : "overflow0");
        pl_statistics *statistics;
        for (uint32_t i = 0; i < g->hidden_size; i++) m->transformer->layers[1].input_norm[i] = 1e30f;
        must(calibrate(m, &s, dir, &err));
        must(pl_statistics_open(dir, NULL, &statistics, &err));
        for (size_t i = 0; i < pl_config_module_count(g); i++) {
            pl_module module;
            pl_module_statistics got;
            pl_config_module(g, i, &module);
            must(pl_statistics_get(statistics, &module, &got, &err));
            bool good = module.kind == PL_MODULE_LINEAR && module.layer == 0;
            assert_int_equal(got.tokens, good ? TOKENS : 0);
            assert_true(good == (got.input != NULL));
            assert_null(got.fisher); /* the loss itself is not finite */
            assert_null(got.output);
            for (size_t k = 0; good && k < pl_triangle_size(module.in); k++)
                assert_true(isfinite(got.input[k]));
        }
        pl_statistics_close(statistics);
        pl_statistics_head head;
        must(pl_statistics_head_read(dir, &head, &err));
        assert_int_equal(json_integer_value(json_object_get(head.left_out, "1.input.0")), TOKENS);
        assert_null(json_object_get(head.left_out, "0.input.0"));
        pl_statistics_head_free(&head);
        pleach_model_close(m);
    }
}

/* ---- folders ----------------------------------------------------------------------------------- */

/* The file of block 1 with its bytes from `at` on replaced. */
static void damage(const char *dir, const char *from, const char *to)
{
    char *path = pl_statistics_block_path(dir, 1, NULL), *data;
    size_t size;
    must(pl_read_file(path, 1 << 24, &data, &size, &err));
    for (size_t i = 0; i + strlen(from) <= size; i++)
        if (memcmp(data + i, from, strlen(from)) == 0) memcpy(data + i, to, strlen(to));
    must(pl_write_file(path, data, size, &err));
    pl_free(data);
    pl_free(path);
}

static void test_folders(void **state)
{
    (void)state;
    pleach_model *m = open_named("llama-tied", 2), *other = open_named("qwen3-qknorm", 2);
    pl_calibrate_settings s = settings_of(true, false);
    pl_statistics *statistics;
    pl_module module;
    pl_module_statistics got;
    const char *dir = at("folder");
    char *path = pl_statistics_block_path(dir, 1, NULL);
    assert_refused(pl_statistics_open(dir, NULL, &statistics, &err), PLEACH_ERR_MISSING, dir);
    must(calibrate(m, &s, dir, &err));
    must(calibrate(m, &s, dir, &err)); /* finished: nothing to do */

    json_t *text = json_pack("{s:s, s:{s:i}}", "model", "it", "text", "tokens", 7);
    assert_refused(pl_statistics_open(dir, text, &statistics, &err), PLEACH_ERR_MISMATCH,
                   "text.tokens is 136 there and 7 now");
    assert_refused(pl_calibrate(m->transformer, &m->compute, ids, TOKENS, &s, text, dir, &err),
                   PLEACH_ERR_MISMATCH, "text.tokens");
    json_decref(text);
    s.fisher = false;
    assert_refused(calibrate(m, &s, dir, &err), PLEACH_ERR_MISMATCH, "fisher is 1 there and 0 now");

    must(pl_statistics_open(dir, NULL, &statistics, &err));
    pl_config_module(other->transformer->config, 4, &module); /* o_proj: another width */
    assert_refused(pl_statistics_get(statistics, &module, &got, &err), PLEACH_ERR_MISMATCH,
                   "input.1 of block 0");
    module.layer = 9;
    assert_refused(pl_statistics_get(statistics, &module, &got, &err), PLEACH_ERR_MISMATCH,
                   "3 blocks");
    pl_statistics_close(statistics);

    damage(dir, "\"input.2\"", "\"input.9\"");
    assert_refused(pl_statistics_open(dir, NULL, &statistics, &err), PLEACH_ERR_FORMAT, "input.2");
    damage(dir, "\"input.9\"", "\"input.2\"");
    damage(dir, "\"F64\"", "\"I64\"");
    assert_refused(pl_statistics_open(dir, NULL, &statistics, &err), PLEACH_ERR_FORMAT, "gradient");
    assert_int_equal(truncate(path, 70000), 0);
    assert_refused(pl_statistics_open(dir, NULL, &statistics, &err), PLEACH_ERR_FORMAT,
                   "block-0001");
    assert_int_equal(unlink(path), 0);
    assert_refused(pl_statistics_open(dir, NULL, &statistics, &err), PLEACH_ERR_MISSING,
                   "block-0001");

    char *stray = pl_path_join(at("stray"), "notes.txt");
    assert_int_equal(mkdir(at("stray"), 0777), 0);
    must(pl_write_file(stray, "x", 1, &err));
    assert_refused(calibrate(m, &s, at("stray"), &err), PLEACH_ERR_EXISTS, "no statistics");
    pl_free(stray);
    pl_free(path);
    pleach_model_close(m);
    pleach_model_close(other);
}

static void test_arguments(void **state)
{
    (void)state;
    pleach_model *m = open_named("llama-tied", 1);
    pl_calibrate_settings s = settings_of(false, false);
    json_t *binding = json_object();
    int32_t bad[40] = {0};
    assert_refused(pl_calibrate(m->transformer, &m->compute, ids, 31, &s, binding, at("no"), &err),
                   PLEACH_ERR_DATA, "31 tokens");
    bad[39] = 384;
    assert_refused(pl_calibrate(m->transformer, &m->compute, bad, 40, &s, binding, at("no"), &err),
                   PLEACH_ERR_DATA, "token 39");
    assert_false(pl_exists(at("no")));
    json_decref(binding);
    pleach_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_sums_in_double),
        cmocka_unit_test(test_first_input),
        cmocka_unit_test(test_threads_and_memory),
        cmocka_unit_test(test_stopped_anywhere),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
