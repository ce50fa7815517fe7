/* SPDX-License-Identifier: Apache-2.0
 *
 * What passes between blocks: hidden states on the way forward, gradients on the way back, for all
 * tokens, f32 [tokens][C] in a file each. A file has its name once it is whole. */
#ifndef PL_CALIBRATE_BOUNDARY_H
#define PL_CALIBRATE_BOUNDARY_H

#include "base/file.h"

typedef enum pl_boundary_kind { PL_BOUNDARY_HIDDEN, PL_BOUNDARY_GRADIENT } pl_boundary_kind;

/* The input of block i, or the gradient by it; i = blocks: after the last one. */
typedef struct pl_boundary {
    const char *dir;
    size_t tokens, width;
} pl_boundary;

/* True if the file is there and has the right size. */
bool pl_boundary_exists(const pl_boundary *b, pl_boundary_kind kind, uint32_t i);
void pl_boundary_remove(const pl_boundary *b, pl_boundary_kind kind, uint32_t i);

pleach_status pl_boundary_open(const pl_boundary *b, pl_boundary_kind kind, uint32_t i, pl_map *map,
                               pleach_error *err);
/* Rows [first, first + n) of an open file; its pages are given back. */
void pl_boundary_read(const pl_boundary *b, const pl_map *map, size_t first, size_t n, float *rows);

/* Rows are then written in order with pl_output_write; pl_output_commit. */
pleach_status pl_boundary_create(const pl_boundary *b, pl_boundary_kind kind, uint32_t i,
                                 pl_output *out, pleach_error *err);

#endif
