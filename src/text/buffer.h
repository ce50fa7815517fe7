/* SPDX-License-Identifier: Apache-2.0
 *
 * A growing run of bytes. Zero it first, pl_free(data) last. */
#ifndef PL_TEXT_BUFFER_H
#define PL_TEXT_BUFFER_H

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

typedef struct pl_buffer {
    char *data;
    size_t size, capacity;
} pl_buffer;

/* Room for `more` bytes after the ones held. */
static inline pleach_status pl_buffer_reserve(pl_buffer *b, size_t more, pleach_error *err)
{
    if (more <= b->capacity - b->size) return PLEACH_OK;
    if (pl_grow((void **)&b->data, &b->capacity, b->size + more, 1))
        return pl_fail_memory(err, "text", b->size + more);
    return PLEACH_OK;
}

static inline pleach_status pl_buffer_append(pl_buffer *b, const void *data, size_t size,
                                             pleach_error *err)
{
    PL_TRY(pl_buffer_reserve(b, size, err));
    if (size) memcpy(b->data + b->size, data, size);
    b->size += size;
    return PLEACH_OK;
}

#endif
