/* SPDX-License-Identifier: Apache-2.0
 *
 * Text to ids and back, from tokenizer.json or GGUF: byte-level BPE, SentencePiece-style BPE and
 * Unigram. Immutable after opening. */
#ifndef PL_TEXT_TOKENIZER_H
#define PL_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct pl_gguf;
typedef struct pl_tokenizer pl_tokenizer;

/* A growing list of ids: zero it first, pl_free(ids) last. */
typedef struct pl_ids {
    int32_t *ids;
    size_t n, capacity;
} pl_ids;
pleach_status pl_ids_append(pl_ids *list, const int32_t *ids, size_t n, pleach_error *err);

/* From DIR/tokenizer.json, with tokenizer_config.json where there is one. PLEACH_ERR_MISSING when
 * there is no tokenizer.json. What is not supported is refused by name. */
pleach_status pl_tokenizer_open_folder(const char *dir, pl_tokenizer **out, pleach_error *err);
/* From the text of the two files; config may be NULL. `name` is for error lines. */
pleach_status pl_tokenizer_open_json(const char *name, const char *json, size_t size,
                                     const char *config, size_t config_size, pl_tokenizer **out,
                                     pleach_error *err);
pleach_status pl_tokenizer_open_gguf(const struct pl_gguf *g, pl_tokenizer **out,
                                     pleach_error *err);
void pl_tokenizer_close(pl_tokenizer *t);

enum {
    PL_ENCODE_PLAIN = 0,    /* never matches special tokens in the text */
    PL_ENCODE_BOS = 1,      /* add BOS/EOS as the tokenizer's post-processor (or GGUF flags) does */
    PL_ENCODE_SPECIAL = 2,  /* match special tokens too */
    PL_ENCODE_CONTINUE = 4  /* the text continues a document: no SentencePiece prefix space */
};
/* Appends to *out. Added tokens that are not special are always matched, as the reference does. */
pleach_status pl_tokenizer_encode(const pl_tokenizer *t, const char *text, size_t size,
                                  unsigned flags, pl_ids *out, pleach_error *err);

/* The bytes token id stands for inside a text (byte-level and byte-fallback decoded, SentencePiece
 * blanks as spaces). Empty for ids beyond the vocabulary. Special tokens give their literal. */
const char *pl_tokenizer_piece(const pl_tokenizer *t, int32_t id, size_t *size);
/* Pieces joined; the decoder's rules for a text's start (prefix space) applied. Fresh memory,
 * NUL-terminated. */
pleach_status pl_tokenizer_decode(const pl_tokenizer *t, const int32_t *ids, size_t n,
                                  bool keep_special, char **text, size_t *size, pleach_error *err);

size_t pl_tokenizer_size(const pl_tokenizer *t);          /* highest id + 1 */
bool pl_tokenizer_is_special(const pl_tokenizer *t, int32_t id);
/* Id of a token by its exact literal (added tokens first), or -1. */
int32_t pl_tokenizer_find(const pl_tokenizer *t, const char *literal);
int32_t pl_tokenizer_bos(const pl_tokenizer *t); /* -1: none */
int32_t pl_tokenizer_eos(const pl_tokenizer *t);
/* The chat template's text, or NULL. */
const char *pl_tokenizer_chat_template(const pl_tokenizer *t);

/* Writes a tokenizer.json and tokenizer_config.json equivalent to this tokenizer (a GGUF source
 * becoming a folder) into dir; reading them back gives the same ids. */
pleach_status pl_tokenizer_write(const pl_tokenizer *t, const char *dir, pleach_error *err);

#endif
