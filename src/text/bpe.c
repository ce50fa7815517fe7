/* SPDX-License-Identifier: Apache-2.0
 *
 * BPE with a linked list of symbols and a heap of candidate merges: n log n in the span's length,
 * whatever the text. Where no merge can join two neighbours, now or later, the span is cut: the
 * parts are independent and small. */
#include "bpe.h"

#include "base/random.h"
#include "byte_tokens.h"
#include "tokenizer_parts.h"

#define NONE UINT32_MAX
#define JOIN_BITS 21 /* of the index into the set of joins: 256 KiB */

/* ---- the merge table ----------------------------------------------------------------------- */

static uint64_t pair_key(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

static struct pl_bpe_merge *merge_slot(const pl_bpe *b, uint64_t pair)
{
    size_t i = pl_mix64(pair) & b->mask;
    while (b->merges[i].pair && b->merges[i].pair != pair) i = (i + 1) & b->mask;
    return &b->merges[i];
}

pleach_status pl_bpe_reserve(pl_bpe *b, size_t n, pleach_error *err)
{
    size_t slots = 16;
    while (slots < 2 * n) slots *= 2;
    b->merges = pl_calloc(slots, sizeof *b->merges);
    b->joins = pl_calloc((size_t)1 << (JOIN_BITS - 6), sizeof *b->joins);
    if (!b->merges || !b->joins) return pl_fail_memory(err, "merges", slots * sizeof *b->merges);
    b->mask = slots - 1;
    return PLEACH_OK;
}

static size_t join_index(int32_t left, int32_t right)
{
    return pl_mix64(pair_key(left, right)) >> (64 - JOIN_BITS);
}

static bool may_join(const pl_bpe *b, int32_t left, int32_t right)
{
    size_t i = join_index(left, right);
    return b->joins[i / 64] >> (i % 64) & 1;
}

/* Tokens that begin (end) as `id` does: itself, and its first (last) character. One of them is the
 * first symbol that the text had there. */
static void ends_of(const pl_bpe *b, int32_t id, bool last, int32_t end[2])
{
    size_t size, at = 0;
    const char *s = pl_vocabulary_literal(b->vocabulary, id, &size);
    if (last)
        for (at = size - 1; at && ((unsigned char)s[at] & 0xc0) == 0x80; at--) {}
    end[0] = id;
    end[1] = pl_vocabulary_find(b->vocabulary, s + at, pl_utf8_length(s[at]));
}

void pl_bpe_add_merge(pl_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint64_t pair = pair_key(left, right);
    int32_t before[2], after[2];
    *merge_slot(b, pair) = (struct pl_bpe_merge){pair, rank, id};
    ends_of(b, left, true, before);
    ends_of(b, right, false, after);
    for (int k = 0; k < 4; k++) {
        size_t i = join_index(before[k / 2], after[k % 2]);
        b->joins[i / 64] |= (uint64_t)1 << (i % 64);
    }
}

void pl_bpe_free(pl_bpe *b)
{
    pl_free(b->merges);
    pl_free(b->joins);
    b->merges = NULL;
    b->joins = NULL;
}

void pl_bpe_work_free(pl_bpe_work *w)
{
    pl_free(w->symbols);
    pl_free(w->heap);
    pl_free(w->letters.data);
}

/* ---- first symbols ------------------------------------------------------------------------- */

static pleach_status push_symbol(pl_bpe_work *w, int32_t id, pleach_error *err)
{
    PL_FAIL_IF(w->n_symbols >= NONE - 1, err, PLEACH_ERR_LIMIT, "a word of %zu symbols",
               w->n_symbols);
    if (pl_grow((void **)&w->symbols, &w->symbol_capacity, w->n_symbols + 1, sizeof *w->symbols))
        return pl_fail_memory(err, "a word", w->n_symbols * sizeof *w->symbols);
    uint32_t at = (uint32_t)w->n_symbols++;
    w->symbols[at] = (struct pl_bpe_symbol){id, at - 1, at + 1};
    return PLEACH_OK;
}

/* Id of a literal that text may become, or -1. */
static int32_t find_plain(const pl_bpe *b, const char *s, size_t size)
{
    int32_t id = pl_vocabulary_find(b->vocabulary, s, size);
    return id >= 0 && !(b->flags[id] & PL_TOKEN_SPECIAL) ? id : -1;
}

static bool has_bytes(const pl_bpe *b, const char *s, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (b->bytes[(unsigned char)s[i]] < 0) return false;
    return true;
}

/* Characters by the vocabulary, by their bytes, or unknown. A run of unknown ones is one token
 * when fuse_unk; as in the reference, byte tokens between them do not end the run. */
static pleach_status first_symbols(const pl_bpe *b, pl_bpe_work *w, const char *text, size_t size,
                                   pleach_error *err)
{
    bool unknown = false;
    size_t length;
    for (size_t at = 0; at < size; at += length) {
        length = b->byte_level ? 1 : pl_utf8_length(text[at]);
        int32_t id = b->byte_level ? b->bytes[(unsigned char)text[at]]
                                   : find_plain(b, text + at, length);
        if (id >= 0) {
            if (unknown) PL_TRY(push_symbol(w, b->unk, err));
            unknown = false;
            PL_TRY(push_symbol(w, id, err));
        } else if (b->byte_fallback && has_bytes(b, text + at, length)) {
            for (size_t i = 0; i < length; i++)
                PL_TRY(push_symbol(w, b->bytes[(unsigned char)text[at + i]], err));
        } else if (b->unk >= 0) {
            if (unknown && !b->fuse_unk) PL_TRY(push_symbol(w, b->unk, err));
            unknown = true;
        }
    }
    return unknown ? push_symbol(w, b->unk, err) : PLEACH_OK;
}

/* ---- merging ------------------------------------------------------------------------------- */

static pleach_status heap_push(pl_bpe_work *w, struct pl_bpe_candidate c, pleach_error *err)
{
    if (pl_grow((void **)&w->heap, &w->heap_capacity, w->n_heap + 1, sizeof *w->heap))
        return pl_fail_memory(err, "merging", w->n_heap * sizeof *w->heap);
    size_t i = w->n_heap++;
    for (; i && c.order < w->heap[(i - 1) / 2].order; i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = c;
    return PLEACH_OK;
}

static struct pl_bpe_candidate heap_pop(pl_bpe_work *w)
{
    struct pl_bpe_candidate top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < w->n_heap) {
        if (child + 1 < w->n_heap && w->heap[child + 1].order < w->heap[child].order) child++;
        if (last.order <= w->heap[child].order) break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    if (w->n_heap) w->heap[i] = last;
    return top;
}

/* Proposes merging the symbol at `left` with the one after it. */
static pleach_status propose(const pl_bpe *b, pl_bpe_work *w, uint32_t left, pleach_error *err)
{
    uint32_t right = w->symbols[left].next;
    if (right == NONE) return PLEACH_OK;
    const struct pl_bpe_merge *m =
        merge_slot(b, pair_key(w->symbols[left].id, w->symbols[right].id));
    if (!m->pair) return PLEACH_OK;
    return heap_push(w, (struct pl_bpe_candidate){(uint64_t)m->rank << 32 | left, m->id}, err);
}

/* Merges the symbols [begin, end), which are linked among themselves alone. */
static pleach_status merge_part(const pl_bpe *b, pl_bpe_work *w, uint32_t begin, uint32_t end,
                                pleach_error *err)
{
    struct pl_bpe_symbol *s = w->symbols;
    s[begin].previous = s[end - 1].next = NONE;
    w->n_heap = 0;
    for (uint32_t i = begin; i < end; i++) PL_TRY(propose(b, w, i, err));
    while (w->n_heap) {
        struct pl_bpe_candidate c = heap_pop(w);
        uint32_t left = (uint32_t)c.order, right = s[left].next;
        if (s[left].id < 0 || right == NONE) continue;
        /* The symbols may have changed since the proposal. */
        const struct pl_bpe_merge *m = merge_slot(b, pair_key(s[left].id, s[right].id));
        if (!m->pair || m->id != c.id) continue;
        s[left].id = c.id;
        s[left].next = s[right].next;
        s[right].id = -1;
        if (s[left].next != NONE) s[s[left].next].previous = left;
        if (s[left].previous != NONE) PL_TRY(propose(b, w, s[left].previous, err));
        PL_TRY(propose(b, w, left, err));
    }
    return PLEACH_OK;
}

/* ---- encoding ------------------------------------------------------------------------------ */

/* The span as one token, where the model allows that without merging (ignore_merges). */
static pleach_status find_whole(const pl_bpe *b, pl_bpe_work *w, const char *text, size_t size,
                                int32_t *id, pleach_error *err)
{
    if (b->byte_level) {
        w->letters.size = 0;
        PL_TRY(pl_buffer_reserve(&w->letters, 2 * size, err));
        for (size_t i = 0; i < size; i++)
            w->letters.size += pl_utf8_encode(pl_byte_letter((unsigned char)text[i]),
                                              w->letters.data + w->letters.size);
        text = w->letters.data;
        size = w->letters.size;
    }
    *id = find_plain(b, text, size);
    return PLEACH_OK;
}

pleach_status pl_bpe_encode(const pl_bpe *b, pl_bpe_work *w, const char *text, size_t size,
                            pl_ids *out, pleach_error *err)
{
    if (b->ignore_merges) {
        int32_t id;
        PL_TRY(find_whole(b, w, text, size, &id, err));
        if (id >= 0) return pl_ids_append(out, &id, 1, err);
    }
    w->n_symbols = 0;
    PL_TRY(first_symbols(b, w, text, size, err));
    for (uint32_t begin = 0, end; begin < w->n_symbols; begin = end) {
        for (end = begin + 1; end < w->n_symbols; end++)
            if (!may_join(b, w->symbols[end - 1].id, w->symbols[end].id)) break;
        PL_TRY(merge_part(b, w, begin, end, err));
        for (uint32_t i = begin; i != NONE; i = w->symbols[i].next)
            PL_TRY(pl_ids_append(out, &w->symbols[i].id, 1, err));
    }
    return PLEACH_OK;
}
