/* SPDX-License-Identifier: Apache-2.0
 *
 * A tokenizer from a parsed tokenizer.json (Hugging Face tokenizers, format version 1.0) and
 * tokenizer_config.json. Normalizers and pre-tokenizers read their own parts. */
#include "tokenizer_parts.h"

#include "base/file.h"
#include "byte_tokens.h"
#include "json_field.h"

#define MAX_FILE ((size_t)256 << 20)

/* ---- added tokens -------------------------------------------------------------------------- */

static pleach_status read_id(const char *name, const json_t *value, size_t entries, int32_t *id,
                             pleach_error *err)
{
    json_int_t v = json_integer_value(value);
    PL_FAIL_IF(!json_is_integer(value) || v < 0 || (uint64_t)v >= pl_vocabulary_max_ids(entries) ||
                   v >= INT32_MAX,
               err, PLEACH_ERR_FORMAT, "%s: token id %lld in a vocabulary of %zu tokens", name,
               (long long)v, entries);
    *id = (int32_t)v;
    return PLEACH_OK;
}

static pleach_status read_added_token(pl_tokenizer *t, const json_t *o, size_t entries,
                                      pleach_error *err)
{
    const char *literal;
    size_t size;
    pl_added_token token = {.normalized = true};
    PL_TRY(pl_json_text(t->name, o, "content", &literal, &size, err));
    PL_TRY(read_id(t->name, json_object_get(o, "id"), entries, &token.id, err));
    PL_TRY(pl_json_bool(t->name, o, "special", &token.special, err));
    token.normalized = !token.special;
    PL_TRY(pl_json_bool(t->name, o, "single_word", &token.single_word, err));
    PL_TRY(pl_json_bool(t->name, o, "lstrip", &token.lstrip, err));
    PL_TRY(pl_json_bool(t->name, o, "rstrip", &token.rstrip, err));
    PL_TRY(pl_json_bool(t->name, o, "normalized", &token.normalized, err));
    if (!size) return PLEACH_OK; /* nothing could match it */
    /* The model's own id counts, as in the reference; what must agree there does in real files. */
    int32_t known = pl_vocabulary_find(&t->vocabulary, literal, size);
    if (known >= 0) token.id = known;
    int32_t index;
    if (pl_trie_longest(&t->literals, literal, size, &index) == size) { /* the last one counts */
        token.literal = t->added[index].literal;
        token.size = size;
        token.id = t->added[index].id;
        t->added[index] = token;
        return PLEACH_OK;
    }
    if (pl_grow((void **)&t->added, &t->added_capacity, t->n_added + 1, sizeof *t->added))
        return pl_fail_memory(err, "added tokens", sizeof *t->added);
    token.literal = pl_alloc(size + 1, 1);
    if (!token.literal) return pl_fail_memory(err, "an added token", size);
    memcpy(token.literal, literal, size);
    token.literal[size] = 0;
    token.size = size;
    t->added[t->n_added++] = token;
    return pl_trie_add(&t->literals, literal, size, (int32_t)t->n_added - 1, false, err);
}

static pleach_status read_added_tokens(pl_tokenizer *t, const json_t *list, size_t entries,
                                       pleach_error *err)
{
    PL_FAIL_IF(list && !json_is_array(list), err, PLEACH_ERR_FORMAT,
               "%s: added_tokens is not a list", t->name);
    for (size_t i = 0; i < json_array_size(list); i++)
        PL_TRY(read_added_token(t, json_array_get(list, i), entries, err));
    return PLEACH_OK;
}

/* The literal of a token in tokenizer_config.json, where it is a string or {"content": ...}. */
static const char *config_token(const json_t *field)
{
    return json_string_value(json_is_object(field) ? json_object_get(field, "content") : field);
}

/* Tokens that tokenizer_config.json gives a role are special even if tokenizer.json forgets. */
static void mark_config_specials(pl_tokenizer *t, const json_t *config)
{
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    const json_t *more = json_object_get(config, "additional_special_tokens");
    for (size_t i = 0; i < t->n_added; i++) {
        pl_added_token *token = &t->added[i];
        for (size_t k = 0; k < PL_COUNT(keys) + json_array_size(more); k++) {
            const char *literal =
                config_token(k < PL_COUNT(keys) ? json_object_get(config, keys[k])
                                                : json_array_get(more, k - PL_COUNT(keys)));
            if (literal && !strcmp(literal, token->literal)) token->special = true;
        }
    }
}

/* Flags by id, and the tries that find added tokens. Of two that normalize to the same text the
 * first special one, else the first, counts. */
static pleach_status index_added(pl_tokenizer *t, pleach_error *err)
{
    t->n_ids = t->vocabulary.n_ids;
    for (size_t i = 0; i < t->n_added; i++)
        t->n_ids = PL_MAX(t->n_ids, (size_t)t->added[i].id + 1);
    t->flags = pl_calloc(t->n_ids, 1);
    if (!t->flags) return pl_fail_memory(err, "token flags", t->n_ids);
    for (size_t i = 0; i < t->n_added; i++)
        t->flags[t->added[i].id] |=
            PL_TOKEN_ADDED | (t->added[i].special ? PL_TOKEN_SPECIAL : 0);
    pl_matcher *matcher = NULL;
    pl_buffer a = {0}, b = {0};
    pleach_status status = pl_matcher_create(&matcher, err);
    for (size_t k = 0; !status && k < 2 * t->n_added; k++) {
        size_t i = k % t->n_added;
        const pl_added_token *token = &t->added[i];
        const char *literal = token->literal;
        size_t size = token->size;
        if (token->special != (k < t->n_added)) continue;
        if (token->normalized)
            status = pl_normalize(t->normalizer, matcher, literal, size, false, &a, &b, &literal,
                                  &size, err);
        if (!status && size)
            status = pl_trie_add(token->normalized ? &t->normalized : &t->raw, literal, size,
                                 (int32_t)i, false, err);
    }
    pl_matcher_free(matcher);
    pl_free(a.data);
    pl_free(b.data);
    return status;
}

/* ---- models -------------------------------------------------------------------------------- */

static pleach_status read_bpe_vocabulary(pl_tokenizer *t, json_t *vocab, size_t entries,
                                         pleach_error *err)
{
    PL_FAIL_IF(!json_is_object(vocab), err, PLEACH_ERR_FORMAT, "%s: model.vocab is not an object",
               t->name);
    for (void *i = json_object_iter(vocab); i; i = json_object_iter_next(vocab, i)) {
        int32_t id;
        PL_TRY(read_id(t->name, json_object_iter_value(i), entries, &id, err));
        PL_TRY(pl_vocabulary_add(&t->vocabulary, json_object_iter_key(i),
                                 json_object_iter_key_len(i), id, err));
    }
    return PLEACH_OK;
}

/* Ids of the model's byte pieces; letters of the byte alphabet when byte_level. */
static void find_bytes(const pl_tokenizer *t, bool byte_level, int32_t bytes[256])
{
    for (unsigned i = 0; i < 256; i++) {
        char s[8];
        size_t n = 6;
        if (byte_level) n = pl_utf8_encode(pl_byte_letter(i), s);
        else pl_byte_piece_write(i, s);
        bytes[i] = pl_vocabulary_find(&t->vocabulary, s, n);
        if (bytes[i] >= 0 && t->flags[bytes[i]] & PL_TOKEN_SPECIAL) bytes[i] = -1;
    }
}

/* "a b", or ["a", "b"], which alone can hold a part with a space in it. */
static pleach_status read_merge(const pl_tokenizer *t, const json_t *merge, size_t rank,
                                const char *part[2], size_t size[2], pleach_error *err)
{
    if (json_is_string(merge)) {
        const char *s = json_string_value(merge);
        size_t n = json_string_length(merge);
        const char *space = memchr(s, ' ', n);
        if (space && !memchr(space + 1, ' ', (size_t)(s + n - space - 1))) {
            part[0] = s;
            size[0] = (size_t)(space - s);
            part[1] = space + 1;
            size[1] = n - size[0] - 1;
            return PLEACH_OK;
        }
    } else if (json_array_size(merge) == 2 && json_is_string(json_array_get(merge, 0)) &&
               json_is_string(json_array_get(merge, 1))) {
        for (size_t i = 0; i < 2; i++) {
            part[i] = json_string_value(json_array_get(merge, i));
            size[i] = json_string_length(json_array_get(merge, i));
        }
        return PLEACH_OK;
    }
    return pl_fail(err, PLEACH_ERR_FORMAT, "%s: merge %zu is not two parts", t->name, rank);
}

static pleach_status read_merges(pl_tokenizer *t, const json_t *merges, pleach_error *err)
{
    PL_FAIL_IF(!json_is_array(merges) || json_array_size(merges) >= UINT32_MAX, err,
               PLEACH_ERR_FORMAT, "%s: model.merges is not a list", t->name);
    pl_buffer joined = {0};
    pleach_status status = pl_bpe_reserve(&t->bpe, json_array_size(merges), err);
    for (size_t i = 0; !status && i < json_array_size(merges); i++) {
        const char *part[2];
        size_t size[2];
        int32_t id[2], merged;
        status = read_merge(t, json_array_get(merges, i), i, part, size, err);
        joined.size = 0;
        for (int k = 0; !status && k < 2; k++) {
            id[k] = pl_vocabulary_find(&t->vocabulary, part[k], size[k]);
            status = pl_buffer_append(&joined, part[k], size[k], err);
        }
        if (status) break;
        merged = pl_vocabulary_find(&t->vocabulary, joined.data, joined.size);
        if (id[0] < 0 || id[1] < 0 || merged < 0)
            status = pl_fail(err, PLEACH_ERR_FORMAT,
                             "%s: merge %zu (%.32s and %.32s) is not in the vocabulary", t->name, i,
                             part[0], part[1]);
        else if (!(t->flags[merged] & PL_TOKEN_SPECIAL)) /* text never becomes a control token */
            pl_bpe_add_merge(&t->bpe, id[0], id[1], (uint32_t)i, merged);
    }
    pl_free(joined.data);
    return status;
}

static pleach_status refuse_option(const pl_tokenizer *t, const json_t *model, const char *key,
                                   pleach_error *err)
{
    const json_t *field = pl_json_get(model, key);
    bool off = !field || (json_is_number(field) && json_number_value(field) == 0) ||
               (json_is_string(field) && !json_string_length(field));
    PL_FAIL_IF(!off, err, PLEACH_ERR_UNSUPPORTED, "%s: model.%s is not supported", t->name, key);
    return PLEACH_OK;
}

static pleach_status read_bpe(pl_tokenizer *t, const json_t *model, pleach_error *err)
{
    pl_bpe *b = &t->bpe;
    t->kind = PL_MODEL_BPE;
    PL_TRY(refuse_option(t, model, "dropout", err));
    PL_TRY(refuse_option(t, model, "continuing_subword_prefix", err));
    PL_TRY(refuse_option(t, model, "end_of_word_suffix", err));
    PL_TRY(pl_json_bool(t->name, model, "fuse_unk", &b->fuse_unk, err));
    PL_TRY(pl_json_bool(t->name, model, "byte_fallback", &b->byte_fallback, err));
    PL_TRY(pl_json_bool(t->name, model, "ignore_merges", &b->ignore_merges, err));
    b->vocabulary = &t->vocabulary;
    b->flags = t->flags;
    b->byte_level = pl_pretokenizer_is_byte_level(t->pretokenizer);
    b->unk = -1;
    if (pl_json_get(model, "unk_token")) {
        const char *unk;
        size_t size;
        PL_TRY(pl_json_text(t->name, model, "unk_token", &unk, &size, err));
        b->unk = pl_vocabulary_find(&t->vocabulary, unk, size);
        if (b->unk < 0) b->unk = pl_tokenizer_find(t, unk);
        PL_FAIL_IF(b->unk < 0, err, PLEACH_ERR_FORMAT,
                   "%s: unknown token \"%s\" is not in the vocabulary", t->name, unk);
    }
    find_bytes(t, b->byte_level, b->bytes);
    return read_merges(t, json_object_get(model, "merges"), err);
}

static pleach_status read_unigram_vocabulary(pl_tokenizer *t, const json_t *vocab,
                                             pleach_error *err)
{
    PL_FAIL_IF(!json_is_array(vocab) || !json_array_size(vocab) ||
                   json_array_size(vocab) >= INT32_MAX / 4,
               err, PLEACH_ERR_FORMAT, "%s: model.vocab is not a list of pieces", t->name);
    for (size_t i = 0; i < json_array_size(vocab); i++) {
        const json_t *entry = json_array_get(vocab, i), *piece = json_array_get(entry, 0);
        PL_FAIL_IF(!json_is_string(piece) || !json_is_number(json_array_get(entry, 1)), err,
                   PLEACH_ERR_FORMAT, "%s: model.vocab[%zu] is not a piece and a score", t->name,
                   i);
        PL_TRY(pl_vocabulary_add(&t->vocabulary, json_string_value(piece),
                                 json_string_length(piece), (int32_t)i, err));
    }
    return PLEACH_OK;
}

static pleach_status read_unigram(pl_tokenizer *t, const json_t *model, pleach_error *err)
{
    pl_unigram *u = &t->unigram;
    const json_t *vocab = json_object_get(model, "vocab"), *unk = pl_json_get(model, "unk_id");
    double least = 0;
    t->kind = PL_MODEL_UNIGRAM;
    PL_FAIL_IF(pl_pretokenizer_is_byte_level(t->pretokenizer), err, PLEACH_ERR_UNSUPPORTED,
               "%s: Unigram on ByteLevel is not supported", t->name);
    PL_TRY(pl_json_bool(t->name, model, "byte_fallback", &u->byte_fallback, err));
    u->n = json_array_size(vocab);
    u->scores = pl_alloc(u->n, sizeof *u->scores);
    if (!u->scores) return pl_fail_memory(err, "scores", u->n * sizeof *u->scores);
    u->unk = -1;
    if (unk) {
        json_int_t id = json_integer_value(unk);
        PL_FAIL_IF(!json_is_integer(unk) || id < 0 || (uint64_t)id >= u->n, err, PLEACH_ERR_FORMAT,
                   "%s: model.unk_id is not an id of its %zu pieces", t->name, u->n);
        u->unk = (int32_t)id;
    }
    for (size_t i = 0; i < u->n; i++) {
        const json_t *entry = json_array_get(vocab, i), *piece = json_array_get(entry, 0);
        u->scores[i] = json_number_value(json_array_get(entry, 1));
        least = i ? PL_MIN(least, u->scores[i]) : u->scores[i];
        if (!(t->flags[i] & PL_TOKEN_SPECIAL)) /* text never becomes a control token */
            PL_TRY(pl_trie_add(&u->pieces, json_string_value(piece), json_string_length(piece),
                               (int32_t)i, true, err));
    }
    u->unk_score = least - 10; /* the reference's penalty */
    find_bytes(t, false, u->bytes);
    return PLEACH_OK;
}

/* ---- post-processor ------------------------------------------------------------------------ */

static pleach_status append_special(pl_tokenizer *t, const json_t *processor, const json_t *special,
                                    pl_ids *list, pleach_error *err)
{
    const char *literal;
    size_t size;
    PL_TRY(pl_json_text(t->name, special, "id", &literal, &size, err));
    const json_t *entry = json_object_get(json_object_get(processor, "special_tokens"), literal);
    const json_t *ids = json_object_get(entry, "ids");
    PL_FAIL_IF(!json_is_array(ids), err, PLEACH_ERR_FORMAT,
               "%s: post-processor token \"%s\" has no ids", t->name, literal);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        int32_t id;
        PL_TRY(read_id(t->name, json_array_get(ids, i), t->n_ids, &id, err));
        PL_FAIL_IF((size_t)id >= t->n_ids, err, PLEACH_ERR_FORMAT,
                   "%s: post-processor id %d in a vocabulary of %zu ids", t->name, id, t->n_ids);
        PL_TRY(pl_ids_append(list, &id, 1, err));
    }
    return PLEACH_OK;
}

static pleach_status read_template(pl_tokenizer *t, const json_t *o, pleach_error *err)
{
    const json_t *single = json_object_get(o, "single");
    bool seen = false;
    PL_FAIL_IF(!json_is_array(single), err, PLEACH_ERR_FORMAT,
               "%s: post-processor without a list of single parts", t->name);
    PL_FAIL_IF(t->prefix.n || t->suffix.n, err, PLEACH_ERR_UNSUPPORTED,
               "%s: two TemplateProcessing post-processors are not supported", t->name);
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *part = json_array_get(single, i);
        const json_t *special = json_object_get(part, "SpecialToken");
        if (special) {
            PL_TRY(append_special(t, o, special, seen ? &t->suffix : &t->prefix, err));
            continue;
        }
        PL_FAIL_IF(seen || !json_object_get(part, "Sequence"), err, PLEACH_ERR_UNSUPPORTED,
                   "%s: post-processor part %zu is not supported", t->name, i);
        seen = true;
    }
    return PLEACH_OK;
}

static pleach_status read_processor(pl_tokenizer *t, const json_t *o, int depth, pleach_error *err)
{
    const char *type = pl_json_type(o);
    if (!o || !strcmp(type, "ByteLevel")) return PLEACH_OK; /* moves offsets alone */
    if (!strcmp(type, "TemplateProcessing")) return read_template(t, o, err);
    PL_FAIL_IF(strcmp(type, "Sequence") || depth > 8, err, PLEACH_ERR_UNSUPPORTED,
               "%s: post-processor \"%s\" is not supported", t->name, type);
    const json_t *list = json_object_get(o, "processors");
    for (size_t i = 0; i < json_array_size(list); i++)
        PL_TRY(read_processor(t, json_array_get(list, i), depth + 1, err));
    return PLEACH_OK;
}

/* ---- decoder ------------------------------------------------------------------------------- */

static pleach_status read_metaspace_decoder(pl_tokenizer *t, const json_t *o, pleach_error *err)
{
    const char *blank = "\xe2\x96\x81", *scheme;
    size_t size = 3, n;
    bool prefix = true;
    if (pl_json_get(o, "replacement"))
        PL_TRY(pl_json_text(t->name, o, "replacement", &blank, &size, err));
    PL_TRY(pl_json_bool(t->name, o, "add_prefix_space", &prefix, err));
    if (pl_json_get(o, "prepend_scheme")) {
        PL_TRY(pl_json_text(t->name, o, "prepend_scheme", &scheme, &n, err));
        prefix = strcmp(scheme, "never") != 0;
    }
    t->decoder.strip_space = prefix;
    return pl_buffer_append(&t->decoder.blank, blank, size, err);
}

static pleach_status read_decoder(pl_tokenizer *t, const json_t *o, int depth, bool *fused,
                                  pleach_error *err)
{
    const char *type = pl_json_type(o), *text, *content;
    size_t size, n;
    pl_decoder *d = &t->decoder;
    if (!o) return PLEACH_OK;
    if (!strcmp(type, "Sequence") && depth < 8) {
        const json_t *list = json_object_get(o, "decoders");
        for (size_t i = 0; i < json_array_size(list); i++)
            PL_TRY(read_decoder(t, json_array_get(list, i), depth + 1, fused, err));
        return PLEACH_OK;
    }
    if (!strcmp(type, "Fuse")) {
        *fused = true;
        return PLEACH_OK;
    }
    if (!strcmp(type, "Strip")) {
        PL_TRY(pl_json_text(t->name, o, "content", &content, &n, err));
        json_int_t start = json_integer_value(json_object_get(o, "start"));
        PL_FAIL_IF(!*fused || strcmp(content, " ") || start > 1 || start < 0 ||
                       json_integer_value(json_object_get(o, "stop")),
                   err, PLEACH_ERR_UNSUPPORTED,
                   "%s: a Strip decoder other than of one leading space is not supported", t->name);
        d->strip_space = start == 1;
        return PLEACH_OK;
    }
    PL_FAIL_IF(*fused, err, PLEACH_ERR_UNSUPPORTED,
               "%s: decoder \"%s\" after Fuse is not supported", t->name, type);
    if (!strcmp(type, "ByteLevel") || !strcmp(type, "ByteFallback")) {
        *(strcmp(type, "ByteLevel") ? &d->byte_fallback : &d->byte_level) = true;
        return PLEACH_OK;
    }
    PL_FAIL_IF(d->blank.size, err, PLEACH_ERR_UNSUPPORTED,
               "%s: decoder \"%s\" after another replacement is not supported", t->name, type);
    if (!strcmp(type, "Metaspace")) return read_metaspace_decoder(t, o, err);
    PL_FAIL_IF(strcmp(type, "Replace"), err, PLEACH_ERR_UNSUPPORTED,
               "%s: decoder \"%s\" is not supported", t->name, type);
    PL_TRY(pl_json_text(t->name, json_object_get(o, "pattern"), "String", &text, &size, err));
    PL_TRY(pl_json_text(t->name, o, "content", &content, &n, err));
    PL_FAIL_IF(strcmp(content, " ") || !size, err, PLEACH_ERR_UNSUPPORTED,
               "%s: a Replace decoder with other content than a space is not supported", t->name);
    return pl_buffer_append(&d->blank, text, size, err);
}

/* The bytes of a piece in the byte alphabet; one with other characters stands for itself. */
static pleach_status decode_letters(pl_buffer *out, const char *s, size_t size, pleach_error *err)
{
    size_t before = out->size;
    PL_TRY(pl_buffer_reserve(out, size, err));
    for (size_t at = 0; at < size; at += pl_utf8_length(s[at])) {
        int byte = pl_letter_byte(pl_utf8_decode(s + at));
        if (byte < 0) {
            out->size = before;
            return pl_buffer_append(out, s, size, err);
        }
        out->data[out->size++] = (char)byte;
    }
    return PLEACH_OK;
}

static pleach_status decode_piece(const pl_decoder *d, pl_buffer *out, const char *s, size_t size,
                                  pleach_error *err)
{
    if (d->byte_level) return decode_letters(out, s, size, err);
    int byte = d->byte_fallback ? pl_byte_piece(s, size) : -1;
    if (byte >= 0) return pl_buffer_append(out, &(char){(char)byte}, 1, err);
    for (size_t at = 0; at < size;) {
        size_t n = d->blank.size;
        if (n && size - at >= n && !memcmp(s + at, d->blank.data, n)) {
            PL_TRY(pl_buffer_append(out, " ", 1, err));
            at += n;
        } else {
            PL_TRY(pl_buffer_append(out, s + at++, 1, err));
        }
    }
    return PLEACH_OK;
}

static pleach_status make_pieces(pl_tokenizer *t, pleach_error *err)
{
    int32_t *literal_of = pl_alloc(t->n_ids, sizeof *literal_of); /* index of the added token */
    t->piece_offsets = pl_calloc(t->n_ids + 1, sizeof *t->piece_offsets);
    pleach_status status = literal_of && t->piece_offsets
                               ? PLEACH_OK
                               : pl_fail_memory(err, "token pieces", t->n_ids);
    for (size_t i = 0; !status && i < t->n_ids; i++) literal_of[i] = -1;
    for (size_t i = t->n_added; !status && i--;) literal_of[t->added[i].id] = (int32_t)i;
    for (size_t i = 0; !status && i < t->n_ids; i++) {
        const pl_added_token *added = literal_of[i] >= 0 ? &t->added[literal_of[i]] : NULL;
        size_t size;
        const char *s = pl_vocabulary_literal(&t->vocabulary, (int32_t)i, &size);
        if (added) status = pl_buffer_append(&t->pieces, added->literal, added->size, err);
        else if (s) status = decode_piece(&t->decoder, &t->pieces, s, size, err);
        t->piece_offsets[i + 1] = t->pieces.size;
    }
    pl_free(literal_of);
    return status;
}

/* ---- tokenizer_config.json ----------------------------------------------------------------- */

static char *copy_text(const char *s, size_t size)
{
    char *copy = pl_alloc(size + 1, 1);
    if (!copy) return NULL;
    memcpy(copy, s, size);
    copy[size] = 0;
    return copy;
}

/* A string, or a list of named templates of which "default" counts. */
static const json_t *config_template(const json_t *config)
{
    const json_t *field = json_object_get(config, "chat_template");
    for (size_t i = 0; i < json_array_size(field); i++) {
        const json_t *entry = json_array_get(field, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && !strcmp(name, "default")) return json_object_get(entry, "template");
    }
    return field;
}

static pleach_status read_config(pl_tokenizer *t, const json_t *config, pleach_error *err)
{
    const char *bos = config_token(json_object_get(config, "bos_token"));
    const char *eos = config_token(json_object_get(config, "eos_token"));
    const json_t *text = config_template(config);
    t->bos = bos ? pl_tokenizer_find(t, bos) : -1;
    t->eos = eos ? pl_tokenizer_find(t, eos) : -1;
    if (!json_is_string(text)) return PLEACH_OK;
    t->chat_template = copy_text(json_string_value(text), json_string_length(text));
    if (!t->chat_template) return pl_fail_memory(err, "a chat template", json_string_length(text));
    return PLEACH_OK;
}

/* ---- opening ------------------------------------------------------------------------------- */

static pleach_status read_vocabulary(pl_tokenizer *t, const json_t *model, size_t n_added,
                                     pleach_error *err)
{
    const char *type = pl_json_type(model);
    json_t *vocab = json_object_get(model, "vocab");
    /* Files of before 2020 leave out the type of a BPE model, which alone has merges. */
    if (!strcmp(type, "BPE") || (!*type && json_object_get(model, "merges"))) {
        t->kind = PL_MODEL_BPE;
        return read_bpe_vocabulary(t, vocab, json_object_size(vocab) + n_added, err);
    }
    PL_FAIL_IF(strcmp(type, "Unigram"), err, PLEACH_ERR_UNSUPPORTED,
               "%s: model \"%s\" is not supported", t->name, type);
    t->kind = PL_MODEL_UNIGRAM;
    return read_unigram_vocabulary(t, vocab, err);
}

static pleach_status build(pl_tokenizer *t, const json_t *root, const json_t *config,
                           pleach_error *err)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *added = pl_json_get(root, "added_tokens");
    bool fused = false;
    PL_FAIL_IF(!json_is_object(model), err, PLEACH_ERR_FORMAT, "%s: no model in it", t->name);
    PL_TRY(pl_normalizer_create(t->name, pl_json_get(root, "normalizer"), &t->normalizer, err));
    PL_TRY(pl_pretokenizer_create(t->name, pl_json_get(root, "pre_tokenizer"), &t->pretokenizer,
                                  err));
    PL_TRY(read_vocabulary(t, model, json_array_size(added), err));
    PL_TRY(read_added_tokens(t, added, t->vocabulary.n + json_array_size(added), err));
    mark_config_specials(t, config);
    PL_TRY(index_added(t, err));
    PL_TRY(t->kind == PL_MODEL_BPE ? read_bpe(t, model, err) : read_unigram(t, model, err));
    PL_TRY(read_processor(t, pl_json_get(root, "post_processor"), 0, err));
    PL_TRY(read_decoder(t, pl_json_get(root, "decoder"), 0, &fused, err));
    PL_TRY(make_pieces(t, err));
    return read_config(t, config, err);
}

pleach_status pl_tokenizer_from_json(const char *name, const json_t *root, const json_t *config,
                                     pl_tokenizer **out, pleach_error *err)
{
    pl_tokenizer *t = pl_calloc(1, sizeof *t);
    if (!t) return pl_fail_memory(err, "a tokenizer", sizeof *t);
    t->name = copy_text(name, strlen(name));
    pleach_status status = t->name ? build(t, root, config, err)
                                   : pl_fail_memory(err, "a tokenizer", strlen(name));
    if (status) {
        pl_tokenizer_close(t);
        return status;
    }
    *out = t;
    return PLEACH_OK;
}

static pleach_status parse(const char *name, const char *text, size_t size, json_t **out,
                           pleach_error *err)
{
    json_error_t why;
    *out = json_loadb(text, size, JSON_ALLOW_NUL, &why);
    PL_FAIL_IF(!*out, err, PLEACH_ERR_FORMAT, "%s: line %d: %s", name, why.line, why.text);
    if (json_is_object(*out)) return PLEACH_OK;
    json_decref(*out);
    *out = NULL;
    return pl_fail(err, PLEACH_ERR_FORMAT, "%s: not a JSON object", name);
}

pleach_status pl_tokenizer_open_json(const char *name, const char *json, size_t size,
                                     const char *config, size_t config_size, pl_tokenizer **out,
                                     pleach_error *err)
{
    json_t *root = NULL, *settings = NULL;
    pl_tokenizer *t = NULL;
    *out = NULL;
    pleach_status status = parse(name, json, size, &root, err);
    if (!status && config)
        status = parse("tokenizer_config.json", config, config_size, &settings, err);
    if (!status) status = pl_tokenizer_from_json(name, root, settings, &t, err);
    json_decref(root);
    json_decref(settings);
    if (status) return status;
    t->json = copy_text(json, size);
    t->json_size = size;
    if (config) t->config = copy_text(config, config_size);
    t->config_size = config_size;
    if (!t->json || (config && !t->config)) {
        pl_tokenizer_close(t);
        return pl_fail_memory(err, "a tokenizer's text", size);
    }
    *out = t;
    return PLEACH_OK;
}

/* Reads DIR/NAME if it is there; *text stays NULL if not. */
static pleach_status read_optional(const char *dir, const char *file, char **text, size_t *size,
                                   pleach_error *err)
{
    char *path = pl_path_join(dir, file);
    if (!path) return pl_fail_memory(err, "a path", strlen(dir));
    pleach_status status =
        pl_exists(path) ? pl_read_file(path, MAX_FILE, text, size, err) : PLEACH_OK;
    pl_free(path);
    return status;
}

pleach_status pl_tokenizer_open_folder(const char *dir, pl_tokenizer **out, pleach_error *err)
{
    char *json = NULL, *config = NULL, *chat = NULL;
    size_t json_size = 0, config_size = 0, chat_size = 0;
    char *path = pl_path_join(dir, "tokenizer.json");
    *out = NULL;
    if (!path) return pl_fail_memory(err, "a path", strlen(dir));
    pleach_status status = pl_read_file(path, MAX_FILE, &json, &json_size, err);
    if (!status) status = read_optional(dir, "tokenizer_config.json", &config, &config_size, err);
    if (!status) status = read_optional(dir, "chat_template.jinja", &chat, &chat_size, err);
    if (!status)
        status = pl_tokenizer_open_json(path, json, json_size, config, config_size, out, err);
    if (!status && chat) { /* a template in a file of its own replaces the config's */
        pl_free((*out)->chat_template);
        (*out)->chat_template = chat;
        chat = NULL;
    }
    pl_free(json);
    pl_free(config);
    pl_free(chat);
    pl_free(path);
    return status;
}
