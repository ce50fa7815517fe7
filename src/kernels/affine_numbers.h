/* SPDX-License-Identifier: Apache-2.0
 *
 * Scales, biases and codes of affine groups as stored: what all levels read alike. */
#ifndef PL_KERNELS_AFFINE_NUMBERS_H
#define PL_KERNELS_AFFINE_NUMBERS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "base/half.h"
#include "product.h"

static PL_ALWAYS_INLINE size_t affine_number_bytes(int type)
{
    return type == PL_AFFINE_F32 ? 4 : 2;
}

static PL_ALWAYS_INLINE float affine_number(const uint8_t *p, int type)
{
    uint16_t h;
    float f;
    if (type == PL_AFFINE_F32) {
        memcpy(&f, p, sizeof f);
        return f;
    }
    memcpy(&h, p, sizeof h);
    return type == PL_AFFINE_BF16 ? pl_bf16_to_f32(h) : pl_fp16_to_f32(h);
}

/* Eight codes, which are `bits` bytes. */
static PL_ALWAYS_INLINE uint64_t affine_eight(const uint8_t *src, unsigned bits)
{
    uint64_t word = 0;
    for (unsigned i = 0; i < bits; i++) word |= (uint64_t)src[i] << 8 * i;
    return word;
}

#endif
