/* SPDX-License-Identifier: Apache-2.0
 *
 * One span of one row over f32 or bf16 pages by tensor cores, for head sizes that 64 divides. A
 * warp takes tiles of 16 tokens and keeps the next keys and the values in flight while it computes.
 *
 * An f32 number is the sum of two of bf16; queries and weights are, too, as columns of their own:
 * scores have columns (head, limb), sums columns (limb, head). Which dimension is which of a
 * fragment is free, so that a lane's loads are 16 bytes: of keys, lane 4 g + q has dimensions 8 q ..
 * 8 q + 7 of 32 of tokens g and g + 8; of values, 8 g .. 8 g + 7 of 64 of tokens 2 q, 2 q + 8,
 * 2 q + 1 and 2 q + 9. */
#ifndef PL_CUDA_ATTENTION_NUMBERS_CUH
#define PL_CUDA_ATTENTION_NUMBERS_CUH

#include <cuda_bf16.h>

#include "attention_rows.cuh"

namespace attention {

static __device__ __forceinline__ uint32_t bf16_pair(float a, float b)
{
    __nv_bfloat162 p = __floats2bfloat162_rn(a, b);
    return *(uint32_t *)&p;
}

/* What bf16 leaves of both. */
static __device__ __forceinline__ uint32_t bf16_rest(float a, float b, uint32_t pair)
{
    return bf16_pair(a - __uint_as_float(pair << 16), b - __uint_as_float(pair & 0xffff0000));
}

static __device__ __forceinline__ void multiply_bf16(float *c, uint32_t a0, uint32_t a1, uint32_t a2,
                                                     uint32_t a3, const uint32_t *b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ float exp2_ftz(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Eight numbers of one token as loaded: words of two bf16, or f32. */
template <int KIND> struct eight {
    uint4 v[KIND == F32 ? 2 : 1];

    __device__ __forceinline__ void load(const uint8_t *p)
    {
        v[0] = __ldg((const uint4 *)p);
        if (KIND == F32) v[KIND == F32] = __ldg((const uint4 *)p + 1);
    }
    __device__ __forceinline__ void clear()
    {
        v[0] = make_uint4(0, 0, 0, 0);
        v[KIND == F32] = v[0];
    }
    __device__ __forceinline__ uint32_t word(int i) const
    {
        const uint4 &x = v[i / 4];
        return i % 4 == 0 ? x.x : i % 4 == 1 ? x.y : i % 4 == 2 ? x.z : x.w;
    }
    __device__ __forceinline__ float number(int i) const { return __uint_as_float(word(i)); }
};

/* Scores of 32 dimensions: two steps. */
template <int KIND>
static __device__ __forceinline__ void add_scores(float *c, const eight<KIND> &a,
                                                  const eight<KIND> &b, const uint32_t (*q)[2])
{
#pragma unroll
    for (int j = 0; j < 2; j++) {
        if constexpr (KIND == BF16) {
            multiply_bf16(c, a.word(2 * j), b.word(2 * j), a.word(2 * j + 1), b.word(2 * j + 1), q[j]);
        } else {
            uint32_t high[4], rest[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const eight<KIND> &x = i % 2 ? b : a;
                const float u = x.number(4 * j + i / 2 * 2), v = x.number(4 * j + i / 2 * 2 + 1);
                high[i] = bf16_pair(u, v);
                rest[i] = bf16_rest(u, v, high[i]);
            }
            multiply_bf16(c, high[0], high[1], high[2], high[3], q[j]);
            multiply_bf16(c, rest[0], rest[1], rest[2], rest[3], q[j]);
        }
    }
}

/* Sums of 64 dimensions: four fragments. */
template <int KIND>
static __device__ __forceinline__ void add_values(float (*out)[4], const eight<KIND> *v,
                                                  const uint32_t *p)
{
#pragma unroll
    for (int m = 0; m < 4; m++) {
        if constexpr (KIND == BF16) {
            const uint32_t a = v[0].word(m), b = v[1].word(m), c = v[2].word(m), d = v[3].word(m);
            multiply_bf16(out[m], __byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632),
                          __byte_perm(c, d, 0x5410), __byte_perm(c, d, 0x7632), p);
        } else {
            uint32_t high[4], rest[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float x = v[i / 2 * 2].number(2 * m + i % 2);
                const float y = v[i / 2 * 2 + 1].number(2 * m + i % 2);
                high[i] = bf16_pair(x, y);
                rest[i] = bf16_rest(x, y, high[i]);
            }
            multiply_bf16(out[m], high[0], high[1], high[2], high[3], p);
            multiply_bf16(out[m], rest[0], rest[1], rest[2], rest[3], p);
        }
    }
}

/* Fragments B of the query heads, scaled: column 2 head + limb. */
template <int D>
static __device__ __forceinline__ void load_query(uint32_t (*b)[2], const float *q, uint32_t H,
                                                  float scale, int lane)
{
    const uint32_t head = lane / 8;
    const bool low = lane / 4 % 2;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        float x[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[j] = head < H ? q[head * D + i / 2 * 32 + lane % 4 * 8 + i % 2 * 4 + j] * scale : 0.0f;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            b[i][j] = bf16_pair(x[2 * j], x[2 * j + 1]);
            if (low) b[i][j] = bf16_rest(x[2 * j], x[2 * j + 1], b[i][j]);
        }
    }
}

/* C dimensions of keys, and of values, are held at once. */
template <int KIND, int D, int C>
static __device__ __forceinline__ void attend_numbers(const rows_args &a, const task &t,
                                                      void *const *pages, const warp_sums &w)
{
    enum { SLACK = 4 };
    constexpr int BYTES = KIND == F32 ? 4 : 2, PARTS = D / C;
    const uint32_t W = blockDim.x / 32, warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    pages += t.row.sequence * a.c.pages_stride + t.page;
    const uint32_t skip = (t.first - t.page * PAGE) / PL_CUDA_TILE;
    const uint32_t tiles = (t.end - t.page * PAGE + PL_CUDA_TILE - 1) / PL_CUDA_TILE;
    const uint32_t begin = (skip + W - 1 - warp) / W * W + warp;
    const uint32_t n = begin < tiles ? (tiles - begin + W - 1) / W : 0;
    const size_t of_head = (size_t)t.head * (2 * PAGE * D * BYTES);
    auto address_of = [&](uint32_t i) { /* of tile i + lane of this warp */
        const uint32_t tile = begin + (i + lane) * W;
        return i + lane < n ? (uint64_t)pages[tile / PL_CUDA_TILES] + of_head +
                                  tile % PL_CUDA_TILES * (PL_CUDA_TILE * D * BYTES)
                            : 0;
    };
    uint64_t now = address_of(0), later = 0;
    auto tile_at = [&](uint32_t i) {
        if (i % 32 == 0) {
            if (i) now = later;
            later = address_of(i + 32);
        }
        return (const uint8_t *)__shfl_sync(~0u, now, i % 32);
    };
    eight<KIND> k[C / 32][2], v[C / 64][4];
    auto load_keys = [&](const uint8_t *tile, int part) {
#pragma unroll
        for (int i = 0; i < C / 32; i++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                k[i][h].load(tile + ((g + 8 * h) * D + part * C + 32 * i + 8 * q) * BYTES);
    };
    auto token_of = [&](int i) { return (uint32_t)(2 * q + i / 2 + i % 2 * 8); };
    auto load_values = [&](const uint8_t *tile, int part) {
#pragma unroll
        for (int i = 0; i < C / 64; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                v[i][j].load(tile + (PAGE * D + token_of(j) * D + part * C + 64 * i + 8 * g) * BYTES);
    };
    const uint8_t *tile = tile_at(0), *next = NULL;
    if (begin >= fresh_tile(a, t)) pl_wait_for_previous();
    if (n) load_keys(tile, 0);
    pl_wait_for_previous();
    uint32_t query[D / 16][2];
    load_query<D>(query, heads_of(a.q, a.q_stride, a, t), t.H, a.scale, lane);
    float max = -INFINITY, sum = 0, out[D / 16][4] = {};
    for (uint32_t i = 0; i < n; i++, tile = next) {
        const uint32_t base = t.page * PAGE + (begin + i * W) * PL_CUDA_TILE;
        const bool whole = base >= t.first && base + PL_CUDA_TILE <= t.end;
        auto sees = [&](uint32_t token) { return base + token >= t.first && base + token < t.end; };
        next = tile_at(i + 1);
        load_values(tile, 0);
        float c[4] = {};
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
#pragma unroll
            for (int j = 0; j < C / 32; j++)
                add_scores<KIND>(c, k[j][0], k[j][1], query + (part * C + 32 * j) / 16);
            if (part + 1 < PARTS)
                load_keys(tile, part + 1);
            else if (i + 1 < n)
                load_keys(next, 0);
        }
        float s0 = c[0] + c[1], s1 = c[2] + c[3];
        if (!whole) {
            if (!sees(g)) s0 = -INFINITY;
            if (!sees(g + 8)) s1 = -INFINITY;
        }
        float top = fmaxf(s0, s1);
#pragma unroll
        for (int j = 4; j < 32; j *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, j));
        if (__any_sync(~0u, !(top <= max + SLACK))) {
            const float higher = top > max + SLACK ? top : max, keep = weight(max, higher);
            max = higher;
            sum *= keep;
            const float keep0 = __shfl_sync(~0u, keep, 2 * q & 3);
            const float keep1 = __shfl_sync(~0u, keep, (2 * q + 1) & 3);
#pragma unroll
            for (int j = 0; j < D / 16; j++) {
                out[j][0] *= keep0, out[j][1] *= keep1;
                out[j][2] *= keep0, out[j][3] *= keep1;
            }
        }
        const float p0 = exp2_ftz(s0 - max), p1 = exp2_ftz(s1 - max);
        sum += p0 + p1;
        const uint32_t high = bf16_pair(p0, p1), rest = bf16_rest(p0, p1, high);
        uint32_t p[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const uint32_t x = __shfl_sync(~0u, high, 8 * q + 4 * j + (g & 3));
            const uint32_t y = __shfl_sync(~0u, rest, 8 * q + 4 * j + (g & 3));
            p[j] = g < 4 ? x : y;
        }
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            if (!whole) /* what is not seen may be anything */
#pragma unroll
                for (int j = 0; j < C / 64; j++)
#pragma unroll
                    for (int m = 0; m < 4; m++)
                        if (!sees(token_of(m))) v[j][m].clear();
#pragma unroll
            for (int j = 0; j < C / 64; j++) add_values<KIND>(out + (part * C + 64 * j) / 16, v[j], p);
            if (part + 1 < PARTS) load_values(tile, part + 1);
        }
    }
#pragma unroll
    for (int i = 4; i < 32; i *= 2) sum += __shfl_xor_sync(~0u, sum, i);
    if (lane < MOST_HEADS) {
        w.max[warp * MOST_HEADS + lane] = max;
        w.sum[warp * MOST_HEADS + lane] = sum;
    }
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float x = out[i][e] + __shfl_xor_sync(~0u, out[i][e], 2); /* both limbs */
            const uint32_t h = 2 * q + e % 2, d = i / 4 * 64 + 8 * g + i % 4 * 2 + e / 2;
            if (h < t.H) w.out[(warp * t.H + h) * w.stride + d] = x;
        }
}

} // namespace attention

#endif
