/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a forward pass. */
#include "base/memory.h"
#include "forward.h"

static size_t linear_scratch(const pl_transformer *t, const pl_compute *c, size_t batch)
{
    const pl_linear *head = &t->head;
    size_t most = pl_linear_scratch(c, &head, 1, batch);
    for (uint32_t i = 0; i < t->config->n_layers; i++) {
        const pl_layer *l = &t->layers[i];
        size_t mix = l->delta ? pl_forward_delta_scratch(l->delta, c, batch)
                              : pl_forward_attention_scratch(&l->attention, c, batch);
        most = PL_MAX(most, mix);
        size_t feed = l->experts ? pl_forward_experts_scratch(l->experts, c, batch)
                                 : pl_forward_mlp_scratch(&l->mlp, c, batch);
        most = PL_MAX(most, feed);
    }
    return most;
}

/* An array and the numbers that it holds for each row. */
typedef struct array {
    float **at;
    size_t width;
} array;

enum { ARRAYS = 19 + 2 * PL_MAX_ROPES };

/* Every array that the model's parts use. */
static size_t list_arrays(pl_workspace *w, array list[ARRAYS])
{
    const pl_config *g = w->t->config;
    size_t C = g->hidden_size, Q = (size_t)g->n_heads * g->head_dim;
    size_t K = (size_t)g->n_kv_heads * g->head_dim, n = 0, experts = g->n_experts > 0;
    size_t I = PL_MAX(g->intermediate_size, PL_MAX(g->expert_size, g->shared_expert_size));
    const pl_delta_config *d = &g->delta;
    size_t V = pl_delta_values(d), X = pl_delta_channels(d), H = d->value_heads;
    const array all[] = {{&w->x, C},
                         {&w->norm, C},
                         {&w->update, C},
                         {&w->q, Q},
                         {&w->mixed, PL_MAX(Q, V)},
                         {&w->gated_q, g->output_gate ? 2 * Q : 0},
                         {&w->delta_qkv, X},
                         {&w->delta_mixed, X},
                         {&w->delta_z, V},
                         {&w->delta_a, H},
                         {&w->delta_b, H},
                         {&w->delta_gates, H * sizeof(pl_delta_gate) / sizeof(float)},
                         {&w->k, K},
                         {&w->v, K},
                         {&w->gate, I},
                         {&w->up, I},
                         {&w->gathered, experts * C},
                         {&w->expert_out, experts * C},
                         {&w->shared_gate, experts}};
    for (size_t i = 0; i < PL_COUNT(all); i++)
        if (all[i].width) list[n++] = all[i];
    for (uint32_t i = 0; i < w->t->n_ropes; i++) {
        list[n++] = (array){&w->cos[i], w->t->ropes[i].half};
        list[n++] = (array){&w->sin[i], w->t->ropes[i].half};
    }
    return n;
}

pleach_status pl_workspace_open(const pl_transformer *t, const pl_compute *c, size_t batch,
                                pl_workspace **out, pleach_error *err)
{
    array list[ARRAYS];
    *out = NULL;
    pl_workspace *w = pl_calloc(1, sizeof *w);
    if (!w) return pl_fail_memory(err, "workspace", sizeof *w);
    w->t = t;
    w->batch = batch;
    size_t scratch = linear_scratch(t, c, batch), asked = scratch, n = list_arrays(w, list);
    w->linear = pl_alloc(1, scratch);
    bool whole = w->linear != NULL;
    for (size_t i = 0; i < n; i++) {
        *list[i].at = pl_alloc(batch, list[i].width * sizeof(float));
        whole = whole && *list[i].at;
        asked += batch * list[i].width * sizeof(float);
    }
    if (!whole) {
        pl_workspace_close(w);
        return pl_fail_memory(err, "workspace", asked);
    }
    const pl_config *g = t->config;
    pleach_status status = PLEACH_OK;
    if (g->n_experts)
        status = pl_routes_open(&w->routes, batch, g->n_experts, g->n_experts_used, err);
    if (status == PLEACH_OK) *out = w;
    else pl_workspace_close(w);
    return status;
}

void pl_workspace_close(pl_workspace *w)
{
    array list[ARRAYS];
    if (!w) return;
    size_t n = list_arrays(w, list);
    for (size_t i = 0; i < n; i++) pl_free(*list[i].at);
    pl_routes_close(&w->routes);
    pl_free(w->linear);
    pl_free(w->attention);
    pl_free(w);
}
