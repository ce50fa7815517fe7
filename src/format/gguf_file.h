/* SPDX-License-Identifier: Apache-2.0
 *
 * What is inside a pl_gguf: shared by the parser (gguf.c) and the look-ups (gguf_metadata.c). */
#ifndef PL_FORMAT_GGUF_FILE_H
#define PL_FORMAT_GGUF_FILE_H

#include "gguf.h"
#include "base/file.h"

/* One metadata value. `data` points into the file, at the value itself; of an array at its first
 * element, of a string at its first byte. */
typedef struct pl_gguf_value {
    pl_text key;
    pl_gguf_type type;
    pl_gguf_type item; /* of an array */
    uint64_t count;    /* items of an array, bytes of a string */
    const uint8_t *data;
    const uint8_t **strings; /* array of strings: where each begins (its length field); owned */
} pl_gguf_value;

struct pl_gguf {
    char *path;
    pl_map map;            /* owns the bytes unless they are borrowed */
    pl_map file;           /* the bytes */
    pl_gguf_value *values; /* in order of their keys */
    size_t n_values;
    pl_tensor *tensors;
    size_t n_tensors;
    char *names; /* of the tensors */
};

/* Bytes of a number of this type; 0 for strings and arrays. */
uint32_t pl_gguf_type_size(pl_gguf_type type);
uint64_t pl_gguf_read_u64(const uint8_t *p);
/* Order of keys, by bytes. */
int pl_text_compare(pl_text a, pl_text b);

#endif
