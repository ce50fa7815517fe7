/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the codes of a head lie in a page on the device, for types that tensor cores read as they
 * are stored: keys of 8 or 4 bits, values of 4, 3 or 2, head sizes of 64, 128 or 256. Every other
 * type lies as turboquant.h has a page of 64 tokens.
 *
 * A head of a page is four tiles of 16 tokens, each
 *
 *   keys     codes, then scales and zeros       values     codes, then scales
 *
 * of as many bytes as 16 tokens have, so that a tile is one contiguous record. A lane is 4 g + q,
 * g in 0..7, q in 0..3. Token t of a tile is t = 8 half + g for keys, t = 8 half + 2 q + odd for
 * values; G = D / 32 groups.
 *
 *   key codes    8 numbers of a token, 8 q .. 8 q + 7 of a group, are as many bytes as bits, in the
 *                order of a bit string: the fragment A of a 16 x 32 product of integers
 *                  8 bits  [group][lane][half][8 bytes]
 *                  4 bits  [group / 2][lane][group % 2][half][4 bytes]
 *   key scales   fp16 [group / 2][g][group % 2][half][scale, zero]
 *   value codes  words of 8 nibbles, nibble n = 4 odd + 2 high + half of dimension
 *                16 i + 8 high + g: the fragment A of a 16 x 16 product, dimensions by tokens
 *                  4 bits  word i
 *                  3 bits  word 3 u + j for i = 4 u + j, j < 3; for j = 3 bit b is the fourth bit
 *                          of the nibble in word 3 u + b
 *                  2 bits  word i / 2, the nibble's lower half for even i
 *                of a lane's W = D * bits / 64 words: [W / V][lane][V], V = 4, 2 or 1, what divides
 *   value scales fp16 [group / 2][q][group % 2][odd][half] */
#ifndef PL_CUDA_ATTENTION_LAYOUT_H
#define PL_CUDA_ATTENTION_LAYOUT_H

#ifdef __cplusplus
extern "C" {
#endif
#include "kv/kv_type.h"
#ifdef __cplusplus
}
#endif

#ifdef __CUDACC__
#define PL_BOTH static __host__ __device__ __forceinline__
#else
#define PL_BOTH static inline
#endif

enum { PL_CUDA_TILE = 16, PL_CUDA_TILES = 4 /* of a page */ };

PL_BOTH bool pl_cuda_kv_tiled(uint32_t key_bits, uint32_t value_bits, uint32_t dim)
{
    return (key_bits == 8 || key_bits == 4) && value_bits >= 2 && value_bits <= 4 &&
           (dim == 64 || dim == 128 || dim == 256);
}

/* Bytes of a tile, and where its parts begin. */
PL_BOTH uint32_t pl_tile_key_scales(uint32_t dim, uint32_t key_bits) { return 2 * dim * key_bits; }

PL_BOTH uint32_t pl_tile_values(uint32_t dim, uint32_t key_bits)
{
    return 2 * dim * key_bits + 2 * dim;
}

PL_BOTH uint32_t pl_tile_value_scales(uint32_t dim, uint32_t key_bits, uint32_t value_bits)
{
    return pl_tile_values(dim, key_bits) + 2 * dim * value_bits;
}

PL_BOTH uint32_t pl_tile_bytes(uint32_t dim, uint32_t key_bits, uint32_t value_bits)
{
    return pl_tile_value_scales(dim, key_bits, value_bits) + dim;
}

/* Byte of the key codes where 8 numbers of token t from 8 * octet on begin. */
PL_BOTH uint32_t pl_tile_key(uint32_t key_bits, uint32_t t, uint32_t octet)
{
    uint32_t group = octet / 4, lane = t % 8 * 4 + octet % 4, half = t / 8;
    return key_bits == 8 ? group * 512 + lane * 16 + half * 8
                         : group / 2 * 512 + lane * 16 + group % 2 * 8 + half * 4;
}

/* Number of the key scales that is token t's scale; its zero is the next. */
PL_BOTH uint32_t pl_tile_key_scale(uint32_t t, uint32_t group)
{
    return (group / 2 * 8 + t % 8) * 8 + group % 2 * 4 + t / 8 * 2;
}

PL_BOTH uint32_t pl_tile_value_scale(uint32_t t, uint32_t group)
{
    return (group / 2 * 4 + t % 8 / 2) * 8 + group % 2 * 4 + t % 2 * 2 + t / 8;
}

/* Words between a lane's word w and the beginning of the value codes. */
PL_BOTH uint32_t pl_tile_value_word(uint32_t dim, uint32_t value_bits, uint32_t w, uint32_t lane)
{
    uint32_t W = dim * value_bits / 64, V = W % 4 == 0 ? 4 : W % 2 == 0 ? 2 : 1;
    return (w / V * 32 + lane) * V + w % V;
}

PL_BOTH uint32_t pl_tile_value_lane(uint32_t t, uint32_t i) { return i % 8 * 4 + t % 8 / 2; }

/* First bit of the nibble of token t and dimension i. */
PL_BOTH uint32_t pl_tile_value_shift(uint32_t t, uint32_t i)
{
    return 4 * (t % 2 * 4 + i / 8 % 2 * 2 + t / 8);
}

/* Code of value i of token t. */
PL_BOTH uint32_t pl_tile_value_code(const uint32_t *words, uint32_t dim, uint32_t bits, uint32_t t,
                                    uint32_t i)
{
    uint32_t lane = pl_tile_value_lane(t, i), shift = pl_tile_value_shift(t, i), of = i / 16;
    if (bits == 4) return words[pl_tile_value_word(dim, 4, of, lane)] >> shift & 15;
    if (bits == 2)
        return words[pl_tile_value_word(dim, 2, of / 2, lane)] >> (shift + of % 2 * 2) & 3;
    uint32_t u = of / 4, j = of % 4, code = 0;
    if (j < 3) return words[pl_tile_value_word(dim, 3, 3 * u + j, lane)] >> shift & 7;
    for (uint32_t b = 0; b < 3; b++)
        code |= (words[pl_tile_value_word(dim, 3, 3 * u + b, lane)] >> (shift + 3) & 1) << b;
    return code;
}

#endif
