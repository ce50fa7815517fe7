/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: shards and their faults, the quantisation map, binding of every coding with its
 * refusals, and the numbers that bound weights stand for. Folders are written by the test. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/half.h"
#include "base/memory.h"
#include "base/random.h"
#include "format/checkpoint.h"
#include "format/config.h"
#include "format/safetensors.h"
#include "scratch.h"

#define CHECKPOINTS PLEACH_TEST_DATA "/golden/checkpoints/"

/* ---- folders ------------------------------------------------------------------------------- */

/* A safetensors file with these tensors, whose data pointers are what is written. */
static void write_tensors(const scratch *s, const char *name, pl_tensor *tensors, size_t n)
{
    pl_safetensors_writer *w;
    pleach_error err;
    if (pl_safetensors_create(scratch_path(s, name), tensors, n, &w, &err) != PLEACH_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < n; i++) {
        uint64_t bytes = pl_tensor_elements(&tensors[i]) * pl_dtype_get(tensors[i].type)->block_bytes;
        assert_int_equal(pl_safetensors_append(w, tensors[i].data, bytes, &err), PLEACH_OK);
    }
    assert_int_equal(pl_safetensors_commit(w, &err), PLEACH_OK);
}

/* A folder with one module "m" and this quantization object (or NULL for none). */
static void write_module(const scratch *s, const char *quantization, pl_tensor *tensors, size_t n)
{
    char config[1000];
    snprintf(config, sizeof config, "{\"architectures\":[\"Other\"]%s%s}",
             quantization ? ",\"quantization\":" : "", quantization ? quantization : "");
    scratch_text(s, "config.json", config);
    write_tensors(s, "model.safetensors", tensors, n);
}

static pleach_checkpoint *open_folder(const char *path)
{
    pleach_checkpoint *c;
    pleach_error err;
    if (pl_checkpoint_open(path, &c, &err) != PLEACH_OK) fail_msg("%s: %s", path, err.message);
    return c;
}

static void refuse_folder(const char *path, pleach_status status, const char *message)
{
    pleach_checkpoint *c;
    pleach_error err = {0};
    pleach_status found = pl_checkpoint_open(path, &c, &err);
    if (found != status || !strstr(err.message, message))
        fail_msg("status %d, '%s' does not say '%s'", found, err.message, message);
    assert_null(c);
}

static const pl_config *config_of(const pleach_checkpoint *c)
{
    const pl_config *config;
    pleach_error err;
    if (pl_checkpoint_config(c, &config, &err) != PLEACH_OK) fail_msg("%s", err.message);
    return config;
}

/* ---- committed checkpoints ----------------------------------------------------------------- */

static void every_module_of_the_goldens_binds(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-tied",   "llama-rope3", "qwen2-bias",
                                        "qwen3-qknorm", "mistral-swa", "llama-packed"};
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        char path[500];
        pleach_error err;
        snprintf(path, sizeof path, CHECKPOINTS "%s", names[i]);
        pleach_checkpoint *c = open_folder(path);
        const pl_config *config = config_of(c);
        for (size_t j = 0; j < pl_config_module_count(config); j++) {
            pl_module m;
            pl_weight w;
            pl_config_module(config, j, &m);
            if (pl_checkpoint_weight(c, m.name, m.out, m.in, &w, &err) != PLEACH_OK)
                fail_msg("%s", err.message);
            assert_true(w.out == m.out && w.in == m.in);
            bool biased = config->arch == PL_ARCH_QWEN2 && m.kind == PL_MODULE_LINEAR && m.input == 0;
            assert_int_equal(w.bias != NULL, biased);
        }
        pleach_checkpoint_close(c);
    }
}

static void inspection_counts_every_part(void **state)
{
    (void)state;
    pleach_checkpoint *c;
    pleach_checkpoint_totals totals;
    pleach_error err;
    assert_int_equal(pleach_checkpoint_open(CHECKPOINTS "llama-packed", &c, &err), PLEACH_OK);
    assert_int_equal(pleach_checkpoint_total(c, &totals, &err), PLEACH_OK);
    uint64_t bytes = 0, weights = 0;
    bool trellis = false, affine = false;
    for (size_t i = 0; i < pleach_checkpoint_count(c); i++) {
        pleach_tensor_info info;
        assert_int_equal(pleach_checkpoint_tensor(c, i, &info, &err), PLEACH_OK);
        uint64_t n = 1;
        for (uint32_t d = 0; d < info.n_dims; d++) n *= info.shape[d];
        bytes += info.bytes;
        weights += n;
        if (strcmp(info.name, "model.layers.0.mlp.down_proj.weight") == 0) {
            trellis = true;
            assert_string_equal(info.coding, "trellis");
            assert_true(info.k == 3 && info.state_bits == 12 && info.block == 256);
            assert_true(info.axis == 0 && info.interleaved == 1 && info.padded == 512);
            assert_true(info.shape[0] == 512 && info.shape[1] == 768);
            assert_true(info.bytes == 512 * 768 * 3 / 8 + 768 * 2 && info.block_matrix);
            assert_true(info.scale_min > 0 && info.scale_min <= info.scale_max);
        }
        if (strcmp(info.name, "model.embed_tokens.weight") == 0) {
            affine = true;
            assert_string_equal(info.coding, "affine");
            assert_true(info.bits == 4.5 && !info.block_matrix && info.k == 0);
        }
    }
    assert_true(trellis && affine);
    assert_true(totals.bytes == bytes && totals.weights == weights);
    assert_true(totals.file_bytes > bytes && totals.block_weights < weights);
    pleach_tensor_info info;
    assert_int_equal(pleach_checkpoint_tensor(c, 1000, &info, &err), PLEACH_ERR_ARGUMENT);
    pleach_checkpoint_close(c);
}

/* Field by field: bytes between them may be anything. */
static void assert_same_rope(const pl_rope_config *a, const pl_rope_config *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_true(a->theta == b->theta && a->factor == b->factor);
    assert_true(a->low_freq_factor == b->low_freq_factor &&
                a->high_freq_factor == b->high_freq_factor);
    assert_true(a->original_context == b->original_context);
    assert_true(a->beta_fast == b->beta_fast && a->beta_slow == b->beta_slow);
    assert_true(a->attention_factor == b->attention_factor && a->truncate == b->truncate);
    assert_int_equal(a->dims, b->dims);
}

static void a_written_config_reads_back(void **state)
{
    (void)state;
    static const char *const paths[] = {
        CHECKPOINTS "llama-rope3", CHECKPOINTS "mistral-swa", CHECKPOINTS "qwen2-bias",
        CHECKPOINTS "qwen3-qknorm", CHECKPOINTS "gemma3", CHECKPOINTS "qwen3-moe", PLEACH_TEST_DATA "/golden/formats/tiny-llama.gguf"};
    for (size_t i = 0; i < PL_COUNT(paths); i++) {
        pleach_checkpoint *c = open_folder(paths[i]);
        pleach_error err;
        char *text = pl_checkpoint_make_config_text(c, &err);
        assert_non_null(text);
        json_t *root;
        pl_config again = {0}, first = *config_of(c);
        assert_int_equal(pl_json_parse("made", text, strlen(text), &root, &err), PLEACH_OK);
        if (pl_config_from_json("made", root, NULL, &again, &err) != PLEACH_OK)
            fail_msg("%s", err.message);
        for (uint32_t l = 0; l < first.n_layers; l++)
            assert_int_equal(pl_config_window(&again, l), pl_config_window(&first, l));
        assert_same_rope(&again.rope, &first.rope);
        assert_same_rope(&again.rope_local, &first.rope_local);
        assert_true(again.query_scalar == first.query_scalar);
        assert_true(again.embedding_scale == first.embedding_scale);
        assert_int_equal(again.activation, first.activation);
        assert_int_equal(again.n_experts, first.n_experts);
        assert_int_equal(again.n_experts_used, first.n_experts_used);
        assert_int_equal(again.expert_size, first.expert_size);
        assert_int_equal(again.expert_renormalise, first.expert_renormalise);
        assert_int_equal(pl_config_module_count(&again), pl_config_module_count(&first));
        assert_true(again.rms_norm_eps == first.rms_norm_eps);
        assert_int_equal(again.vocab_size, first.vocab_size);
        assert_int_equal(again.head_dim, first.head_dim);
        assert_int_equal(again.n_kv_heads, first.n_kv_heads);
        assert_int_equal(again.tie_embeddings, first.tie_embeddings);
        assert_int_equal(again.attention_bias, first.attention_bias);
        assert_int_equal(again.arch, first.arch);
        assert_int_equal(again.n_end_tokens, first.n_end_tokens);
        assert_memory_equal(again.end_tokens, first.end_tokens, sizeof first.end_tokens);
        json_decref(root);
        pl_free(text);
        pleach_checkpoint_close(c);
    }
}

/* ---- files of a folder --------------------------------------------------------------------- */

static const float numbers[64] = {1, 2, 3, 4, 5, 6, 7, 8};

static pl_tensor small(const char *name)
{
    return (pl_tensor){.name = name, .type = PL_F32, .n_dims = 2, .shape = {2, 4}, .data = numbers};
}

static void write_index(const scratch *s, const char *map)
{
    char text[600];
    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":64},\"weight_map\":{%s}}", map);
    scratch_text(s, "model.safetensors.index.json", text);
}

static void shards_are_joined_or_named(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    refuse_folder(s.dir, PLEACH_ERR_MISSING, "neither model.safetensors nor");
    pl_tensor a = small("a.weight"), b = small("b.weight");
    pl_tensor both[] = {a, b};
    write_tensors(&s, "one.safetensors", &a, 1);
    write_tensors(&s, "two.safetensors", both, 2); /* has a second a.weight, which is not named */
    write_tensors(&s, "stray.safetensors", both, 2);
    write_index(&s, "\"a.weight\":\"one.safetensors\",\"b.weight\":\"two.safetensors\"");
    pleach_checkpoint *c = open_folder(s.dir);
    assert_int_equal(pl_checkpoint_tensor_count(c), 2);
    assert_non_null(pl_checkpoint_find(c, "b.weight"));
    assert_null(pl_checkpoint_find(c, "c.weight"));
    pleach_checkpoint_close(c);

    write_index(&s, "\"b.weight\":\"one.safetensors\"");
    refuse_folder(s.dir, PLEACH_ERR_MISSING, "tensor b.weight is not in one.safetensors");
    write_index(&s, "\"a.weight\":\"../one.safetensors\"");
    refuse_folder(s.dir, PLEACH_ERR_FORMAT, "../one.safetensors is not the name");
    write_index(&s, "\"a.weight\":\".safetensors\"");
    refuse_folder(s.dir, PLEACH_ERR_FORMAT, "is not the name");
    write_index(&s, "\"a.weight\":3");
    refuse_folder(s.dir, PLEACH_ERR_FORMAT, "an integer is not the name");
    write_index(&s, "\"a.weight\":\"one.safetensors\",\"b.weight\":\"gone.safetensors\"");
    refuse_folder(s.dir, PLEACH_ERR_MISSING, "gone.safetensors");
    scratch_text(&s, "model.safetensors.index.json", "{\"weight_map\":[]}");
    refuse_folder(s.dir, PLEACH_ERR_FORMAT, "weight_map is an array");
    scratch_close(&s);
}

static void a_truncated_file_is_refused(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    char *bytes;
    size_t size;
    pleach_error err;
    assert_int_equal(pl_read_file(CHECKPOINTS "llama-tied/model.safetensors", 1 << 24, &bytes,
                                  &size, &err), PLEACH_OK);
    scratch_write(&s, "model.safetensors", bytes, size - 4096);
    refuse_folder(s.dir, PLEACH_ERR_FORMAT, "truncated?");
    scratch_write(&s, "model.safetensors", bytes, 6);
    refuse_folder(s.dir, PLEACH_ERR_FORMAT, "too short");
    pl_free(bytes);
    scratch_close(&s);
}

static void a_foreign_architecture_opens_for_inspection(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    pl_tensor a = small("a.weight");
    write_tensors(&s, "model.safetensors", &a, 1);
    pleach_checkpoint *c = open_folder(s.dir);
    const pl_config *config;
    pleach_error err;
    assert_int_equal(pl_checkpoint_config(c, &config, &err), PLEACH_ERR_MISSING);
    assert_non_null(strstr(err.message, "config.json is missing"));
    assert_null(config);
    pleach_checkpoint_close(c);
    scratch_text(&s, "config.json", "{\"architectures\":[\"BloomForCausalLM\"]}");
    c = open_folder(s.dir);
    assert_int_equal(pl_checkpoint_config(c, &config, &err), PLEACH_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "BloomForCausalLM"));
    assert_int_equal(pleach_checkpoint_count(c), 1);
    pleach_checkpoint_close(c);
    scratch_text(&s, "config.json", "{");
    refuse_folder(s.dir, PLEACH_ERR_FORMAT, "config.json: malformed JSON");
    scratch_close(&s);
}

static void end_tokens_come_from_both_configs(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    pl_tensor a = small("a.weight");
    write_tensors(&s, "model.safetensors", &a, 1);
    scratch_text(&s, "config.json",
                 "{\"model_type\":\"llama\",\"vocab_size\":8,\"hidden_size\":8,\"eos_token_id\":2,"
                 "\"intermediate_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2}");
    scratch_text(&s, "generation_config.json", "{\"eos_token_id\":[2,7]}");
    pleach_checkpoint *c = open_folder(s.dir);
    assert_int_equal(config_of(c)->n_end_tokens, 2);
    /* Untied, and no head: the missing tensor is named. */
    pl_weight w;
    pleach_error err;
    assert_int_equal(pl_checkpoint_weight(c, "lm_head", 8, 8, &w, &err), PLEACH_ERR_MISSING);
    assert_non_null(strstr(err.message, "tensor lm_head.weight is missing"));
    pleach_checkpoint_close(c);
    scratch_close(&s);
}

/* ---- dense --------------------------------------------------------------------------------- */

static void bind_fails(const scratch *s, uint64_t out, uint64_t in, const char *message)
{
    pleach_checkpoint *c = open_folder(s->dir);
    pl_weight w;
    pleach_error err = {0};
    if (pl_checkpoint_weight(c, "m", out, in, &w, &err) == PLEACH_OK ||
        !strstr(err.message, message))
        fail_msg("'%s' does not say '%s'", err.message, message);
    pleach_checkpoint_close(c);
}

static void dense_shapes_are_checked(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    pl_tensor m[2] = {small("m.weight"), {.name = "m.bias", .type = PL_F32, .n_dims = 1,
                                          .shape = {2}, .data = numbers}};
    write_module(&s, NULL, m, 2);
    pleach_checkpoint *c = open_folder(s.dir);
    pl_weight w;
    pleach_error err;
    float dst[8];
    assert_int_equal(pl_checkpoint_weight(c, "m", 2, 4, &w, &err), PLEACH_OK);
    assert_non_null(w.bias);
    pl_weight_rows_f32(&w, 1, 1, dst);
    assert_memory_equal(dst, numbers + 4, 16);
    assert_int_equal(pl_weight_dense_f32(&w, dst, &err), PLEACH_OK);
    assert_memory_equal(dst, numbers, 32);
    pleach_checkpoint_close(c);
    bind_fails(&s, 2, 5, "m is a matrix [2, 4], the config expects [2, 5]");
    m[1].shape[0] = 3;
    write_module(&s, NULL, m, 2);
    bind_fails(&s, 0, 0, "tensor m.bias is F32 [3], expected [2]");
    m[0].shape[0] = 0;
    write_module(&s, NULL, m, 1);
    bind_fails(&s, 0, 0, "empty matrix [0, 4]");
    m[0] = small("m.weight");
    m[0].n_dims = 1;
    write_module(&s, NULL, m, 1);
    bind_fails(&s, 0, 0, "expected a matrix of numbers");
    m[0] = small("m.weight");
    m[0].type = PL_I32;
    write_module(&s, NULL, m, 1);
    bind_fails(&s, 0, 0, "m.weight is I32 [2, 4], expected a matrix of numbers");
    scratch_close(&s);
}

/* 8-bit floats with a scale for each tile, the last ones partial. */
static void fp8_tiles_are_scaled(void **state)
{
    (void)state;
    enum { OUT = 5, IN = 7 };
    static const uint8_t codes[OUT * IN] = {0x38, 0x40, 0xb8, 0x30, 0x01, 0x7e, 0xfe, 0x38};
    const float scales[2 * 3] = {1, 2, 3, 4, 5, 6};
    uint16_t bf16[6];
    for (int i = 0; i < 6; i++) bf16[i] = pl_f32_to_bf16(scales[i]);
    const char *config = "{\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\","
                         "\"activation_scheme\":\"dynamic\",\"weight_block_size\":[3,3]}}";
    scratch s;
    scratch_open(&s);
    pl_tensor m[2] = {
        {.name = "m.weight", .type = PL_F8_E4M3, .n_dims = 2, .shape = {OUT, IN}, .data = codes},
        {.name = "m.weight_scale_inv", .type = PL_F32, .n_dims = 2, .shape = {2, 3}, .data = scales}};
    for (int half = 0; half < 2; half++) {
        write_tensors(&s, "model.safetensors", m, 2);
        scratch_text(&s, "config.json", config);
        pleach_checkpoint *c = open_folder(s.dir);
        pl_weight w;
        pleach_error err;
        float dst[OUT * IN];
        assert_int_equal(pleach_checkpoint_count(c), 1); /* the scales belong to the weight */
        assert_int_equal(pl_checkpoint_weight(c, "m", OUT, IN, &w, &err), PLEACH_OK);
        pl_weight_rows_f32(&w, 0, OUT, dst);
        for (int r = 0; r < OUT; r++)
            for (int i = 0; i < IN; i++)
                assert_true(dst[r * IN + i] ==
                            pl_e4m3_to_f32(codes[r * IN + i]) * scales[r / 3 * 3 + i / 3]);
        pleach_checkpoint_close(c);
        m[1].type = PL_BF16;
        m[1].data = bf16;
    }
    m[1].shape[1] = 2;
    write_tensors(&s, "model.safetensors", m, 2);
    refuse_folder(s.dir, PLEACH_ERR_SHAPE, "weight_scale_inv is BF16 [2, 2], expected F32 or BF16 [2, 3]");
    write_tensors(&s, "model.safetensors", m, 1);
    refuse_folder(s.dir, PLEACH_ERR_MISSING, "tensor m.weight_scale_inv is missing");
    write_tensors(&s, "model.safetensors", m, 2);
    scratch_text(&s, "config.json", "{}");
    refuse_folder(s.dir, PLEACH_ERR_UNSUPPORTED, "no fp8 quantization_config");
    scratch_close(&s);
}

/* ---- affine -------------------------------------------------------------------------------- */

static float rounded(float x, pl_dtype type)
{
    if (type == PL_BF16) return pl_bf16_to_f32(pl_f32_to_bf16(x));
    if (type == PL_F16) return pl_fp16_to_f32(pl_f32_to_fp16(x));
    return x;
}

static void affine_case(const scratch *s, uint32_t bits, uint32_t group, pl_dtype type)
{
    enum { OUT = 3, IN = 256 };
    uint64_t seed = bits * 1000 + group + type;
    static uint32_t words[OUT * IN / 4];
    static float scale32[OUT * IN / 32], bias32[OUT * IN / 32], dst[OUT * IN];
    static uint16_t scale16[OUT * IN / 32], bias16[OUT * IN / 32];
    uint32_t row_words = IN * bits / 32, groups = IN / group;
    for (uint32_t i = 0; i < OUT * row_words; i++) words[i] = (uint32_t)pl_random_next(&seed);
    for (uint32_t i = 0; i < OUT * groups; i++) {
        scale32[i] = rounded((float)pl_random_unit(&seed) - 0.5f, type);
        bias32[i] = rounded((float)pl_random_unit(&seed) - 0.5f, type);
        scale16[i] = type == PL_F16 ? pl_f32_to_fp16(scale32[i]) : pl_f32_to_bf16(scale32[i]);
        bias16[i] = type == PL_F16 ? pl_f32_to_fp16(bias32[i]) : pl_f32_to_bf16(bias32[i]);
    }
    const void *scales = type == PL_F32 ? (void *)scale32 : scale16;
    const void *biases = type == PL_F32 ? (void *)bias32 : bias16;
    pl_tensor m[3] = {
        {.name = "m.weight", .type = PL_U32, .n_dims = 2, .shape = {OUT, row_words}, .data = words},
        {.name = "m.scales", .type = type, .n_dims = 2, .shape = {OUT, groups}, .data = scales},
        {.name = "m.biases", .type = type, .n_dims = 2, .shape = {OUT, groups}, .data = biases}};
    char map[100];
    snprintf(map, sizeof map, "{\"group_size\":%u,\"bits\":%u,\"mode\":\"affine\"}", group, bits);
    write_module(s, map, m, 3);
    pleach_checkpoint *c = open_folder(s->dir);
    pl_weight w;
    pleach_error err;
    if (pl_checkpoint_weight(c, "m", OUT, IN, &w, &err) != PLEACH_OK) fail_msg("%s", err.message);
    pl_weight_rows_f32(&w, 0, OUT, dst);
    for (uint32_t r = 0; r < OUT; r++)
        for (uint32_t i = 0; i < IN; i++) {
            uint32_t q = 0, g = r * groups + i / group;
            for (uint32_t b = 0; b < bits; b++) {
                uint32_t at = i * bits + b;
                q |= (words[r * row_words + at / 32] >> at % 32 & 1) << b;
            }
            float want = rounded(rounded((float)q * scale32[g], type) + bias32[g], type);
            if (dst[r * IN + i] != want)
                fail_msg("%u bits, row %u, weight %u: %g, expected %g", bits, r, i,
                         dst[r * IN + i], want);
        }
    pleach_checkpoint_close(c);
}

static void affine_codes_are_a_string_of_bits(void **state)
{
    (void)state;
    static const uint32_t widths[] = {2, 3, 4, 5, 6, 8};
    static const pl_dtype types[] = {PL_BF16, PL_F16, PL_F32};
    scratch s;
    scratch_open(&s);
    for (size_t i = 0; i < PL_COUNT(widths); i++)
        for (size_t j = 0; j < PL_COUNT(types); j++)
            affine_case(&s, widths[i], 32u << j, types[j]);
    scratch_close(&s);
}

static void affine_faults_are_named(void **state)
{
    (void)state;
    static const uint32_t zeros[256];
    const char *map = "{\"group_size\":64,\"bits\":4}";
    scratch s;
    scratch_open(&s);
    pl_tensor m[3] = {
        {.name = "m.weight", .type = PL_U32, .n_dims = 2, .shape = {2, 16}, .data = zeros},
        {.name = "m.scales", .type = PL_F16, .n_dims = 2, .shape = {2, 2}, .data = zeros},
        {.name = "m.biases", .type = PL_F16, .n_dims = 2, .shape = {2, 2}, .data = zeros}};
    write_module(&s, map, m, 3);
    pleach_checkpoint_close(open_folder(s.dir));
    write_module(&s, NULL, m, 3);
    refuse_folder(s.dir, PLEACH_ERR_MISSING, "does not say how it is coded");
    write_module(&s, map, m, 2);
    refuse_folder(s.dir, PLEACH_ERR_MISSING, "does not say how it is coded");
    write_module(&s, "{\"m\":{\"group_size\":64,\"bits\":4}}", m, 2);
    refuse_folder(s.dir, PLEACH_ERR_MISSING, "tensor m.biases is missing");
    write_module(&s, "{\"m\":{\"group_size\":64,\"bits\":3}}", m, 3);
    refuse_folder(s.dir, PLEACH_ERR_SHAPE, "U32 [2, 16], expected U32 [2, 12] for 3 bits in groups of 64");
    write_module(&s, "{\"m\":{\"group_size\":64,\"bits\":7}}", m, 3);
    refuse_folder(s.dir, PLEACH_ERR_UNSUPPORTED, "bits is 7");
    write_module(&s, "{\"m\":{\"group_size\":96,\"bits\":4}}", m, 3);
    refuse_folder(s.dir, PLEACH_ERR_UNSUPPORTED, "group_size is 96");
    write_module(&s, "{\"m\":{\"group_size\":32,\"bits\":4,\"mode\":\"mxfp4\"}}", m, 3);
    refuse_folder(s.dir, PLEACH_ERR_UNSUPPORTED, "quantization of m: mode mxfp4");
    write_module(&s, "{\"m\":{\"group_size\":32,\"bits\":4,\"zero\":1}}", m, 3);
    refuse_folder(s.dir, PLEACH_ERR_UNSUPPORTED, "quantization of m: zero is not supported");
    write_module(&s, "{\"m\":4}", m, 3);
    refuse_folder(s.dir, PLEACH_ERR_UNSUPPORTED, "quantization of m: an integer");
    write_module(&s, "{\"quant_method\":\"gptq\",\"bits\":4}", m, 3);
    refuse_folder(s.dir, PLEACH_ERR_UNSUPPORTED, "quant_method gptq is not supported");
    m[2].type = PL_BF16;
    write_module(&s, map, m, 3);
    refuse_folder(s.dir, PLEACH_ERR_SHAPE, "m.biases is BF16 [2, 2], expected F16 [2, 2]");
    m[1].shape[1] = 1;
    write_module(&s, map, m, 3);
    refuse_folder(s.dir, PLEACH_ERR_SHAPE, "expected U32 [2, 8]");
    m[0] = small("m.weight");
    write_module(&s, "{\"group_size\":64,\"bits\":4,\"m\":false}", m, 1);
    pleach_checkpoint_close(open_folder(s.dir));
    scratch_close(&s);
}

/* ---- trellis ------------------------------------------------------------------------------- */

enum { ROWS = 24, COLS = 96, BLOCK = 32, WIDTH = 80 }; /* 80 of 96 coded numbers are real */

static uint32_t codes[ROWS * COLS * 4 / 32 + 1];
static uint16_t row_scales[ROWS];
static float output_scales[COLS];

/* A trellis module of k bits, its codes random. */
static void trellis_tensors(pl_tensor m[3], uint32_t k, uint64_t out)
{
    uint64_t seed = k;
    for (size_t i = 0; i < PL_COUNT(codes); i++) codes[i] = (uint32_t)pl_random_next(&seed);
    for (size_t i = 0; i < ROWS; i++) row_scales[i] = pl_f32_to_fp16(0.5f + (float)i / 16);
    for (size_t i = 0; i < COLS; i++) output_scales[i] = 1 + (float)i / 8;
    m[0] = (pl_tensor){.name = "m.weight", .type = PL_U32, .n_dims = 2,
                       .shape = {ROWS, COLS * k / 32}, .data = codes};
    m[1] = (pl_tensor){.name = "m.scales", .type = PL_F16, .n_dims = 1, .shape = {ROWS},
                       .data = row_scales};
    m[2] = (pl_tensor){.name = "m.output_scale", .type = PL_F32, .n_dims = 1, .shape = {out},
                       .data = output_scales};
}

static void trellis_map(char map[500], uint32_t k, uint32_t axis, const char *more)
{
    snprintf(map, 500,
             "{\"m\":{\"bits\":%u,\"group_size\":%d,\"mode\":\"trellis\",\"trellis\":{\"L\":12,"
             "\"code\":\"1mad\",\"axis\":%u%s}}}", k, BLOCK, axis, more);
}

/* R[i][j] of a rotation, from its definition. */
static double rotation_at(const pl_rotation *r, uint64_t i, uint64_t j)
{
    if (!r->block) return i == j;
    if (i / r->block != j / r->block) return 0;
    uint64_t both = (i % r->block) & (j % r->block);
    double sign = pl_mix64(r->seed + 0x9e3779b97f4a7c15u * (i + 1)) & 1 ? -1 : 1;
    return (__builtin_popcountll(both) & 1 ? -sign : sign) / sqrt(r->block);
}

/* W = diag(output_scale) R_out W' R_in^T, element by element. */
static void dense_is_the_definition(const pl_weight *w)
{
    static float decoded[ROWS * COLS], got[COLS * COLS];
    pleach_error err;
    assert_int_equal(pleach_trellis_decode(&w->trellis, decoded, codes, row_scales), PLEACH_OK);
    assert_int_equal(pl_weight_dense_f32(w, got, &err), PLEACH_OK);
    for (uint64_t o = 0; o < w->out; o++)
        for (uint64_t i = 0; i < w->in; i++) {
            double want = 0;
            for (uint64_t a = 0; a < w->out; a++) {
                double left = rotation_at(&w->rotate_out, o, a);
                for (uint64_t b = 0; left != 0 && b < w->in; b++)
                    want += left * decoded[w->trellis.axis ? a * COLS + b : b * COLS + a] *
                            rotation_at(&w->rotate_in, i, b);
            }
            if (w->output_scale) want *= output_scales[o];
            if (fabs(got[o * w->in + i] - want) > 1e-4 * (1 + fabs(want)))
                fail_msg("W[%d][%d] is %g, expected %g", (int)o, (int)i, got[o * w->in + i], want);
        }
}

static void trellis_weights_undo_their_rotations(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    for (uint32_t axis = 0; axis < 2; axis++)
        for (uint32_t k = 2; k <= 4; k++) {
            uint64_t out = axis ? ROWS : WIDTH, in = axis ? WIDTH : ROWS;
            pl_tensor m[3];
            char map[500], more[300];
            snprintf(more, sizeof more, ",\"width\":%d,\"output_scale\":true,\"input_rotation\":"
                     "{\"kind\":\"hadamard\",\"block\":8,\"seed\":9007199254740991},"
                     "\"output_rotation\":{\"kind\":\"hadamard\",\"block\":8,\"seed\":5}", WIDTH);
            trellis_tensors(m, k, out);
            trellis_map(map, k, axis, more);
            write_module(&s, map, m, 3);
            pleach_checkpoint *c = open_folder(s.dir);
            pl_weight w;
            pleach_error err;
            if (pl_checkpoint_weight(c, "m", out, in, &w, &err) != PLEACH_OK)
                fail_msg("%s", err.message);
            assert_int_equal(w.coding, PL_CODING_TRELLIS);
            assert_true(w.rotate_in.seed == 9007199254740991u && w.rotate_out.block == 8);
            dense_is_the_definition(&w);
            pleach_checkpoint_close(c);
        }
    scratch_close(&s);
}

static void refuse_trellis(const scratch *s, pl_tensor m[3], const char *more, const char *message)
{
    char map[500];
    pleach_checkpoint *c;
    pleach_error err = {0};
    trellis_map(map, 3, 1, more);
    write_module(s, map, m, 3);
    if (pl_checkpoint_open(s->dir, &c, &err) == PLEACH_OK || !strstr(err.message, message))
        fail_msg("'%s' does not say '%s'", err.message, message);
}

/* With the codes in another shape, no larger than their own. */
static void refuse_shape(const scratch *s, pl_tensor m[3], uint32_t n_dims, const uint64_t *shape,
                         const char *message)
{
    pl_tensor own = m[0];
    m[0].n_dims = n_dims;
    memcpy(m[0].shape, shape, sizeof m[0].shape);
    refuse_trellis(s, m, "", message);
    m[0] = own;
}

static void trellis_faults_are_named(void **state)
{
    (void)state;
    scratch s;
    scratch_open(&s);
    pl_tensor m[3];
    const char *words = "expected U32 [24, words of whole blocks of 32 weights of 3 bits]";
    trellis_tensors(m, 3, ROWS);
    refuse_shape(&s, m, 1, (uint64_t[4]){ROWS * 9}, words);         /* flattened */
    refuse_shape(&s, m, 2, (uint64_t[4]){9, ROWS}, words);          /* transposed */
    refuse_shape(&s, m, 2, (uint64_t[4]){ROWS, 8}, "U32 [24, 8], expected");
    refuse_shape(&s, m, 2, (uint64_t[4]){ROWS, 0}, "U32 [24, 0], expected");
    refuse_shape(&s, m, 3, (uint64_t[4]){1, ROWS, 6}, "m.weight: "); /* interleaved, T not 256 */
    refuse_shape(&s, m, 3, (uint64_t[4]){1, ROWS, 9}, "U32 [1, 24, 9], expected");
    m[0].type = PL_I32;
    refuse_trellis(&s, m, "", "m.weight is I32 [24, 9]");
    m[0].type = PL_U32;
    m[1].shape[0] = ROWS - 1;
    refuse_trellis(&s, m, "", "expected U32 [23, words");
    m[1].shape[0] = ROWS, m[1].type = PL_BF16;
    refuse_trellis(&s, m, "", "m.scales is BF16 [24], expected F16");
    m[1].type = PL_F16;
    refuse_trellis(&s, m, ",\"width\":64", "does not fit width 64 in blocks of 32");
    refuse_trellis(&s, m, ",\"width\":97", "does not fit width 97");
    refuse_trellis(&s, m, ",\"lut\":[1]", "quantization of m: trellis.lut is not supported");
    refuse_trellis(&s, m, ",\"input_rotation\":{\"kind\":\"dct\",\"block\":8,\"seed\":1}", "kind dct");
    refuse_trellis(&s, m, ",\"input_rotation\":{\"kind\":\"hadamard\",\"block\":12,\"seed\":1}",
                   "block is 12, expected a power of two");
    refuse_trellis(&s, m, ",\"input_rotation\":{\"kind\":\"hadamard\",\"block\":64,\"seed\":1}",
                   "input rotation block 64 does not divide 96");
    refuse_trellis(&s, m, ",\"input_rotation\":{\"kind\":\"hadamard\",\"block\":8,\"seed\":1,\"x\":2}",
                   "input_rotation.x is not supported");
    refuse_trellis(&s, m, ",\"input_rotation\":{\"kind\":\"hadamard\",\"block\":8}",
                   "input_rotation.seed is missing");
    refuse_trellis(&s, m,
                   ",\"input_rotation\":{\"kind\":\"hadamard\",\"block\":8,\"seed\":9007199254740992}",
                   "seed is 9007199254740992");
    m[2].shape[0] = ROWS + 1;
    refuse_trellis(&s, m, ",\"output_scale\":true", "m.output_scale is F32 [25], expected");
    m[2].shape[0] = ROWS;
    static const char *const entries[][2] = {
        {"\"L\":13,\"code\":\"1mad\",\"axis\":1", "state_bits is 13"},
        {"\"L\":12,\"code\":\"3inst\",\"axis\":1", "trellis.code 3inst is not supported"},
        {"\"L\":12,\"code\":\"1mad\",\"axis\":2", "trellis.axis is 2"},
        {"\"L\":12,\"code\":\"1mad\"", "trellis.axis is missing"},
    };
    for (size_t i = 0; i < PL_COUNT(entries); i++) {
        char map[500];
        snprintf(map, sizeof map,
                 "{\"m\":{\"bits\":3,\"group_size\":32,\"mode\":\"trellis\",\"trellis\":{%s}}}",
                 entries[i][0]);
        write_module(&s, map, m, 3);
        pleach_checkpoint *c;
        pleach_error err = {0};
        assert_int_not_equal(pl_checkpoint_open(s.dir, &c, &err), PLEACH_OK);
        if (!strstr(err.message, entries[i][1])) fail_msg("%s", err.message);
    }
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_module_of_the_goldens_binds),
        cmocka_unit_test(inspection_counts_every_part),
        cmocka_unit_test(a_written_config_reads_back),
        cmocka_unit_test(shards_are_joined_or_named),
        cmocka_unit_test(a_truncated_file_is_refused),
        cmocka_unit_test(a_foreign_architecture_opens_for_inspection),
        cmocka_unit_test(end_tokens_come_from_both_configs),
        cmocka_unit_test(dense_shapes_are_checked),
        cmocka_unit_test(fp8_tiles_are_scaled),
        cmocka_unit_test(affine_codes_are_a_string_of_bits),
        cmocka_unit_test(affine_faults_are_named),
        cmocka_unit_test(trellis_weights_undo_their_rotations),
        cmocka_unit_test(trellis_faults_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
