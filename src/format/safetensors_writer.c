/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing one safetensors file: the header first, from the declared tensors, then their bytes as
 * they come. The file has its name only once it is whole. */
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "json.h"
#include "tensor.h"

#define DATA_ALIGNMENT 64 /* of the first tensor in the file; the header is padded with blanks */

struct pl_safetensors_writer {
    pl_output out;
    uint64_t expected; /* bytes of the whole file */
};

/* Adds {"dtype", "shape", "data_offsets"} of one tensor whose data begins at *offset. */
static pleach_status add_entry(json_t *header, const char *path, const pl_tensor *declared,
                               uint64_t *offset, pleach_error *err)
{
    pl_tensor t = *declared;
    uint64_t end;
    PL_FAIL_IF(pl_dtype_get(t.type)->block_elements != 1 || t.n_dims > PL_MAX_DIMS, err,
               PLEACH_ERR_UNSUPPORTED, "%s: tensor %s of type %s cannot be written", path, t.name,
               pl_dtype_get(t.type)->name);
    PL_FAIL_IF(!pl_tensor_size(&t) || __builtin_add_overflow(*offset, t.n_bytes, &end) ||
                   end > INT64_MAX,
               err, PLEACH_ERR_SHAPE, "%s: tensor %s is too large", path, t.name);
    PL_FAIL_IF(json_object_get(header, t.name), err, PLEACH_ERR_ARGUMENT,
               "%s: tensor %s is declared twice", path, t.name);
    json_t *shape = json_array();
    for (uint32_t i = 0; i < t.n_dims; i++)
        json_array_append_new(shape, json_integer((json_int_t)t.shape[i]));
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", pl_dtype_get(t.type)->name, "shape",
                              shape, "data_offsets", (json_int_t)*offset, (json_int_t)end);
    if (json_object_set_new(header, t.name, entry) != 0) return pl_fail_memory(err, path, sizeof t);
    *offset = end;
    return PLEACH_OK;
}

/* The header as it stands in the file: length, JSON, blanks up to the alignment. */
static pleach_status write_header(pl_output *out, const json_t *header, pleach_error *err)
{
    char *text = json_dumps(header, JSON_COMPACT);
    if (!text) return pl_fail_memory(err, out->path, 0);
    uint64_t length = strlen(text);
    uint64_t padded = (8 + length + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT - 8;
    uint8_t prefix[8];
    char blanks[DATA_ALIGNMENT];
    for (int i = 0; i < 8; i++) prefix[i] = (uint8_t)(padded >> 8 * i);
    memset(blanks, ' ', sizeof blanks);
    pleach_status status = pl_output_write(out, prefix, 8, err);
    if (status == PLEACH_OK) status = pl_output_write(out, text, length, err);
    if (status == PLEACH_OK) status = pl_output_write(out, blanks, padded - length, err);
    free(text);
    return status;
}

static json_t *make_header(const char *const *metadata)
{
    json_t *strings = json_object();
    for (; *metadata; metadata += 2)
        if (json_object_set_new(strings, metadata[0], json_string(metadata[1])) != 0) {
            json_decref(strings);
            return NULL;
        }
    return json_pack("{s:o}", "__metadata__", strings);
}

pleach_status pl_safetensors_create(const char *path, const pl_tensor *tensors, size_t n,
                                    pl_safetensors_writer **out, pleach_error *err)
{
    /* Loaders built on PyTorch ask for this line before they read the file. */
    static const char *const metadata[] = {"format", "pt", NULL};
    return pl_safetensors_create_with(path, tensors, n, metadata, out, err);
}

pleach_status pl_safetensors_create_with(const char *path, const pl_tensor *tensors, size_t n,
                                         const char *const *metadata, pl_safetensors_writer **out,
                                         pleach_error *err)
{
    *out = NULL;
    pl_safetensors_writer *w = pl_calloc(1, sizeof *w);
    json_t *header = make_header(metadata);
    pleach_status status = w && header ? PLEACH_OK : pl_fail_memory(err, path, sizeof *w);
    if (w) w->out.fd = -1;
    uint64_t size = 0;
    for (size_t i = 0; status == PLEACH_OK && i < n; i++)
        status = add_entry(header, path, &tensors[i], &size, err);
    if (status == PLEACH_OK) status = pl_output_open(&w->out, path, err);
    if (status == PLEACH_OK) status = write_header(&w->out, header, err);
    json_decref(header);
    if (status != PLEACH_OK) {
        pl_safetensors_discard(w);
        return status;
    }
    w->expected = w->out.written + size;
    *out = w;
    return PLEACH_OK;
}

pleach_status pl_safetensors_append(pl_safetensors_writer *w, const void *data, size_t size,
                                    pleach_error *err)
{
    PL_FAIL_IF(size > w->expected - w->out.written, err, PLEACH_ERR_ARGUMENT,
               "%s: more bytes given than the tensors declare", w->out.path);
    return pl_output_write(&w->out, data, size, err);
}

pleach_status pl_safetensors_commit(pl_safetensors_writer *w, pleach_error *err)
{
    pleach_status status = PLEACH_OK;
    if (w->out.written != w->expected)
        status =
            pl_fail(err, PLEACH_ERR_ARGUMENT, "%s: %llu bytes written, %llu declared", w->out.path,
                    (unsigned long long)w->out.written, (unsigned long long)w->expected);
    else
        status = pl_output_commit(&w->out, err);
    pl_safetensors_discard(w);
    return status;
}

void pl_safetensors_discard(pl_safetensors_writer *w)
{
    if (!w) return;
    pl_output_discard(&w->out);
    pl_free(w);
}
