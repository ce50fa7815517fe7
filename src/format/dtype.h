/* SPDX-License-Identifier: Apache-2.0
 *
 * Element types of tensors on disk: safetensors' and GGUF's, in one list. */
#ifndef PL_FORMAT_DTYPE_H
#define PL_FORMAT_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum pl_dtype {
    PL_F32,
    PL_F16,
    PL_BF16,
    PL_F64,
    PL_F8_E4M3,
    PL_U8,
    PL_I8,
    PL_U16,
    PL_I16,
    PL_U32,
    PL_I32,
    PL_U64,
    PL_I64,
    PL_BOOL,
    PL_Q4_0,
    PL_Q4_1,
    PL_Q5_0,
    PL_Q5_1,
    PL_Q8_0,
    PL_Q2_K,
    PL_Q3_K,
    PL_Q4_K,
    PL_Q5_K,
    PL_Q6_K,
    PL_DTYPE_COUNT
} pl_dtype;

typedef struct pl_dtype_info {
    const char *name;
    uint32_t block_elements, block_bytes; /* 1 element for plain types */
    bool numeric;                         /* pl_dequantize_row can turn it into f32 */
} pl_dtype_info;

const pl_dtype_info *pl_dtype_get(pl_dtype type);

/* dst[i] = value of element i, for n elements (a multiple of the block) starting at src (any
 * alignment). Portable C, written so that compilers vectorise it. */
void pl_dequantize_row(pl_dtype type, const void *src, float *dst, size_t n);

#endif
