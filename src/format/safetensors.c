/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading one safetensors file: 8 bytes of header length, a JSON header, then the tensors' bytes
 * without holes. As strict as the reference implementation: the tensors cover the rest of the file
 * exactly, in any order. Source: the format description of the safetensors project. */
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "json.h"
#include "tensor.h"

#define MAX_HEADER (100u << 20)

struct pl_safetensors {
    char *path;
    pl_map map;               /* owns the bytes unless they are borrowed */
    pl_map file;              /* the bytes */
    json_t *header;           /* owns the names */
    pl_tensor *tensors;       /* in file order */
    const pl_tensor **sorted; /* by name */
    size_t n;
};

static const struct {
    const char *name;
    pl_dtype type;
} types[] = {
    {"F32", PL_F32}, {"F16", PL_F16}, {"BF16", PL_BF16}, {"F64", PL_F64},   {"F8_E4M3", PL_F8_E4M3},
    {"U8", PL_U8},   {"I8", PL_I8},   {"U16", PL_U16},   {"I16", PL_I16},   {"U32", PL_U32},
    {"I32", PL_I32}, {"U64", PL_U64}, {"I64", PL_I64},   {"BOOL", PL_BOOL},
};

/* The header's length, inside the file and within the limit. */
static pleach_status header_size(const char *path, const pl_map *map, uint64_t *size,
                                 pleach_error *err)
{
    PL_FAIL_IF(map->size < 8, err, PLEACH_ERR_FORMAT,
               "%s: %zu bytes, too short for a safetensors file", path, map->size);
    for (int i = 7; i >= 0; i--) *size = *size << 8 | map->data[i];
    PL_FAIL_IF(*size > MAX_HEADER, err, PLEACH_ERR_FORMAT,
               "%s: header length is %llu bytes, expected at most %u", path,
               (unsigned long long)*size, MAX_HEADER);
    PL_FAIL_IF(*size > map->size - 8, err, PLEACH_ERR_FORMAT,
               "%s: header length is %llu bytes, but only %zu bytes follow", path,
               (unsigned long long)*size, map->size - 8);
    PL_FAIL_IF(*size == 0 || map->data[8] != '{', err, PLEACH_ERR_FORMAT,
               "%s: the header does not begin with '{'", path);
    return PLEACH_OK;
}

static pleach_status read_type(pl_json_source at, const json_t *entry, pl_dtype *type,
                               pleach_error *err)
{
    const char *name;
    PL_TRY(pl_json_text(at, entry, "dtype", &name, err));
    for (size_t i = 0; i < PL_COUNT(types); i++)
        if (strcmp(types[i].name, name) == 0) {
            *type = types[i].type;
            return PLEACH_OK;
        }
    return pl_fail(err, PLEACH_ERR_UNSUPPORTED, "%s: %sdtype '%s' is not supported", at.file,
                   at.prefix, name);
}

/* An array of unsigned integers; *n of them, at most `max`. */
static pleach_status read_numbers(pl_json_source at, const json_t *entry, const char *key,
                                  uint64_t *v, size_t max, size_t *n, pleach_error *err)
{
    const json_t *array = json_object_get(entry, key);
    PL_FAIL_IF(!json_is_array(array), err, PLEACH_ERR_FORMAT, "%s: %s%s is %s, expected an array",
               at.file, at.prefix, key, pl_json_kind(array));
    *n = json_array_size(array);
    PL_FAIL_IF(*n > max, err, PLEACH_ERR_FORMAT, "%s: %s%s has %zu entries, expected at most %zu",
               at.file, at.prefix, key, *n, max);
    for (size_t i = 0; i < *n; i++) {
        const json_t *item = json_array_get(array, i);
        PL_FAIL_IF(!json_is_integer(item) || json_integer_value(item) < 0, err, PLEACH_ERR_FORMAT,
                   "%s: %s%s entry %zu is not a whole number of at least 0", at.file, at.prefix,
                   key, i);
        v[i] = (uint64_t)json_integer_value(item);
    }
    return PLEACH_OK;
}

/* One entry of the header. t->data is only an offset's worth into the data, still unchecked for
 * overlaps. */
static pleach_status read_tensor(const pl_safetensors *s, const uint8_t *data, uint64_t data_size,
                                 const char *name, const json_t *entry, pl_tensor *t,
                                 pleach_error *err)
{
    char prefix[200], shape[PL_SHAPE_TEXT];
    pl_json_source at = {s->path, prefix};
    snprintf(prefix, sizeof prefix, "tensor %.180s: ", name);
    PL_FAIL_IF(!json_is_object(entry), err, PLEACH_ERR_FORMAT, "%s: %sfound %s, expected an object",
               s->path, prefix, pl_json_kind(entry));
    *t = (pl_tensor){.name = name};
    PL_TRY(read_type(at, entry, &t->type, err));
    size_t n;
    uint64_t offsets[2];
    PL_TRY(read_numbers(at, entry, "shape", t->shape, PL_MAX_DIMS, &n, err));
    t->n_dims = (uint32_t)n;
    PL_TRY(read_numbers(at, entry, "data_offsets", offsets, 2, &n, err));
    PL_FAIL_IF(n != 2 || offsets[0] > offsets[1], err, PLEACH_ERR_FORMAT,
               "%s: %sdata_offsets are not a range", s->path, prefix);
    PL_FAIL_IF(offsets[1] > data_size, err, PLEACH_ERR_FORMAT,
               "%s: %sdata ends at byte %llu, but the file has %llu bytes of data (truncated?)",
               s->path, prefix, (unsigned long long)offsets[1], (unsigned long long)data_size);
    PL_FAIL_IF(!pl_tensor_size(t), err, PLEACH_ERR_FORMAT, "%s: %sshape %s is too large", s->path,
               prefix, pl_tensor_shape_text(t, shape, sizeof shape));
    PL_FAIL_IF(t->n_bytes != offsets[1] - offsets[0], err, PLEACH_ERR_FORMAT,
               "%s: %s%s of shape %s takes %llu bytes, but data_offsets cover %llu", s->path,
               prefix, pl_dtype_get(t->type)->name, pl_tensor_shape_text(t, shape, sizeof shape),
               (unsigned long long)t->n_bytes, (unsigned long long)(offsets[1] - offsets[0]));
    t->data = data + offsets[0];
    return PLEACH_OK;
}

static int compare_places(const void *a, const void *b)
{
    const pl_tensor *x = a, *y = b;
    const uint8_t *p = x->data, *q = y->data;
    if (p != q) return p < q ? -1 : 1;
    return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes); /* empty ones first */
}

/* The tensors, in order, fill the data without hole or overlap. */
static pleach_status check_places(const pl_safetensors *s, const uint8_t *data, uint64_t data_size,
                                  pleach_error *err)
{
    const uint8_t *end = data;
    for (size_t i = 0; i < s->n; i++) {
        const uint8_t *start = s->tensors[i].data;
        PL_FAIL_IF(start != end, err, PLEACH_ERR_FORMAT, "%s: tensor %s %s", s->path,
                   s->tensors[i].name,
                   start < end ? "overlaps the one before it" : "leaves a hole before it");
        end = start + s->tensors[i].n_bytes;
    }
    PL_FAIL_IF((uint64_t)(end - data) != data_size, err, PLEACH_ERR_FORMAT,
               "%s: tensors end at byte %llu of the data, but %llu bytes follow the header",
               s->path, (unsigned long long)(end - data), (unsigned long long)data_size);
    return PLEACH_OK;
}

static pleach_status check_metadata(const pl_safetensors *s, const json_t *metadata,
                                    pleach_error *err)
{
    PL_FAIL_IF(!json_is_object(metadata), err, PLEACH_ERR_FORMAT,
               "%s: __metadata__ is %s, expected an object", s->path, pl_json_kind(metadata));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value) PL_FAIL_IF(
        !json_is_string(value), err, PLEACH_ERR_FORMAT,
        "%s: __metadata__ entry %s is %s, expected a string", s->path, key, pl_json_kind(value));
    return PLEACH_OK;
}

static pleach_status read_header(pl_safetensors *s, pleach_error *err)
{
    uint64_t size = 0;
    PL_TRY(header_size(s->path, &s->file, &size, err));
    PL_TRY(pl_json_parse(s->path, (const char *)s->file.data + 8, size, &s->header, err));
    const uint8_t *data = s->file.data + 8 + size;
    uint64_t data_size = s->file.size - 8 - size;
    size_t entries = json_object_size(s->header);
    s->tensors = pl_alloc(entries, sizeof *s->tensors);
    if (!s->tensors) return pl_fail_memory(err, s->path, entries * sizeof *s->tensors);
    const char *name;
    json_t *entry;
    json_object_foreach(s->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            PL_TRY(check_metadata(s, entry, err));
            continue;
        }
        PL_TRY(read_tensor(s, data, data_size, name, entry, &s->tensors[s->n], err));
        s->n++;
    }
    qsort(s->tensors, s->n, sizeof *s->tensors, compare_places);
    PL_TRY(check_places(s, data, data_size, err));
    s->sorted = pl_tensor_sort(s->tensors, s->n);
    if (!s->sorted) return pl_fail_memory(err, s->path, s->n * sizeof *s->sorted);
    return PLEACH_OK;
}

static pl_safetensors *create(const char *path, pleach_error *err)
{
    pl_safetensors *s = pl_calloc(1, sizeof *s);
    size_t length = strlen(path) + 1;
    if (!s || !(s->path = pl_alloc(length, 1))) {
        pl_free(s);
        pl_fail_memory(err, path, sizeof *s + length);
        return NULL;
    }
    memcpy(s->path, path, length);
    return s;
}

static pleach_status finish(pl_safetensors *s, pleach_status status, pl_safetensors **out,
                            pleach_error *err)
{
    if (status == PLEACH_OK) status = read_header(s, err);
    if (status == PLEACH_OK)
        *out = s;
    else
        pl_safetensors_close(s);
    return status;
}

pleach_status pl_safetensors_open(const char *path, pl_safetensors **out, pleach_error *err)
{
    *out = NULL;
    pl_safetensors *s = create(path, err);
    if (!s) return PLEACH_ERR_MEMORY;
    pleach_status status = pl_map_open(&s->map, path, err);
    s->file = s->map;
    return finish(s, status, out, err);
}

pleach_status pl_safetensors_open_memory(const char *name, const void *data, size_t size,
                                         pl_safetensors **out, pleach_error *err)
{
    *out = NULL;
    pl_safetensors *s = create(name, err);
    if (!s) return PLEACH_ERR_MEMORY;
    s->file = (pl_map){.data = data, .size = size};
    return finish(s, PLEACH_OK, out, err);
}

void pl_safetensors_close(pl_safetensors *s)
{
    if (!s) return;
    pl_map_close(&s->map);
    json_decref(s->header);
    pl_free(s->tensors);
    pl_free(s->sorted);
    pl_free(s->path);
    pl_free(s);
}

size_t pl_safetensors_count(const pl_safetensors *s)
{
    return s->n;
}

const pl_tensor *pl_safetensors_tensor(const pl_safetensors *s, size_t i)
{
    return &s->tensors[i];
}

const pl_tensor *pl_safetensors_find(const pl_safetensors *s, const char *name)
{
    return pl_tensor_search(s->sorted, s->n, name);
}

uint64_t pl_safetensors_file_size(const pl_safetensors *s)
{
    return s->file.size;
}

const char *pl_safetensors_metadata(const pl_safetensors *s, const char *key)
{
    return json_string_value(json_object_get(json_object_get(s->header, "__metadata__"), key));
}
