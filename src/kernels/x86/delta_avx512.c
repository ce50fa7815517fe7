/* SPDX-License-Identifier: Apache-2.0
 *
 * The gated delta rule, AVX-512. */
#include <stdbool.h>

#include "float_ops_avx512.h"
#include "kernels/kernels.h"

enum { LANES = 16 };

#include "kernels/delta_body.h"

static void delta_avx512(float *S, const pl_delta_run *r)
{
    delta(S, r);
}

void pl_kernels_init_delta_avx512(pl_kernels *k)
{
    k->delta = delta_avx512;
}
