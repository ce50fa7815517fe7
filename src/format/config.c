/* SPDX-License-Identifier: Apache-2.0
 *
 * What holds for a model config wherever it was read: names, and checks between its numbers. */
#include "config.h"

#include <math.h>

const char *const pl_arch_names[PL_ARCH_COUNT] = {
    [PL_ARCH_LLAMA] = "llama",
    [PL_ARCH_MISTRAL] = "mistral",
    [PL_ARCH_QWEN2] = "qwen2",
    [PL_ARCH_QWEN3] = "qwen3",
    [PL_ARCH_GEMMA3] = "gemma3_text",
    [PL_ARCH_MIXTRAL] = "mixtral",
    [PL_ARCH_QWEN3_MOE] = "qwen3_moe",
    [PL_ARCH_QWEN35] = "qwen3_5_text",
    [PL_ARCH_QWEN35_MOE] = "qwen3_5_moe_text",
};

const char *const pl_arch_classes[PL_ARCH_COUNT] = {
    [PL_ARCH_LLAMA] = "LlamaForCausalLM",
    [PL_ARCH_MISTRAL] = "MistralForCausalLM",
    [PL_ARCH_QWEN2] = "Qwen2ForCausalLM",
    [PL_ARCH_QWEN3] = "Qwen3ForCausalLM",
    [PL_ARCH_GEMMA3] = "Gemma3ForCausalLM",
    [PL_ARCH_MIXTRAL] = "MixtralForCausalLM",
    [PL_ARCH_QWEN3_MOE] = "Qwen3MoeForCausalLM",
    [PL_ARCH_QWEN35] = "Qwen3_5ForCausalLM",
    [PL_ARCH_QWEN35_MOE] = "Qwen3_5MoeForCausalLM",
};

pleach_status pl_config_check(const char *file, const pl_config *c, pleach_error *err)
{
    PL_FAIL_IF(c->n_heads % c->n_kv_heads != 0, err, PLEACH_ERR_FORMAT,
               "%s: %u attention heads do not divide among num_key_value_heads %u", file,
               c->n_heads, c->n_kv_heads);
    PL_FAIL_IF(c->head_dim % 2 != 0, err, PLEACH_ERR_FORMAT,
               "%s: head_dim is %u, expected an even number", file, c->head_dim);
    PL_FAIL_IF((uint64_t)c->n_heads * c->head_dim > 1u << 20, err, PLEACH_ERR_FORMAT,
               "%s: %u attention heads of head_dim %u are more than %u numbers", file, c->n_heads,
               c->head_dim, 1u << 20);
    const pl_delta_config *d = &c->delta;
    if (!d->taps) return PLEACH_OK;
    PL_FAIL_IF(d->value_heads % d->key_heads != 0, err, PLEACH_ERR_FORMAT,
               "%s: linear_num_value_heads %u do not divide among linear_num_key_heads %u", file,
               d->value_heads, d->key_heads);
    PL_FAIL_IF(d->value_dim % 32 != 0, err, PLEACH_ERR_UNSUPPORTED,
               "%s: linear_value_head_dim %u is not supported, only multiples of 32 are", file,
               d->value_dim);
    return PLEACH_OK;
}

bool pl_config_add_end_token(pl_config *c, int32_t id)
{
    for (uint32_t i = 0; i < c->n_end_tokens; i++)
        if (c->end_tokens[i] == id) return true;
    if (c->n_end_tokens == PL_MAX_END_TOKENS) return false;
    c->end_tokens[c->n_end_tokens++] = id;
    return true;
}

void pl_config_gemma(pl_config *c)
{
    c->post_norms = true;
    c->norm_offset = 1;
    c->embedding_scale = (float)sqrt((double)c->hidden_size);
    c->activation = PL_ACTIVATION_GELU_TANH;
}

double pl_yarn_attention(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

uint32_t pl_config_window(const pl_config *c, uint32_t layer)
{
    return c->layer[layer].slides ? c->sliding_window : 0;
}
