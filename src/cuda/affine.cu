/* SPDX-License-Identifier: Apache-2.0 */
#include "affine.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "many_rows.h"
#include "row_product.cuh"

/* How numbers of a group come about. */
enum { MLX_BF16, MLX_F16, PLAIN_F16, PLAIN_F32 };

/* q * scale + bias in the scale's type, each step rounded (format/weight_rows.c), for two numbers
 * in the halves of a word. */
static __device__ __forceinline__ void bf16_pair(float *w, uint32_t q, uint32_t scale,
                                                 uint32_t bias)
{
    __nv_bfloat162 x = __hadd2_rn(__hmul2_rn(*(__nv_bfloat162 *)&q, *(__nv_bfloat162 *)&scale),
                                  *(__nv_bfloat162 *)&bias);
    uint32_t bits = *(uint32_t *)&x;
    w[0] = __uint_as_float(bits << 16);
    w[4] = __uint_as_float(bits & 0xffff0000u);
}

static __device__ __forceinline__ void f16_pair(float *w, uint32_t q, uint32_t scale, uint32_t bias)
{
    __half2 x = __hadd2_rn(__hmul2_rn(*(__half2 *)&q, *(__half2 *)&scale), *(__half2 *)&bias);
    w[0] = __low2float(x);
    w[4] = __high2float(x);
}

/* Codes i and i + 4 of eight in the halves of a word. */
template <int BITS>
static __device__ __forceinline__ uint32_t code_pair(uint32_t low, uint32_t high, int i)
{
    const uint32_t mask = (1u << BITS) - 1;
    if (BITS == 8) return __byte_perm(low, high, 0x0400 | i | i << 8 | 0x0040) & 0x00ff00ff;
    if (BITS == 4) return low >> 4 * i & 0x000f000f;
    uint32_t upper = 4 * BITS >= 32 ? high : __funnelshift_r(low, high, 4 * BITS);
    return (low >> BITS * i & mask) | (upper >> BITS * i & mask) << 16;
}

/* Codes are a string of bits; eight of them always lie in two words. */
template <int BITS> struct affine_reader {
    const uint32_t *codes;
    const void *scales;
    uint32_t row_words, groups, shift; /* eights of a group: a power of two */
    float offset;
    int kind;
    bool biased;
    enum { BLOCKS = 4 };
    struct raw {
        uint32_t low, high;
        uint32_t scale, bias; /* of 16-bit types both in the first word */
    };
    __device__ __forceinline__ void load(raw &to, uint32_t row, uint32_t eight) const
    {
        const uint32_t *from = codes + (size_t)row * row_words;
        uint32_t word = eight * BITS / 4;
        size_t group = (size_t)row * groups + (eight >> shift);
        to.low = __ldg(from + word);
        if (BITS > 4 || BITS == 3) to.high = __ldg(from + min(word + 1, row_words - 1));
        if (kind == PLAIN_F32) {
            to.scale = __ldg((const uint32_t *)scales + (biased ? 2 * group : group));
            if (biased) to.bias = __ldg((const uint32_t *)scales + 2 * group + 1);
        } else {
            to.scale = biased ? __ldg((const uint32_t *)scales + group)
                              : __ldg((const unsigned short *)scales + group);
        }
    }
    /* In f32: the code as the low bits of 2^23 + code; `offset` is 2^23 and the coding's own. */
    __device__ __forceinline__ void plain(float w[8], uint32_t low, uint32_t high,
                                          const raw &from) const
    {
        float scale = kind == PLAIN_F32 ? __uint_as_float(from.scale)
                                        : __half2float(__ushort_as_half(from.scale & 0xffff));
        float bias = kind == PLAIN_F32 ? __uint_as_float(from.bias)
                                       : __half2float(__ushort_as_half(from.scale >> 16));
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t code = BITS == 8              ? 0
                            : i * BITS >= 32       ? high >> (i * BITS - 32)
                            : i * BITS + BITS > 32 ? __funnelshift_r(low, high, i * BITS)
                                                   : low >> i * BITS;
            code = BITS == 8 ? __byte_perm(i < 4 ? low : high, 0x4b000000u, 0x7550 | i % 4)
                             : (code & ((1u << BITS) - 1)) | 0x4b000000u;
            w[i] = __fmul_rn(__uint_as_float(code) - offset, scale);
        }
        if (!biased) return;
#pragma unroll
        for (int i = 0; i < 8; i++) w[i] = __fadd_rn(w[i], bias);
    }
    __device__ __forceinline__ void decode(float w[8], const raw &from, uint32_t eight) const
    {
        uint32_t shift_in = eight * BITS % 4 * 8;
        uint32_t low = BITS > 4 || BITS == 3 ? __funnelshift_r(from.low, from.high, shift_in)
                                             : from.low >> shift_in;
        uint32_t high = from.high >> shift_in;
        uint32_t scale = __byte_perm(from.scale, 0, 0x1010);
        uint32_t bias = __byte_perm(from.scale, 0, 0x3232);
        if (kind == MLX_BF16) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t q = code_pair<BITS>(low, high, i);
                if (BITS == 8) { /* as f32, whose upper half is exact */
                    float a = __uint_as_float((q & 0xffff) | 0x4b000000u) - 8388608.0f;
                    float b = __uint_as_float((q >> 16) | 0x4b000000u) - 8388608.0f;
                    q = __byte_perm(__float_as_uint(a), __float_as_uint(b), 0x7632);
                } else { /* as the low bits of 128 + code */
                    const uint32_t base = 0x43004300u;
                    q |= base;
                    __nv_bfloat162 x = __hsub2(*(__nv_bfloat162 *)&q, *(__nv_bfloat162 *)&base);
                    q = *(uint32_t *)&x;
                }
                bf16_pair(w + i, q, scale, bias);
            }
        } else if (kind == MLX_F16) {
#pragma unroll
            for (int i = 0; i < 4; i++) { /* as the low bits of 1024 + code */
                const uint32_t base = 0x64006400u;
                uint32_t q = code_pair<BITS>(low, high, i) | base;
                __half2 x = __hsub2(*(__half2 *)&q, *(__half2 *)&base);
                f16_pair(w + i, *(uint32_t *)&x, scale, bias);
            }
        } else {
            plain(w, low, high, from);
        }
    }
};

template <int BITS> static affine_reader<BITS> reader(const pl_cuda_affine *w)
{
    uint32_t shift = 0;
    while (8u << shift < w->group) shift++;
    return {(const uint32_t *)w->codes,
            w->scales,
            (uint32_t)(w->in * BITS / 32),
            (uint32_t)(w->in / w->group),
            shift,
            8388608.0f + w->offset,
            w->type == PL_F32    ? PLAIN_F32
            : w->type == PL_BF16 ? MLX_BF16
            : w->rounded         ? MLX_F16
                                 : PLAIN_F16,
            w->biased};
}

/* ---- many rows ------------------------------------------------------------------------------- */

enum { PIECE = 32 << 20 }; /* bytes of numbers that are worked out together */

static bool goes_to_blas(const pl_cuda *d, const pl_cuda_affine *w, size_t M)
{
    return M >= PL_CUDA_AFFINE_MANY && !d->batch_invariant && d->blas && w->in % 8 == 0;
}

/* The numbers of one piece. */
static pl_cuda_numbers piece_of(const pl_cuda_affine *w, const void *data)
{
    bool bf16 = w->type == PL_BF16;
    size_t rows = PIECE / (w->in * (bf16 ? 2 : 4));
    return {bf16 ? CUDA_R_16BF : CUDA_R_32F, data,
            rows == 0       ? 1
            : rows < w->out ? rows
                            : w->out,
            w->in, w->in};
}

static size_t piece_bytes(const pl_cuda_numbers *n)
{
    return (n->out * n->in * (n->type == CUDA_R_32F ? 4 : 2) + 255) / 256 * 256;
}

size_t pl_cuda_affine_scratch(const pl_cuda *d, const pl_cuda_affine *w, size_t M)
{
    pl_cuda_numbers piece = piece_of(w, NULL);
    return goes_to_blas(d, w, M) ? piece_bytes(&piece) + pl_cuda_many_scratch(&piece, M) : 0;
}

template <int BITS>
static void run_many(const pl_cuda *d, const pl_cuda_affine *w, const float *x, size_t M, float *y,
                     const float *scale, const float *bias, void *scratch)
{
    enum { MOST = 32768 }; /* rows of a launch: the grid's second dimension */
    pl_cuda_numbers piece = piece_of(w, scratch);
    void *rest = (uint8_t *)scratch + piece_bytes(&piece);
    size_t most = piece.out < MOST ? piece.out : MOST;
    for (size_t row = 0; row < w->out; row += most) {
        piece.out = w->out - row < most ? w->out - row : most;
        dim3 grid((unsigned)((w->in / 8 + 127) / 128), (unsigned)piece.out);
        if (piece.type == CUDA_R_16BF)
            pl_launch(d, pl_row_expand<affine_reader<BITS>, uint16_t>, grid, 128, 0,
                      reader<BITS>(w), (uint32_t)row, (uint32_t)w->in, (uint16_t *)scratch);
        else
            pl_launch(d, pl_row_expand<affine_reader<BITS>, float>, grid, 128, 0, reader<BITS>(w),
                      (uint32_t)row, (uint32_t)w->in, (float *)scratch);
        pl_cuda_many_run(d, &piece, x, M, y + row, w->out, scale ? scale + row : NULL,
                         bias ? bias + row : NULL, rest);
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

template <int BITS>
static void run(const pl_cuda *d, const pl_cuda_affine *w, const float *x, size_t M, float *y,
                const float *scale, const float *bias, void *scratch)
{
    if (goes_to_blas(d, w, M))
        run_many<BITS>(d, w, x, M, y, scale, bias, scratch);
    else
        pl_row_run(d, reader<BITS>(w), w->out, w->in, x, M, y, scale, bias);
}

template <int BITS>
static void rows(const pl_cuda *d, const pl_cuda_affine *w, const int32_t *ids, size_t n,
                 float *dst)
{
    pl_row_rows(d, reader<BITS>(w), w->in, ids, n, dst);
}

void pl_cuda_affine_run(const pl_cuda *d, const pl_cuda_affine *w, const float *x, size_t M,
                        float *y, const float *scale, const float *bias, void *scratch)
{
    switch (w->bits) {
    case 2:
        return run<2>(d, w, x, M, y, scale, bias, scratch);
    case 3:
        return run<3>(d, w, x, M, y, scale, bias, scratch);
    case 4:
        return run<4>(d, w, x, M, y, scale, bias, scratch);
    case 5:
        return run<5>(d, w, x, M, y, scale, bias, scratch);
    case 6:
        return run<6>(d, w, x, M, y, scale, bias, scratch);
    default:
        return run<8>(d, w, x, M, y, scale, bias, scratch);
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
