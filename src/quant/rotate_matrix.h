/* SPDX-License-Identifier: Apache-2.0
 *
 * A weight matrix made ready for coding: read, rotated on both sides, scaled by output, and laid
 * out in stored-row order. */
#ifndef PL_QUANT_ROTATE_MATRIX_H
#define PL_QUANT_ROTATE_MATRIX_H

#include "kernels/kernels.h"
#include "plan.h"

#define PL_ROTATION_MAX_BLOCK 256

/* The Hadamard block for a width: the largest power of two up to 256 that divides it; 0 when that
 * is 1. */
uint32_t pl_rotation_block(uint64_t width);

/* dst [rows][cols] of item->trellis: W' = R_out^T diag(1/a) W diag(gain) R_in with padding zero, in
 * stored rows. When item->output_scale, output_scale [out] receives a as fp16 bits, a_o = RMS(row o)
 * over the mean of all rows' RMS (1 for a row of zeros); else it may be NULL. PLEACH_ERR_DATA names
 * tensor, row and column of the first NaN or infinity, and a tensor that is too large to rotate. The
 * same bits for every thread count. */
pleach_status pl_load_rotated(const pl_plan_item *item, const pl_kernels *kernels, pl_pool *pool,
                              const double *importance, float *dst, uint16_t *output_scale,
                              pleach_error *err);

/* Rows of W diag(gain) R_in, whatever the coding of the source. */
typedef struct pl_rows {
    const pl_plan_item *item;
    pl_rotate_fn *rotate;
    float *whole, *signs; /* or NULL */
} pl_rows;
pleach_status pl_rows_open(pl_rows *r, const pl_plan_item *item, pl_rotate_fn *rotate,
                           pleach_error *err);
void pl_rows_close(pl_rows *r); /* accepts a zeroed one */
/* power [n], or NULL: the sum of squares of each row. Else as pl_read_rows. Any thread. */
bool pl_rows_read(const pl_rows *r, uint64_t row, uint64_t n, float *dst, double *power,
                  uint64_t *bad_row, uint64_t *bad_col);

#define PL_ROTATE_COLUMNS 16 /* turned at once: a cache line of f32 */
/* One block of rows [r->block][width], `stride` apart, becomes R^T times it. signs: of those rows;
 * tile [PL_ROTATE_COLUMNS][r->block] is scratch. */
void pl_rotate_across(pl_rotate_fn *rotate, const float *signs, size_t block, float *rows,
                      size_t width, size_t stride, float *tile);

/* Rows [row, row + n) of any source weight in f32, checked to be finite. whole: the matrix from
 * pl_weight_dense_f32 for a trellis source, else NULL. Returns the column of the first NaN or
 * infinity in *bad_row and *bad_col, or false when there is none. */
bool pl_read_rows(const pl_weight *w, const float *whole, uint64_t row, uint64_t n, float *dst,
                  uint64_t *bad_row, uint64_t *bad_col);

/* For a trellis source: the whole of W in f32 in fresh memory; *whole NULL for others. */
pleach_status pl_read_whole(const pl_weight *w, float **whole, pleach_error *err);

/* The line for a bad value of the source. */
pleach_status pl_fail_value(pleach_error *err, const char *module, uint64_t row, uint64_t col);

#endif
