/* SPDX-License-Identifier: Apache-2.0
 *
 * The report in a packed folder: quantize-report.json for programs, report.html for people
 * (docs/quantize.md, "Report"). */
#ifndef PL_QUANT_REPORT_H
#define PL_QUANT_REPORT_H

#include "plan.h"
#include "pleach/eval.h"

typedef struct pl_report {
    const char *source;                       /* as it was given */
    const pleach_quantize_settings *settings; /* checked, defaults filled in */
    const pleach_quantize_summary *summary;
    const pleach_eval_result *eval;           /* NULL: not evaluated */
    const char *command;                      /* that gives `eval` again */
} pl_report;

/* Whether settings.report_text, if any, can be read, and the source has a tokenizer for it: a slip
 * is found before the work. */
pleach_status pl_report_check(const pl_plan *plan, pleach_error *err);
/* Bytes that scoring takes at most, pages of both models included; 0 without a text. */
uint64_t pl_report_memory(const pl_plan *plan);
/* Scores the folder `dir` on settings->report_text, with the source as teacher. */
pleach_status pl_report_evaluate(const pl_report *r, const char *dir, pleach_eval_result *result,
                                 pleach_error *err);
/* The command that does the same with the folder `out`: fresh memory for free(), or NULL. */
char *pl_report_command(const pl_report *r, const char *out);

/* Writes both files into `dir`. They hold no times, so equal runs give equal files. */
pleach_status pl_report_write(const pl_report *r, const char *dir, pleach_error *err);

/* The page alone, in fresh memory for free(); NULL when out of memory. */
char *pl_report_html(const pl_report *r);

#endif
