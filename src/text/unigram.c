/* SPDX-License-Identifier: Apache-2.0
 *
 * Viterbi over the pieces that begin at each character. Source: Kudo, "Subword regularization",
 * 2018 (arXiv 1804.10959), section 3.2. Time is the text's length times the longest piece. */
#include "unigram.h"

#include "base/memory.h"
#include "utf8.h"

#define NONE UINT32_MAX

void pl_unigram_free(pl_unigram *u)
{
    pl_trie_free(&u->pieces);
    pl_free(u->scores);
    u->scores = NULL;
}

void pl_unigram_work_free(pl_unigram_work *w)
{
    pl_free(w->nodes);
    pl_free(w->reversed.ids);
}

static void offer(struct pl_unigram_node *end, double score, uint32_t start, int32_t id)
{
    if (end->start == NONE || score > end->score)
        *end = (struct pl_unigram_node){score, start, id};
}

/* Fills nodes[0..size]. A character that is no piece by itself may be unknown. */
static pleach_status forward(const pl_unigram *u, struct pl_unigram_node *nodes, const char *text,
                             size_t size, pleach_error *err)
{
    for (size_t i = 0; i <= size; i++) nodes[i] = (struct pl_unigram_node){0, NONE, -1};
    for (size_t at = 0, length; at < size; at += length) {
        double score = nodes[at].score;
        uint32_t node = 0;
        bool single = false;
        length = pl_utf8_length(text[at]);
        for (size_t end = at; end < size;) {
            node = pl_trie_step(&u->pieces, node, (unsigned char)text[end++]);
            if (!node) break;
            int32_t id = u->pieces.values[node];
            if (id < 0) continue;
            offer(&nodes[end], score + u->scores[id], (uint32_t)at, id);
            single |= end - at == length;
        }
        if (single) continue;
        PL_FAIL_IF(u->unk < 0, err, PLEACH_ERR_UNSUPPORTED,
                   "a character is not in the vocabulary, which has no unknown token");
        offer(&nodes[at + length], score + u->unk_score, (uint32_t)at, u->unk);
    }
    return PLEACH_OK;
}

/* The bytes of an unknown run, last first, or the unknown token. */
static pleach_status put_unknown(const pl_unigram *u, pl_ids *reversed, const char *text,
                                 size_t size, pleach_error *err)
{
    bool spell = u->byte_fallback;
    for (size_t i = 0; spell && i < size; i++) spell = u->bytes[(unsigned char)text[i]] >= 0;
    if (!spell) return pl_ids_append(reversed, &u->unk, 1, err);
    for (size_t i = size; i--;)
        PL_TRY(pl_ids_append(reversed, &u->bytes[(unsigned char)text[i]], 1, err));
    return PLEACH_OK;
}

pleach_status pl_unigram_encode(const pl_unigram *u, pl_unigram_work *w, const char *text,
                                size_t size, pl_ids *out, pleach_error *err)
{
    PL_FAIL_IF(size >= NONE, err, PLEACH_ERR_LIMIT, "a word of %zu bytes", size);
    if (pl_grow((void **)&w->nodes, &w->capacity, size + 1, sizeof *w->nodes))
        return pl_fail_memory(err, "segmentation", size * sizeof *w->nodes);
    PL_TRY(forward(u, w->nodes, text, size, err));
    w->reversed.n = 0;
    for (size_t end = size; end;) {
        const struct pl_unigram_node *node = &w->nodes[end];
        size_t start = node->start;
        if (node->id != u->unk) {
            PL_TRY(pl_ids_append(&w->reversed, &node->id, 1, err));
        } else {
            /* Unknown characters in a row are one token. */
            while (start && w->nodes[start].id == u->unk) start = w->nodes[start].start;
            PL_TRY(put_unknown(u, &w->reversed, text + start, end - start, err));
        }
        end = start;
    }
    for (size_t i = w->reversed.n; i--;) PL_TRY(pl_ids_append(out, &w->reversed.ids[i], 1, err));
    return PLEACH_OK;
}
