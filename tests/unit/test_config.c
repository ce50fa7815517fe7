/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json: what absent, null and odd values mean, and what is refused by name. Each case is a
 * patch to a small config that is legal by itself. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "format/config.h"

static const char base[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"vocab_size\":100,"
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":512,"
    "\"rms_norm_eps\":1e-5}";

static json_t *parse(const char *text)
{
    json_t *o = json_loads(text, JSON_DECODE_ANY, NULL);
    if (!o) fail_msg("bad test JSON: %s", text);
    return o;
}

/* The base with the patch's keys set; a key whose value is "-" is taken out. */
static json_t *patched(const char *patch)
{
    json_t *config = parse(base), *p = parse(patch), *value;
    const char *key;
    json_object_foreach(p, key, value) {
        const char *text = json_string_value(value);
        if (text && strcmp(text, "-") == 0) json_object_del(config, key);
        else json_object_set(config, key, value);
    }
    json_decref(p);
    return config;
}

static pl_config read_both(const char *patch, const char *generation)
{
    pl_config c;
    pleach_error err;
    json_t *config = patched(patch), *g = generation ? parse(generation) : NULL;
    if (pl_config_from_json("config.json", config, g, &c, &err) != PLEACH_OK)
        fail_msg("%s: %s", patch, err.message);
    json_decref(config);
    json_decref(g);
    return c;
}

static pl_config read(const char *patch) { return read_both(patch, NULL); }

static void refuse(const char *patch, const char *message)
{
    pl_config c;
    pleach_error err = {0};
    json_t *config = patched(patch);
    pleach_status status = pl_config_from_json("config.json", config, NULL, &c, &err);
    if (status == PLEACH_OK || !strstr(err.message, message))
        fail_msg("%s: '%s' does not say '%s'", patch, err.message, message);
    assert_non_null(strstr(err.message, "config.json: "));
    json_decref(config);
}

#define MISTRAL "\"architectures\":[\"MistralForCausalLM\"]"
#define QWEN2 "\"architectures\":[\"Qwen2ForCausalLM\"]"
#define QWEN3 "\"architectures\":[\"Qwen3ForCausalLM\"]"

static void architecture_is_named(void **state)
{
    (void)state;
    assert_int_equal(read("{}").arch, PL_ARCH_LLAMA);
    assert_int_equal(read("{" MISTRAL "}").arch, PL_ARCH_MISTRAL);
    assert_string_equal(read("{" QWEN2 ",\"num_key_value_heads\":2}").arch_name, "qwen2");
    assert_true(read("{" QWEN3 "}").qk_norm);
    assert_int_equal(read("{\"architectures\":\"-\",\"model_type\":\"qwen3\"}").arch, PL_ARCH_QWEN3);
    refuse("{\"architectures\":[\"GPT2LMHeadModel\"]}", "architecture GPT2LMHeadModel");
    refuse("{\"architectures\":\"-\",\"model_type\":\"mamba\"}", "architecture mamba");
    refuse("{\"architectures\":\"-\",\"model_type\":\"-\"}", "model_type is missing");
    refuse("{\"architectures\":[]}", "not a list of names");
    refuse("{\"architectures\":\"llama\"}", "not a list of names");
}

static void sizes_are_derived_and_checked(void **state)
{
    (void)state;
    assert_int_equal(read("{}").head_dim, 16);
    assert_int_equal(read("{\"head_dim\":null}").head_dim, 16);
    assert_int_equal(read("{\"head_dim\":32}").head_dim, 32);
    assert_int_equal(read("{\"head_dim\":32}").rope.dims, 32);
    assert_int_equal(read("{" QWEN3 "}").head_dim, 128); /* the class's default */
    assert_int_equal(read("{\"num_key_value_heads\":\"-\"}").n_kv_heads, 4);
    assert_int_equal(read("{\"num_key_value_heads\":null}").n_kv_heads, 4);
    assert_int_equal(read("{\"hidden_size\":64.0}").hidden_size, 64);
    assert_true(read("{}").rms_norm_eps == 1e-5f);
    assert_true(read("{\"rms_norm_eps\":\"-\"}").rms_norm_eps == 1e-6f);
    refuse("{\"num_key_value_heads\":3}", "num_key_value_heads 3");
    refuse("{\"num_key_value_heads\":8}", "num_key_value_heads is 8, expected 1 to 4");
    refuse("{\"head_dim\":33}", "head_dim is 33, expected an even");
    refuse("{\"head_dim\":0}", "head_dim is 0");
    refuse("{\"hidden_size\":0}", "hidden_size is 0");
    refuse("{\"hidden_size\":-64}", "hidden_size is -64");
    refuse("{\"hidden_size\":64.5}", "hidden_size is a number, expected a whole number");
    refuse("{\"hidden_size\":\"64\"}", "hidden_size is a string");
    refuse("{\"hidden_size\":1e300}", "hidden_size is 1.00");
    refuse("{\"vocab_size\":4294967297}", "vocab_size is 4294967297");
    refuse("{\"vocab_size\":\"-\"}", "vocab_size is missing");
    refuse("{\"num_hidden_layers\":513}", "num_hidden_layers is 513");
    refuse("{\"num_attention_heads\":128}", "leaves no head_dim");
    refuse("{\"num_attention_heads\":65536,\"head_dim\":4096}", "more than 1048576 numbers");
    refuse("{\"rms_norm_eps\":-1}", "rms_norm_eps is -1");
    refuse("{\"max_position_embeddings\":1e12}", "max_position_embeddings");
}

static void switches_follow_the_family(void **state)
{
    (void)state;
    assert_false(read("{}").tie_embeddings);
    assert_true(read("{\"tie_word_embeddings\":true}").tie_embeddings);
    assert_true(read("{" QWEN2 "}").attention_bias);
    assert_false(read("{" QWEN2 "}").output_bias);
    pl_config c = read("{\"attention_bias\":true,\"mlp_bias\":true}");
    assert_true(c.attention_bias && c.output_bias && c.mlp_bias);
    assert_false(read("{" MISTRAL ",\"attention_bias\":true}").attention_bias);
    refuse("{\"hidden_act\":\"gelu\"}", "hidden_act gelu");
    refuse("{\"hidden_act\":[1]}", "hidden_act an array");
    refuse("{\"tie_word_embeddings\":1}", "tie_word_embeddings is an integer");
    refuse("{\"partial_rotary_factor\":0.5}", "partial_rotary_factor 0.5");
    refuse("{\"rope_parameters\":{\"partial_rotary_factor\":0.5}}", "partial_rotary_factor 0.5");
}

static void end_tokens_are_gathered(void **state)
{
    (void)state;
    pl_config c = read_both("{\"eos_token_id\":2,\"bos_token_id\":1}", "{\"eos_token_id\":[2,7]}");
    assert_int_equal(c.n_end_tokens, 2);
    assert_int_equal(c.end_tokens[0], 2);
    assert_int_equal(c.end_tokens[1], 7);
    assert_int_equal(c.bos, 1);
    assert_int_equal(c.pad, -1);
    c = read("{\"eos_token_id\":[5,6,5]}");
    assert_int_equal(c.n_end_tokens, 2);
    assert_int_equal(read("{\"eos_token_id\":null,\"bos_token_id\":null}").n_end_tokens, 0);
    refuse("{\"eos_token_id\":\"2\"}", "eos_token_id is not a token id");
    refuse("{\"eos_token_id\":[2.5]}", "eos_token_id is not a token id");
    refuse("{\"bos_token_id\":-7}", "bos_token_id is not a token id");
    refuse("{\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}",
           "more than 16 end tokens");
}

static void windows_slide_where_asked(void **state)
{
    (void)state;
    pl_config c = read("{" MISTRAL ",\"sliding_window\":32}");
    assert_int_equal(pl_config_window(&c, 0), 32);
    assert_int_equal(pl_config_window(&c, 2), 32);
    c = read("{" MISTRAL ",\"sliding_window\":null}");
    assert_int_equal(pl_config_window(&c, 0), 0);
    c = read("{" MISTRAL "}"); /* the class's default */
    assert_int_equal(pl_config_window(&c, 0), 4096);
    c = read("{" MISTRAL ",\"sliding_window\":32,\"use_sliding_window\":false}");
    assert_int_equal(pl_config_window(&c, 0), 0);
    c = read("{" QWEN2 ",\"sliding_window\":32,\"use_sliding_window\":false}");
    assert_int_equal(pl_config_window(&c, 2), 0);
    c = read("{" QWEN2 ",\"sliding_window\":32,\"use_sliding_window\":true,"
             "\"max_window_layers\":1}");
    assert_int_equal(pl_config_window(&c, 0), 0);
    assert_int_equal(pl_config_window(&c, 1), 32);
    c = read("{" QWEN3 ",\"sliding_window\":32,\"use_sliding_window\":true,\"layer_types\":"
             "[\"sliding_attention\",\"full_attention\",\"sliding_attention\"]}");
    assert_int_equal(pl_config_window(&c, 0), 32);
    assert_int_equal(pl_config_window(&c, 1), 0);
    assert_int_equal(pl_config_window(&c, 2), 32);
    c = read("{\"sliding_window\":32}"); /* the llama class has none */
    assert_int_equal(pl_config_window(&c, 0), 0);
    refuse("{" QWEN3 ",\"layer_types\":[\"full_attention\"]}", "layer_types is an array of 1");
    refuse("{" QWEN3 ",\"layer_types\":[\"full_attention\",\"linear_attention\",\"x\"]}",
           "entry 1, linear_attention");
}

/* ---- rotary embedding ---------------------------------------------------------------------- */

static void theta_is_found_in_both_places(void **state)
{
    (void)state;
    assert_true(read("{}").rope.theta == 10000);
    assert_true(read("{\"rope_theta\":500000}").rope.theta == 500000);
    pl_config c = read("{\"rope_parameters\":{\"rope_theta\":1e6,\"rope_type\":\"default\"}}");
    assert_true(c.rope.theta == 1e6 && c.rope.kind == PL_ROPE_DEFAULT);
    assert_int_equal(read("{\"rope_scaling\":null,\"rope_theta\":5}").rope.kind, PL_ROPE_DEFAULT);
    refuse("{\"rope_theta\":0}", "rope_theta is 0");
    refuse("{\"rope_parameters\":{\"rope_theta\":\"x\"}}", "rope_parameters.rope_theta is a string");
    refuse("{\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e6}}}",
           "rope_parameters.full_attention has parameters of its own");
    refuse("{\"rope_scaling\":[]}", "rope_scaling is an array");
}

static void scaling_kinds_are_told_apart(void **state)
{
    (void)state;
    pl_rope_config r = read("{\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}").rope;
    assert_true(r.kind == PL_ROPE_LINEAR && r.factor == 4 && r.attention_factor == 1);
    r = read("{\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
             "\"low_freq_factor\":1,\"high_freq_factor\":4,"
             "\"original_max_position_embeddings\":64}}").rope;
    assert_true(r.kind == PL_ROPE_LLAMA3 && r.factor == 8 && r.original_context == 64);
    assert_true(r.low_freq_factor == 1 && r.high_freq_factor == 4 && r.theta == 5e5);
    refuse("{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}",
           "rope_scaling.low_freq_factor is missing");
    refuse("{\"rope_scaling\":{\"type\":\"longrope\"}}", "rope_scaling.type longrope");
    refuse("{\"rope_parameters\":{\"rope_type\":\"dynamic\"}}", "rope_parameters.rope_type dynamic");
    refuse("{\"rope_scaling\":{\"type\":\"linear\"}}", "rope_scaling.factor is missing");
    refuse("{\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}", "rope_scaling.factor is 0");
}

static pl_rope_config yarn(const char *more)
{
    char patch[300];
    snprintf(patch, sizeof patch, "{\"rope_scaling\":{\"rope_type\":\"yarn\"%s}}", more);
    return read(patch).rope;
}

static void yarn_has_its_attention_factor(void **state)
{
    (void)state;
    double four = 0.1 * log(4) + 1;
    pl_rope_config r = yarn(",\"factor\":4");
    assert_true(r.kind == PL_ROPE_YARN && r.factor == 4 && r.original_context == 512);
    assert_true(r.beta_fast == 32 && r.beta_slow == 1 && r.truncate);
    assert_true(fabs(r.attention_factor - four) < 1e-12);
    r = yarn(",\"factor\":4,\"mscale\":0.5,\"mscale_all_dim\":2");
    assert_true(fabs(r.attention_factor - (0.05 * log(4) + 1) / (0.2 * log(4) + 1)) < 1e-12);
    r = yarn(",\"factor\":4,\"mscale\":0.5"); /* alone it does not count */
    assert_true(fabs(r.attention_factor - four) < 1e-12);
    r = yarn(",\"factor\":4,\"mscale\":0.5,\"mscale_all_dim\":2,\"attention_factor\":0.75");
    assert_true(r.attention_factor == 0.75);
    r = yarn(",\"factor\":4,\"truncate\":false,\"beta_fast\":16,\"beta_slow\":2,"
             "\"original_max_position_embeddings\":128");
    assert_true(!r.truncate && r.beta_fast == 16 && r.beta_slow == 2 && r.original_context == 128);
    r = yarn(",\"original_max_position_embeddings\":128"); /* the factor follows */
    assert_true(r.factor == 4);
}

/* ---- families ------------------------------------------------------------------------------ */

#define GEMMA3 "\"architectures\":[\"Gemma3ForCausalLM\"]"
#define QWEN3_MOE "\"architectures\":[\"Qwen3MoeForCausalLM\"]"
#define MIXTRAL "\"architectures\":[\"MixtralForCausalLM\"]"

static void gemma_has_its_own(void **state)
{
    (void)state;
    pl_config c = read("{" GEMMA3 ",\"num_hidden_layers\":7,\"sliding_window\":32}");
    assert_true(c.norm_offset == 1 && c.post_norms && c.qk_norm && c.tie_embeddings);
    assert_true(c.embedding_scale == 8 && c.query_scalar == 256 && c.final_soft_cap == 0);
    assert_int_equal(c.activation, PL_ACTIVATION_GELU_TANH);
    assert_true(c.head_dim == 256 && c.rope.theta == 1e6 && c.rope_local.theta == 1e4);
    assert_int_equal(pl_config_window(&c, 4), 32);
    assert_int_equal(pl_config_window(&c, 5), 0);
    assert_int_equal(pl_config_window(&c, 6), 32);
    c = read("{" GEMMA3 ",\"sliding_window_pattern\":2,\"rope_local_base_freq\":500,"
             "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8},"
             "\"final_logit_softcapping\":30}");
    assert_true(c.layer[0].slides && !c.layer[1].slides && c.final_soft_cap == 30);
    assert_true(c.rope.kind == PL_ROPE_LINEAR && c.rope.factor == 8);
    assert_true(c.rope_local.kind == PL_ROPE_DEFAULT && c.rope_local.theta == 500);
    c = read("{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"eos_token_id\":[1,106],"
             "\"text_config\":{\"hidden_size\":2560,\"intermediate_size\":10240,"
             "\"num_hidden_layers\":34,\"sliding_window\":1024}}");
    assert_true(c.arch == PL_ARCH_GEMMA3 && c.vocab_size == 262208 && c.hidden_size == 2560);
    assert_true(c.n_heads == 8 && c.n_kv_heads == 4 && c.n_end_tokens == 2);
    refuse("{" GEMMA3 ",\"attn_logit_softcapping\":50}", "attn_logit_softcapping is not supported");
    refuse("{" GEMMA3 ",\"use_bidirectional_attention\":true}", "use_bidirectional_attention");
    refuse("{" GEMMA3 ",\"hidden_activation\":\"relu\"}", "hidden_activation relu");
    refuse("{\"architectures\":[\"Gemma3ForConditionalGeneration\"]}", "text_config is nothing");
}

static void experts_are_where_the_config_has_them(void **state)
{
    (void)state;
    pl_config c = read("{" QWEN3_MOE ",\"num_experts\":16,\"num_experts_per_tok\":4,"
                       "\"moe_intermediate_size\":24,\"mlp_only_layers\":[1]}");
    assert_true(c.n_experts == 16 && c.n_experts_used == 4 && c.expert_size == 24);
    assert_true(!c.expert_renormalise && c.layer[0].experts && !c.layer[1].experts);
    assert_int_equal(pl_config_module_count(&c), 2 + 2 * (4 + 3 * 16) + 7);
    pl_module m;
    pl_config_module(&c, 1 + 4 + 3 * 15 + 2, &m);
    assert_string_equal(m.name, "model.layers.0.mlp.experts.15.down_proj");
    assert_true(m.out == 64 && m.in == 24 && m.role == PL_ROLE_FEED_OUT && m.expert);
    assert_int_equal(m.input, 2 + 2 * 15 + 1);
    pl_config_module(&c, 1 + 4 + 3 * 16 + 4, &m);
    assert_string_equal(m.name, "model.layers.1.mlp.gate_proj");
    assert_true(m.out == 96 && !m.expert);
    c = read("{" QWEN3_MOE ",\"num_local_experts\":8,\"decoder_sparse_step\":2,"
             "\"norm_topk_prob\":true}");
    assert_true(c.n_experts == 8 && c.expert_renormalise && c.expert_size == 768);
    assert_true(!c.layer[0].experts && c.layer[1].experts && !c.layer[2].experts);
    c = read("{" MIXTRAL "}");
    assert_true(c.n_experts == 8 && c.n_experts_used == 2 && c.expert_size == 96);
    assert_true(c.expert_renormalise && c.rope.theta == 1e6 && c.sliding_window == 0);
    refuse("{" QWEN3_MOE ",\"num_experts\":4,\"num_experts_per_tok\":5}",
           "num_experts_per_tok is 5, expected 1 to 4");
    refuse("{" QWEN3_MOE ",\"mlp_only_layers\":[3]}", "mlp_only_layers entry 0 is no layer");
    refuse("{" QWEN3_MOE ",\"num_experts\":100000}", "num_experts is 100000");
}

/* ---- modules ------------------------------------------------------------------------------- */

#define QWEN35 "\"architectures\":[\"Qwen3_5ForCausalLM\"]"
#define QWEN35_MOE "\"architectures\":[\"Qwen3_5MoeForCausalLM\"]"

static void qwen35_mixes_in_two_ways(void **state)
{
    (void)state;
    pl_config c = read("{" QWEN35 ",\"num_hidden_layers\":9}");
    assert_true(c.norm_offset == 1 && c.qk_norm && c.output_gate && c.head_dim == 256);
    assert_true(c.rope.dims == 64 && c.delta.key_heads == 16 && c.delta.value_heads == 32);
    assert_true(c.delta.key_dim == 128 && c.delta.value_dim == 128 && c.delta.taps == 4);
    for (uint32_t i = 0; i < 9; i++) assert_int_equal(c.layer[i].delta, i != 3 && i != 7);
    assert_int_equal(pl_config_module_count(&c), 2 + 7 * 6 + 2 * 7);
    pl_module m;
    pl_config_module(&c, 1 + 6 + 6 + 2, &m);
    assert_string_equal(m.name, "model.layers.2.linear_attn.out_proj");
    assert_true(m.out == 64 && m.in == 4096 && m.role == PL_ROLE_MIX_OUT && m.input == 1);
    pl_config_module(&c, 1 + 6, &m);
    assert_string_equal(m.name, "model.layers.1.linear_attn.in_proj_qkv");
    assert_true(m.out == 8192 && m.in == 64 && m.role == PL_ROLE_MIX_IN && m.input == 0);
    pl_config_module(&c, 1 + 3 * 6, &m);
    assert_string_equal(m.name, "model.layers.3.self_attn.q_proj");
    assert_int_equal(m.out, 2 * 4 * 256);
    c = read("{" QWEN35 ",\"full_attention_interval\":2,\"rope_parameters\":{\"rope_theta\":1e7,"
             "\"rope_type\":\"default\",\"partial_rotary_factor\":0.5,\"mrope_interleaved\":true,"
             "\"mrope_section\":[11,11,10]},\"mtp_num_hidden_layers\":1}");
    assert_true(c.rope.dims == 128 && c.rope.theta == 1e7 && c.layer[0].delta && !c.layer[1].delta);
    c = read("{" QWEN35 ",\"layer_types\":[\"full_attention\",\"linear_attention\","
             "\"linear_attention\"]}");
    assert_true(!c.layer[0].delta && c.layer[1].delta && !c.layer[1].slides);
    c = read("{\"architectures\":[\"Qwen3_5ForConditionalGeneration\"],\"text_config\":{"
             "\"hidden_size\":1024},\"tie_word_embeddings\":true}");
    assert_true(c.arch == PL_ARCH_QWEN35 && c.hidden_size == 1024 && c.tie_embeddings);
    c = read("{" QWEN35_MOE ",\"num_experts\":8,\"num_experts_per_tok\":2}");
    assert_true(c.shared_expert_size == 512 && c.expert_size == 512 && c.expert_renormalise);
    refuse("{" QWEN35 ",\"attn_output_gate\":false}", "attn_output_gate false");
    refuse("{" QWEN35 ",\"linear_value_head_dim\":48}", "linear_value_head_dim 48");
    refuse("{" QWEN35 ",\"linear_num_value_heads\":20}", "linear_num_value_heads 20");
    refuse("{" QWEN35 ",\"linear_conv_kernel_dim\":9}", "linear_conv_kernel_dim is 9");
    refuse("{" QWEN35 ",\"partial_rotary_factor\":0.001}", "partial_rotary_factor 0.001");
    refuse("{" QWEN35 ",\"layer_types\":[\"sliding_attention\",\"-\",\"-\"]}",
           "layer_types entry 0, sliding_attention");
    refuse("{\"partial_rotary_factor\":0.5}", "partial_rotary_factor 0.5 is not supported");
}

static void modules_cover_the_model(void **state)
{
    (void)state;
    pl_config c = read("{\"head_dim\":32}");
    assert_int_equal(pl_config_module_count(&c), 1 + 3 * 7 + 1);
    pl_module m;
    pl_config_module(&c, 0, &m);
    assert_string_equal(m.name, "model.embed_tokens");
    assert_true(m.out == 100 && m.in == 64);
    pl_config_module(&c, 9, &m);
    assert_string_equal(m.name, "model.layers.1.self_attn.k_proj");
    assert_true(m.out == 64 && m.in == 64 && m.layer == 1 && m.input == 0);
    pl_config_module(&c, 21, &m);
    assert_string_equal(m.name, "model.layers.2.mlp.down_proj");
    assert_true(m.out == 64 && m.in == 96 && m.input == 3 && m.kind == PL_MODULE_LINEAR);
    assert_true(m.layer == 2 && m.index == 6 && m.role == PL_ROLE_FEED_OUT);
    pl_config_module(&c, 22, &m);
    assert_string_equal(m.name, "lm_head");
    assert_int_equal(m.kind, PL_MODULE_HEAD);
    c.tie_embeddings = true;
    assert_int_equal(pl_config_module_count(&c), 22);
    pl_config_module(&c, 21, &m);
    assert_int_equal(m.kind, PL_MODULE_LINEAR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(architecture_is_named),
        cmocka_unit_test(sizes_are_derived_and_checked),
        cmocka_unit_test(switches_follow_the_family),
        cmocka_unit_test(end_tokens_are_gathered),
        cmocka_unit_test(windows_slide_where_asked),
        cmocka_unit_test(theta_is_found_in_both_places),
        cmocka_unit_test(scaling_kinds_are_told_apart),
        cmocka_unit_test(yarn_has_its_attention_factor),
        cmocka_unit_test(gemma_has_its_own),
        cmocka_unit_test(experts_are_where_the_config_has_them),
        cmocka_unit_test(qwen35_mixes_in_two_ways),
        cmocka_unit_test(modules_cover_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
