/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece's precompiled character map: a double-array trie from character sequences to
 * replacements. Format: a little-endian u32 byte count, that many bytes of trie units, then
 * NUL-terminated replacements (sentencepiece, src/normalizer.cc; units as in darts-clone). */
#ifndef PL_TEXT_CHARSMAP_H
#define PL_TEXT_CHARSMAP_H

#include <stdint.h>

#include "buffer.h"

typedef struct pl_charsmap {
    uint32_t *units; /* [n_units] */
    size_t n_units;
    char *replacements; /* [n_replacements], well-formed, ends with a NUL */
    size_t n_replacements;
} pl_charsmap;

/* base64[0..size) as tokenizer.json has it. */
pleach_status pl_charsmap_init(pl_charsmap *m, const char *name, const char *base64, size_t size,
                               pleach_error *err);
void pl_charsmap_free(pl_charsmap *m);

/* Appends the mapped text. As the reference does, a whole grapheme of up to 5 bytes is looked up
 * first, then its single characters. */
pleach_status pl_charsmap_apply(const pl_charsmap *m, const char *text, size_t size, pl_buffer *out,
                                pleach_error *err);

#endif
