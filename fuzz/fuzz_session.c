/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a session file: refused, or a cache whose every visible number can be read and to
 * which tokens can be added. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "header_and_data.h"
#include "kv/cache_file.h"

enum { LAYERS = 2, D = 64, CAPACITY = 300, WINDOW = 64 };

static volatile float sink; /* keeps the reads alive */

static pl_cache *make_cache(void)
{
    static pl_kernels kernels;
    const pl_kv types[LAYERS] = {PL_KV_PACKED(2, 3), PL_KV_PACKED(8, 2)};
    const uint32_t windows[LAYERS] = {0, WINDOW};
    pl_cache_settings s = {.n_layers = LAYERS,
                           .n_kv_heads = 1,
                           .head_dim = D,
                           .capacity = CAPACITY,
                           .types = types,
                           .windows = windows,
                           .kernels = &kernels};
    pl_cache *c;
    unsigned cpu;
    if (!kernels.rotate && pl_cpu_level(NULL, &cpu) == 0) pl_kernels_init(&kernels, cpu);
    if (pl_cache_open(&s, &c, NULL) != PLEACH_OK) abort();
    return c;
}

static void use(pl_cache *c, const int32_t *ids)
{
    static float scratch[CAPACITY * D], token[D];
    size_t n = pl_cache_length(c), slid = n > WINDOW ? n - WINDOW : 0;
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= 100) abort();
    for (uint32_t layer = 0; n > 0 && layer < LAYERS; layer++) {
        size_t first = layer ? slid : 0;
        const float *keys = pl_cache_keys(c, layer, 0, first, n - first, scratch);
        for (size_t i = 0; i < (n - first) * D; i++) sink = keys[i];
        const float *values = pl_cache_values(c, layer, 0, first, n - first, scratch);
        for (size_t i = 0; i < (n - first) * D; i++) sink = values[i];
    }
    if (pl_cache_reserve(c, 1, NULL) != PLEACH_OK) return;
    for (uint32_t layer = 0; layer < LAYERS; layer++) pl_cache_put(c, layer, n, 1, token, token);
    pl_cache_advance(c, 1);
}

static void read_file(const uint8_t *data, size_t size)
{
    const pl_cache_origin origin = {.model = "0123456789abcdef", .arith = "int16", .vocab = 100};
    pl_safetensors *file;
    pl_cache *like = make_cache(), *c;
    int32_t *ids;
    if (pl_safetensors_open_memory("input", data, size, &file, NULL) == PLEACH_OK) {
        if (pl_cache_load(like, file, "input", &origin, &c, &ids, NULL) == PLEACH_OK) {
            use(c, ids);
            pl_cache_close(c);
            pl_free(ids);
        }
        pl_safetensors_close(file);
    }
    pl_cache_close(like);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_both_ways(data, size, read_file);
    return 0;
}
