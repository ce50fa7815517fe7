/* SPDX-License-Identifier: Apache-2.0
 *
 * The codes that kernels are made for: k bits a number and L bits of state, constants in each. */
#ifndef PL_KERNELS_CODES_H
#define PL_KERNELS_CODES_H

/* each(k, L), or each(..., k, L), once for every code. */
#define PL_EACH_CODE(each) each(2, 12) each(3, 12) each(4, 12) each(2, 16) each(3, 16) each(4, 16)
#define PL_EACH_CODE_OF(each, ...)                                                                 \
    each(__VA_ARGS__, 2, 12) each(__VA_ARGS__, 3, 12) each(__VA_ARGS__, 4, 12)                     \
    each(__VA_ARGS__, 2, 16) each(__VA_ARGS__, 3, 16) each(__VA_ARGS__, 4, 16)

#endif
