/* SPDX-License-Identifier: Apache-2.0
 *
 * Gemma 3: norms multiply by 1 + w and stand before and after each part, GELU instead of SiLU,
 * layers that slide with a rotary embedding of their own, embeddings times sqrt(C). */
#include <math.h>

#include "family.h"

/* Scores are divided by sqrt(query_scalar) where attention divides by sqrt(head_dim): the gain of
 * q's norm makes up for it. */
static void scale_queries(const pl_config *g, pl_attention_part *a)
{
    double by = sqrt(g->head_dim / g->query_scalar);
    for (uint32_t i = 0; by != 1 && i < g->head_dim; i++)
        a->q_norm[i] = (float)((double)a->q_norm[i] * by);
}

static pleach_status bind_layer(const pleach_checkpoint *c, const pl_config *g, uint32_t i,
                                pl_layer *l, pleach_error *err)
{
    const struct {
        const char *name;
        float **to;
    } norms[] = {{"input_layernorm.weight", &l->input_norm},
                 {"post_attention_layernorm.weight", &l->mixed_norm},
                 {"pre_feedforward_layernorm.weight", &l->post_norm},
                 {"post_feedforward_layernorm.weight", &l->fed_norm}};
    PL_TRY(pl_bind_attention(c, g, i, &l->attention, err));
    if (g->query_scalar > 0) scale_queries(g, &l->attention);
    l->attention.rope = g->layer[i].slides;
    PL_TRY(pl_bind_mlp(c, g, i, &l->mlp, err));
    for (size_t j = 0; j < PL_COUNT(norms); j++)
        PL_TRY(pl_bind_norm(c, g, i, norms[j].name, g->hidden_size, norms[j].to, err));
    return PLEACH_OK;
}

const pl_family pl_family_gemma3 = {.name = "gemma3", .bind_layer = bind_layer};
