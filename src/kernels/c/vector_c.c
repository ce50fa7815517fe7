/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector operations in portable C. */
#include "kernels/kernels.h"
#include "kernels/vector.h"

static float dot_f32_c(const float *a, const float *b, size_t n)
{
    return body_dot_f32(a, b, n);
}

PL_VECTOR_KERNELS(c)
