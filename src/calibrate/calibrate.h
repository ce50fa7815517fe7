/* SPDX-License-Identifier: Apache-2.0
 *
 * Calibration: runs text through the model, a transformer block at a time, and gathers the
 * statistics of its linear layers; with a backward pass for those that are weighted by loss.
 *
 * Memory is that of one block's weights in f32, one chunk's activations and as many of the block's
 * statistics as the limit allows (more passes over the block otherwise). What passes between blocks
 * lies in files beside the statistics. */
#ifndef PL_CALIBRATE_CALIBRATE_H
#define PL_CALIBRATE_CALIBRATE_H

#include <stdbool.h>

#include "kernels/kernels.h"
#include "model/model.h"
#include "statistics.h"

typedef struct pl_calibrate_progress {
    const char *stage; /* "forward", "backward" */
    uint32_t block, blocks;
    double share;      /* of the whole calibration, 0 to 1 */
} pl_calibrate_progress;
/* Non-zero return stops. */
typedef int pl_calibrate_progress_fn(void *user, const pl_calibrate_progress *p);

typedef struct pl_calibrate_settings {
    size_t chunk;     /* tokens that attend to each other; 512 */
    bool fisher;      /* backward pass: pl_module_statistics.fisher */
    bool output;      /* and .output; needs fisher */
    uint64_t seed;    /* of the labels */
    uint64_t memory;  /* bytes; 0: no limit */
    pl_calibrate_progress_fn *progress; /* may be NULL */
    void *user;
} pl_calibrate_settings;

/* PLEACH_ERR_UNSUPPORTED for a model that has what calibration lacks: capped logits. */
pleach_status pl_calibrate_check(const pl_config *config, pleach_error *err);

/* Gathers statistics from ids (whole chunks, and a last shorter one of at least 32 tokens) into
 * `dir`, made if need be. What an interrupted call finished is kept when `binding` and what is
 * gathered are the same, else PLEACH_ERR_MISMATCH names the field; a finished folder stays as it
 * is. PLEACH_ERR_LIMIT when `memory` is too little. The same bits for every thread count and every
 * limit. */
pleach_status pl_calibrate(const pl_transformer *t, const pl_compute *c, const int32_t *ids,
                           size_t n, const pl_calibrate_settings *settings, const json_t *binding,
                           const char *dir, pleach_error *err);
/* Bytes that the call needs at most, beside the pages of the source that it reads: of the limit
 * that is set, or what it takes without one. */
uint64_t pl_calibrate_memory(const pl_config *config, const pl_calibrate_settings *settings);
/* Bytes on disk while it works, the result included. */
uint64_t pl_calibrate_disk(const pl_config *config, size_t n, const pl_calibrate_settings *settings);

#endif
