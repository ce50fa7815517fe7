/* SPDX-License-Identifier: Apache-2.0
 *
 * Calibration for a run of the quantiser: which text, which folder, and the statistics that come
 * of it. */
#ifndef PL_QUANT_CALIBRATION_H
#define PL_QUANT_CALIBRATION_H

#include "calibrate/calibrate.h"
#include "plan.h"
#include "text/tokenizer.h"
#include "warnings.h"

typedef struct pl_calibration { /* zero it first */
    bool wanted;
    pl_tokenizer *tokenizer;
    pl_ids ids;     /* of a file */
    json_t *text;   /* what identifies the text; NULL when none is wanted */
    pl_statistics *statistics;
} pl_calibration;

/* Checks the settings, and reads the text when it is a file. */
pleach_status pl_calibration_open(pl_calibration *c, const pl_plan *plan, pl_warnings *warnings,
                                  pleach_error *err);
void pl_calibration_close(pl_calibration *c);

/* Opens the statistics of this source (as pl_source_fingerprint has it) in the folder that the
 * settings name, or else in `work_dir`; gathers them first where there are none yet. What could not
 * be gathered is warned of. */
pleach_status pl_calibration_run(pl_calibration *c, const pl_plan *plan, const pl_kernels *kernels,
                                 const json_t *source, const char *work_dir,
                                 pl_calibrate_progress_fn *progress, void *user,
                                 pl_warnings *warnings, pleach_error *err);

/* Opens the statistics of this source that the settings name, where they are gathered already. */
pleach_status pl_calibration_find(pl_calibration *c, const pl_plan *plan, const json_t *source,
                                  pl_warnings *warnings, pleach_error *err);

/* Makes sure that `ids` holds the text, which a run over statistics that were there already has not
 * written yet. */
pleach_status pl_calibration_need_text(pl_calibration *c, const pl_plan *plan,
                                       const pl_kernels *kernels, const char *work_dir,
                                       pl_calibrate_progress_fn *progress, void *user,
                                       pleach_error *err);

/* Bytes it takes at most, pages of the source included; 0 without calibration. */
uint64_t pl_calibration_memory(const pl_plan *plan);

#endif
