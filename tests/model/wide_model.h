/* SPDX-License-Identifier: Apache-2.0
 *
 * A model wide enough for its statistics to outweigh the program, a text for it, and a folder to
 * work in. */
#ifndef PLEACH_TESTS_MODEL_WIDE_MODEL_H
#define PLEACH_TESTS_MODEL_WIDE_MODEL_H

#include "text_model.h"

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
static inline const char *at(const char *name)
{
    static char paths[16][400];
    static int next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", work.path, name);
    return path;
}

/* Matrices of random numbers, norms of about one. */
static inline void write_weights(void)
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

static inline void write_text(void)
{
    char text[TOKENS + 1];
    uint64_t random = 2;
    for (size_t i = 0; i < TOKENS; i++)
        text[i] = "etaoin shrdlu.\n"[pl_random_next(&random) % 15];
    text[TOKENS] = 0;
    folder_write(&work, "calib.txt", text);
}

static inline int wide_setup(void **state)
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

static inline int wide_teardown(void **state)
{
    char command[600];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", work.path, model.path);
    return system(command);
}

#endif
