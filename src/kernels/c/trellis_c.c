/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis products in portable C: decode a group of numbers to integers (y, or the 8-bit w),
 * multiply, add. It defines the right answer, so it follows the formulas of product.h one by one.
 */
#include <stdbool.h>
#include <string.h>

#include "kernels/kernels.h"
#include "trellis_values.h"

/* The 8-bit weights w in place of y. */
static PL_ALWAYS_INLINE void round_values(int16_t *y, size_t T)
{
    for (size_t t = 0; t < T; t++) y[t] = (int16_t)(8 * ((y[t] + 510) >> 2) - 1017);
}

static PL_ALWAYS_INLINE void add_product(float *sum, float step, int32_t integer)
{
    *sum += step * (float)integer;
}

/* sums[t] += step * (sum over the n rows of q[r] * y[r][t]). */
static void axis0_group(float *sums, const int16_t *y, size_t n, size_t T, const int16_t *q,
                        float step)
{
    int32_t integer[PL_TRELLIS_MAX_BLOCK] = {0};
    for (size_t r = 0; r < n; r++)
        for (size_t t = 0; t < T; t++) integer[t] += q[r] * y[r * T + t];
    for (size_t t = 0; t < T; t++) add_product(&sums[t], step, integer[t]);
}

static PL_ALWAYS_INLINE void axis0(const pl_trellis_product *p, unsigned k, unsigned L, bool i8)
{
    size_t T = p->block;
    int16_t *y = p->scratch;
    float *sums = (float *)(void *)(y + PL_GROUP_AXIS0 * T); /* [M][T] of the current split */
    for (size_t first = 0; first < p->rows; first += p->split) {
        size_t end = PL_MIN(first + p->split, p->rows);
        memset(sums, 0, p->M * T * sizeof *sums);
        for (size_t r0 = first; r0 < end; r0 += PL_GROUP_AXIS0) {
            size_t n = PL_MIN(end - r0, PL_GROUP_AXIS0);
            for (size_t r = 0; r < n; r++)
                values_of_block(y + r * T, p->codes + (r0 + r) * p->row_bytes, T, k, L);
            if (i8) round_values(y, n * T);
            for (size_t m = 0; m < p->M; m++)
                axis0_group(sums + m * T, y, n, T, (const int16_t *)p->q + m * p->q_stride + r0,
                            p->steps[m * p->step_stride + r0 / PL_GROUP_AXIS0]);
        }
        for (size_t m = 0; m < p->M; m++)
            for (size_t t = 0; t < T; t++) {
                float *out = &p->out[m * p->out_stride + t];
                *out = (first ? *out : 0) + sums[m * T + t];
            }
    }
}

static PL_ALWAYS_INLINE void axis1(const pl_trellis_product *p, unsigned k, unsigned L, bool i8)
{
    size_t T = p->block, groups = pl_block_groups(T);
    for (size_t r = 0; r < p->rows; r++) {
        for (size_t m = 0; m < p->M; m++) p->out[m * p->out_stride + r] = 0;
        for (size_t b = 0; b < p->blocks; b++) {
            int16_t y[PL_TRELLIS_MAX_BLOCK];
            values_of_block(y, p->codes + r * p->row_bytes + b * T * k / 8, T, k, L);
            if (i8) round_values(y, T);
            for (size_t m = 0; m < p->M; m++)
                for (size_t g = 0; g < groups; g++) {
                    const int16_t *q = (const int16_t *)p->q + (m * p->blocks + b) * T;
                    size_t end = T - g * PL_GROUP_AXIS1;
                    int32_t integer = 0;
                    for (size_t t = end > PL_GROUP_AXIS1 ? end - PL_GROUP_AXIS1 : 0; t < end; t++)
                        integer += q[t] * y[t];
                    add_product(&p->out[m * p->out_stride + r],
                                p->steps[m * p->step_stride + b * groups + g], integer);
                }
        }
    }
}

static void prepare_c(void *dst, const int16_t *q, size_t block, size_t blocks, size_t M,
                      bool tile)
{
    (void)tile;
    memcpy(dst, q, M * blocks * block * sizeof *q);
}

#define TRELLIS_KERNELS(k, L)                                                                      \
    static void axis0_k##k##_l##L##_c(const pl_trellis_product *p)                                 \
    {                                                                                              \
        axis0(p, k, L, false);                                                                     \
    }                                                                                              \
    static void axis0_i8_k##k##_l##L##_c(const pl_trellis_product *p)                              \
    {                                                                                              \
        axis0(p, k, L, true);                                                                      \
    }                                                                                              \
    static void axis1_k##k##_l##L##_c(const pl_trellis_product *p)                                 \
    {                                                                                              \
        axis1(p, k, L, false);                                                                     \
    }                                                                                              \
    static void axis1_i8_k##k##_l##L##_c(const pl_trellis_product *p)                              \
    {                                                                                              \
        axis1(p, k, L, true);                                                                      \
    }

PL_EACH_CODE(TRELLIS_KERNELS)

void pl_kernels_init_trellis_c(pl_kernels *k)
{
    k->product.prepare = k->product.prepare_i8 = prepare_c;
#define SET(k_, L_)                                                                                \
    k->product.axis0[k_ - 2][L_ == 16] = axis0_k##k_##_l##L_##_c;                                  \
    k->product.axis1[k_ - 2][L_ == 16] = axis1_k##k_##_l##L_##_c;                                  \
    k->product.axis0_i8[k_ - 2][L_ == 16] = axis0_i8_k##k_##_l##L_##_c;                            \
    k->product.axis1_i8[k_ - 2][L_ == 16] = axis1_i8_k##k_##_l##L_##_c;
    PL_EACH_CODE(SET)
#undef SET
}
