/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that a calibrated run promises, against what it takes: a model wide enough for its
 * statistics to outweigh the program, each run a process of its own. */
#include "text_model.h"

#include <sys/resource.h>
#include <sys/wait.h>

enum { WIDTH = 512, INNER = 2048, VOCABULARY = 258, TOKENS = 1024 };

static const char config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 512,"
    " \"intermediate_size\": 2048, \"num_hidden_layers\": 1, \"num_attention_heads\": 8,"
    " \"num_key_value_heads\": 8, \"vocab_size\": 258, \"max_position_embeddings\": 512,"
    " \"rms_norm_eps\": 1e-06, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\","
    " \"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\"}";

#define BLOCK "model.layers.0."
static const pl_tensor tensors[] = {
    {.name = "model.embed_tokens.weight", .n_dims = 2, .shape = {VOCABULARY, WIDTH}},
    {.name = BLOCK "input_layernorm.weight", .n_dims = 1, .shape = {WIDTH}},
    {.name = BLOCK "self_attn.q_proj.weight", .n_dims = 2, .shape = {WIDTH, WIDTH}},
    {.name = BLOCK "self_attn.k_proj.weight", .n_dims = 2, .shape = {WIDTH, WIDTH}},
    {.name = BLOCK "self_attn.v_proj.weight", .n_dims = 2, .shape = {WIDTH, WIDTH}},
    {.name = BLOCK "self_attn.o_proj.weight", .n_dims = 2, .shape = {WIDTH, WIDTH}},
    {.name = BLOCK "post_attention_layernorm.weight", .n_dims = 1, .shape = {WIDTH}},
    {.name = BLOCK "mlp.gate_proj.weight", .n_dims = 2, .shape = {INNER, WIDTH}},
    {.name = BLOCK "mlp.up_proj.weight", .n_dims = 2, .shape = {INNER, WIDTH}},
    {.name = BLOCK "mlp.down_proj.weight", .n_dims = 2, .shape = {WIDTH, INNER}},
    {.name = "model.norm.weight", .n_dims = 1, .shape = {WIDTH}},
};

static folder model, work;

/* A path in the work folder, good for the 15 calls that follow. */
static const char *at(const char *name)
{
    static char paths[16][400];
    static int next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", work.path, name);
    return path;
}

/* Matrices of random numbers, norms of about one. */
static void write_weights(void)
{
    pl_tensor list[PL_COUNT(tensors)];
    pl_safetensors_writer *w;
    uint64_t random = 1;
    for (size_t i = 0; i < PL_COUNT(tensors); i++) {
        list[i] = tensors[i];
        list[i].type = PL_BF16;
    }
    char path[400];
    snprintf(path, sizeof path, "%s/model.safetensors", model.path);
    must(pl_safetensors_create(path, list, PL_COUNT(list), &w, &err));
    for (size_t i = 0; i < PL_COUNT(list); i++) {
        size_t n = (size_t)(list[i].shape[0] * (list[i].n_dims > 1 ? list[i].shape[1] : 1));
        uint16_t *numbers = pl_alloc(n, sizeof *numbers);
        assert_non_null(numbers);
        for (size_t k = 0; k < n; k++) { /* +- 2^-5 to 2^-4, or 1 to 2 */
            uint64_t bits = pl_random_next(&random);
            unsigned exponent = list[i].n_dims > 1 ? 127 - 5 : 127;
            unsigned sign = list[i].n_dims > 1 ? bits >> 8 & 1 : 0;
            numbers[k] = (uint16_t)(sign << 15 | exponent << 7 | (bits & 127));
        }
        must(pl_safetensors_append(w, numbers, n * sizeof *numbers, &err));
        pl_free(numbers);
    }
    must(pl_safetensors_commit(w, &err));
}

static void write_text(void)
{
    char text[TOKENS + 1];
    uint64_t random = 2;
    for (size_t i = 0; i < TOKENS; i++)
        text[i] = "etaoin shrdlu.\n"[pl_random_next(&random) % 15];
    text[TOKENS] = 0;
    folder_write(&work, "calib.txt", text);
}

static pleach_quantize_settings settings(bool everything)
{
    pleach_quantize_settings s;
    pleach_quantize_settings_defaults(&s);
    s.calib = everything ? "self" : at("calib.txt");
    s.calib_tokens = TOKENS;
    s.two_sided = everything;
    s.refine = everything;
    s.fisher = everything;
    s.threads = 2;
    return s;
}

static uint64_t promised(const pleach_quantize_settings *s)
{
    pleach_quantize_summary summary;
    must(pleach_quantize_plan(model.path, s, &summary, &err));
    uint64_t bytes = summary.peak_memory;
    pleach_quantize_summary_free(&summary);
    return bytes;
}

/* The largest resident set of a run, in bytes. */
static uint64_t taken(const pleach_quantize_settings *s, const char *out)
{
    struct rusage usage;
    int status;
    pid_t child = fork();
    if (child == 0) {
        pleach_error err = {0};
        if (pleach_quantize(model.path, out, s, NULL, &err) == PLEACH_OK) _exit(0);
        fprintf(stderr, "%s\n", err.message);
        _exit(1);
    }
    assert_int_equal(wait4(child, &status, 0, &usage), child);
    assert_int_equal(status, 0);
    return (uint64_t)usage.ru_maxrss * 1024;
}

static void assert_kept(uint64_t bytes, uint64_t promise)
{
    print_message("%.1f MB taken, %.1f MB promised\n", (double)bytes * 1e-6,
                  (double)promise * 1e-6);
#ifndef __SANITIZE_ADDRESS__
    if ((double)bytes > 1.1 * (double)promise) fail_msg("more was taken than promised");
#endif
}

static void promises_are_kept(void **state)
{
    (void)state;
    for (int everything = 0; everything < 2; everything++) {
        pleach_quantize_settings s = settings(everything);
        uint64_t promise = promised(&s);
        assert_kept(taken(&s, at(everything ? "all" : "plain")), promise);
    }
}

/* As little as will do works; half of that is refused, and nothing is begun. */
static void limits_are_kept(void **state)
{
    (void)state;
    pleach_quantize_settings s = settings(false);
    pleach_error err = {0};
    unsigned long long need;
    s.memory = 1;
    assert_int_equal(pleach_quantize(model.path, at("little"), &s, NULL, &err), PLEACH_ERR_LIMIT);
    assert_int_equal(sscanf(err.message, "%llu bytes of memory are needed", &need), 1);
    print_message("%.1f MB needed\n", (double)need * 1e-6);
    s.memory = need / 2;
    assert_int_equal(pleach_quantize(model.path, at("little"), &s, NULL, &err), PLEACH_ERR_LIMIT);
    assert_false(pl_exists(at("little")));
    assert_false(pl_exists(at("little.partial")));
    s.memory = need;
    assert_true(promised(&s) <= need);
    assert_kept(taken(&s, at("little")), need);
}

/* The same without calibration: modules are coded one at a time where two do not fit. */
static void limits_of_coding_are_kept(void **state)
{
    (void)state;
    pleach_quantize_settings s = settings(false);
    pleach_quantize_summary plan;
    pleach_error err = {0};
    unsigned long long need;
    s.calib = "none";
    uint64_t both = promised(&s);
    s.memory = 1;
    assert_int_equal(pleach_quantize_plan(model.path, &s, &plan, &err), PLEACH_ERR_LIMIT);
    assert_int_equal(sscanf(err.message, "%llu bytes of memory are needed", &need), 1);
    assert_true(need < both);
    s.memory = both;
    assert_int_equal(promised(&s), both);
    s.memory = both - 1;
    assert_int_equal(promised(&s), need);
    assert_kept(taken(&s, at("coded")), need);
    s.memory = need - 1;
    assert_int_equal(pleach_quantize(model.path, at("none"), &s, NULL, &err), PLEACH_ERR_LIMIT);
    assert_false(pl_exists(at("none.partial")));
}

static int setup(void **state)
{
    (void)state;
    model = make_folder();
    work = make_folder();
    folder_write(&model, "config.json", config);
    write_tokenizer(&model);
    write_weights();
    write_text();
    return 0;
}

static int teardown(void **state)
{
    char command[600];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", work.path, model.path);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promises_are_kept),
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(limits_of_coding_are_kept),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
