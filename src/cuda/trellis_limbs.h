/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of trellis weights in units with up to 8 rows of activations, by integer tensor cores:
 * the four bytes of a weight's x meet its activation in signed bytes, "limbs", so that the sums are
 * integers. One launch does all of it.
 *
 *   y[m][o] = output_scale[o] * sum over runs of step(m, run) *
 *                               f32(sum over the run of Q[m][i] * y(i, o)) [* scale[o]] + bias[o]
 *
 * A run is a 256-block of inputs on axis 1, and up to 256 stored rows that one warp walks on axis 0,
 * where x is multiplied by the rows' scales first. Q = round(a / step), ties to even, step the power
 * of two with which the run's largest |a| needs 23 bits (M = 1: three limbs, relative error of the
 * outputs below 1e-6) or 15 (M = 2 to 8: two limbs, below 1e-4). The sums of a run are exact; they
 * are added in f32 in an order that the shape and the number of multiprocessors fix.
 *
 * A row's bits do not depend on the others: they depend on M alone by its class, 1, 2 to 4, 5 to 8.
 * A row with NaN or infinity gets NaN (on axis 0 also where x * scale leaves f32); a run whose
 * largest |a| is below 2^-100 counts as zeros. */
#ifndef PL_CUDA_TRELLIS_LIMBS_H
#define PL_CUDA_TRELLIS_LIMBS_H

#include "rotate.h"
#include "trellis.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PL_CUDA_LIMBS_ROWS = 8, /* most rows */
    PL_CUDA_LIMBS_GROUP = 8 /* most pieces of one launch */
};

/* Once per device, when it is opened: lets the kernels have the shared memory they need. */
pleach_status pl_cuda_trellis_limbs_prepare(pl_cuda *d, pleach_error *err);

/* Weights in units, M <= 8, and what the exchange (device.h) has room for. */
bool pl_cuda_trellis_limbs_serves(const pl_cuda *d, const pl_cuda_trellis *w, size_t M);
size_t pl_cuda_trellis_limbs_scratch(const pl_cuda *d, const pl_cuda_trellis *w, size_t M); /* 0 */
void pl_cuda_trellis_limbs_run(const pl_cuda *d, const pl_cuda_product *p, void *scratch);

/* gate and up in one launch: gate's y[m][o] = silu(gate[o]) * up[o], both as above, of the same x,
 * axis, in, out and L; where k differs, M <= 4. up's y is not looked at. Then, where r is not NULL
 * and has a block, y[m] = its rotation (exactly), on axis 0 and to 256 in the same launch. */
bool pl_cuda_trellis_limbs_swiglu_serves(const pl_cuda *d, const pl_cuda_trellis *gate,
                                         const pl_cuda_trellis *up, size_t M);
void pl_cuda_trellis_limbs_swiglu(const pl_cuda *d, const pl_cuda_product *gate,
                                  const pl_cuda_product *up, const pl_cuda_rotation *r);

/* n products of the same x and in in one launch, of the same axis and L, cut into pieces as large as
 * the smallest, at most PL_CUDA_LIMBS_GROUP of them: q, k and v. */
bool pl_cuda_trellis_limbs_group_serves(const pl_cuda *d, const pl_cuda_trellis *const *w,
                                        size_t n, size_t M);
void pl_cuda_trellis_limbs_group(const pl_cuda *d, const pl_cuda_product *products, size_t n);

#ifdef __cplusplus
}
#endif
#endif
