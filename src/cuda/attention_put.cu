/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and values of rows into their pages, a head for each warp; before that, where there are
 * rotary positions, queries and keys are turned. */
#include <cuda_bf16.h>

#include "attention.h"
#include "attention_layout.h"
#include "launch.cuh"
#include "turboquant.cuh"

enum { WARPS = 4, PAGE = 64 };

struct put_rows {
    pl_cuda_kv c;
    const pl_cuda_row *rows;
    size_t M;
    const float *k, *v;
    size_t k_stride, v_stride;
    pl_cuda_rope rope;
    uint32_t turned; /* query heads; 0: neither they nor keys */
};

static __device__ __forceinline__ uint8_t *page_of(const pl_cuda_kv &c, void *const *pages,
                                                   pl_cuda_row row)
{
    return (uint8_t *)pages[row.sequence * c.pages_stride + row.position / PAGE];
}

/* Keys and values of a head lie as [keys, values][PAGE][D] numbers. */
template <typename T>
static __device__ __forceinline__ T *plain_at(const pl_cuda_kv &c, void *page, uint32_t head,
                                              bool value, uint32_t token)
{
    return (T *)page + (((size_t)head * 2 + value) * PAGE + token) * c.head_dim;
}

/* One head of row m, in place. */
static __device__ __forceinline__ void turn_head(const pl_cuda_rope &p, float *x, const float *gain,
                                                 size_t m, size_t D, int lane)
{
    const float *cosine = p.cos + m * p.half, *sine = p.sin + m * p.half;
    float by = 1, sum = 0;
    if (gain) {
        for (size_t i = lane; i < D; i += 32) sum += x[i] * x[i];
#pragma unroll
        for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
        by = 1.0f / sqrtf(sum / (float)D + p.eps);
        for (size_t i = 2 * p.half + lane; i < D; i += 32) x[i] = x[i] * by * gain[i];
    }
    for (size_t i = lane; i < p.half; i += 32) {
        float a = x[i], b = x[i + p.half], c = cosine[i], s = sine[i];
        if (gain) {
            a = a * by * gain[i];
            b = b * by * gain[i + p.half];
        }
        x[i] = __fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s));
        x[i + p.half] = __fadd_rn(__fmul_rn(b, c), __fmul_rn(a, s));
    }
}

static __device__ __forceinline__ void put_plain(const pl_cuda_kv &c, pl_cuda_row row,
                                                 uint32_t head, bool value, const float *x,
                                                 int lane)
{
    uint8_t *page = page_of(c, c.pages, row);
    const uint32_t at = row.position % PAGE;
    for (uint32_t i = lane; i < c.head_dim; i += 32)
        if (c.type == PL_KV_F32)
            plain_at<float>(c, page, head, value, at)[i] = x[i];
        else
            plain_at<__nv_bfloat16>(c, page, head, value, at)[i] = __float2bfloat16_rn(x[i]);
}

/* A token's codes in the order of turboquant.h: the page of its head's keys or values. */
template <int D>
static __device__ void put_page(uint8_t *page, uint32_t bits, bool value, uint32_t token,
                                const float *r, int lane)
{
    constexpr int G = pl_tq_shape<D>::R;
    uint8_t *codes = page + token * (D * bits / 8);
    uint16_t *scales = (uint16_t *)(page + PAGE * (D * bits / 8));
#pragma unroll
    for (int i = 0; i < G; i++) {
        const int n = D - 32 * i < 32 ? 16 : 32;
        pl_tq_code c = value ? pl_tq_value(r[i], bits, n, lane) : pl_tq_key(r[i], bits, n, lane);
        pl_tq_pack(codes + 4 * bits * i, c.code, bits, n, lane);
        if (lane == 0) scales[i * PAGE + token] = c.scale;
        if (lane == 0 && !value) scales[(G + i) * PAGE + token] = c.zero;
    }
}

/* The same in a tile. */
template <int D>
static __device__ void put_tile_key(uint8_t *tile, uint32_t bits, uint32_t t, const float *r,
                                    int lane)
{
    uint16_t *scales = (uint16_t *)(tile + pl_tile_key_scales(D, bits));
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        pl_tq_code c = pl_tq_key(r[i], bits, 32, lane);
        uint8_t *octet = tile + pl_tile_key(bits, t, 4 * i + lane / 8);
        if (bits == 8) {
            octet[lane % 8] = (uint8_t)c.code;
        } else {
            uint32_t high = __shfl_down_sync(~0u, c.code, 1);
            if (lane % 2 == 0) octet[lane % 8 / 2] = (uint8_t)(c.code | high << 4);
        }
        if (lane == 0) *(uint32_t *)(scales + pl_tile_key_scale(t, i)) = c.scale | c.zero << 16;
    }
}

/* Words hold four tokens, which other warps may be writing: a warp flips those of its own bits that
 * are to change. */
template <int D>
static __device__ void put_tile_value(uint8_t *values, uint8_t *value_scales, uint32_t bits,
                                      uint32_t t, const float *r, uint8_t *codes, int lane)
{
    uint32_t *words = (uint32_t *)values;
    uint16_t *scales = (uint16_t *)value_scales;
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        pl_tq_code c = pl_tq_value(r[i], bits, 32, lane);
        codes[32 * i + lane] = (uint8_t)c.code;
        if (lane == 0) scales[pl_tile_value_scale(t, i)] = c.scale;
    }
    __syncwarp();
    for (uint32_t at = lane; at < D * bits / 8; at += 32) { /* word w of g's lane */
        uint32_t w = at / 8, g = at % 8, low, high;
        if (bits == 4) {
            low = codes[16 * w + g];
            high = codes[16 * w + 8 + g];
        } else if (bits == 2) {
            low = codes[32 * w + g] | codes[32 * w + 16 + g] << 2;
            high = codes[32 * w + 8 + g] | codes[32 * w + 24 + g] << 2;
        } else {
            const uint8_t *unit = codes + 64 * (w / 3) + g;
            uint32_t j = w % 3;
            low = unit[16 * j] | (unit[48] >> j & 1) << 3;
            high = unit[16 * j + 8] | (unit[56] >> j & 1) << 3;
        }
        uint32_t shift = pl_tile_value_shift(t, 0);
        uint32_t *word = words + pl_tile_value_word(D, bits, w, g * 4 + t % 8 / 2);
        uint32_t mine = 15u << shift | 15u << (shift + 8);
        uint32_t change = (__ldcg(word) ^ (low << shift | high << (shift + 8))) & mine;
        if (change) atomicXor(word, change);
    }
}

template <int D>
static __device__ __forceinline__ void put_packed(const pl_cuda_kv &c, pl_cuda_row row,
                                                  uint32_t head, bool value, const float *x,
                                                  uint8_t *codes, int lane)
{
    constexpr int R = pl_tq_shape<D>::R;
    const uint32_t key_bits = c.type >> 4, value_bits = c.type & 15, at = row.position % PAGE;
    float r[R];
#pragma unroll
    for (int i = 0; i < R; i++) r[i] = 32 * i + lane < D ? x[32 * i + lane] : 0.0f;
    if (c.recent) {
        __nv_bfloat16 *dst = plain_at<__nv_bfloat16>(c, page_of(c, c.recent_pages, row), head,
                                                     value, at);
#pragma unroll
        for (int i = 0; i < R; i++)
            if (32 * i + lane < D) dst[32 * i + lane] = __float2bfloat16_rn(r[i]);
    }
    if (value) pl_tq_rotate<D>(r, lane);
    const uint32_t key_bytes = D * key_bits / 8 + 4 * R, value_bytes = D * value_bits / 8 + 2 * R;
    uint8_t *run = page_of(c, c.pages, row) + (size_t)head * PAGE * (key_bytes + value_bytes);
    if (!pl_cuda_kv_tiled(key_bits, value_bits, D)) {
        put_page<D>(run + (value ? PAGE * key_bytes : 0), value ? value_bits : key_bits, value, at, r,
                    lane);
        return;
    }
    if constexpr (D % 64 == 0) {
        uint8_t *tile = run + at / PL_CUDA_TILE * pl_tile_bytes(D, key_bits, value_bits);
        if (value)
            put_tile_value<D>(tile + pl_tile_values(D, key_bits),
                              tile + pl_tile_value_scales(D, key_bits, value_bits), value_bits,
                              at % PL_CUDA_TILE, r, codes, lane);
        else
            put_tile_key<D>(tile, key_bits, at % PL_CUDA_TILE, r, lane);
    }
}

/* Jobs of a row: its keys, its values, its queries that are turned. D 0: pages of numbers. */
template <int D> static __global__ void put_heads(put_rows p)
{
    __shared__ uint8_t codes[WARPS][D ? D : 1];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t K = p.c.n_kv_heads, dim = D ? D : p.c.head_dim, jobs = 2 * K + p.turned;
    const size_t work = (size_t)blockIdx.x * WARPS + warp, m = work / jobs;
    const uint32_t job = (uint32_t)(work % jobs);
    const uint32_t head = job < K ? job : job < 2 * K ? job - K : job - 2 * K;
    pl_let_next_start();
    const pl_cuda_row row = m < p.M ? p.rows[m] : pl_cuda_row{0, PL_CUDA_NO_ROW};
    pl_wait_for_previous();
    if (row.position == PL_CUDA_NO_ROW) return;
    if (job >= 2 * K) {
        turn_head(p.rope, p.rope.q + (m * p.turned + head) * dim, p.rope.q_norm, m, dim, lane);
        return;
    }
    const bool value = job >= K;
    if (!value && p.turned) {
        turn_head(p.rope, p.rope.k + (m * K + head) * dim, p.rope.k_norm, m, dim, lane);
        __syncwarp();
    }
    const float *x = (value ? p.v + m * p.v_stride : p.k + m * p.k_stride) + (size_t)head * dim;
    if constexpr (D == 0)
        put_plain(p.c, row, head, value, x, lane);
    else
        put_packed<D>(p.c, row, head, value, x, codes[warp], lane);
}

extern "C" pleach_status pl_cuda_attention_put_open(pl_cuda *d, pleach_error *err)
{
    return pl_tq_upload(d, err);
}

extern "C" void pl_cuda_kv_put(const pl_cuda *d, const pl_cuda_kv *c, const pl_cuda_row *rows,
                               size_t M, const float *k, size_t k_stride, const float *v,
                               size_t v_stride, const pl_cuda_rope *rope)
{
    if (!M) return;
    put_rows p = {*c, rows, M, k, v, k_stride, v_stride, {}, 0};
    if (rope) {
        p.rope = *rope;
        p.turned = rope->heads;
    }
    size_t jobs = M * (2 * c->n_kv_heads + p.turned);
    dim3 grid((unsigned)((jobs + WARPS - 1) / WARPS)), block(32 * WARPS);
#define PUT(D) case D: pl_launch(d, put_heads<D>, grid, block, 0, p); break;
    switch (pl_kv_is_packed(c->type) ? c->head_dim : 0) {
        PUT(0) PUT(64) PUT(80) PUT(96) PUT(112) PUT(128) PUT(192) PUT(256) PUT(512)
    }
#undef PUT
}
