/* SPDX-License-Identifier: Apache-2.0
 *
 * The hashed byte trie. */
#include "trie.h"

#include <string.h>

#include "base/memory.h"
#include "base/random.h"

static uint64_t edge_key(uint32_t node, unsigned char c) { return ((uint64_t)node << 8 | c) + 1; }

/* The slot that holds key, or the free one where it belongs. There is always a free one. */
static size_t edge_slot(const pl_trie *t, uint64_t key)
{
    size_t i = pl_mix64(key) & t->mask;
    while (t->edges[i].key && t->edges[i].key != key) i = (i + 1) & t->mask;
    return i;
}

void pl_trie_free(pl_trie *t)
{
    pl_free(t->edges);
    pl_free(t->values);
    *t = (pl_trie){0};
}

/* Makes room for one more node and edge; the table stays at most half full. */
static int reserve_node(pl_trie *t)
{
    if (t->n_nodes >= UINT32_MAX - 1) return -1;
    if (pl_grow((void **)&t->values, &t->node_capacity, t->n_nodes + 2, sizeof *t->values))
        return -1;
    if (t->edges && 2 * t->n_nodes < t->mask) return 0;
    size_t slots = t->edges ? 2 * (t->mask + 1) : 64;
    pl_trie bigger = {.edges = pl_calloc(slots, sizeof *t->edges), .mask = slots - 1};
    if (!bigger.edges) return -1;
    for (size_t i = 0; t->edges && i <= t->mask; i++)
        if (t->edges[i].key) bigger.edges[edge_slot(&bigger, t->edges[i].key)] = t->edges[i];
    pl_free(t->edges);
    t->edges = bigger.edges;
    t->mask = bigger.mask;
    return 0;
}

pleach_status pl_trie_add(pl_trie *t, const char *s, size_t size, int32_t value, int replace,
                          pleach_error *err)
{
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        if (reserve_node(t)) return pl_fail_memory(err, "a token trie", t->n_nodes);
        if (!t->n_nodes) t->values[t->n_nodes++] = -1;
        uint64_t key = edge_key(node, (unsigned char)s[i]);
        size_t slot = edge_slot(t, key);
        if (!t->edges[slot].key) {
            t->edges[slot] = (struct pl_trie_edge){key, (uint32_t)t->n_nodes};
            t->values[t->n_nodes++] = -1;
        }
        node = t->edges[slot].node;
    }
    if (node && (replace || t->values[node] < 0)) t->values[node] = value;
    return PLEACH_OK;
}

uint32_t pl_trie_step(const pl_trie *t, uint32_t node, unsigned char c)
{
    if (!t->edges) return 0;
    return t->edges[edge_slot(t, edge_key(node, c))].node; /* 0 in a free slot */
}

size_t pl_trie_longest(const pl_trie *t, const char *s, size_t size, int32_t *value)
{
    size_t best = 0;
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        node = pl_trie_step(t, node, (unsigned char)s[i]);
        if (!node) break;
        if (t->values[node] < 0) continue;
        best = i + 1;
        *value = t->values[node];
    }
    return best;
}
