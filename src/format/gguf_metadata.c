/* SPDX-License-Identifier: Apache-2.0
 *
 * Look-ups in a GGUF file's metadata. All places in the file were checked when it was opened; the
 * types are checked here, against what the caller asks for. */
#include "gguf_file.h"

#include <math.h>
#include <string.h>

uint32_t pl_gguf_type_size(pl_gguf_type type)
{
    static const uint8_t sizes[] = {
        [PL_GGUF_U8] = 1,  [PL_GGUF_I8] = 1,  [PL_GGUF_BOOL] = 1, [PL_GGUF_U16] = 2,
        [PL_GGUF_I16] = 2, [PL_GGUF_U32] = 4, [PL_GGUF_I32] = 4,  [PL_GGUF_F32] = 4,
        [PL_GGUF_U64] = 8, [PL_GGUF_I64] = 8, [PL_GGUF_F64] = 8,
    };
    return (unsigned)type < PL_COUNT(sizes) ? sizes[type] : 0;
}

uint64_t pl_gguf_read_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

int pl_text_compare(pl_text a, pl_text b)
{
    int order = memcmp(a.data, b.data, PL_MIN(a.size, b.size));
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

static const pl_gguf_value *find(const pl_gguf *g, const char *key)
{
    pl_text wanted = {key, strlen(key)};
    size_t low = 0, high = g->n_values;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = pl_text_compare(wanted, g->values[middle].key);
        if (order == 0) return &g->values[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* ---- numbers ------------------------------------------------------------------------------- */

static float read_f32(const uint8_t *p)
{
    float v;
    memcpy(&v, p, 4);
    return v;
}

static double read_f64(const uint8_t *p)
{
    double v;
    memcpy(&v, p, 8);
    return v;
}

/* An integer of any width: its magnitude, and whether it is negative. */
static bool read_integer(pl_gguf_type type, const uint8_t *p, uint64_t *magnitude, bool *negative)
{
    bool is_signed =
        type == PL_GGUF_I8 || type == PL_GGUF_I16 || type == PL_GGUF_I32 || type == PL_GGUF_I64;
    bool is_unsigned =
        type == PL_GGUF_U8 || type == PL_GGUF_U16 || type == PL_GGUF_U32 || type == PL_GGUF_U64;
    if (!is_signed && !is_unsigned) return false;
    uint32_t bits = 8 * pl_gguf_type_size(type);
    uint64_t v = 0;
    memcpy(&v, p, bits / 8);
    *negative = is_signed && v >> (bits - 1) & 1;
    if (*negative) v = (bits == 64 ? 0 : (uint64_t)1 << bits) - v;
    *magnitude = v;
    return true;
}

static bool read_signed(pl_gguf_type type, const uint8_t *p, int64_t *v)
{
    uint64_t magnitude;
    bool negative;
    if (!read_integer(type, p, &magnitude, &negative)) return false;
    if (magnitude > (uint64_t)INT64_MAX + negative) return false;
    *v = negative ? -(int64_t)(magnitude - 1) - 1 : (int64_t)magnitude;
    return true;
}

static bool read_real(pl_gguf_type type, const uint8_t *p, double *v)
{
    uint64_t magnitude;
    bool negative;
    if (type == PL_GGUF_F32)
        *v = read_f32(p);
    else if (type == PL_GGUF_F64)
        *v = read_f64(p);
    else if (read_integer(type, p, &magnitude, &negative))
        *v = negative ? -(double)magnitude : (double)magnitude;
    else
        return false;
    return true;
}

/* ---- values -------------------------------------------------------------------------------- */

bool pl_gguf_has(const pl_gguf *g, const char *key)
{
    return find(g, key) != NULL;
}

bool pl_gguf_u64(const pl_gguf *g, const char *key, uint64_t *v)
{
    const pl_gguf_value *value = find(g, key);
    uint64_t magnitude;
    bool negative;
    if (!value || !read_integer(value->type, value->data, &magnitude, &negative) || negative)
        return false;
    *v = magnitude;
    return true;
}

bool pl_gguf_f64(const pl_gguf *g, const char *key, double *v)
{
    const pl_gguf_value *value = find(g, key);
    return value && read_real(value->type, value->data, v);
}

bool pl_gguf_bool(const pl_gguf *g, const char *key, bool *v)
{
    const pl_gguf_value *value = find(g, key);
    if (!value || value->type != PL_GGUF_BOOL) return false;
    *v = *value->data != 0;
    return true;
}

bool pl_gguf_text(const pl_gguf *g, const char *key, pl_text *v)
{
    const pl_gguf_value *value = find(g, key);
    if (!value || value->type != PL_GGUF_STRING) return false;
    *v = (pl_text){(const char *)value->data, value->count};
    return true;
}

/* ---- arrays -------------------------------------------------------------------------------- */

bool pl_gguf_array(const pl_gguf *g, const char *key, pl_gguf_type *type, uint64_t *n)
{
    const pl_gguf_value *value = find(g, key);
    if (!value || value->type != PL_GGUF_ARRAY) return false;
    *type = value->item;
    *n = value->count;
    return true;
}

/* Place of item i of an array of numbers, or NULL. */
static const uint8_t *item_at(const pl_gguf *g, const char *key, uint64_t i, pl_gguf_type *type)
{
    const pl_gguf_value *value = find(g, key);
    if (!value || value->type != PL_GGUF_ARRAY || i >= value->count) return NULL;
    *type = value->item;
    return value->data + i * pl_gguf_type_size(value->item);
}

bool pl_gguf_array_text(const pl_gguf *g, const char *key, uint64_t i, pl_text *v)
{
    const pl_gguf_value *value = find(g, key);
    if (!value || !value->strings || i >= value->count) return false;
    const uint8_t *p = value->strings[i];
    *v = (pl_text){(const char *)p + 8, pl_gguf_read_u64(p)};
    return true;
}

bool pl_gguf_array_f64(const pl_gguf *g, const char *key, uint64_t i, double *v)
{
    pl_gguf_type type;
    const uint8_t *p = item_at(g, key, i, &type);
    return p && read_real(type, p, v);
}

bool pl_gguf_array_i64(const pl_gguf *g, const char *key, uint64_t i, int64_t *v)
{
    pl_gguf_type type;
    const uint8_t *p = item_at(g, key, i, &type);
    if (p && type == PL_GGUF_BOOL) {
        *v = *p != 0;
        return true;
    }
    return p && read_signed(type, p, v);
}
