/* SPDX-License-Identifier: Apache-2.0
 *
 * TurboQuant's code of one token, by one warp: number i of a head is in register i / 32 of lane
 * i % 32. Operation by operation what codec/turboquant*.c does, so that bits agree; nothing may be
 * contracted, hence the intrinsics. */
#ifndef PL_CUDA_TURBOQUANT_CUH
#define PL_CUDA_TURBOQUANT_CUH

#include <cuda_fp16.h>
#include <string.h>

#include "turboquant.h"

struct pl_tq_tables {
    uint32_t signs[8][16];  /* of each head size: bit set where the sign is -1 */
    float centroids[320], boundaries[320]; /* from pl_tq_at(bits) on */
};
static __device__ pl_tq_tables pl_tq;

static __host__ __device__ constexpr int pl_tq_at(uint32_t bits)
{
    return bits == 2 ? 0 : bits == 3 ? 4 : bits == 4 ? 12 : bits == 5 ? 28 : 64;
}

static __host__ __device__ constexpr int pl_tq_dim(uint32_t dim)
{
    return dim == 64    ? 0
           : dim == 80  ? 1
           : dim == 96  ? 2
           : dim == 112 ? 3
           : dim == 128 ? 4
           : dim == 192 ? 5
           : dim == 256 ? 6
                        : 7;
}

/* Fills this file's tables. */
static inline pleach_status pl_tq_upload(pl_cuda *d, pleach_error *err)
{
    static const uint32_t dims[] = {64, 80, 96, 112, 128, 192, 256, 512}, bits[] = {2, 3, 4, 5, 8};
    pl_tq_tables t = {};
    for (uint32_t dim : dims)
        for (uint32_t i = 0; i < dim; i++)
            if (pl_turboquant_signs(dim)[i] < 0) t.signs[pl_tq_dim(dim)][i / 32] |= 1u << i % 32;
    for (uint32_t b : bits) {
        memcpy(t.centroids + pl_tq_at(b), pl_turboquant_centroids(b), sizeof(float) << b);
        memcpy(t.boundaries + pl_tq_at(b), pl_turboquant_boundaries(b),
               (sizeof(float) << b) - sizeof(float));
    }
    PL_TRY(pl_cuda_check(cudaMemcpyToSymbolAsync(pl_tq, &t, sizeof t, 0, cudaMemcpyHostToDevice,
                                                 d->stream),
                         "uploading the tables of packed caches", err));
    return pl_cuda_sync(d, err);
}

/* ---- rotation -------------------------------------------------------------------------------- */

/* Length of the Hadamard block that holds register r of D numbers. */
static __host__ __device__ constexpr int pl_tq_block(int D, int r)
{
    return D == 80    ? (r < 2 ? 64 : 16)
           : D == 96  ? (r < 2 ? 64 : 32)
           : D == 112 ? (r < 2    ? 64
                         : r == 2 ? 32
                                  : 16)
           : D == 192 ? (r < 4 ? 128 : 64)
                      : D;
}

/* 1.0f / sqrtf(n) of a block's length. */
static __host__ __device__ constexpr float pl_tq_factor(int n)
{
    return 1.0f / (n == 16    ? 4.0f
                   : n == 32  ? 5.656854249492381f
                   : n == 64  ? 8.0f
                   : n == 128 ? 11.313708498984761f
                   : n == 256 ? 16.0f
                              : 22.627416997969522f);
}

template <int D> struct pl_tq_shape {
    static constexpr int R = (D + 31) / 32;
    static constexpr bool tail = D % 32 != 0; /* 16 numbers in the last register */
};

template <int D> static __device__ __forceinline__ void pl_tq_signs(float *x, int lane)
{
#pragma unroll
    for (int r = 0; r < pl_tq_shape<D>::R; r++) {
        uint32_t sign = pl_tq.signs[pl_tq_dim(D)][r] >> lane << 31;
        x[r] = __uint_as_float(__float_as_uint(x[r]) ^ sign);
    }
}

/* All blocks, shortest stride first, and the factors. */
template <int D> static __device__ __forceinline__ void pl_tq_hadamard(float *x, int lane)
{
    constexpr int R = pl_tq_shape<D>::R;
#pragma unroll
    for (int stride = 1; stride < 32; stride *= 2)
#pragma unroll
        for (int r = 0; r < R; r++)
            if (pl_tq_block(D, r) > stride) {
                float other = __shfl_xor_sync(~0u, x[r], stride);
                x[r] = lane & stride ? __fsub_rn(other, x[r]) : __fadd_rn(x[r], other);
            }
#pragma unroll
    for (int step = 1; step < R; step *= 2)
#pragma unroll
        for (int r = 0; r < R; r++)
            if (pl_tq_block(D, r) > 32 * step && !(r & step)) {
                float a = x[r], b = x[r + step];
                x[r] = __fadd_rn(a, b);
                x[r + step] = __fsub_rn(a, b);
            }
#pragma unroll
    for (int r = 0; r < R; r++)
        x[r] = __fmul_rn(x[r], pl_tq_factor(pl_tq_block(D, r)));
}

template <int D> static __device__ __forceinline__ void pl_tq_rotate(float *x, int lane)
{
    pl_tq_signs<D>(x, lane);
    pl_tq_hadamard<D>(x, lane);
}

template <int D> static __device__ __forceinline__ void pl_tq_unrotate(float *x, int lane)
{
    pl_tq_hadamard<D>(x, lane);
    pl_tq_signs<D>(x, lane);
}

/* ---- encode ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ uint16_t pl_tq_half(float x)
{
    return __half_as_ushort(__float2half_rn(x));
}

static __device__ __forceinline__ float pl_tq_float(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
}

enum { PL_TQ_NAN = 0x7e00 };

struct pl_tq_code {
    uint32_t code; /* as packed */
    uint16_t scale, zero;
};

/* Of numbers that are equal but for their signs as zeros, the one that the portable code finds: it
 * takes the last of 8 columns that has one, and there the first. */
static __device__ __forceinline__ float pl_tq_pick(float x, uint32_t equal)
{
    uint32_t columns = (equal | equal >> 8 | equal >> 16 | equal >> 24) & 255;
    int column = 31 - __clz(columns | 1);
    return __shfl_sync(~0u, x, __ffs(equal >> column & 0x01010101) - 1 + column);
}

static __device__ __forceinline__ float pl_tq_least(float x)
{
    for (int i = 16; i; i /= 2) x = fminf(x, __shfl_xor_sync(~0u, x, i));
    return x;
}

static __device__ __forceinline__ uint16_t pl_tq_from_above(double v)
{
    if (v >= 65504.0) return 0x7bff;
    uint16_t h = pl_tq_half((float)v);
    return (double)pl_tq_float(h) < v ? h + 1 : h;
}

/* turboquant_encode.c, fit_key */
static __device__ __noinline__ pl_tq_code pl_tq_fit(float x, bool centred, float levels, double low,
                                                    double high)
{
    pl_tq_code out;
    double least = centred ? -127 : 0, most = least + levels;
    double size = fmax(fabs(low), fabs(high)), middle = __ddiv_rn(__dadd_rn(low, high), 2);
    double range = __dsub_rn(high, low);
    double step = fmax(__ddiv_rn(range, levels), __ddiv_rn(size, 32768));
    out.scale = pl_tq_from_above(fmax(step, 0x1p-24));
    if (size > __dmul_rn(2000, pl_tq_float(out.scale))) {
        step = fmax(step, __ddiv_rn(__dadd_rn(range, __ddiv_rn(size, 1024)), levels));
        out.scale = pl_tq_from_above(step);
    }
    step = pl_tq_float(out.scale);
    double z = __dsub_rn(__ddiv_rn(middle, step), least + levels / 2);
    if (fabs(z) < 2048) z = rint(z);
    out.zero = pl_tq_half((float)fmin(fmax(z, -65504.0), 65504.0));
    z = pl_tq_float(out.zero);
    double c = fmin(fmax(__dsub_rn(__ddiv_rn(x, step), z), least), most);
    out.code = (uint32_t)(int32_t)rint(c);
    return out;
}

/* One group of n = 32 or 16 keys; scale and zero are every lane's. */
static __device__ __forceinline__ pl_tq_code pl_tq_key(float x, uint32_t bits, int n, int lane)
{
    const bool in = lane < n, centred = bits == 8;
    const float levels = centred ? 254.0f : (float)((1u << bits) - 1), least = centred ? -127 : 0;
    pl_tq_code out;
    if (__any_sync(~0u, in && !isfinite(x))) {
        out.code = 0;
        out.scale = PL_TQ_NAN;
        out.zero = 0;
        return out;
    }
    float low = pl_tq_least(in ? x : INFINITY), high = -pl_tq_least(in ? -x : INFINITY);
    low = pl_tq_pick(x, __ballot_sync(~0u, in && x == low));
    high = pl_tq_pick(x, __ballot_sync(~0u, in && x == high));
    float s = __fdiv_rn(__fsub_rn(high, low), levels), step = __fadd_rn(s, 1e-8f);
    float z = rintf(centred ? __fdiv_rn(__fadd_rn(high, low), __fmul_rn(2.0f, step))
                            : __fdiv_rn(low, step));
    out.scale = pl_tq_half(s);
    out.zero = pl_tq_half(z);
    uint32_t exponent = out.scale >> 10 & 31;
    if (exponent == 0 || exponent == 31 || !(fabsf(z) <= 65504.0f) || pl_tq_float(out.zero) != z) {
        out = pl_tq_fit(x, centred, levels, low, high);
    } else {
        float c = __fsub_rn(__fdiv_rn(x, step), z);
        c = c < least ? least : c;
        out.code = (uint32_t)__float2int_rn(c > least + levels ? least + levels : c);
    }
    out.code &= (1u << bits) - 1;
    return out;
}

/* One group of n = 32 or 16 rotated values. */
static __device__ __forceinline__ pl_tq_code pl_tq_value(float r, uint32_t bits, int n, int lane)
{
    const bool in = lane < n;
    pl_tq_code out;
    float p = in ? __fmul_rn(r, r) : 0.0f, sum = p;
    for (int i = 8; i < 32; i += 8) sum = __fadd_rn(sum, __shfl_down_sync(~0u, p, i));
    for (int i = 1; i < 8; i *= 2) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, i));
    sum = __shfl_sync(~0u, sum, 0);
    float s = __fsqrt_rn(__fdiv_rn(sum, (float)n));
    out.zero = 0;
    if (!(s < 65520.0f)) {
        if (__any_sync(~0u, in && !isfinite(r))) {
            out.code = 0;
            out.scale = PL_TQ_NAN;
            return out;
        }
        s = 65504.0f;
    }
    out.scale = pl_tq_half(s);
    const float q = __fdiv_rn(r, __fadd_rn(s, 1e-8f));
    const float *boundaries = pl_tq.boundaries + pl_tq_at(bits);
    out.code = 0;
    for (uint32_t half = 1u << (bits - 1); half; half /= 2)
        if (q > boundaries[out.code + half - 1]) out.code += half;
    return out;
}

/* The codes of a group of n as a bit string, 4 * bits bytes for 32. */
static __device__ __forceinline__ void pl_tq_pack(uint8_t *dst, uint32_t code, uint32_t bits, int n,
                                                  int lane)
{
    if (bits == 8) {
        if (lane < n) dst[lane] = (uint8_t)code;
        return;
    }
    uint32_t first = 8 * lane / bits, word = 0;
    for (uint32_t k = 0; k < 5; k++) {
        uint32_t i = first + k, c = __shfl_sync(~0u, code, i & 31);
        int shift = (int)(i * bits) - 8 * lane;
        if (i < 32 && shift < 8) word |= shift < 0 ? c >> -shift : c << shift;
    }
    if (8 * lane < n * (int)bits) dst[lane] = (uint8_t)word;
}

/* ---- decode ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ uint32_t pl_tq_bits(const uint8_t *codes, uint32_t bits,
                                                      uint32_t i)
{
    uint32_t bit = i * bits, shift = bit % 8, both = codes[bit / 8];
    if (shift + bits > 8) both |= (uint32_t)codes[bit / 8 + 1] << 8;
    return both >> shift & ((1u << bits) - 1);
}

static __device__ __forceinline__ float pl_tq_decode_key(uint32_t code, uint32_t bits, float scale,
                                                         float zero)
{
    int32_t c = bits == 8 ? (int32_t)(int8_t)code : (int32_t)code;
    return __fmul_rn(__fadd_rn((float)c, zero), scale);
}

static __device__ __forceinline__ float pl_tq_decode_value(uint32_t code, uint32_t bits,
                                                           float scale)
{
    return __fmul_rn(pl_tq.centroids[pl_tq_at(bits) + code], scale);
}

#endif
