/* SPDX-License-Identifier: Apache-2.0
 *
 * What a checkpoint consists of, for people: one entry for each weight with all that belongs to it,
 * and the totals. Binding every coded weight at opening also finds wrong shapes before any work. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "checkpoint_files.h"
#include "tensor.h"

typedef struct pl_entry {
    const pl_tensor *tensor; /* whose name and type the entry has */
    bool is_weight;          /* w is bound: more than the bare tensor */
    pl_weight w;
} pl_entry;

/* Module of "<module>.weight" in `module`, or false. */
static bool split_weight(const char *name, char *module, size_t size)
{
    static const char ending[] = ".weight";
    size_t n = strlen(name), e = sizeof ending - 1;
    if (n <= e || n - e >= size || strcmp(name + n - e, ending) != 0) return false;
    memcpy(module, name, n - e);
    module[n - e] = 0;
    return true;
}

static bool has_part(const pleach_checkpoint *c, const char *module, const char *part)
{
    char name[280];
    snprintf(name, sizeof name, "%s.%s", module, part);
    return pl_checkpoint_find(c, name) != NULL;
}

/* A tensor that is counted with its module's weight: scales and the like. */
static bool is_part(const pleach_checkpoint *c, const char *name)
{
    static const char *const parts[] = {"scales", "biases", "output_scale", "weight_scale_inv"};
    const char *dot = strrchr(name, '.');
    char module[256];
    size_t n = dot ? (size_t)(dot - name) : 0;
    if (!dot || n >= sizeof module) return false;
    memcpy(module, name, n);
    module[n] = 0;
    for (size_t i = 0; i < PL_COUNT(parts); i++)
        if (strcmp(dot + 1, parts[i]) == 0) return has_part(c, module, "weight");
    return false;
}

pleach_status pl_checkpoint_list(pleach_checkpoint *c, pleach_error *err)
{
    c->entries = pl_calloc(c->n_tensors, sizeof *c->entries);
    if (!c->entries) return pl_fail_memory(err, c->path, c->n_tensors * sizeof *c->entries);
    for (size_t i = 0; i < c->n_tensors; i++) {
        const pl_tensor *t = &c->tensors[i];
        char module[240];
        if (is_part(c, t->name)) continue;
        pl_entry *e = &c->entries[c->n_entries++];
        e->tensor = t;
        if (!split_weight(t->name, module, sizeof module)) continue;
        const pl_quant_entry *q = pl_quant_map_find(&c->quant, module);
        e->is_weight = (q && q->coding != PL_CODING_DENSE) || has_part(c, module, "scales") ||
                       (t->type == PL_F8_E4M3 && t->n_dims == 2);
        if (e->is_weight) PL_TRY(pl_checkpoint_weight(c, module, 0, 0, &e->w, err));
    }
    return PLEACH_OK;
}

size_t pleach_checkpoint_count(const pleach_checkpoint *c)
{
    return c->n_entries;
}

/* ---- one entry ----------------------------------------------------------------------------- */

static uint64_t part_bytes(const pl_tensor *t)
{
    return t ? t->n_bytes : 0;
}

static uint64_t entry_bytes(const pl_entry *e)
{
    const pl_weight *w = &e->w;
    return e->tensor->n_bytes + part_bytes(w->scales) + part_bytes(w->biases) +
           part_bytes(w->block_scale) + part_bytes(w->output_scale);
}

static uint64_t entry_weights(const pl_entry *e)
{
    return e->is_weight ? e->w.out * e->w.in : pl_tensor_elements(e->tensor);
}

/* Routers, and gates that are a row or a few, are no linear layers that are coded. */
static bool is_gate(const char *name)
{
    return strstr(name, ".mlp.gate.") || strstr(name, ".shared_expert_gate.") ||
           strstr(name, ".linear_attn.in_proj_a.") || strstr(name, ".linear_attn.in_proj_b.") ||
           strstr(name, ".linear_attn.conv1d.");
}

static bool is_block_matrix(const pl_entry *e)
{
    char module[240];
    if (is_gate(e->tensor->name)) return false;
    return strstr(e->tensor->name, ".layers.") && (e->is_weight || e->tensor->n_dims == 2) &&
           split_weight(e->tensor->name, module, sizeof module);
}

static void scale_range(const pl_tensor *t, float *low, float *high)
{
    uint64_t n = pl_tensor_elements(t), size = pl_dtype_get(t->type)->block_bytes;
    for (uint64_t i = 0; i < n; i++) {
        float v;
        pl_dequantize_row(t->type, (const uint8_t *)t->data + i * size, &v, 1);
        if (i == 0 || v < *low) *low = v;
        if (i == 0 || v > *high) *high = v;
    }
}

static void describe_trellis(const pl_weight *w, pleach_tensor_info *info)
{
    info->k = w->trellis.bits;
    info->state_bits = w->trellis.state_bits;
    info->block = w->trellis.block;
    info->axis = w->trellis.axis;
    info->interleaved = w->trellis.interleaved;
    info->padded = w->trellis.cols;
    info->rotate_in = w->rotate_in.block;
    info->rotate_out = w->rotate_out.block;
}

pleach_status pleach_checkpoint_tensor(const pleach_checkpoint *c, size_t i,
                                       pleach_tensor_info *info, pleach_error *err)
{
    static const char *const codings[] = {"dense", "affine", "trellis"};
    PL_FAIL_IF(i >= c->n_entries, err, PLEACH_ERR_ARGUMENT, "%s: tensor %zu of %zu", c->path, i,
               c->n_entries);
    const pl_entry *e = &c->entries[i];
    const pl_weight *w = &e->w;
    uint64_t weights = entry_weights(e);
    *info = (pleach_tensor_info){
        .name = e->tensor->name,
        .coding = codings[w->coding],
        .type = pl_dtype_get(e->tensor->type)->name,
        .n_dims = e->is_weight ? 2 : e->tensor->n_dims,
        .bytes = entry_bytes(e),
        .block_matrix = is_block_matrix(e),
    };
    if (weights) info->bits = 8.0 * (double)info->bytes / (double)weights;
    if (e->is_weight) {
        info->shape[0] = w->out;
        info->shape[1] = w->in;
    } else {
        memcpy(info->shape, e->tensor->shape, sizeof info->shape);
    }
    if (w->coding == PL_CODING_TRELLIS) describe_trellis(w, info);
    const pl_tensor *scales = w->scales ? w->scales : w->block_scale;
    if (scales) scale_range(scales, &info->scale_min, &info->scale_max);
    return PLEACH_OK;
}

/* ---- totals -------------------------------------------------------------------------------- */

pleach_status pleach_checkpoint_total(const pleach_checkpoint *c, pleach_checkpoint_totals *totals,
                                      pleach_error *err)
{
    (void)err;
    *totals = (pleach_checkpoint_totals){.file_bytes = c->file_bytes, .skipped = c->n_foreign};
    bool known = c->config_error.code == PLEACH_OK, tied = known && c->config.tie_embeddings;
    uint64_t expert_weights = 0, expert_bytes = 0;
    for (size_t i = 0; i < c->n_entries; i++) {
        const pl_entry *e = &c->entries[i];
        if (tied && strcmp(e->tensor->name, "lm_head.weight") == 0) continue;
        uint64_t weights = entry_weights(e), bytes = entry_bytes(e);
        totals->weights += weights;
        totals->bytes += bytes;
        if (strstr(e->tensor->name, ".mlp.experts.")) {
            expert_weights += weights;
            expert_bytes += bytes;
        }
        if (!is_block_matrix(e)) continue;
        totals->block_weights += weights;
        totals->block_bytes += bytes;
    }
    double idle = known && c->config.n_experts
                      ? 1 - (double)c->config.n_experts_used / c->config.n_experts
                      : 0;
    totals->active_weights = totals->weights - (uint64_t)(idle * (double)expert_weights);
    totals->active_bytes = totals->bytes - (uint64_t)(idle * (double)expert_bytes);
    return PLEACH_OK;
}
