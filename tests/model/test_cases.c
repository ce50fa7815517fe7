/* SPDX-License-Identifier: Apache-2.0
 *
 * Config quirks: small models whose logits and rotary frequencies were computed in numpy
 * (tests/golden/models/make_models.py). */
#include "support.h"

#include <jansson.h>

#include "format/checkpoint.h"
#include "model/rope.h"

#define MODELS PLEACH_TEST_DATA "/golden/models/"

static const char *const files[] = {"config.json", "model.safetensors"};

/* A folder with this config and these weights; remove_folder(files) undoes it. */
static folder make_model(const json_t *config, const char *weights)
{
    folder f = make_folder();
    char path[512], *text = json_dumps(config, 0);
    snprintf(path, sizeof path, MODELS "%s", weights);
    folder_write(&f, files[0], text);
    folder_link(&f, files[1], path);
    free(text);
    return f;
}

static void check_frequencies(const folder *f, const json_t *test)
{
    const char *name = json_string_value(json_object_get(test, "name"));
    const json_t *want = json_object_get(test, "frequencies");
    double factor = json_number_value(json_object_get(test, "attention_factor"));
    const pl_config *config;
    pleach_checkpoint *c;
    float got[64];
    must(pl_checkpoint_open(f->path, &c, &err));
    must(pl_checkpoint_config(c, &config, &err));
    assert_int_equal(json_array_size(want), config->rope.dims / 2);
    pl_rope_frequencies(&config->rope, got);
    for (size_t i = 0; i < json_array_size(want); i++) {
        double w = json_number_value(json_array_get(want, i));
        if (fabs((double)got[i] - w) > 1e-7 * w)
            fail_msg("%s: frequency %zu is %.9g, expected %.9g", name, i, (double)got[i], w);
    }
    assert_true(fabs(config->rope.attention_factor - factor) < 1e-9);
    pleach_checkpoint_close(c);
}

static void check_logits(const folder *f, const json_t *test)
{
    const char *name = json_string_value(json_object_get(test, "name"));
    const json_t *positions = json_object_get(test, "positions");
    pleach_model *m = open_model(f->path, NULL, PLEACH_ARITH_INT16, 2);
    pleach_session *s = open_session(m, "f32", 512);
    size_t vocab = vocab_of(m);
    float *logits = pl_alloc(vocab, sizeof *logits);
    int32_t ids[10000];
    for (size_t i = 0; i < PL_COUNT(ids); i++) {
        uint64_t state = i * 0x9e3779b97f4a7c15u;
        ids[i] = (int32_t)(pl_random_next(&state) % vocab);
    }
    for (size_t i = 0; i < json_array_size(positions); i++) {
        size_t held = pleach_session_position(s);
        size_t end = (size_t)json_integer_value(json_array_get(positions, i)) + 1;
        assert_in_range(end, held + 1, PL_COUNT(ids));
        must(pleach_session_feed(s, ids + held, end - held, logits, &err));
        const json_t *want = json_array_get(json_object_get(test, "logits"), i);
        for (size_t j = 0; j < vocab; j++) {
            double w = json_number_value(json_array_get(want, j));
            if (!(fabs((double)logits[j] - w) < 1e-3))
                fail_msg("%s: logit %zu at position %zu is %g, expected %g", name, j, end - 1,
                         (double)logits[j], w);
        }
    }
    pl_free(logits);
    pleach_session_close(s);
    pleach_model_close(m);
}

static void every_case_matches(void **state)
{
    (void)state;
    json_t *cases = json_load_file(MODELS "cases.json", 0, NULL), *test;
    size_t i;
    assert_non_null(cases);
    json_array_foreach(cases, i, test) {
        folder f = make_model(json_object_get(test, "config"),
                              json_string_value(json_object_get(test, "weights")));
        check_frequencies(&f, test);
        check_logits(&f, test);
        remove_folder(&f, files, 2);
    }
    assert_true(i > 20);
    json_decref(cases);
}

/* The config of case 0 with one change, opened: the status and a word of the message. */
static void check_refusal(const char *key, json_t *value, pleach_status status, const char *word)
{
    json_t *cases = json_load_file(MODELS "cases.json", 0, NULL), *test = json_array_get(cases, 0);
    json_t *config = json_object_get(test, "config");
    pleach_model *m;
    pleach_error err;
    json_object_set_new(config, key, value);
    folder f = make_model(config, json_string_value(json_object_get(test, "weights")));
    pleach_status got = pleach_model_open(f.path, NULL, &m, &err);
    assert_true((got == PLEACH_OK) == (m != NULL));
    pleach_model_close(m);
    if (got != status) fail_msg("%s: status %d, expected %d", key, (int)got, (int)status);
    if (!strstr(err.message, word)) fail_msg("no '%s' in: %s", word, err.message);
    remove_folder(&f, files, 2);
    json_decref(cases);
}

static void what_is_missing_or_unknown_is_named(void **state)
{
    (void)state;
    check_refusal("rope_parameters", json_pack("{s:s,s:f}", "rope_type", "longrope", "factor", 2.0),
                  PLEACH_ERR_UNSUPPORTED, "longrope");
    check_refusal("num_hidden_layers", json_integer(2), PLEACH_ERR_MISSING, "model.layers.1.");
    check_refusal("attention_bias", json_true(), PLEACH_ERR_MISSING, "q_proj.bias");
    check_refusal("head_dim", json_integer(8), PLEACH_ERR_SHAPE, "q_proj");
    check_refusal("hidden_size", json_integer(64), PLEACH_ERR_SHAPE, "model.embed_tokens");
    check_refusal("architectures", json_pack("[s]", "Qwen3ForCausalLM"), PLEACH_ERR_MISSING, "_norm");
    check_refusal("architectures", json_pack("[s]", "MambaForCausalLM"), PLEACH_ERR_UNSUPPORTED,
                  "MambaForCausalLM");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_matches),
        cmocka_unit_test(what_is_missing_or_unknown_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
