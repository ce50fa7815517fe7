/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed matrices as floating-point numbers: products in f32 and bf16, and decoding to plain
 * numbers. Contracts: docs/kernels.md, "Trellis products in floating point". */
#ifndef PL_KERNELS_PRODUCT_FLOAT_H
#define PL_KERNELS_PRODUCT_FLOAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pl_kernels pl_kernels;

enum { PL_FLOAT_F32, PL_FLOAT_BF16, PL_FLOAT_TYPES };

/* Of a product, one unit of work. y(r, t) is the integer y of number t of stored row r. */
typedef struct pl_float_product {
    const uint8_t *codes; /* first block of the first stored row; any alignment */
    size_t row_bytes;     /* from a stored row to the next */
    size_t rows;          /* stored rows */
    size_t block, blocks; /* T; blocks side by side: axis 1 alone */
    size_t split;         /* axis 0: stored rows of a partial sum, even */
    const float *scales;  /* [rows]: bf16 alone; numbers of fp16 */
    size_t M;             /* 1 or more */
    bool tile;            /* crossovers.h; the result is the same bits */
    const void *x;        /* what prepare made of M activation rows, x_bytes apart */
    size_t x_bytes;
    size_t first; /* axis 0: which number of x is the first stored row's, even */
    float *out;   /* [M][out_stride] */
    size_t out_stride;
    void *scratch; /* pl_float_product_scratch bytes, 64-byte aligned */
} pl_float_product;

size_t pl_float_product_scratch(size_t block, size_t M);

/* With w = f32(y) (f32) or bf16(f32(y / 147.80...) * scale[r]) (bf16), and x as prepared:
 *   axis 0: out[m][t] = sum over splits (sum over their rows r of w(r, t) * x[m][first + r]), t < T
 *   axis 1: out[m][r] = sum over b, t of w(r, b T + t) * x[m][b T + t]
 * Axis 0 adds rows and splits in ascending order from 0, products fused into the sums (bf16 with
 * its own instruction: two rows at a time). The order of axis 1 is each level's own. Bounded:
 * |error| <= (n + 8) eps sum|w x| for n terms. On one ISA the same bits for every M. */
typedef void pl_float_product_fn(const pl_float_product *p);

/* One activation row as this level's product wants it, pl_float_prepared_bytes long, 64-byte
 * aligned. bf16 rounds it to bf16, ties to even. */
/* Axis 0, n stored rows: f32 takes x[i] * scales[i], bf16 takes x[i]. */
typedef void pl_float_prepare0_fn(void *dst, const float *x, const float *scales, size_t n);
/* Axis 1: n inputs of `blocks` blocks, zeros after. */
typedef void pl_float_prepare1_fn(void *dst, const float *x, size_t n, size_t block, size_t blocks);
size_t pl_float_prepared_bytes(size_t block, size_t blocks); /* axis 0: of (n, 1) */

/* Neighbouring blocks of one stored row as plain numbers dst[blocks * T]. Expand contract:
 * bf16(f32(y / 147.80...) * scale); decode contract: f32(y) * f32(1 / 147.80...) * scale.
 * `stream` keeps the result out of the caches where the level can; pl_stream_end then comes before
 * other threads may read it. Exact; a NaN scale is any NaN. */
typedef void pl_trellis_expand_fn(uint16_t *dst, const uint8_t *codes, size_t T, size_t blocks,
                                  float scale, bool stream);
typedef void pl_trellis_decode_fn(float *dst, const uint8_t *codes, size_t T, size_t blocks,
                                  float scale, bool stream);

/* Once for many rows: it waits until what was streamed has left the core. */
static inline void pl_stream_end(void)
{
#ifdef __x86_64__
    __builtin_ia32_sfence();
#endif
}

typedef struct pl_float_kernels {
    /* [type][k - 2][L == 16] */
    pl_float_product_fn *axis0[PL_FLOAT_TYPES][3][2], *axis1[PL_FLOAT_TYPES][3][2];
    pl_float_prepare0_fn *prepare0[PL_FLOAT_TYPES];
    pl_float_prepare1_fn *prepare1[PL_FLOAT_TYPES];
    pl_trellis_expand_fn *expand[3][2];
    pl_trellis_decode_fn *decode[3][2];
} pl_float_kernels;

void pl_kernels_init_float_c(pl_kernels *k);
void pl_kernels_init_float_avx2(pl_kernels *k);
void pl_kernels_init_float_avx512(pl_kernels *k);
void pl_kernels_init_float_avx512bf16(pl_kernels *k);
void pl_kernels_init_expand_neon(pl_kernels *k);
void pl_kernels_init_float_neon(pl_kernels *k);

#endif
