/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixtral and Qwen3 MoE: the dense families with a mixture of experts in place of some or all
 * feed-forward parts. */
#include "family.h"

static pleach_status bind_layer(const pleach_checkpoint *c, const pl_config *g, uint32_t i,
                                pl_layer *l, pleach_error *err)
{
    uint32_t C = g->hidden_size;
    PL_TRY(pl_bind_attention(c, g, i, &l->attention, err));
    PL_TRY(pl_bind_feed_forward(c, g, i, l, err));
    PL_TRY(pl_bind_norm(c, g, i, "input_layernorm.weight", C, &l->input_norm, err));
    return pl_bind_norm(c, g, i, "post_attention_layernorm.weight", C, &l->post_norm, err);
}

const pl_family pl_family_experts = {.name = "experts", .bind_layer = bind_layer};
