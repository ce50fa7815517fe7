/* SPDX-License-Identifier: Apache-2.0
 *
 * Gains read and checked, ones in their place, and biases of layers that write the residual stream
 * turned by R^T. */
#include "fold.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/memory.h"
#include "base/random.h"
#include "kernels/rotate.h"
#include "model/linear.h"
#include "rotate_matrix.h"

bool pl_fold_writes(const pl_module *m)
{
    return m->kind == PL_MODULE_LINEAR && (m->role == PL_ROLE_MIX_OUT || m->role == PL_ROLE_FEED_OUT);
}

const float *pl_fold_gain(const pl_fold *f, const pl_module *m)
{
    if (m->kind == PL_MODULE_EMBEDDING || pl_fold_writes(m)) return NULL;
    if (m->kind == PL_MODULE_HEAD) return f->gains + 2 * f->n_layers * f->width;
    return f->gains + (2 * (size_t)m->layer + (m->role == PL_ROLE_FEED_IN)) * f->width;
}

const pl_tensor *pl_fold_tensor(const pl_fold *f, const pl_tensor *t)
{
    for (size_t i = 0; i < f->n_tensors; i++)
        if (f->tensors[i].source == t) return &f->tensors[i].made;
    return t;
}

/* ---- vectors -------------------------------------------------------------------------------- */

/* A vector of the residual stream's width, in f32. */
static pleach_status read_vector(const pl_fold *f, const pl_tensor *t, float *dst,
                                 pleach_error *err)
{
    PL_FAIL_IF(!pl_dtype_get(t->type)->numeric || t->n_dims != 1 || t->shape[0] != f->width, err,
               PLEACH_ERR_SHAPE, "%s: %s of %llu elements, expected %zu numbers", t->name,
               pl_dtype_get(t->type)->name, (unsigned long long)pl_tensor_elements(t), f->width);
    pl_tensor_row_f32(t, 0, dst);
    for (size_t i = 0; i < f->width; i++)
        PL_FAIL_IF(!isfinite(dst[i]), err, PLEACH_ERR_DATA,
                   "%s: NaN or infinity in element %zu of the source: it cannot be folded", t->name,
                   i);
    return PLEACH_OK;
}

/* Room for n numbers of this type that take the place of t. NULL: no memory. */
static void *replace(pl_fold *f, const pl_tensor *t, pl_dtype type)
{
    size_t bytes = f->width * pl_dtype_get(type)->block_bytes;
    void *data = pl_alloc(bytes, 1);
    if (!data) return NULL;
    pl_folded_tensor *to = &f->tensors[f->n_tensors++];
    *to = (pl_folded_tensor){.source = t, .made = *t};
    to->made.type = type;
    to->made.data = data;
    to->made.n_bytes = bytes;
    return data;
}

/* What makes a gain of one is exact in every type; a norm keeps its own. */
static pleach_status replace_gain(pl_fold *f, const pl_tensor *t, pleach_error *err)
{
    const float one = 1 - f->norm_offset;
    pl_dtype type = t->type == PL_F16 || t->type == PL_BF16 ? t->type : PL_F32;
    void *ones = replace(f, t, type);
    if (!ones) return pl_fail_memory(err, t->name, f->width * sizeof(float));
    for (size_t i = 0; i < f->width; i++) {
        if (type == PL_F32) ((float *)ones)[i] = one;
        else ((uint16_t *)ones)[i] = type == PL_F16 ? pl_f32_to_fp16(one) : pl_f32_to_bf16(one);
    }
    return PLEACH_OK;
}

static pleach_status fold_gain(pl_fold *f, const pleach_checkpoint *source, const char *name,
                               float *gain, pleach_error *err)
{
    const pl_tensor *t = pl_checkpoint_find(source, name);
    PL_FAIL_IF(!t, err, PLEACH_ERR_MISSING, "%s: tensor %s is missing", pl_checkpoint_path(source),
               name);
    PL_TRY(read_vector(f, t, gain, err));
    for (size_t i = 0; i < f->width; i++) gain[i] += f->norm_offset;
    return replace_gain(f, t, err);
}

/* R^T b, in F32: a bias is small and its own type may be too coarse for the sums. */
static pleach_status fold_bias(pl_fold *f, const pleach_checkpoint *source, const char *name,
                               const float *signs, pleach_error *err)
{
    const pl_tensor *t = pl_checkpoint_find(source, name);
    if (!t) return PLEACH_OK;
    float *b = replace(f, t, PL_F32);
    if (!b) return pl_fail_memory(err, name, f->width * sizeof *b);
    PL_TRY(read_vector(f, t, b, err));
    if (signs) pl_rotate_c(b, signs, f->width, f->rotation.block);
    return PLEACH_OK;
}

/* ---- the model ------------------------------------------------------------------------------ */

static pleach_status fold_layer(pl_fold *f, const pleach_checkpoint *source, size_t layer,
                                const float *signs, pleach_error *err)
{
    static const char *const norms[] = {"input_layernorm", "post_attention_layernorm"};
    static const char *const writers[] = {"self_attn.o_proj", "mlp.down_proj"};
    char name[128];
    for (size_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "model.layers.%zu.%s.weight", layer, norms[i]);
        PL_TRY(fold_gain(f, source, name, f->gains + (2 * layer + i) * f->width, err));
        snprintf(name, sizeof name, "model.layers.%zu.%s.bias", layer, writers[i]);
        PL_TRY(fold_bias(f, source, name, signs, err));
    }
    return PLEACH_OK;
}

static pleach_status fold_all(pl_fold *f, const pleach_checkpoint *source, const float *signs,
                              pleach_error *err)
{
    for (size_t i = 0; i < f->n_layers; i++) PL_TRY(fold_layer(f, source, i, signs, err));
    return fold_gain(f, source, "model.norm.weight", f->gains + 2 * f->n_layers * f->width, err);
}

pleach_status pl_fold_open(pl_fold *f, const pleach_checkpoint *source, const pl_config *config,
                           uint64_t seed, pleach_error *err)
{
    const size_t C = config->hidden_size, L = config->n_layers;
    PL_FAIL_IF(config->post_norms || config->n_experts || config->delta.taps, err,
               PLEACH_ERR_UNSUPPORTED,
               "folding is not supported in %s models: %s", config->arch_name,
               config->post_norms ? "norms lie between their layers and the stream"
               : config->n_experts ? "routers read the stream"
                                   : "gates of delta nets read the stream");
    *f = (pl_fold){.width = C, .n_layers = L, .norm_offset = config->norm_offset,
                   .rotation = {pl_rotation_block(C), pl_mix64(pl_mix64(seed)) >> 11}};
    float *signs = f->rotation.block ? pl_alloc(C, sizeof *signs) : NULL;
    f->gains = pl_alloc((2 * L + 1) * C, sizeof *f->gains);
    f->tensors = pl_calloc(4 * L + 1, sizeof *f->tensors);
    bool whole = f->gains && f->tensors && (signs || !f->rotation.block);
    if (signs) pl_rotation_signs(&f->rotation, signs, C);
    pleach_status status = whole ? fold_all(f, source, signs, err)
                                 : pl_fail_memory(err, "norms", (2 * L + 1) * C * sizeof(float));
    pl_free(signs);
    if (status != PLEACH_OK) pl_fold_close(f);
    return status;
}

void pl_fold_close(pl_fold *f)
{
    for (size_t i = 0; i < f->n_tensors; i++) pl_free((void *)f->tensors[i].made.data);
    pl_free(f->tensors);
    pl_free(f->gains);
    *f = (pl_fold){0};
}
