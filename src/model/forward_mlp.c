/* SPDX-License-Identifier: Apache-2.0
 *
 * The dense feed-forward part. */
#include "forward.h"

size_t pl_forward_mlp_scratch(const pl_mlp_part *m, const pl_compute *c, size_t batch)
{
    const pl_linear *gate_up[] = {&m->gate, &m->up}, *down = &m->down;
    return PL_MAX(pl_linear_scratch(c, gate_up, 2, batch), pl_linear_scratch(c, &down, 1, batch));
}

void pl_forward_mlp(pl_forward *p, const pl_mlp_part *m)
{
    pl_workspace *w = p->w;
    size_t C = w->t->config->hidden_size, from = p->from, rows = p->n - from;
    const pl_linear *down = &m->down;
    float *update = w->update + from * C;
    pl_linear_gated(p->c, &m->gate, &m->up, pl_activation_kernel(p), w->norm + from * C, rows,
                    w->gate, w->up, w->linear);
    pl_linear_apply(p->c, &down, 1, w->gate, rows, &update, w->linear);
}
