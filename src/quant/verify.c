/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a whole checkpoint for what opening it cannot see: bad numbers, and tensors that the
 * model needs and the files lack or hold in another size. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "format/checkpoint.h"

typedef struct verifier {
    const pleach_checkpoint *checkpoint;
    pleach_finding_fn *found;
    void *user;
    size_t n;
    float *row;
    size_t capacity;
} verifier;

static void finding(verifier *v, const char *tensor, const char *fmt, ...) PL_PRINTF(3, 4);
static void finding(verifier *v, const char *tensor, const char *fmt, ...)
{
    char line[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    v->n++;
    if (v->found) v->found(v->user, tensor, line);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static pleach_status reserve_row(verifier *v, const pl_tensor *t, pleach_error *err)
{
    void *row = v->row;
    uint64_t width = pl_tensor_width(t);
    if (pl_grow(&row, &v->capacity, width, sizeof *v->row) != 0)
        return pl_fail_memory(err, t->name, width * sizeof *v->row);
    v->row = row;
    return PLEACH_OK;
}

static pleach_status verify_finite(verifier *v, const pl_tensor *t, pleach_error *err)
{
    uint64_t rows = pl_tensor_rows(t), width = pl_tensor_width(t), bad = 0, bad_row = 0,
             bad_col = 0;
    if (!pl_dtype_get(t->type)->numeric) return PLEACH_OK;
    PL_TRY(reserve_row(v, t, err));
    for (uint64_t r = 0; r < rows; r++) {
        float sum = 0;
        pl_tensor_row_f32(t, r, v->row);
        for (uint64_t i = 0; i < width; i++) sum += v->row[i] - v->row[i]; /* NaN if any is bad */
        for (uint64_t i = 0; sum != 0 && i < width; i++) {
            if (isfinite(v->row[i]) || bad++) continue;
            bad_row = r;
            bad_col = i;
        }
    }
    pl_map_release(t->data, t->n_bytes);
    if (bad)
        finding(v, t->name, "%" PRIu64 " NaN or infinite numbers, the first in row %" PRIu64
                ", column %" PRIu64, bad, bad_row, bad_col);
    return PLEACH_OK;
}

static pleach_status verify_not_negative(verifier *v, const pl_tensor *t, pleach_error *err)
{
    uint64_t n = pl_tensor_elements(t), bad = 0;
    PL_TRY(reserve_row(v, t, err));
    pl_tensor_row_f32(t, 0, v->row);
    for (uint64_t i = 0; i < n; i++) bad += v->row[i] < 0;
    if (bad) finding(v, t->name, "%" PRIu64 " negative scales, expected none", bad);
    return PLEACH_OK;
}

/* ---- what the config asks for --------------------------------------------------------------- */

static void verify_vector(verifier *v, uint64_t n, const char *fmt, ...) PL_PRINTF(3, 4);
static void verify_vector(verifier *v, uint64_t n, const char *fmt, ...)
{
    char name[192];
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    const pl_tensor *t = pl_checkpoint_find(v->checkpoint, name);
    if (!t) finding(v, name, "missing, expected %" PRIu64 " numbers", n);
    else if (pl_tensor_elements(t) != n)
        finding(v, name, "%" PRIu64 " numbers, expected %" PRIu64, pl_tensor_elements(t), n);
    else if (!pl_dtype_get(t->type)->numeric)
        finding(v, name, "type %s, expected numbers", pl_dtype_get(t->type)->name);
}

static void verify_layer_vectors(verifier *v, const pl_config *c, uint32_t layer)
{
    uint64_t heads = (uint64_t)c->n_heads * c->head_dim, kv = (uint64_t)c->n_kv_heads * c->head_dim;
    const char *prefix = "model.layers";
    verify_vector(v, c->hidden_size, "%s.%u.input_layernorm.weight", prefix, layer);
    verify_vector(v, c->hidden_size, "%s.%u.post_attention_layernorm.weight", prefix, layer);
    if (c->post_norms) {
        verify_vector(v, c->hidden_size, "%s.%u.pre_feedforward_layernorm.weight", prefix, layer);
        verify_vector(v, c->hidden_size, "%s.%u.post_feedforward_layernorm.weight", prefix, layer);
    }
    if (c->qk_norm) {
        verify_vector(v, c->head_dim, "%s.%u.self_attn.q_norm.weight", prefix, layer);
        verify_vector(v, c->head_dim, "%s.%u.self_attn.k_norm.weight", prefix, layer);
    }
    if (c->attention_bias) {
        verify_vector(v, heads, "%s.%u.self_attn.q_proj.bias", prefix, layer);
        verify_vector(v, kv, "%s.%u.self_attn.k_proj.bias", prefix, layer);
        verify_vector(v, kv, "%s.%u.self_attn.v_proj.bias", prefix, layer);
    }
    if (c->output_bias)
        verify_vector(v, c->hidden_size, "%s.%u.self_attn.o_proj.bias", prefix, layer);
    if (c->mlp_bias) {
        verify_vector(v, c->intermediate_size, "%s.%u.mlp.gate_proj.bias", prefix, layer);
        verify_vector(v, c->intermediate_size, "%s.%u.mlp.up_proj.bias", prefix, layer);
        verify_vector(v, c->hidden_size, "%s.%u.mlp.down_proj.bias", prefix, layer);
    }
}

/* Shapes, and the scales that only a module's coding gives a range: those of the trellis, and
 * output scales, are not negative. */
static pleach_status verify_module(verifier *v, const pl_module *m, pleach_error *err)
{
    pl_weight w;
    pleach_error inner = {0};
    if (pl_checkpoint_weight(v->checkpoint, m->name, m->out, m->in, &w, &inner) != PLEACH_OK) {
        finding(v, m->name, "%s", inner.message);
        return PLEACH_OK;
    }
    if (w.coding != PL_CODING_TRELLIS) return PLEACH_OK;
    PL_TRY(verify_not_negative(v, w.scales, err));
    return w.output_scale ? verify_not_negative(v, w.output_scale, err) : PLEACH_OK;
}

static pleach_status verify_config(verifier *v, pleach_error *err)
{
    const pl_config *c;
    pleach_error inner = {0};
    if (pl_checkpoint_config(v->checkpoint, &c, &inner) != PLEACH_OK) {
        finding(v, "config.json", "%s", inner.message);
        return PLEACH_OK;
    }
    for (size_t i = 0; i < pl_config_module_count(c); i++) {
        pl_module m;
        pl_config_module(c, i, &m);
        PL_TRY(verify_module(v, &m, err));
    }
    for (uint32_t layer = 0; layer < c->n_layers; layer++) verify_layer_vectors(v, c, layer);
    verify_vector(v, c->hidden_size, "model.norm.weight");
    return PLEACH_OK;
}

static pleach_status verify_all(verifier *v, pleach_error *err)
{
    PL_TRY(verify_config(v, err));
    for (size_t i = 0; i < pl_checkpoint_tensor_count(v->checkpoint); i++)
        PL_TRY(verify_finite(v, pl_checkpoint_tensor_at(v->checkpoint, i), err));
    return PLEACH_OK;
}

pleach_status pleach_checkpoint_verify(const pleach_checkpoint *c, pleach_finding_fn *found,
                                       void *user, size_t *n_findings, pleach_error *err)
{
    verifier v = {.checkpoint = c, .found = found, .user = user};
    pleach_status status = verify_all(&v, err);
    pl_free(v.row);
    if (n_findings) *n_findings = v.n;
    return status;
}
