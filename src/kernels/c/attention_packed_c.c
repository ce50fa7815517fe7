/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on packed pages in portable C: the codec decodes each position once, for all rows. */
#include <string.h>

#include "codec/turboquant.h"
#include "kernels/kernels.h"
#include "kernels/vector.h"

void pl_attend_prepare_c(float *dst, const float *q, size_t rows, const pl_turboquant *type)
{
    size_t D = type->dim;
    for (; rows; rows--, q += D, dst += D + PL_ATTEND_SUMS) {
        memcpy(dst, q, D * sizeof *q);
        memset(dst + D, 0, PL_ATTEND_SUMS * sizeof *dst);
        for (size_t i = 0; i < D; i++) dst[D + i / PL_TURBOQUANT_GROUP] += q[i];
    }
}

/* The positions that any row sees. */
static void visible(const pl_attend_tile *t, size_t *lo, size_t *hi)
{
    *lo = PL_ATTEND_BLOCK;
    *hi = 0;
    for (size_t r = 0; r < t->rows; r++)
        if (t->lo[r] < t->hi[r]) {
            *lo = PL_MIN(*lo, t->lo[r]);
            *hi = PL_MAX(*hi, t->hi[r]);
        }
}

static void add_scores(const pl_attend_tile *t, const float *key, size_t j)
{
    size_t D = t->dim;
    for (size_t r = 0; r < t->rows; r++)
        if (t->lo[r] <= j && j < t->hi[r])
            t->scores[r * PL_ATTEND_BLOCK + j] =
                body_dot_f32(t->q + r * (D + PL_ATTEND_SUMS), key, D);
}

/* Turns a row's scores into exp(score - max), and what was summed so far to the new maximum. */
static void softmax_row(const pl_attend_tile *t, size_t r)
{
    float *scores = t->scores + r * PL_ATTEND_BLOCK, *out = t->out + r * t->dim, max = t->max[r];
    for (size_t j = t->lo[r]; j < t->hi[r]; j++)
        if (!(scores[j] <= max)) max = scores[j]; /* NaN passes on */
    float keep = exp_f32(t->max[r] - max), sum = t->sum[r] * keep;
    for (size_t d = 0; d < t->dim; d++) out[d] *= keep;
    for (size_t j = t->lo[r]; j < t->hi[r]; j++) sum += scores[j] = exp_f32(scores[j] - max);
    t->max[r] = max;
    t->sum[r] = sum;
}

static void add_values(const pl_attend_tile *t, const float *value, size_t j)
{
    for (size_t r = 0; r < t->rows; r++)
        if (t->lo[r] <= j && j < t->hi[r])
            body_axpy_f32(t->out + r * t->dim, t->scores[r * PL_ATTEND_BLOCK + j], value, t->dim);
}

static void attend_packed_c(const pl_attend_tile *t, const pl_turboquant *type,
                            const uint8_t *keys, const uint8_t *values, size_t n)
{
    (void)n;
    float x[PL_TURBOQUANT_MAX_DIM];
    const pl_turboquant_plain plain = {.data = x};
    size_t lo, hi;
    visible(t, &lo, &hi);
    for (size_t j = lo; j < hi; j++) {
        pl_turboquant_view at = pl_turboquant_key_page(type, (void *)keys, PL_ATTEND_BLOCK, j);
        pl_turboquant_decode_keys(type, &at, &plain, 1);
        add_scores(t, x, j);
    }
    for (size_t r = 0; r < t->rows; r++)
        if (t->lo[r] < t->hi[r]) softmax_row(t, r);
    for (size_t j = lo; j < hi; j++) {
        pl_turboquant_view at = pl_turboquant_value_page(type, (void *)values, PL_ATTEND_BLOCK, j);
        pl_turboquant_decode_values(type, NULL, &at, &plain, 1, true);
        add_values(t, x, j);
    }
}

void pl_kernels_init_packed_c(pl_kernels *k)
{
    k->attend_prepare = pl_attend_prepare_c;
    k->attend_packed = attend_packed_c;
}
