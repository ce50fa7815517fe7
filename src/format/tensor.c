/* SPDX-License-Identifier: Apache-2.0
 *
 * Views of one checked tensor: its rows, as bytes and as f32, and look-up by name. */
#include "tensor.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

uint64_t pl_tensor_elements(const pl_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++) n *= t->shape[i];
    return n;
}

uint64_t pl_tensor_width(const pl_tensor *t)
{
    return t->n_dims ? t->shape[t->n_dims - 1] : 1;
}

uint64_t pl_tensor_rows(const pl_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i + 1 < t->n_dims; i++) n *= t->shape[i];
    return n;
}

/* Where the file keeps element r of `n` that Hugging Face's order has. In a head of D rows the file
 * has d = 0, D/2, 1, D/2 + 1, ...: pairs of the rotary embedding side by side. */
static uint64_t stored_position(uint64_t r, uint64_t n, uint32_t heads)
{
    uint64_t D = n / heads, d = r % D, half = D / 2;
    return r - d + (d < half ? 2 * d : 2 * (d - half) + 1);
}

const void *pl_tensor_row(const pl_tensor *t, uint64_t r)
{
    uint64_t rows = pl_tensor_rows(t);
    if (t->rope_heads && t->n_dims == 2) r = stored_position(r, rows, t->rope_heads);
    return (const uint8_t *)t->data + r * (t->n_bytes / rows);
}

void pl_tensor_row_f32(const pl_tensor *t, uint64_t r, float *dst)
{
    uint64_t width = pl_tensor_width(t);
    if (!t->rope_heads || t->n_dims != 1) {
        pl_dequantize_row(t->type, pl_tensor_row(t, r), dst, width);
        return;
    }
    /* A bias of q or k; such vectors are of a plain type (gguf_model.c). */
    uint32_t size = pl_dtype_get(t->type)->block_bytes;
    for (uint64_t i = 0; i < width; i++) {
        uint64_t at = stored_position(i, width, t->rope_heads);
        pl_dequantize_row(t->type, (const uint8_t *)t->data + at * size, dst + i, 1);
    }
}

bool pl_tensor_size(pl_tensor *t)
{
    const pl_dtype_info *info = pl_dtype_get(t->type);
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++)
        if (__builtin_mul_overflow(n, t->shape[i], &n)) return false;
    if (pl_tensor_width(t) % info->block_elements != 0) return false;
    return !__builtin_mul_overflow(n / info->block_elements, info->block_bytes, &t->n_bytes);
}

char *pl_tensor_shape_text(const pl_tensor *t, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (uint32_t i = 0; i < t->n_dims && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)t->shape[i]);
    if (used < size) snprintf(text + used, size - used, "]");
    return text;
}

/* ---- look-up ------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    const pl_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

const pl_tensor **pl_tensor_sort(const pl_tensor *tensors, size_t n)
{
    const pl_tensor **sorted = pl_alloc(n, sizeof *sorted);
    if (!sorted) return NULL;
    for (size_t i = 0; i < n; i++) sorted[i] = &tensors[i];
    qsort(sorted, n, sizeof *sorted, compare_names);
    return sorted;
}

const pl_tensor *pl_tensor_search(const pl_tensor *const *sorted, size_t n, const char *name)
{
    pl_tensor wanted = {.name = name};
    const pl_tensor *key = &wanted;
    if (n == 0) return NULL;
    const pl_tensor *const *found = bsearch(&key, sorted, n, sizeof *sorted, compare_names);
    return found ? *found : NULL;
}

const char *pl_tensor_duplicate(const pl_tensor *const *sorted, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0) return sorted[i]->name;
    return NULL;
}
