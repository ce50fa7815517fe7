/* SPDX-License-Identifier: Apache-2.0
 *
 * From GGUF's block types to f32. Every function decodes one block. Layouts follow the published
 * description of ggml's types: scales are fp16 (d, and m or dmin for the offset), numbers of fewer
 * than 8 bits are stored as planes of bytes, so that one mask and shift serve 16 or 32 numbers. */
#include "block_types.h"

#include <string.h>

#include "base/half.h"

static float fp16_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return pl_fp16_to_f32(h);
}

/* ---- 32 numbers: d [m] [32 high bits] codes ------------------------------------------------ */

static void q4_0(const uint8_t *b, float *dst)
{
    float d = fp16_at(b);
    for (int i = 0; i < 16; i++) {
        dst[i] = d * (float)((b[2 + i] & 15) - 8);
        dst[i + 16] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

static void q4_1(const uint8_t *b, float *dst)
{
    float d = fp16_at(b), m = fp16_at(b + 2);
    for (int i = 0; i < 16; i++) {
        dst[i] = d * (float)(b[4 + i] & 15) + m;
        dst[i + 16] = d * (float)(b[4 + i] >> 4) + m;
    }
}

/* Code i of a 5-bit block: a nibble and bit i of `high`. */
static int code5(const uint8_t *nibbles, uint32_t high, int i)
{
    int low = i < 16 ? nibbles[i] & 15 : nibbles[i - 16] >> 4;
    return low | (int)(high >> i & 1) << 4;
}

static void q5_0(const uint8_t *b, float *dst)
{
    float d = fp16_at(b);
    uint32_t high;
    memcpy(&high, b + 2, 4);
    for (int i = 0; i < 32; i++) dst[i] = d * (float)(code5(b + 6, high, i) - 16);
}

static void q5_1(const uint8_t *b, float *dst)
{
    float d = fp16_at(b), m = fp16_at(b + 2);
    uint32_t high;
    memcpy(&high, b + 4, 4);
    for (int i = 0; i < 32; i++) dst[i] = d * (float)code5(b + 8, high, i) + m;
}

static void q8_0(const uint8_t *b, float *dst)
{
    float d = fp16_at(b);
    for (int i = 0; i < 32; i++) dst[i] = d * (float)(int8_t)b[2 + i];
}

/* ---- 256 numbers in sub-blocks of 16 or 32 ------------------------------------------------- */

/* Two bits of number i: four planes of 32 numbers share 32 bytes. */
static int code2(const uint8_t *planes, int i)
{
    return planes[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
}

/* scales[16]: low nibble the factor, high nibble the offset; codes[64]; d; dmin. */
static void q2_k(const uint8_t *b, float *dst)
{
    float d = fp16_at(b + 80), dmin = fp16_at(b + 82);
    for (int s = 0; s < 16; s++) {
        float scale = d * (float)(b[s] & 15), offset = dmin * (float)(b[s] >> 4);
        for (int i = 16 * s; i < 16 * s + 16; i++)
            dst[i] = scale * (float)code2(b + 16, i) - offset;
    }
}

/* high bits[32]; codes[64]; 16 scales of 6 bits in 12 bytes, biased by 32; d. */
static void q3_k(const uint8_t *b, float *dst)
{
    const uint8_t *codes = b + 32, *scales = b + 96;
    float d = fp16_at(b + 108);
    for (int s = 0; s < 16; s++) {
        int low = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4;
        int high = scales[8 + s % 4] >> (s / 4 * 2) & 3;
        float scale = d * (float)((low | high << 4) - 32);
        for (int i = 16 * s; i < 16 * s + 16; i++) {
            int above = b[i % 32] >> (i / 32) & 1;
            dst[i] = scale * (float)(code2(codes, i) - (above ? 0 : 4));
        }
    }
}

/* Factor and offset, 6 bits each, of sub-block s < 8 from the 12 bytes that hold them all. */
static void scale_pair(const uint8_t *p, int s, int *factor, int *offset)
{
    if (s < 4) {
        *factor = p[s] & 63;
        *offset = p[s + 4] & 63;
    } else {
        *factor = (p[s + 4] & 15) | (p[s - 4] >> 2 & 48);
        *offset = p[s + 4] >> 4 | (p[s] >> 2 & 48);
    }
}

/* d; dmin; 8 pairs[12]; [high bits[32] when 5 bits wide]; codes[128]. */
static void q45_k(const uint8_t *b, float *dst, int wide)
{
    float d = fp16_at(b), dmin = fp16_at(b + 2);
    const uint8_t *high = b + 16, *codes = wide ? b + 48 : b + 16;
    for (int s = 0; s < 8; s++) {
        int factor, offset;
        scale_pair(b + 4, s, &factor, &offset);
        float scale = d * (float)factor, base = dmin * (float)offset;
        for (int i = 0; i < 32; i++) {
            int q = codes[s / 2 * 32 + i] >> (s % 2 * 4) & 15;
            if (wide) q |= (high[i] >> s & 1) << 4;
            dst[32 * s + i] = scale * (float)q - base;
        }
    }
}

static void q4_k(const uint8_t *b, float *dst)
{
    q45_k(b, dst, 0);
}
static void q5_k(const uint8_t *b, float *dst)
{
    q45_k(b, dst, 1);
}

/* low nibbles[128]; high pairs[64]; scales[16], signed; d. */
static void q6_k(const uint8_t *b, float *dst)
{
    float d = fp16_at(b + 208);
    for (int s = 0; s < 16; s++) {
        float scale = d * (float)(int8_t)b[192 + s];
        for (int i = 16 * s; i < 16 * s + 16; i++) {
            int low = b[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
            dst[i] = scale * (float)((low | code2(b + 128, i) << 4) - 32);
        }
    }
}

void pl_dequantize_blocks(pl_dtype type, const uint8_t *src, float *dst, size_t n_blocks)
{
    const pl_dtype_info *info = pl_dtype_get(type);
    void (*decode)(const uint8_t *, float *);
    switch (type) {
    case PL_Q4_0:
        decode = q4_0;
        break;
    case PL_Q4_1:
        decode = q4_1;
        break;
    case PL_Q5_0:
        decode = q5_0;
        break;
    case PL_Q5_1:
        decode = q5_1;
        break;
    case PL_Q8_0:
        decode = q8_0;
        break;
    case PL_Q2_K:
        decode = q2_k;
        break;
    case PL_Q3_K:
        decode = q3_k;
        break;
    case PL_Q4_K:
        decode = q4_k;
        break;
    case PL_Q5_K:
        decode = q5_k;
        break;
    case PL_Q6_K:
        decode = q6_k;
        break;
    default:
        return; /* not a block type */
    }
    for (size_t i = 0; i < n_blocks; i++)
        decode(src + i * info->block_bytes, dst + i * info->block_elements);
}
