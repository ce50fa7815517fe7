/* SPDX-License-Identifier: Apache-2.0
 *
 * Aligned, overflow-checked allocation. */
#include "memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *pl_alloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - PL_ALIGNMENT) return NULL;
    bytes = (bytes + PL_ALIGNMENT) / PL_ALIGNMENT * PL_ALIGNMENT;
    return aligned_alloc(PL_ALIGNMENT, bytes);
}

void *pl_calloc(size_t count, size_t size)
{
    void *p = pl_alloc(count, size);
    if (p) memset(p, 0, count * size);
    return p;
}

int pl_grow(void **items, size_t *capacity, size_t needed, size_t size)
{
    if (needed <= *capacity) return 0;
    size_t wanted = *capacity < 16 ? 16 : *capacity + *capacity / 2;
    if (wanted < needed) wanted = needed;
    void *p = pl_alloc(wanted, size);
    if (!p) return -1;
    if (*capacity) memcpy(p, *items, *capacity * size);
    pl_free(*items);
    *items = p;
    *capacity = wanted;
    return 0;
}

void pl_free(void *p) { free(p); }
