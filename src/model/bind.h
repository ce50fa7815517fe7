/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors by their full names, found, checked and opened: for model.c and the parts of family.h. */
#ifndef PL_MODEL_BIND_H
#define PL_MODEL_BIND_H

#include "model.h"

/* A vector of n numbers plus `offset` as f32 in fresh memory. */
pleach_status pl_bind_vector(const pleach_checkpoint *c, const char *name, uint32_t n, float offset,
                             float **out, pleach_error *err);
/* A linear layer; needs_bias refuses one whose bias the config promises and the file lacks. */
pleach_status pl_bind_linear(const pleach_checkpoint *c, const char *module, uint64_t out,
                             uint64_t in, bool needs_bias, pl_linear *l, pleach_error *err);

#endif
