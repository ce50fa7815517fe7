/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages of the cache between the host's order and the device's. */
#include <string.h>

#include "attention.h"
#include "attention_layout.h"

enum { PAGE = 64 };
_Static_assert(PAGE == PL_CACHE_PAGE, "a page is four tiles");

static size_t head_bytes(pl_kv type, uint32_t dim)
{
    return PL_CACHE_PAGE * (pl_kv_key_bytes(type, dim) + pl_kv_value_bytes(type, dim));
}

size_t pl_cuda_kv_page_bytes(pl_kv type, uint32_t n_kv_heads, uint32_t head_dim)
{
    return n_kv_heads * head_bytes(type, head_dim);
}

/* One head: where the parts of both orders are. */
typedef struct head {
    pl_turboquant t;
    uint8_t *tiles, *keys, *values; /* the device's; the host's pages of PAGE tokens */
    bool to_host;
} head;

static void move(const head *h, uint8_t *device, uint8_t *host, size_t n)
{
    if (h->to_host)
        memcpy(host, device, n);
    else
        memcpy(device, host, n);
}

static void move_key(const head *h, uint8_t *tile, uint32_t token)
{
    uint32_t D = h->t.dim, b = h->t.key_bits, t = token % PL_CUDA_TILE;
    pl_turboquant_view v = pl_turboquant_key_page(&h->t, h->keys, PAGE, token);
    uint16_t *device = (uint16_t *)(tile + pl_tile_key_scales(D, b));
    for (uint32_t o = 0; o < D / 8; o++) move(h, tile + pl_tile_key(b, t, o), v.codes + o * b, b);
    for (uint32_t g = 0; g < D / 32; g++) {
        uint8_t *pair = (uint8_t *)(device + pl_tile_key_scale(t, g));
        move(h, pair, (uint8_t *)((uint16_t *)v.scales + g * v.scale_step), 2);
        move(h, pair + 2, (uint8_t *)((uint16_t *)v.zeros + g * v.scale_step), 2);
    }
}

/* Value i of a token as a nibble of its words; those begin as zeros. */
static void put_code(uint32_t *words, uint32_t dim, uint32_t bits, uint32_t t, uint32_t i,
                     uint32_t code)
{
    uint32_t lane = pl_tile_value_lane(t, i), shift = pl_tile_value_shift(t, i), of = i / 16;
    if (bits == 3 && of % 4 == 3) {
        for (uint32_t b = 0; b < 3; b++)
            words[pl_tile_value_word(dim, 3, of / 4 * 3 + b, lane)] |= (code >> b & 1)
                                                                       << (shift + 3);
        return;
    }
    uint32_t w = bits == 4 ? of : bits == 2 ? of / 2 : of / 4 * 3 + of % 4;
    if (bits == 2) shift += of % 2 * 2;
    words[pl_tile_value_word(dim, bits, w, lane)] |= code << shift;
}

static void move_value(const head *h, uint8_t *tile, uint32_t token)
{
    uint32_t D = h->t.dim, b = h->t.value_bits, t = token % PL_CUDA_TILE;
    pl_turboquant_view v = pl_turboquant_value_page(&h->t, h->values, PAGE, token);
    uint32_t *words = (uint32_t *)(tile + pl_tile_values(D, h->t.key_bits));
    uint16_t *scales = (uint16_t *)(tile + pl_tile_value_scales(D, h->t.key_bits, b));
    if (h->to_host) memset(v.codes, 0, D * b / 8);
    for (uint32_t i = 0; i < D; i++) {
        if (!h->to_host) {
            put_code(words, D, b, t, i, pl_turboquant_code(v.codes, b, i));
            continue;
        }
        uint32_t code = pl_tile_value_code(words, D, b, t, i) << i * b % 8, at = i * b / 8;
        v.codes[at] |= (uint8_t)code;
        if (code >> 8) v.codes[at + 1] |= (uint8_t)(code >> 8);
    }
    for (uint32_t g = 0; g < D / 32; g++)
        move(h, (uint8_t *)(scales + pl_tile_value_scale(t, g)),
             (uint8_t *)((uint16_t *)v.scales + g * v.scale_step), 2);
}

/* tiles and keys are 4-byte aligned. */
static void permute(pl_kv type, uint32_t n_kv_heads, uint32_t dim, uint8_t *device, uint8_t *host,
                    bool to_host)
{
    size_t bytes = head_bytes(type, dim);
    head h = {.t = pl_kv_code(type, dim), .to_host = to_host};
    if (!pl_kv_is_packed(type) || !pl_cuda_kv_tiled(h.t.key_bits, h.t.value_bits, dim)) {
        move(&h, device, host, n_kv_heads * bytes);
        return;
    }
    uint32_t tile_bytes = pl_tile_bytes(dim, h.t.key_bits, h.t.value_bits);
    for (uint32_t i = 0; i < n_kv_heads; i++, device += bytes, host += bytes) {
        if (!to_host) memset(device, 0, bytes);
        h.keys = host;
        h.values = host + PAGE * pl_turboquant_key_bytes(&h.t);
        for (uint32_t token = 0; token < PAGE; token++) {
            uint8_t *tile = device + token / PL_CUDA_TILE * tile_bytes;
            move_key(&h, tile, token);
            move_value(&h, tile, token);
        }
    }
}

void pl_cuda_kv_from_host(pl_kv type, uint32_t n_kv_heads, uint32_t head_dim, void *dst,
                          const void *src)
{
    permute(type, n_kv_heads, head_dim, dst, (uint8_t *)src, false);
}

void pl_cuda_kv_to_host(pl_kv type, uint32_t n_kv_heads, uint32_t head_dim, void *dst,
                        const void *src)
{
    permute(type, n_kv_heads, head_dim, (uint8_t *)src, dst, true);
}
