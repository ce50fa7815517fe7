/* SPDX-License-Identifier: Apache-2.0
 *
 * One module from the source's numbers to the codes that are stored. */
#ifndef PL_QUANT_CODE_MODULE_H
#define PL_QUANT_CODE_MODULE_H

#include "calibrate/statistics.h"
#include "feedback.h"
#include "kernels/kernels.h"
#include "plan.h"

struct pl_coding_device;

/* Called between pieces of a large module with the share done, 0 to 1; non-zero return stops. */
typedef int pl_coder_step_fn(void *user, double share);

/* Holds memory for the largest module of a plan, so that a long run does not fragment it. */
typedef struct pl_coder {
    const pl_kernels *kernels;
    const char *cpu;
    pleach_trellis_search search;
    pl_pool *pool; /* borrowed; may be NULL */
    struct pl_coding_device *device; /* codes trellis modules; borrowed; NULL: this processor */
    pl_coder_step_fn *step; /* may be NULL */
    void *user;
    pl_feedback_settings feedback;
    float *matrix;  /* a module's numbers: stored rows, or a piece of an affine module's rows */
    float *decoded; /* what a strip of stored rows has become; with feedback a whole matrix */
    uint8_t *data;  /* the tensors of a coded module */
    double *input_factor, *output_factor; /* [in][in], [out][out], or NULL */
} pl_coder;

/* Settings of the coder are filled in first; the buffers are made here, for any of these items. */
pleach_status pl_coder_open(pl_coder *c, const pl_plan_item *items, size_t n, pleach_error *err);
void pl_coder_close(pl_coder *c); /* accepts a zeroed one */
/* Bytes of the buffers that these items take. */
uint64_t pl_coder_memory(const pl_plan_item *items, size_t n, const pl_feedback_settings *feedback);

/* Bytes of the source's pages that are in memory at once while this item is coded, at most. */
uint64_t pl_coder_pages(const pl_plan_item *item);

/* Stored rows that are encoded between two progress calls. */
uint64_t pl_coder_strip(const pleach_trellis *t);
uint64_t pl_coder_device_strip(const pleach_trellis *t);
/* The progress call: PLEACH_ERR_CANCELLED when it asks to stop. Not made at the end. */
pleach_status pl_coder_step(const pl_coder *c, uint64_t done, uint64_t total, pleach_error *err);

/* What a module has become. Not to be copied: tensor names point into it. */
typedef struct pl_coded {
    pl_item_tensors tensors;
    void *data[3];       /* of each tensor; the coder's, until it codes another module */
    double error, power; /* |W - Q|^2 and |W|^2 */
    pl_feedback_report feedback;
} pl_coded;

/* Codes a module whose plan is trellis or affine, with error feedback where `stats` (may be NULL)
 * has input statistics. The same bits for every thread count. */
pleach_status pl_code_module(const pl_coder *c, const pl_plan_item *item,
                             const pl_module_statistics *stats, pl_coded *out, pleach_error *err);

#endif
