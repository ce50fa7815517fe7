/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ast.h"
#include "base/compiler.h"
#include "base/memory.h"

enum { BLOCK_BYTES = 16384, ALIGN = 16 };

struct arena_block {
    arena_block *next;
    size_t used, size;
    _Alignas(ALIGN) char data[];
};

static arena_block *add_block(arena *a, size_t bytes)
{
    size_t size = PL_MAX(bytes, (size_t)BLOCK_BYTES);
    if (size > a->limit - a->used) size = bytes;
    if (size > a->limit - a->used) return NULL;
    arena_block *b = pl_alloc(1, sizeof *b + size);
    if (!b) return NULL;
    *b = (arena_block){.next = a->blocks, .size = size};
    a->used += size;
    a->blocks = b;
    return b;
}

void *jinja_arena_take(arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    arena_block *b = a->blocks;
    if (!b || bytes > b->size - b->used) b = add_block(a, bytes);
    if (!b) return NULL;
    void *p = b->data + b->used;
    b->used += bytes;
    memset(p, 0, bytes);
    return p;
}

void jinja_arena_free(arena *a)
{
    while (a->blocks) {
        arena_block *next = a->blocks->next;
        pl_free(a->blocks);
        a->blocks = next;
    }
    a->used = 0;
}
