/* SPDX-License-Identifier: Apache-2.0
 *
 * Coding one trellis module, with or without error feedback. */
#ifndef PL_QUANT_CODE_TRELLIS_H
#define PL_QUANT_CODE_TRELLIS_H

#include "code_module.h"

/* out's tensors are laid out already. */
pleach_status pl_code_trellis(const pl_coder *c, const pl_plan_item *item,
                              const pl_module_statistics *stats, pl_coded *out, pleach_error *err);

/* What coding the module would lose, without coding it: fills in report->estimate and what belongs
 * to W and the statistics. report->inputs is APPLIED, or the estimate is zero. */
pleach_status pl_estimate_trellis(const pl_coder *c, const pl_plan_item *item,
                                  const pl_module_statistics *stats, pl_feedback_report *report,
                                  pleach_error *err);

#endif
