/* SPDX-License-Identifier: Apache-2.0
 *
 * The trellis weight code: matrices of 2, 3 or 4 bits a weight, encoded, decoded and measured.
 *
 * A matrix is stored as `rows` stored rows of `cols` coded numbers. Each stored row is cut into
 * blocks of T numbers; a block is T*k bits, and number t is a function of the L bits that start at
 * bit (T-1-t)*k, wrapping round the block's end ("tail-biting"), times the row's fp16 scale.
 *
 * Source: QTIP, Tseng et al. 2024 (arXiv 2406.11235), the 1MAD code. Normative text: docs/format.md.
 *
 *   pleach_trellis t = {.bits = 3, .state_bits = 12, .block = 256, .rows = 8, .cols = 1024};
 *   uint32_t *codes = malloc(4 * pleach_trellis_words(&t));
 *   uint16_t scales[8];
 *   pleach_trellis_encode(&t, codes, scales, weights, NULL, &err);
 *   pleach_trellis_decode(&t, restored, codes, scales);
 */
#ifndef PLEACH_TRELLIS_H
#define PLEACH_TRELLIS_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Geometry of one coded matrix. */
typedef struct pleach_trellis {
    uint32_t bits;       /* k: 2, 3 or 4 */
    uint32_t state_bits; /* L: 12 or 16 */
    uint32_t block;      /* T: a multiple of 32 from 32 to 1024 */
    uint32_t axis;       /* 1: stored rows are the matrix's outputs, coded along the inputs;
                            0: stored rows are its inputs, coded along the outputs */
    uint32_t interleaved; /* 1: pairs of blocks, rows inner: [cols/(2T)][rows][2*T*k/32] words.
                             Legal for k = 3, T = 256, axis 0 alone */
    uint64_t rows;        /* stored rows; may be 0 */
    uint64_t cols;        /* coded numbers in a row, a multiple of T; padding included */
} pleach_trellis;

/* PLEACH_OK, or PLEACH_ERR_SHAPE with the field that is out of range. Also refuses sizes whose
 * byte count overflows. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_trellis_check(const pleach_trellis *t,
                                                                pleach_error *err);

/* uint32 words of the whole coded matrix: rows * cols * k / 32. t must be legal. */
PLEACH_API size_t pleach_trellis_words(const pleach_trellis *t);

/* The block length T and padded width for `width` coded numbers (>= 32): the multiple of T that
 * costs least, where padded * (1 + 2/T) is the cost (short blocks code worse), over multiples of 32
 * from 128 to 256, or from 32 to 128 when width is below 128; ties to the longest T. 576 gives 192,
 * 896 gives 224, 1536 gives 256, and 50257 is padded to 50432 in blocks of 256.
 * Source: docs/format.md, "Choosing T". */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_trellis_choose_block(uint64_t width,
                                                                       uint32_t *block,
                                                                       uint64_t *padded,
                                                                       pleach_error *err);

/* The expand contract: dst[r][c] = bf16(f32(y) / f32(147.800537109375) * f32(scales[r])), division
 * correctly rounded.
 *   dst    [rows][cols] bf16 bits, row-major in stored rows whatever the axis; must not overlap src
 *   src    the coded words as stored; interleaved if t says so
 *   scales [rows] fp16 bits
 * PLEACH_ERR_SHAPE, dst untouched, if t is not legal. Keeps no pointer, any thread.
 * Exact: every ISA returns the same bits. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_trellis_expand(const pleach_trellis *t,
                                                                 uint16_t *dst,
                                                                 const uint32_t *src,
                                                                 const uint16_t *scales);

/* The decode contract: dst[r][c] = f32(y) * f32(1/147.800537109375) * f32(scales[r]), f32, no
 * rounding to bf16. Otherwise as pleach_trellis_expand. Exact. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_trellis_decode(const pleach_trellis *t,
                                                                 float *dst, const uint32_t *src,
                                                                 const uint16_t *scales);

/* How hard to look for the best path. */
typedef enum pleach_trellis_search {
    PLEACH_SEARCH_NORMAL = 0, /* int16 path metric, error within 0.1 % of the exact search's */
    PLEACH_SEARCH_FAST = 1,   /* the same with a shorter look before the seam: within 0.2 % */
    PLEACH_SEARCH_EXACT = 2   /* f32 path metric, the slow oracle */
} pleach_trellis_search;

/* How to encode. Start from pleach_trellis_encode_defaults. */
typedef struct pleach_trellis_encode_settings {
    int threads;       /* 0: all cores this process may use (default) */
    const char *cpu;   /* NULL: the best level of this machine (default); or a level's name */
    pleach_trellis_search search; /* default PLEACH_SEARCH_NORMAL */
    int scale_search;  /* 1: search the row scale (default). 0: RMS(row)/RMS(code) */
    int scale_refit;   /* 1: least-squares refit of the scale to the chosen codes (default) */
    unsigned char reserved[32];
} pleach_trellis_encode_settings;

PLEACH_API void pleach_trellis_encode_defaults(pleach_trellis_encode_settings *s);

/* Codes rows of numbers: for each block the tail-biting path of least squared error (Viterbi, QTIP
 * Algorithm 4), for each row one fp16 scale.
 *   src  [rows][cols] f32 in stored-row order, padding included
 *   settings  NULL for the defaults
 * Deterministic: the same bits for every thread count. A row of zeros gets scale 0 and decodes to
 * exact zeros. PLEACH_ERR_DATA names the row for NaN, infinity, or a row too large for an fp16
 * scale (RMS above 65504 times the code's); rows too small for one decode to the nearest they can. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_trellis_encode(
    const pleach_trellis *t, uint32_t *codes, uint16_t *scales, const float *src,
    const pleach_trellis_encode_settings *settings, pleach_error *err);

#ifdef __cplusplus
}
#endif
#endif
