/* SPDX-License-Identifier: Apache-2.0
 *
 * Refining a coded model: its scales are fitted, by gradient descent through the whole model, to
 * the predictions of the source on the calibration text; codes and bits stay (docs/quantize.md,
 * "Refining"). Part of the text is held out and decides whether the result is kept. */
#ifndef PL_QUANT_REFINE_H
#define PL_QUANT_REFINE_H

#include "format/safetensors.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "plan.h"

typedef struct pl_refine_settings {
    int epochs;      /* passes over the text */
    unsigned which;  /* PL_SCALES_ flags */
    double rate;     /* Adam's at its highest over the root of the KL to begin with; falls to zero by
                        half a cosine */
    size_t chunk;    /* tokens that attend to each other */
    size_t batch;    /* chunks between two steps */
    size_t held_out; /* every held_out-th chunk is held out, one at least */
    uint64_t seed;   /* of the order of chunks */
    /* Called with the share done; non-zero return stops. May be NULL. */
    int (*progress)(void *user, double share);
    void *user;
} pl_refine_settings;

typedef struct pl_refine_result {
    double before, after; /* mean KL(source || coded) on the held-out text, nats */
    int kept;             /* epochs whose result is kept; 0: the scales stay as they were */
    size_t tokens;        /* trained on */
} pl_refine_result;

/* Writes scales (unchanged ones if kept is 0) and result to `path`, a safetensors file. The same bits
 * for every thread count. */
pleach_status pl_refine(const pl_transformer *source, const pl_transformer *coded,
                        const pl_compute *c, const int32_t *ids, size_t n,
                        const pl_refine_settings *settings, const char *path,
                        pl_refine_result *result, pleach_error *err);

/* The result that a file holds; false when it holds none. */
bool pl_refine_read_result(const pl_safetensors *file, pl_refine_result *result);

/* The settings of a plan's run. */
pl_refine_settings pl_refine_plan(const pl_plan *plan);

/* Bytes that refining takes for n tokens. */
uint64_t pl_refine_memory(const pl_config *config, const pl_refine_settings *settings, size_t n);

#endif
