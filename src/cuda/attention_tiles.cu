/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of neighbouring rows by tensor cores, for prompts. A block has a tile of 16 W rows, a
 * row being one query head of one position, and walks the pages that any of them sees, with a
 * running softmax for each row (FlashAttention). A page is decoded once for all rows.
 *
 * Every number is the sum of two of bf16, high and low, and a product is three: that keeps 16 bits
 * of each factor, whatever its size. A page that a row does not see leaves its sums as they are, bit
 * for bit. Values of codes are summed rotated and un-rotated once, before recent tokens join. Where there is
 * memory for it, the next page is on its way while one is worked on. */
#include <cuda_bf16.h>

#include "attention_tiles.cuh"

namespace attention {

enum { PAD16 = 8 /* numbers between rows in shared memory: no bank conflicts */ };

template <int DP> struct tile_memory {
    static constexpr int STRIDE = DP + PAD16;
    uint16_t *q[2], *k[2], *v[2]; /* high, low: [rows][STRIDE], [PAGE][STRIDE] */
    float *bad;                   /* [PAGE] 0; NaN where a value is no number */
    uint8_t *raw;                 /* a head of a page as it is stored */

    __device__ __forceinline__ tile_memory(void *shared, uint32_t rows)
    {
        uint16_t *p = (uint16_t *)shared;
        for (int i = 0; i < 2; i++, p += rows * STRIDE) q[i] = p;
        for (int i = 0; i < 2; i++, p += PAGE * STRIDE) k[i] = p;
        for (int i = 0; i < 2; i++, p += PAGE * STRIDE) v[i] = p;
        bad = (float *)p;
        raw = (uint8_t *)(bad + PAGE);
    }
    static size_t bytes(uint32_t rows)
    {
        return sizeof(uint16_t) * STRIDE * (2 * rows + 4 * PAGE) + sizeof(float) * PAGE;
    }
};

static __device__ __forceinline__ uint32_t pair_of(float a, float b)
{
    __nv_bfloat162 p = __floats2bfloat162_rn(a, b);
    return *(uint32_t *)&p;
}

static __device__ __forceinline__ float high_of(float x)
{
    return __bfloat162float(__float2bfloat16_rn(x));
}

/* Eight numbers into both parts. */
static __device__ __forceinline__ void store_octet(uint16_t *high, uint16_t *low, const float *x)
{
    uint32_t h[4], l[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        h[i] = pair_of(x[2 * i], x[2 * i + 1]);
        l[i] = pair_of(x[2 * i] - high_of(x[2 * i]), x[2 * i + 1] - high_of(x[2 * i + 1]));
    }
    *(uint4 *)high = make_uint4(h[0], h[1], h[2], h[3]);
    *(uint4 *)low = make_uint4(l[0], l[1], l[2], l[3]);
}

static __device__ __forceinline__ float exp2_ftz(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ void load_matrices(uint32_t *r, const uint16_t *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(p)));
}

static __device__ __forceinline__ void load_transposed(uint32_t *r, const uint16_t *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(p)));
}

static __device__ __forceinline__ void multiply(float *c, const uint32_t *a, const uint32_t *b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* What a row of the tile sees of the segment that is walked; nothing where it is not in it. */
struct sight {
    uint32_t first, from, end; /* as stored [first, from), as recent tokens [max(first, from), end) */
};

/* Rows of one warp: lane 4 g + q has rows g and g + 8, columns 2 q and 2 q + 1 of every 8. */
template <int DP> struct tile_sums {
    float max[2], sum[2], out[DP / 8][4];
};

/* Eight codes of values in a nibble each, of dimensions 16 i .. of a lane of a tile. */
static __device__ __forceinline__ uint32_t nibbles_of(const uint32_t *words, uint32_t D, uint32_t bits,
                                                      uint32_t i, uint32_t lane)
{
    auto word = [&](uint32_t w) { return words[pl_tile_value_word(D, bits, w, lane)]; };
    if (bits == 4) return word(i);
    if (bits == 2) return word(i / 2) >> i % 2 * 2 & 0x33333333;
    const uint32_t u = i / 4 * 3;
    if (i % 4 < 3) return word(u + i % 4) & 0x77777777;
    return (word(u) >> 3 & 0x11111111) | (word(u + 1) >> 2 & 0x22222222) |
           (word(u + 2) >> 1 & 0x44444444);
}

/* Values of n tokens of tiles, a lane's eight codes at a time. */
template <int DP>
static __device__ __forceinline__ void load_tile_values(const tile_memory<DP> &s, const uint8_t *run,
                                                        uint32_t key_bits, uint32_t bits, uint32_t n,
                                                        const float *centroids)
{
    constexpr uint32_t STRIDE = tile_memory<DP>::STRIDE;
    const uint32_t bytes = pl_tile_bytes(DP, key_bits, bits);
#pragma unroll 2
    for (uint32_t x = threadIdx.x; x < PL_CUDA_TILES * (DP / 16) * 32; x += blockDim.x) {
        const uint32_t lane = x % 32, i = x / 32 % (DP / 16), g = lane / 4, q = lane % 4;
        const uint32_t first = x / 32 / (DP / 16) * PL_CUDA_TILE;
        const uint8_t *tile = run + first / PL_CUDA_TILE * bytes;
        const uint32_t codes =
            nibbles_of((const uint32_t *)(tile + pl_tile_values(DP, key_bits)), DP, bits, i, lane);
        const uint2 scales = *(const uint2 *)(tile + pl_tile_value_scales(DP, key_bits, bits) +
                                              2 * ((i / 4 * 4 + q) * 8 + i / 2 % 2 * 4));
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) { /* nibble 4 odd + 2 high + half */
            const uint32_t pair = j < 4 ? scales.x : scales.y, token = first + j % 2 * 8 + 2 * q + j / 4;
            const float scale = pl_tq_float((uint16_t)(j % 2 ? pair >> 16 : pair));
            float v = centroids[codes >> 4 * j & 15] * scale;
            if (token >= n) v = 0;
            if (!isfinite(v)) {
                s.bad[token] = NAN;
                v = 0;
            }
            const uint32_t at = token * STRIDE + 16 * i + j / 2 % 2 * 8 + g;
            const __nv_bfloat16 high = __float2bfloat16_rn(v);
            s.v[0][at] = __bfloat16_as_ushort(high);
            s.v[1][at] = __bfloat16_as_ushort(__float2bfloat16_rn(v - __bfloat162float(high)));
        }
    }
}

/* Numbers that are bf16 already: high parts alone, which is all that is read of them. */
template <int DP>
static __device__ __forceinline__ void load_bf16(const tile_memory<DP> &s, const uint8_t *run,
                                                 uint32_t n)
{
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < PAGE * (DP / 8); i += blockDim.x) {
        const uint32_t token = i / (DP / 8), at = token * tile_memory<DP>::STRIDE + i % (DP / 8) * 8;
        uint4 k = make_uint4(0, 0, 0, 0), v = k;
        if (token < n) {
            k = ((const uint4 *)run)[i];
            v = ((const uint4 *)run)[PAGE * (DP / 8) + i];
        }
        const uint32_t w[4] = {v.x, v.y, v.z, v.w};
        bool finite = true;
#pragma unroll
        for (int j = 0; j < 4; j++)
            finite = finite && (w[j] & 0x7f80) != 0x7f80 && (w[j] & 0x7f800000) != 0x7f800000;
        if (!finite) {
            s.bad[token] = NAN;
            v = make_uint4(0, 0, 0, 0);
        }
        *(uint4 *)(s.k[0] + at) = k;
        *(uint4 *)(s.v[0] + at) = v;
    }
}

/* Keys and values of n tokens of a head at `run`, in both parts. */
template <int KIND, int DP>
static __device__ __forceinline__ void load_page(const tiles_args &a, const tile_memory<DP> &s,
                                                 const uint8_t *run, uint32_t n,
                                                 const float *centroids)
{
    if constexpr (KIND == BF16)
        if (a.c.head_dim == DP) {
            load_bf16<DP>(s, run, n);
            return;
        }
    const uint32_t key_bits = a.c.type >> 4, value_bits = a.c.type & 15;
    const bool tiled = KIND == PACKED && a.c.head_dim == DP &&
                       pl_cuda_kv_tiled(key_bits, value_bits, DP);
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < PAGE * (DP / 8); i += blockDim.x) {
        const uint32_t token = i / (DP / 8), octet = i % (DP / 8);
        const uint32_t at = token * tile_memory<DP>::STRIDE + 8 * octet;
        const bool there = token < n && 8 * octet < a.c.head_dim;
        float k[8] = {}, v[8] = {};
        if (there) read_octet<KIND>(k, a.c, run, 0, false, token, octet, centroids);
        store_octet(s.k[0] + at, s.k[1] + at, k);
        if (tiled) continue;
        if (there) read_octet<KIND>(v, a.c, run, 0, true, token, octet, centroids);
        bool finite = true;
#pragma unroll
        for (int j = 0; j < 8; j++) finite = finite && isfinite(v[j]);
        if (!finite) {
            s.bad[token] = NAN;
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = 0;
        }
        store_octet(s.v[0] + at, s.v[1] + at, v);
    }
    if constexpr (KIND == PACKED)
        if (tiled) load_tile_values<DP>(s, run, key_bits, value_bits, n, centroids);
}

/* Bytes of a head of a page. */
template <int KIND> static __host__ __device__ __forceinline__ uint32_t run_bytes(const pl_cuda_kv &c)
{
    const uint32_t D = c.head_dim, bits = (c.type >> 4) + (c.type & 15);
    return KIND == F32    ? 2 * PAGE * D * 4
           : KIND == BF16 ? 2 * PAGE * D * 2
                          : PAGE * (D * bits / 8 + 6 * ((D + 31) / 32));
}

/* Adds a page in shared memory, of positions `base` on, to a warp's rows. low: keys and values have
 * low parts. */
template <int DP>
static __device__ __forceinline__ void attend_page(const tile_memory<DP> &s, tile_sums<DP> &r,
                                                   uint32_t base, const uint32_t *lo,
                                                   const uint32_t *hi, bool low, int warp, int lane)
{
    constexpr int STRIDE = tile_memory<DP>::STRIDE;
    const int q = lane % 4;
    float c[8][4] = {};
    const uint32_t a_at = (16 * warp + lane % 16) * STRIDE + lane / 16 * 8;
    const uint32_t k_at = (lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 8;
#pragma unroll 2
    for (int i = 0; i < DP / 16; i++) {
        uint32_t high[4], rest[4];
        load_matrices(high, s.q[0] + a_at + 16 * i);
        load_matrices(rest, s.q[1] + a_at + 16 * i);
#pragma unroll
        for (int j = 0; j < 4; j++) { /* 16 tokens */
            uint32_t b[4];
            load_matrices(b, s.k[0] + k_at + 16 * j * STRIDE + 16 * i);
            multiply(c[2 * j], high, b);
            multiply(c[2 * j + 1], high, b + 2);
            multiply(c[2 * j], rest, b);
            multiply(c[2 * j + 1], rest, b + 2);
            if (low) {
                load_matrices(b, s.k[1] + k_at + 16 * j * STRIDE + 16 * i);
                multiply(c[2 * j], high, b);
                multiply(c[2 * j + 1], high, b + 2);
            }
        }
    }
    float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const uint32_t token = 8 * j + 2 * q + e % 2;
            const bool seen = base + token >= lo[e / 2] && base + token < hi[e / 2];
            c[j][e] = seen ? c[j][e] + s.bad[token] : -INFINITY;
            top[e / 2] = fmaxf(top[e / 2], c[j][e]);
        }
    float from[2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        top[e] = fmaxf(top[e], __shfl_xor_sync(~0u, top[e], 1));
        top[e] = fmaxf(top[e], __shfl_xor_sync(~0u, top[e], 2));
        top[e] = fmaxf(top[e], r.max[e]);
        const float keep = weight(r.max[e], top[e]);
        r.max[e] = top[e];
        from[e] = top[e] == -INFINITY ? 0.0f : top[e];
        r.sum[e] = __fmul_rn(r.sum[e], keep); /* as it stands, in whichever row of a tile */
#pragma unroll
        for (int i = 0; i < DP / 8; i++) {
            r.out[i][2 * e] *= keep;
            r.out[i][2 * e + 1] *= keep;
        }
    }
    const uint32_t v_at = (lane % 16) * STRIDE + lane / 16 * 8;
#pragma unroll
    for (int j = 0; j < 4; j++) { /* 16 tokens: the sums' layout is that of a fragment A */
        uint32_t high[4], rest[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float *pair = c[2 * j + e / 2] + e % 2 * 2;
            const float x = exp2_ftz(pair[0] - from[e % 2]);
            const float y = exp2_ftz(pair[1] - from[e % 2]);
            r.sum[e % 2] = __fadd_rn(r.sum[e % 2], __fadd_rn(x, y));
            high[e] = pair_of(x, y);
            rest[e] = pair_of(x - high_of(x), y - high_of(y));
        }
#pragma unroll
        for (int i = 0; i < DP / 16; i++) {
            uint32_t b[4];
            load_transposed(b, s.v[0] + v_at + 16 * j * STRIDE + 16 * i);
            multiply(r.out[2 * i], high, b);
            multiply(r.out[2 * i + 1], high, b + 2);
            multiply(r.out[2 * i], rest, b);
            multiply(r.out[2 * i + 1], rest, b + 2);
            if (low) {
                load_transposed(b, s.v[1] + v_at + 16 * j * STRIDE + 16 * i);
                multiply(r.out[2 * i], high, b);
                multiply(r.out[2 * i + 1], high, b + 2);
            }
        }
    }
}

/* Un-rotates the sums of the rows that are in the segment, by way of the memory of a page. */
template <int DP>
static __device__ __forceinline__ void unrotate_sums(const tiles_args &a, const tile_memory<DP> &s,
                                                     tile_sums<DP> &r, const sight *see, int warp,
                                                     int lane)
{
    constexpr int STRIDE = DP + 4;
    const int g = lane / 4, q = lane % 4;
    float *x = (float *)s.k[0] + warp * 16 * STRIDE;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < DP / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            x[(g + e / 2 * 8) * STRIDE + 8 * i + 2 * q + e % 2] = r.out[i][e];
    for (int row = 0; row < 16; row++) {
        const bool here = __shfl_sync(~0u, see[row / 8].end > 0, row % 8 * 4);
        if (here) unrotate_shared(x + row * STRIDE, a.c.head_dim, lane);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < DP / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            r.out[i][e] = x[(g + e / 2 * 8) * STRIDE + 8 * i + 2 * q + e % 2];
}

static __device__ __forceinline__ sight sight_of(const tiles_args &a, uint32_t position)
{
    sight s = {0, position + 1, position + 1};
    if (a.c.window && position >= a.c.window) s.first = position - a.c.window + 1;
    if (a.c.recent) s.from = (position / PAGE - position / PAGE % a.c.recent) * PAGE;
    return s;
}

/* Pages of [begin, end) for all rows; stored or recent. */
template <int KIND, int DP>
static __device__ __forceinline__ void walk(const tiles_args &a, const tile_memory<DP> &s,
                                            tile_sums<DP> &r, void *const *pages, uint32_t head,
                                            uint32_t begin, uint32_t end, const uint32_t *lo,
                                            const uint32_t *hi, const float *centroids, int warp,
                                            int lane)
{
    const uint32_t bytes = run_bytes<KIND>(a.c);
    auto find = [&](uint32_t page) { /* one that a row sees: others may not be there */
        for (; page * PAGE < end; page++) {
            const uint32_t base = page * PAGE;
            auto sees = [&](int e) { return lo[e] < hi[e] && lo[e] < base + PAGE && hi[e] > base; };
            if (__syncthreads_or(sees(0) || sees(1))) break;
        }
        return page;
    };
    auto address = [&](uint32_t page) { return (const uint8_t *)pages[page] + (size_t)head * bytes; };
    auto fetch = [&](uint32_t page) {
        if (!a.staged || page * PAGE >= end) return;
        const uint8_t *from = address(page);
        for (uint32_t i = 16 * threadIdx.x; i < bytes; i += 16 * blockDim.x)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                             (uint32_t)__cvta_generic_to_shared(s.raw + i)),
                         "l"(from + i)
                         : "memory");
    };
    uint32_t page = find(begin / PAGE), next;
    fetch(page);
    for (; page * PAGE < end; page = next) {
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();
        if (threadIdx.x < PAGE) s.bad[threadIdx.x] = 0;
        __syncthreads();
        load_page<KIND, DP>(a, s, a.staged ? s.raw : address(page),
                            min((uint32_t)PAGE, end - page * PAGE), centroids);
        next = find(page + 1);
        __syncthreads();
        fetch(next);
        attend_page<DP>(s, r, page * PAGE, lo, hi, KIND != BF16, warp, lane);
    }
    __syncthreads();
}

template <int KIND, int DP>
static __global__ void __launch_bounds__(256, 1) tiles_kernel(const __grid_constant__ tiles_args a)
{
    extern __shared__ __align__(16) uint8_t tiles_shared[];
    __shared__ float centroids[256];
    const uint32_t rows = blockDim.x / 2, D = a.c.head_dim;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const tile_memory<DP> s(tiles_shared, rows);
    const uint32_t head = blockIdx.y / a.chunks, chunk = blockIdx.y % a.chunks;
    const size_t m0 = (size_t)(gridDim.x - 1 - blockIdx.x) * a.per; /* long ones first */
    const uint32_t n = (uint32_t)(a.M - m0 < a.per ? a.M - m0 : a.per);
    const uint32_t heads = min(a.heads, a.group - chunk * a.heads);
    pl_wait_for_previous();
    if (KIND == PACKED)
        for (uint32_t i = threadIdx.x; i < 1u << (a.c.type & 15); i += blockDim.x)
            centroids[i] = pl_tq.centroids[pl_tq_at(a.c.type & 15) + i];
    /* The query head of a row of the tile, or -1. */
    auto head_of = [&](uint32_t row, uint32_t &i) {
        i = row / a.heads;
        const uint32_t h = row % a.heads;
        return i < n && h < heads ? (int)(head * a.group + chunk * a.heads + h) : -1;
    };
    for (uint32_t at = threadIdx.x; at < rows * (DP / 8); at += blockDim.x) {
        uint32_t i;
        const uint32_t row = at / (DP / 8), octet = at % (DP / 8);
        const int h = head_of(row, i);
        float x[8] = {};
        if (h >= 0)
            for (int j = 0; j < 8; j++)
                if (8 * octet + j < D)
                    x[j] = a.q[(m0 + i) * a.q_stride + (size_t)h * D + 8 * octet + j] * a.scale;
        const uint32_t to = row * tile_memory<DP>::STRIDE + 8 * octet;
        store_octet(s.q[0] + to, s.q[1] + to, x);
    }
    tile_sums<DP> r = {{-INFINITY, -INFINITY}, {0, 0}, {}};
    uint32_t mine[2];
    int my_head[2];
    for (int e = 0; e < 2; e++) my_head[e] = head_of(16 * warp + lane / 4 + 8 * e, mine[e]);
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        const pl_cuda_row from = a.rows[m0 + begin];
        end = begin + 1;
        if (from.position == PL_CUDA_NO_ROW) continue;
        pl_cuda_row last = from;
        for (; end < n; end++) {
            const pl_cuda_row row = a.rows[m0 + end];
            if (row.sequence != from.sequence || row.position == PL_CUDA_NO_ROW) break;
            last = row;
        }
        sight see[2] = {};
        uint32_t lo[2] = {}, hi[2] = {};
        for (int e = 0; e < 2; e++)
            if (my_head[e] >= 0 && mine[e] >= begin && mine[e] < end)
                see[e] = sight_of(a, a.rows[m0 + mine[e]].position);
        const sight least = sight_of(a, from.position), most = sight_of(a, last.position);
        void *const *pages = a.c.pages + from.sequence * a.c.pages_stride;
        for (int e = 0; e < 2; e++) lo[e] = see[e].first, hi[e] = min(see[e].from, see[e].end);
        walk<KIND, DP>(a, s, r, pages, head, least.first, min(most.from, most.end), lo, hi, centroids,
                       warp, lane);
        if (KIND != PACKED) continue;
        unrotate_sums<DP>(a, s, r, see, warp, lane);
        if (!a.c.recent) continue;
        pages = a.c.recent_pages + from.sequence * a.c.pages_stride;
        for (int e = 0; e < 2; e++) lo[e] = max(see[e].first, see[e].from), hi[e] = see[e].end;
        walk<BF16, DP>(a, s, r, pages, head, max(least.first, least.from), most.end, lo, hi, centroids,
                       warp, lane);
    }
    pl_let_next_start();
    for (int e = 0; e < 2; e++) {
        float sum = r.sum[e];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (my_head[e] < 0 || a.rows[m0 + mine[e]].position == PL_CUDA_NO_ROW) continue;
        float *out = a.out + (m0 + mine[e]) * a.out_stride + (size_t)my_head[e] * D;
#pragma unroll
        for (int i = 0; i < DP / 8; i++)
            for (int j = 0; j < 2; j++) {
                const uint32_t d = 8 * i + 2 * (lane % 4) + j;
                if (d < D) out[d] = r.out[i][2 * e + j] / sum + 0.0f; /* no -0: pages unseen */
            }
    }
}

/* ---- launching ------------------------------------------------------------------------------- */

/* Warps and bytes of shared memory, with room for a page as stored if there is; 0 warps: none fit. */
struct room {
    uint32_t W;
    bool staged;
    size_t bytes;
};

template <int DP> static room room_on(const pl_cuda *d, size_t raw)
{
    const uint32_t most = DP > 128 ? 4 : 8;
    const size_t free = d->shared_bytes - 2048;
    for (uint32_t W = most; W >= most / 2; W /= 2)
        if (tile_memory<DP>::bytes(16 * W) + raw <= free)
            return {W, true, tile_memory<DP>::bytes(16 * W) + raw};
    for (uint32_t W = most; W >= 2; W /= 2)
        if (tile_memory<DP>::bytes(16 * W) <= free) return {W, false, tile_memory<DP>::bytes(16 * W)};
    return {0, false, 0};
}

static size_t raw_bytes(const pl_cuda_kv &c)
{
    if (c.type == PL_KV_F32) return run_bytes<F32>(c);
    const size_t bf16 = run_bytes<BF16>(c);
    if (c.type == PL_KV_BF16) return bf16;
    const size_t packed = run_bytes<PACKED>(c);
    return c.recent && bf16 > packed ? bf16 : packed;
}

static room room_of(const pl_cuda *d, const pl_cuda_kv &c)
{
    const size_t raw = raw_bytes(c);
    return c.head_dim <= 64    ? room_on<64>(d, raw)
           : c.head_dim <= 128 ? room_on<128>(d, raw)
           : c.head_dim <= 256 ? room_on<256>(d, raw)
                               : room{0, false, 0};
}

template <int KIND, int DP> static pleach_status open(const pl_cuda *d, pleach_error *err)
{
    return pl_cuda_check(cudaFuncSetAttribute(tiles_kernel<KIND, DP>,
                                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)d->shared_bytes - 2048),
                         "preparing attention", err);
}

template <int KIND> static pleach_status open_all(const pl_cuda *d, pleach_error *err)
{
    PL_TRY((open<KIND, 64>(d, err)));
    PL_TRY((open<KIND, 128>(d, err)));
    return open<KIND, 256>(d, err);
}

pleach_status tiles_open(pl_cuda *d, pleach_error *err)
{
    PL_TRY(open_all<F32>(d, err));
    PL_TRY(open_all<BF16>(d, err));
    PL_TRY(open_all<PACKED>(d, err));
    return pl_tq_upload(d, err);
}

bool tiles_serve(const pl_cuda *d, const pl_cuda_kv *c)
{
    return room_of(d, *c).W > 0;
}

template <int KIND, int DP> static void launch(const pl_cuda *d, const tiles_args &a, const room &r)
{
    const dim3 grid((unsigned)((a.M + a.per - 1) / a.per), a.c.n_kv_heads * a.chunks);
    pl_launch(d, tiles_kernel<KIND, DP>, grid, dim3(32 * r.W), r.bytes, a);
}

template <int KIND> static void launch(const pl_cuda *d, const tiles_args &a, const room &r)
{
    if (a.c.head_dim <= 64)
        launch<KIND, 64>(d, a, r);
    else if (a.c.head_dim <= 128)
        launch<KIND, 128>(d, a, r);
    else
        launch<KIND, 256>(d, a, r);
}

void tiles_run(const pl_cuda *d, tiles_args a)
{
    const room r = room_of(d, a.c);
    const uint32_t rows = 16 * r.W;
    a.staged = r.staged;
    a.heads = a.group < rows ? a.group : rows;
    a.chunks = (a.group + a.heads - 1) / a.heads;
    a.per = rows / a.heads;
    if (a.c.type == PL_KV_F32)
        launch<F32>(d, a, r);
    else if (a.c.type == PL_KV_BF16)
        launch<BF16>(d, a, r);
    else
        launch<PACKED>(d, a, r);
}

} // namespace attention
