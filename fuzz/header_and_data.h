/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a safetensors file in two ways: as a whole file, and as the header's text up to the
 * first zero byte and the data behind it, which mutations keep legal more often. */
#ifndef PLEACH_FUZZ_HEADER_AND_DATA_H
#define PLEACH_FUZZ_HEADER_AND_DATA_H

#include <stdint.h>
#include <string.h>

#include "base/memory.h"

static inline void read_both_ways(const uint8_t *data, size_t size,
                                  void (*read_file)(const uint8_t *data, size_t size))
{
    read_file(data, size);
    const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
    if (!cut) return;
    uint64_t header = (uint64_t)(cut - data), rest = size - header - 1;
    uint8_t *file = pl_alloc(8 + header + rest, 1);
    if (!file) return;
    for (int i = 0; i < 8; i++) file[i] = (uint8_t)(header >> 8 * i);
    memcpy(file + 8, data, header);
    memcpy(file + 8 + header, cut + 1, rest);
    read_file(file, 8 + header + rest);
    pl_free(file);
}

#endif
