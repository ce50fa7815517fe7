/* SPDX-License-Identifier: Apache-2.0
 *
 * The gated delta net as a part of a layer: its projections round delta.c. */
#include "forward.h"

size_t pl_forward_delta_scratch(const pl_delta_part *d, const pl_compute *c, size_t batch)
{
    const pl_linear *in[] = {&d->qkv, &d->z, &d->a, &d->b}, *out = &d->out;
    return PL_MAX(pl_linear_scratch(c, in, 4, batch), pl_linear_scratch(c, &out, 1, batch));
}

/* The states of all n rows move on. */
void pl_forward_delta(pl_forward *p, const pl_delta_part *d)
{
    pl_workspace *w = p->w;
    size_t C = w->t->config->hidden_size, V = pl_delta_values(&d->net.shape), from = p->from;
    const pl_linear *in[] = {&d->qkv, &d->z, &d->a, &d->b}, *out = &d->out;
    float *outputs[] = {w->delta_qkv, w->delta_z, w->delta_a, w->delta_b};
    float *update = w->update + from * C;
    pl_linear_apply(p->c, in, 4, w->norm, p->n, outputs, w->linear);
    pl_delta_call call = {.net = &d->net, .caches = p->caches, .apart = p->apart,
                          .layer = p->layer, .n = p->n, .from = from,
                          .qkv = w->delta_qkv, .z = w->delta_z, .a = w->delta_a, .b = w->delta_b,
                          .mixed = w->delta_mixed, .gates = (pl_delta_gate *)w->delta_gates,
                          .out = w->mixed};
    pl_delta_net_run(p->c, &call);
    if (from == p->n) return;
    pl_linear_apply(p->c, &out, 1, w->mixed + from * V, p->n - from, &update, w->linear);
}
