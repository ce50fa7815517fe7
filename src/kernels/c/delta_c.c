/* SPDX-License-Identifier: Apache-2.0
 *
 * The gated delta rule in portable C: a token at a time, as the contract has it. */
#include <math.h>

#include "kernels/kernels.h"

enum { P = PL_DELTA_PANEL };

static void step(float *S, const pl_delta_run *r, size_t t)
{
    const float *q = r->q + t * r->key_stride, *k = r->k + t * r->key_stride;
    const float *v = r->v + t * r->value_stride;
    pl_delta_gate g = r->gates[t * r->gate_stride];
    float m[P] = {0}, o[P] = {0}, d[P];
    for (size_t i = 0; i < r->dim; i++)
        for (size_t j = 0; j < P; j++) {
            m[j] = fmaf(S[i * P + j], k[i], m[j]);
            o[j] = fmaf(S[i * P + j], q[i], o[j]);
        }
    for (size_t j = 0; j < P; j++) {
        d[j] = fmaf(-g.decay, m[j], v[j]) * g.beta;
        r->out[t * r->out_stride + j] = fmaf(d[j], g.qk, g.decay * o[j]);
    }
    for (size_t i = 0; i < r->dim; i++)
        for (size_t j = 0; j < P; j++)
            S[i * P + j] = fmaf(k[i], d[j], g.decay * S[i * P + j]);
}

static void delta_c(float *S, const pl_delta_run *r)
{
    for (size_t t = 0; t < r->n; t++) step(S, r, t);
}

void pl_kernels_init_delta_c(pl_kernels *k)
{
    k->delta = delta_c;
}
