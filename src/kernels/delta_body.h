/* SPDX-License-Identifier: Apache-2.0
 *
 * The gated delta rule: the part that the levels with vectors share. The including file defines
 * fvec (a register of LANES floats) and its operations.
 *
 * One sweep over a panel writes what a token does to the state and reads it for the next token, so
 * that each token after the first costs one load, one store and four operations a number. */
#ifndef PL_KERNELS_DELTA_BODY_H
#define PL_KERNELS_DELTA_BODY_H

#include "base/compiler.h"
#include "kernels/delta.h"

enum { COLUMNS = PL_DELTA_PANEL / LANES };

typedef struct panel_row {
    fvec v[COLUMNS];
} panel_row;

/* What a token reads of the state: m = S^T k and o = S^T q. */
typedef struct panel_sums {
    panel_row m, o;
} panel_sums;

/* Writes token (k, d, decay) if `write`, then reads for (next_k, next_q) if `read`. */
static PL_ALWAYS_INLINE panel_sums sweep(float *S, size_t dim, bool write, const float *k,
                                         const panel_row *d, float decay, bool read,
                                         const float *next_k, const float *next_q)
{
    panel_sums s;
    for (int c = 0; c < COLUMNS; c++) s.m.v[c] = s.o.v[c] = f_splat(0);
    fvec keep = f_splat(decay);
    for (size_t i = 0; i < dim; i++, S += PL_DELTA_PANEL)
        for (int c = 0; c < COLUMNS; c++) {
            fvec x = f_load(S + c * LANES);
            if (write) {
                x = f_fma(f_splat(k[i]), d->v[c], f_mul(keep, x));
                f_store(S + c * LANES, x);
            }
            if (!read) continue;
            s.m.v[c] = f_fma(x, f_splat(next_k[i]), s.m.v[c]);
            s.o.v[c] = f_fma(x, f_splat(next_q[i]), s.o.v[c]);
        }
    return s;
}

/* The token's output and d, from what it read. */
static PL_ALWAYS_INLINE panel_row finish(const pl_delta_run *r, size_t t, const panel_sums *s)
{
    const float *v = r->v + t * r->value_stride;
    const pl_delta_gate *g = &r->gates[t * r->gate_stride];
    float *out = r->out + t * r->out_stride;
    panel_row d;
    for (int c = 0; c < COLUMNS; c++) {
        fvec error = f_fma(f_splat(-g->decay), s->m.v[c], f_load(v + c * LANES));
        d.v[c] = f_mul(error, f_splat(g->beta));
        fvec kept = f_mul(f_splat(g->decay), s->o.v[c]);
        f_store(out + c * LANES, f_fma(d.v[c], f_splat(g->qk), kept));
    }
    return d;
}

static PL_ALWAYS_INLINE void delta(float *S, const pl_delta_run *r)
{
    if (r->n == 0) return;
    panel_sums s = sweep(S, r->dim, false, NULL, NULL, 0, true, r->k, r->q);
    for (size_t t = 0; t < r->n; t++) {
        const float *k = r->k + t * r->key_stride, *q = r->q + t * r->key_stride;
        float decay = r->gates[t * r->gate_stride].decay;
        panel_row d = finish(r, t, &s);
        if (t + 1 < r->n)
            s = sweep(S, r->dim, true, k, &d, decay, true, k + r->key_stride, q + r->key_stride);
        else
            sweep(S, r->dim, true, k, &d, decay, false, NULL, NULL);
    }
}

#endif
