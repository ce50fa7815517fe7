/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed folders written out as plain bf16 ones, shards, and what verifying finds. */
#include "quantize_fixture.h"

#include <jansson.h>
#include <math.h>

#include "base/half.h"
#include "format/checkpoint.h"
#include "format/safetensors.h"
#include "quant/outputs.h"

#define GOLDEN PLEACH_TEST_DATA "/golden/checkpoints/"

/* Every module of b, in bf16, is what a's stands for, rounded once. */
static void assert_same_modules(const pleach_checkpoint *a, const pleach_checkpoint *b)
{
    const pl_config *config;
    assert_ok(pl_checkpoint_config(a, &config, err));
    for (size_t i = 0; i < pl_config_module_count(config); i++) {
        pl_module m;
        pl_weight wa, wb;
        pl_config_module(config, i, &m);
        assert_ok(pl_checkpoint_weight(a, m.name, m.out, m.in, &wa, err));
        assert_ok(pl_checkpoint_weight(b, m.name, m.out, m.in, &wb, err));
        assert_int_equal(wb.coding, PL_CODING_DENSE);
        assert_int_equal(wb.weight->type, PL_BF16);
        size_t n = m.out * m.in;
        float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
        assert_ok(pl_weight_dense_f32(&wa, x, err));
        assert_ok(pl_weight_dense_f32(&wb, y, err));
        for (size_t j = 0; j < n; j++) assert_true(pl_bf16_to_f32(pl_f32_to_bf16(x[j])) == y[j]);
        free(y);
        free(x);
    }
}

static void test_dequantize(void **state)
{
    (void)state;
    static const char *const sources[] = {"llama-tied", "llama-rope3", "qwen2-bias"};
    for (size_t i = 0; i < PL_COUNT(sources); i++) {
        char source[512], *text;
        pleach_checkpoint *packed, *plain;
        size_t findings;
        pleach_quantize_settings s = bits(3);
        s.rotate = i ? PLEACH_ROTATE_INPUT_SCALE : PLEACH_ROTATE_BOTH;
        s.force = 1;
        snprintf(source, sizeof source, GOLDEN "%s", sources[i]);
        assert_ok(pleach_quantize(source, at("packed"), &s, NULL, err));
        assert_ok(pleach_checkpoint_open(at("packed"), &packed, err));
        assert_ok(pl_write_file(at("packed/tokenizer.json"), "{}", 2, err));
        assert_ok(pleach_checkpoint_dequantize(packed, at("plain"), i > 0, err));
        assert_ok(pleach_checkpoint_open(at("plain"), &plain, err));
        assert_same_modules(packed, plain);
        assert_ok(pleach_checkpoint_verify(plain, NULL, NULL, &findings, err));
        assert_int_equal(findings, 0);
        assert_same_file(at("packed"), at("plain"), "tokenizer.json");
        read_all(at("plain/config.json"), &text, NULL);
        assert_null(strstr(text, "quantization"));
        assert_non_null(strstr(text, "bfloat16"));
        bool tied = strstr(text, "\"tie_word_embeddings\": true") != NULL;
        assert_true((pl_checkpoint_find(plain, "lm_head.weight") == NULL) == tied);
        pl_free(text);
        assert_false(pl_exists(at("plain.partial")));
        pleach_checkpoint_close(plain);
        pleach_checkpoint_close(packed);
    }
}

/* A folder made by others: mixed bits and axes, affine groups of 3 and 4 bits. */
static void test_dequantize_packed_by_others(void **state)
{
    (void)state;
    pleach_checkpoint *packed, *plain;
    assert_ok(pleach_checkpoint_open(GOLDEN "llama-packed", &packed, err));
    assert_ok(pleach_checkpoint_dequantize(packed, at("others"), 0, err));
    assert_ok(pleach_checkpoint_open(at("others"), &plain, err));
    assert_same_modules(packed, plain);
    pleach_checkpoint_close(plain);
    pleach_checkpoint_close(packed);
    /* And such a folder can be quantised anew. */
    pleach_quantize_settings s = bits(4);
    pleach_quantize_summary summary;
    assert_ok(pleach_quantize(GOLDEN "llama-packed", at("anew"), &s, &summary, err));
    assert_true(summary.relative_error < .007);
    pleach_quantize_summary_free(&summary);
}

static void test_shards(void **state)
{
    (void)state;
    pleach_checkpoint *c, *sharded;
    pl_outputs o = {0};
    assert_ok(pleach_checkpoint_open(TIED, &c, err));
    size_t n = pl_checkpoint_tensor_count(c);
    for (size_t i = 0; i < n; i++) {
        const pl_tensor *t = pl_checkpoint_tensor_at(c, i);
        assert_ok(pl_outputs_add_tensor(&o, t, t->type, err));
    }
    assert_int_equal(mkdir(at("sharded"), 0777), 0);
    /* The embedding alone is larger than a shard. */
    assert_ok(pl_outputs_write(&o, at("sharded"), 90000, err));
    copy_to(TIED, "config.json", at("sharded"));
    assert_false(pl_exists(at("sharded/model.safetensors")));
    assert_ok(pleach_checkpoint_open(at("sharded"), &sharded, err));
    assert_int_equal(pl_checkpoint_tensor_count(sharded), n);
    for (size_t i = 0; i < n; i++) {
        const pl_tensor *a = pl_checkpoint_tensor_at(c, i);
        const pl_tensor *b = pl_checkpoint_find(sharded, a->name);
        assert_non_null(b);
        assert_int_equal(a->n_bytes, b->n_bytes);
        assert_memory_equal(a->data, b->data, a->n_bytes);
    }
    pleach_checkpoint_close(sharded);
    /* A shard that is gone is noticed before any work. */
    char *index;
    read_all(at("sharded/model.safetensors.index.json"), &index, NULL);
    json_t *json = json_loads(index, 0, NULL);
    assert_int_equal(json_object_size(json_object_get(json, "weight_map")), n);
    json_decref(json);
    pl_free(index);
    char name[64];
    for (int total = 2; total < 30; total++) {
        snprintf(name, sizeof name, "sharded/model-00002-of-%05d.safetensors", total);
        if (unlink(at(name)) == 0) break;
    }
    assert_refused(pleach_quantize(at("sharded"), at("never"), NULL, NULL, err), PLEACH_ERR_MISSING,
                   "model-00002-of-");
    assert_false(pl_exists(at("never.partial")));
    pl_outputs_free(&o);
    pleach_checkpoint_close(c);
}

typedef struct expected {
    const char *tensor, *line;
    int found;
} expected;

static void look_for(void *user, const char *tensor, const char *line)
{
    for (expected *e = user; e->tensor; e++)
        e->found += strstr(tensor, e->tensor) && strstr(line, e->line);
}

/* A packed folder rewritten without a norm, with a longer one, and with bad scales. */
static void test_verify(void **state)
{
    (void)state;
    pleach_checkpoint *c, *bad;
    pleach_quantize_settings s = bits(3);
    assert_ok(pleach_quantize(TIED, at("good"), &s, NULL, err));
    assert_ok(pleach_checkpoint_open(at("good"), &c, err));
    size_t n = pl_checkpoint_tensor_count(c), kept = 0, findings;
    pl_tensor *tensors = calloc(n, sizeof *tensors);
    pl_safetensors_writer *w;
    static uint16_t ones[4096];
    for (size_t i = 0; i < 4096; i++) ones[i] = 0x3c00;
    for (size_t i = 0; i < n; i++) {
        pl_tensor t = *pl_checkpoint_tensor_at(c, i);
        if (!strcmp(t.name, "model.layers.1.input_layernorm.weight")) continue;
        if (!strcmp(t.name, "model.norm.weight")) {
            t.shape[0] += 2;
            t.type = PL_F16;
            t.n_bytes = 2 * t.shape[0];
        }
        tensors[kept++] = t;
    }
    assert_int_equal(mkdir(at("bad"), 0777), 0);
    copy_to(at("good"), "config.json", at("bad"));
    assert_ok(pl_safetensors_create(at("bad/model.safetensors"), tensors, kept, &w, err));
    for (size_t i = 0; i < kept; i++) {
        const void *data = tensors[i].data;
        uint16_t scales[512];
        if (!strcmp(tensors[i].name, "model.norm.weight")) data = ones;
        if (strstr(tensors[i].name, "layers.2.mlp.up_proj.scales")) {
            memcpy(scales, data, tensors[i].n_bytes);
            scales[3] = 0xb000;
            scales[5] = 0x7c00;
            data = scales;
        }
        assert_ok(pl_safetensors_append(w, data, tensors[i].n_bytes, err));
    }
    assert_ok(pl_safetensors_commit(w, err));
    assert_ok(pleach_checkpoint_open(at("bad"), &bad, err));
    expected want[] = {{"layers.1.input_layernorm", "missing", 0},
                       {"model.norm.weight", "130 numbers, expected 128", 0},
                       {"layers.2.mlp.up_proj.scales", "negative", 0},
                       {"layers.2.mlp.up_proj.scales", "infinite", 0},
                       {NULL, NULL, 0}};
    assert_ok(pleach_checkpoint_verify(bad, look_for, want, &findings, err));
    for (expected *e = want; e->tensor; e++) assert_int_equal(e->found, 1);
    assert_int_equal(findings, 4);
    pleach_checkpoint_close(bad);
    pleach_checkpoint_close(c);
    free(tensors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dequantize),
        cmocka_unit_test(test_dequantize_packed_by_others),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_verify),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
