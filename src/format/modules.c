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

enum { ATTENTION_MODULES = 4, DELTA_MODULES = 3, MIX_INPUTS = 2, MLP_MODULES = 3, MLP_INPUTS = 2 };

static entry attention_entry(const pl_config *c, size_t i)
{
    uint64_t C = c->hidden_size;
    uint64_t q = (uint64_t)c->n_heads * c->head_dim, kv = (uint64_t)c->n_kv_heads * c->head_dim;
    const entry all[ATTENTION_MODULES] = {
        {"self_attn.q_proj", PL_ROLE_MIX_IN, 0, c->output_gate ? 2 * q : q, C},
        {"self_attn.k_proj", PL_ROLE_MIX_IN, 0, kv, C},
        {"self_attn.v_proj", PL_ROLE_MIX_IN, 0, kv, C},
        {"self_attn.o_proj", PL_ROLE_MIX_OUT, 1, C, q},
    };
    return all[i];
}

/* in_proj_a and in_proj_b, a row for each head, are no modules: they stay as they are. */
static entry delta_entry(const pl_config *c, size_t i)
{
    const pl_delta_config *d = &c->delta;
    uint64_t C = c->hidden_size, V = (uint64_t)d->value_heads * d->value_dim;
    uint64_t qkv = 2 * (uint64_t)d->key_heads * d->key_dim + V;
    const entry all[DELTA_MODULES] = {
        {"linear_attn.in_proj_qkv", PL_ROLE_MIX_IN, 0, qkv, C},
        {"linear_attn.in_proj_z", PL_ROLE_MIX_IN, 0, V, C},
        {"linear_attn.out_proj", PL_ROLE_MIX_OUT, 1, C, V},
    };
    return all[i];
}

static size_t mix_count(const pl_config *c, uint32_t layer)
{
    return c->layer[layer].delta ? DELTA_MODULES : ATTENTION_MODULES;
}

/* Of a dense feed-forward part of width I, or of one expert. */
static entry mlp_entry(const pl_config *c, uint64_t I, size_t i)
{
    uint64_t C = c->hidden_size;
    const entry all[MLP_MODULES] = {
        {"gate_proj", PL_ROLE_FEED_IN, 0, I, C},
        {"up_proj", PL_ROLE_FEED_IN, 0, I, C},
        {"down_proj", PL_ROLE_FEED_OUT, 1, C, I},
    };
    return all[i];
}

/* Dense feed-forward parts of a layer: the experts of a mixture, then the one that all share. */
static size_t mlp_count(const pl_config *c, uint32_t layer)
{
    return c->layer[layer].experts ? c->n_experts + (c->shared_expert_size != 0) : 1;
}

size_t pl_config_layer_modules(const pl_config *c, uint32_t layer)
{
    return mix_count(c, layer) + MLP_MODULES * mlp_count(c, layer);
}

size_t pl_config_layer_inputs(const pl_config *c, uint32_t layer)
{
    return MIX_INPUTS + MLP_INPUTS * mlp_count(c, layer);
}

/* Module i of the part that mixes positions. */
static void mix_module(const pl_config *c, size_t i, pl_module *m)
{
    entry e = c->layer[m->layer].delta ? delta_entry(c, i) : attention_entry(c, i);
    m->role = e.role;
    m->input = e.input;
    m->out = e.out;
    m->in = e.in;
    snprintf(m->name, sizeof m->name, "model.layers.%u.%s", m->layer, e.name);
}

/* Module i of a layer's feed-forward part. */
static void mlp_module(const pl_config *c, size_t i, pl_module *m)
{
    size_t which = i / MLP_MODULES;
    bool mixture = c->layer[m->layer].experts, shared = mixture && which == c->n_experts;
    uint64_t I = shared ? c->shared_expert_size : mixture ? c->expert_size : c->intermediate_size;
    entry e = mlp_entry(c, I, i % MLP_MODULES);
    char part[40] = "mlp";
    if (shared) snprintf(part, sizeof part, "mlp.shared_expert");
    else if (mixture) snprintf(part, sizeof part, "mlp.experts.%zu", which);
    m->role = e.role;
    m->input = (uint32_t)(MIX_INPUTS + MLP_INPUTS * which + e.input);
    m->out = e.out;
    m->in = e.in;
    m->expert = mixture && !shared;
    snprintf(m->name, sizeof m->name, "model.layers.%u.%s.%s", m->layer, part, e.name);
}

void pl_config_layer_module(const pl_config *c, uint32_t layer, size_t i, pl_module *m)
{
    *m = (pl_module){.kind = PL_MODULE_LINEAR, .layer = layer, .index = (uint32_t)i};
    size_t mix = mix_count(c, layer);
    if (i < mix) mix_module(c, i, m);
    else mlp_module(c, i - mix, m);
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
