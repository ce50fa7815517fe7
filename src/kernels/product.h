/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products: types of the kernels that multiply coded or plain weights with activations.
 * Contracts with pictures: docs/kernels.md, "Trellis products" and "Plain products". */
#ifndef PL_KERNELS_PRODUCT_H
#define PL_KERNELS_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "crossovers.h"

typedef struct pl_kernels pl_kernels;

enum {
    PL_PRODUCT_ROWS = 64, /* most activation rows (M) in one call of a trellis product */
    PL_GROUP_AXIS0 = 64,  /* stored rows that share one activation step, axis 0 */
    PL_GROUP_AXIS1 = 128, /* numbers of a block that share one activation step, axis 1 */
    PL_SPAN = 128         /* blocks are padded to this many numbers in scratch memory */
};

/* T rounded up to whole spans. */
static inline size_t pl_span_round(size_t block)
{
    return (block + PL_SPAN - 1) / PL_SPAN * PL_SPAN;
}

/* Groups of one block, axis 1: the first one ends at the block's last number. */
static inline size_t pl_block_groups(size_t block)
{
    return (block + PL_GROUP_AXIS1 - 1) / PL_GROUP_AXIS1;
}

/* ---- activations ----------------------------------------------------------------------------- */

/* Integer activations of one group, n <= 128 numbers a[i] = x[i] * scale[i] (scale NULL: x[i]), and
 * the step between them. max|a| below 2^-100 gives step 0 and zeros; NaN or infinity gives step NaN
 * and zeros. All roundings are to nearest, ties to even. Exact.
 *   i16:   q[i] = round(a[i] * (32767 / max|a|)), returns max|a| / 32767
 *   i8:    q[i] = round(a[i] * (127 / max|a|)),   returns max|a| / 254: weights are doubled (w) */
typedef float pl_quantize_fn(int16_t *q, const float *x, const float *scale, size_t n);
/*   i16x2: Q = round(a[i] * (32766 * 2^15 / max|a|)) in doubles, hi[i] = Q >> 15, lo[i] =
 *          Q & 32767, returns max|a| / (32766 * 2^15): the step of lo, hi's is 2^15 times that */
typedef float pl_quantize_i16x2_fn(int16_t *hi, int16_t *lo, const float *x, const float *scale,
                                   size_t n);

/* ---- trellis products ------------------------------------------------------------------------ */

/* One unit of work. y(r, t) is the integer y of number t of stored row r (codec/trellis.h). The i8
 * products take w(r, t) = 8 h - 1017, h = floor((y(r, t) + 510) / 4), in place of y: twice y, in
 * 8 bits. */
typedef struct pl_trellis_product {
    const uint8_t *codes; /* first block of the first stored row; any alignment */
    size_t row_bytes;     /* from a stored row to the next */
    size_t rows;          /* stored rows */
    size_t block, blocks; /* T; blocks side by side: axis 1 alone */
    size_t split;         /* axis 0: stored rows of a partial sum, a multiple of 64 */
    size_t M;             /* 1 .. PL_PRODUCT_ROWS */
    bool tile;            /* crossovers.h; the result is the same bits */
    const void *q;        /* axis 0: int16 [M][q_stride], i8: -127 .. 127; axis 1: prepared */
    size_t q_stride;
    const float *steps; /* [M][step_stride] */
    size_t step_stride;
    float *out; /* [M][out_stride] */
    size_t out_stride;
    void *scratch; /* pl_trellis_product_scratch bytes, 64-byte aligned */
} pl_trellis_product;

size_t pl_trellis_product_scratch(size_t block, size_t M);

/* Axis 0: out[m][t] = sum over splits s of
 *                     sum over groups g of s of  steps[m][g] * f32(sum over rows r of g of
 *                                                                  q[m][r] * y(r, t)),  t < T.
 * q holds zeros from `rows` up to the next multiple of 64. All sums in ascending order from 0, each
 * product and sum rounded; the innermost is an integer and fits in 32 bits.
 * Axis 1: out[m][r] = sum over blocks b, groups g of b of  steps[m][b, g] * f32(sum over t of g of
 *                                                                  q[m][b T + t] * y(r, b T + t)),
 * group g of a block being numbers T - 128 (g + 1) .. T - 128 g - 1, the last one cut off at 0.
 * Exact: same bits on every ISA and for every M. */
typedef void pl_trellis_product_fn(const pl_trellis_product *p);

/* Arranges the activations of axis 1 as this level's product wants them.
 *   dst  pl_trellis_prepared_bytes(block, blocks, M) bytes, 64-byte aligned; the product must be
 *        called with the same M and tile
 *   q    [M][blocks * block] in the order of the inputs */
typedef void pl_trellis_prepare_fn(void *dst, const int16_t *q, size_t block, size_t blocks,
                                   size_t M, bool tile);
size_t pl_trellis_prepared_bytes(size_t block, size_t blocks, size_t M);

/* ---- plain products -------------------------------------------------------------------------- */

/* y[m][r] = sum over k of w[r][k] * x[m][k], m < M, r < rows. Bounded: |error| <=
 * (K / 8 + 8) eps sum|w x|. On one ISA a sum has the same bits for every M and rows. */
typedef void pl_product_rows_fn(float *y, size_t y_stride, const float *w, size_t w_stride,
                                size_t rows, const float *x, size_t x_stride, size_t M, size_t K);

/* ---- affine products ------------------------------------------------------------------------- */

enum { PL_AFFINE_BF16, PL_AFFINE_F16, PL_AFFINE_F32, PL_AFFINE_TYPES }; /* of scales and biases */

/* Codes c(r, i) of 2, 3, 4, 5, 6 or 8 bits in groups that have a scale and a bias (docs/format.md,
 * "Affine groups"), and activations rounded in the same groups. */
typedef struct pl_affine_product {
    const uint8_t *codes;        /* first row; any alignment */
    size_t row_bytes;            /* from a row to the next */
    const void *scales, *biases; /* [rows][n / group] as read from the file, any alignment */
    int type;                    /* PL_AFFINE_... */
    unsigned bits;
    size_t group;   /* 32, 64 or 128 */
    size_t rows, n; /* n inputs, a multiple of group */
    size_t M;       /* 1 or more */
    const int16_t *q;
    size_t q_stride;    /* q [M][q_stride] */
    const float *steps; /* [M][step_stride]: of group g its step, then f32(sum of its q) * step */
    size_t step_stride;
    float *out; /* [M][out_stride] */
    size_t out_stride;
} pl_affine_product;

/* out[m][r] = sum over groups g of  (f32(sum over i of g of q[m][i] * c(r, i)) * step) * scale
 *                                   + (f32(sum over i of g of q[m][i]) * step) * bias,
 * groups in ascending order from 0, each product and sum rounded to f32. The inner sums are integers
 * and fit in 32 bits. Exact: same bits on every ISA and for every M and rows; a NaN is any NaN. */
typedef void pl_affine_product_fn(const pl_affine_product *p);
pl_affine_product_fn pl_affine_product_c; /* serves other levels where there are few rows */

/* ---- rows of plain codings ------------------------------------------------------------------- */

/* dst[0..n) = what pl_dequantize_row gives for this type; n a multiple of the type's block, or of 8
 * for bf16 and f16. Exact. NULL where a level has none: format/dtype.c serves then. */
typedef void pl_dequantize_fn(float *dst, const void *src, size_t n);

/* One row of affine groups: dst[i] = round(round(q[i] * scale) + bias), rounding to the type of the
 * scales and biases, which are bits as read from the file, any alignment. n is a multiple of group,
 * group of 32. Exact, but for the sign of zeros. NULL where a level has none: pl_weight_rows_f32
 * serves then. */
typedef void pl_affine_row_fn(float *dst, const void *src, const void *scales, const void *biases,
                              size_t n, size_t group);

/* ---- entries --------------------------------------------------------------------------------- */

typedef struct pl_product_kernels {
    pl_quantize_fn *quantize_i16, *quantize_i8;
    pl_quantize_i16x2_fn *quantize_i16x2;
    /* [k - 2][L == 16] */
    pl_trellis_product_fn *axis0[3][2], *axis1[3][2];
    pl_trellis_product_fn *axis0_i8[3][2], *axis1_i8[3][2];
    pl_trellis_prepare_fn *prepare, *prepare_i8;
    pl_product_rows_fn *rows;
    pl_affine_product_fn *affine_product;
    pl_dequantize_fn *bf16, *f16, *q8_0, *q4_0, *q4_1;
    pl_affine_row_fn *affine[9][PL_AFFINE_TYPES]; /* [bits] */
} pl_product_kernels;

void pl_kernels_init_product_c(pl_kernels *k);
void pl_kernels_init_product_avx2(pl_kernels *k);
void pl_kernels_init_product_avx512(pl_kernels *k);
void pl_kernels_init_product_neon(pl_kernels *k);
void pl_kernels_init_affine_c(pl_kernels *k);
void pl_kernels_init_affine_avx2(pl_kernels *k);
void pl_kernels_init_affine_avx512(pl_kernels *k);
void pl_kernels_init_affine_neon(pl_kernels *k);
void pl_kernels_init_trellis_c(pl_kernels *k);
void pl_kernels_init_trellis_avx2(pl_kernels *k);
void pl_kernels_init_trellis_avx512(pl_kernels *k);
void pl_kernels_init_trellis_neon(pl_kernels *k);
void pl_kernels_init_trellis_dotprod(pl_kernels *k);

#endif
