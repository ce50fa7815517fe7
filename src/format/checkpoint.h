/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint as the rest of the library sees it: named, typed, checked tensors over mapped
 * files; a checked model config; and each module's weight with its coding. Safetensors folders and
 * GGUF files look the same from here: GGUF names are translated to Hugging Face's. */
#ifndef PL_FORMAT_CHECKPOINT_H
#define PL_FORMAT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dtype.h"
#include "base/error.h"
#include "pleach/checkpoint.h"
#include "pleach/trellis.h"

#define PL_MAX_DIMS 4

/* Everything in it was checked at opening: shape's product times the element size is n_bytes, and
 * data[0 .. n_bytes) lies inside its file. */
typedef struct pl_tensor {
    const char *name; /* Hugging Face name */
    pl_dtype type;
    uint32_t n_dims;
    uint64_t shape[PL_MAX_DIMS]; /* outermost first */
    const void *data;            /* mapped; any alignment */
    uint64_t n_bytes;
    /* GGUF files of the llama architecture store the rows of q and k with rope pairs adjacent.
     * Non-zero: the number of heads whose rows are stored so; pl_tensor_row undoes it. */
    uint32_t rope_heads;
} pl_tensor;

uint64_t pl_tensor_elements(const pl_tensor *t);
uint64_t pl_tensor_rows(const pl_tensor *t);  /* product of all dims but the last; 1 for a vector */
uint64_t pl_tensor_width(const pl_tensor *t); /* the last dim */
/* Start of row r in Hugging Face order. */
const void *pl_tensor_row(const pl_tensor *t, uint64_t r);
/* Row r as f32; the type must be numeric. */
void pl_tensor_row_f32(const pl_tensor *t, uint64_t r, float *dst);

/* ---- config -------------------------------------------------------------------------------- */

typedef enum pl_arch {
    PL_ARCH_LLAMA,
    PL_ARCH_MISTRAL,
    PL_ARCH_QWEN2,
    PL_ARCH_QWEN3,
    PL_ARCH_GEMMA3,
    PL_ARCH_MIXTRAL,
    PL_ARCH_QWEN3_MOE,
    PL_ARCH_QWEN35,
    PL_ARCH_QWEN35_MOE,
    PL_ARCH_COUNT
} pl_arch;

typedef enum pl_rope_kind {
    PL_ROPE_DEFAULT,
    PL_ROPE_LINEAR,
    PL_ROPE_LLAMA3,
    PL_ROPE_YARN
} pl_rope_kind;

typedef struct pl_rope_config {
    pl_rope_kind kind;
    double theta;
    double factor;                            /* linear, llama3, yarn */
    double low_freq_factor, high_freq_factor; /* llama3 */
    double original_context;                  /* llama3, yarn */
    double beta_fast, beta_slow;              /* yarn: 32, 1 */
    double attention_factor;                  /* yarn: what cos and sin are multiplied by,
                                                 derived from mscale when not given; else 1 */
    bool truncate;                            /* yarn: round the correction range; true */
    uint32_t dims;                            /* rotated dims of a head; head_dim */
} pl_rope_config;

/* A gated delta net: key_heads divides value_heads, PL_DELTA_PANEL (kernels/delta.h) value_dim. */
typedef struct pl_delta_config {
    uint32_t key_heads, value_heads, key_dim, value_dim;
    uint32_t taps; /* of the convolution, 2 to PL_DELTA_TAPS; 0: the model has no such layers */
    bool tiled;    /* GGUF: the value heads of one key head lie key_heads apart, not side by side */
} pl_delta_config;

/* The key head that a value head has. */
static inline uint32_t pl_delta_key_head(const pl_delta_config *g, uint32_t head)
{
    return g->tiled ? head % g->key_heads : head / (g->value_heads / g->key_heads);
}

#define PL_DELTA_TAPS 8

#define PL_MAX_END_TOKENS 16

/* What the feed-forward part's gate goes through. */
typedef enum pl_activation { PL_ACTIVATION_SILU, PL_ACTIVATION_GELU_TANH } pl_activation;

/* In what the layers of one model differ. */
typedef struct pl_layer_config {
    bool slides;  /* attention sees sliding_window tokens */
    bool experts; /* a mixture of experts feeds forward */
    bool delta;   /* a gated delta net mixes positions, not attention */
} pl_layer_config;

typedef struct pl_config {
    pl_arch arch;
    const char *arch_name; /* model_type, static storage */
    uint32_t vocab_size, hidden_size, intermediate_size;
    uint32_t n_layers, n_heads, n_kv_heads, head_dim, context_length;
    float rms_norm_eps;
    bool tie_embeddings, attention_bias /* q, k, v */, output_bias /* o */, mlp_bias, qk_norm;
    bool post_norms;       /* what a part adds to the stream is normed too (Gemma) */
    bool output_gate;      /* q_proj has a gate for each result of attention too, head by head */
    float norm_offset;     /* 0 or 1: added to the weights of a norm */
    float embedding_scale; /* an embedding is multiplied by it; 0: by nothing */
    double query_scalar;   /* attention divides by its root; 0: by that of head_dim */
    float final_soft_cap;  /* logits become cap tanh(logit / cap); 0: they stay */
    pl_activation activation;
    pl_rope_config rope;
    pl_rope_config rope_local; /* of layers that slide; dims 0: as the others */
    /* Mixtures of experts, in the layers that have one; intermediate_size is of the others. */
    uint32_t n_experts, n_experts_used, expert_size;
    uint32_t shared_expert_size; /* of an expert that every token sees, with a gate; 0: none */
    bool expert_renormalise;     /* the weights of those used sum to 1 */
    uint32_t sliding_window; /* 0: none */
    pl_delta_config delta;
    pl_layer_config layer[512];
    int32_t bos, pad;      /* -1: none */
    uint32_t n_end_tokens; /* config and generation_config together, no duplicates */
    int32_t end_tokens[PL_MAX_END_TOKENS];
} pl_config;

/* Window of layer i in tokens, 0 for full attention. */
uint32_t pl_config_window(const pl_config *c, uint32_t layer);

/* ---- weights ------------------------------------------------------------------------------- */

typedef enum pl_coding { PL_CODING_DENSE, PL_CODING_AFFINE, PL_CODING_TRELLIS } pl_coding;

/* An online rotation of one side of a weight; docs/format.md, "Rotation". block 0: none.
 * sign of element i: bit 0 of mix64(seed + 0x9e3779b97f4a7c15 * (i + 1)), 1 meaning -1. */
typedef struct pl_rotation {
    uint32_t block;
    uint64_t seed;
} pl_rotation;

/* One matrix y = W x with W [out][in], as coded. For a trellis weight
 *   W = diag(output_scale) R_out W' R_in^T,   R = diag(signs) blockdiag(Hadamard)
 * with W' what the codes stand for. Pointers live as long as the checkpoint. */
typedef struct pl_weight {
    pl_coding coding;
    uint64_t out, in;
    const pl_tensor *weight;
    const pl_tensor *scales, *biases; /* affine; trellis has scales alone */
    const pl_tensor *bias;            /* of the layer, [out], or NULL */
    /* dense F8: W = value * block_scale[r / fp8_block[0]][c / fp8_block[1]]; else NULL */
    const pl_tensor *block_scale;
    uint32_t fp8_block[2];
    uint32_t bits, group_size; /* affine */
    pleach_trellis trellis;    /* trellis: geometry, padding included */
    pl_rotation rotate_in, rotate_out;
    const pl_tensor *output_scale; /* [out] or NULL */
} pl_weight;

/* Rows [row, row+n) of a dense or affine weight as f32 [n][in]. MLX affine rounding: with bf16
 * scales, w = bf16(bf16(q*scale) + bias). */
void pl_weight_rows_f32(const pl_weight *w, uint64_t row, uint64_t n, float *dst);
/* The whole matrix W, rotations undone, f32 [out][in], for any coding. Allocates scratch. */
pleach_status pl_weight_dense_f32(const pl_weight *w, float *dst, pleach_error *err);

/* ---- the checkpoint ------------------------------------------------------------------------ */

typedef struct pl_gguf pl_gguf;

pleach_status pl_checkpoint_open(const char *path, pleach_checkpoint **out, pleach_error *err);

const char *pl_checkpoint_path(const pleach_checkpoint *c);
/* Model configs are read at opening when there is one that this build knows; a folder with an
 * unsupported architecture opens for inspection and fails here by name. */
pleach_status pl_checkpoint_config(const pleach_checkpoint *c, const pl_config **out,
                                   pleach_error *err);
size_t pl_checkpoint_tensor_count(const pleach_checkpoint *c); /* stored tensors, all parts */
const pl_tensor *pl_checkpoint_tensor_at(const pleach_checkpoint *c, size_t i);
const pl_tensor *pl_checkpoint_find(const pleach_checkpoint *c, const char *name);
/* Fills *w for module "model.layers.0.mlp.up_proj" and checks it against out and in (0: any).
 * PLEACH_ERR_MISSING names the tensor that is absent. */
pleach_status pl_checkpoint_weight(const pleach_checkpoint *c, const char *module, uint64_t out,
                                   uint64_t in, pl_weight *w, pleach_error *err);
/* How many tensors were left out, as parts that are not run have them: a vision tower, say. */
size_t pl_checkpoint_skipped(const pleach_checkpoint *c);
/* The GGUF file behind it, or NULL for a folder. */
const pl_gguf *pl_checkpoint_gguf(const pleach_checkpoint *c);
/* The folder's config.json as text, or NULL for GGUF: the quantiser copies what it does not change.
 */
const char *pl_checkpoint_config_text(const pleach_checkpoint *c);
/* A config.json for this model made from its pl_config, as text in fresh memory (pl_free): what a
 * GGUF source becomes. */
char *pl_checkpoint_make_config_text(const pleach_checkpoint *c, pleach_error *err);

/* Modules (linear layers, embedding, head) in a fixed order, norms and biases apart. */
typedef enum pl_module_kind {
    PL_MODULE_EMBEDDING,
    PL_MODULE_LINEAR,
    PL_MODULE_HEAD
} pl_module_kind;
/* Where a linear layer stands in its layer. Those of one role and layer read vectors of one kind:
 * they share the signs of an input rotation. */
typedef enum pl_module_role {
    PL_ROLE_MIX_IN,  /* reads the normed stream, before positions are mixed: q k v */
    PL_ROLE_MIX_OUT, /* writes to the stream: o */
    PL_ROLE_FEED_IN, /* reads the normed stream: gate up */
    PL_ROLE_FEED_OUT /* writes to the stream: down */
} pl_module_role;
typedef struct pl_module {
    char name[160];
    pl_module_kind kind;
    uint32_t layer; /* of a linear layer, as what follows */
    uint32_t index; /* among those of its layer */
    pl_module_role role;
    uint32_t input; /* linear layers of one layer with the same number share their input vectors */
    bool expert;    /* of a mixture: sees the tokens that are routed to it alone */
    uint64_t out, in;
} pl_module;
/* Number of modules the config asks for (a tied head is not one), and module i of them. */
size_t pl_config_module_count(const pl_config *c);
void pl_config_module(const pl_config *c, size_t i, pl_module *m);
/* The same of the linear layers of one layer. */
size_t pl_config_layer_modules(const pl_config *c, uint32_t layer);
void pl_config_layer_module(const pl_config *c, uint32_t layer, size_t i, pl_module *m);
/* How many different inputs they have: numbers 0 .. n - 1. */
size_t pl_config_layer_inputs(const pl_config *c, uint32_t layer);

#endif
