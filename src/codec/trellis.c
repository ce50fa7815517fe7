/* SPDX-License-Identifier: Apache-2.0
 *
 * The trellis code without the search: geometry, block layout, and both decoding contracts. The
 * search is viterbi.c, rows and scales are encoder.c. */
#include "trellis.h"

#include "base/error.h"
#include "base/half.h"

/* ---- geometry -------------------------------------------------------------------------------- */

pleach_status pleach_trellis_check(const pleach_trellis *t, pleach_error *err)
{
    PL_FAIL_IF(t->bits < 2 || t->bits > 4, err, PLEACH_ERR_SHAPE,
               "trellis: bits is %u, expected 2, 3 or 4", t->bits);
    PL_FAIL_IF(t->state_bits != 12 && t->state_bits != 16, err, PLEACH_ERR_SHAPE,
               "trellis: state_bits is %u, expected 12 or 16", t->state_bits);
    PL_FAIL_IF(t->block < 32 || t->block > PL_TRELLIS_MAX_BLOCK || t->block % 32, err,
               PLEACH_ERR_SHAPE, "trellis: block is %u, expected a multiple of 32 from 32 to %d",
               t->block, PL_TRELLIS_MAX_BLOCK);
    PL_FAIL_IF(t->axis > 1, err, PLEACH_ERR_SHAPE, "trellis: axis is %u, expected 0 or 1", t->axis);
    PL_FAIL_IF(t->cols == 0 || t->cols % t->block, err, PLEACH_ERR_SHAPE,
               "trellis: cols is %llu, expected a multiple of the block, %u",
               (unsigned long long)t->cols, t->block);
    PL_FAIL_IF(t->interleaved > 1, err, PLEACH_ERR_SHAPE,
               "trellis: interleaved is %u, expected 0 or 1", t->interleaved);
    PL_FAIL_IF(t->interleaved && (t->bits != 3 || t->block != 256 || t->axis != 0), err,
               PLEACH_ERR_SHAPE,
               "trellis: interleaved with bits %u, block %u, axis %u, expected 3, 256, 0", t->bits,
               t->block, t->axis);
    PL_FAIL_IF(t->interleaved && t->cols % 512, err, PLEACH_ERR_SHAPE,
               "trellis: interleaved cols is %llu, expected a multiple of 512",
               (unsigned long long)t->cols);
    /* The largest array a caller may hold is [rows][cols] f32; a row's scale is smaller. */
    PL_FAIL_IF(t->cols > PTRDIFF_MAX / 4 || t->rows > PTRDIFF_MAX / 4 / t->cols, err,
               PLEACH_ERR_SHAPE, "trellis: %llu rows of %llu are too many to address",
               (unsigned long long)t->rows, (unsigned long long)t->cols);
    return PLEACH_OK;
}

size_t pleach_trellis_words(const pleach_trellis *t)
{
    return (size_t)t->rows * (size_t)(t->cols / t->block) * pl_trellis_block_words(t);
}

pleach_status pleach_trellis_choose_block(uint64_t width, uint32_t *block, uint64_t *padded,
                                          pleach_error *err)
{
    const uint64_t limit = (uint64_t)1 << 40; /* keeps the products below 2^64 */
    PL_FAIL_IF(width < 32 || width > limit, err, PLEACH_ERR_SHAPE,
               "trellis: width is %llu, expected 32 to %llu", (unsigned long long)width,
               (unsigned long long)limit);
    uint32_t first = width < 128 ? 32 : 128, last = width < 128 ? 128 : 256;
    *block = 0;
    *padded = 0;
    for (uint32_t T = first; T <= last; T += 32) {
        uint64_t p = (width + T - 1) / T * T;
        /* p (T+2)/T <= padded (block+2)/block, without fractions; <= prefers the longer T. */
        if (*block == 0 || p * (T + 2) * *block <= *padded * (*block + 2) * T) {
            *block = T;
            *padded = p;
        }
    }
    return PLEACH_OK;
}

size_t pl_trellis_block_at(const pleach_trellis *t, uint64_t row, uint64_t block)
{
    size_t words = pl_trellis_block_words(t);
    if (!t->interleaved)
        return ((size_t)row * (size_t)(t->cols / t->block) + (size_t)block) * words;
    return ((size_t)(block / 2) * (size_t)t->rows + (size_t)row) * 2 * words + block % 2 * words;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* State i is the L bits from bit (T-1-i)*k, wrapping from the block's end to its start. */
static PL_ALWAYS_INLINE void states_of_block(uint16_t *states, const uint32_t *words, uint32_t T,
                                             uint32_t k, uint32_t L)
{
    uint32_t ring[PL_TRELLIS_MAX_WORDS + 1], n = T * k / 32;
    for (uint32_t i = 0; i < n; i++) ring[i] = words[i];
    ring[n] = words[0]; /* L is below 32, so one word past the end is enough */
    for (uint32_t i = 0; i < T; i++) {
        uint32_t bit = (T - 1 - i) * k;
        uint64_t two = (uint64_t)ring[bit / 32 + 1] << 32 | ring[bit / 32];
        states[i] = (uint16_t)(two >> (bit % 32) & ((1u << L) - 1));
    }
}

void pl_trellis_states(const pleach_trellis *t, uint16_t *states, const uint32_t *words)
{
    switch (t->bits) {
    case 2:
        states_of_block(states, words, t->block, 2, t->state_bits);
        break;
    case 3:
        states_of_block(states, words, t->block, 3, t->state_bits);
        break;
    default:
        states_of_block(states, words, t->block, 4, t->state_bits);
        break;
    }
}

void pl_trellis_pack(const pleach_trellis *t, uint32_t *words, const uint16_t *states)
{
    uint32_t k = t->bits, filled = 0;
    uint64_t bits = 0;
    for (uint32_t i = t->block; i-- > 0;) { /* the last number has the lowest bits */
        bits |= (uint64_t)(states[i] & ((1u << k) - 1)) << filled;
        filled += k;
        if (filled >= 32) {
            *words++ = (uint32_t)bits;
            bits >>= 32;
            filled -= 32;
        }
    }
}

/* ---- decoding -------------------------------------------------------------------------------- */

void pl_trellis_decode_states(float *dst, const uint16_t *states, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = (float)pl_trellis_y(states[i]) * (1.0f / PL_TRELLIS_DIVISOR) * scale;
}
