/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of error feedback in words and numbers. */
#include "feedback.h"

#include "base/compiler.h"

const char *pl_feedback_state_text(pl_feedback_state s)
{
    static const char *const texts[] = {
        "no statistics", "applied", "NaN or infinity in the statistics", "statistics are zero",
        "statistics are not positive definite", "feedback lifts the peak too far",
        "coded along the inputs"};
    return (unsigned)s < PL_COUNT(texts) ? texts[s] : "unknown";
}

void pl_feedback_report_put(const pl_feedback_report *r, double *n)
{
    const double all[PL_FEEDBACK_NUMBERS] = {
        r->inputs,   r->outputs,  r->damping,     r->output_damping, r->dead,
        r->plain[0], r->plain[1], r->weighted[0], r->weighted[1],    r->loss,
        r->estimate[0], r->estimate[1], r->estimate[2]};
    for (size_t i = 0; i < PL_FEEDBACK_NUMBERS; i++) n[i] = all[i];
}

void pl_feedback_report_get(pl_feedback_report *r, const double *n)
{
    *r = (pl_feedback_report){.inputs = (pl_feedback_state)n[0],
                              .outputs = (pl_feedback_state)n[1],
                              .damping = n[2],
                              .output_damping = n[3],
                              .dead = n[4],
                              .plain = {n[5], n[6]},
                              .weighted = {n[7], n[8]},
                              .loss = n[9],
                              .estimate = {n[10], n[11], n[12]}};
}
