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

struct pl_kernels {
    unsigned cpu;
    pl_rotate_fn *rotate;
    pl_rotate_fn *unrotate;
};

/* What a computation needs besides its operands: borrowed by whoever computes. */
typedef struct pl_compute {
    pl_kernels kernels;
    int threads;
    pleach_arith arith;
} pl_compute;

#endif
