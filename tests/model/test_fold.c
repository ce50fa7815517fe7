/* SPDX-License-Identifier: Apache-2.0
 *
 * Models with gains and a rotation folded in. Folded and kept in F32 they compute what the source
 * does; coded they come near it and hold nothing that a plain reader lacks. */
#include "quantised_model.h"

#include "format/json.h"
#include "quant/model_folder.h"
#include "quant/outputs.h"

/* ---- sources -------------------------------------------------------------------------------- */

/* What is changed in a copy of a checkpoint. */
typedef struct change {
    bool biases;           /* random ones on every linear layer */
    const char *norm;      /* a gain of which element 3 is set, or NULL */
    float gain;
} change;

/* Vectors that a copy has beside the source's tensors, until it is written. */
typedef struct extras {
    size_t n;
    pl_tensor tensor[64];
    char name[64][128];
    float *data[64];
} extras;

static float *add_vector(extras *e, const char *name, size_t n)
{
    assert_true(e->n < PL_COUNT(e->tensor));
    float *x = e->data[e->n] = pl_alloc(n, sizeof *x);
    snprintf(e->name[e->n], sizeof e->name[0], "%s", name);
    e->tensor[e->n] = (pl_tensor){.name = e->name[e->n], .type = PL_F32, .n_dims = 1, .shape = {n},
                                  .data = x, .n_bytes = n * sizeof *x};
    e->n++;
    return x;
}

static void add_biases(const pleach_checkpoint *c, extras *e)
{
    const pl_config *g;
    uint64_t seed = 5;
    must(pl_checkpoint_config(c, &g, &err));
    for (size_t i = 0; i < pl_config_module_count(g); i++) {
        char name[192];
        pl_module m;
        pl_config_module(g, i, &m);
        if (m.kind != PL_MODULE_LINEAR) continue;
        snprintf(name, sizeof name, "%s.bias", m.name);
        float *b = add_vector(e, name, m.out);
        for (size_t j = 0; j < m.out; j++) b[j] = (float)pl_random_unit(&seed) - .5f;
    }
}

/* config.json of the source, with biases where they are added. */
static void write_config(const pleach_checkpoint *c, const change *how, const char *dir)
{
    json_t *config;
    must(pl_source_config(c, &config, &err));
    json_object_set_new(config, "torch_dtype", json_string("float32"));
    if (how->biases) {
        json_object_set_new(config, "attention_bias", json_true());
        json_object_set_new(config, "mlp_bias", json_true());
    }
    must(pl_write_json(dir, "config.json", config, &err));
    json_decref(config);
}

/* A golden checkpoint in F32, as "source", so that keeping a matrix rounds nothing. */
static const char *make_source(const char *name, change how)
{
    char path[512];
    pleach_checkpoint *c;
    pl_outputs o = {0};
    static extras e;
    e.n = 0;
    snprintf(path, sizeof path, CHECKPOINTS "%s", name);
    must(pl_checkpoint_open(path, &c, &err));
    if (how.biases) add_biases(c, &e);
    for (size_t i = 0; i < pl_checkpoint_tensor_count(c); i++) {
        const pl_tensor *t = pl_checkpoint_tensor_at(c, i);
        if (how.norm && strcmp(t->name, how.norm) == 0) {
            float *gain = add_vector(&e, t->name, t->shape[0]);
            pl_tensor_row_f32(t, 0, gain);
            gain[3] = how.gain;
        } else {
            must(pl_outputs_add_tensor(&o, t, PL_F32, &err));
        }
    }
    for (size_t i = 0; i < e.n; i++) must(pl_outputs_add_tensor(&o, &e.tensor[i], PL_F32, &err));
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir '%s'", in_work("source"),
             in_work("source"));
    assert_int_equal(system(command), 0);
    must(pl_outputs_write(&o, in_work("source"), PL_SHARD_BYTES, &err));
    write_config(c, &how, in_work("source"));
    pl_outputs_free(&o);
    for (size_t i = 0; i < e.n; i++) pl_free(e.data[i]);
    pleach_checkpoint_close(c);
    return in_work("source");
}

/* ---- folding -------------------------------------------------------------------------------- */

static pleach_quantize_settings fold_settings(void)
{
    pleach_quantize_settings s;
    pleach_quantize_settings_defaults(&s);
    s.rotate = PLEACH_ROTATE_FOLD;
    s.threads = 2;
    s.force = 1;
    return s;
}

/* Every number of a tensor is 1. */
static void assert_ones(const pleach_checkpoint *c, const char *name)
{
    const pl_tensor *t = pl_checkpoint_find(c, name);
    float x[512];
    assert_non_null(t);
    assert_true(pl_tensor_elements(t) <= PL_COUNT(x));
    pl_tensor_row_f32(t, 0, x);
    for (size_t i = 0; i < pl_tensor_elements(t); i++) assert_true(x[i] == 1);
}

/* No gain is left in the norms, the head is a matrix of its own, nothing is rotated at run time. */
static void check_plain(const char *path)
{
    pleach_checkpoint *c;
    const pl_config *g;
    must(pl_checkpoint_open(path, &c, &err));
    must(pl_checkpoint_config(c, &g, &err));
    assert_false(g->tie_embeddings);
    assert_ones(c, "model.norm.weight");
    assert_ones(c, "model.layers.0.input_layernorm.weight");
    assert_ones(c, "model.layers.1.post_attention_layernorm.weight");
    for (size_t i = 0; i < pl_config_module_count(g); i++) {
        pl_module m;
        pl_weight w;
        pl_config_module(g, i, &m);
        must(pl_checkpoint_weight(c, m.name, m.out, m.in, &w, &err));
        assert_true(!w.rotate_in.block && !w.rotate_out.block && !w.output_scale);
    }
    pleach_checkpoint_close(c);
}

/* Folded without coding, a model's logits are the source's. */
static void check_kept(const char *name, change how)
{
    static const char *const everything[] = {"*"};
    golden g = open_golden(name);
    const char *source = make_source(name, how);
    pleach_quantize_settings s = fold_settings();
    s.keep = everything;
    s.n_keep = 1;
    must(pleach_quantize(source, in_work("folded"), &s, NULL, &err));
    check_plain(in_work("folded"));
    float *want = logits_of(source, &g), *got = logits_of(in_work("folded"), &g);
    double most = max_difference(want, got, g.n * g.vocab);
    print_message("%s: logits differ by %.2g\n", name, most);
    if (!(most < 1e-3)) fail_msg("%s: folded logits are off by %g", name, most);
    pl_free(want);
    pl_free(got);
    close_golden(&g);
}

static void test_kept(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-tied", "qwen2-bias", "qwen3-qknorm", "mistral-swa"};
    for (size_t i = 0; i < PL_COUNT(names); i++) check_kept(names[i], (change){0});
    check_kept("llama-tied", (change){.biases = true});
    check_kept("llama-tied", (change){.norm = "model.layers.1.input_layernorm.weight"});
}

/* RMS of the difference over the standard deviation, as in test_quantized.c. */
static void test_coded(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-tied", "llama-rope3", "qwen2-bias", "qwen3-qknorm",
                                        "mistral-swa"};
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        for (int axis = -1; axis <= 1; axis++) {
            char source[512];
            golden g = open_golden(names[i]);
            pleach_quantize_settings s = fold_settings();
            s.bits = 4;
            s.axis = axis;
            snprintf(source, sizeof source, CHECKPOINTS "%s", names[i]);
            must(pleach_quantize(source, in_work("packed"), &s, NULL, &err));
            check_plain(in_work("packed"));
            float *logits = logits_of(in_work("packed"), &g);
            double d = distance(g.logits, logits, g.n * g.vocab);
            print_message("%s, axis %d: %.4f at 4 bits\n", names[i], axis, d);
            if (!(d < .45)) fail_msg("%s, axis %d: %g at 4 bits", names[i], axis, d);
            pl_free(logits);
            close_golden(&g);
        }
    }
}

/* ---- plans and refusals --------------------------------------------------------------------- */

static void test_plan(void **state)
{
    (void)state;
    pleach_quantize_settings s = fold_settings();
    pleach_quantize_summary summary;
    must(pleach_quantize_plan(CHECKPOINTS "llama-tied", &s, &summary, &err));
    const pleach_quantize_item *head = &summary.items[summary.n_items - 1];
    assert_string_equal(head->name, "lm_head");
    assert_int_equal(summary.n_warnings, 1);
    char bytes[32];
    snprintf(bytes, sizeof bytes, " %llu bytes", (unsigned long long)head->bytes);
    if (!strstr(summary.warnings[0], bytes)) fail_msg("\"%s\"", summary.warnings[0]);
    for (size_t i = 0; i < summary.n_items; i++) {
        const pleach_quantize_item *t = &summary.items[i];
        bool writes = strstr(t->name, "o_proj") || strstr(t->name, "down_proj");
        if (t->k) assert_int_equal(t->axis, !writes);
    }
    pleach_quantize_summary_free(&summary);
    must(pleach_quantize_plan(CHECKPOINTS "qwen2-bias", &s, &summary, &err));
    assert_int_equal(summary.n_warnings, 0);
    pleach_quantize_summary_free(&summary);
}

static void test_bad_gains(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY};
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        pleach_quantize_settings s = fold_settings();
        pleach_error e;
        const char *source = make_source(
            "llama-tied", (change){.norm = "model.norm.weight", .gain = bad[i]});
        assert_int_equal(pleach_quantize(source, in_work("bad"), &s, NULL, &e), PLEACH_ERR_DATA);
        if (!strstr(e.message, "model.norm.weight: NaN or infinity in element 3"))
            fail_msg("\"%s\"", e.message);
    }
}

/* A gain that lifts weights beyond F16 is no file of infinities. */
static void test_large_gain(void **state)
{
    (void)state;
    static const char *const everything[] = {"*"};
    char source[512], command[1200];
    pleach_quantize_settings s = fold_settings();
    pleach_error e;
    s.keep = everything;
    s.n_keep = 1;
    snprintf(source, sizeof source, "%s",
             make_source("llama-tied", (change){.norm = "model.norm.weight", .gain = 3e38f}));
    must(pleach_quantize(source, in_work("large"), &s, NULL, &err)); /* F32 holds it */
    snprintf(command, sizeof command, "rm -rf '%s'", in_work("large"));
    assert_int_equal(system(command), 0);
    /* Matrices in BF16 become F16. */
    pleach_checkpoint *c;
    pl_outputs o = {0};
    must(pl_checkpoint_open(source, &c, &err));
    for (size_t i = 0; i < pl_checkpoint_tensor_count(c); i++) {
        const pl_tensor *t = pl_checkpoint_tensor_at(c, i);
        must(pl_outputs_add_tensor(&o, t, t->n_dims == 2 ? PL_BF16 : PL_F32, &err));
    }
    snprintf(command, sizeof command, "mkdir '%s' && cp '%s/config.json' '%s'", in_work("half"),
             source, in_work("half"));
    assert_int_equal(system(command), 0);
    must(pl_outputs_write(&o, in_work("half"), PL_SHARD_BYTES, &err));
    pl_outputs_free(&o);
    pleach_checkpoint_close(c);
    assert_int_equal(pleach_quantize(in_work("half"), in_work("large"), &s, NULL, &e),
                     PLEACH_ERR_DATA);
    if (!strstr(e.message, "lm_head.weight: numbers too large for F16"))
        fail_msg("\"%s\"", e.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_coded),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_bad_gains),
        cmocka_unit_test(test_large_gain),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
