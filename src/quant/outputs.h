/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of a model that is written: a list of what goes in and where it comes from, then the
 * files, streamed. */
#ifndef PL_QUANT_OUTPUTS_H
#define PL_QUANT_OUTPUTS_H

#include "plan.h"

#define PL_SHARD_BYTES ((uint64_t)2000000000) /* of tensor data in one file */

typedef struct pl_output_tensor {
    pl_tensor tensor; /* as written: type, shape, size */
    char name[192];
    pl_weight source;
    const pl_plan_item *folded; /* a matrix that is folded as it is written, or NULL */
} pl_output_tensor;

typedef struct pl_outputs { /* zero it first */
    pl_output_tensor *items;
    size_t n, capacity;
} pl_outputs;

/* A stored tensor, in its own type or turned into F32, F16 or BF16. Borrowed until the list is
 * written. */
pleach_status pl_outputs_add_tensor(pl_outputs *o, const pl_tensor *t, pl_dtype type,
                                    pleach_error *err);
/* The matrix of a module, whatever its coding, as a dense tensor of that type. */
pleach_status pl_outputs_add_module(pl_outputs *o, const char *module, const pl_weight *w,
                                    pl_dtype type, pleach_error *err);
/* A dense module of a plan, folded where the plan says so. The item is borrowed likewise. */
pleach_status pl_outputs_add_item(pl_outputs *o, const pl_plan_item *item, pleach_error *err);
void pl_outputs_free(pl_outputs *o);

/* Writes the list into `dir`, in order: model.safetensors, or shards of at most shard_bytes (a
 * larger tensor has one to itself) and their index. Equal types are copied as they are; NaN or
 * infinity in what is converted is PLEACH_ERR_DATA. */
pleach_status pl_outputs_write(const pl_outputs *o, const char *dir, uint64_t shard_bytes,
                               pleach_error *err);

#endif
