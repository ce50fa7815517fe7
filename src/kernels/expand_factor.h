/* SPDX-License-Identifier: Apache-2.0
 *
 * The expand contract by one multiplication: for every fp16 scale there are numbers F such that
 *
 *   bf16(f32(y) * F) = bf16(f32(f32(y) / f32(147.80...)) * scale)    for all 1021 y
 *
 * although the right side is rounded three times. All of a wide interval of F will do, but for the
 * ends of which it depends on the scale's mantissa alone. Those that are taken have 21 bits, so
 * that F times 3 is exact, and leave no product f32(y) * F half-way between two bf16 numbers. */
#ifndef PL_KERNELS_EXPAND_FACTOR_H
#define PL_KERNELS_EXPAND_FACTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define PL_ON_DEVICE __host__ __device__
#else
#define PL_ON_DEVICE
#endif

/* For scales that are fp16 numbers. 1 / 147.80..., four units less, gives the right F for all but
 * seven of the 1024 mantissas (found by trying, proved by test_expand_factor). */
PL_ON_DEVICE static inline float pl_expand_factor(float scale)
{
    float factor = scale * 0x1.bb6886p-8f;
    uint32_t of_scale, bits;
    memcpy(&of_scale, &scale, sizeof bits);
    memcpy(&bits, &factor, sizeof bits);
    bits = (bits + 7) & ~7u;
    switch (of_scale >> 13 & 1023) {
    case 47:
    case 210:
    case 363:
    case 642:
    case 785:
        bits -= 8;
        break;
    case 427:
    case 952:
        bits += 8;
        break;
    }
    memcpy(&factor, &bits, sizeof bits);
    return factor;
}

/* Whether products with the factor have the contract's signs of zero, too, and the scale is one of
 * fp16's positive finite numbers. */
PL_ON_DEVICE static inline bool pl_has_expand_factor(float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    return scale >= 0x1p-24f && scale <= 65504.0f && (bits & 0x1fff) == 0;
}

#endif
