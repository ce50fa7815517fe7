/* SPDX-License-Identifier: Apache-2.0
 *
 * Codes of the trellis as the x86 kernels walk them. The including file has LANES.
 *
 * Blocks are decoded in the order of their bits: number t of a block of T is at u = T - 1 - t. Each
 * lane owns eight neighbours, k bytes of code: step i of lane l of span s is u = (s LANES + l) 8 +
 * i. All windows of one lane start inside its k bytes, so a window is a load or a byte shuffle, a
 * shift by a constant and a mask.
 *
 * Windows are read where the codes lie, but for the last span of a block, whose windows wrap to the
 * block's start: it is copied to scratch memory with the bytes that follow it (the "tail"). Nothing
 * outside the matrix is read. */
#ifndef PL_KERNELS_TRELLIS_CODES_H
#define PL_KERNELS_TRELLIS_CODES_H

#include <immintrin.h>
#include <string.h>

#include "base/compiler.h"
#include "transpose.h"

enum {
    SPAN = 8 * LANES,
    TAIL_AT = 4 * LANES, /* where the span's first byte is in a tail; most bytes it has */
    TAIL_BYTES = 4 * TAIL_AT
};

/* The last span of a block with the bytes round it: eight before, eight after, wrapping. */
static PL_ALWAYS_INLINE void make_tail(uint8_t *tail, const uint8_t *block, size_t T, int k)
{
    size_t bytes = T * (size_t)k / 8, first = (T - 1) / SPAN * LANES * (size_t)k;
    size_t n = bytes - first;
    if (bytes >= TAIL_AT)
        memcpy(tail + n, block + bytes - TAIL_AT, TAIL_AT);
    else
        memcpy(tail + TAIL_AT, block + first, n);
    if (k == 4) memcpy(tail + TAIL_AT - 8, block + (first ? first : bytes) - 8, 8);
    memcpy(tail + TAIL_AT + n, block, 8);
}

static PL_ALWAYS_INLINE void make_tails(uint8_t *tails, const uint8_t *codes, size_t row_bytes,
                                        size_t rows, size_t T, int k)
{
    for (size_t r = 0; r < rows; r++)
        make_tail(tails + r * TAIL_BYTES, codes + r * row_bytes, T, k);
}

/* To the second-level cache: the first one's few fill buffers would be what a product waits for. */
static PL_ALWAYS_INLINE void prefetch(const uint8_t *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T1);
}

/* Span s of rows of one block: the first row's code, the distance to the next row's, and whether
 * nothing may be read before it. */
typedef struct span_codes {
    const uint8_t *code;
    size_t stride;
    int first;
} span_codes;

static PL_ALWAYS_INLINE span_codes span_of(const uint8_t *codes, size_t row_bytes,
                                           const uint8_t *tails, size_t s, size_t T, int k)
{
    if (s == (T - 1) / SPAN) return (span_codes){tails + TAIL_AT, TAIL_BYTES, 0};
    return (span_codes){codes + s * LANES * (size_t)k, row_bytes, s == 0};
}

/* out[t] for t < T from sums in the order [s][i][l]. Eight lanes at a time: steps 7 to 0 of one
 * lane are eight neighbouring outputs. */
static inline void sort_outputs(float *out, const float *sums, size_t T)
{
    for (size_t l = 0; 8 * l < T; l += 8) {
        __m256 v[8];
        const float *from = sums + l / LANES * SPAN + l % LANES;
        for (size_t i = 0; i < 8; i++) v[i] = _mm256_loadu_ps(from + (7 - i) * LANES);
        transpose_8x8(v);
        for (size_t i = 0; i < 8 && 8 * (l + i) < T; i++)
            _mm256_storeu_ps(out + T - 8 - 8 * (l + i), v[i]);
    }
}

#endif
