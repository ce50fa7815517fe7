/* SPDX-License-Identifier: Apache-2.0
 *
 * The TurboQuant code of the attention cache: keys and values of one head at 2 to 8 bits a number,
 * encoded token by token and decoded again. Kernels that read the codes in place rely on the
 * layouts below; what a cache does with pages and heads is its own affair.
 *
 *   pl_turboquant t = {.dim = 64, .key_bits = 8, .value_bits = 3};
 *   uint8_t *page = pl_alloc(P * pl_turboquant_key_bytes(&t));
 *   pl_turboquant_view keys = pl_turboquant_key_page(&t, page, P, 0);
 *   pl_turboquant_encode_keys(&t, &keys, k, 64, n);            // n <= P tokens
 *   pl_turboquant_decode_keys(&t, &keys, &(pl_turboquant_plain){.data = back, .stride = 64}, n);
 *
 * D numbers of a token are cut into groups of 32, the last of 16 where 32 does not divide D. All
 * arithmetic is f32, operation by operation; round() takes ties to the even number.
 *
 * Keys of b bits, by group, with c[i] in -127..127 (b = 8) or 0..m, m = 2^b - 1 (b = 2, 4, 5):
 *
 *   decode    x[i] = (c[i] + zero) * scale           the sum first; zero and scale are fp16
 *   encode    scale = (max - min) / 254,  zero = round((max + min) / (2*(scale + 1e-8)))    b = 8
 *             scale = (max - min) / m,    zero = round(min / (scale + 1e-8))                b < 8
 *             c[i]  = round(x[i] / (scale + 1e-8) - zero), clipped
 *
 *   That is the original's code to the bit wherever its scale is a normal fp16 number and its zero
 *   a number of fp16. Other groups (constant, far from zero, tiny, huge) get a scale and a zero for
 *   which every number decodes to within
 *       max(2^-11 * max|x|, step / 2) + 2^-25,   step = (max - min) / 254, or / m,
 *   as long as step <= 65504 and max|x| <= 2e9; beyond, numbers saturate. The zero of an encoded
 *   group is always an integer, at most 65504.
 *
 * Values of b bits (2, 3, 4, 5, 8): rotated as r = H (x * sign) (pl_turboquant_rotate); by group,
 *
 *   encode    scale = sqrt(mean(r^2)),  c[i] = how many boundaries[b] lie below r[i]/(scale + 1e-8)
 *   decode    r[i] = centroids[b][c[i]] * scale      scale as fp16, at most 65504
 *             x = sign * (H r)                       eager; deferred leaves r rotated
 *
 *   Deferred is for attention: a sum of rotated values, weighted and then un-rotated once, is the
 *   sum of the values.
 *
 * A NaN or infinity among the keys of a group makes that group NaN (scale NaN, codes and zero 0),
 * among the values of a rotation block all groups of the block, and nothing else.
 *
 * Exact: the same codes, scales, zeros and decoded numbers on every ISA. Nothing here allocates,
 * keeps a pointer or can fail; every code, scale and zero decodes to something. Any thread.
 *
 * Source: TurboQuant, Zandieh et al. 2025 (arXiv 2504.19874), for rotation and Lloyd-Max values;
 * docs/format.md, "The packed attention cache". */
#ifndef PL_CODEC_TURBOQUANT_H
#define PL_CODEC_TURBOQUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "kernels/kernels.h"

enum { PL_TURBOQUANT_GROUP = 32, PL_TURBOQUANT_MAX_DIM = 512 };

typedef struct pl_turboquant {
    uint32_t dim;        /* D, numbers in a head: 64, 80, 96, 112, 128, 192, 256 or 512 */
    uint32_t key_bits;   /* 2, 4, 5 or 8 */
    uint32_t value_bits; /* 2, 3, 4, 5 or 8 */
} pl_turboquant;

/* PLEACH_OK, or PLEACH_ERR_SHAPE with what is allowed. All other functions want a legal t. */
pleach_status pl_turboquant_check(const pl_turboquant *t, pleach_error *err);

/* ---- layout --------------------------------------------------------------------------------
 *
 * Codes of a token are one bit string, lowest bit first: code i is the bits [i*b, i*b + b) of
 * D*b/8 bytes, bit j of the string being bit j % 8 of byte j / 8. 8-bit keys are signed bytes, all
 * other codes unsigned. 32 codes are 4*b bytes, so groups begin at bytes.
 *
 * A page of P tokens of one head, P * key_bytes or P * value_bytes bytes, at an even address:
 *
 *   keys     codes [P][D*b/8]   scales fp16 [G][P]   zeros fp16 [G][P]      G = ceil(D / 32)
 *   values   codes [P][D*b/8]   scales fp16 [G][P]
 *
 * so that the scales of one group at consecutive tokens lie side by side. With P a multiple of 32
 * and the page 64-byte aligned, codes, scales and zeros are too. A page of one token is the record
 * of a token: codes, scales [G], zeros [G]. For D = 64: k8 72 bytes, v3 28, together 100 a token
 * or 6.25 bits a number, as for every D that 32 divides. */

static inline size_t pl_turboquant_groups(uint32_t dim, uint32_t group)
{
    return (dim + group - 1) / group;
}

static inline size_t pl_turboquant_code_bytes(uint32_t dim, uint32_t bits)
{
    return (size_t)dim * bits / 8;
}

/* Bytes of one token of one head: codes, scales and zeros. */
static inline size_t pl_turboquant_key_bytes(const pl_turboquant *t)
{
    return pl_turboquant_code_bytes(t->dim, t->key_bits) +
           4 * pl_turboquant_groups(t->dim, PL_TURBOQUANT_GROUP);
}

static inline size_t pl_turboquant_value_bytes(const pl_turboquant *t)
{
    return pl_turboquant_code_bytes(t->dim, t->value_bits) +
           2 * pl_turboquant_groups(t->dim, PL_TURBOQUANT_GROUP);
}

/* Bits that a number takes on average over keys and values, scales and zeros included. */
static inline double pl_turboquant_bits(const pl_turboquant *t)
{
    return 8.0 * (double)(pl_turboquant_key_bytes(t) + pl_turboquant_value_bytes(t)) /
           (2.0 * t->dim);
}

typedef enum pl_turboquant_number {
    PL_TURBOQUANT_FP16,
    PL_TURBOQUANT_BF16,
    PL_TURBOQUANT_F32
} pl_turboquant_number;

/* Where the packed keys or values of consecutive tokens of one head lie. Encoding writes through
 * it and wants fp16 and groups of 32; decoding reads, any of it. Scales and zeros are aligned to
 * their type. */
typedef struct pl_turboquant_view {
    uint8_t *codes;
    size_t code_stride; /* bytes from token to token */
    void *scales;
    void *zeros;                 /* NULL for values; strides as of the scales */
    size_t scale_stride;         /* numbers from token to token */
    size_t scale_step;           /* numbers from group to group */
    pl_turboquant_number number; /* type of scales and zeros */
    uint32_t group;              /* numbers in a group, 32 or 64; the last has the rest of D */
} pl_turboquant_view;

/* The page at `page` of P tokens from its token `first` on; P = 1 is a record. */
pl_turboquant_view pl_turboquant_key_page(const pl_turboquant *t, void *page, size_t P,
                                          size_t first);
pl_turboquant_view pl_turboquant_value_page(const pl_turboquant *t, void *page, size_t P,
                                            size_t first);

/* ---- encode --------------------------------------------------------------------------------- */

/* n tokens, x[i*stride + 0..D). `k` gives the rotation, exact at every level. */
void pl_turboquant_encode_keys(const pl_turboquant *t, const pl_turboquant_view *dst,
                               const float *x, size_t stride, size_t n);
void pl_turboquant_encode_values(const pl_turboquant *t, const pl_kernels *k,
                                 const pl_turboquant_view *dst, const float *x, size_t stride,
                                 size_t n);

/* ---- decode --------------------------------------------------------------------------------- */

/* Where decoded numbers go: data[i*stride + 0..D), f32, or bf16 bits rounded to nearest even from
 * the f32 results. Overlaps no packed data. */
typedef struct pl_turboquant_plain {
    void *data;
    size_t stride; /* numbers from token to token */
    bool bf16;
} pl_turboquant_plain;

void pl_turboquant_decode_keys(const pl_turboquant *t, const pl_turboquant_view *src,
                               const pl_turboquant_plain *dst, size_t n);
/* rotated: deferred. Else each token is decoded and un-rotated in one pass over it. */
void pl_turboquant_decode_values(const pl_turboquant *t, const pl_kernels *k,
                                 const pl_turboquant_view *src, const pl_turboquant_plain *dst,
                                 size_t n, bool rotated);
/* Both, of n tokens. Views and results may differ in groups, types and strides. */
void pl_turboquant_decode(const pl_turboquant *t, const pl_kernels *k,
                          const pl_turboquant_view *keys, const pl_turboquant_plain *key_dst,
                          const pl_turboquant_view *values, const pl_turboquant_plain *value_dst,
                          size_t n, bool rotated);

/* ---- parts, for kernels and tests ----------------------------------------------------------- */

/* In place x[0..D): signs, then a Hadamard transform of each block, the blocks being the powers of
 * two that make up D, largest first (80 = 64 + 16, 192 = 128 + 64), each divided by the root of its
 * length; unrotate is the inverse. */
void pl_turboquant_rotate(const pl_kernels *k, float *x, uint32_t dim);
void pl_turboquant_unrotate(const pl_kernels *k, float *x, uint32_t dim);

/* Code i of a token's codes, as packed: 0 .. 2^b - 1, also of signed keys. */
static inline uint32_t pl_turboquant_code(const uint8_t *codes, uint32_t bits, size_t i)
{
    size_t bit = i * bits, at = bit / 8;
    uint32_t shift = bit % 8, both = codes[at];
    if (shift + bits > 8) both |= (uint32_t)codes[at + 1] << 8;
    return both >> shift & ((1u << bits) - 1);
}

/* Tables: signs [D], +1 or -1; centroids [2^b], ascending; boundaries [2^b - 1], ascending. 64-byte
 * aligned. */
const float *pl_turboquant_signs(uint32_t dim);
const float *pl_turboquant_centroids(uint32_t bits);
const float *pl_turboquant_boundaries(uint32_t bits);

#endif
