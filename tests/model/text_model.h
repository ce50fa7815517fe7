/* SPDX-License-Identifier: Apache-2.0
 *
 * A small model that has a tokenizer: one token a byte. */
#ifndef PLEACH_TESTS_MODEL_TEXT_MODEL_H
#define PLEACH_TESTS_MODEL_TEXT_MODEL_H

#include <jansson.h>

#include "support.h"

/* llama-tied with 384 ids: 0 to 255 are the bytes, 256 <|end|>, 257 <|other|>. */
static const char *const files[] = {"config.json", "model.safetensors", "generation_config.json",
                                    "tokenizer.json"};

/* The characters that stand for bytes in a byte-level vocabulary (GPT-2): printable ones for
 * themselves, the others from U+0100 on. */
static inline size_t byte_character(int byte, char out[4])
{
    int shifted = 256, c = byte;
    bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    for (int b = 0; b < byte; b++)
        shifted += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
    if (!printable) c = shifted;
    if (c < 128) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 63));
    return 2;
}

static inline void write_tokenizer(const folder *f)
{
    json_t *vocab = json_object();
    for (int byte = 0; byte < 256; byte++) {
        char text[5] = "";
        byte_character(byte, text);
        json_object_set_new(vocab, text, json_integer(byte));
    }
    json_t *root = json_pack(
        "{s:s, s:[{s:i,s:s,s:b,s:b,s:b,s:b,s:b},{s:i,s:s,s:b,s:b,s:b,s:b,s:b}], s:n, s:n, s:n,"
        " s:n, s:{s:s,s:b,s:b,s:b}, s:{s:s,s:b,s:b,s:b}}",
        "version", "1.0", "added_tokens", "id", 256, "content", "<|end|>", "single_word", 0,
        "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1, "id", 257, "content", "<|other|>",
        "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1, "truncation",
        "padding", "normalizer", "post_processor", "pre_tokenizer", "type", "ByteLevel",
        "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1, "decoder", "type", "ByteLevel",
        "add_prefix_space", 1, "trim_offsets", 1, "use_regex", 1);
    assert_non_null(root);
    json_object_set_new(root, "model", json_pack("{s:s, s:o, s:[]}", "type", "BPE", "vocab", vocab,
                                                 "merges"));
    char *text = json_dumps(root, 0);
    folder_write(f, "tokenizer.json", text);
    free(text);
    json_decref(root);
}

/* The same of another checkpoint of as many ids. */
static inline folder make_model_of(const char *name, const char *generation_config)
{
    folder f = make_folder();
    for (int i = 0; i < 2; i++) {
        char path[512];
        snprintf(path, sizeof path, CHECKPOINTS "%s/%s", name, files[i]);
        folder_link(&f, files[i], path);
    }
    if (generation_config) folder_write(&f, files[2], generation_config);
    write_tokenizer(&f);
    return f;
}

static inline folder make_model(const char *generation_config)
{
    return make_model_of("llama-tied", generation_config);
}

#endif
