/* SPDX-License-Identifier: Apache-2.0
 *
 * Unigram language-model segmentation of one span: the pieces of greatest summed score. */
#ifndef PL_TEXT_UNIGRAM_H
#define PL_TEXT_UNIGRAM_H

#include "tokenizer.h"
#include "trie.h"

typedef struct pl_unigram {
    pl_trie pieces;      /* to ids */
    double *scores;      /* [n], by id */
    size_t n;
    double unk_score;    /* least score - 10 */
    int32_t unk;         /* -1: none */
    int32_t bytes[256];  /* byte pieces, or -1 */
    bool byte_fallback;
} pl_unigram;

void pl_unigram_free(pl_unigram *u);

/* Working memory, zeroed before first use. */
typedef struct pl_unigram_work {
    struct pl_unigram_node { /* the best segmentation that ends at a byte */
        double score;
        uint32_t start; /* of its last piece; NONE: nothing ends here */
        int32_t id;
    } *nodes;
    size_t capacity;
    pl_ids reversed;
} pl_unigram_work;
void pl_unigram_work_free(pl_unigram_work *w);

pleach_status pl_unigram_encode(const pl_unigram *u, pl_unigram_work *w, const char *text,
                                size_t size, pl_ids *out, pleach_error *err);

#endif
