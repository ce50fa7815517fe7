/* SPDX-License-Identifier: Apache-2.0
 *
 * The scales of a coded model as numbers to be fitted: multipliers of output scales and of stored
 * rows' scales, all 1 at first, with their gradients and Adam's state. The codes stay as they are.
 *
 *   W = diag(alpha) W0 R diag(sigma) R^T     W0 as coded, R the input rotation */
#ifndef PL_QUANT_SCALES_H
#define PL_QUANT_SCALES_H

#include <stdbool.h>

#include "calibrate/block.h"
#include "format/checkpoint.h"

enum {
    PL_SCALES_OUTPUT = 1, /* alpha, of modules with an output scale or coded along axis 1 */
    PL_SCALES_INPUT = 2   /* sigma, of modules coded along axis 0 */
};

/* Where one module's multipliers begin; SIZE_MAX: it has none. */
typedef struct pl_module_scales {
    const pl_linear *linear;
    size_t output, input; /* [out], [in] */
} pl_module_scales;

typedef struct pl_scales {
    pl_module_scales (*blocks)[PL_BLOCK_LINEARS]; /* [n_layers] */
    uint32_t n_layers;
    size_t n; /* multipliers in all */
    float *value, *gradient, *mean, *square; /* [n]; mean and square are Adam's */
    uint64_t step;
} pl_scales;

/* which: PL_SCALES_ flags. Models without a scale that may be fitted get n = 0. */
pleach_status pl_scales_open(pl_scales *s, const pl_transformer *t, unsigned which,
                             pleach_error *err);
void pl_scales_close(pl_scales *s); /* accepts a zeroed one */

/* Multiplies the weights of a freshly opened block. */
void pl_scales_apply(const pl_scales *s, pl_block *b, uint32_t layer);

/* Adds to the gradients of one module's multipliers what follows from dW [out][in], the gradient by
 * its weights; dW is destroyed. The block's weights are as pl_scales_apply left them. */
pleach_status pl_scales_add_gradient(pl_scales *s, const pl_block *b, uint32_t layer, int linear,
                                     float *dW, pleach_error *err);

/* One step of Adam (beta 0.9 and 0.95), and the gradient is zero again. */
void pl_scales_step(pl_scales *s, double rate);

/* Writes a safetensors file with the scales, multipliers applied, under their names in the model, and
 * with `note` [n_note], F64, under PL_SCALES_NOTE. */
#define PL_SCALES_NOTE "note"
pleach_status pl_scales_write(const pl_scales *s, const char *path, const double *note,
                              size_t n_note, pleach_error *err);

#endif
