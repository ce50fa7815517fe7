/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-pair encoding of one span: symbols are merged in order of rank, leftmost first. */
#ifndef PL_TEXT_BPE_H
#define PL_TEXT_BPE_H

#include "tokenizer.h"
#include "vocabulary.h"

typedef struct pl_bpe {
    const pl_vocabulary *vocabulary; /* borrowed */
    const uint8_t *flags;            /* borrowed: by id, PL_TOKEN_SPECIAL is never produced */
    struct pl_bpe_merge {
        uint64_t pair; /* left id << 32 | right id, plus 1; 0: free */
        uint32_t rank;
        int32_t id; /* what the pair becomes */
    } *merges;      /* hash table */
    size_t mask;
    uint64_t *joins;    /* bit set by hash of two first symbols: a merge may join them */
    int32_t bytes[256]; /* id of each byte: its letter or its byte piece; -1: none */
    int32_t unk;        /* -1: characters that are not known are dropped */
    bool byte_level, ignore_merges, byte_fallback, fuse_unk;
} pl_bpe;

/* Room for n merges. */
pleach_status pl_bpe_reserve(pl_bpe *b, size_t n, pleach_error *err);
/* The set is of ids that b's vocabulary already holds. */
void pl_bpe_add_merge(pl_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id);
void pl_bpe_free(pl_bpe *b);

/* Working memory, zeroed before first use. */
typedef struct pl_bpe_work {
    struct pl_bpe_symbol {
        int32_t id; /* -1: merged into the one before */
        uint32_t previous, next;
    } *symbols;
    size_t n_symbols, symbol_capacity;
    struct pl_bpe_candidate {
        uint64_t order; /* rank << 32 | position of the left symbol */
        int32_t id;
    } *heap;
    size_t n_heap, heap_capacity;
    pl_buffer letters;
} pl_bpe_work;
void pl_bpe_work_free(pl_bpe_work *w);

pleach_status pl_bpe_encode(const pl_bpe *b, pl_bpe_work *w, const char *text, size_t size,
                            pl_ids *out, pleach_error *err);

#endif
