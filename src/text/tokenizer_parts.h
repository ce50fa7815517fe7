/* SPDX-License-Identifier: Apache-2.0
 *
 * What a tokenizer is made of: shared by the files that read, run and write one. */
#ifndef PL_TEXT_TOKENIZER_PARTS_H
#define PL_TEXT_TOKENIZER_PARTS_H

#include <jansson.h>

#include "bpe.h"
#include "normalize.h"
#include "pretokenize.h"
#include "tokenizer.h"
#include "trie.h"
#include "unigram.h"
#include "vocabulary.h"

enum {
    PL_TOKEN_ADDED = 1,  /* its piece is its literal */
    PL_TOKEN_SPECIAL = 2 /* a control token: text becomes it only where the caller allows that */
};

/* A token that is looked for in the text before anything else. */
typedef struct pl_added_token {
    char *literal;
    size_t size;
    int32_t id;
    bool special, single_word, lstrip, rstrip, normalized;
} pl_added_token;

typedef struct pl_decoder {
    pl_buffer blank;    /* this string in a piece is a space; empty: none */
    bool byte_level;    /* pieces are spelled in the byte alphabet */
    bool byte_fallback; /* "<0x0A>" is a byte */
    bool strip_space;   /* one space at a text's beginning goes */
} pl_decoder;

typedef enum pl_model_kind { PL_MODEL_BPE, PL_MODEL_UNIGRAM } pl_model_kind;

struct pl_tokenizer {
    char *name; /* for error lines */

    pl_added_token *added;
    size_t n_added, added_capacity;
    pl_trie literals;        /* of added tokens, to their index */
    pl_trie raw, normalized; /* the same, of those looked for before and after normalizing */
    pl_normalizer *normalizer;
    pl_pretokenizer *pretokenizer;
    pl_vocabulary vocabulary; /* the model's pieces */
    pl_model_kind kind;
    pl_bpe bpe;
    pl_unigram unigram;
    pl_ids prefix, suffix; /* what the post-processor puts round a text */
    pl_decoder decoder;

    size_t n_ids;
    uint8_t *flags;         /* [n_ids] */
    pl_buffer pieces;       /* decoded pieces one after another */
    size_t *piece_offsets;  /* [n_ids + 1] */

    int32_t bos, eos;
    char *chat_template;
    char *json, *config; /* the two files' text, for pl_tokenizer_write */
    size_t json_size, config_size;
};

/* Builds *t from a parsed tokenizer.json and an optional tokenizer_config.json. */
pleach_status pl_tokenizer_from_json(const char *name, const json_t *root, const json_t *config,
                                     pl_tokenizer **out, pleach_error *err);

/* One part of a text put together by a chat format: a control token by id (>= 0); text of the
 * format's own, in which added tokens are found, special or not; or somebody's text, which becomes
 * neither a special token nor any of the tokens that the format's own text holds. Texts that
 * follow each other are coded as one. */
typedef struct pl_text_part {
    const char *text;
    size_t size;
    int32_t id;
    bool own;
} pl_text_part;

/* Appends to *out; adds no BOS or EOS of its own. */
pleach_status pl_tokenizer_encode_parts(const pl_tokenizer *t, const pl_text_part *parts, size_t n,
                                        pl_ids *out, pleach_error *err);

#endif
