/* SPDX-License-Identifier: Apache-2.0
 *
 * The coded modules of a run, one file each in its work folder: finding those that an earlier run
 * finished, and coding the others, several at once where memory allows. */
#ifndef PL_QUANT_PARTS_H
#define PL_QUANT_PARTS_H

#include "calibrate/statistics.h"
#include "code_module.h"
#include "coding_device.h"
#include "format/safetensors.h"
#include "job.h"

/* Weights done so far, those of earlier runs included, and the module that got further. Non-zero
 * return stops. Calls never overlap. */
typedef int pl_parts_progress_fn(void *user, const char *module, uint64_t done);

typedef struct pl_parts {
    /* Filled in by the caller. */
    const pl_plan *plan;
    const pl_job *job;
    const pl_kernels *kernels;
    const pl_statistics *statistics; /* or NULL */
    pl_coding_device *device;        /* or NULL */
    pl_parts_progress_fn *progress;
    void *user;
    /* Results. */
    pl_safetensors **files; /* [n_items] the module's tensors; NULL: dense, or not done */
    size_t resumed;         /* found finished */
    uint64_t resumed_weights;
} pl_parts;

/* Opens the files of finished modules. */
pleach_status pl_parts_find(pl_parts *p, pleach_error *err);
/* Codes all others. The files do not depend on the number of threads, nor does the error that is
 * reported: that of the first module, in the plan's order, which fails. */
pleach_status pl_parts_make(pl_parts *p, pleach_error *err);
void pl_parts_close(pl_parts *p); /* accepts a zeroed one */

/* False for a tensor that a part keeps for itself. */
bool pl_part_is_output(const pl_tensor *t);
/* Of item i, which has a file: |W - Q|^2 and |W|^2. */
void pl_part_error(const pl_parts *p, size_t i, double error[2]);
void pl_part_feedback(const pl_parts *p, size_t i, pl_feedback_report *report);

/* How many modules are coded at once: as many as there are threads, if memory is enough. */
int pl_parts_at_once(const pl_plan *plan);

#endif
