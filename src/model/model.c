/* SPDX-License-Identifier: Apache-2.0
 *
 * Binding: every tensor the config asks for, found, checked and opened. The forward pass is in
 * forward.c. */
#include "model.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "rope.h"

/* A norm's gain as f32 [n] in fresh memory. */
static pleach_status bind_norm(const pleach_checkpoint *c, const char *name, uint32_t n,
                               float **out, pleach_error *err)
{
    const char *path = pl_checkpoint_path(c);
    const pl_tensor *t = pl_checkpoint_find(c, name);
    PL_FAIL_IF(!t, err, PLEACH_ERR_MISSING, "%s: tensor %s is missing", path, name);
    PL_FAIL_IF(!pl_dtype_get(t->type)->numeric, err, PLEACH_ERR_FORMAT,
               "%s: tensor %s: type %s is not a number", path, name, pl_dtype_get(t->type)->name);
    PL_FAIL_IF(t->n_dims != 1 || t->shape[0] != n, err, PLEACH_ERR_SHAPE,
               "%s: tensor %s: expected shape [%u], found %u dimensions of %llu elements", path,
               name, n, t->n_dims, (unsigned long long)pl_tensor_elements(t));
    *out = pl_alloc(n, sizeof **out);
    if (!*out) return pl_fail_memory(err, name, n * sizeof **out);
    pl_tensor_row_f32(t, 0, *out);
    return PLEACH_OK;
}

/* A linear layer; needs_bias refuses one whose bias the config promises and the file lacks. */
static pleach_status bind_linear(const pleach_checkpoint *c, const char *module, uint64_t out,
                                 uint64_t in, bool needs_bias, pl_linear *l, pleach_error *err)
{
    pl_weight w;
    PL_TRY(pl_checkpoint_weight(c, module, out, in, &w, err));
    PL_FAIL_IF(needs_bias && !w.bias, err, PLEACH_ERR_MISSING, "%s: tensor %s.bias is missing",
               pl_checkpoint_path(c), module);
    return pl_linear_open(l, &w, err);
}

static pleach_status bind_layer(const pleach_checkpoint *c, const pl_config *g, uint32_t i,
                                pl_layer *l, pleach_error *err)
{
    uint64_t C = g->hidden_size, I = g->intermediate_size, D = g->head_dim;
    const struct {
        const char *name;
        uint64_t out, in;
        bool bias;
        pl_linear *to;
    } linears[] = {
        {"self_attn.q_proj", g->n_heads * D, C, g->attention_bias, &l->q},
        {"self_attn.k_proj", g->n_kv_heads * D, C, g->attention_bias, &l->k},
        {"self_attn.v_proj", g->n_kv_heads * D, C, g->attention_bias, &l->v},
        {"self_attn.o_proj", C, g->n_heads * D, g->output_bias, &l->o},
        {"mlp.gate_proj", I, C, g->mlp_bias, &l->gate},
        {"mlp.up_proj", I, C, g->mlp_bias, &l->up},
        {"mlp.down_proj", C, I, g->mlp_bias, &l->down},
    };
    const struct {
        const char *name;
        uint32_t n;
        bool wanted;
        float **to;
    } norms[] = {
        {"input_layernorm.weight", g->hidden_size, true, &l->input_norm},
        {"post_attention_layernorm.weight", g->hidden_size, true, &l->post_norm},
        {"self_attn.q_norm.weight", g->head_dim, g->qk_norm, &l->q_norm},
        {"self_attn.k_norm.weight", g->head_dim, g->qk_norm, &l->k_norm},
    };
    char name[128];
    for (size_t j = 0; j < PL_COUNT(linears); j++) {
        snprintf(name, sizeof name, "model.layers.%u.%s", i, linears[j].name);
        PL_TRY(bind_linear(c, name, linears[j].out, linears[j].in, linears[j].bias, linears[j].to,
                           err));
    }
    for (size_t j = 0; j < PL_COUNT(norms); j++) {
        if (!norms[j].wanted) continue;
        snprintf(name, sizeof name, "model.layers.%u.%s", i, norms[j].name);
        PL_TRY(bind_norm(c, name, norms[j].n, norms[j].to, err));
    }
    l->window = pl_config_window(g, i);
    return PLEACH_OK;
}

static pleach_status bind(const pleach_checkpoint *c, pl_transformer *t, pleach_error *err)
{
    const pl_config *g = t->config;
    PL_TRY(bind_linear(c, "model.embed_tokens", g->vocab_size, g->hidden_size, false,
                       &t->embedding, err));
    PL_FAIL_IF(t->embedding.w.coding == PL_CODING_TRELLIS, err, PLEACH_ERR_UNSUPPORTED,
               "%s: model.embed_tokens is trellis-coded; rows of an embedding must be dense or "
               "affine", pl_checkpoint_path(c));
    if (g->tie_embeddings) t->head = t->embedding;
    else
        PL_TRY(bind_linear(c, "lm_head", g->vocab_size, g->hidden_size, false, &t->head, err));
    PL_TRY(bind_norm(c, "model.norm.weight", g->hidden_size, &t->final_norm, err));
    for (uint32_t i = 0; i < g->n_layers; i++) PL_TRY(bind_layer(c, g, i, &t->layers[i], err));
    pl_rope_frequencies(&g->rope, t->rope_frequencies);
    t->rope_scale = (float)g->rope.attention_factor;
    return PLEACH_OK;
}

pleach_status pl_transformer_open(const pleach_checkpoint *c, pl_transformer **out,
                                  pleach_error *err)
{
    *out = NULL;
    const pl_config *g;
    PL_TRY(pl_checkpoint_config(c, &g, err));
    pl_transformer *t = pl_calloc(1, sizeof *t);
    if (!t) return pl_fail_memory(err, "model", sizeof *t);
    t->config = g;
    t->layers = pl_calloc(g->n_layers, sizeof *t->layers);
    t->rope_frequencies = pl_calloc(g->rope.dims / 2, sizeof *t->rope_frequencies);
    pleach_status status = t->layers && t->rope_frequencies
                               ? bind(c, t, err)
                               : pl_fail_memory(err, "model", g->n_layers * sizeof *t->layers);
    if (status != PLEACH_OK) {
        pl_transformer_close(t);
        return status;
    }
    *out = t;
    return PLEACH_OK;
}

static void close_layer(pl_layer *l)
{
    pl_linear *linears[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    for (size_t i = 0; i < PL_COUNT(linears); i++) pl_linear_close(linears[i]);
    pl_free(l->input_norm);
    pl_free(l->post_norm);
    pl_free(l->q_norm);
    pl_free(l->k_norm);
}

void pl_transformer_close(pl_transformer *t)
{
    if (!t) return;
    if (t->layers)
        for (uint32_t i = 0; i < t->config->n_layers; i++) close_layer(&t->layers[i]);
    if (!t->config->tie_embeddings) pl_linear_close(&t->head);
    pl_linear_close(&t->embedding);
    pl_free(t->layers);
    pl_free(t->final_norm);
    pl_free(t->rope_frequencies);
    pl_free(t);
}
