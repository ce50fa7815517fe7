/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocation that checks its multiplication and aligns for vectors. */
#ifndef PL_BASE_MEMORY_H
#define PL_BASE_MEMORY_H

#include <stddef.h>

#define PL_ALIGNMENT 64 /* a cache line, and the widest vector */

/* count * size bytes, aligned to PL_ALIGNMENT, contents undefined; NULL when out of memory or when
 * the product overflows. Never NULL for 0 bytes otherwise. Freed with pl_free. */
void *pl_alloc(size_t count, size_t size);

/* The same, zeroed. */
void *pl_calloc(size_t count, size_t size);

/* Grows the array *items, which holds *capacity items of `size` bytes, to hold at least `needed`.
 * Returns 0, or -1 with the array as it was. Such arrays come from this call alone. */
int pl_grow(void **items, size_t *capacity, size_t needed, size_t size);

/* Accepts NULL. */
void pl_free(void *p);

#endif
