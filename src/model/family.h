/* SPDX-License-Identifier: Apache-2.0
 *
 * What a family of models brings: how the tensors of a layer are called and which parts it has. A
 * new family is one file here, a line in family.c, and its entries in the readers of format/
 * (docs/models.md). */
#ifndef PL_MODEL_FAMILY_H
#define PL_MODEL_FAMILY_H

#include "model.h"

struct pl_family {
    const char *name; /* in messages */
    /* Fills in layer i, zeroed before; what it leaves on failure is closed with the model. */
    pleach_status (*bind_layer)(const pleach_checkpoint *c, const pl_config *g, uint32_t i,
                                pl_layer *l, pleach_error *err);
    bool cuda; /* the CUDA backend runs it */
};

const pl_family *pl_family_of(pl_arch arch);

extern const pl_family pl_family_llama;   /* Llama, Mistral, Qwen2, Qwen3: the dense ones */
extern const pl_family pl_family_gemma3;
extern const pl_family pl_family_experts; /* Mixtral, Qwen3 MoE */
extern const pl_family pl_family_qwen35;  /* Qwen3.5 and its mixtures of experts */

/* ---- what families are put together from ----------------------------------------------------- */

/* The gain of a norm: the n weights "model.layers.<i>.<name>" and the config's norm_offset, as f32
 * in fresh memory. */
pleach_status pl_bind_norm(const pleach_checkpoint *c, const pl_config *g, uint32_t i,
                           const char *name, uint32_t n, float **out, pleach_error *err);
/* self_attn.{q,k,v,o}_proj and, with qk_norm, self_attn.{q,k}_norm. */
pleach_status pl_bind_attention(const pleach_checkpoint *c, const pl_config *g, uint32_t i,
                                pl_attention_part *a, pleach_error *err);
/* linear_attn: in_proj_{qkv,z,a,b}, out_proj, conv1d, A_log, dt_bias and norm: l->delta. */
pleach_status pl_bind_delta(const pleach_checkpoint *c, const pl_config *g, uint32_t i, pl_layer *l,
                            pleach_error *err);
/* mlp.{gate,up,down}_proj. */
pleach_status pl_bind_mlp(const pleach_checkpoint *c, const pl_config *g, uint32_t i,
                          pl_mlp_part *m, pleach_error *err);
/* mlp.gate, mlp.experts.<e>.{gate,up,down}_proj, and mlp.shared_expert with its gate where there is
 * one: l->experts. */
pleach_status pl_bind_experts(const pleach_checkpoint *c, const pl_config *g, uint32_t i,
                              pl_layer *l, pleach_error *err);
/* A whole layer of two parts, each behind a norm, as the config has them in layer i: attention or a
 * delta net, then a dense feed-forward part or experts. */
pleach_status pl_bind_block(const pleach_checkpoint *c, const pl_config *g, uint32_t i, pl_layer *l,
                            pleach_error *err);

#endif
