/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a safetensors file: opened or refused, and every tensor of it readable. The bytes
 * are taken as a whole file, and again as the header's text up to the first zero byte and the data,
 * which mutations keep legal more often. */
#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "format/safetensors.h"

static volatile uint8_t sink; /* keeps the reads alive */

static void read_file(const uint8_t *data, size_t size)
{
    pl_safetensors *s;
    pleach_error err;
    if (pl_safetensors_open_memory("input", data, size, &s, &err) != PLEACH_OK) return;
    for (size_t i = 0; i < pl_safetensors_count(s); i++) {
        const pl_tensor *t = pl_safetensors_tensor(s, i);
        const uint8_t *bytes = t->data;
        for (uint64_t j = 0; j < t->n_bytes; j++) sink += bytes[j];
        if (pl_safetensors_find(s, t->name) != t) __builtin_trap();
        uint64_t width = pl_tensor_width(t);
        if (!pl_dtype_get(t->type)->numeric || width > 64 || pl_tensor_elements(t) == 0) continue;
        float row[64];
        for (uint64_t r = 0; r < pl_tensor_rows(t); r++) pl_tensor_row_f32(t, r, row);
    }
    pl_safetensors_metadata(s, "format");
    pl_safetensors_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_file(data, size);
    const uint8_t *cut = memchr(data, 0, size);
    if (!cut) return 0;
    uint64_t header = (uint64_t)(cut - data), rest = size - header - 1;
    uint8_t *file = pl_alloc(8 + header + rest, 1);
    if (!file) return 0;
    for (int i = 0; i < 8; i++) file[i] = (uint8_t)(header >> 8 * i);
    memcpy(file + 8, data, header);
    memcpy(file + 8 + header, cut + 1, rest);
    read_file(file, 8 + header + rest);
    pl_free(file);
    return 0;
}
