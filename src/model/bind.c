/* SPDX-License-Identifier: Apache-2.0
 *
 * From tensors to the parts of a layer. */
#include "bind.h"

#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "family.h"

pleach_status pl_bind_vector(const pleach_checkpoint *c, const char *name, uint32_t n, float offset,
                             float **out, pleach_error *err)
{
    const char *path = pl_checkpoint_path(c);
    const pl_tensor *t = pl_checkpoint_find(c, name);
    PL_FAIL_IF(!t, err, PLEACH_ERR_MISSING, "%s: tensor %s is missing", path, name);
    PL_FAIL_IF(!pl_dtype_get(t->type)->numeric, err, PLEACH_ERR_FORMAT,
               "%s: tensor %s: type %s is not a number", path, name, pl_dtype_get(t->type)->name);
    PL_FAIL_IF(t->n_dims != 1 || t->shape[0] != n, err, PLEACH_ERR_SHAPE,
               "%s: tensor %s: expected shape [%u], found %u dimensions of %llu elements", path,
               name, n, t->n_dims, (unsigned long long)pl_tensor_elements(t));
    *out = pl_alloc(n, sizeof **out);
    if (!*out) return pl_fail_memory(err, name, n * sizeof **out);
    pl_tensor_row_f32(t, 0, *out);
    for (uint32_t i = 0; offset != 0 && i < n; i++) (*out)[i] += offset;
    return PLEACH_OK;
}

pleach_status pl_bind_linear(const pleach_checkpoint *c, const char *module, uint64_t out,
                             uint64_t in, bool needs_bias, pl_linear *l, pleach_error *err)
{
    pl_weight w;
    PL_TRY(pl_checkpoint_weight(c, module, out, in, &w, err));
    PL_FAIL_IF(needs_bias && !w.bias, err, PLEACH_ERR_MISSING, "%s: tensor %s.bias is missing",
               pl_checkpoint_path(c), module);
    return pl_linear_open(l, &w, err);
}

pleach_status pl_bind_norm(const pleach_checkpoint *c, const pl_config *g, uint32_t i,
                           const char *name, uint32_t n, float **out, pleach_error *err)
{
    char full[160];
    snprintf(full, sizeof full, "model.layers.%u.%s", i, name);
    return pl_bind_vector(c, full, n, g->norm_offset, out, err);
}

/* A linear layer of a part. */
typedef struct part_linear {
    const char *name;
    uint64_t out, in;
    bool bias;
    pl_linear *to;
} part_linear;

/* n of them, below "model.layers.<i>.<prefix>". */
static pleach_status bind_part(const pleach_checkpoint *c, uint32_t i, const char *prefix,
                               const part_linear *linears, size_t n, pleach_error *err)
{
    char name[160];
    for (size_t j = 0; j < n; j++) {
        const part_linear *l = &linears[j];
        snprintf(name, sizeof name, "model.layers.%u.%s.%s", i, prefix, l->name);
        PL_TRY(pl_bind_linear(c, name, l->out, l->in, l->bias, l->to, err));
    }
    return PLEACH_OK;
}

pleach_status pl_bind_attention(const pleach_checkpoint *c, const pl_config *g, uint32_t i,
                                pl_attention_part *a, pleach_error *err)
{
    uint64_t C = g->hidden_size, D = g->head_dim, Q = g->n_heads * D, K = g->n_kv_heads * D;
    uint64_t gated = g->output_gate ? 2 * Q : Q;
    const part_linear linears[] = {{"q_proj", gated, C, g->attention_bias, &a->q},
                                   {"k_proj", K, C, g->attention_bias, &a->k},
                                   {"v_proj", K, C, g->attention_bias, &a->v},
                                   {"o_proj", C, Q, g->output_bias, &a->o}};
    a->window = pl_config_window(g, i);
    a->gated = g->output_gate;
    PL_TRY(bind_part(c, i, "self_attn", linears, PL_COUNT(linears), err));
    if (!g->qk_norm) return PLEACH_OK;
    PL_TRY(pl_bind_norm(c, g, i, "self_attn.q_norm.weight", g->head_dim, &a->q_norm, err));
    return pl_bind_norm(c, g, i, "self_attn.k_norm.weight", g->head_dim, &a->k_norm, err);
}

/* The convolution, [channels][1][taps] or in two dimensions, turned to [taps][channels]. */
static pleach_status bind_conv(const pleach_checkpoint *c, uint32_t i, pl_delta_net *net,
                               pleach_error *err)
{
    size_t C = pl_delta_channels(&net->shape), taps = net->shape.taps;
    char name[160];
    snprintf(name, sizeof name, "model.layers.%u.linear_attn.conv1d.weight", i);
    const char *path = pl_checkpoint_path(c);
    const pl_tensor *t = pl_checkpoint_find(c, name);
    PL_FAIL_IF(!t, err, PLEACH_ERR_MISSING, "%s: tensor %s is missing", path, name);
    PL_FAIL_IF(!pl_dtype_get(t->type)->numeric || t->shape[0] != C ||
                   pl_tensor_elements(t) != C * taps,
               err, PLEACH_ERR_SHAPE, "%s: tensor %s: expected numbers of shape [%zu, 1, %zu]",
               path, name, C, taps);
    size_t width = pl_tensor_width(t);
    float *flat = pl_alloc(C * taps, sizeof *flat);
    net->conv = pl_alloc(C * taps, sizeof *net->conv);
    bool whole = flat && net->conv;
    for (size_t r = 0; whole && r < pl_tensor_rows(t); r++)
        pl_tensor_row_f32(t, r, flat + r * width);
    for (size_t k = 0; whole && k < C * taps; k++) net->conv[k % taps * C + k / taps] = flat[k];
    pl_free(flat);
    return whole ? PLEACH_OK : pl_fail_memory(err, name, 2 * C * taps * sizeof *flat);
}

/* Norms of keys and queries as those of the kernels, whose mean is a sum over D: delta.h. */
static pleach_status set_gains(pl_delta_net *net, pleach_error *err)
{
    uint32_t D = net->shape.key_dim;
    net->q_gain = pl_alloc(2 * (size_t)D, sizeof *net->q_gain);
    if (!net->q_gain) return pl_fail_memory(err, "model", 2 * D * sizeof *net->q_gain);
    net->k_gain = net->q_gain + D;
    for (uint32_t k = 0; k < D; k++) {
        net->q_gain[k] = 1 / (float)D;
        net->k_gain[k] = 1 / sqrtf((float)D);
    }
    return PLEACH_OK;
}

static pleach_status bind_numbers(const pleach_checkpoint *c, uint32_t i, pl_delta_net *net,
                                  pleach_error *err)
{
    uint32_t H = net->shape.value_heads;
    const struct {
        const char *name;
        uint32_t n;
        float **to;
    } vectors[] = {{"A_log", H, &net->rate},
                   {"dt_bias", H, &net->dt_bias},
                   {"norm.weight", net->shape.value_dim, &net->norm}};
    char name[160];
    for (size_t j = 0; j < PL_COUNT(vectors); j++) {
        snprintf(name, sizeof name, "model.layers.%u.linear_attn.%s", i, vectors[j].name);
        PL_TRY(pl_bind_vector(c, name, vectors[j].n, 0, vectors[j].to, err));
    }
    for (uint32_t h = 0; h < H; h++) net->rate[h] = expf(net->rate[h]);
    PL_TRY(bind_conv(c, i, net, err));
    return set_gains(net, err);
}

pleach_status pl_bind_delta(const pleach_checkpoint *c, const pl_config *g, uint32_t i, pl_layer *l,
                            pleach_error *err)
{
    pl_delta_part *d = l->delta = pl_calloc(1, sizeof *d);
    if (!d) return pl_fail_memory(err, "model", sizeof *d);
    d->net = (pl_delta_net){.shape = g->delta, .eps = g->rms_norm_eps};
    uint64_t C = g->hidden_size, V = pl_delta_values(&g->delta), H = g->delta.value_heads;
    const part_linear linears[] = {{"in_proj_qkv", pl_delta_channels(&g->delta), C, false, &d->qkv},
                                   {"in_proj_z", V, C, false, &d->z},
                                   {"in_proj_a", H, C, false, &d->a},
                                   {"in_proj_b", H, C, false, &d->b},
                                   {"out_proj", C, V, false, &d->out}};
    PL_TRY(bind_part(c, i, "linear_attn", linears, PL_COUNT(linears), err));
    return bind_numbers(c, i, &d->net, err);
}

/* A dense feed-forward part of width I at `prefix`. */
static pleach_status bind_mlp(const pleach_checkpoint *c, const pl_config *g, uint32_t i,
                              const char *prefix, uint64_t I, pl_mlp_part *m, pleach_error *err)
{
    uint64_t C = g->hidden_size;
    const part_linear linears[] = {{"gate_proj", I, C, g->mlp_bias, &m->gate},
                                   {"up_proj", I, C, g->mlp_bias, &m->up},
                                   {"down_proj", C, I, g->mlp_bias, &m->down}};
    return bind_part(c, i, prefix, linears, PL_COUNT(linears), err);
}

pleach_status pl_bind_mlp(const pleach_checkpoint *c, const pl_config *g, uint32_t i,
                          pl_mlp_part *m, pleach_error *err)
{
    return bind_mlp(c, g, i, "mlp", g->intermediate_size, m, err);
}

static pleach_status bind_shared(const pleach_checkpoint *c, const pl_config *g, uint32_t i,
                                 pl_experts_part *x, pleach_error *err)
{
    const part_linear gate = {"shared_expert_gate", 1, g->hidden_size, false, &x->shared_gate};
    x->has_shared = true;
    PL_TRY(bind_mlp(c, g, i, "mlp.shared_expert", g->shared_expert_size, &x->shared, err));
    return bind_part(c, i, "mlp", &gate, 1, err);
}

pleach_status pl_bind_experts(const pleach_checkpoint *c, const pl_config *g, uint32_t i,
                              pl_layer *l, pleach_error *err)
{
    char prefix[40];
    pl_experts_part *x = l->experts = pl_calloc(1, sizeof *x);
    if (!x) return pl_fail_memory(err, "model", sizeof *x);
    *x = (pl_experts_part){.used = g->n_experts_used, .renormalise = g->expert_renormalise};
    x->experts = pl_calloc(g->n_experts, sizeof *x->experts);
    if (!x->experts) return pl_fail_memory(err, "model", g->n_experts * sizeof *x->experts);
    x->n = g->n_experts;
    const part_linear router = {"gate", x->n, g->hidden_size, false, &x->router};
    PL_TRY(bind_part(c, i, "mlp", &router, 1, err));
    for (uint32_t e = 0; e < x->n; e++) {
        snprintf(prefix, sizeof prefix, "mlp.experts.%u", e);
        PL_TRY(bind_mlp(c, g, i, prefix, g->expert_size, &x->experts[e], err));
    }
    return g->shared_expert_size ? bind_shared(c, g, i, x, err) : PLEACH_OK;
}

pleach_status pl_bind_block(const pleach_checkpoint *c, const pl_config *g, uint32_t i, pl_layer *l,
                            pleach_error *err)
{
    uint32_t C = g->hidden_size;
    PL_TRY(g->layer[i].delta ? pl_bind_delta(c, g, i, l, err)
                             : pl_bind_attention(c, g, i, &l->attention, err));
    PL_TRY(g->layer[i].experts ? pl_bind_experts(c, g, i, l, err)
                               : pl_bind_mlp(c, g, i, &l->mlp, err));
    PL_TRY(pl_bind_norm(c, g, i, "input_layernorm.weight", C, &l->input_norm, err));
    return pl_bind_norm(c, g, i, "post_attention_layernorm.weight", C, &l->post_norm, err);
}
