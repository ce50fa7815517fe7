/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of rows alone: how a row's positions are cut into spans, and how the spans' sums become
 * its result. A block of threads has one span of one row for up to MOST_HEADS query heads of a key
 * head; warps and spans leave (max, sum, values) and are added in order. Logarithms are to base 2.
 *
 * Letters: D head size, H heads of a block, W its warps. */
#ifndef PL_CUDA_ATTENTION_CUH
#define PL_CUDA_ATTENTION_CUH

#include "attention.h"
#include "attention_layout.h"
#include "launch.cuh"
#include "turboquant.cuh"

namespace attention {

enum {
    PAGE = 64,
    MOST_HEADS = 4,  /* of a block */
    MOST_SPANS = 24, /* as stored, and of recent tokens: a lane each */
    MOST_RECENT = 8,
    SPAN_PAGES = 4,  /* at least, of a span, where there are as many */
    PAD = 8          /* numbers between heads in shared memory */
};

struct rows_args {
    pl_cuda_kv c;
    const pl_cuda_row *rows;
    const float *q;
    float *out;
    size_t q_stride, out_stride;
    uint32_t n_heads, group, chunks; /* query heads of a key head, and blocks that they make */
    uint32_t most_spans, stored_grid, slots;
    float scale; /* log2(e) / sqrt(D) */
    bool apart;
    uint32_t rotation; /* block of the rotation of a block's heads; 0: none */
    const float *signs; /* its, or NULL */
    unsigned *arrived; /* [M][n_kv_heads * chunks] */
    float *parts;      /* [M][n_kv_heads * chunks][slots][part_floats] */
};

static __host__ __device__ __forceinline__ uint32_t part_floats(uint32_t D)
{
    return 2 * MOST_HEADS + MOST_HEADS * D;
}

/* Spans of positions [first, end), in pages from `page` on. */
struct spans {
    uint32_t first, end, page, per, count;
};

static __device__ __forceinline__ spans cut(uint32_t first, uint32_t end, uint32_t most)
{
    spans s = {first, end, first / PAGE, SPAN_PAGES, 0};
    if (first >= end) return s;
    uint32_t pages = (end + PAGE - 1) / PAGE - s.page;
    s.per = max((uint32_t)SPAN_PAGES, (pages + most - 1) / most);
    s.count = (pages + s.per - 1) / s.per;
    return s;
}

/* What a row sees as the layer stores it, and as recent tokens: of its position alone. */
struct plan {
    spans stored, recent;
};

static __device__ __forceinline__ plan make_plan(const rows_args &a, uint32_t position)
{
    uint32_t first = a.c.window && position >= a.c.window ? position - a.c.window + 1 : 0;
    uint32_t end = position + 1, from = end;
    if (a.c.recent) from = (position / PAGE - position / PAGE % a.c.recent) * PAGE;
    plan p;
    p.stored = cut(first, min(end, from), a.most_spans);
    p.recent.count = 0;
    if (a.c.recent) p.recent = cut(max(first, from), end, MOST_RECENT);
    return p;
}

/* What a block is to do. */
struct task {
    size_t m;
    pl_cuda_row row;
    uint32_t head, chunk, H; /* key head, which of its chunks, and query heads in it */
    bool recent;
    uint32_t first, end; /* positions */
    uint32_t page;       /* of the span's beginning */
    uint32_t slot, spans;
    plan p;
};

/* False: nothing. */
static __device__ __forceinline__ bool find_task(const rows_args &a, task &t)
{
    t.m = blockIdx.z;
    t.row = a.rows[t.m];
    if (t.row.position == PL_CUDA_NO_ROW) return false;
    t.head = a.chunks == 1 ? blockIdx.y : blockIdx.y / a.chunks;
    t.chunk = blockIdx.y - t.head * a.chunks;
    t.H = min((uint32_t)MOST_HEADS, a.group - t.chunk * MOST_HEADS);
    t.p = make_plan(a, t.row.position);
    t.slot = blockIdx.x;
    t.recent = t.slot >= a.stored_grid;
    const uint32_t i = t.recent ? t.slot - a.stored_grid : t.slot;
    if (i >= (t.recent ? t.p.recent.count : t.p.stored.count)) return false;
    const uint32_t per = t.recent ? t.p.recent.per : t.p.stored.per;
    t.page = (t.recent ? t.p.recent.page : t.p.stored.page) + i * per;
    t.first = max(t.recent ? t.p.recent.first : t.p.stored.first, t.page * PAGE);
    t.end = min(t.recent ? t.p.recent.end : t.p.stored.end, (t.page + per) * PAGE);
    t.spans = t.p.stored.count + t.p.recent.count;
    return true;
}

/* The first tile of a span, counted from its page, that the kernel before may still be writing. */
static __device__ __forceinline__ uint32_t fresh_tile(const rows_args &a, const task &t)
{
    if (!a.apart) return 0;
    return (t.row.position / PAGE - t.page) * PL_CUDA_TILES + t.row.position % PAGE / PL_CUDA_TILE;
}

template <typename T>
static __device__ __forceinline__ T *heads_of(T *base, size_t stride, const rows_args &a,
                                              const task &t)
{
    return base + t.m * stride +
           ((size_t)t.head * a.group + t.chunk * MOST_HEADS) * a.c.head_dim;
}

/* 2^x for x <= 0 and NaN; what saw nothing has a maximum of -infinity and weighs nothing. */
static __device__ __forceinline__ float weight(float max, float most)
{
    return max == -INFINITY ? 0.0f : exp2f(max - most);
}

/* One head in shared memory, by a warp: the inverse of the rotation. */
static __device__ __forceinline__ void unrotate_shared(float *x, uint32_t D, int lane)
{
    for (uint32_t at = 0, block; at < D; at += block) {
        block = 1u << (31 - __clz(D - at));
        for (uint32_t stride = 1; stride < block; stride *= 2) {
            __syncwarp();
            for (uint32_t i = lane; i < block / 2; i += 32) {
                float *low = x + at + (i / stride * 2 * stride + i % stride), b = low[stride];
                float a = *low;
                *low = a + b;
                low[stride] = a - b;
            }
        }
        __syncwarp();
        const float factor = rsqrtf((float)block);
        for (uint32_t i = at + lane; i < at + block; i += 32) {
            uint32_t sign = pl_tq.signs[pl_tq_dim(D)][i / 32] >> i % 32 << 31;
            x[i] = __uint_as_float(__float_as_uint(x[i] * factor) ^ sign);
        }
    }
    __syncwarp();
}

/* What warps leave in shared memory: [W][MOST_HEADS] each, then [W][H][D + PAD]. */
struct warp_sums {
    float *max, *sum, *out;
    uint32_t stride; /* D + PAD */
};

static __host__ __device__ __forceinline__ size_t warp_sums_bytes(uint32_t W, uint32_t H,
                                                                  uint32_t D)
{
    return sizeof(float) * W * (2 * MOST_HEADS + H * (D + PAD));
}

static __device__ __forceinline__ warp_sums warp_sums_at(void *shared, uint32_t W, uint32_t D)
{
    float *p = (float *)shared;
    return {p, p + W * MOST_HEADS, p + 2 * W * MOST_HEADS, D + PAD};
}

static __device__ __forceinline__ float most_of_warp(float x)
{
#pragma unroll
    for (int i = 16; i; i /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, i));
    return x;
}

static __device__ __forceinline__ float sum_of_warp(float x)
{
#pragma unroll
    for (int i = 16; i; i /= 2) x += __shfl_xor_sync(~0u, x, i);
    return x;
}

/* In shared memory, of the parts that are added: weights, and by head what they come to. */
struct weights {
    float factor[32][MOST_HEADS], max[MOST_HEADS], sum[MOST_HEADS];
};

/* Weights of n <= 32 parts, by a warp for head h, of the maximum and sum of the lane's part. */
static __device__ __forceinline__ void weigh(weights &w, uint32_t h, uint32_t n, int lane, float max,
                                             float sum)
{
    const float most = most_of_warp(max), f = weight(max, most);
    const float all = sum_of_warp(sum * f);
    if (lane < n) w.factor[lane][h] = f;
    if (lane == 0) {
        w.max[h] = most;
        w.sum[h] = all;
    }
}

/* Every code below runs once a block, much of it from memory: it is kept short. */

/* Adds the spans of a row in order, by the block that came last: what is stored to `result`. */
template <int DIM>
static __device__ __forceinline__ void add_spans(const rows_args &a, const task &t, weights &w,
                                                 float *result, const float *parts)
{
    enum { AHEAD = 16 }; /* spans read at once, the first before their weights are known */
    const uint32_t D = DIM ? DIM : a.c.head_dim, part = part_floats(D), n = t.p.stored.count;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, count = t.H * D;
    bool weighed = false;
#pragma unroll 1
    for (uint32_t base = 0; base < count; base += blockDim.x) {
        const uint32_t i = base + threadIdx.x, h = min(i / D, (uint32_t)MOST_HEADS - 1);
        float x = 0;
        uint32_t s = 0;
#pragma unroll 1
        do {
            const float *p = parts + 2 * MOST_HEADS + (size_t)s * part + i;
            float v[AHEAD];
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
                v[j] = s + j < n && i < count ? __ldcg(p + (size_t)j * part) : 0.0f;
            if (!weighed) {
                if (warp < t.H) {
                    const bool there = lane < t.spans;
                    const float *at =
                        parts + (size_t)(lane < n ? lane : a.stored_grid + lane - n) * part + warp;
                    const float max = there ? __ldcg(at) : -INFINITY;
                    weigh(w, warp, t.spans, lane, max, there ? __ldcg(at + MOST_HEADS) : 0.0f);
                }
                __syncthreads();
                weighed = true;
            }
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
                if (s + j < n) x = fmaf(w.factor[s + j][h], v[j], x);
            s += AHEAD;
        } while (s < n);
        if (i < count) result[i] = x;
    }
}

/* Un-rotates the sums of head h by a warp, adds those of recent tokens and divides: to `out`, which
 * may be x. DIM 0: any. */
template <int DIM>
static __device__ __forceinline__ void emit_head(const rows_args &a, const task &t,
                                                 const weights &w, float *x, float *out,
                                                 const float *parts, bool rotated, uint32_t h,
                                                 int lane)
{
    const uint32_t D = DIM ? DIM : a.c.head_dim, part = part_floats(D), n = t.p.stored.count;
    const float *recent = parts + (size_t)a.stored_grid * part + 2 * MOST_HEADS + h * D;
    const float scale = __fdividef(1.0f, w.sum[h]);
    constexpr int R = DIM ? DIM / 32 : 1;
    float r[R];
    if constexpr (DIM != 0) {
#pragma unroll
        for (int i = 0; i < R; i++) r[i] = x[32 * i + lane];
        if (rotated) pl_tq_unrotate<DIM>(r, lane);
    } else {
        if (rotated) unrotate_shared(x, D, lane);
    }
#pragma unroll 1
    for (uint32_t at = 0; at < D; at += 32 * R) {
        if constexpr (DIM == 0) r[0] = at + lane < D ? x[at + lane] : 0.0f;
#pragma unroll 1
        for (uint32_t s = n; s < t.spans && t.spans > 1; s++, recent += part) {
            const float f = w.factor[s][h];
#pragma unroll
            for (int i = 0; i < R; i++)
                if (DIM || at + lane < D) r[i] = fmaf(f, __ldcg(recent + at + 32 * i + lane), r[i]);
        }
        if constexpr (DIM == 0) recent -= (size_t)(t.spans > 1 ? t.spans - n : 0) * part;
#pragma unroll
        for (int i = 0; i < R; i++)
            if (DIM || at + lane < D) out[at + 32 * i + lane] = r[i] * scale;
    }
}

static __device__ __forceinline__ void load_eight(float (&v)[8], const float *p)
{
    const float4 a = *(const float4 *)p, b = *(const float4 *)(p + 4);
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

/* The block's heads, in shared memory, rotated for the layer that reads them: eight numbers a
 * thread, in the order of hadamard.cuh. Apart from the rest, which inlining it makes slower. */
static __device__ __noinline__ void rotate_heads(const rows_args &a, const task &t,
                                                    const float *x, float *out)
{
    const uint32_t n = t.H * a.c.head_dim, lane = threadIdx.x % 32;
    const float factor = 1.0f / sqrtf((float)a.rotation);
    const float *signs = a.signs ? heads_of(a.signs, 0, a, t) : NULL;
#pragma unroll 1
    for (uint32_t at = threadIdx.x * 8; at - lane * 8 < n; at += blockDim.x * 8) { /* whole warps */
        float own[8] = {}, sign[8];
        if (at < n) {
            load_eight(own, x + at);
            if (signs) load_eight(sign, signs + at);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) own[i] *= signs ? sign[i] : 1.0f;
#pragma unroll
        for (int stride = 1; stride < 8; stride *= 2)
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (!(i & stride) && stride < a.rotation) {
                    const float low = own[i], high = own[i + stride];
                    own[i] = low + high;
                    own[i + stride] = low - high;
                }
#pragma unroll 1
        for (uint32_t lanes = 1; lanes * 8 < a.rotation; lanes *= 2)
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float other = __shfl_xor_sync(~0u, own[i], lanes);
                own[i] = lane & lanes ? other - own[i] : own[i] + other;
            }
        if (at >= n) continue;
#pragma unroll
        for (int i = 0; i < 8; i++) own[i] *= factor;
        *(float4 *)(out + at) = make_float4(own[0], own[1], own[2], own[3]);
        *(float4 *)(out + at + 4) = make_float4(own[4], own[5], own[6], own[7]);
    }
}

/* Adds the warps' sums, then the spans'. Every thread of the block comes here, what warps left is
 * in `left`; `result` has room for MOST_HEADS * D numbers beside it. */
template <int DIM>
static __device__ __forceinline__ void finish(const rows_args &a, const task &t,
                                              const warp_sums &left, float *result)
{
    __shared__ weights w;
    __shared__ bool last;
    const uint32_t D = DIM ? DIM : a.c.head_dim, W = blockDim.x / 32, part = part_floats(D);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool alone = t.spans == 1;
    float *parts = a.parts + (t.m * gridDim.y + blockIdx.y) * (size_t)a.slots * part;
    float *mine = parts + (size_t)t.slot * part, *to = alone ? result : mine + 2 * MOST_HEADS;
    __syncthreads();
    if (warp < t.H) {
        const bool there = lane < W;
        const uint32_t at = lane * MOST_HEADS + warp;
        weigh(w, warp, W, lane, there ? left.max[at] : -INFINITY, there ? left.sum[at] : 0.0f);
    }
    __syncthreads();
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < t.H * D; i += blockDim.x) {
        const uint32_t h = i / D;
        const float *p = left.out + h * left.stride + i % D;
        float x = 0;
#pragma unroll 4
        for (uint32_t k = 0; k < W; k++, p += t.H * left.stride) x = fmaf(w.factor[k][h], *p, x);
        to[i] = x;
    }
    if (!alone) {
        if (threadIdx.x < t.H) {
            mine[threadIdx.x] = w.max[threadIdx.x];
            mine[MOST_HEADS + threadIdx.x] = w.sum[threadIdx.x];
        }
        __syncthreads();
        if (threadIdx.x == 0) { /* the whole block's part, by way of the barrier */
            unsigned *arrived = a.arrived + t.m * gridDim.y + blockIdx.y, before;
            asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                         : "=r"(before)
                         : "l"(arrived)
                         : "memory");
            last = before == t.spans - 1;
            if (last) *arrived = 0;
        }
        __syncthreads();
        if (!last) return;
        add_spans<DIM>(a, t, w, result, parts);
    }
    __syncthreads();
    const bool rotated = a.c.type > PL_KV_BF16 && (alone ? !t.recent : t.p.stored.count > 0);
    float *out = heads_of(a.out, a.out_stride, a, t), *to_head = a.rotation ? result : out;
    if (warp < t.H)
        emit_head<DIM>(a, t, w, result + warp * D, to_head + warp * D, parts, rotated, warp, lane);
    if (!a.rotation) return;
    __syncthreads();
    rotate_heads(a, t, result, out);
}

} // namespace attention

#endif
