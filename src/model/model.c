/* SPDX-License-Identifier: Apache-2.0
 *
 * Binding: every tensor the config asks for, found, checked and opened, the layers by their family.
 * The forward pass is in forward.c. */
#include "model.h"

#include "base/memory.h"
#include "bind.h"
#include "family.h"
#include "rope.h"

static size_t mlp_linears(const pl_mlp_part *m, const pl_linear **out)
{
    const pl_linear *list[] = {&m->gate, &m->up, &m->down};
    for (size_t i = 0; out && i < PL_COUNT(list); i++) out[i] = list[i];
    return PL_COUNT(list);
}

static size_t mix_linears(const pl_layer *l, const pl_linear **out)
{
    const pl_attention_part *a = &l->attention;
    const pl_delta_part *d = l->delta;
    const pl_linear *attention[] = {&a->q, &a->k, &a->v, &a->o};
    const pl_linear *delta[] = {d ? &d->qkv : NULL, d ? &d->z : NULL, d ? &d->out : NULL};
    size_t n = d ? PL_COUNT(delta) : PL_COUNT(attention);
    for (size_t i = 0; out && i < n; i++) out[i] = d ? delta[i] : attention[i];
    return n;
}

size_t pl_layer_linears(const pl_layer *l, const pl_linear **out)
{
    const pl_experts_part *x = l->experts;
    size_t n = mix_linears(l, out);
    if (!x) return n + mlp_linears(&l->mlp, out ? out + n : NULL);
    for (uint32_t e = 0; e < x->n; e++) n += mlp_linears(&x->experts[e], out ? out + n : NULL);
    if (x->has_shared) n += mlp_linears(&x->shared, out ? out + n : NULL);
    return n;
}

static pleach_status bind_rope(const pl_rope_config *config, pl_transformer *t, pleach_error *err)
{
    pl_rope *r = &t->ropes[t->n_ropes++];
    *r = (pl_rope){.half = config->dims / 2, .scale = (float)config->attention_factor};
    r->frequencies = pl_alloc(r->half, sizeof *r->frequencies);
    if (!r->frequencies) return pl_fail_memory(err, "model", r->half * sizeof *r->frequencies);
    pl_rope_frequencies(config, r->frequencies);
    return PLEACH_OK;
}

static pleach_status bind_ends(const pleach_checkpoint *c, pl_transformer *t, pleach_error *err)
{
    const pl_config *g = t->config;
    PL_TRY(pl_bind_linear(c, "model.embed_tokens", g->vocab_size, g->hidden_size, false,
                          &t->embedding, err));
    PL_FAIL_IF(t->embedding.w.coding == PL_CODING_TRELLIS, err, PLEACH_ERR_UNSUPPORTED,
               "%s: model.embed_tokens is trellis-coded; rows of an embedding must be dense or "
               "affine", pl_checkpoint_path(c));
    if (g->tie_embeddings) t->head = t->embedding;
    else
        PL_TRY(pl_bind_linear(c, "lm_head", g->vocab_size, g->hidden_size, false, &t->head, err));
    return pl_bind_vector(c, "model.norm.weight", g->hidden_size, g->norm_offset, &t->final_norm,
                          err);
}

static pleach_status bind(const pleach_checkpoint *c, pl_transformer *t, pleach_error *err)
{
    const pl_config *g = t->config;
    PL_TRY(bind_ends(c, t, err));
    PL_TRY(bind_rope(&g->rope, t, err));
    if (g->rope_local.dims) PL_TRY(bind_rope(&g->rope_local, t, err));
    t->layers = pl_calloc(g->n_layers, sizeof *t->layers);
    if (!t->layers) return pl_fail_memory(err, "model", g->n_layers * sizeof *t->layers);
    for (uint32_t i = 0; i < g->n_layers; i++)
        PL_TRY(t->family->bind_layer(c, g, i, &t->layers[i], err));
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
    t->family = pl_family_of(g->arch);
    pleach_status status = bind(c, t, err);
    if (status == PLEACH_OK) *out = t;
    else pl_transformer_close(t);
    return status;
}

static void close_mlp(pl_mlp_part *m)
{
    pl_linear_close(&m->gate);
    pl_linear_close(&m->up);
    pl_linear_close(&m->down);
}

static void close_experts(pl_experts_part *x)
{
    if (!x) return;
    for (uint32_t e = 0; e < x->n; e++) close_mlp(&x->experts[e]);
    close_mlp(&x->shared);
    pl_linear_close(&x->router);
    pl_linear_close(&x->shared_gate);
    pl_free(x->experts);
    pl_free(x);
}

static void close_delta(pl_delta_part *d)
{
    if (!d) return;
    pl_linear *linears[] = {&d->qkv, &d->z, &d->a, &d->b, &d->out};
    float *numbers[] = {d->net.conv, d->net.rate, d->net.dt_bias, d->net.norm, d->net.q_gain};
    for (size_t i = 0; i < PL_COUNT(linears); i++) pl_linear_close(linears[i]);
    for (size_t i = 0; i < PL_COUNT(numbers); i++) pl_free(numbers[i]);
    pl_free(d);
}

static void close_layer(pl_layer *l)
{
    pl_attention_part *a = &l->attention;
    pl_linear *linears[] = {&a->q, &a->k, &a->v, &a->o};
    for (size_t i = 0; i < PL_COUNT(linears); i++) pl_linear_close(linears[i]);
    close_delta(l->delta);
    close_mlp(&l->mlp);
    close_experts(l->experts);
    float *norms[] = {l->input_norm, l->post_norm, l->mixed_norm, l->fed_norm,
                      a->q_norm,     a->k_norm};
    for (size_t i = 0; i < PL_COUNT(norms); i++) pl_free(norms[i]);
}

void pl_transformer_close(pl_transformer *t)
{
    if (!t) return;
    if (t->layers)
        for (uint32_t i = 0; i < t->config->n_layers; i++) close_layer(&t->layers[i]);
    if (!t->config->tie_embeddings) pl_linear_close(&t->head);
    pl_linear_close(&t->embedding);
    for (uint32_t i = 0; i < t->n_ropes; i++) pl_free(t->ropes[i].frequencies);
    pl_free(t->layers);
    pl_free(t->final_norm);
    pl_free(t);
}

void pl_transformer_embed(const pl_transformer *t, uint64_t id, float *x)
{
    float scale = t->config->embedding_scale;
    pl_linear_row(&t->embedding, id, x);
    for (uint32_t i = 0; scale > 0 && i < t->config->hidden_size; i++) x[i] *= scale;
}
