/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention in portable C: one query row at a time. */
#include "kernels/kernels.h"
#include "kernels/vector.h"

static void attend_row(const pl_attend_tile *t, size_t r, const float *keys, const float *values)
{
    size_t D = t->dim, lo = t->lo[r], hi = t->hi[r];
    const float *q = t->q + r * D;
    float *scores = t->scores + r * PL_ATTEND_BLOCK, *out = t->out + r * D;
    float max = t->max[r];
    for (size_t j = lo; j < hi; j++) {
        scores[j] = body_dot_f32(q, keys + j * D, D);
        if (!(scores[j] <= max)) max = scores[j]; /* NaN passes on */
    }
    float keep = exp_f32(t->max[r] - max);
    float sum = t->sum[r] * keep;
    for (size_t d = 0; d < D; d++) out[d] *= keep;
    for (size_t j = lo; j < hi; j++) {
        float p = exp_f32(scores[j] - max);
        const float *v = values + j * D;
        sum += p;
        body_axpy_f32(out, p, v, D);
    }
    t->max[r] = max;
    t->sum[r] = sum;
}

void pl_attend_c(const pl_attend_tile *t, const float *keys, const float *values, size_t n)
{
    (void)n;
    for (size_t r = 0; r < t->rows; r++)
        if (t->lo[r] < t->hi[r]) attend_row(t, r, keys, values);
}

static void rope_c(float *x, const float *cos, const float *sin, size_t half)
{
    for (size_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = a * cos[i] - b * sin[i];
        x[i + half] = b * cos[i] + a * sin[i];
    }
}

void pl_kernels_init_attention_c(pl_kernels *k)
{
    k->attend = pl_attend_c;
    k->rope = rope_c;
}
