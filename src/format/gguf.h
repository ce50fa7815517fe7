/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF v2 and v3 files: checked metadata and tensor table over a mapped file.
 * Source: the GGUF specification in ggml's docs. */
#ifndef PL_FORMAT_GGUF_H
#define PL_FORMAT_GGUF_H

#include "checkpoint.h"

typedef enum pl_gguf_type {
    PL_GGUF_U8,
    PL_GGUF_I8,
    PL_GGUF_U16,
    PL_GGUF_I16,
    PL_GGUF_U32,
    PL_GGUF_I32,
    PL_GGUF_F32,
    PL_GGUF_BOOL,
    PL_GGUF_STRING,
    PL_GGUF_ARRAY,
    PL_GGUF_U64,
    PL_GGUF_I64,
    PL_GGUF_F64
} pl_gguf_type;

/* A string inside the mapped file: not NUL-terminated. */
typedef struct pl_text {
    const char *data;
    size_t size;
} pl_text;

pleach_status pl_gguf_open(const char *path, pl_gguf **out, pleach_error *err);
/* The same of a file's bytes in memory, borrowed until closing; `name` stands for it in errors. */
pleach_status pl_gguf_open_memory(const char *name, const void *data, size_t size, pl_gguf **out,
                                  pleach_error *err);
void pl_gguf_close(pl_gguf *g); /* accepts NULL */
uint64_t pl_gguf_file_size(const pl_gguf *g);

/* Metadata. Each returns false when the key is absent or has another type (integers of any width
 * and sign convert when the value fits). */
bool pl_gguf_has(const pl_gguf *g, const char *key);
bool pl_gguf_u64(const pl_gguf *g, const char *key, uint64_t *v);
bool pl_gguf_f64(const pl_gguf *g, const char *key, double *v);
bool pl_gguf_bool(const pl_gguf *g, const char *key, bool *v);
bool pl_gguf_text(const pl_gguf *g, const char *key, pl_text *v);
/* Arrays: element type and length; then elements, where truth is 1. Strings of an array are indexed in O(1). */
bool pl_gguf_array(const pl_gguf *g, const char *key, pl_gguf_type *type, uint64_t *n);
bool pl_gguf_array_text(const pl_gguf *g, const char *key, uint64_t i, pl_text *v);
bool pl_gguf_array_f64(const pl_gguf *g, const char *key, uint64_t i, double *v);
bool pl_gguf_array_i64(const pl_gguf *g, const char *key, uint64_t i, int64_t *v);

size_t pl_gguf_tensor_count(const pl_gguf *g);
const pl_tensor *pl_gguf_tensor(const pl_gguf *g, size_t i); /* GGUF names */

#endif
