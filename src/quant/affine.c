/* SPDX-License-Identifier: Apache-2.0
 *
 * Affine encoding. Scale and bias are rounded first and the codes are chosen for the rounded ones,
 * so no error of theirs is left that a code could have made good. */
#include "affine.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"
#include "base/half.h"

static uint16_t to_bits(pl_dtype type, float x)
{
    return type == PL_F16 ? pl_f32_to_fp16(x) : pl_f32_to_bf16(x);
}

static float from_bits(pl_dtype type, uint16_t h)
{
    return type == PL_F16 ? pl_fp16_to_f32(h) : pl_bf16_to_f32(h);
}

static float rounded(pl_dtype type, float x)
{
    return from_bits(type, to_bits(type, x));
}

/* All values that a group's codes can take. They do not decrease with the code: scale >= 0. */
static void group_values(const pl_affine *a, float scale, float bias, float *values)
{
    for (uint32_t q = 0; q < 1u << a->bits; q++)
        values[q] = rounded(a->type, rounded(a->type, (float)q * scale) + bias);
}

/* The nearest code: the one by plain division, or a neighbour where rounding moved the values. */
static uint32_t nearest(const float *values, uint32_t top, float inverse, float bias, float x)
{
    float guess = (x - bias) * inverse;
    uint32_t q = guess <= 0 ? 0 : guess >= (float)top ? top : (uint32_t)(guess + 0.5f);
    while (q > 0 && fabsf(values[q - 1] - x) < fabsf(values[q] - x)) q--;
    while (q < top && fabsf(values[q + 1] - x) < fabsf(values[q] - x)) q++;
    return q;
}

static double encode_group(const pl_affine *a, const float *x, uint8_t *codes, uint16_t *scale_bits,
                           uint16_t *bias_bits)
{
    float low = x[0], high = x[0], values[256];
    uint32_t top = (1u << a->bits) - 1;
    for (size_t i = 1; i < a->group; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    *bias_bits = to_bits(a->type, low);
    float bias = from_bits(a->type, *bias_bits);
    /* From the rounded bias, so that the highest number keeps its place. */
    *scale_bits = to_bits(a->type, high > bias ? (high - bias) / (float)top : 0);
    float scale = from_bits(a->type, *scale_bits);
    if (!isfinite(scale) || !isfinite(bias)) return INFINITY;
    group_values(a, scale, bias, values);
    if (!isfinite(values[top])) return INFINITY;
    double error = 0;
    float inverse = scale > 0 ? 1 / scale : 0;
    for (size_t i = 0; i < a->group; i++) {
        uint32_t q = isfinite(inverse) ? nearest(values, top, inverse, bias, x[i]) : 0;
        double d = (double)values[q] - x[i];
        codes[i] = (uint8_t)q;
        error += d * d;
    }
    return error;
}

static void pack(const uint8_t *codes, size_t n, uint32_t bits, uint32_t *words)
{
    uint32_t per_word = 32 / bits;
    for (size_t w = 0; w < n / per_word; w++) {
        uint32_t word = 0;
        for (uint32_t i = 0; i < per_word; i++)
            word |= (uint32_t)codes[w * per_word + i] << i * bits;
        words[w] = word;
    }
}

double pl_affine_encode_row(const pl_affine *a, const float *row, size_t n, uint32_t *words,
                            uint16_t *scales, uint16_t *biases)
{
    uint8_t codes[64];
    double error = 0;
    for (size_t g = 0; g < n / a->group; g++) {
        error += encode_group(a, row + g * a->group, codes, &scales[g], &biases[g]);
        pack(codes, a->group, a->bits, words + g * a->group * a->bits / 32);
    }
    return error;
}
