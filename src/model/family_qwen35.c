/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen3.5: layers of gated delta nets, and every fourth of gated attention, in which a quarter of
 * each head rotates; SwiGLU, or a mixture of experts with a shared one. Norms multiply by 1 + w, that
 * of the delta net by w. */
#include "family.h"

static pleach_status bind_layer(const pleach_checkpoint *c, const pl_config *g, uint32_t i,
                                pl_layer *l, pleach_error *err)
{
    uint32_t C = g->hidden_size;
    if (g->layer[i].delta) PL_TRY(pl_bind_delta(c, g, i, l, err));
    else PL_TRY(pl_bind_attention(c, g, i, &l->attention, err));
    PL_TRY(pl_bind_feed_forward(c, g, i, l, err));
    PL_TRY(pl_bind_norm(c, g, i, "input_layernorm.weight", C, &l->input_norm, err));
    return pl_bind_norm(c, g, i, "post_attention_layernorm.weight", C, &l->post_norm, err);
}

const pl_family pl_family_qwen35 = {.name = "qwen3.5", .bind_layer = bind_layer};
