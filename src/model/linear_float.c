/* SPDX-License-Identifier: Apache-2.0
 *
 * Units of a packed layer's product in the arithmetics f32 and bf16. */
#include <string.h>

#include "base/compiler.h"
#include "codec/trellis.h"
#include "linear_task.h"

enum { TILE_ROWS = 192 }; /* activation rows that one decoding of the weights serves */

static size_t ceil_div(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

static int type_of(const pl_compute *c)
{
    return c->arith == PLEACH_ARITH_BF16 ? PL_FLOAT_BF16 : PL_FLOAT_F32;
}

bool pl_linear_float_is(const pl_compute *c, const pl_linear *l)
{
    return l->w.coding == PL_CODING_TRELLIS &&
           (c->arith == PLEACH_ARITH_F32 || c->arith == PLEACH_ARITH_BF16);
}

void pl_linear_float_shape(pl_linear_task *t)
{
    const pleach_trellis *g = &t->l->w.trellis;
    size_t tiles = ceil_div(t->M, TILE_ROWS), blocks = g->cols / g->block;
    if (g->axis) {
        t->units = ceil_div(t->l->w.out, PL_UNIT_ROWS) * tiles;
        t->float_bytes = pl_float_prepared_bytes(g->block, blocks);
    } else {
        t->units = blocks * (t->M <= PL_NARROW ? t->splits : tiles);
        t->float_bytes = pl_float_prepared_bytes(g->rows, 1);
    }
}

size_t pl_linear_float_scratch(const pl_linear_task *t)
{
    size_t T = t->l->w.trellis.block, M = PL_MIN(t->M, TILE_ROWS);
    return pl_float_product_scratch(T, M) + M * T * sizeof(float);
}

void pl_linear_float_prepare(const pl_compute *c, const pl_linear_task *t, size_t m)
{
    const pleach_trellis *g = &t->l->w.trellis;
    const pl_float_kernels *k = &c->kernels.floats;
    const float *x = t->x + m * t->l->w.in;
    void *dst = t->floats + m * t->float_bytes;
    if (g->axis)
        k->prepare1[type_of(c)](dst, x, t->l->w.in, g->block, g->cols / g->block);
    else
        k->prepare0[type_of(c)](dst, x, t->l->row_scales, g->rows);
}

/* The product of `rows` stored rows from `row` on, from block b on, with M activation rows. */
static pl_float_product product_of(const pl_compute *c, const pl_linear_task *t, size_t row,
                                   size_t rows, size_t b, size_t m0, size_t M, void *scratch)
{
    const pleach_trellis *g = &t->l->w.trellis;
    return (pl_float_product){.codes = pl_linear_task_codes(t, row, b),
                              .row_bytes = pl_linear_task_row_bytes(t),
                              .rows = rows,
                              .block = g->block,
                              .blocks = g->cols / g->block,
                              .split = t->split_rows,
                              .scales = t->l->row_scales + row,
                              .M = M,
                              .tile = pl_linear_task_by_tile(c, t, M),
                              .x = t->floats + m0 * t->float_bytes,
                              .x_bytes = t->float_bytes,
                              .scratch = scratch};
}

static void run_axis0(const pl_compute *c, const pl_linear_task *t, size_t unit, void *scratch)
{
    const pleach_trellis *g = &t->l->w.trellis;
    size_t T = g->block, blocks = g->cols / T, b = unit % blocks, part = unit / blocks;
    pl_float_product_fn *multiply =
        c->kernels.floats.axis0[type_of(c)][g->bits - 2][g->state_bits == 16];
    if (t->M <= PL_NARROW) {
        size_t first = part * t->split_rows;
        pl_float_product p =
            product_of(c, t, first, PL_MIN(g->rows - first, t->split_rows), b, 0, t->M, scratch);
        p.first = first;
        p.out = t->partials + part * t->M * g->cols + b * T;
        p.out_stride = g->cols;
        multiply(&p);
        return;
    }
    size_t m0 = part * TILE_ROWS, M = PL_MIN(t->M - m0, TILE_ROWS), out = t->l->w.out;
    pl_float_product p = product_of(c, t, 0, g->rows, b, m0, M, scratch);
    p.out = (float *)(void *)((uint8_t *)scratch + pl_float_product_scratch(T, M));
    p.out_stride = T;
    multiply(&p);
    size_t n = out > b * T ? PL_MIN(T, out - b * T) : 0; /* padding is dropped */
    for (size_t m = 0; m < M; m++)
        memcpy(t->y + (m0 + m) * out + b * T, p.out + m * T, n * sizeof *p.out);
}

static void run_axis1(const pl_compute *c, const pl_linear_task *t, size_t unit, void *scratch)
{
    const pleach_trellis *g = &t->l->w.trellis;
    size_t tiles = ceil_div(t->M, TILE_ROWS), r = unit / tiles * PL_UNIT_ROWS, out = t->l->w.out;
    size_t m0 = unit % tiles * TILE_ROWS;
    pl_float_product p = product_of(c, t, r, PL_MIN(out - r, PL_UNIT_ROWS), 0, m0,
                                    PL_MIN(t->M - m0, TILE_ROWS), scratch);
    p.out = t->y + m0 * out + r;
    p.out_stride = out;
    c->kernels.floats.axis1[type_of(c)][g->bits - 2][g->state_bits == 16](&p);
    for (size_t m = 0; m < p.M && type_of(c) == PL_FLOAT_F32; m++)
        for (size_t j = 0; j < p.rows; j++)
            p.out[m * out + j] *= t->l->row_scales[r + j] * (1.0f / PL_TRELLIS_DIVISOR);
}

void pl_linear_float_run(const pl_compute *c, const pl_linear_task *t, size_t unit, void *scratch)
{
    (t->l->w.trellis.axis ? run_axis1 : run_axis0)(c, t, unit, scratch);
}
