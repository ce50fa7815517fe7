/* SPDX-License-Identifier: Apache-2.0
 *
 * Safetensors: reading one file (checked, mapped) and writing one (streamed, renamed when whole).
 */
#ifndef PL_FORMAT_SAFETENSORS_H
#define PL_FORMAT_SAFETENSORS_H

#include "checkpoint.h"
#include "base/file.h"

typedef struct pl_safetensors pl_safetensors;

pleach_status pl_safetensors_open(const char *path, pl_safetensors **out, pleach_error *err);
/* The same of a file's bytes in memory, borrowed until closing; `name` stands for it in errors. */
pleach_status pl_safetensors_open_memory(const char *name, const void *data, size_t size,
                                         pl_safetensors **out, pleach_error *err);
void pl_safetensors_close(pl_safetensors *s);
size_t pl_safetensors_count(const pl_safetensors *s);
const pl_tensor *pl_safetensors_tensor(const pl_safetensors *s, size_t i);
const pl_tensor *pl_safetensors_find(const pl_safetensors *s, const char *name);
uint64_t pl_safetensors_file_size(const pl_safetensors *s);
/* A string of __metadata__, or NULL. */
const char *pl_safetensors_metadata(const pl_safetensors *s, const char *key);

/* Writing: declare all tensors (name, type, shape), then give the bytes in that order, in any
 * number of pieces. */
typedef struct pl_safetensors_writer pl_safetensors_writer;
pleach_status pl_safetensors_create(const char *path, const pl_tensor *tensors, size_t n,
                                    pl_safetensors_writer **out, pleach_error *err);
/* The same with strings for __metadata__: key, value, key, value, ..., NULL. */
pleach_status pl_safetensors_create_with(const char *path, const pl_tensor *tensors, size_t n,
                                         const char *const *metadata, pl_safetensors_writer **out,
                                         pleach_error *err);
pleach_status pl_safetensors_append(pl_safetensors_writer *w, const void *data, size_t size,
                                    pleach_error *err);
/* Fails if the bytes do not add up. Frees the writer either way. */
pleach_status pl_safetensors_commit(pl_safetensors_writer *w, pleach_error *err);
void pl_safetensors_discard(pl_safetensors_writer *w); /* accepts NULL */

#endif
