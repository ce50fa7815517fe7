/* SPDX-License-Identifier: Apache-2.0 */
#include "affine.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "row_product.cuh"

/* How numbers of a group come about. */
enum { MLX_BF16, MLX_F16, PLAIN_F16, PLAIN_F32 };

/* q * scale + bias, each step rounded as the CPU's reader does (format/weight_rows.c). */
static __device__ __forceinline__ float number(int kind, float q, float scale, float bias)
{
    float product = __fmul_rn(q, scale);
    if (kind == MLX_BF16) {
        product = __bfloat162float(__float2bfloat16_rn(product));
        return __bfloat162float(__float2bfloat16_rn(__fadd_rn(product, bias)));
    }
    if (kind == MLX_F16) {
        product = __half2float(__float2half_rn(product));
        return __half2float(__float2half_rn(__fadd_rn(product, bias)));
    }
    return __fadd_rn(product, bias);
}

/* Codes are a string of bits; eight of them always lie in two words. Biases may be absent. */
template <int BITS> struct affine_reader {
    const uint32_t *codes;
    const void *scales, *biases;
    uint32_t row_words, groups, eights; /* eights of a group: a power of two, as a shift */
    float offset;
    int kind;
    struct raw {
        uint32_t low, high;
        uint32_t scale, bias; /* bits, of whatever type */
    };
    __device__ __forceinline__ uint32_t part(const void *p, size_t i) const
    {
        return kind == PLAIN_F32 ? __ldg((const uint32_t *)p + i)
                                 : __ldg((const unsigned short *)p + i);
    }
    __device__ __forceinline__ void load(raw &to, uint32_t row, uint32_t eight) const
    {
        const uint32_t *from = codes + (size_t)row * row_words;
        uint32_t word = eight * BITS / 4;
        size_t group = (size_t)row * groups + (eight >> eights);
        to.low = __ldg(from + word);
        if (BITS > 4 || BITS == 3) to.high = __ldg(from + min(word + 1, row_words - 1));
        to.scale = part(scales, group);
        if (biases) to.bias = part(biases, group);
    }
    __device__ __forceinline__ float real(uint32_t bits) const
    {
        if (kind == PLAIN_F32) return __uint_as_float(bits);
        if (kind == MLX_BF16) return __uint_as_float(bits << 16);
        return __half2float(__ushort_as_half((unsigned short)bits));
    }
    __device__ __forceinline__ void decode(float w[8], const raw &from, uint32_t eight) const
    {
        uint32_t shift = eight * BITS % 4 * 8;
        uint32_t low = BITS > 4 || BITS == 3 ? __funnelshift_r(from.low, from.high, shift)
                                             : from.low >> shift;
        uint32_t high = from.high >> shift;
        float scale = real(from.scale), bias = biases ? real(from.bias) : 0.0f;
        float q[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t code = i * BITS >= 32 ? high >> (i * BITS - 32)
                            : i * BITS + BITS > 32 ? __funnelshift_r(low, high, i * BITS)
                                                   : low >> i * BITS;
            /* The code as the low bits of 2^23 + code; `offset` is that and the coding's own. */
            q[i] = __uint_as_float((code & ((1u << BITS) - 1)) | 0x4b000000u) - offset;
        }
        if (!biases) {
#pragma unroll
            for (int i = 0; i < 8; i++) w[i] = __fmul_rn(q[i], scale);
        } else if (kind == MLX_BF16) {
#pragma unroll
            for (int i = 0; i < 8; i++) w[i] = number(MLX_BF16, q[i], scale, bias);
        } else if (kind == MLX_F16) {
#pragma unroll
            for (int i = 0; i < 8; i++) w[i] = number(MLX_F16, q[i], scale, bias);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++) w[i] = number(PLAIN_F32, q[i], scale, bias);
        }
    }
};

template <int BITS> static affine_reader<BITS> reader(const pl_cuda_affine *w)
{
    uint32_t shift = 0;
    while (8u << shift < w->group) shift++;
    return {(const uint32_t *)w->codes,
            w->scales,
            w->biases,
            (uint32_t)(w->in * BITS / 32),
            (uint32_t)(w->in / w->group),
            shift,
            8388608.0f + w->offset,
            w->type == PL_F32    ? PLAIN_F32
            : w->type == PL_BF16 ? MLX_BF16
            : w->rounded         ? MLX_F16
                                 : PLAIN_F16};
}

template <int BITS>
static void run(const pl_cuda *d, const pl_cuda_affine *w, const float *x, size_t M, float *y,
                const float *scale, const float *bias)
{
    pl_row_run(d, reader<BITS>(w), w->out, w->in, x, M, y, scale, bias);
}

template <int BITS>
static void rows(const pl_cuda *d, const pl_cuda_affine *w, const int32_t *ids, size_t n, float *dst)
{
    pl_row_rows(d, reader<BITS>(w), w->in, ids, n, dst);
}

void pl_cuda_affine_run(const pl_cuda *d, const pl_cuda_affine *w, const float *x, size_t M,
                        float *y, const float *scale, const float *bias)
{
    switch (w->bits) {
    case 2:
        return run<2>(d, w, x, M, y, scale, bias);
    case 3:
        return run<3>(d, w, x, M, y, scale, bias);
    case 4:
        return run<4>(d, w, x, M, y, scale, bias);
    case 5:
        return run<5>(d, w, x, M, y, scale, bias);
    case 6:
        return run<6>(d, w, x, M, y, scale, bias);
    default:
        return run<8>(d, w, x, M, y, scale, bias);
    }
}

void pl_cuda_affine_rows(const pl_cuda *d, const pl_cuda_affine *w, const int32_t *ids, size_t n,
                         float *dst)
{
    switch (w->bits) {
    case 2:
        return rows<2>(d, w, ids, n, dst);
    case 3:
        return rows<3>(d, w, ids, n, dst);
    case 4:
        return rows<4>(d, w, ids, n, dst);
    case 5:
        return rows<5>(d, w, ids, n, dst);
    case 6:
        return rows<6>(d, w, ids, n, dst);
    default:
        return rows<8>(d, w, ids, n, dst);
    }
}
