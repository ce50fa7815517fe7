/* SPDX-License-Identifier: Apache-2.0
 *
 * Eight neighbouring weights of a stored row, wherever they lie: k bytes and the bits that follow,
 * which two words always hold. */
#ifndef PL_CUDA_TRELLIS_EIGHT_CUH
#define PL_CUDA_TRELLIS_EIGHT_CUH

#include <stdint.h>

enum { PL_EIGHT = 8 };

/* Where an eight's windows begin: words at `low` and `high` of the block, bit `shift` of the first.
 */
typedef struct pl_eight_place {
    uint32_t low, high, shift;
} pl_eight_place;

/* Of numbers 8 `eight` .. 8 `eight` + 7 of a block. */
template <int K>
static __device__ __forceinline__ pl_eight_place pl_eight_find(uint32_t block, uint32_t block_words,
                                                               uint32_t eight)
{
    uint32_t bit = (block - PL_EIGHT - PL_EIGHT * eight) * K, low = bit / 32;
    return {low, low + 1 == block_words ? 0 : low + 1, bit % 32};
}

/* Their codes, -510 to 510, in their order. mask: 2^L - 1. */
template <int K>
static __device__ __forceinline__ void pl_eight_decode(float y[PL_EIGHT], uint32_t low,
                                                       uint32_t high, uint32_t shift, uint32_t mask)
{
    uint32_t w0 = __funnelshift_r(low, high, shift), w1 = high >> shift;
#pragma unroll
    for (int j = 0; j < PL_EIGHT; j++) {
        uint32_t window = (j ? __funnelshift_r(w0, w1, j * K) : w0) & mask;
        uint32_t x = window * 34038481u + 76625530u;
        /* The bytes' sum as the low bits of 2^23 + sum. */
        uint32_t bits = __dp4a(x, 0x01010101u, 0x4b000000u);
        y[PL_EIGHT - 1 - j] = __uint_as_float(bits) - (8388608.0f + 510.0f);
    }
}

/* Where word `word` of block b of a stored row lies in units (trellis.h): a matrix of axis 1 with
 * so many blocks in a row, one of axis 0 with so many stored rows. */
template <int K>
static __device__ __forceinline__ size_t pl_unit_word1(uint32_t blocks, size_t row, uint32_t b,
                                                       uint32_t word)
{
    uint32_t q = word / (2 * K), i = word % (2 * K) + (row & 8 ? 2 * K : 0);
    uint32_t lane = 4 * (uint32_t)(row & 7) + q;
    return (row / 16 * blocks + b) * (128 * K) + (i / 4 * 32 + lane) * 4 + i % 4;
}

template <int K>
static __device__ __forceinline__ size_t pl_unit_word0(size_t rows, size_t row, uint32_t b,
                                                       uint32_t word)
{
    uint32_t g = word / K, i = word % K + (uint32_t)(row & 15) / 4 * K;
    uint32_t lane = 4 * g + (uint32_t)(row & 3);
    return (b * ((rows + 15) / 16) + row / 16) * (128 * K) + (i / 4 * 32 + lane) * 4 + i % 4;
}

#endif
