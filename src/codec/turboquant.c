/* SPDX-License-Identifier: Apache-2.0
 *
 * TurboQuant's shapes, layouts, rotation and decoders. The encoders are turboquant_encode.c, the
 * constants turboquant_tables.c. */
#include "turboquant.h"

#include <assert.h>
#include <string.h>

#include "base/compiler.h"
#include "base/half.h"

static bool one_of(uint32_t x, const uint32_t *allowed)
{
    while (*allowed && *allowed != x) allowed++;
    return *allowed;
}

pleach_status pl_turboquant_check(const pl_turboquant *t, pleach_error *err)
{
    static const uint32_t dims[] = {64, 80, 96, 112, 128, 192, 256, 512, 0};
    static const uint32_t keys[] = {2, 4, 5, 8, 0}, values[] = {2, 3, 4, 5, 8, 0};
    PL_FAIL_IF(!one_of(t->key_bits, keys), err, PLEACH_ERR_SHAPE,
               "keys of %u bits: a packed cache takes 2, 4, 5 or 8", t->key_bits);
    PL_FAIL_IF(!one_of(t->value_bits, values), err, PLEACH_ERR_SHAPE,
               "values of %u bits: a packed cache takes 2, 3, 4, 5 or 8", t->value_bits);
    PL_FAIL_IF(!one_of(t->dim, dims), err, PLEACH_ERR_SHAPE,
               "head size %u: a packed cache takes 64, 80, 96, 112, 128, 192, 256 or 512", t->dim);
    return PLEACH_OK;
}

/* ---- layout --------------------------------------------------------------------------------- */

static pl_turboquant_view page_view(uint8_t *page, uint32_t dim, uint32_t bits, size_t P,
                                    size_t first, bool zeros)
{
    size_t code_bytes = pl_turboquant_code_bytes(dim, bits);
    uint8_t *scales = page + P * code_bytes;
    size_t scale_bytes = 2 * P * pl_turboquant_groups(dim, PL_TURBOQUANT_GROUP);
    return (pl_turboquant_view){.codes = page + first * code_bytes,
                                .code_stride = code_bytes,
                                .scales = scales + 2 * first,
                                .zeros = zeros ? scales + scale_bytes + 2 * first : NULL,
                                .scale_stride = 1,
                                .scale_step = P,
                                .number = PL_TURBOQUANT_FP16,
                                .group = PL_TURBOQUANT_GROUP};
}

pl_turboquant_view pl_turboquant_key_page(const pl_turboquant *t, void *page, size_t P,
                                          size_t first)
{
    return page_view(page, t->dim, t->key_bits, P, first, true);
}

pl_turboquant_view pl_turboquant_value_page(const pl_turboquant *t, void *page, size_t P,
                                            size_t first)
{
    return page_view(page, t->dim, t->value_bits, P, first, false);
}

/* ---- rotation ------------------------------------------------------------------------------- */

static uint32_t largest_block(uint32_t n)
{
    uint32_t block = 1;
    while (2 * block <= n) block *= 2;
    return block;
}

static void each_block(pl_rotate_fn *fn, float *x, uint32_t dim)
{
    const float *signs = pl_turboquant_signs(dim);
    for (uint32_t at = 0, block; at < dim; at += block) {
        block = largest_block(dim - at);
        fn(x + at, signs + at, block, block);
    }
}

void pl_turboquant_rotate(const pl_kernels *k, float *x, uint32_t dim)
{
    each_block(k->rotate, x, dim);
}

void pl_turboquant_unrotate(const pl_kernels *k, float *x, uint32_t dim)
{
    each_block(k->unrotate, x, dim);
}

/* ---- decode --------------------------------------------------------------------------------- */

static float number_at(const void *numbers, pl_turboquant_number type, size_t i)
{
    switch (type) {
    case PL_TURBOQUANT_FP16:
        return pl_fp16_to_f32(((const uint16_t *)numbers)[i]);
    case PL_TURBOQUANT_BF16:
        return pl_bf16_to_f32(((const uint16_t *)numbers)[i]);
    default:
        return ((const float *)numbers)[i];
    }
}

/* The n codes of a token, 8 to b bytes; n is a multiple of 8. */
static PL_ALWAYS_INLINE void unpack_bits(uint8_t *dst, const uint8_t *src, size_t n, uint32_t b)
{
    for (size_t i = 0; i < n; i += 8, src += b) {
        uint64_t word = 0;
        for (uint32_t j = 0; j < b; j++) word |= (uint64_t)src[j] << 8 * j;
        for (uint32_t j = 0; j < 8; j++) dst[i + j] = word >> b * j & ((1u << b) - 1);
    }
}

static void unpack(uint8_t *dst, const uint8_t *src, size_t n, uint32_t bits)
{
    switch (bits) {
    case 2:
        unpack_bits(dst, src, n, 2);
        return;
    case 3:
        unpack_bits(dst, src, n, 3);
        return;
    case 4:
        unpack_bits(dst, src, n, 4);
        return;
    case 5:
        unpack_bits(dst, src, n, 5);
        return;
    default:
        memcpy(dst, src, n);
    }
}

static void key_group(float *x, const uint8_t *codes, size_t n, bool is_signed, float scale,
                      float zero)
{
    const uint32_t flip = is_signed ? 128 : 0; /* two's complement, without a cast per code */
    for (size_t i = 0; i < n; i++)
        x[i] = ((float)((int32_t)(codes[i] ^ flip) - (int32_t)flip) + zero) * scale;
}

static void decode_key(const pl_turboquant *t, const pl_turboquant_view *v, size_t token, float *x)
{
    uint8_t codes[PL_TURBOQUANT_MAX_DIM];
    unpack(codes, v->codes + token * v->code_stride, t->dim, t->key_bits);
    size_t at = token * v->scale_stride;
    for (size_t i = 0; i < t->dim; i += v->group, at += v->scale_step)
        key_group(x + i, codes + i, PL_MIN(v->group, t->dim - i), t->key_bits == 8,
                  number_at(v->scales, v->number, at), number_at(v->zeros, v->number, at));
}

static void decode_value(const pl_turboquant *t, const pl_turboquant_view *v, size_t token,
                         float *x)
{
    const float *centroids = pl_turboquant_centroids(t->value_bits);
    uint8_t codes[PL_TURBOQUANT_MAX_DIM];
    unpack(codes, v->codes + token * v->code_stride, t->dim, t->value_bits);
    size_t at = token * v->scale_stride;
    for (size_t i = 0; i < t->dim; i += v->group, at += v->scale_step) {
        float scale = number_at(v->scales, v->number, at);
        for (size_t j = i; j < PL_MIN(i + v->group, t->dim); j++)
            x[j] = centroids[codes[j]] * scale;
    }
}

/* Where token `token` may be decoded: in place for f32, else into `scratch`. */
static float *place(const pl_turboquant_plain *dst, size_t token, float *scratch)
{
    return dst->bf16 ? scratch : (float *)dst->data + token * dst->stride;
}

static void round_bf16(const pl_turboquant_plain *dst, size_t token, const float *x, size_t n)
{
    uint16_t *row = (uint16_t *)dst->data + token * dst->stride;
    for (size_t i = 0; i < n; i++) row[i] = pl_f32_to_bf16(x[i]);
}

void pl_turboquant_decode_keys(const pl_turboquant *t, const pl_turboquant_view *src,
                               const pl_turboquant_plain *dst, size_t n)
{
    assert(src->group);
    for (size_t token = 0; token < n; token++) {
        float scratch[PL_TURBOQUANT_MAX_DIM], *x = place(dst, token, scratch);
        decode_key(t, src, token, x);
        if (dst->bf16) round_bf16(dst, token, x, t->dim);
    }
}

void pl_turboquant_decode_values(const pl_turboquant *t, const pl_kernels *k,
                                 const pl_turboquant_view *src, const pl_turboquant_plain *dst,
                                 size_t n, bool rotated)
{
    assert(src->group);
    for (size_t token = 0; token < n; token++) {
        float scratch[PL_TURBOQUANT_MAX_DIM], *x = place(dst, token, scratch);
        decode_value(t, src, token, x);
        if (!rotated) pl_turboquant_unrotate(k, x, t->dim);
        if (dst->bf16) round_bf16(dst, token, x, t->dim);
    }
}

void pl_turboquant_decode(const pl_turboquant *t, const pl_kernels *k,
                          const pl_turboquant_view *keys, const pl_turboquant_plain *key_dst,
                          const pl_turboquant_view *values, const pl_turboquant_plain *value_dst,
                          size_t n, bool rotated)
{
    pl_turboquant_decode_keys(t, keys, key_dst, n);
    pl_turboquant_decode_values(t, k, values, value_dst, n, rotated);
}
