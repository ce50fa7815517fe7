/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of rows alone on packed pages by tensor cores, codes as they are stored
 * (attention_layout.h). A warp takes tiles of 16 tokens from a ring of its own in shared memory.
 *
 * Scores: the query as 16-bit integers in two signed bytes, hi and lo, times the key codes, a group
 * at a time and exact; four heads by two limbs are the eight columns:
 *   score = step * sum over groups of scale * (256 hi.c + lo.c + zero * sum(q)).
 * Values: A is 16 dimensions by 16 tokens of centroids in fp16, looked up by byte permutes; B is
 * tokens by heads, exp2(score - max) times the value scale. To keep it inside fp16, the scales of a
 * tile are brought near 1 by their exponent e, and max bounds score + e, up to SLACK, so that
 * numbers lie below 2^(SLACK + LIFT).
 *
 * Lane 4 g + q has, of scores, head q and tokens g and g + 8; of sums, dimensions g and g + 8 of 16
 * and heads 2 q, 2 q + 1, for q < 2. */
#include <cuda_fp16.h>

#include "attention_numbers.cuh"

namespace attention {

enum { SLACK = 4, LIFT = 10 };

template <int KB, int VB, int D> struct tile_of {
    static constexpr int G = D / 32;
    static constexpr int KEY_SCALES = 2 * D * KB, VALUES = KEY_SCALES + 2 * D;
    static constexpr int VALUE_SCALES = VALUES + 2 * D * VB, BYTES = VALUE_SCALES + D;
    static constexpr int W = D * VB / 64, V = W % 4 == 0 ? 4 : W % 2 == 0 ? 2 : 1;
    static constexpr int STAGES = D == 256 ? 2 : 3;
};

/* Centroids are looked up times a factor for which fp16 holds them nearly exactly, so that their
 * errors, the same for every token, do not add up; the sum of weights takes it too. */
static __host__ __device__ constexpr float lookup_factor(int bits)
{
    return bits == 2 ? 1.680419921875f : bits == 3 ? 1.388671875f : 1.373046875f;
}
static __host__ __device__ constexpr float lookup_log2(int bits)
{
    return bits == 2 ? 0.748821816f : bits == 3 ? 0.473705840f : 0.457381042f;
}

/* They as fp16: entry i's low byte is byte i % 4 of low[i / 4]. */
struct centroid_bytes {
    uint32_t low[4], high[4];
};

/* ---- copies ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

#if __CUDA_ARCH__ >= 900
static __device__ __forceinline__ void barrier_init(uint64_t *b)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(b)) : "memory");
}

static __device__ __forceinline__ void barrier_wait(uint64_t *b, uint32_t parity)
{
    uint32_t done;
    do {
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(done)
                     : "r"(shared_address(b)), "r"(parity)
                     : "memory");
    } while (!done);
}

static __device__ __forceinline__ void copy_bulk(void *dst, const void *src, uint32_t bytes,
                                                 uint64_t *b)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
                 "r"(bytes)
                 : "memory");
    uint64_t first; /* to leave the L2: it is read once */
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(dst)),
                 "l"(src), "r"(bytes), "r"(shared_address(b)), "l"(first)
                 : "memory");
}
#endif

/* A warp's ring: tile number i of the warp is in stage i % STAGES. */
template <int BYTES, int STAGES> struct ring {
    uint8_t *data;
    uint64_t *full;
    int lane;

    __device__ __forceinline__ void open()
    {
#if __CUDA_ARCH__ >= 900
        if (lane == 0)
            for (int i = 0; i < STAGES; i++) barrier_init(full + i);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
        __syncwarp();
    }

    /* Called for every i in turn, with nothing to copy past the last. */
    __device__ __forceinline__ void fetch(const uint8_t *src, uint32_t stage, bool more)
    {
#if __CUDA_ARCH__ >= 900
        if (lane == 0 && more) {
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            copy_bulk(data + stage * BYTES, src, BYTES, full + stage);
        }
#else
        if (more)
            for (int i = lane * 16; i < BYTES; i += 512)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                                 shared_address(data + stage * BYTES + i)),
                             "l"(src + i)
                             : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
#endif
    }

    __device__ __forceinline__ void wait(uint32_t stage, uint32_t parity)
    {
#if __CUDA_ARCH__ >= 900
        barrier_wait(full + stage, parity);
#else
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
        __syncwarp();
#endif
    }
};

/* ---- tensor cores ---------------------------------------------------------------------------- */

template <bool SIGNED>
static __device__ __forceinline__ void multiply_codes(int *c, uint32_t a0, uint32_t a1, uint32_t a2,
                                                      uint32_t a3, uint32_t b0, uint32_t b1)
{
    if (SIGNED)
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%10,%10,%10,%10};"
            : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(0));
    else
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%10,%10,%10,%10};"
            : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(0));
}

static __device__ __forceinline__ void multiply_values(float *c, const uint32_t *a, uint32_t b0,
                                                       uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ uint32_t times(uint32_t a, uint32_t b)
{
    __half2 c = __hmul2(*(__half2 *)&a, *(__half2 *)&b);
    return *(uint32_t *)&c;
}

/* Eight codes, one to a nibble with nothing beside it, as the fragment A of their values. */
template <int VB>
static __device__ __forceinline__ void look_up(uint32_t *a, uint32_t n, const centroid_bytes &t)
{
#pragma unroll
    for (int i = 0; i < 2; i++, n >>= 16) {
        uint32_t low, high;
        if (VB == 4) {
            const uint32_t s = n & 0x7777, upper = __byte_perm(0xff00, 0, n >> 3 & 0x1111);
            const uint32_t low0 = __byte_perm(t.low[0], t.low[1], s);
            const uint32_t low1 = __byte_perm(t.low[2], t.low[3], s);
            const uint32_t high0 = __byte_perm(t.high[0], t.high[1], s);
            const uint32_t high1 = __byte_perm(t.high[2], t.high[3], s);
            low = (low0 & ~upper) | (low1 & upper);
            high = (high0 & ~upper) | (high1 & upper);
        } else {
            low = __byte_perm(t.low[0], t.low[1], n);
            high = __byte_perm(t.high[0], t.high[1], n);
        }
        a[2 * i] = __byte_perm(low, high, 0x5140);
        a[2 * i + 1] = __byte_perm(low, high, 0x7362);
    }
}

/* Nibbles of dimensions 16 i .. from a lane's words. */
template <int VB>
static __device__ __forceinline__ uint32_t nibbles(const uint32_t *w, int i)
{
    if (VB == 4) return w[i];
    if (VB == 2) return (i % 2 ? w[i / 2] >> 2 : w[i / 2]) & 0x33333333;
    const uint32_t *u = w + i / 4 * 3;
    if (i % 4 < 3) return u[i % 4] & 0x77777777;
    return (u[0] >> 3 & 0x11111111) | (u[1] >> 2 & 0x22222222) | (u[2] >> 1 & 0x44444444);
}

/* ---- the query ------------------------------------------------------------------------------- */

/* Four heads as integers, in shared memory: limbs as fragments B [G][lane][2], sums over groups and
 * the step of a score in units of log2. */
template <int D> struct packed_query {
    uint32_t limbs[D / 32][32][2];
    float sums[MOST_HEADS][D / 32], step[MOST_HEADS];
};

/* Head h by one warp, of number 32 r + lane in x[r]. */
template <int KB, int D>
static __device__ __forceinline__ void pack_query(packed_query<D> &p, const float *x, int h,
                                                  float scale, int lane)
{
    constexpr int G = D / 32;
    float most = 0;
    bool finite = true;
#pragma unroll
    for (int r = 0; r < G; r++) {
        most = fmaxf(most, fabsf(x[r]));
        finite = finite && isfinite(x[r]);
    }
    for (int i = 16; i; i /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
    finite = __all_sync(~0u, finite);
    const float to = most > 0 && finite ? __fdividef(32512.0f, most) : 0.0f;
    uint8_t *limbs = (uint8_t *)p.limbs;
#pragma unroll
    for (int r = 0; r < G; r++) {
        const int v = __float2int_rn(x[r] * to), lo = (int)(int8_t)(v & 255), hi = (v - lo) >> 8;
        const int word = KB == 8 ? lane % 8 / 4 : lane % 2, byte = KB == 8 ? lane % 4 : lane % 8 / 2;
        uint8_t *at = limbs + ((r * 32 + 8 * h + lane / 8) * 2 + word) * 4 + byte;
        at[0] = (uint8_t)hi;
        at[32] = (uint8_t)lo; /* the next column: four lanes on */
        const int sum = __reduce_add_sync(~0u, v);
        if (lane == 0) p.sums[h][r] = (float)sum;
    }
    if (lane == 0) p.step[h] = finite ? most * (1 / 32512.0f) * scale : NAN;
}

/* ---- a span ---------------------------------------------------------------------------------- */

/* What a warp has summed: lane's head of scores, lane's dimensions and heads of values. */
template <int D> struct packed_sums {
    float max, sum, out[D / 16][4];
};

template <int KB, int VB, int D>
static __device__ __forceinline__ void attend_tile(packed_sums<D> &r, const uint8_t *tile,
                                                   const uint32_t (*limbs)[2], const float *sums,
                                                   float step, uint32_t base, uint32_t first,
                                                   uint32_t end, const centroid_bytes &table,
                                                   int lane)
{
    using S = tile_of<KB, VB, D>;
    constexpr int G = S::G;
    const int g = lane / 4, q = lane % 4;
    float s0 = 0, s1 = 0;
#pragma unroll
    for (int i = 0; i < G / 2; i++) {
        const uint4 scales = *(const uint4 *)(tile + S::KEY_SCALES + (i * 8 + g) * 16);
        const uint32_t both[4] = {scales.x, scales.y, scales.z, scales.w};
        uint4 codes;
        if (KB == 4) codes = *(const uint4 *)(tile + i * 512 + lane * 16);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int group = 2 * i + j;
            int c[4];
            if (KB == 8) {
                codes = *(const uint4 *)(tile + group * 512 + lane * 16);
                multiply_codes<true>(c, codes.x, codes.z, codes.y, codes.w, limbs[group][0],
                                     limbs[group][1]);
            } else {
                const uint32_t a = j ? codes.z : codes.x, b = j ? codes.w : codes.y;
                multiply_codes<false>(c, a & 0x0f0f0f0f, b & 0x0f0f0f0f, a >> 4 & 0x0f0f0f0f,
                                      b >> 4 & 0x0f0f0f0f, limbs[group][0], limbs[group][1]);
            }
            const float2 z0 = __half22float2(*(const __half2 *)&both[2 * j]);
            const float2 z1 = __half22float2(*(const __half2 *)&both[2 * j + 1]);
            s0 = fmaf(z0.x, fmaf(z0.y, sums[group], (float)(256 * c[0] + c[1])), s0);
            s1 = fmaf(z1.x, fmaf(z1.y, sums[group], (float)(256 * c[2] + c[3])), s1);
        }
    }
    s0 *= step;
    s1 *= step;
    uint32_t scales[2 * G]; /* of the tokens of this lane's B: [G][2] */
#pragma unroll
    for (int i = 0; i < G / 2; i++) {
        const uint4 v = *(const uint4 *)(tile + S::VALUE_SCALES + (i * 4 + q) * 16);
        scales[4 * i] = v.x, scales[4 * i + 1] = v.y;
        scales[4 * i + 2] = v.z, scales[4 * i + 3] = v.w;
    }
    if (base < first || base + PL_CUDA_TILE > end) {
        auto sees = [&](uint32_t t) { return base + t >= first && base + t < end; };
        if (!sees(g)) s0 = -INFINITY;
        if (!sees(g + 8)) s1 = -INFINITY;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const uint32_t mask = (sees(2 * q + j) ? 0xffff : 0) |
                                  (sees(2 * q + j + 8) ? 0xffff0000 : 0);
#pragma unroll
            for (int i = 0; i < G; i++) scales[2 * i + j] &= mask;
        }
    }
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < 2 * G; i++) most = __vmaxu2(most, scales[i] & 0x7fff7fff);
    most = __reduce_max_sync(~0u, max(most & 0xffff, most >> 16));
    const int e = (int)(most >> 10) - 15;
    float top = fmaxf(s0, s1);
#pragma unroll
    for (int i = 4; i < 32; i *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, i));
    top += (float)e;
    if (__any_sync(~0u, !(top <= r.max + SLACK))) {
        const float now = top > r.max + SLACK ? top : r.max;
        const float keep = weight(r.max, now);
        r.max = now;
        r.sum *= keep;
        const float keep0 = __shfl_sync(~0u, keep, 2 * q & 3);
        const float keep1 = __shfl_sync(~0u, keep, (2 * q + 1) & 3);
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            r.out[i][0] *= keep0, r.out[i][1] *= keep1;
            r.out[i][2] *= keep0, r.out[i][3] *= keep1;
        }
    }
    const float lift = (float)(e + LIFT) - r.max;
    const float p0 = exp2_fast(s0 + lift), p1 = exp2_fast(s1 + lift);
    const float down = __uint_as_float((uint32_t)(127 - e) << 23);
    r.sum = fmaf(p0 + p1, down * lookup_factor(VB), r.sum);
    const __half2 pair = __floats2half2_rn(p0, p1);
    const uint32_t b0 = __shfl_sync(~0u, *(const uint32_t *)&pair, 8 * q + (g & 3));
    const uint32_t b1 = __shfl_sync(~0u, *(const uint32_t *)&pair, 8 * q + 4 + (g & 3));
    const __half2 near = __float2half2_rn(down);
    uint32_t words[S::W];
#pragma unroll
    for (int i = 0; i < S::W / S::V; i++) {
        const uint8_t *at = tile + S::VALUES + (i * 32 + lane) * (4 * S::V);
        if (S::V == 4) {
            const uint4 v = *(const uint4 *)at;
            words[S::V * i] = v.x, words[S::V * i + 1] = v.y;
            words[S::V * i + 2] = v.z, words[S::V * i + 3] = v.w;
        } else if (S::V == 2) {
            const uint2 v = *(const uint2 *)at;
            words[S::V * i] = v.x, words[S::V * i + 1] = v.y;
        } else {
            words[i] = *(const uint32_t *)at;
        }
    }
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        uint32_t a[4];
        const uint32_t f = *(const uint32_t *)&near;
        const uint32_t c0 = times(b0, times(scales[i / 2 * 2], f));
        const uint32_t c1 = times(b1, times(scales[i / 2 * 2 + 1], f));
        look_up<VB>(a, nibbles<VB>(words, i), table);
        multiply_values(r.out[i], a, c0, c1);
    }
}

template <int KB, int VB, int D>
static __device__ __forceinline__ void attend_packed_span(const rows_args &a, const task &t,
                                                          packed_query<D> &query, const float *q,
                                                          uint8_t *tiles_at, uint64_t *full,
                                                          const centroid_bytes &table,
                                                          packed_sums<D> &r)
{
    using S = tile_of<KB, VB, D>;
    constexpr int G = S::G;
    const uint32_t W = blockDim.x / 32, warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    void *const *pages = a.c.pages + t.row.sequence * a.c.pages_stride + t.page;
    ring<S::BYTES, S::STAGES> in = {tiles_at + (size_t)warp * S::STAGES * S::BYTES,
                                    full + warp * S::STAGES, lane};
    const uint32_t skip = (t.first - t.page * PAGE) / PL_CUDA_TILE;
    const uint32_t tiles = (t.end - t.page * PAGE + PL_CUDA_TILE - 1) / PL_CUDA_TILE;
    const uint32_t begin = (skip + W - 1 - warp) / W * W + warp; /* the first that is not skipped */
    const uint32_t n = begin < tiles ? (tiles - begin + W - 1) / W : 0;
    const size_t of_head = (size_t)t.head * PL_CUDA_TILES * S::BYTES;
    auto address_of = [&](uint32_t i) { /* of tile i + lane of this warp */
        const uint32_t tile = begin + (i + lane) * W;
        return i + lane < n ? (uint64_t)pages[tile / PL_CUDA_TILES] + of_head +
                                  tile % PL_CUDA_TILES * S::BYTES
                            : 0;
    };
    in.open();
    uint64_t now = address_of(0), next = 0;
    uint32_t fetched = 0;
    auto fetch = [&](uint32_t stage) {
        if (fetched % 32 == 0) {
            if (fetched) now = next;
            next = address_of(fetched + 32);
        }
        in.fetch((const uint8_t *)__shfl_sync(~0u, now, fetched % 32), stage, fetched < n);
        fetched++;
    };
#pragma unroll 1
    for (int i = 0; i < S::STAGES; i++) fetch(i);
    if (warp < MOST_HEADS) pack_query<KB, D>(query, q, warp, a.scale, lane);
    __syncthreads();
    uint32_t limbs[G][2];
    float sums[G];
#pragma unroll
    for (int i = 0; i < G; i++) {
        limbs[i][0] = query.limbs[i][lane][0];
        limbs[i][1] = query.limbs[i][lane][1];
        sums[i] = query.sums[lane % 4][i];
    }
    const float step = query.step[lane % 4];
    uint32_t stage = 0, parity = 0;
    for (uint32_t i = 0; i < n; i++) {
        in.wait(stage, parity);
        attend_tile<KB, VB, D>(r, in.data + stage * S::BYTES, limbs, sums, step,
                               t.page * PAGE + (begin + i * W) * PL_CUDA_TILE, t.first, t.end, table,
                               lane);
        __syncwarp();
        fetch(stage);
        if (++stage == S::STAGES) stage = 0, parity ^= 1;
    }
#if __CUDA_ARCH__ < 900
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/* The warp's sums, to shared memory. */
template <int VB, int D>
static __device__ __forceinline__ void leave(const task &t, packed_sums<D> &r, const warp_sums &w)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int i = 4; i < 32; i *= 2) r.sum += __shfl_xor_sync(~0u, r.sum, i);
    if (lane < MOST_HEADS) {
        w.max[warp * MOST_HEADS + lane] = r.max - LIFT - lookup_log2(VB);
        w.sum[warp * MOST_HEADS + lane] = r.sum;
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const uint32_t h = 2 * q + j;
        if (h >= t.H) continue;
        float *out = w.out + (warp * t.H + h) * w.stride + g;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            out[16 * i] = r.out[i][j];
            out[16 * i + 8] = r.out[i][2 + j];
        }
    }
}

template <int KB, int VB, int D>
static __global__ void __launch_bounds__(512, 1) packed_kernel(
    const __grid_constant__ rows_args a, const __grid_constant__ centroid_bytes table)
{
    extern __shared__ __align__(128) uint8_t packed_shared[];
    __shared__ packed_query<D> query;
    __shared__ uint64_t full[16 * tile_of<KB, VB, D>::STAGES];
    const uint32_t W = blockDim.x / 32;
    const uint32_t lane = threadIdx.x % 32;
    task t;
    pl_wait_for_previous();
    float q[D / 32]; /* of head threadIdx.x / 32 of the block, on its way meanwhile */
    {
        const uint32_t h = blockIdx.y % a.chunks * MOST_HEADS + threadIdx.x / 32;
        const bool there = threadIdx.x / 32 < MOST_HEADS && h < a.group;
        const float *from = a.q + blockIdx.z * a.q_stride +
                            ((size_t)(blockIdx.y / a.chunks) * a.group + h) * D;
#pragma unroll
        for (int i = 0; i < D / 32; i++) q[i] = there ? from[32 * i + lane] : 0.0f;
    }
    if (!find_task(a, t)) return;
    const warp_sums w = warp_sums_at(packed_shared, W, D);
    if (t.recent) {
        attend_numbers<BF16, D, 64>(a, t, a.c.recent_pages, w);
    } else {
        packed_sums<D> r = {-INFINITY, 0, {}};
        attend_packed_span<KB, VB, D>(a, t, query, q, packed_shared, full, table, r);
        __syncthreads();
        leave<VB, D>(t, r, w);
    }
    pl_let_next_start();
    finish<D>(a, t, w, w.out + W * t.H * w.stride);
}

/* ---- launching ------------------------------------------------------------------------------- */

template <int KB, int VB, int D> static size_t shared_bytes(uint32_t W)
{
    size_t tiles = (size_t)W * tile_of<KB, VB, D>::STAGES * tile_of<KB, VB, D>::BYTES;
    size_t sums = warp_sums_bytes(W, MOST_HEADS, D) + sizeof(float) * MOST_HEADS * D;
    return tiles > sums ? tiles : sums;
}

/* Warps that fit, 16 or 8; 0: none. Static shared memory beside the ring is below 8 KB. Few rows
 * take all of them, many 8, so that a multiprocessor has two blocks, one of which works while the
 * other begins or ends. */
template <int KB, int VB, int D> static uint32_t warps_on(const pl_cuda *d)
{
    for (uint32_t W = 16; W >= 8; W /= 2)
        if (shared_bytes<KB, VB, D>(W) + 8192 <= d->shared_bytes) return W;
    return 0;
}

static centroid_bytes bytes_of(uint32_t bits)
{
    centroid_bytes t = {};
    for (uint32_t i = 0; i < 1u << bits; i++) {
        const uint16_t h = __half_as_ushort(
            __float2half_rn(pl_turboquant_centroids(bits)[i] * lookup_factor((int)bits)));
        t.low[i / 4] |= (uint32_t)(h & 255) << 8 * (i % 4);
        t.high[i / 4] |= (uint32_t)(h >> 8) << 8 * (i % 4);
    }
    return t;
}

/* f<KB, VB, D>(), for a type that tiles serve. */
#define BY_VALUES(KB, D, vb, f)                                                                    \
    (vb == 3 ? f<KB, 3, D> : vb == 4 ? f<KB, 4, D> : f<KB, 2, D>)
#define BY_KEYS(D, kb, vb, f) (kb == 8 ? BY_VALUES(8, D, vb, f) : BY_VALUES(4, D, vb, f))
#define BY_TYPE(kb, vb, dim, f)                                                                    \
    (dim == 128  ? BY_KEYS(128, kb, vb, f)                                                         \
     : dim == 64 ? BY_KEYS(64, kb, vb, f)                                                          \
                 : BY_KEYS(256, kb, vb, f))

template <int KB, int VB, int D>
static void run(const pl_cuda *d, const rows_args &a, dim3 grid, bool few)
{
    const uint32_t W = few ? warps_on<KB, VB, D>(d) : 8;
    pl_launch(d, packed_kernel<KB, VB, D>, grid, dim3(32 * W), shared_bytes<KB, VB, D>(W), a,
              bytes_of(VB));
}

template <int KB, int VB, int D> static pleach_status open(const pl_cuda *d, pleach_error *err)
{
    const uint32_t W = warps_on<KB, VB, D>(d);
    if (!W) return PLEACH_OK;
    return pl_cuda_check(cudaFuncSetAttribute(packed_kernel<KB, VB, D>,
                                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)shared_bytes<KB, VB, D>(W)),
                         "preparing attention", err);
}

pleach_status packed_open(pl_cuda *d, pleach_error *err)
{
    static const uint32_t dims[] = {64, 128, 256};
    for (uint32_t dim : dims)
        for (uint32_t kb = 4; kb <= 8; kb += 4)
            for (uint32_t vb = 2; vb <= 4; vb++) PL_TRY(BY_TYPE(kb, vb, dim, open)(d, err));
    return pl_tq_upload(d, err);
}

bool packed_serves(const pl_cuda *d, pl_kv type, uint32_t head_dim)
{
    const uint32_t kb = type >> 4, vb = type & 15;
    return pl_cuda_kv_tiled(kb, vb, head_dim) && BY_TYPE(kb, vb, head_dim, warps_on)(d) > 0;
}

void packed_run(const pl_cuda *d, const rows_args &a, dim3 grid, bool few)
{
    const uint32_t kb = a.c.type >> 4, vb = a.c.type & 15;
    BY_TYPE(kb, vb, a.c.head_dim, run)(d, a, grid, few);
}

} // namespace attention
