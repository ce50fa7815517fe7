/* SPDX-License-Identifier: Apache-2.0
 *
 * TurboQuant's encoders and decoders over views: a warp a token. */
#include <cuda_bf16.h>

#include "launch.cuh"
#include "turboquant.cuh"
#include "turboquant.h"

enum { WARPS = 4 };

pleach_status pl_cuda_turboquant_open(pl_cuda *d, pleach_error *err)
{
    return pl_tq_upload(d, err);
}

static __device__ __forceinline__ size_t token_of_warp()
{
    return (size_t)blockIdx.x * WARPS + threadIdx.x / 32;
}

template <int D>
static __global__ void encode(uint32_t bits, bool values, pl_turboquant_view dst, const float *x,
                              size_t stride, size_t n)
{
    constexpr int R = pl_tq_shape<D>::R;
    const size_t token = token_of_warp();
    const int lane = threadIdx.x % 32;
    float r[R];
    pl_wait_for_previous();
    if (token >= n) return;
#pragma unroll
    for (int i = 0; i < R; i++)
        r[i] = 32 * i + lane < D ? x[token * stride + 32 * i + lane] : 0.0f;
    if (values) pl_tq_rotate<D>(r, lane);
    uint8_t *codes = dst.codes + token * dst.code_stride;
#pragma unroll
    for (int i = 0; i < R; i++) {
        const int in = D - 32 * i < 32 ? 16 : 32;
        pl_tq_code c = values ? pl_tq_value(r[i], bits, in, lane) : pl_tq_key(r[i], bits, in, lane);
        pl_tq_pack(codes + 4 * bits * i, c.code, bits, in, lane);
        size_t at = token * dst.scale_stride + i * dst.scale_step;
        if (lane == 0) ((uint16_t *)dst.scales)[at] = c.scale;
        if (lane == 0 && !values) ((uint16_t *)dst.zeros)[at] = c.zero;
    }
}

static __device__ __forceinline__ float number(const void *p, pl_turboquant_number type, size_t i)
{
    if (type == PL_TURBOQUANT_FP16) return pl_tq_float(((const uint16_t *)p)[i]);
    if (type == PL_TURBOQUANT_BF16)
        return __uint_as_float((uint32_t)((const uint16_t *)p)[i] << 16);
    return ((const float *)p)[i];
}

template <int D>
static __device__ void decode_token(uint32_t bits, bool values, const pl_turboquant_view &src,
                                    const pl_turboquant_plain &dst, size_t token, bool rotated,
                                    int lane)
{
    constexpr int R = pl_tq_shape<D>::R;
    float r[R];
    const uint8_t *codes = src.codes + token * src.code_stride;
#pragma unroll
    for (int i = 0; i < R; i++) {
        uint32_t e = 32 * i + lane;
        r[i] = 0;
        if (e >= D) continue;
        size_t at = token * src.scale_stride + e / src.group * src.scale_step;
        float scale = number(src.scales, src.number, at);
        uint32_t code = pl_tq_bits(codes, bits, e);
        r[i] = values ? pl_tq_decode_value(code, bits, scale)
                      : pl_tq_decode_key(code, bits, scale, number(src.zeros, src.number, at));
    }
    if (values && !rotated) pl_tq_unrotate<D>(r, lane);
#pragma unroll
    for (int i = 0; i < R; i++) {
        size_t at = token * dst.stride + 32 * i + lane;
        if (32 * i + lane >= D) continue;
        if (dst.bf16)
            ((__nv_bfloat16 *)dst.data)[at] = __float2bfloat16_rn(r[i]);
        else
            ((float *)dst.data)[at] = r[i];
    }
}

template <int D>
static __global__ void decode(pl_turboquant t, pl_turboquant_view keys, pl_turboquant_plain key_dst,
                              pl_turboquant_view values, pl_turboquant_plain value_dst, size_t n,
                              bool rotated)
{
    const size_t token = token_of_warp();
    const int lane = threadIdx.x % 32;
    pl_wait_for_previous();
    if (token >= n) return;
    if (key_dst.data) decode_token<D>(t.key_bits, false, keys, key_dst, token, true, lane);
    if (value_dst.data)
        decode_token<D>(t.value_bits, true, values, value_dst, token, rotated, lane);
}

/* f<D> for a head size. */
#define BY_DIM(dim, call)                                                                          \
    switch (dim) {                                                                                 \
    case 64: call(64); break;                                                                      \
    case 80: call(80); break;                                                                      \
    case 96: call(96); break;                                                                      \
    case 112: call(112); break;                                                                    \
    case 128: call(128); break;                                                                    \
    case 192: call(192); break;                                                                    \
    case 256: call(256); break;                                                                    \
    default: call(512);                                                                            \
    }

static void launch_encode(const pl_cuda *d, uint32_t dim, uint32_t bits, bool values,
                          const pl_turboquant_view *dst, const float *x, size_t stride, size_t n)
{
    if (!n) return;
    dim3 grid((unsigned)((n + WARPS - 1) / WARPS)), block(32 * WARPS);
#define ENCODE(D) pl_launch(d, encode<D>, grid, block, 0, bits, values, *dst, x, stride, n)
    BY_DIM(dim, ENCODE)
}

extern "C" void pl_cuda_turboquant_encode_keys(const pl_cuda *d, const pl_turboquant *t,
                                               const pl_turboquant_view *dst, const float *x,
                                               size_t stride, size_t n)
{
    launch_encode(d, t->dim, t->key_bits, false, dst, x, stride, n);
}

extern "C" void pl_cuda_turboquant_encode_values(const pl_cuda *d, const pl_turboquant *t,
                                                 const pl_turboquant_view *dst, const float *x,
                                                 size_t stride, size_t n)
{
    launch_encode(d, t->dim, t->value_bits, true, dst, x, stride, n);
}

extern "C" void pl_cuda_turboquant_decode(const pl_cuda *d, const pl_turboquant *t,
                                          const pl_turboquant_view *keys,
                                          const pl_turboquant_plain *key_dst,
                                          const pl_turboquant_view *values,
                                          const pl_turboquant_plain *value_dst, size_t n,
                                          bool rotated)
{
    static const pl_turboquant_view no_view = {};
    static const pl_turboquant_plain nowhere = {};
    if (!n) return;
    dim3 grid((unsigned)((n + WARPS - 1) / WARPS)), block(32 * WARPS);
    const pl_turboquant_view k = keys ? *keys : no_view, v = values ? *values : no_view;
    const pl_turboquant_plain kd = keys ? *key_dst : nowhere, vd = values ? *value_dst : nowhere;
#define DECODE(D) pl_launch(d, decode<D>, grid, block, 0, *t, k, kd, v, vd, n, rotated)
    BY_DIM(t->dim, DECODE)
}
