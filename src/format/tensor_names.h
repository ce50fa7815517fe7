/* SPDX-License-Identifier: Apache-2.0
 *
 * One name for each tensor, however a checkpoint spells it: "model.layers.N..." for the text model,
 * with the experts of a mixture one by one. */
#ifndef PL_FORMAT_TENSOR_NAMES_H
#define PL_FORMAT_TENSOR_NAMES_H

#include "checkpoint.h"

enum { PL_NAME_GROWTH = 64 }; /* no name grows by more */

/* Whether the tensor belongs to a part that is not run: a vision tower, heads that guess ahead. */
bool pl_tensor_name_foreign(const char *name);
/* Writes the one name of a tensor, or of a module (its name without ".weight"), to `out`. */
void pl_tensor_name_text(const char *name, char *out, size_t size);

/* The tensors of a checkpoint under their own names. */
typedef struct pl_named_tensors {
    pl_tensor *tensors; /* owned, as is names */
    size_t n, foreign;  /* foreign: left out */
    char *names;
} pl_named_tensors;

/* Renames n tensors, leaves foreign ones out, and cuts matrices of all experts of a layer, [experts]
 * [..][..], into views of one each. config: NULL where the sizes of experts are not known; they then
 * stay whole. PLEACH_ERR_SHAPE for ones of another shape. */
pleach_status pl_tensors_name(const char *path, const pl_tensor *tensors, size_t n,
                              const pl_config *config, pl_named_tensors *out, pleach_error *err);

#endif
