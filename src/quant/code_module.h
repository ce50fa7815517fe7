/* SPDX-License-Identifier: Apache-2.0
 *
 * One module from the source's numbers to the codes that are stored. */
#ifndef PL_QUANT_CODE_MODULE_H
#define PL_QUANT_CODE_MODULE_H

#include "kernels/kernels.h"
#include "plan.h"

/* Called between pieces of a large module with the share done, 0 to 1; non-zero return stops. */
typedef int pl_coder_step_fn(void *user, double share);

typedef struct pl_coder {
    const pl_kernels *kernels;
    const char *cpu;
    int threads;
    pl_coder_step_fn *step;
    void *user;
} pl_coder;

/* What a module has become. Not to be copied: tensor names point into it. */
typedef struct pl_coded {
    pl_item_tensors tensors;
    void *data[3];       /* of each tensor; owned */
    double error, power; /* |W - Q|^2 and |W|^2 */
} pl_coded;

/* Codes a module whose plan is trellis or affine. The same bits for every thread count. */
pleach_status pl_code_module(const pl_coder *c, const pl_plan_item *item, pl_coded *out,
                             pleach_error *err);
void pl_coded_free(pl_coded *coded); /* accepts a zeroed one */

#endif
