/* SPDX-License-Identifier: Apache-2.0
 *
 * TurboQuant's encoders. The bits are those of the original's formulas in f32, operation by
 * operation and sum by sum; loops run over lanes so that a compiler makes vectors of them without
 * changing an order. Keys whose scale or zero fp16 cannot hold are fitted anew in double. */
#include "turboquant.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "base/compiler.h"
#include "base/half.h"

enum { LANES = 8 };

#define EPSILON  1e-8f
#define FP16_NAN 0x7e00
#define FP16_MAX 65504.0

/* ---- bits ----------------------------------------------------------------------------------- */

/* n codes below 2^b to a bit string, 8 to b bytes; n is a multiple of 8. */
static PL_ALWAYS_INLINE void pack_bits(uint8_t *dst, const int32_t *codes, size_t n, uint32_t b)
{
    for (size_t i = 0; i < n; i += 8, dst += b) {
        uint64_t word = 0;
        for (uint32_t j = 0; j < 8; j++)
            word |= (uint64_t)((uint32_t)codes[i + j] & ((1u << b) - 1)) << b * j;
        for (uint32_t j = 0; j < b; j++) dst[j] = (uint8_t)(word >> 8 * j);
    }
}

static void pack(uint8_t *dst, const int32_t *codes, size_t n, uint32_t bits)
{
    switch (bits) {
    case 2:
        pack_bits(dst, codes, n, 2);
        return;
    case 3:
        pack_bits(dst, codes, n, 3);
        return;
    case 4:
        pack_bits(dst, codes, n, 4);
        return;
    case 5:
        pack_bits(dst, codes, n, 5);
        return;
    default:
        for (size_t i = 0; i < n; i++) dst[i] = (uint8_t)codes[i];
    }
}

/* Nearest integer, ties to even, of |x| < 2^22: the sum's low bits are the integer's. No
 * conversion of a float, so that nothing is undefined, and no call. */
static inline int32_t nearest(float x)
{
    const float shift = 0x1.8p23f;
    return (int32_t)(pl_f32_bits(x + shift) - pl_f32_bits(shift));
}

/* ---- keys ----------------------------------------------------------------------------------- */

/* Codes of one type: from low to low + levels. */
typedef struct key_type {
    bool centred; /* the zero is of the middle of the group, else of its least number */
    float low, levels;
} key_type;

/* Least and greatest of n numbers; false when one is NaN or infinite. */
static PL_ALWAYS_INLINE bool range(const float *x, size_t n, float *low, float *high)
{
    float lo[LANES], hi[LANES], nothing[LANES];
    for (size_t j = 0; j < LANES; j++) {
        lo[j] = hi[j] = x[j];
        nothing[j] = x[j] * 0.0f;
    }
    for (size_t i = LANES; i < n; i += LANES)
        for (size_t j = 0; j < LANES; j++) {
            float f = x[i + j];
            lo[j] = f < lo[j] ? f : lo[j];
            hi[j] = f > hi[j] ? f : hi[j];
            nothing[j] += f * 0.0f; /* NaN once f is not finite */
        }
    float sum = nothing[0];
    *low = lo[0];
    *high = hi[0];
    for (size_t j = 1; j < LANES; j++) {
        *low = PL_MIN(*low, lo[j]);
        *high = PL_MAX(*high, hi[j]);
        sum += nothing[j];
    }
    return sum == 0.0f;
}

static bool is_normal(uint16_t h)
{
    uint32_t exponent = h >> 10 & 31;
    return exponent && exponent < 31;
}

/* The least fp16 number that is not below v >= 0, or the greatest there is. */
static uint16_t fp16_from_above(double v)
{
    if (v >= FP16_MAX) return 0x7bff;
    uint16_t h = pl_f32_to_fp16((float)v);
    return (double)pl_fp16_to_f32(h) < v ? h + 1 : h;
}

/* A scale and a zero that fp16 holds, and the nearest codes. With Z the zero that puts the group's
 * middle on the middle code, |Z| below 2000 or so is rounded to an integer and costs no number more
 * than half a step. A greater one is rounded to fp16's 11 bits: the step then leaves codes free at
 * both ends, 2^-11 of the group's size each. A step below size / 2^15 would need a zero that fp16
 * does not reach. So the error is below half a step, and the step is the range's, rounded up in
 * fp16, or else below size / 2^10. */
static void fit_key(int32_t *codes, uint16_t *scale, uint16_t *zero, const float *x, size_t n,
                    key_type type, double low, double high)
{
    double size = fmax(fabs(low), fabs(high)), middle = (low + high) / 2;
    double step = fmax((high - low) / type.levels, size / 32768);
    *scale = fp16_from_above(fmax(step, 0x1p-24));
    if (size > 2000 * (double)pl_fp16_to_f32(*scale)) {
        step = fmax(step, (high - low + size / 1024) / type.levels);
        *scale = fp16_from_above(step);
    }
    step = pl_fp16_to_f32(*scale);
    double z = middle / step - (type.low + type.levels / 2);
    if (fabs(z) < 2048) z = rint(z);
    *zero = pl_f32_to_fp16((float)fmin(fmax(z, -FP16_MAX), FP16_MAX));
    z = pl_fp16_to_f32(*zero);
    for (size_t i = 0; i < n; i++) {
        double c = fmin(fmax(x[i] / step - z, type.low), type.low + type.levels);
        codes[i] = (int32_t)rint(c);
    }
}

/* One group of n = 32 or 16 keys. */
static PL_ALWAYS_INLINE void encode_key_group(int32_t *codes, uint16_t *scale, uint16_t *zero,
                                              const float *x, size_t n, key_type type)
{
    float low, high;
    if (!range(x, n, &low, &high)) {
        for (size_t i = 0; i < n; i++) codes[i] = 0;
        *scale = FP16_NAN;
        *zero = 0;
        return;
    }
    float s = (high - low) / type.levels, step = s + EPSILON;
    float z = type.centred ? rintf((high + low) / (2.0f * step)) : rintf(low / step);
    *scale = pl_f32_to_fp16(s);
    *zero = pl_f32_to_fp16(z);
    if (PL_UNLIKELY(!is_normal(*scale) || !(fabsf(z) <= FP16_MAX) || pl_fp16_to_f32(*zero) != z)) {
        fit_key(codes, scale, zero, x, n, type, low, high);
        return;
    }
    const float least = type.low, most = type.low + type.levels;
    for (size_t i = 0; i < n; i++) {
        float c = x[i] / step - z;
        c = c < least ? least : c;
        codes[i] = nearest(c > most ? most : c);
    }
}

static void encode_key(const pl_turboquant *t, const pl_turboquant_view *dst, size_t token,
                       const float *x, key_type type)
{
    int32_t codes[PL_TURBOQUANT_MAX_DIM];
    uint16_t *scale = (uint16_t *)dst->scales + token * dst->scale_stride;
    uint16_t *zero = (uint16_t *)dst->zeros + token * dst->scale_stride;
    size_t i = 0;
    for (; i + 32 <= t->dim; i += 32, scale += dst->scale_step, zero += dst->scale_step)
        encode_key_group(codes + i, scale, zero, x + i, 32, type);
    if (i < t->dim) encode_key_group(codes + i, scale, zero, x + i, 16, type);
    pack(dst->codes + token * dst->code_stride, codes, t->dim, t->key_bits);
}

void pl_turboquant_encode_keys(const pl_turboquant *t, const pl_turboquant_view *dst,
                               const float *x, size_t stride, size_t n)
{
    assert(dst->group == PL_TURBOQUANT_GROUP && dst->number == PL_TURBOQUANT_FP16);
    bool centred = t->key_bits == 8;
    key_type type = {.centred = centred,
                     .low = centred ? -127.0f : 0.0f,
                     .levels = centred ? 254.0f : (float)((1u << t->key_bits) - 1)};
    for (size_t token = 0; token < n; token++) encode_key(t, dst, token, x + token * stride, type);
}

/* ---- values --------------------------------------------------------------------------------- */

/* Sum of squares in lanes, lanes added pairwise. */
static PL_ALWAYS_INLINE float sum_of_squares(const float *x, size_t n)
{
    float s[LANES];
    for (size_t j = 0; j < LANES; j++) s[j] = x[j] * x[j];
    for (size_t i = LANES; i < n; i += LANES)
        for (size_t j = 0; j < LANES; j++) s[j] += x[i + j] * x[i + j];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* How many of the ascending boundaries lie below each number. */
static PL_ALWAYS_INLINE void count_below(int32_t *codes, const float *x, size_t n,
                                         const float *boundaries, uint32_t count)
{
    for (size_t i = 0; i < n; i++) codes[i] = 0;
    for (uint32_t b = 0; b < count; b++) {
        const float boundary = boundaries[b];
        for (size_t i = 0; i < n; i++) codes[i] += x[i] > boundary;
    }
}

/* The same by halving, all numbers a step at a time: 2^bits - 1 boundaries. */
static PL_ALWAYS_INLINE void search_below(int32_t *codes, const float *x, size_t n,
                                          const float *boundaries, uint32_t bits)
{
    for (size_t i = 0; i < n; i++) codes[i] = 0;
    for (int32_t half = 1 << (bits - 1); half; half /= 2)
        for (size_t i = 0; i < n; i++)
            codes[i] += -(int32_t)(x[i] > boundaries[codes[i] + half - 1]) & half;
}

static PL_ALWAYS_INLINE void encode_value_group(int32_t *codes, uint16_t *scale, const float *r,
                                                size_t n, uint32_t bits, const float *boundaries)
{
    float s = sqrtf(sum_of_squares(r, n) / (float)n), q[PL_TURBOQUANT_GROUP], low, high;
    if (PL_UNLIKELY(!(s < 65520.0f))) { /* what rounds to infinity in fp16 */
        if (!range(r, n, &low, &high)) {
            for (size_t i = 0; i < n; i++) codes[i] = 0;
            *scale = FP16_NAN;
            return;
        }
        s = (float)FP16_MAX;
    }
    *scale = pl_f32_to_fp16(s);
    const float step = s + EPSILON;
    for (size_t i = 0; i < n; i++) q[i] = r[i] / step;
    if (bits >= 4) search_below(codes, q, n, boundaries, bits);
    else
        count_below(codes, q, n, boundaries, (1u << bits) - 1);
}

static void encode_value(const pl_turboquant *t, const pl_turboquant_view *dst, size_t token,
                         const float *r, const float *boundaries)
{
    int32_t codes[PL_TURBOQUANT_MAX_DIM];
    uint16_t *scale = (uint16_t *)dst->scales + token * dst->scale_stride;
    size_t i = 0;
    for (; i + 32 <= t->dim; i += 32, scale += dst->scale_step)
        encode_value_group(codes + i, scale, r + i, 32, t->value_bits, boundaries);
    if (i < t->dim) encode_value_group(codes + i, scale, r + i, 16, t->value_bits, boundaries);
    pack(dst->codes + token * dst->code_stride, codes, t->dim, t->value_bits);
}

void pl_turboquant_encode_values(const pl_turboquant *t, const pl_kernels *k,
                                 const pl_turboquant_view *dst, const float *x, size_t stride,
                                 size_t n)
{
    assert(dst->group == PL_TURBOQUANT_GROUP && dst->number == PL_TURBOQUANT_FP16);
    const float *boundaries = pl_turboquant_boundaries(t->value_bits);
    for (size_t token = 0; token < n; token++) {
        float r[PL_TURBOQUANT_MAX_DIM];
        for (size_t i = 0; i < t->dim; i++) r[i] = x[token * stride + i];
        pl_turboquant_rotate(k, r, t->dim);
        encode_value(t, dst, token, r, boundaries);
    }
}
