/* SPDX-License-Identifier: Apache-2.0
 *
 * Folding: RMSNorm gains and one rotation R of the residual stream go into the weights, so that
 * nothing is left to do at run time (docs/quantize.md, "Folding"). Here are the gains, R, and the
 * vectors that change; matrices are folded as they are read (rotate_matrix.h).
 *
 * It holds for models whose layers add to the residual stream without a norm between, and without
 * mixtures of experts, whose routers are no modules. */
#ifndef PL_QUANT_FOLD_H
#define PL_QUANT_FOLD_H

#include "format/checkpoint.h"

/* A tensor that takes the place of one of the source's. */
typedef struct pl_folded_tensor {
    const pl_tensor *source;
    pl_tensor made; /* owns its data */
} pl_folded_tensor;

typedef struct pl_fold { /* zeroed: nothing is folded */
    pl_rotation rotation; /* R; block 0: none, as the width is odd */
    size_t width, n_layers;
    float norm_offset; /* the config's */
    float *gains; /* [2 n_layers + 1][width]: before attention and before the MLP, then the last */
    pl_folded_tensor *tensors;
    size_t n_tensors;
} pl_fold;

/* PLEACH_ERR_UNSUPPORTED for other models; PLEACH_ERR_DATA names a gain or bias that is NaN or infinite. */
pleach_status pl_fold_open(pl_fold *f, const pleach_checkpoint *source, const pl_config *config,
                           uint64_t seed, pleach_error *err);
void pl_fold_close(pl_fold *f); /* accepts a zeroed one */

/* Whether a module adds to the residual stream (o, down); the others read it, or are it. */
bool pl_fold_writes(const pl_module *m);
/* The gains before a module that reads a norm's output, [width]; NULL for others. */
const float *pl_fold_gain(const pl_fold *f, const pl_module *m);
/* What is written for a tensor of the source that is no matrix: itself where nothing changes. */
const pl_tensor *pl_fold_tensor(const pl_fold *f, const pl_tensor *t);

#endif
