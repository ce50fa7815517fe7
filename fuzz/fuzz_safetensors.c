/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a safetensors file: opened or refused, and every tensor of it readable. */
#include <stdint.h>

#include "format/safetensors.h"
#include "header_and_data.h"

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
    read_both_ways(data, size, read_file);
    return 0;
}
