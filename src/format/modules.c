/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrices that a model consists of, in the order in which everything walks them: the embedding,
 * each layer's linear layers, the head. A layer is a part that mixes positions and a part that
 * feeds forward; each lists its own. */
#include <stdio.h>

#include "checkpoint.h"

/* A linear layer without its layer. */
typedef struct entry {
    const char *name;
    pl_module_role role;
    uint32_t input;
    uint64_t out, in;
} entry;

enum { ATTENTION_MODULES = 4, ATTENTION_INPUTS = 2, MLP_MODULES = 3, MLP_INPUTS = 2 };

static entry attention_entry(const pl_config *c, size_t i)
{
    uint64_t C = c->hidden_size;
    uint64_t q = (uint64_t)c->n_heads * c->head_dim, kv = (uint64_t)c->n_kv_heads * c->head_dim;
    const entry all[ATTENTION_MODULES] = {
        {"self_attn.q_proj", PL_ROLE_MIX_IN, 0, q, C},
        {"self_attn.k_proj", PL_ROLE_MIX_IN, 0, kv, C},
        {"self_attn.v_proj", PL_ROLE_MIX_IN, 0, kv, C},
        {"self_attn.o_proj", PL_ROLE_MIX_OUT, 1, C, q},
    };
    return all[i];
}

static entry mlp_entry(const pl_config *c, size_t i)
{
    uint64_t C = c->hidden_size, I = c->intermediate_size;
    const entry all[MLP_MODULES] = {
        {"mlp.gate_proj", PL_ROLE_FEED_IN, 0, I, C},
        {"mlp.up_proj", PL_ROLE_FEED_IN, 0, I, C},
        {"mlp.down_proj", PL_ROLE_FEED_OUT, 1, C, I},
    };
    return all[i];
}

size_t pl_config_layer_modules(const pl_config *c, uint32_t layer)
{
    (void)c, (void)layer;
    return ATTENTION_MODULES + MLP_MODULES;
}

size_t pl_config_layer_inputs(const pl_config *c, uint32_t layer)
{
    (void)c, (void)layer;
    return ATTENTION_INPUTS + MLP_INPUTS;
}

void pl_config_layer_module(const pl_config *c, uint32_t layer, size_t i, pl_module *m)
{
    bool mixes = i < ATTENTION_MODULES;
    entry e = mixes ? attention_entry(c, i) : mlp_entry(c, i - ATTENTION_MODULES);
    *m = (pl_module){.kind = PL_MODULE_LINEAR, .layer = layer, .index = (uint32_t)i,
                     .role = e.role, .input = e.input + (mixes ? 0 : ATTENTION_INPUTS),
                     .out = e.out, .in = e.in};
    snprintf(m->name, sizeof m->name, "model.layers.%u.%s", layer, e.name);
}

size_t pl_config_module_count(const pl_config *c)
{
    size_t n = 1 + !c->tie_embeddings;
    for (uint32_t i = 0; i < c->n_layers; i++) n += pl_config_layer_modules(c, i);
    return n;
}

void pl_config_module(const pl_config *c, size_t i, pl_module *m)
{
    *m = (pl_module){.out = c->vocab_size, .in = c->hidden_size};
    if (i == 0) {
        m->kind = PL_MODULE_EMBEDDING;
        snprintf(m->name, sizeof m->name, "model.embed_tokens");
        return;
    }
    uint32_t layer = 0;
    for (i--; layer < c->n_layers && i >= pl_config_layer_modules(c, layer); layer++)
        i -= pl_config_layer_modules(c, layer);
    if (layer < c->n_layers) {
        pl_config_layer_module(c, layer, i, m);
        return;
    }
    m->kind = PL_MODULE_HEAD;
    snprintf(m->name, sizeof m->name, "lm_head");
}
