/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layers of every coding. */
#include "linear.h"

#include <string.h>

#include "base/half.h"
#include "base/memory.h"
#include "base/random.h"

#define YSCALE (1.0f / 147.800537109375f)

void pl_rotation_signs(const pl_rotation *r, float *signs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t h = pl_mix64(r->seed + 0x9e3779b97f4a7c15u * (uint64_t)(i + 1));
        signs[i] = h & 1 ? -1.0f : 1.0f;
    }
}

static pleach_status read_vector(const pl_tensor *t, uint64_t n, float **out, pleach_error *err)
{
    PL_FAIL_IF(pl_tensor_elements(t) != n, err, PLEACH_ERR_SHAPE,
               "%s: %llu elements, expected %llu", t->name,
               (unsigned long long)pl_tensor_elements(t), (unsigned long long)n);
    *out = pl_alloc(n, sizeof **out);
    if (!*out) return pl_fail_memory(err, t->name, n * sizeof **out);
    pl_tensor_row_f32(t, 0, *out);
    return PLEACH_OK;
}

static pleach_status make_signs(const pl_rotation *r, uint64_t n, float **out, pleach_error *err)
{
    *out = pl_alloc(n, sizeof **out);
    if (!*out) return pl_fail_memory(err, "rotation signs", n * sizeof **out);
    pl_rotation_signs(r, *out, n);
    return PLEACH_OK;
}

static pleach_status open_parts(pl_linear *l, pleach_error *err)
{
    const pl_weight *w = &l->w;
    if (w->bias) PL_TRY(read_vector(w->bias, w->out, &l->bias, err));
    if (w->output_scale) PL_TRY(read_vector(w->output_scale, w->out, &l->output_scale, err));
    if (w->rotate_in.block) PL_TRY(make_signs(&w->rotate_in, w->in, &l->input_signs, err));
    if (w->rotate_out.block) PL_TRY(make_signs(&w->rotate_out, w->out, &l->output_signs, err));
    return PLEACH_OK;
}

pleach_status pl_linear_open(pl_linear *l, const pl_weight *w, pleach_error *err)
{
    *l = (pl_linear){.w = *w};
    pleach_status status = open_parts(l, err);
    if (status != PLEACH_OK) pl_linear_close(l);
    return status;
}

void pl_linear_close(pl_linear *l)
{
    pl_free(l->bias);
    pl_free(l->input_signs);
    pl_free(l->output_signs);
    pl_free(l->output_scale);
    *l = (pl_linear){0};
}

void pl_linear_row(const pl_linear *l, uint64_t row, float *dst)
{
    pl_weight_rows_f32(&l->w, row, 1, dst);
}

/* dst[t] = y of number t of a block. */
static void block_values(int16_t *dst, const uint8_t *block, const pleach_trellis *t)
{
    uint8_t bytes[1024 * 4 / 8 + 8];
    size_t n = t->block * t->bits / 8;
    memcpy(bytes, block, n);
    memcpy(bytes + n, block, 8);
    for (size_t i = 0; i < t->block; i++) {
        size_t start = (t->block - 1 - i) * t->bits;
        uint32_t word;
        memcpy(&word, bytes + start / 8, sizeof word);
        uint32_t x = (word >> start % 8 & ((1u << t->state_bits) - 1)) * 34038481u + 76625530u;
        dst[i] = (int16_t)((x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24)) - 510;
    }
}

static const uint8_t *block_at(const pl_weight *w, size_t row, size_t b)
{
    const pleach_trellis *t = &w->trellis;
    size_t bytes = t->block * t->bits / 8, blocks = t->cols / t->block;
    const uint8_t *base = w->weight->data;
    if (t->interleaved) return base + ((b / 2 * t->rows + row) * 2 + b % 2) * bytes;
    return base + (row * blocks + b) * bytes;
}

static void apply_trellis(const pl_compute *c, const pl_linear *l, const float *x, float *y)
{
    const pleach_trellis *t = &l->w.trellis;
    memset(y, 0, l->w.out * sizeof *y);
    for (size_t r = 0; r < t->rows; r++)
        for (size_t b = 0; b < t->cols / t->block; b++) {
            int16_t v[1024];
            float scale, sum = 0;
            block_values(v, block_at(&l->w, r, b), t);
            uint16_t half;
            memcpy(&half, (const uint8_t *)l->w.scales->data + 2 * r, 2);
            scale = pl_fp16_to_f32(half);
            size_t n = PL_MIN(t->block, (t->axis ? l->w.in : l->w.out) - b * t->block);
            for (size_t i = 0; i < n; i++) {
                float weight = (float)v[i] * YSCALE * scale;
                if (c->arith == PLEACH_ARITH_BF16)
                    weight = pl_bf16_to_f32(
                        pl_f32_to_bf16((float)v[i] / 147.800537109375f * scale));
                if (t->axis) sum += weight * x[b * t->block + i];
                else y[b * t->block + i] += weight * x[r];
            }
            if (t->axis) y[r] += sum;
        }
}

static void apply_rows(const pl_compute *c, const pl_linear *l, const float *x, size_t M, float *y,
                       float *row)
{
    for (size_t r = 0; r < l->w.out; r++) {
        pl_weight_rows_f32(&l->w, r, 1, row);
        for (size_t m = 0; m < M; m++)
            y[m * l->w.out + r] = c->kernels.dot_f32(row, x + m * l->w.in, l->w.in);
    }
}

static void finish(const pl_compute *c, const pl_linear *l, float *y)
{
    if (l->w.rotate_out.block)
        c->kernels.unrotate(y, l->output_signs, l->w.out, l->w.rotate_out.block);
    for (size_t i = 0; l->output_scale && i < l->w.out; i++) y[i] *= l->output_scale[i];
    for (size_t i = 0; l->bias && i < l->w.out; i++) y[i] += l->bias[i];
}

size_t pl_linear_scratch(const pl_compute *c, const pl_linear *const *layers, size_t n, size_t M)
{
    (void)c, (void)n;
    return (M + 1) * layers[0]->w.in * sizeof(float) + PL_ALIGNMENT;
}

void pl_linear_apply(const pl_compute *c, const pl_linear *const *layers, size_t n, const float *x,
                     size_t M, float *const *y, void *scratch)
{
    for (size_t i = 0; i < n; i++) {
        const pl_linear *l = layers[i];
        size_t in = l->w.in;
        float *rotated = scratch, *row = rotated + M * in;
        memcpy(rotated, x, M * in * sizeof *x);
        for (size_t m = 0; l->w.rotate_in.block && m < M; m++)
            c->kernels.rotate(rotated + m * in, l->input_signs, in, l->w.rotate_in.block);
        if (l->w.coding != PL_CODING_TRELLIS) {
            apply_rows(c, l, rotated, M, y[i], row);
        } else {
#pragma omp parallel for num_threads(c->threads)
            for (size_t m = 0; m < M; m++)
                apply_trellis(c, l, rotated + m * in, y[i] + m * l->w.out);
        }
        for (size_t m = 0; m < M; m++) finish(c, l, y[i] + m * l->w.out);
    }
}
