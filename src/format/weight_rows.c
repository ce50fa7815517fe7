/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights as plain f32 numbers: rows of dense and affine matrices, and whole matrices of any
 * coding with their rotations undone. The slow, clear way; fast products are kernels. */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/cpu.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/random.h"
#include "checkpoint.h"
#include "codec/expand.h"

/* ---- affine -------------------------------------------------------------------------------- */

static float round_bf16(float x)
{
    return pl_bf16_to_f32(pl_f32_to_bf16(x));
}
static float round_fp16(float x)
{
    return pl_fp16_to_f32(pl_f32_to_fp16(x));
}

/* w = q * scale + bias for one group, each operation rounded to the type of the scales. The codes
 * are a continuous string of bits; `q` points at the group's first byte, and 32 or more codes of
 * any width end on a byte. */
static void affine_group(const uint8_t *q, uint32_t bits, uint32_t n, pl_dtype type, float scale,
                         float bias, float *dst)
{
    uint32_t buffer = 0, held = 0, mask = (1u << bits) - 1;
    for (uint32_t i = 0; i < n; i++) {
        if (held < bits) {
            buffer |= (uint32_t)*q++ << held;
            held += 8;
        }
        float product = (float)(buffer & mask) * scale;
        buffer >>= bits;
        held -= bits;
        if (type == PL_BF16)
            dst[i] = round_bf16(round_bf16(product) + bias);
        else if (type == PL_F16)
            dst[i] = round_fp16(round_fp16(product) + bias);
        else
            dst[i] = product + bias;
    }
}

static void affine_row(const pl_weight *w, uint64_t row, float *dst)
{
    uint64_t groups = w->in / w->group_size;
    const uint8_t *q = pl_tensor_row(w->weight, row);
    const uint8_t *scales = pl_tensor_row(w->scales, row), *biases = pl_tensor_row(w->biases, row);
    uint32_t size = pl_dtype_get(w->scales->type)->block_bytes;
    for (uint64_t g = 0; g < groups; g++) {
        float scale, bias;
        pl_dequantize_row(w->scales->type, scales + g * size, &scale, 1);
        pl_dequantize_row(w->scales->type, biases + g * size, &bias, 1);
        affine_group(q + g * w->group_size * w->bits / 8, w->bits, w->group_size, w->scales->type,
                     scale, bias, dst + g * w->group_size);
    }
}

/* ---- dense --------------------------------------------------------------------------------- */

static void scale_fp8_row(const pl_weight *w, uint64_t row, float *dst)
{
    const pl_tensor *t = w->block_scale;
    const uint8_t *scales = pl_tensor_row(t, row / w->fp8_block[0]);
    uint32_t size = pl_dtype_get(t->type)->block_bytes;
    for (uint64_t first = 0; first < w->in; first += w->fp8_block[1]) {
        float scale;
        pl_dequantize_row(t->type, scales + first / w->fp8_block[1] * size, &scale, 1);
        uint64_t end = PL_MIN(w->in, first + w->fp8_block[1]);
        for (uint64_t i = first; i < end; i++) dst[i] *= scale;
    }
}

void pl_weight_rows_f32(const pl_weight *w, uint64_t row, uint64_t n, float *dst)
{
    for (uint64_t i = 0; i < n; i++, dst += w->in) {
        if (w->coding == PL_CODING_AFFINE) {
            affine_row(w, row + i, dst);
        } else {
            pl_tensor_row_f32(w->weight, row + i, dst);
            if (w->block_scale) scale_fp8_row(w, row + i, dst);
        }
    }
}

/* ---- trellis ------------------------------------------------------------------------------- */

enum { STRIP = 16 }; /* stored rows of axis 0 decoded at a time: a cache line of a row of W */

/* Element i of the diagonal of signs of a rotation. */
static float sign_at(const pl_rotation *r, uint64_t i)
{
    return pl_mix64(r->seed + 0x9e3779b97f4a7c15u * (i + 1)) & 1 ? -1.0f : 1.0f;
}

/* Rows of W [out][in] become those of R W with R = diag(signs) blockdiag(Hadamard / sqrt(block)).
 */
static void rotate_outputs(const pl_rotation *r, float *x, uint64_t out, uint64_t in)
{
    float factor = 1.0f / sqrtf((float)r->block);
    for (uint64_t first = 0; first < out; first += r->block)
        for (uint64_t stride = 1; stride < r->block; stride *= 2)
            for (uint64_t i = first; i < first + r->block; i++) {
                if (i & stride) continue; /* first is a multiple of the block, a power of two */
                float *a = x + i * in, *b = a + stride * in;
                for (uint64_t c = 0; c < in; c++) {
                    float sum = a[c] + b[c], difference = a[c] - b[c];
                    a[c] = sum;
                    b[c] = difference;
                }
            }
    for (uint64_t i = 0; i < out; i++) {
        float by = factor * sign_at(r, i);
        for (uint64_t c = 0; c < in; c++) x[i * in + c] *= by;
    }
}

/* The numbers as stored, turned to [out][in] without their padding. */
static pleach_status decode_codes(const pl_weight *w, const pl_kernels *k, float *dst,
                                  pleach_error *err)
{
    const pleach_trellis *g = &w->trellis;
    const void *codes = w->weight->data, *scales = w->scales->data;
    uint64_t n = g->axis ? 1 : STRIP;
    float *stored = pl_alloc(n * g->cols, sizeof *stored);
    if (!stored) return pl_fail_memory(err, w->weight->name, n * g->cols * sizeof *stored);
    for (uint64_t row = 0; row < g->rows; row += n) {
        uint64_t some = PL_MIN(n, g->rows - row);
        pl_trellis_decode_rows(g, k, stored, codes, scales, row, some);
        if (g->axis)
            memcpy(dst + row * w->in, stored, w->in * sizeof *dst);
        else
            for (uint64_t r = 0; r < w->out; r++)
                for (uint64_t i = 0; i < some; i++)
                    dst[r * w->in + row + i] = stored[i * g->cols + r];
    }
    pl_free(stored);
    return PLEACH_OK;
}

static pleach_status rotate_inputs(const pl_weight *w, const pl_kernels *k, float *dst,
                                   pleach_error *err)
{
    float *signs = pl_alloc(w->in, sizeof *signs);
    if (!signs) return pl_fail_memory(err, w->weight->name, w->in * sizeof *signs);
    for (uint64_t i = 0; i < w->in; i++) signs[i] = sign_at(&w->rotate_in, i);
    for (uint64_t r = 0; r < w->out; r++)
        k->unrotate(dst + r * w->in, signs, w->in, w->rotate_in.block);
    pl_free(signs);
    return PLEACH_OK;
}

static pleach_status trellis_dense(const pl_weight *w, float *dst, pleach_error *err)
{
    pl_kernels k;
    unsigned cpu = PL_CPU_C;
    pl_cpu_level(NULL, &cpu);
    pl_kernels_init(&k, cpu);
    PL_TRY(decode_codes(w, &k, dst, err));
    if (w->rotate_in.block) PL_TRY(rotate_inputs(w, &k, dst, err));
    if (w->rotate_out.block) rotate_outputs(&w->rotate_out, dst, w->out, w->in);
    for (uint64_t r = 0; w->output_scale && r < w->out; r++) {
        float scale;
        pl_dequantize_row(w->output_scale->type,
                          (const uint8_t *)w->output_scale->data +
                              r * pl_dtype_get(w->output_scale->type)->block_bytes,
                          &scale, 1);
        for (uint64_t c = 0; c < w->in; c++) dst[r * w->in + c] *= scale;
    }
    return PLEACH_OK;
}

pleach_status pl_weight_dense_f32(const pl_weight *w, float *dst, pleach_error *err)
{
    if (w->coding == PL_CODING_TRELLIS) return trellis_dense(w, dst, err);
    pl_weight_rows_f32(w, 0, w->out, dst);
    return PLEACH_OK;
}
