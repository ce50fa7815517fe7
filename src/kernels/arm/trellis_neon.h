/* SPDX-License-Identifier: Apache-2.0
 *
 * The NEON products by name: the level above hands them what it does no better. */
#ifndef PL_KERNELS_TRELLIS_NEON_H
#define PL_KERNELS_TRELLIS_NEON_H

#include "kernels/kernels.h"

#define DECLARE(k, L)                                                                              \
    pl_trellis_product_fn pl_axis0_k##k##_l##L##_neon, pl_axis1_k##k##_l##L##_neon,                \
        pl_axis0_i8_k##k##_l##L##_neon, pl_axis1_i8_k##k##_l##L##_neon;

PL_EACH_CODE(DECLARE)
#undef DECLARE

#endif
