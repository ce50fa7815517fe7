/* SPDX-License-Identifier: Apache-2.0
 *
 * Four independent multiply-and-mix lanes over 64-bit words. */
#include "hash.h"

#include <string.h>

#include "random.h"

uint64_t pl_hash(const void *data, size_t size, uint64_t seed)
{
    const uint8_t *p = data;
    uint64_t lane[4] = {seed, seed ^ 0x9e3779b97f4a7c15u, ~seed, seed + 0xd1b54a32d192ed03u};
    size_t i = 0;
    for (; i + 32 <= size; i += 32) {
        uint64_t word[4];
        memcpy(word, p + i, sizeof word);
        for (int k = 0; k < 4; k++) {
            uint64_t z = (lane[k] ^ word[k]) * 0xbf58476d1ce4e5b9u;
            lane[k] = z ^ z >> 29;
        }
    }
    uint64_t tail[4] = {0}, h = size;
    if (size > i) memcpy(tail, p + i, size - i);
    for (int k = 0; k < 4; k++) h = pl_mix64(h * 3 + pl_mix64(lane[k] ^ pl_mix64(tail[k] + 1)));
    return h;
}
