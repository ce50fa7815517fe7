/* SPDX-License-Identifier: Apache-2.0
 *
 * The dense families that go back to Llama: two norms a layer, attention, SwiGLU. They differ in
 * biases, norms of heads and windows, which the config says. */
#include "family.h"

static pleach_status bind_layer(const pleach_checkpoint *c, const pl_config *g, uint32_t i,
                                pl_layer *l, pleach_error *err)
{
    uint32_t C = g->hidden_size;
    PL_TRY(pl_bind_attention(c, g, i, &l->attention, err));
    PL_TRY(pl_bind_mlp(c, g, i, &l->mlp, err));
    PL_TRY(pl_bind_norm(c, g, i, "input_layernorm.weight", C, &l->input_norm, err));
    return pl_bind_norm(c, g, i, "post_attention_layernorm.weight", C, &l->post_norm, err);
}

const pl_family pl_family_llama = {.name = "llama", .bind_layer = bind_layer, .cuda = true};
