/* SPDX-License-Identifier: Apache-2.0
 *
 * A config.json made from a pl_config: what a GGUF source becomes when it is written as a folder.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "checkpoint_files.h"
#include "config.h"

/* Setting a key fails only for lack of memory; the failures add up in *failed. */
static void set(json_t *object, const char *key, json_t *value, int *failed)
{
    *failed |= json_object_set_new(object, key, value) != 0;
}

static void set_u32(json_t *object, const char *key, uint32_t value, int *failed)
{
    set(object, key, json_integer(value), failed);
}

static json_t *rope_object(const pl_rope_config *r, uint32_t head_dim, int *failed)
{
    json_t *o = json_object();
    if (r->dims < head_dim)
        set(o, "partial_rotary_factor", json_real((double)r->dims / head_dim), failed);
    static const char *const kinds[] = {"default", "linear", "llama3", "yarn"};
    set(o, "rope_type", json_string(kinds[r->kind]), failed);
    set(o, "rope_theta", json_real(r->theta), failed);
    if (r->kind != PL_ROPE_DEFAULT) set(o, "factor", json_real(r->factor), failed);
    if (r->kind == PL_ROPE_LLAMA3) {
        set(o, "low_freq_factor", json_real(r->low_freq_factor), failed);
        set(o, "high_freq_factor", json_real(r->high_freq_factor), failed);
    }
    if (r->kind == PL_ROPE_YARN) {
        set(o, "beta_fast", json_real(r->beta_fast), failed);
        set(o, "beta_slow", json_real(r->beta_slow), failed);
        set(o, "attention_factor", json_real(r->attention_factor), failed);
        set(o, "truncate", json_boolean(r->truncate), failed);
    }
    if (r->kind == PL_ROPE_LLAMA3 || r->kind == PL_ROPE_YARN)
        set(o, "original_max_position_embeddings", json_integer((json_int_t)r->original_context),
            failed);
    return o;
}

static json_t *layer_types(const pl_config *c, int *failed)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->n_layers; i++)
        *failed |= json_array_append_new(list, json_string(pl_config_window(c, i)
                                                               ? "sliding_attention"
                                                           : c->layer[i].delta
                                                               ? "linear_attention"
                                                               : "full_attention")) != 0;
    return list;
}

static json_t *end_tokens(const pl_config *c, int *failed)
{
    if (c->n_end_tokens == 1) return json_integer(c->end_tokens[0]);
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->n_end_tokens; i++)
        *failed |= json_array_append_new(list, json_integer(c->end_tokens[i])) != 0;
    return list;
}

static void set_token(json_t *o, const char *key, int32_t id, int *failed)
{
    set(o, key, id < 0 ? json_null() : json_integer(id), failed);
}

static void set_sizes(json_t *o, const pl_config *c, int *failed)
{
    set_u32(o, "vocab_size", c->vocab_size, failed);
    set_u32(o, "hidden_size", c->hidden_size, failed);
    set_u32(o, "intermediate_size", c->intermediate_size, failed);
    set_u32(o, "num_hidden_layers", c->n_layers, failed);
    set_u32(o, "num_attention_heads", c->n_heads, failed);
    set_u32(o, "num_key_value_heads", c->n_kv_heads, failed);
    set_u32(o, "head_dim", c->head_dim, failed);
    set_u32(o, "max_position_embeddings", c->context_length, failed);
}

static void set_delta(json_t *o, const pl_config *c, int *failed)
{
    const pl_delta_config *d = &c->delta;
    set_u32(o, "linear_num_key_heads", d->key_heads, failed);
    set_u32(o, "linear_num_value_heads", d->value_heads, failed);
    set_u32(o, "linear_key_head_dim", d->key_dim, failed);
    set_u32(o, "linear_value_head_dim", d->value_dim, failed);
    set_u32(o, "linear_conv_kernel_dim", d->taps, failed);
    set(o, "layer_types", layer_types(c, failed), failed);
    if (c->shared_expert_size)
        set_u32(o, "shared_expert_intermediate_size", c->shared_expert_size, failed);
}

static void set_window(json_t *o, const pl_config *c, int *failed)
{
    uint32_t w = c->sliding_window;
    if (c->delta.taps) return;
    if (c->arch == PL_ARCH_LLAMA) return;
    set(o, "sliding_window", w ? json_integer(w) : json_null(), failed);
    if (c->arch == PL_ARCH_MISTRAL || c->arch == PL_ARCH_MIXTRAL) return;
    if (c->arch != PL_ARCH_GEMMA3) set(o, "use_sliding_window", json_boolean(w != 0), failed);
    set(o, "layer_types", layer_types(c, failed), failed);
}

/* The older keys and the newer ones, which say the same. */
static void set_rope(json_t *o, const pl_config *c, int *failed)
{
    const pl_rope_config *local = &c->rope_local;
    bool plain = c->rope.kind == PL_ROPE_DEFAULT;
    set(o, "rope_theta", json_real(c->rope.theta), failed);
    set(o, "rope_scaling", plain ? json_null() : rope_object(&c->rope, c->head_dim, failed), failed);
    if (!local->dims) {
        set(o, "rope_parameters", rope_object(&c->rope, c->head_dim, failed), failed);
        return;
    }
    json_t *both = json_object();
    set(both, "full_attention", rope_object(&c->rope, c->head_dim, failed), failed);
    set(both, "sliding_attention", rope_object(local, c->head_dim, failed), failed);
    set(o, "rope_local_base_freq", json_real(local->theta), failed);
    set(o, "rope_parameters", both, failed);
}

static void set_gemma(json_t *o, const pl_config *c, int *failed)
{
    set(o, "hidden_activation", json_string("gelu_pytorch_tanh"), failed);
    set(o, "query_pre_attn_scalar", json_real(c->query_scalar), failed);
    set(o, "attn_logit_softcapping", json_null(), failed);
    set(o, "final_logit_softcapping",
        c->final_soft_cap > 0 ? json_real((double)c->final_soft_cap) : json_null(), failed);
}

static void set_experts(json_t *o, const pl_config *c, int *failed)
{
    set_u32(o, "num_experts_per_tok", c->n_experts_used, failed);
    set_u32(o, "num_local_experts", c->n_experts, failed);
    if (c->arch == PL_ARCH_MIXTRAL) return;
    set_u32(o, "num_experts", c->n_experts, failed);
    set_u32(o, "moe_intermediate_size", c->expert_size, failed);
    set(o, "norm_topk_prob", json_boolean(c->expert_renormalise), failed);
    json_t *dense = json_array();
    for (uint32_t i = 0; i < c->n_layers; i++)
        if (!c->layer[i].experts) *failed |= json_array_append_new(dense, json_integer(i)) != 0;
    set(o, "mlp_only_layers", dense, failed);
}

/* A float as the shortest decimal that reads back the same, so that 1e-5f is not 9.99999e-6. */
static double shortest(float f)
{
    char text[40];
    for (int digits = 1; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)f);
        if (strtof(text, NULL) == f) break;
    }
    return strtod(text, NULL);
}

static json_t *config_object(const pl_config *c, int *failed)
{
    json_t *o = json_object();
    set(o, "architectures", json_pack("[s]", pl_arch_classes[c->arch]), failed);
    set(o, "model_type", json_string(c->arch_name), failed);
    set_sizes(o, c, failed);
    if (c->arch == PL_ARCH_GEMMA3) set_gemma(o, c, failed);
    else set(o, "hidden_act", json_string("silu"), failed);
    if (c->n_experts) set_experts(o, c, failed);
    if (c->delta.taps) set_delta(o, c, failed);
    set(o, "rms_norm_eps", json_real(shortest(c->rms_norm_eps)), failed);
    set(o, "tie_word_embeddings", json_boolean(c->tie_embeddings), failed);
    if (c->arch != PL_ARCH_MISTRAL && c->arch != PL_ARCH_QWEN2 && c->arch != PL_ARCH_MIXTRAL)
        set(o, "attention_bias", json_boolean(c->attention_bias), failed);
    if (c->arch == PL_ARCH_LLAMA) set(o, "mlp_bias", json_boolean(c->mlp_bias), failed);
    set_rope(o, c, failed);
    set_window(o, c, failed);
    set_token(o, "bos_token_id", c->bos, failed);
    set_token(o, "pad_token_id", c->pad, failed);
    set(o, "eos_token_id", c->n_end_tokens ? end_tokens(c, failed) : json_null(), failed);
    set(o, "dtype", json_string("bfloat16"), failed);
    set(o, "torch_dtype", json_string("bfloat16"), failed);
    return o;
}

char *pl_checkpoint_make_config_text(const pleach_checkpoint *c, pleach_error *err)
{
    const pl_config *config;
    int failed = 0;
    if (pl_checkpoint_config(c, &config, err) != PLEACH_OK) return NULL;
    json_t *o = config_object(config, &failed);
    char *text = failed ? NULL : json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(15)),
         *copy = NULL;
    json_decref(o);
    if (text && (copy = pl_alloc(strlen(text) + 1, 1))) strcpy(copy, text);
    free(text);
    if (!copy) pl_fail_memory(err, "a config", 4096);
    return copy;
}
