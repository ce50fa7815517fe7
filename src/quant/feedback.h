/* SPDX-License-Identifier: Apache-2.0
 *
 * Error feedback (LDLQ) for one module: what may be asked for and what is reported. Input features,
 * or blocks of them, are coded one after another, and each sees the errors of those before it,
 * weighted by the statistics of the inputs (docs/quantize.md, "Error feedback"). */
#ifndef PL_QUANT_FEEDBACK_H
#define PL_QUANT_FEEDBACK_H

#include <stdbool.h>
#include <stddef.h>

typedef struct pl_feedback_settings {
    bool inputs;           /* input statistics will be given: memory is set aside */
    bool outputs;          /* output statistics too */
    bool two_sided;        /* feedback between outputs as well; axis 0, needs outputs */
    double damping;        /* in means of the diagonal */
    double output_damping; /* the same for output statistics */
    int sweeps;            /* axis 1: coordinate descent after coding */
} pl_feedback_settings;

/* What became of feedback in a module. Anything but APPLIED is coded without. */
typedef enum pl_feedback_state {
    PL_FEEDBACK_NO_STATISTICS = 0,
    PL_FEEDBACK_APPLIED,
    PL_FEEDBACK_NOT_FINITE,   /* NaN or infinity in the statistics */
    PL_FEEDBACK_ZERO,         /* no input was ever other than zero */
    PL_FEEDBACK_NOT_DEFINITE, /* no damping that was tried lets them be factored */
    PL_FEEDBACK_PEAK,         /* feedback drives what is coded too far out */
    PL_FEEDBACK_AXIS,         /* between outputs: only with axis 0 */
} pl_feedback_state;

/* A few words for reports; static storage. */
const char *pl_feedback_state_text(pl_feedback_state s);

/* E = W - Q and W in the model's basis. H is the mean of x x^T; Hw the mean of H and the statistics
 * weighted by loss, scaled to the trace of H; equal to H without these. G is the statistics of the outputs,
 * or their mean times the unit matrix when only that is known. */
typedef struct pl_feedback_report {
    pl_feedback_state inputs, outputs; /* outputs: of two-sided feedback */
    double damping, output_damping;    /* as used, after retries */
    double dead;                       /* inputs that are always zero */
    double plain[2];                   /* tr(E H E^T), tr(W H W^T) */
    double weighted[2];                /* tr(E Hw E^T), tr(W Hw W^T) */
    double loss;                       /* 1/2 tr(G E Hw E^T), the expected rise of the text's cross
                                          entropy per token; 0 without a backward pass */
    double estimate[3];                /* of that (of tr(E Hw E^T) without G) at k = 2, 3, 4 */
} pl_feedback_report;

/* The report as numbers, for files. */
enum { PL_FEEDBACK_NUMBERS = 13 };
void pl_feedback_report_put(const pl_feedback_report *r, double *numbers);
void pl_feedback_report_get(pl_feedback_report *r, const double *numbers);

#endif
