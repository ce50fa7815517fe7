/* SPDX-License-Identifier: Apache-2.0
 *
 * The rotation kernels by name: a level hands blocks shorter than its vector to the one below. */
#ifndef PL_KERNELS_ROTATE_H
#define PL_KERNELS_ROTATE_H

#include "kernels.h"

pl_rotate_fn pl_rotate_c, pl_unrotate_c;
pl_rotate_fn pl_rotate_avx2, pl_unrotate_avx2;
pl_rotate_fn pl_rotate_avx512, pl_unrotate_avx512;

#endif
