/* SPDX-License-Identifier: Apache-2.0
 *
 * Token literals by id, and ids by literal. Ids may have holes; two literals may share an id. */
#ifndef PL_TEXT_VOCABULARY_H
#define PL_TEXT_VOCABULARY_H

#include <stdbool.h>
#include <stdint.h>

#include "buffer.h"

typedef struct pl_vocabulary {
    pl_buffer pool; /* the literals, one after another */
    struct pl_vocabulary_item {
        size_t offset;
        uint32_t size;
        int32_t id;
    } *items;
    size_t n, capacity;
    uint32_t *slots; /* hash table of item + 1; 0: free */
    size_t mask;
    uint32_t *by_id; /* [n_ids]: item + 1 of the first literal with this id; 0: a hole */
    size_t n_ids;    /* highest id + 1 */
    size_t id_capacity;
} pl_vocabulary;

void pl_vocabulary_free(pl_vocabulary *v);

/* Most ids that `entries` tokens may span: room for the holes and padding of real vocabularies,
 * while a forged id cannot make tables large. */
static inline uint64_t pl_vocabulary_max_ids(size_t entries)
{
    return 2 * (uint64_t)entries + 65536;
}

/* Adds a literal. One that is there already takes the new id. The id's range is the caller's to
 * check against pl_vocabulary_max_ids. */
pleach_status pl_vocabulary_add(pl_vocabulary *v, const char *s, size_t size, int32_t id,
                                pleach_error *err);

/* Id of a literal, or -1. */
int32_t pl_vocabulary_find(const pl_vocabulary *v, const char *s, size_t size);

/* Literal of an id, or NULL for a hole or an id outside the range. */
const char *pl_vocabulary_literal(const pl_vocabulary *v, int32_t id, size_t *size);

#endif
