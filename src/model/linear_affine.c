/* SPDX-License-Identifier: Apache-2.0
 *
 * Units of an affine layer's product in integer arithmetic. */
#include "base/compiler.h"
#include "linear_task.h"

enum { HEAD = 8192 }; /* outputs from which on units are larger: their rows are cheap */

static size_t unit_rows(const pl_linear_task *t)
{
    return t->l->w.out >= HEAD ? 4 * PL_UNIT_ROWS : PL_UNIT_ROWS;
}

void pl_linear_affine_shape(pl_linear_task *t)
{
    const pl_weight *w = &t->l->w;
    t->width = unit_rows(t);
    t->across = (w->out + t->width - 1) / t->width;
    t->units = t->across * pl_linear_task_tiles(t);
    t->groups = 2 * (w->in / w->group_size);
    t->q_stride = w->in + 32; /* a multiple of 4096 bytes would have all rows in one set */
}

/* The two limbs' results, before they are added. */
size_t pl_linear_affine_scratch(const pl_linear_task *t)
{
    return t->limbs == 2 ? PL_MIN(t->rows, PL_PRODUCT_ROWS) * t->width * sizeof(float) : 0;
}

/* A group's step, and with it the sum of its integers, which the bias is multiplied with. */
void pl_linear_affine_quantize(const pl_compute *c, const pl_linear_task *t, size_t m)
{
    size_t group = t->l->w.group_size;
    for (size_t g = 0; g < t->groups / 2; g++) {
        float step[2];
        pl_linear_task_round(c, t, m, g * group, group, NULL, step);
        for (size_t i = 0; i < t->limbs; i++) {
            const int16_t *q = t->q + (m * t->limbs + i) * t->q_stride + g * group;
            float *to = t->steps + (m * t->limbs + i) * t->groups + 2 * g;
            int32_t sum = 0;
            for (size_t j = 0; j < group; j++) sum += q[j];
            to[0] = step[i];
            to[1] = (float)sum * to[0];
        }
    }
}

static int type_of(const pl_weight *w)
{
    return w->scales->type == PL_BF16 ? PL_AFFINE_BF16
           : w->scales->type == PL_F16 ? PL_AFFINE_F16
                                       : PL_AFFINE_F32;
}

void pl_linear_affine_run(const pl_compute *c, const pl_linear_task *t, size_t unit, void *scratch)
{
    const pl_weight *w = &t->l->w;
    size_t tiles = pl_linear_task_tiles(t), r = unit / tiles * t->width;
    size_t m0 = unit % tiles * PL_PRODUCT_ROWS, out = w->out;
    float *y = t->y + m0 / t->limbs * out + r;
    pl_affine_product p = {.codes = pl_tensor_row(w->weight, r),
                           .row_bytes = w->in * w->bits / 8,
                           .scales = pl_tensor_row(w->scales, r),
                           .biases = pl_tensor_row(w->biases, r),
                           .type = type_of(w),
                           .bits = w->bits,
                           .group = w->group_size,
                           .rows = PL_MIN(out - r, t->width),
                           .n = w->in,
                           .M = PL_MIN(t->rows - m0, PL_PRODUCT_ROWS),
                           .q = t->q + m0 * t->q_stride,
                           .q_stride = t->q_stride,
                           .steps = t->steps + m0 * t->groups,
                           .step_stride = t->groups,
                           .out = t->limbs == 2 ? scratch : y,
                           .out_stride = t->limbs == 2 ? t->width : out};
    c->kernels.product.affine_product(&p);
    for (size_t m = 0; m < p.M && t->limbs == 2; m += 2) {
        const float *hi = p.out + m * t->width, *lo = hi + t->width;
        for (size_t j = 0; j < p.rows; j++) y[m / 2 * out + j] = hi[j] + lo[j];
    }
}
