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
#include "pleach/model.h" /* pleach_arith */

typedef struct pl_kernels pl_kernels;

/* Fills the table for these CPU flags (base/cpu.h). */
void pl_kernels_init(pl_kernels *k, unsigned cpu);

/* ---- trellis search: see codec/viterbi.h for the driver ------------------------------------ */

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
/* dst[i] = gate[i] / (1 + exp(-gate[i])) * up[i]; dst may be gate or up. */
typedef void pl_silu_mul_fn(float *dst, const float *gate, const float *up, size_t n);

struct pl_kernels {
    unsigned cpu;
    pl_rotate_fn *rotate;
    pl_rotate_fn *unrotate;
    pl_dot_f32_fn *dot_f32;
    pl_axpy_f32_fn *axpy_f32;
    pl_rms_norm_fn *rms_norm;
    pl_softmax_fn *softmax;
    pl_silu_mul_fn *silu_mul;
    pl_attend_fn *attend; /* attention.h */
    pl_rope_fn *rope;
};

/* Each family's entries, one function per ISA level; called by pl_kernels_init alone. */
void pl_kernels_init_rotate_c(pl_kernels *k);
void pl_kernels_init_rotate_avx2(pl_kernels *k);
void pl_kernels_init_rotate_avx512(pl_kernels *k);
void pl_kernels_init_vector_c(pl_kernels *k);
void pl_kernels_init_vector_avx2(pl_kernels *k);
void pl_kernels_init_vector_avx512(pl_kernels *k);
void pl_kernels_init_attention_c(pl_kernels *k);
void pl_kernels_init_attention_avx2(pl_kernels *k);

/* What a computation needs besides its operands: borrowed by whoever computes. */
typedef struct pl_compute {
    pl_kernels kernels;
    int threads;
    pleach_arith arith;
} pl_compute;

#endif
