/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding and decoding. A text goes through added tokens, the normalizer, normalized added tokens,
 * the pre-tokenizer and the model; each stage sees only what the one before left.
 *
 * Text is never matched against special tokens unless the caller asks: whoever types "<|im_end|>"
 * has typed eleven characters. */
#include "tokenizer_parts.h"

#include "utf8.h"

/* Larger texts are cut by the caller; every stage's counts then fit their types. */
#define MAX_TEXT ((size_t)1 << 30)

pleach_status pl_ids_append(pl_ids *list, const int32_t *ids, size_t n, pleach_error *err)
{
    if (pl_grow((void **)&list->ids, &list->capacity, list->n + n, sizeof *list->ids))
        return pl_fail_memory(err, "token ids", (list->n + n) * sizeof *list->ids);
    if (n) memcpy(list->ids + list->n, ids, n * sizeof *ids);
    list->n += n;
    return PLEACH_OK;
}

void pl_tokenizer_close(pl_tokenizer *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->n_added; i++) pl_free(t->added[i].literal);
    pl_free(t->added);
    pl_trie_free(&t->literals);
    pl_trie_free(&t->raw);
    pl_trie_free(&t->normalized);
    pl_normalizer_free(t->normalizer);
    pl_pretokenizer_free(t->pretokenizer);
    pl_vocabulary_free(&t->vocabulary);
    pl_bpe_free(&t->bpe);
    pl_unigram_free(&t->unigram);
    pl_free(t->prefix.ids);
    pl_free(t->suffix.ids);
    pl_free(t->decoder.blank.data);
    pl_free(t->flags);
    pl_free(t->pieces.data);
    pl_free(t->piece_offsets);
    pl_free(t->chat_template);
    pl_free(t->json);
    pl_free(t->config);
    pl_free(t->name);
    pl_free(t);
}

/* ---- encoding ------------------------------------------------------------------------------ */

typedef struct encoder {
    const pl_tokenizer *t;
    bool special;             /* match special tokens */
    const pl_text_part *parts; /* of a chat: text becomes none of their ids */
    size_t n_parts;
    pl_matcher *matcher;
    pl_buffer clean, a, b;
    pl_spans spans, spare;
    pl_bpe_work bpe;
    pl_unigram_work unigram;
    pl_ids *out;
    pleach_error *err;
} encoder;

static void encoder_free(encoder *e)
{
    pl_matcher_free(e->matcher);
    pl_free(e->clean.data);
    pl_free(e->a.data);
    pl_free(e->b.data);
    pl_spans_free(&e->spans);
    pl_spans_free(&e->spare);
    pl_bpe_work_free(&e->bpe);
    pl_unigram_work_free(&e->unigram);
}

/* A text without added tokens, normalized. */
static pleach_status encode_plain(encoder *e, const char *text, size_t size, pl_position position)
{
    const pl_tokenizer *t = e->t;
    PL_TRY(pl_pretokenize(t->pretokenizer, e->matcher, text, size, position, &e->spans, &e->spare,
                          e->err));
    for (size_t i = 0; i < e->spans.n; i++) {
        const char *span = e->spans.text.data + e->spans.spans[i].start;
        size_t n = e->spans.spans[i].end - e->spans.spans[i].start;
        if (t->kind == PL_MODEL_BPE)
            PL_TRY(pl_bpe_encode(&t->bpe, &e->bpe, span, n, e->out, e->err));
        else
            PL_TRY(pl_unigram_encode(&t->unigram, &e->unigram, span, n, e->out, e->err));
    }
    return PLEACH_OK;
}

/* Whether text may become this added token. */
static bool allowed(const encoder *e, const pl_added_token *token)
{
    if (token->special && !e->special) return false;
    for (size_t i = 0; i < e->n_parts; i++)
        if (e->parts[i].id == token->id) return false;
    return true;
}

static bool stands_alone(const char *text, size_t size, size_t start, size_t end)
{
    size_t before = start;
    if (end < size && pl_is_word(pl_utf8_decode(text + end))) return false;
    if (!start) return true;
    do before--;
    while (before && ((unsigned char)text[before] & 0xc0) == 0x80);
    return !pl_is_word(pl_utf8_decode(text + before));
}

typedef pleach_status between_fn(encoder *e, const char *text, size_t size, pl_position position);

/* Added tokens of the trie, leftmost and longest; what is between them goes to `between`. A token
 * that strips takes the white space beside it, once. */
static pleach_status encode_added(encoder *e, const pl_trie *trie, const char *text, size_t size,
                                  pl_position position, between_fn *between)
{
    size_t done = 0; /* bytes already coded */
    for (size_t at = 0, length; at < size; at += length) {
        int32_t index = -1;
        length = pl_trie_longest(trie, text + at, size - at, &index);
        const pl_added_token *token = length ? &e->t->added[index] : NULL;
        if (!length) length = 1;
        if (!token || !allowed(e, token)) continue;
        size_t start = at, end = at + length;
        if (token->single_word && !stands_alone(text, size, start, end)) continue;
        if (token->lstrip) start = pl_trailing_space(text, start);
        if (token->rstrip) end += pl_leading_space(text + end, size - end);
        start = PL_MAX(start, done);
        if (done < start)
            PL_TRY(between(e, text + done, start - done, done ? PL_INSIDE : position));
        PL_TRY(pl_ids_append(e->out, &token->id, 1, e->err));
        done = end;
    }
    if (done >= size) return PLEACH_OK;
    return between(e, text + done, size - done, done ? PL_INSIDE : position);
}

static pleach_status encode_raw(encoder *e, const char *text, size_t size, pl_position position)
{
    const char *normal;
    size_t normal_size;
    PL_TRY(pl_normalize(e->t->normalizer, e->matcher, text, size, position == PL_CONTINUATION,
                        &e->a, &e->b, &normal, &normal_size, e->err));
    return encode_added(e, &e->t->normalized, normal, normal_size, position, encode_plain);
}

static pleach_status encode_text(encoder *e, const char *text, size_t size, pl_position position)
{
    PL_FAIL_IF(size > MAX_TEXT, e->err, PLEACH_ERR_LIMIT, "a text of %zu bytes, at most %zu", size,
               MAX_TEXT);
    if (pl_utf8_valid_prefix(text, size) < size) {
        e->clean.size = 0;
        PL_TRY(pl_utf8_sanitize(text, size, &e->clean, e->err));
        text = e->clean.data;
        size = e->clean.size;
    }
    return encode_added(e, &e->t->raw, text, size, position, encode_raw);
}

pleach_status pl_tokenizer_encode(const pl_tokenizer *t, const char *text, size_t size,
                                  unsigned flags, pl_ids *out, pleach_error *err)
{
    encoder e = {.t = t, .special = flags & PL_ENCODE_SPECIAL, .out = out, .err = err};
    pl_position position = flags & PL_ENCODE_CONTINUE ? PL_CONTINUATION : PL_AT_START;
    size_t before = out->n;
    pleach_status status = pl_matcher_create(&e.matcher, err);
    if (!status && flags & PL_ENCODE_BOS)
        status = pl_ids_append(out, t->prefix.ids, t->prefix.n, err);
    if (!status) status = encode_text(&e, text, size, position);
    if (!status && flags & PL_ENCODE_BOS)
        status = pl_ids_append(out, t->suffix.ids, t->suffix.n, err);
    if (status) out->n = before;
    encoder_free(&e);
    return status;
}

/* ---- text with control tokens -------------------------------------------------------------- */

static const pl_added_token *added_token(const pl_tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id == id) return &t->added[i];
    return NULL;
}

/* Parts without `own`: its added tokens have become ids, and what is between them text. */
typedef struct part_list {
    pl_text_part *parts;
    size_t n, capacity;
} part_list;

static pleach_status add_part(part_list *list, pl_text_part part, pleach_error *err)
{
    if (part.id < 0 && !part.size) return PLEACH_OK;
    if (pl_grow((void **)&list->parts, &list->capacity, list->n + 1, sizeof *list->parts))
        return pl_fail_memory(err, "a chat", list->n * sizeof *list->parts);
    list->parts[list->n++] = part;
    return PLEACH_OK;
}

static pleach_status expand(const pl_tokenizer *t, const pl_text_part *part, part_list *list,
                            pleach_error *err)
{
    size_t done = 0;
    for (size_t at = 0, length; part->own && at < part->size; at += length ? length : 1) {
        int32_t index;
        length = pl_trie_longest(&t->literals, part->text + at, part->size - at, &index);
        if (!length) continue;
        PL_TRY(add_part(list, (pl_text_part){part->text + done, at - done, -1, false}, err));
        PL_TRY(add_part(list, (pl_text_part){.id = t->added[index].id}, err));
        done = at + length;
    }
    return add_part(list, (pl_text_part){part->text + done, part->size - done, part->id, false},
                    err);
}

/* The text parts from i on, up to the next control token, joined, with white space gone where the
 * control tokens beside it strip. */
static pleach_status encode_between(encoder *e, size_t i, pl_buffer *joined)
{
    const pl_added_token *before = i ? added_token(e->t, e->parts[i - 1].id) : NULL;
    pl_position position = i ? PL_INSIDE : PL_AT_START;
    pl_buffer text = {0};
    joined->size = 0;
    for (; i < e->n_parts && e->parts[i].id < 0; i++)
        PL_TRY(pl_buffer_append(joined, e->parts[i].text, e->parts[i].size, e->err));
    const pl_added_token *after = i < e->n_parts ? added_token(e->t, e->parts[i].id) : NULL;
    pleach_status status = pl_utf8_sanitize(joined->data, joined->size, &text, e->err);
    if (!status) {
        size_t end = after && after->lstrip ? pl_trailing_space(text.data, text.size) : text.size;
        size_t start = before && before->rstrip ? pl_leading_space(text.data, end) : 0;
        if (start < end) status = encode_text(e, text.data + start, end - start, position);
    }
    pl_free(text.data);
    return status;
}

pleach_status pl_tokenizer_encode_parts(const pl_tokenizer *t, const pl_text_part *parts, size_t n,
                                        pl_ids *out, pleach_error *err)
{
    encoder e = {.t = t, .out = out, .err = err};
    part_list list = {0};
    pl_buffer joined = {0};
    size_t before = out->n;
    pleach_status status = pl_matcher_create(&e.matcher, err);
    for (size_t i = 0; !status && i < n; i++) status = expand(t, &parts[i], &list, err);
    e.parts = list.parts;
    e.n_parts = list.n;
    for (size_t i = 0; !status && i < list.n; i++) {
        if (list.parts[i].id >= 0) status = pl_ids_append(out, &list.parts[i].id, 1, err);
        else if (!i || list.parts[i - 1].id >= 0) status = encode_between(&e, i, &joined);
    }
    if (status) out->n = before;
    pl_free(joined.data);
    pl_free(list.parts);
    encoder_free(&e);
    return status;
}

/* ---- decoding ------------------------------------------------------------------------------ */

const char *pl_tokenizer_piece(const pl_tokenizer *t, int32_t id, size_t *size)
{
    *size = 0;
    if (id < 0 || (size_t)id >= t->n_ids) return "";
    *size = t->piece_offsets[id + 1] - t->piece_offsets[id];
    return *size ? t->pieces.data + t->piece_offsets[id] : "";
}

pleach_status pl_tokenizer_decode(const pl_tokenizer *t, const int32_t *ids, size_t n,
                                  bool keep_special, char **text, size_t *size, pleach_error *err)
{
    pl_buffer b = {0};
    pleach_status status = PLEACH_OK;
    for (size_t i = 0; !status && i < n; i++) {
        size_t length;
        const char *piece = pl_tokenizer_piece(t, ids[i], &length);
        if (!keep_special && pl_tokenizer_is_special(t, ids[i])) continue;
        status = pl_buffer_append(&b, piece, length, err);
    }
    if (!status) status = pl_buffer_reserve(&b, 1, err);
    if (status) {
        pl_free(b.data);
        return status;
    }
    if (t->decoder.strip_space && b.size && b.data[0] == ' ')
        memmove(b.data, b.data + 1, --b.size);
    b.data[b.size] = 0;
    *text = b.data;
    *size = b.size;
    return PLEACH_OK;
}

/* ---- what there is ------------------------------------------------------------------------- */

size_t pl_tokenizer_size(const pl_tokenizer *t) { return t->n_ids; }

bool pl_tokenizer_is_special(const pl_tokenizer *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->n_ids && t->flags[id] & PL_TOKEN_SPECIAL;
}

int32_t pl_tokenizer_find(const pl_tokenizer *t, const char *literal)
{
    size_t size = strlen(literal);
    int32_t index;
    if (size && pl_trie_longest(&t->literals, literal, size, &index) == size)
        return t->added[index].id;
    return pl_vocabulary_find(&t->vocabulary, literal, size);
}

int32_t pl_tokenizer_bos(const pl_tokenizer *t) { return t->bos; }
int32_t pl_tokenizer_eos(const pl_tokenizer *t) { return t->eos; }
const char *pl_tokenizer_chat_template(const pl_tokenizer *t) { return t->chat_template; }
