/* SPDX-License-Identifier: Apache-2.0
 *
 * Contracts of the gated delta rule's kernels (docs/kernels.md, "Gated delta rule"). */
#ifndef PL_KERNELS_DELTA_H
#define PL_KERNELS_DELTA_H

#include <stddef.h>

/* Columns of a panel: a head's state S [dim][columns] is stored panel by panel, [dim][32] each, so
 * that a panel lies together and stays in the first-level cache while tokens pass over it. */
#define PL_DELTA_PANEL 32

/* What one token does to the state of one head. */
typedef struct pl_delta_gate {
    float decay; /* of what the state holds, 0..1 */
    float beta;  /* how much of the token's value is written, 0..1 */
    float qk;    /* q . k of the token */
} pl_delta_gate;

/* n tokens of one head that pass over one panel. */
typedef struct pl_delta_run {
    size_t n, dim;
    const float *q, *k; /* rows of dim numbers, a token's key_stride after the one before */
    size_t key_stride;
    const float *v; /* rows of PL_DELTA_PANEL numbers */
    size_t value_stride;
    const pl_delta_gate *gates;
    size_t gate_stride;
    float *out; /* rows of PL_DELTA_PANEL numbers; may be v with the same stride */
    size_t out_stride;
} pl_delta_run;

/* For each token, with S [dim][PL_DELTA_PANEL]:
 *   S <- decay S,  d = beta (v - S^T k),  S <- S + k d^T,  out = S^T q
 * computed, for each column, as
 *   m = sum S[i] k[i],  o = sum S[i] q[i]     i ascending from 0, each product fused into its sum
 *   d = fma(-decay, m, v) * beta,  out = fma(d, qk, decay * o),  S[i] <- fma(k[i], d, decay * S[i])
 * Exact: the same bits on every ISA and for any cut of a sequence into runs.
 * Source: Gated Delta Networks (arXiv 2412.06464), eq. 10. */
typedef void pl_delta_fn(float *S, const pl_delta_run *r);

/* One token of a causal convolution along time, each channel by itself, and SiLU:
 *   dst[i] = s / (1 + exp(-s)),  s = x[0][i] * w[i] + x[1][i] * w[n + i] + ... x[taps-1][i] * ...
 * x: the rows of the last `taps` tokens, the newest last; w [taps][n]; dst overlaps nothing else.
 * Products and sums rounded one by one. Exact. */
typedef void pl_conv_silu_fn(float *dst, const float *const *x, const float *w, size_t taps,
                             size_t n);

#endif
