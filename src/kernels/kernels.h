/* SPDX-License-Identifier: Apache-2.0
 *
 * The hot loops, behind one table of function pointers. kernels/c defines the right answer; each
 * ISA level overwrites the entries it improves. Contracts: docs/kernels.md.
 *
 * A table is filled when an engine opens and never changes after; nothing here is global. */
#ifndef PL_KERNELS_H
#define PL_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "attention.h"
#include "attention_packed.h"
#include "base/pool.h"
#include "codes.h"
#include "crossovers.h"
#include "delta.h"
#include "product.h"
#include "product_float.h"
#include "pleach/model.h" /* pleach_arith */

typedef struct pl_kernels pl_kernels;

/* Fills the table for these CPU flags (base/cpu.h). */
void pl_kernels_init(pl_kernels *k, unsigned cpu);

/* ---- trellis search: codec/viterbi.c drives it ---------------------------------------------- */

/* A state of L bits is s = (j, mid, n), of k, L-2k and k bits, j on top; its group (mid, n) is its
 * low L-k bits and its predecessors' group is (j, mid). Only group minima are kept: minima[slot]
 * holds for each of two blocks b the least cost [2^(L-k)] of a path into each group.
 *
 * For t = 0 .. steps-1 and both blocks, from slot(t) to slot(t+1):
 *   cost(s)     = minima[slot(t)][b][(j, mid)] + err(x[t][b] - value(s))
 *   minimum(g)  = min(32767, min over j of cost((j, g))) - (t % 4 == 3 ? fall : 0)
 *   err(d)      = (d*d + 2^14) >> 15, d wrapped to int16
 * where fall is the least minimum of block b as of four steps before, 0 at first. slot(t) is t & 1
 * before step `skip` (even) and t - skip from there on.
 *   minima  [steps - skip + 1, but at least 2][2][2^(L-k)], 64-byte aligned; slot 0 is the start
 *   values  in the order of pl_viterbi_order, 64-byte aligned
 *   x       [steps][2]
 * Exact: every ISA fills the slots with the same bits. */
typedef void pl_viterbi_forward_fn(uint16_t *minima, const int16_t *values, const int16_t *x,
                                   size_t steps, size_t skip);

/* Walks both blocks back from group[b] after the last step: for t = steps-1 .. skip, state
 * states[b][t] is the cheapest of the group, ties to the least j, and the next group is that
 * state's predecessors'. group[b] ends as the group before step `skip`.
 *   values  [2^(L-k)][2^k], by group and j
 * Exact. */
typedef void pl_viterbi_trace_fn(uint16_t *const states[2], uint32_t group[2],
                                 const uint16_t *minima, const int16_t *values, const int16_t *x,
                                 size_t steps, size_t skip);

/* ---- rotation ------------------------------------------------------------------------------ */

/* In place, x[0..n): x[i] *= signs[i] (signs may be NULL; +1 or -1), then a Walsh-Hadamard
 * transform in natural (Sylvester) order of each run of `block` numbers (a power of two that
 * divides n), multiplied by 1/sqrt(block). Butterflies of stride 1, 2, 4, ... in f32, then one
 * multiply. Exact: same bits on every ISA. */
typedef void pl_rotate_fn(float *x, const float *signs, size_t n, size_t block);
/* The inverse: the transform first, then the signs. Exact. */

/* ---- vectors: exact, docs/kernels.md, "Vectors" --------------------------------------------- */

/* sum a[i]*b[i]: 32 lanes, each i in lane i % 32, products and sums rounded one by one, lanes then
 * added pairwise (j and j + 16, j and j + 8, ...). */
typedef float pl_dot_f32_fn(const float *a, const float *b, size_t n);
/* y[i] += a * x[i]. */
typedef void pl_axpy_f32_fn(float *y, float a, const float *x, size_t n);
/* dst[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]; dst may be x. */
typedef void pl_rms_norm_fn(float *dst, const float *x, const float *weight, size_t n, float eps);
/* In place x[i] = exp(x[i] - max x) / sum of these; -inf gives 0 as long as one x is finite. */
typedef void pl_softmax_fn(float *x, size_t n);
/* silu_mul: dst[i] = gate[i] / (1 + exp(-gate[i])) * up[i], sigmoid_mul without the first factor; dst
 * may be gate or up. */
typedef void pl_gate_fn(float *dst, const float *gate, const float *up, size_t n);
/* gelu_mul: dst[i] = gate[i] / (1 + exp(-2u)) * up[i], u = sqrt(2 / pi) (gate[i] + 0.044715 gate[i]^3):
 * GELU by its tanh formula, as 1 + tanh(u) = 2 / (1 + exp(-2u)). */
/* Gradients of silu_mul from that by its result: with s = 1 / (1 + exp(-gate[i])),
 * dgate[i] = dy[i] * up[i] * (s + gate[i]*s * (1 - s)), dup[i] = dy[i] * gate[i]*s. dgate and dup
 * overlap nothing else. gelu_gradient: the same of gelu_mul. */
typedef void pl_gate_gradient_fn(float *dgate, float *dup, const float *gate, const float *up,
                                 const float *dy, size_t n);

struct pl_kernels {
    unsigned cpu;
    pl_crossovers crossovers;
    size_t viterbi_lanes;                        /* of the forward kernels' value tables */
    pl_viterbi_forward_fn *viterbi_forward[3][2]; /* [k - 2][L == 16] */
    pl_viterbi_trace_fn *viterbi_trace[3][2];
    pl_rotate_fn *rotate;
    pl_rotate_fn *unrotate;
    pl_dot_f32_fn *dot_f32;
    pl_axpy_f32_fn *axpy_f32;
    pl_rms_norm_fn *rms_norm;
    pl_softmax_fn *softmax;
    pl_gate_fn *sigmoid_mul, *silu_mul, *gelu_mul;
    pl_gate_gradient_fn *silu_gradient, *gelu_gradient;
    pl_attend_fn *attend; /* attention.h */
    pl_attend_prepare_fn *attend_prepare; /* attention_packed.h */
    pl_attend_packed_fn *attend_packed;
    pl_rope_fn *rope;
    pl_delta_fn *delta; /* delta.h */
    pl_conv_silu_fn *conv_silu;
    pl_product_kernels product; /* product.h */
    pl_float_kernels floats;    /* product_float.h */
};

/* Each family's entries, one function per ISA level; called by pl_kernels_init alone. */
void pl_kernels_init_viterbi_c(pl_kernels *k);
void pl_kernels_init_viterbi_avx2(pl_kernels *k);
void pl_kernels_init_viterbi_avx512(pl_kernels *k);
void pl_kernels_init_viterbi_neon(pl_kernels *k);
void pl_kernels_init_rotate_c(pl_kernels *k);
void pl_kernels_init_rotate_avx2(pl_kernels *k);
void pl_kernels_init_rotate_avx512(pl_kernels *k);
void pl_kernels_init_rotate_neon(pl_kernels *k);
void pl_kernels_init_vector_c(pl_kernels *k);
void pl_kernels_init_vector_avx2(pl_kernels *k);
void pl_kernels_init_vector_avx512(pl_kernels *k);
void pl_kernels_init_vector_neon(pl_kernels *k);
void pl_kernels_init_attention_c(pl_kernels *k);
void pl_kernels_init_attention_avx2(pl_kernels *k);
void pl_kernels_init_attention_neon(pl_kernels *k);
void pl_kernels_init_packed_c(pl_kernels *k);
void pl_kernels_init_packed_avx2(pl_kernels *k);
void pl_kernels_init_packed_avx512(pl_kernels *k);
void pl_kernels_init_packed_neon(pl_kernels *k);
void pl_kernels_init_delta_c(pl_kernels *k);
void pl_kernels_init_delta_avx2(pl_kernels *k);
void pl_kernels_init_delta_avx512(pl_kernels *k);
void pl_kernels_init_delta_neon(pl_kernels *k);

/* What a computation needs besides its operands: borrowed by whoever computes. */
typedef struct pl_compute {
    pl_kernels kernels;
    pl_pool *pool; /* NULL: the calling thread alone */
    pleach_arith arith;
} pl_compute;

/* Threads worth waking for about so many multiply-adds, at most the pool's. Results never depend on
 * it. */
int pl_compute_threads(const pl_compute *c, size_t operations);

#endif
