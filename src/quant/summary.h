/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan makes, or what a run has made, for the caller and the report. */
#ifndef PL_QUANT_SUMMARY_H
#define PL_QUANT_SUMMARY_H

#include "parts.h"
#include "warnings.h"

/* parts: what was coded, or NULL. Takes over the warnings, and adds one where modules went
 * without the error feedback that was asked for. The caller frees the summary, after a failure too. */
pleach_status pl_summary_make(const pl_plan *plan, const pl_parts *parts,
                              pl_warnings *warnings, pleach_quantize_summary *s, pleach_error *err);

#endif
