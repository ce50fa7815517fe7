/* SPDX-License-Identifier: Apache-2.0
 *
 * One layer's part of a pl_linear_apply: its operands, and its product cut into units that any
 * thread may compute. The cuts depend on shapes alone. */
#ifndef PL_MODEL_LINEAR_TASK_H
#define PL_MODEL_LINEAR_TASK_H

#include "linear.h"

enum {
    PL_SPLIT_ROWS = 256, /* least stored rows of a partial sum, axis 0 */
    PL_MAX_SPLITS = 16,
    PL_NARROW = 16,   /* up to this many rows (M), splits of axis 0 are units of their own */
    PL_UNIT_ROWS = 32 /* weight rows in a unit */
};

typedef struct pl_linear_task {
    const pl_linear *l;
    size_t M;
    const float *x; /* [M][in], rotated; the caller's own when nothing is to be rotated */
    float *rotated; /* == x when this task makes it, else NULL */
    float *y;       /* [M][out] */
    size_t units;
    /* With one tile of rows: unit u computes up to `width` columns of y from u % across * width on,
     * or a split's part of them. */
    size_t across, width;
    /* Trellis and affine weights in integer arithmetic: rows = limbs M, those of one row of x
     * together. */
    size_t limbs, rows;
    int16_t *q;        /* [rows][q_stride] */
    float *steps;      /* [rows][groups]; affine [rows][groups / 2][2] (product.h) */
    uint8_t *prepared; /* axis 1: one part per PL_PRODUCT_ROWS rows, prepared_stride apart */
    size_t q_stride, groups, prepared_stride;
    /* Trellis weights in f32 and bf16. */
    uint8_t *floats; /* [M], float_bytes apart */
    size_t float_bytes;
    /* Axis 0. */
    size_t splits, split_rows;
    float *partials; /* [splits][rows][cols] when M <= PL_NARROW */
} pl_linear_task;

/* Whether M rows of integers or floats of a trellis product meet a tile (kernels/crossovers.h). */
bool pl_linear_task_by_tile(const pl_compute *c, const pl_linear_task *t, size_t M);
/* Integer arithmetic and a trellis or affine weight. */
bool pl_linear_task_is_integer(const pl_compute *c, const pl_linear *l);
/* Pieces of up to PL_PRODUCT_ROWS integer rows. */
size_t pl_linear_task_tiles(const pl_linear_task *t);
/* Fills in the shape of the product and the number of units. l and M are set. */
void pl_linear_task_shape(const pl_compute *c, pl_linear_task *t);
/* Scratch bytes of one thread. */
size_t pl_linear_task_scratch(const pl_compute *c, const pl_linear_task *t);
/* Row m of x to integers, when the task has q. */
void pl_linear_task_quantize(const pl_compute *c, const pl_linear_task *t, size_t m);
/* Integer rows 64 i .. 64 i + 63 as the kernels want them, after all are quantised. */
void pl_linear_task_prepare(const pl_compute *c, const pl_linear_task *t, size_t i);
/* One unit of the product. */
void pl_linear_task_run(const pl_compute *c, const pl_linear_task *t, size_t unit, void *scratch);
/* Columns [first, first + n) of row m of the result: partial sums, the code's unit, output rotation
 * and scale, bias. Both ends are the row's or lie between two blocks of the output rotation. */
void pl_linear_task_finish(const pl_compute *c, const pl_linear_task *t, size_t m, size_t first,
                           size_t n);

/* Row m of x, n numbers from `first` on, to integers of one group: q from the same place on in the
 * row's limbs, a step for each. */
void pl_linear_task_round(const pl_compute *c, const pl_linear_task *t, size_t m, size_t first,
                          size_t n, const float *scale, float step[2]);

/* Codes of a block of the stored matrix, and bytes from a stored row's to the next one's. */
const uint8_t *pl_linear_task_codes(const pl_linear_task *t, size_t row, size_t block);
size_t pl_linear_task_row_bytes(const pl_linear_task *t);

/* ---- linear_affine.c: the same for affine weights in integer arithmetic, int8 as int16 -------- */

void pl_linear_affine_shape(pl_linear_task *t);
size_t pl_linear_affine_scratch(const pl_linear_task *t);
void pl_linear_affine_quantize(const pl_compute *c, const pl_linear_task *t, size_t m);
void pl_linear_affine_run(const pl_compute *c, const pl_linear_task *t, size_t unit, void *scratch);

/* ---- linear_float.c: the same for trellis weights in f32 and bf16 ---------------------------- */

bool pl_linear_float_is(const pl_compute *c, const pl_linear *l);
void pl_linear_float_shape(pl_linear_task *t); /* after the splits of axis 0 are known */
size_t pl_linear_float_scratch(const pl_linear_task *t);
void pl_linear_float_prepare(const pl_compute *c, const pl_linear_task *t, size_t m);
void pl_linear_float_run(const pl_compute *c, const pl_linear_task *t, size_t unit, void *scratch);

#endif
