/* SPDX-License-Identifier: Apache-2.0
 *
 * What the readers share about tensors: sizes, error texts and look-up by name. */
#ifndef PL_FORMAT_TENSOR_H
#define PL_FORMAT_TENSOR_H

#include <stdio.h>

#include "checkpoint.h"

/* Fills n_bytes in from type and shape. False: the product overflows, or a row is no whole number
 * of blocks. */
bool pl_tensor_size(pl_tensor *t);

#define PL_SHAPE_TEXT 100 /* bytes that a shape's text needs */
/* "[2, 3]" written to text, which is returned. */
char *pl_tensor_shape_text(const pl_tensor *t, char *text, size_t size);

/* Pointers to n tensors in order of their names, in fresh memory (pl_free), or NULL. */
const pl_tensor **pl_tensor_sort(const pl_tensor *tensors, size_t n);
const pl_tensor *pl_tensor_search(const pl_tensor *const *sorted, size_t n, const char *name);
/* A name that occurs twice, or NULL. */
const char *pl_tensor_duplicate(const pl_tensor *const *sorted, size_t n);

#endif
