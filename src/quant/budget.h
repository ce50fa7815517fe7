/* SPDX-License-Identifier: Apache-2.0
 *
 * A budget of bits or bytes, spent on the modules where it lowers the loss most. */
#ifndef PL_QUANT_BUDGET_H
#define PL_QUANT_BUDGET_H

#include "allocate.h"
#include "calibrate/statistics.h"
#include "kernels/kernels.h"
#include "plan.h"
#include "warnings.h"

static inline bool pl_has_budget(const pl_plan *plan)
{
    return plan->settings.budget > 0 || plan->settings.budget_file > 0;
}

/* PLEACH_ERR_LIMIT, naming the floor, when even 2 bits wherever there is a choice are too many. */
pleach_status pl_budget_check(const pl_plan *plan, pleach_error *err);

/* What each module would lose at k = 2, 3 and 4, into item->loss. By the statistics: the expected
 * rise of the text's cross entropy to second order, up to a factor; without a backward pass, of the
 * squared error of what the module puts out. Without statistics, and saying so: |W|^2 times the
 * code's error on Gaussian numbers. Reads the weights. */
pleach_status pl_budget_measure(pl_plan *plan, const pl_statistics *statistics,
                                const pl_kernels *kernels, pl_warnings *warnings,
                                pleach_error *err);

/* Sets every module's bits by item->loss, and the plan's totals. */
pleach_status pl_budget_spend(pl_plan *plan, pleach_error *err);

#endif
