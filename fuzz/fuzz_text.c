/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as text, through byte-level BPE with a pattern and through SentencePiece-style BPE and
 * Unigram with byte fallback: all of it comes back, every ill-formed part as U+FFFD, and no control
 * token is among the ids. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/byte_tokens.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#define BLANK "\xe2\x96\x81"

static const char *const words[] = {"<s>",      "a",   "b",       "ab", "abab",
                                    "\xc3\xa9", BLANK, BLANK "a", "zz"};

/* words, then the bytes: by letters, as byte pieces, or as byte pieces with scores. */
static json_t *vocabulary(int kind)
{
    json_t *v = kind == 2 ? json_array() : json_object();
    for (unsigned i = 0; i < PL_COUNT(words) + 256; i++) {
        char s[8] = "";
        unsigned byte = i - PL_COUNT(words);
        if (i < PL_COUNT(words)) memcpy(s, words[i], strlen(words[i]) + 1);
        else if (kind == 0) pl_utf8_encode(pl_byte_letter(byte), s);
        else pl_byte_piece_write(byte, s);
        if (kind == 2) json_array_append_new(v, json_pack("[s, f]", s, -1.0 - i / 100.0));
        else json_object_set_new(v, s, json_integer(i));
    }
    return v;
}

static pl_tokenizer *open_kind(int kind)
{
    static const char *const rest[] = {
        "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
        "\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
        "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+"
        "[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}},{\"type\":\"ByteLevel\","
        "\"add_prefix_space\":false,\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"},"
        "\"model\":{\"type\":\"BPE\",\"merges\":[\"a b\",\"ab ab\"]}}",
        "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
        "\"content\":\"\u2581\"},"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
        "{\"String\":\"\u2581\"},\"content\":\" \"},{\"type\":\"ByteFallback\"}]},\"model\":"
        "{\"type\":\"BPE\",\"byte_fallback\":true,\"merges\":[\"a b\",\"\u2581 a\",\"ab ab\"]}}",
        "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"never\"},\"decoder\":"
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Metaspace\","
        "\"prepend_scheme\":\"never\"},{\"type\":\"ByteFallback\"}]},\"model\":{\"type\":\"Unigram\",\"byte_fallback\":true,"
        "\"unk_id\":0}}"};
    json_t *root = json_loads(rest[kind], 0, NULL);
    json_object_set_new(json_object_get(root, "model"), "vocab", vocabulary(kind));
    json_object_set_new(root, "added_tokens",
                        json_pack("[{s:i, s:s, s:b}, {s:i, s:s}]", "id", 0, "content", "<s>",
                                  "special", 1, "id", 8, "content", "zz"));
    char *text = json_dumps(root, 0);
    pl_tokenizer *t;
    if (pl_tokenizer_open_json("built", text, strlen(text), NULL, 0, &t, NULL)) abort();
    json_decref(root);
    free(text);
    return t;
}

static void check_round_trip(const pl_tokenizer *t, const char *text, size_t size,
                             const pl_buffer *clean)
{
    pl_ids ids = {0};
    char *back;
    size_t n;
    if (pl_tokenizer_encode(t, text, size, PL_ENCODE_PLAIN, &ids, NULL) ||
        pl_tokenizer_decode(t, ids.ids, ids.n, true, &back, &n, NULL))
        abort();
    for (size_t i = 0; i < ids.n; i++)
        if (pl_tokenizer_is_special(t, ids.ids[i])) abort();
    if (n != clean->size || (n && memcmp(back, clean->data, n))) abort();
    pl_free(back);
    ids.n = 0;
    if (pl_tokenizer_encode(t, text, size, PL_ENCODE_SPECIAL | PL_ENCODE_BOS, &ids, NULL)) abort();
    pl_free(ids.ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static pl_tokenizer *tokenizers[3];
    pl_buffer clean = {0};
    const char *text = (const char *)data;
    if (pl_utf8_sanitize(text, size, &clean, NULL)) abort();
    bool blank = false, piece = false; /* a literal blank comes back as a space, and "<0x41>" is a
                                          byte to Unigram, as it is to the reference */
    for (size_t i = 0; i + 3 <= size; i++) {
        blank |= !memcmp(text + i, BLANK, 3);
        piece |= !memcmp(text + i, "<0x", 3);
    }
    for (int kind = 0; kind < 3; kind++) {
        if (!tokenizers[kind]) tokenizers[kind] = open_kind(kind);
        if (!kind || (!blank && (kind == 1 || !piece)))
            check_round_trip(tokenizers[kind], text, size, &clean);
    }
    pl_free(clean.data);
    return 0;
}
