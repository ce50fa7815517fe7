/* SPDX-License-Identifier: Apache-2.0
 *
 * The two-way table of token literals and ids. */
#include "vocabulary.h"

#include "base/random.h"

static uint64_t hash_bytes(const char *s, size_t size)
{
    uint64_t h = size, word;
    for (; size >= 8; s += 8, size -= 8) {
        memcpy(&word, s, 8);
        h = pl_mix64(h ^ word);
    }
    word = 0;
    memcpy(&word, s, size);
    return pl_mix64(h ^ word);
}

void pl_vocabulary_free(pl_vocabulary *v)
{
    pl_free(v->pool.data);
    pl_free(v->items);
    pl_free(v->slots);
    pl_free(v->by_id);
    *v = (pl_vocabulary){0};
}

static size_t find_slot(const pl_vocabulary *v, const char *s, size_t size)
{
    size_t i = hash_bytes(s, size) & v->mask;
    for (; v->slots[i]; i = (i + 1) & v->mask) {
        const struct pl_vocabulary_item *item = &v->items[v->slots[i] - 1];
        if (item->size == size && !memcmp(v->pool.data + item->offset, s, size)) break;
    }
    return i;
}

/* Doubles the hash table when it is half full. */
static int reserve_slots(pl_vocabulary *v)
{
    if (v->slots && 2 * (v->n + 1) <= v->mask) return 0;
    size_t slots = v->slots ? 2 * (v->mask + 1) : 1024;
    uint32_t *bigger = pl_calloc(slots, sizeof *bigger);
    if (!bigger) return -1;
    pl_free(v->slots);
    v->slots = bigger;
    v->mask = slots - 1;
    for (size_t i = 0; i < v->n; i++) {
        const struct pl_vocabulary_item *item = &v->items[i];
        v->slots[find_slot(v, v->pool.data + item->offset, item->size)] = (uint32_t)i + 1;
    }
    return 0;
}

static int reserve_id(pl_vocabulary *v, size_t id)
{
    size_t had = v->id_capacity;
    if (pl_grow((void **)&v->by_id, &v->id_capacity, id + 1, sizeof *v->by_id)) return -1;
    memset(v->by_id + had, 0, (v->id_capacity - had) * sizeof *v->by_id);
    if (v->n_ids <= id) v->n_ids = id + 1;
    return 0;
}

pleach_status pl_vocabulary_add(pl_vocabulary *v, const char *s, size_t size, int32_t id,
                                pleach_error *err)
{
    PL_FAIL_IF(v->n >= UINT32_MAX - 1 || size >= UINT32_MAX, err, PLEACH_ERR_LIMIT,
               "a vocabulary of more than %zu tokens", v->n);
    if (reserve_slots(v) || reserve_id(v, (size_t)id) ||
        pl_grow((void **)&v->items, &v->capacity, v->n + 1, sizeof *v->items))
        return pl_fail_memory(err, "a vocabulary", v->n);
    if (!size) return PLEACH_OK; /* an empty token is a hole: nothing can match it */
    size_t slot = find_slot(v, s, size);
    if (!v->slots[slot]) {
        v->items[v->n++] = (struct pl_vocabulary_item){v->pool.size, (uint32_t)size, id};
        PL_TRY(pl_buffer_append(&v->pool, s, size, err));
        v->slots[slot] = (uint32_t)v->n;
    }
    v->items[v->slots[slot] - 1].id = id;
    if (!v->by_id[id]) v->by_id[id] = v->slots[slot];
    return PLEACH_OK;
}

int32_t pl_vocabulary_find(const pl_vocabulary *v, const char *s, size_t size)
{
    if (!v->slots || !size) return -1;
    uint32_t item = v->slots[find_slot(v, s, size)];
    return item ? v->items[item - 1].id : -1;
}

const char *pl_vocabulary_literal(const pl_vocabulary *v, int32_t id, size_t *size)
{
    *size = 0;
    if (id < 0 || (size_t)id >= v->n_ids || !v->by_id[id]) return NULL;
    const struct pl_vocabulary_item *item = &v->items[v->by_id[id] - 1];
    *size = item->size;
    return v->pool.data + item->offset;
}
