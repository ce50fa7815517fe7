/* SPDX-License-Identifier: Apache-2.0
 *
 * A byte trie kept in one hash table: (node, byte) -> node. Small to build, and one probe a byte to
 * walk. Used for added tokens and for Unigram pieces. */
#ifndef PL_TEXT_TRIE_H
#define PL_TEXT_TRIE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct pl_trie {
    struct pl_trie_edge {
        uint64_t key;  /* node << 8 | byte, plus 1; 0: free */
        uint32_t node; /* reached by it */
    } *edges;
    size_t mask;       /* slots - 1 */
    int32_t *values;   /* [nodes]: what ends here, or -1 */
    size_t n_nodes, node_capacity;
} pl_trie;

void pl_trie_free(pl_trie *t); /* accepts a zeroed one; clears it */

/* Adds a string of at least one byte. A string that is there keeps its value unless `replace`. */
pleach_status pl_trie_add(pl_trie *t, const char *s, size_t size, int32_t value, int replace,
                          pleach_error *err);

/* The node after `node` (0 is the root) on byte c, or 0. */
uint32_t pl_trie_step(const pl_trie *t, uint32_t node, unsigned char c);

/* Length of the longest string of the trie that s begins with, and its value; 0: none. */
size_t pl_trie_longest(const pl_trie *t, const char *s, size_t size, int32_t *value);

#endif
