/* SPDX-License-Identifier: Apache-2.0
 *
 * One span of one row in plain arithmetic, and how eight numbers of a token are read from a page of
 * any type. */
#ifndef PL_CUDA_ATTENTION_ROWS_CUH
#define PL_CUDA_ATTENTION_ROWS_CUH

#include "attention.cuh"

namespace attention {

enum { F32, BF16, PACKED };

/* ---- octets: 8 numbers of a token, of a page in any memory ------------------------------------ */

/* Numbers 8 * octet .. of n numbers at p; 0 past them. */
static __device__ __forceinline__ void read_f32(float *x, const float *p, uint32_t octet,
                                                uint32_t n)
{
    if (n % 8 == 0) {
        const float4 *v = (const float4 *)(p + 8 * octet);
        float4 a = v[0], b = v[1];
        x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
        x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = 8 * octet + i < n ? p[8 * octet + i] : 0.0f;
}

static __device__ __forceinline__ void read_bf16(float *x, const uint16_t *p, uint32_t octet,
                                                 uint32_t n)
{
    if (n % 8 == 0) {
        uint4 v = *(const uint4 *)(p + 8 * octet);
        const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[2 * i] = __uint_as_float(w[i] << 16);
            x[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        x[i] = 8 * octet + i < n ? __uint_as_float((uint32_t)p[8 * octet + i] << 16) : 0.0f;
}

/* `bits` bytes: 8 codes. */
static __device__ __forceinline__ uint64_t read_codes(const uint8_t *p, uint32_t bits)
{
    if (bits == 8) return *(const uint64_t *)p;
    if (bits == 4) return *(const uint32_t *)p;
    uint64_t word = 0;
    for (uint32_t i = 0; i < bits; i++) word |= (uint64_t)p[i] << 8 * i;
    return word;
}

/* One head of a page of codes. */
struct packed_head {
    const uint8_t *run;
    uint32_t D, key_bits, value_bits;
    bool tiled;
};

static __device__ __forceinline__ void read_packed_key(float *x, const packed_head &h,
                                                       uint32_t token, uint32_t octet)
{
    const uint32_t b = h.key_bits, G = (h.D + 31) / 32, g = octet / 4;
    const uint8_t *codes;
    uint16_t scale, zero;
    if (h.tiled) {
        const uint8_t *tile =
            h.run + token / PL_CUDA_TILE * pl_tile_bytes(h.D, b, h.value_bits);
        const uint32_t t = token % PL_CUDA_TILE;
        const uint16_t *s =
            (const uint16_t *)(tile + pl_tile_key_scales(h.D, b)) + pl_tile_key_scale(t, g);
        codes = tile + pl_tile_key(b, t, octet);
        scale = s[0];
        zero = s[1];
    } else {
        const uint16_t *s = (const uint16_t *)(h.run + PAGE * (h.D * b / 8)) + g * PAGE + token;
        codes = h.run + token * (h.D * b / 8) + octet * b;
        scale = s[0];
        zero = s[G * PAGE];
    }
    const uint64_t word = read_codes(codes, b);
#pragma unroll
    for (int i = 0; i < 8; i++)
        x[i] = pl_tq_decode_key(word >> i * b & ((1u << b) - 1), b, pl_tq_float(scale),
                                pl_tq_float(zero));
}

static __device__ __forceinline__ void read_packed_value(float *x, const packed_head &h,
                                                         uint32_t token, uint32_t octet,
                                                         const float *centroids)
{
    const uint32_t b = h.value_bits, G = (h.D + 31) / 32, g = octet / 4;
    if (h.tiled) {
        const uint8_t *tile =
            h.run + token / PL_CUDA_TILE * pl_tile_bytes(h.D, h.key_bits, b);
        const uint32_t t = token % PL_CUDA_TILE;
        const uint32_t *words = (const uint32_t *)(tile + pl_tile_values(h.D, h.key_bits));
        const float scale =
            pl_tq_float(((const uint16_t *)(tile + pl_tile_value_scales(h.D, h.key_bits, b)))
                            [pl_tile_value_scale(t, g)]);
#pragma unroll
        for (int i = 0; i < 8; i++)
            x[i] = centroids[pl_tile_value_code(words, h.D, b, t, 8 * octet + i)] * scale;
        return;
    }
    const uint8_t *page = h.run + PAGE * (h.D * h.key_bits / 8 + 4 * G);
    const float scale =
        pl_tq_float(((const uint16_t *)(page + PAGE * (h.D * b / 8)))[g * PAGE + token]);
    const uint64_t word = read_codes(page + token * (h.D * b / 8) + octet * b, b);
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = centroids[word >> i * b & ((1u << b) - 1)] * scale;
}

/* Key or value octet of a token of head `head` in a page. */
template <int KIND>
static __device__ __forceinline__ void read_octet(float *x, const pl_cuda_kv &c, const void *page,
                                                  uint32_t head, bool value, uint32_t token,
                                                  uint32_t octet, const float *centroids)
{
    const uint32_t D = c.head_dim;
    if (KIND == PACKED) {
        packed_head h = {(const uint8_t *)page, D, (uint32_t)c.type >> 4, (uint32_t)c.type & 15};
        const uint32_t G = (D + 31) / 32;
        h.run += (size_t)head * PAGE * (D * (h.key_bits + h.value_bits) / 8 + 6 * G);
        h.tiled = pl_cuda_kv_tiled(h.key_bits, h.value_bits, D);
        if (value)
            read_packed_value(x, h, token, octet, centroids);
        else
            read_packed_key(x, h, token, octet);
        return;
    }
    const size_t at = (((size_t)head * 2 + value) * PAGE + token) * D;
    if (KIND == BF16)
        read_bf16(x, (const uint16_t *)page + at, octet, D);
    else
        read_f32(x, (const float *)page + at, octet, D);
}

/* ---- a span ---------------------------------------------------------------------------------- */

template <int OCTETS, int H> struct running {
    float max[H], sum[H], out[H][8 * OCTETS];
};

/* b joins a. */
template <int OCTETS, int H>
static __device__ __forceinline__ void join(running<OCTETS, H> &a, int lanes)
{
#pragma unroll
    for (int h = 0; h < H; h++) {
        const float other = __shfl_xor_sync(~0u, a.max[h], lanes);
        const float more = __shfl_xor_sync(~0u, a.sum[h], lanes);
        const float most = fmaxf(a.max[h], other);
        const float mine = weight(a.max[h], most), its = weight(other, most);
        a.max[h] = most;
        a.sum[h] = a.sum[h] * mine + more * its;
#pragma unroll
        for (int i = 0; i < 8 * OCTETS; i++) {
            const float y = __shfl_xor_sync(~0u, a.out[h][i], lanes);
            a.out[h][i] = a.out[h][i] * mine + y * its;
        }
    }
}

/* The warps take the span's tiles of 16 tokens in turn; their sums go to w. */
/* U steps of tokens are read at once. */
template <int KIND, int L, int OCTETS, int H, int U>
static __device__ __forceinline__ void attend_span(const rows_args &a, const task &t,
                                                   void *const *pages, const float *centroids,
                                                   const warp_sums &w)
{
    constexpr int T = 32 / L, STEPS = PL_CUDA_TILE / T, N = 8 * OCTETS;
    const uint32_t D = a.c.head_dim, W = blockDim.x / 32, warp = threadIdx.x / 32;
    const uint32_t lane = threadIdx.x % 32, l = lane % L, part = lane / L;
    const float *query = a.q + t.m * a.q_stride +
                         ((size_t)t.head * a.group + t.chunk * MOST_HEADS) * D;
    pages += t.row.sequence * a.c.pages_stride;
    float q[H][N];
    running<OCTETS, H> r;
#pragma unroll
    for (int h = 0; h < H; h++) {
        r.max[h] = -INFINITY;
        r.sum[h] = 0;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const uint32_t e = l * N + i;
            q[h][i] = h < t.H && e < D ? query[h * D + e] * a.scale : 0.0f;
            r.out[h][i] = 0;
        }
    }
    const uint32_t tiles = (t.end - t.page * PAGE + PL_CUDA_TILE - 1) / PL_CUDA_TILE;
    for (uint32_t tile = (t.first - t.page * PAGE) / PL_CUDA_TILE / W * W + warp; tile < tiles;
         tile += W) {
        const uint32_t page = t.page + tile / PL_CUDA_TILES;
        const uint32_t base = t.page * PAGE + tile * PL_CUDA_TILE;
        if (base + PL_CUDA_TILE <= t.first) continue;
        const void *data = pages[page];
        for (int step = 0; step < STEPS; step += U) {
            float k[U][N], v[U][N], s[U][H];
            bool seen[U];
#pragma unroll
            for (int u = 0; u < U; u++) {
                const uint32_t position = base + (step + u) * T + part;
                const uint32_t token = position % PAGE;
                seen[u] = position >= t.first && position < t.end;
#pragma unroll
                for (int o = 0; o < OCTETS; o++) {
                    const uint32_t octet = l * OCTETS + o;
#pragma unroll
                    for (int i = 0; i < 8; i++) k[u][8 * o + i] = v[u][8 * o + i] = 0;
                    if (!seen[u] || 8 * octet >= D) continue;
                    read_octet<KIND>(k[u] + 8 * o, a.c, data, t.head, false, token, octet,
                                     centroids);
                    read_octet<KIND>(v[u] + 8 * o, a.c, data, t.head, true, token, octet,
                                     centroids);
                }
            }
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int h = 0; h < H; h++) {
                    float dot = 0;
#pragma unroll
                    for (int i = 0; i < N; i++) dot = fmaf(q[h][i], k[u][i], dot);
#pragma unroll
                    for (int i = 1; i < L; i *= 2) dot += __shfl_xor_sync(~0u, dot, i);
                    s[u][h] = seen[u] ? dot : -INFINITY;
                }
#pragma unroll
            for (int h = 0; h < H; h++) {
                float most = r.max[h];
#pragma unroll
                for (int u = 0; u < U; u++) most = fmaxf(most, s[u][h]);
                if (most > r.max[h]) {
                    const float keep = weight(r.max[h], most);
                    r.max[h] = most;
                    r.sum[h] *= keep;
#pragma unroll
                    for (int i = 0; i < N; i++) r.out[h][i] *= keep;
                }
#pragma unroll
                for (int u = 0; u < U; u++) {
                    const float p = seen[u] ? exp2f(s[u][h] - r.max[h]) : 0.0f;
                    r.sum[h] += p;
#pragma unroll
                    for (int i = 0; i < N; i++) r.out[h][i] = fmaf(p, v[u][i], r.out[h][i]);
                }
            }
        }
    }
#pragma unroll
    for (int lanes = L; lanes < 32; lanes *= 2) join<OCTETS, H>(r, lanes);
    if (part) return;
#pragma unroll
    for (int h = 0; h < H; h++) {
        if (h >= t.H) continue;
        if (l == 0) {
            w.max[warp * MOST_HEADS + h] = r.max[h];
            w.sum[warp * MOST_HEADS + h] = r.sum[h];
        }
#pragma unroll
        for (int i = 0; i < N; i++)
            if (l * N + i < D) w.out[(warp * t.H + h) * w.stride + l * N + i] = r.out[h][i];
    }
}

/* attention_rows.cu, attention_numbers.cu, attention_packed.cu */
pleach_status rows_open(pl_cuda *d, pleach_error *err);
void rows_run(const pl_cuda *d, const rows_args &a, dim3 grid);
pleach_status numbers_open(pl_cuda *d, pleach_error *err);
bool numbers_serve(pl_kv type, uint32_t head_dim);
/* Blocks that a multiprocessor runs at once. */
uint32_t numbers_blocks(uint32_t head_dim, bool few);
void numbers_run(const pl_cuda *d, const rows_args &a, dim3 grid, bool few);
pleach_status packed_open(pl_cuda *d, pleach_error *err);
/* Whether the device and the type have the fast kernel. */
bool packed_serves(const pl_cuda *d, pl_kv type, uint32_t head_dim);
void packed_run(const pl_cuda *d, const rows_args &a, dim3 grid, bool few);

} // namespace attention

#endif
