/* SPDX-License-Identifier: Apache-2.0
 *
 * Parsing a GGUF file: header, metadata, tensor table. Every count is compared with the bytes that
 * are left before anything is allocated for it: n things of at least s bytes cannot be there when
 * fewer than n*s bytes follow. Source: the GGUF specification in ggml's docs. */
#include "gguf_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tensor.h"

enum {
    MIN_VALUE_BYTES = 8 + 4 + 1,              /* an empty key, a type, the shortest value */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* a name of one byte, one dimension */
    MAX_VALUES = 1 << 16,                     /* metadata entries; real files have some dozens */
    MAX_KEY_BYTES = 65535,
    MAX_NAME_BYTES = 200, /* the specification has 64 */
    MAX_NESTING = 4,      /* of arrays in arrays, which no known key has */
    DEFAULT_ALIGNMENT = 32
};

/* The part of the file that is not parsed yet. */
typedef struct cursor {
    const char *path;
    const uint8_t *p;
    uint64_t left;
    pleach_error *err;
} cursor;

static pleach_status take(cursor *c, uint64_t size, const uint8_t **p, const char *what)
{
    PL_FAIL_IF(size > c->left, c->err, PLEACH_ERR_FORMAT,
               "%s: %s needs %llu bytes, but only %llu are left in the file", c->path, what,
               (unsigned long long)size, (unsigned long long)c->left);
    *p = c->p;
    c->p += size;
    c->left -= size;
    return PLEACH_OK;
}

static pleach_status take_u32(cursor *c, uint32_t *v, const char *what)
{
    const uint8_t *p = c->p;
    PL_TRY(take(c, 4, &p, what));
    memcpy(v, p, 4);
    return PLEACH_OK;
}

static pleach_status take_u64(cursor *c, uint64_t *v, const char *what)
{
    const uint8_t *p = c->p;
    PL_TRY(take(c, 8, &p, what));
    *v = pl_gguf_read_u64(p);
    return PLEACH_OK;
}

static pleach_status take_text(cursor *c, pl_text *text, const char *what)
{
    uint64_t size;
    const uint8_t *p = c->p;
    PL_TRY(take_u64(c, &size, what));
    PL_TRY(take(c, size, &p, what));
    *text = (pl_text){(const char *)p, size};
    return PLEACH_OK;
}

/* A count of things of at least `size` bytes each, all still to come. */
static pleach_status take_count(cursor *c, uint64_t size, uint64_t *n, const char *what)
{
    PL_TRY(take_u64(c, n, what));
    PL_FAIL_IF(*n > c->left / size, c->err, PLEACH_ERR_FORMAT,
               "%s: %llu %s cannot be in the %llu bytes that are left", c->path,
               (unsigned long long)*n, what, (unsigned long long)c->left);
    return PLEACH_OK;
}

/* ---- metadata ------------------------------------------------------------------------------ */

static pleach_status take_type(cursor *c, pl_gguf_type *type, const char *what)
{
    uint32_t number;
    PL_TRY(take_u32(c, &number, what));
    PL_FAIL_IF(number > PL_GGUF_F64, c->err, PLEACH_ERR_FORMAT, "%s: %s has unknown type %u",
               c->path, what, number);
    *type = (pl_gguf_type)number;
    return PLEACH_OK;
}

static pleach_status take_strings(cursor *c, pl_gguf_value *v, const char *what)
{
    v->strings = pl_alloc(v->count, sizeof *v->strings);
    if (!v->strings) return pl_fail_memory(c->err, what, v->count * sizeof *v->strings);
    for (uint64_t i = 0; i < v->count; i++) {
        pl_text text;
        v->strings[i] = c->p;
        PL_TRY(take_text(c, &text, what));
    }
    return PLEACH_OK;
}

/* Passes over an array whose items are arrays. */
static pleach_status skip_arrays(cursor *c, uint64_t n, int depth, const char *what)
{
    PL_FAIL_IF(depth > MAX_NESTING, c->err, PLEACH_ERR_FORMAT, "%s: %s nests arrays too deeply",
               c->path, what);
    for (uint64_t i = 0; i < n; i++) {
        pl_gguf_type item;
        uint64_t count;
        const uint8_t *p = c->p;
        PL_TRY(take_type(c, &item, what));
        uint32_t size = pl_gguf_type_size(item);
        PL_TRY(take_count(c, size ? size : item == PL_GGUF_STRING ? 8 : 12, &count, what));
        if (item == PL_GGUF_ARRAY)
            PL_TRY(skip_arrays(c, count, depth + 1, what));
        else if (size)
            PL_TRY(take(c, count * size, &p, what));
        for (uint64_t j = 0; item == PL_GGUF_STRING && j < count; j++) {
            pl_text text;
            PL_TRY(take_text(c, &text, what));
        }
    }
    return PLEACH_OK;
}

static pleach_status take_array(cursor *c, pl_gguf_value *v, const char *what)
{
    PL_TRY(take_type(c, &v->item, what));
    uint32_t size = pl_gguf_type_size(v->item);
    /* A string is at least its length field, an array its item type and count. */
    PL_TRY(take_count(c, size ? size : v->item == PL_GGUF_STRING ? 8 : 12, &v->count, what));
    v->data = c->p;
    if (v->item == PL_GGUF_STRING) return take_strings(c, v, what);
    if (v->item == PL_GGUF_ARRAY) return skip_arrays(c, v->count, 1, what);
    return take(c, v->count * size, &v->data, what);
}

static pleach_status take_value(cursor *c, pl_gguf_value *v)
{
    char what[120];
    PL_TRY(take_text(c, &v->key, "a metadata key"));
    PL_FAIL_IF(v->key.size > MAX_KEY_BYTES, c->err, PLEACH_ERR_FORMAT,
               "%s: a metadata key is %zu bytes long, expected at most %d", c->path, v->key.size,
               MAX_KEY_BYTES);
    snprintf(what, sizeof what, "metadata %.*s", (int)PL_MIN(v->key.size, 100), v->key.data);
    PL_TRY(take_type(c, &v->type, what));
    if (v->type == PL_GGUF_ARRAY) return take_array(c, v, what);
    if (v->type != PL_GGUF_STRING) return take(c, pl_gguf_type_size(v->type), &v->data, what);
    pl_text text;
    PL_TRY(take_text(c, &text, what));
    v->data = (const uint8_t *)text.data;
    v->count = text.size;
    return PLEACH_OK;
}

static int compare_values(const void *a, const void *b)
{
    return pl_text_compare(((const pl_gguf_value *)a)->key, ((const pl_gguf_value *)b)->key);
}

static pleach_status take_metadata(pl_gguf *g, cursor *c, uint64_t n)
{
    g->values = pl_calloc(n, sizeof *g->values);
    if (!g->values) return pl_fail_memory(c->err, c->path, n * sizeof *g->values);
    for (uint64_t i = 0; i < n; i++) {
        g->n_values = i + 1; /* closing frees what the last one holds, also on failure */
        PL_TRY(take_value(c, &g->values[i]));
    }
    qsort(g->values, n, sizeof *g->values, compare_values);
    for (uint64_t i = 1; i < n; i++)
        PL_FAIL_IF(compare_values(&g->values[i - 1], &g->values[i]) == 0, c->err, PLEACH_ERR_FORMAT,
                   "%s: metadata %.*s occurs twice", c->path, (int)g->values[i].key.size,
                   g->values[i].key.data);
    return PLEACH_OK;
}

/* ---- tensors ------------------------------------------------------------------------------- */

/* ggml's type numbers. What has a name but no entry in the second column is refused by name. */
static const struct {
    const char *name;
    int type; /* pl_dtype, or -1 */
} types[] = {
    [0] = {"F32", PL_F32},    [1] = {"F16", PL_F16},    [2] = {"Q4_0", PL_Q4_0},
    [3] = {"Q4_1", PL_Q4_1},  [6] = {"Q5_0", PL_Q5_0},  [7] = {"Q5_1", PL_Q5_1},
    [8] = {"Q8_0", PL_Q8_0},  [9] = {"Q8_1", -1},       [10] = {"Q2_K", PL_Q2_K},
    [11] = {"Q3_K", PL_Q3_K}, [12] = {"Q4_K", PL_Q4_K}, [13] = {"Q5_K", PL_Q5_K},
    [14] = {"Q6_K", PL_Q6_K}, [15] = {"Q8_K", -1},      [16] = {"IQ2_XXS", -1},
    [17] = {"IQ2_XS", -1},    [18] = {"IQ3_XXS", -1},   [19] = {"IQ1_S", -1},
    [20] = {"IQ4_NL", -1},    [21] = {"IQ3_S", -1},     [22] = {"IQ2_S", -1},
    [23] = {"IQ4_XS", -1},    [24] = {"I8", PL_I8},     [25] = {"I16", PL_I16},
    [26] = {"I32", PL_I32},   [27] = {"I64", PL_I64},   [28] = {"F64", PL_F64},
    [29] = {"IQ1_M", -1},     [30] = {"BF16", PL_BF16}, [34] = {"TQ1_0", -1},
    [35] = {"TQ2_0", -1},     [39] = {"MXFP4", -1},
};

static pleach_status take_tensor_type(cursor *c, pl_tensor *t)
{
    uint32_t number;
    PL_TRY(take_u32(c, &number, t->name));
    bool named = number < PL_COUNT(types) && types[number].name;
    PL_FAIL_IF(!named || types[number].type < 0, c->err, PLEACH_ERR_UNSUPPORTED,
               "%s: tensor %s has type %s (%u), which is not supported", c->path, t->name,
               named ? types[number].name : "unknown", number);
    t->type = (pl_dtype)types[number].type;
    return PLEACH_OK;
}

static pleach_status take_name(cursor *c, char **names, pl_tensor *t)
{
    pl_text text;
    PL_TRY(take_text(c, &text, "a tensor name"));
    PL_FAIL_IF(text.size == 0 || text.size > MAX_NAME_BYTES || memchr(text.data, 0, text.size),
               c->err, PLEACH_ERR_FORMAT,
               "%s: a tensor name is empty, longer than %d bytes or holds a zero byte", c->path,
               MAX_NAME_BYTES);
    memcpy(*names, text.data, text.size);
    (*names)[text.size] = 0;
    t->name = *names;
    *names += text.size + 1;
    return PLEACH_OK;
}

/* One row of the table; *offset is into the data section. */
static pleach_status take_tensor(cursor *c, char **names, pl_tensor *t, uint64_t *offset)
{
    char shape[PL_SHAPE_TEXT];
    PL_TRY(take_name(c, names, t));
    PL_TRY(take_u32(c, &t->n_dims, t->name));
    PL_FAIL_IF(t->n_dims < 1 || t->n_dims > PL_MAX_DIMS, c->err, PLEACH_ERR_FORMAT,
               "%s: tensor %s has %u dimensions, expected 1 to %d", c->path, t->name, t->n_dims,
               PL_MAX_DIMS);
    for (uint32_t i = t->n_dims; i-- > 0;) { /* the file has the innermost first */
        PL_TRY(take_u64(c, &t->shape[i], t->name));
        PL_FAIL_IF(t->shape[i] == 0, c->err, PLEACH_ERR_FORMAT,
                   "%s: tensor %s has a dimension of 0", c->path, t->name);
    }
    PL_TRY(take_tensor_type(c, t));
    PL_TRY(take_u64(c, offset, t->name));
    PL_FAIL_IF(!pl_tensor_size(t), c->err, PLEACH_ERR_FORMAT,
               "%s: tensor %s: shape %s is too large, or its rows are no whole blocks of %s",
               c->path, t->name, pl_tensor_shape_text(t, shape, sizeof shape),
               pl_dtype_get(t->type)->name);
    return PLEACH_OK;
}

/* Bytes that the names of n tensors take with their terminators: a walk ahead of the real one. */
static pleach_status measure_names(cursor c, uint64_t n, uint64_t *bytes)
{
    *bytes = 0;
    for (uint64_t i = 0; i < n; i++) {
        pl_text text;
        uint32_t n_dims;
        const uint8_t *p = c.p;
        PL_TRY(take_text(&c, &text, "a tensor name"));
        PL_TRY(take_u32(&c, &n_dims, "a tensor"));
        PL_TRY(take(&c, 8 * (uint64_t)n_dims + 4 + 8, &p, "a tensor"));
        *bytes += text.size + 1;
    }
    return PLEACH_OK;
}

static int compare_places(const void *a, const void *b)
{
    const uint8_t *p = (*(const pl_tensor *const *)a)->data,
                  *q = (*(const pl_tensor *const *)b)->data;
    return (p > q) - (p < q);
}

static pleach_status check_overlaps(const pl_gguf *g, pleach_error *err)
{
    const pl_tensor **placed = pl_alloc(g->n_tensors, sizeof *placed);
    if (!placed) return pl_fail_memory(err, g->path, g->n_tensors * sizeof *placed);
    for (size_t i = 0; i < g->n_tensors; i++) placed[i] = &g->tensors[i];
    qsort(placed, g->n_tensors, sizeof *placed, compare_places);
    pleach_status status = PLEACH_OK;
    for (size_t i = 1; i < g->n_tensors && status == PLEACH_OK; i++) {
        const pl_tensor *a = placed[i - 1], *b = placed[i];
        if ((const uint8_t *)b->data - (const uint8_t *)a->data < (ptrdiff_t)a->n_bytes)
            status = pl_fail(err, PLEACH_ERR_FORMAT, "%s: tensors %s and %s overlap", g->path,
                             a->name, b->name);
    }
    pl_free(placed);
    return status;
}

static pleach_status read_alignment(const pl_gguf *g, uint64_t *alignment, pleach_error *err)
{
    static const char key[] = "general.alignment";
    *alignment = DEFAULT_ALIGNMENT;
    if (!pl_gguf_has(g, key)) return PLEACH_OK;
    bool number = pl_gguf_u64(g, key, alignment);
    PL_FAIL_IF(!number || *alignment < 8 || *alignment > 1u << 20 ||
                   (*alignment & (*alignment - 1)) != 0,
               err, PLEACH_ERR_FORMAT, "%s: %s is not a power of two from 8 to 2^20", g->path, key);
    return PLEACH_OK;
}

/* Turns offsets into pointers, each inside the data section. */
static pleach_status place_tensors(pl_gguf *g, const cursor *c, const uint64_t *offsets)
{
    uint64_t alignment;
    PL_TRY(read_alignment(g, &alignment, c->err));
    uint64_t at = (uint64_t)(c->p - g->file.data),
             padding = (alignment - at % alignment) % alignment;
    const uint8_t *data = padding <= c->left ? c->p + padding : c->p + c->left;
    uint64_t size = padding <= c->left ? c->left - padding : 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        pl_tensor *t = &g->tensors[i];
        PL_FAIL_IF(offsets[i] % alignment != 0, c->err, PLEACH_ERR_FORMAT,
                   "%s: tensor %s begins at byte %llu of the data, no multiple of %llu", c->path,
                   t->name, (unsigned long long)offsets[i], (unsigned long long)alignment);
        PL_FAIL_IF(offsets[i] > size || t->n_bytes > size - offsets[i], c->err, PLEACH_ERR_FORMAT,
                   "%s: tensor %s needs %llu bytes at byte %llu of the data, which has %llu "
                   "(truncated?)",
                   c->path, t->name, (unsigned long long)t->n_bytes, (unsigned long long)offsets[i],
                   (unsigned long long)size);
        t->data = data + offsets[i];
    }
    return check_overlaps(g, c->err);
}

static pleach_status take_tensors(pl_gguf *g, cursor *c, uint64_t n)
{
    uint64_t bytes;
    PL_TRY(measure_names(*c, n, &bytes));
    uint64_t *offsets = pl_alloc(n, sizeof *offsets);
    g->tensors = pl_calloc(n, sizeof *g->tensors);
    g->names = pl_alloc(bytes, 1);
    char *names = g->names;
    pleach_status status = PLEACH_OK;
    if (!offsets || !g->tensors || !g->names)
        status = pl_fail_memory(c->err, c->path, n * sizeof *g->tensors + bytes);
    for (uint64_t i = 0; i < n && status == PLEACH_OK; i++)
        status = take_tensor(c, &names, &g->tensors[i], &offsets[i]);
    g->n_tensors = n;
    if (status == PLEACH_OK) status = place_tensors(g, c, offsets);
    pl_free(offsets);
    return status;
}

/* ---- the file ------------------------------------------------------------------------------ */

static pleach_status check_version(cursor *c)
{
    const uint8_t *magic;
    uint32_t version;
    PL_FAIL_IF(c->left < 4 || memcmp(c->p, "GGUF", 4) != 0, c->err, PLEACH_ERR_FORMAT,
               "%s: expected a folder or a GGUF file", c->path);
    PL_TRY(take(c, 4, &magic, "the header"));
    PL_TRY(take_u32(c, &version, "the header"));
    PL_FAIL_IF(version != 2 && version != 3, c->err, PLEACH_ERR_UNSUPPORTED,
               "%s: GGUF version %u is not supported, 2 and 3 are%s", c->path, version,
               version >> 16 ? " (a big-endian file?)" : "");
    return PLEACH_OK;
}

static pleach_status check_split(const pl_gguf *g, pleach_error *err)
{
    uint64_t n;
    PL_FAIL_IF(pl_gguf_u64(g, "split.count", &n) && n > 1, err, PLEACH_ERR_UNSUPPORTED,
               "%s: one of %llu split GGUF files; split files are not supported, merge them first",
               g->path, (unsigned long long)n);
    return PLEACH_OK;
}

static pleach_status parse(pl_gguf *g, pleach_error *err)
{
    cursor c = {g->path, g->file.data, g->file.size, err};
    uint64_t n_tensors, n_values;
    PL_TRY(check_version(&c));
    PL_TRY(take_count(&c, MIN_TENSOR_BYTES, &n_tensors, "tensors"));
    PL_TRY(take_count(&c, MIN_VALUE_BYTES, &n_values, "metadata entries"));
    PL_FAIL_IF(n_values > MAX_VALUES, err, PLEACH_ERR_FORMAT,
               "%s: %llu metadata entries, expected at most %d", g->path,
               (unsigned long long)n_values, MAX_VALUES);
    PL_TRY(take_metadata(g, &c, n_values));
    PL_TRY(check_split(g, err));
    PL_FAIL_IF(n_tensors > c.left / MIN_TENSOR_BYTES, err, PLEACH_ERR_FORMAT,
               "%s: %llu tensors cannot be in the %llu bytes that are left", g->path,
               (unsigned long long)n_tensors, (unsigned long long)c.left);
    return take_tensors(g, &c, n_tensors);
}

static pl_gguf *create(const char *path, pleach_error *err)
{
    pl_gguf *g = pl_calloc(1, sizeof *g);
    size_t length = strlen(path) + 1;
    if (!g || !(g->path = pl_alloc(length, 1))) {
        pl_free(g);
        pl_fail_memory(err, path, sizeof *g + length);
        return NULL;
    }
    memcpy(g->path, path, length);
    return g;
}

static pleach_status finish(pl_gguf *g, pleach_status status, pl_gguf **out, pleach_error *err)
{
    if (status == PLEACH_OK) status = parse(g, err);
    if (status == PLEACH_OK)
        *out = g;
    else
        pl_gguf_close(g);
    return status;
}

pleach_status pl_gguf_open(const char *path, pl_gguf **out, pleach_error *err)
{
    *out = NULL;
    pl_gguf *g = create(path, err);
    if (!g) return PLEACH_ERR_MEMORY;
    pleach_status status = pl_map_open(&g->map, path, err);
    g->file = g->map;
    return finish(g, status, out, err);
}

pleach_status pl_gguf_open_memory(const char *name, const void *data, size_t size, pl_gguf **out,
                                  pleach_error *err)
{
    *out = NULL;
    pl_gguf *g = create(name, err);
    if (!g) return PLEACH_ERR_MEMORY;
    g->file = (pl_map){.data = data, .size = size};
    return finish(g, PLEACH_OK, out, err);
}

void pl_gguf_close(pl_gguf *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->n_values; i++) pl_free(g->values[i].strings);
    pl_free(g->values);
    pl_free(g->tensors);
    pl_free(g->names);
    pl_map_close(&g->map);
    pl_free(g->path);
    pl_free(g);
}

uint64_t pl_gguf_file_size(const pl_gguf *g)
{
    return g->file.size;
}

size_t pl_gguf_tensor_count(const pl_gguf *g)
{
    return g->n_tensors;
}

const pl_tensor *pl_gguf_tensor(const pl_gguf *g, size_t i)
{
    return &g->tensors[i];
}
