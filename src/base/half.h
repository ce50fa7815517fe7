/* SPDX-License-Identifier: Apache-2.0
 *
 * fp16, bf16 and fp8 numbers as bits, to and from f32. Rounding is to nearest, ties to even; every
 * bit pattern has a defined result, NaN stays NaN. */
#ifndef PL_BASE_HALF_H
#define PL_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t pl_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float pl_f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float pl_bf16_to_f32(uint16_t h) { return pl_f32_from_bits((uint32_t)h << 16); }

static inline uint16_t pl_f32_to_bf16(float f)
{
    uint32_t u = pl_f32_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40); /* keep NaN a NaN */
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float pl_fp16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return pl_f32_from_bits(sign | 0x7f800000 | mantissa << 13);
    if (exponent) return pl_f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float f = (float)mantissa * 0x1p-24f; /* subnormal or zero: exact */
    return sign ? -f : f;
}

static inline uint16_t pl_f32_to_fp16(float f)
{
    uint32_t u = pl_f32_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and up round to infinity */
    if (a < 0x38800000) {                                  /* below 2^-14: subnormal */
        float magnitude = pl_f32_from_bits(a) + 0.5f;      /* the add rounds to units of 2^-24 */
        return (uint16_t)(sign | (pl_f32_bits(magnitude) - pl_f32_bits(0.5f)));
    }
    uint32_t rounded = a + 0xfff + (a >> 13 & 1);
    return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

/* OCP 8-bit float, 4 exponent bits, no infinity: S.1111.111 is NaN. */
static inline float pl_e4m3_to_f32(uint8_t h)
{
    uint32_t exponent = h >> 3 & 15, mantissa = h & 7;
    float f;
    if (exponent == 15 && mantissa == 7) f = pl_f32_from_bits(0x7fc00000);
    else if (exponent) f = pl_f32_from_bits((exponent + 120) << 23 | mantissa << 20);
    else f = (float)mantissa * 0x1p-9f;
    return h & 0x80 ? -f : f;
}

#endif
