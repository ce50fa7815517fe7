/* SPDX-License-Identifier: Apache-2.0
 *
 * 1 / (1 + exp(-x)), of single numbers; whole rows go through the kernels. */
#ifndef PL_MODEL_SIGMOID_H
#define PL_MODEL_SIGMOID_H

#include <math.h>

static inline float pl_sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

#endif
