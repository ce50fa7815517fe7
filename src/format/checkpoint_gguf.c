/* SPDX-License-Identifier: Apache-2.0
 *
 * A GGUF file as a checkpoint: its tensors under Hugging Face names, and the rows of q and k marked
 * where the file has them in another order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "checkpoint_files.h"
#include "config.h"
#include "gguf_config.h"
#include "tensor.h"

typedef struct name_pair {
    const char *gguf, *hf;
} name_pair;

static const name_pair model_names[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};

static const name_pair layer_names[] = {
    {"attn_norm", "input_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"},
    {"ffn_down_exps", "mlp.experts.down_proj"},
};

/* Where an architecture means something else by a name, or has more; looked at first. */
static const name_pair gemma3_names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

static const name_pair qwen35_names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"attn_qkv", "linear_attn.in_proj_qkv"},
    {"attn_gate", "linear_attn.in_proj_z"},
    {"ssm_alpha", "linear_attn.in_proj_a"},
    {"ssm_beta", "linear_attn.in_proj_b"},
    {"ssm_conv1d", "linear_attn.conv1d"},
    {"ssm_norm", "linear_attn.norm"},
    {"ssm_out", "linear_attn.out_proj"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
};

enum { NAME_GROWTH = 64 }; /* no Hugging Face name is longer than GGUF's by so much */

static const char *translate_stem(const name_pair *pairs, size_t n, const char *stem, size_t size)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(pairs[i].gguf) == size && memcmp(pairs[i].gguf, stem, size) == 0)
            return pairs[i].hf;
    return NULL;
}

static const char *translate_layer(const pl_config *config, const char *stem, size_t size)
{
    const char *own = NULL;
    if (config && config->arch == PL_ARCH_GEMMA3)
        own = translate_stem(gemma3_names, PL_COUNT(gemma3_names), stem, size);
    if (config && config->delta.taps)
        own = translate_stem(qwen35_names, PL_COUNT(qwen35_names), stem, size);
    return own ? own : translate_stem(layer_names, PL_COUNT(layer_names), stem, size);
}

/* What is no weight or bias in Qwen3.5, and blocks that guess ahead, past the layers. */
static bool translate_qwen35(const pl_config *config, const char *name, char *out, size_t size)
{
    char *rest;
    if (!config || !config->delta.taps || strncmp(name, "blk.", 4) != 0) return false;
    unsigned long layer = strtoul(name + 4, &rest, 10);
    if (layer >= config->n_layers) snprintf(out, size, "mtp.%s", name);
    else if (strcmp(rest, ".ssm_a") == 0)
        snprintf(out, size, "model.layers.%lu.linear_attn.A_log", layer);
    else if (strcmp(rest, ".ssm_dt.bias") == 0)
        snprintf(out, size, "model.layers.%lu.linear_attn.dt_bias", layer);
    else
        return false;
    return true;
}

/* "blk.3.attn_q.weight" gives "model.layers.3.self_attn.q_proj.weight"; false for a name that is
 * not known, which is then copied as it is. */
static bool translate(const pl_config *config, const char *name, char *out, size_t size)
{
    const char *dot = strrchr(name, '.'), *hf = NULL;
    if (translate_qwen35(config, name, out, size)) return true;
    if (dot && (strcmp(dot, ".weight") == 0 || strcmp(dot, ".bias") == 0)) {
        char *rest = NULL;
        if (strncmp(name, "blk.", 4) == 0 && name[4] >= '0' && name[4] <= '9') {
            unsigned long layer = strtoul(name + 4, &rest, 10);
            if (*rest == '.' && rest < dot)
                hf = translate_layer(config, rest + 1, (size_t)(dot - rest - 1));
            if (hf) snprintf(out, size, "model.layers.%lu.%s%s", layer, hf, dot);
        } else {
            hf = translate_stem(model_names, PL_COUNT(model_names), name, (size_t)(dot - name));
            if (hf) snprintf(out, size, "%s%s", hf, dot);
        }
    }
    if (!hf) snprintf(out, size, "%s", name);
    return hf != NULL;
}

/* Copies the tensor table with translated names. *unknown becomes a name without translation. */
static pleach_status rename_tensors(pleach_checkpoint *c, const pl_config *config,
                                    const char **unknown, pleach_error *err)
{
    size_t n = pl_gguf_tensor_count(c->gguf), bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += strlen(pl_gguf_tensor(c->gguf, i)->name) + NAME_GROWTH;
    c->tensors = pl_alloc(n, sizeof *c->tensors);
    c->names = pl_alloc(bytes, 1);
    if (!c->tensors || !c->names)
        return pl_fail_memory(err, c->path, n * sizeof *c->tensors + bytes);
    char *next = c->names;
    for (size_t i = 0; i < n; i++) {
        const pl_tensor *t = pl_gguf_tensor(c->gguf, i);
        size_t room = strlen(t->name) + NAME_GROWTH;
        bool known = translate(config, t->name, next, room) ||
                     strcmp(t->name, PL_GGUF_ROPE_FACTORS) == 0;
        if (!known && !*unknown) *unknown = t->name;
        c->tensors[i] = *t;
        c->tensors[i].name = next;
        next += room;
    }
    c->n_tensors = n;
    return PLEACH_OK;
}

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), e = strlen(ending);
    return n >= e && strcmp(name + n - e, ending) == 0;
}

/* Marks q and k of the llama architecture, whose rows (and biases) were reordered for rotary
 * embeddings of neighbouring pairs. */
static pleach_status mark_rope_heads(pleach_checkpoint *c, pleach_error *err)
{
    const pl_config *config = &c->config;
    for (size_t i = 0; i < c->n_tensors; i++) {
        pl_tensor *t = &c->tensors[i];
        uint32_t heads = 0;
        if (ends_with(t->name, ".q_proj.weight") || ends_with(t->name, ".q_proj.bias"))
            heads = config->n_heads;
        if (ends_with(t->name, ".k_proj.weight") || ends_with(t->name, ".k_proj.bias"))
            heads = config->n_kv_heads;
        if (!heads) continue;
        bool bias = ends_with(t->name, ".bias");
        uint64_t rows = (uint64_t)heads * config->head_dim;
        PL_FAIL_IF(t->n_dims != (bias ? 1 : 2) || t->shape[0] != rows ||
                       (bias && pl_dtype_get(t->type)->block_elements != 1),
                   err, PLEACH_ERR_SHAPE, "%s: tensor %s has %llu rows, expected %llu", c->path,
                   t->name, (unsigned long long)t->shape[0], (unsigned long long)rows);
        t->rope_heads = heads;
    }
    return PLEACH_OK;
}

static bool is_rate(const pl_tensor *t)
{
    return t->n_dims == 1 && ends_with(t->name, ".A_log") && pl_dtype_get(t->type)->numeric;
}

static bool is_norm(const pl_tensor *t)
{
    return t->n_dims == 1 && ends_with(t->name, "norm.weight") &&
           !ends_with(t->name, ".linear_attn.norm.weight") && pl_dtype_get(t->type)->numeric;
}

/* Dimensions of 1 that the converters drop: of a matrix of one row, of a convolution. */
static void add_dimensions(pleach_checkpoint *c)
{
    for (size_t i = 0; i < c->n_tensors; i++) {
        pl_tensor *t = &c->tensors[i];
        if (t->n_dims == 1 && ends_with(t->name, ".shared_expert_gate.weight")) {
            t->n_dims = 2;
            t->shape[1] = t->shape[0];
            t->shape[0] = 1;
        } else if (t->n_dims == 2 && ends_with(t->name, ".conv1d.weight")) {
            t->n_dims = 3;
            t->shape[2] = t->shape[1];
            t->shape[1] = 1;
        }
    }
}

/* The converters add a norm's offset to its weights, and store -exp(A_log); here that is undone, in
 * numbers of the checkpoint's own. */
static pleach_status take_offsets(pleach_checkpoint *c, pleach_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_tensors; i++)
        if (is_norm(&c->tensors[i]) || is_rate(&c->tensors[i])) n += c->tensors[i].shape[0];
    c->numbers = pl_alloc(n, sizeof *c->numbers);
    if (!c->numbers) return pl_fail_memory(err, c->path, n * sizeof *c->numbers);
    float *at = c->numbers;
    for (size_t i = 0; i < c->n_tensors; i++) {
        pl_tensor *t = &c->tensors[i];
        bool rate = is_rate(t);
        if (!rate && !is_norm(t)) continue;
        size_t width = (size_t)t->shape[0];
        pl_tensor_row_f32(t, 0, at);
        for (size_t j = 0; j < width; j++)
            at[j] = rate ? logf(-at[j]) : at[j] - c->config.norm_offset;
        t->type = PL_F32;
        t->data = at;
        t->n_bytes = width * sizeof *at;
        at += width;
    }
    return PLEACH_OK;
}

pleach_status pl_checkpoint_open_gguf(pleach_checkpoint *c, pleach_error *err)
{
    PL_TRY(pl_gguf_open(c->path, &c->gguf, err));
    c->file_bytes = pl_gguf_file_size(c->gguf);
    /* As with a folder, what cannot be run can still be looked at. */
    pleach_error why = {0};
    const char *unknown = NULL;
    bool interleaved = false;
    pleach_status status = pl_config_from_gguf(c->path, c->gguf, &c->config, &interleaved, &why);
    PL_TRY(rename_tensors(c, status == PLEACH_OK ? &c->config : NULL, &unknown, err));
    if (status == PLEACH_OK && unknown)
        status = pl_fail(&why, PLEACH_ERR_UNSUPPORTED, "%s: tensor %s is not known to %s models",
                         c->path, unknown, c->config.arch_name);
    if (status == PLEACH_OK && interleaved) status = mark_rope_heads(c, &why);
    if (status != PLEACH_OK) c->config_error = why;
    if (status == PLEACH_OK && c->config.norm_offset != 0) PL_TRY(take_offsets(c, err));
    add_dimensions(c);
    return pl_checkpoint_name(c, err);
}
