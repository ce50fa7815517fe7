/* SPDX-License-Identifier: Apache-2.0
 *
 * The gated delta rule, NEON. */
#include <stdbool.h>

#include "float_ops_neon.h"
#include "kernels/kernels.h"

enum { LANES = 4 };

#include "kernels/delta_body.h"

static void delta_neon(float *S, const pl_delta_run *r)
{
    delta(S, r);
}

void pl_kernels_init_delta_neon(pl_kernels *k)
{
    k->delta = delta_neon;
}
