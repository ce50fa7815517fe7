/* SPDX-License-Identifier: Apache-2.0
 *
 * What holds for a model config wherever it was read: checks between its numbers, the window of a
 * layer, and the list of matrices that the model consists of. */
#include "config.h"

#include <math.h>
#include <stdio.h>

const char *const pl_arch_names[4] = {
    [PL_ARCH_LLAMA] = "llama",
    [PL_ARCH_MISTRAL] = "mistral",
    [PL_ARCH_QWEN2] = "qwen2",
    [PL_ARCH_QWEN3] = "qwen3",
};

const char *const pl_arch_classes[4] = {
    [PL_ARCH_LLAMA] = "LlamaForCausalLM",
    [PL_ARCH_MISTRAL] = "MistralForCausalLM",
    [PL_ARCH_QWEN2] = "Qwen2ForCausalLM",
    [PL_ARCH_QWEN3] = "Qwen3ForCausalLM",
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

double pl_yarn_attention(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

uint32_t pl_config_window(const pl_config *c, uint32_t layer)
{
    bool slides = c->layer_windows_listed
                      ? c->layer_window[layer]
                      : layer >= c->window_from_layer && layer < c->window_to_layer;
    return slides ? c->sliding_window : 0;
}

/* ---- modules ------------------------------------------------------------------------------- */

enum { MODULES_PER_LAYER = 7 };

size_t pl_config_module_count(const pl_config *c)
{
    return 1 + (size_t)c->n_layers * MODULES_PER_LAYER + !c->tie_embeddings;
}

void pl_config_module(const pl_config *c, size_t i, pl_module *m)
{
    static const char *const names[MODULES_PER_LAYER] = {
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
        "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
    static const uint8_t inputs[MODULES_PER_LAYER] = {0, 0, 0, 1, 2, 2, 3};
    uint64_t hidden = c->hidden_size, mlp = c->intermediate_size;
    uint64_t q = (uint64_t)c->n_heads * c->head_dim, kv = (uint64_t)c->n_kv_heads * c->head_dim;
    const uint64_t shapes[MODULES_PER_LAYER][2] = {{q, hidden},  {kv, hidden},  {kv, hidden},
                                                   {hidden, q},  {mlp, hidden}, {mlp, hidden},
                                                   {hidden, mlp}};
    size_t last = pl_config_module_count(c) - 1;
    *m = (pl_module){.out = c->vocab_size, .in = hidden};
    if (i == 0) {
        m->kind = PL_MODULE_EMBEDDING;
        snprintf(m->name, sizeof m->name, "model.embed_tokens");
    } else if (i == last && !c->tie_embeddings) {
        m->kind = PL_MODULE_HEAD;
        snprintf(m->name, sizeof m->name, "lm_head");
    } else {
        size_t j = (i - 1) % MODULES_PER_LAYER;
        m->kind = PL_MODULE_LINEAR;
        m->layer = (uint32_t)((i - 1) / MODULES_PER_LAYER);
        m->input = inputs[j];
        m->out = shapes[j][0];
        m->in = shapes[j][1];
        snprintf(m->name, sizeof m->name, "model.layers.%u.%s", m->layer, names[j]);
    }
}
