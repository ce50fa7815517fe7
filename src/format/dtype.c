/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of element types and the way from each of them to f32. Types in blocks are in
 * block_types.c. */
#include "dtype.h"

#include <string.h>

#include "base/half.h"
#include "block_types.h"

static const pl_dtype_info table[PL_DTYPE_COUNT] = {
    [PL_F32] = {"F32", 1, 4, true},         [PL_F16] = {"F16", 1, 2, true},
    [PL_BF16] = {"BF16", 1, 2, true},       [PL_F64] = {"F64", 1, 8, true},
    [PL_F8_E4M3] = {"F8_E4M3", 1, 1, true}, [PL_U8] = {"U8", 1, 1, false},
    [PL_I8] = {"I8", 1, 1, false},          [PL_U16] = {"U16", 1, 2, false},
    [PL_I16] = {"I16", 1, 2, false},        [PL_U32] = {"U32", 1, 4, false},
    [PL_I32] = {"I32", 1, 4, false},        [PL_U64] = {"U64", 1, 8, false},
    [PL_I64] = {"I64", 1, 8, false},        [PL_BOOL] = {"BOOL", 1, 1, false},
    [PL_Q4_0] = {"Q4_0", 32, 18, true},     [PL_Q4_1] = {"Q4_1", 32, 20, true},
    [PL_Q5_0] = {"Q5_0", 32, 22, true},     [PL_Q5_1] = {"Q5_1", 32, 24, true},
    [PL_Q8_0] = {"Q8_0", 32, 34, true},     [PL_Q2_K] = {"Q2_K", 256, 84, true},
    [PL_Q3_K] = {"Q3_K", 256, 110, true},   [PL_Q4_K] = {"Q4_K", 256, 144, true},
    [PL_Q5_K] = {"Q5_K", 256, 176, true},   [PL_Q6_K] = {"Q6_K", 256, 210, true},
};

const pl_dtype_info *pl_dtype_get(pl_dtype type)
{
    return &table[type];
}

static void bf16_row(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, 2);
        dst[i] = pl_bf16_to_f32(h);
    }
}

static void fp16_row(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, 2);
        dst[i] = pl_fp16_to_f32(h);
    }
}

static void f64_row(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double d;
        memcpy(&d, src + 8 * i, 8);
        dst[i] = (float)d;
    }
}

void pl_dequantize_row(pl_dtype type, const void *src, float *dst, size_t n)
{
    switch (type) {
    case PL_F32:
        memcpy(dst, src, 4 * n);
        break;
    case PL_F16:
        fp16_row(src, dst, n);
        break;
    case PL_BF16:
        bf16_row(src, dst, n);
        break;
    case PL_F64:
        f64_row(src, dst, n);
        break;
    case PL_F8_E4M3:
        for (size_t i = 0; i < n; i++) dst[i] = pl_e4m3_to_f32(((const uint8_t *)src)[i]);
        break;
    default:
        pl_dequantize_blocks(type, src, dst, n / table[type].block_elements);
        break;
    }
}
