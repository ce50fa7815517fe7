/* SPDX-License-Identifier: Apache-2.0
 *
 * What calibration learnt about each linear layer, in a folder: one safetensors file for each
 * transformer block and a statistics.json that binds them to model, text and settings. Several
 * runs of the quantiser may use one folder (docs/quantize.md, "Statistics").
 *
 * Symmetric matrices are stored as their upper triangle by rows, f32:
 *   (0,0) (0,1) .. (0,n-1) (1,1) .. (n-1,n-1), n (n + 1) / 2 numbers. */
#ifndef PL_CALIBRATE_STATISTICS_H
#define PL_CALIBRATE_STATISTICS_H

#include <jansson.h>

#include "format/checkpoint.h"

/* x: what the linear layer multiplies, [in]. g: gradient of the summed cross entropy by its output,
 * [out], with labels drawn from the model itself. Means are over tokens, in the model's own basis:
 * nothing is rotated. Pointers live as long as the statistics; NULL where not gathered. */
typedef struct pl_module_statistics {
    uint64_t in, out;
    uint64_t tokens;
    const float *input;  /* mean x x^T */
    const float *fisher; /* sum w x x^T / sum w, w = |g|^2 */
    const float *power;  /* [out] mean g_o^2, with fisher */
    const float *output; /* mean g g^T */
    double gradient;     /* mean |g|^2, with fisher; 0 without: how far this layer's errors reach */
} pl_module_statistics;

static inline uint64_t pl_triangle_size(uint64_t n)
{
    return n * (n + 1) / 2;
}

typedef struct pl_statistics pl_statistics;

/* What a folder holds. */
typedef struct pl_statistics_info {
    uint32_t blocks;
    uint64_t tokens; /* of the text */
    bool fisher, output;
} pl_statistics_info;

/* Opens a whole folder. PLEACH_ERR_MISSING when there is none or it is unfinished,
 * PLEACH_ERR_MISMATCH names the first field that differs from `binding` (NULL: any). */
pleach_status pl_statistics_open(const char *dir, const json_t *binding, pl_statistics **out,
                                 pleach_error *err);
void pl_statistics_close(pl_statistics *s); /* accepts NULL */
void pl_statistics_get_info(const pl_statistics *s, pl_statistics_info *info);
/* A module that calibration did not reach gets NULL pointers and 0 tokens, and so does a statistic
 * for which no token had finite numbers. */
pleach_status pl_statistics_get(const pl_statistics *s, const pl_module *m,
                                pl_module_statistics *out, pleach_error *err);
/* Gives back the memory of the pages that were read. */
void pl_module_statistics_release(const pl_module_statistics *m);

#endif
