/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights as plain f32 numbers: rows of dense and affine matrices, and whole matrices of any
 * coding with their rotations undone. The slow, clear way; fast products are kernels. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/memory.h"
#include "base/random.h"
#include "checkpoint.h"

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

/* Element i of the diagonal of signs of a rotation. */
static float sign_at(const pl_rotation *r, uint64_t i)
{
    return pl_mix64(r->seed + 0x9e3779b97f4a7c15u * (i + 1)) & 1 ? -1.0f : 1.0f;
}

/* x[i * step] for i < n becomes R x with R = diag(signs) blockdiag(Hadamard / sqrt(block)). */
static void apply_rotation(const pl_rotation *r, float *x, uint64_t n, uint64_t step)
{
    float factor = 1.0f / sqrtf((float)r->block);
    for (uint64_t stride = 1; stride < r->block; stride *= 2)
        for (uint64_t i = 0; i < n; i++) {
            if (i & stride) continue; /* n is a multiple of the block, a power of two */
            float a = x[i * step], b = x[(i + stride) * step];
            x[i * step] = a + b;
            x[(i + stride) * step] = a - b;
        }
    for (uint64_t i = 0; i < n; i++) x[i * step] *= factor * sign_at(r, i);
}

/* The codes and scales may start at any byte of the file; the decoder wants whole words. */
static const void *aligned(const pl_tensor *t, size_t alignment, void **copy)
{
    if ((uintptr_t)t->data % alignment == 0) return t->data;
    *copy = pl_alloc(t->n_bytes, 1);
    if (*copy) memcpy(*copy, t->data, t->n_bytes);
    return *copy;
}

/* What the codes stand for, as stored: [rows][cols] f32 in fresh memory. */
static pleach_status decode_codes(const pl_weight *w, float **out, pleach_error *err)
{
    const pleach_trellis *g = &w->trellis;
    void *codes_copy = NULL, *scales_copy = NULL;
    const uint32_t *codes = aligned(w->weight, 4, &codes_copy);
    const uint16_t *scales = aligned(w->scales, 2, &scales_copy);
    uint64_t n = g->rows * g->cols;
    float *decoded = pl_alloc(n, sizeof *decoded);
    pleach_status status = PLEACH_OK;
    if (!codes || !scales || !decoded)
        status = pl_fail_memory(err, w->weight->name, n * sizeof *decoded);
    else if ((status = pleach_trellis_decode(g, decoded, codes, scales)) != PLEACH_OK)
        pl_fail(err, status, "%s cannot be decoded", w->weight->name);
    pl_free(codes_copy);
    pl_free(scales_copy);
    if (status == PLEACH_OK)
        *out = decoded;
    else
        pl_free(decoded);
    return status;
}

static pleach_status trellis_dense(const pl_weight *w, float *dst, pleach_error *err)
{
    const pleach_trellis *g = &w->trellis;
    float *stored;
    PL_TRY(decode_codes(w, &stored, err));
    for (uint64_t r = 0; r < w->out; r++)
        for (uint64_t c = 0; c < w->in; c++)
            dst[r * w->in + c] = stored[g->axis ? r * g->cols + c : c * g->cols + r];
    pl_free(stored);
    if (w->rotate_in.block)
        for (uint64_t r = 0; r < w->out; r++)
            apply_rotation(&w->rotate_in, dst + r * w->in, w->in, 1);
    if (w->rotate_out.block)
        for (uint64_t c = 0; c < w->in; c++) apply_rotation(&w->rotate_out, dst + c, w->out, w->in);
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
