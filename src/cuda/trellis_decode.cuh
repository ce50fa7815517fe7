/* SPDX-License-Identifier: Apache-2.0
 *
 * From the words of a lane's run of positions to the code's x, whose four bytes sum to y + 510.
 *
 * Position p of a block is number 255 - p; its state is the L bits from bit p k on. A run is n
 * words that begin at a position; w[n] is the word after it (the next run's first, the block's
 * first after its last: tail-biting). Indices are constants once loops are unrolled, so that what
 * windows share is computed once.
 *
 *   k 2, 4   a window is two bytes of the words shifted by 0, 2, 4 or 6: one byte permutation takes
 *            them out, from the shifted word and from the same word with only the low nibbles left
 *   k 3      bytes never line up: a shift, or a funnel shift between words, and a mask
 *
 * Source of the code: QTIP (arXiv 2406.11235), 1MAD. */
#ifndef PL_CUDA_TRELLIS_DECODE_CUH
#define PL_CUDA_TRELLIS_DECODE_CUH

#include <stdint.h>

/* prmt with selectors that repeat a byte's sign (8 and up), which __byte_perm does not take. */
static __device__ __forceinline__ uint32_t pl_permute(uint32_t a, uint32_t b, uint32_t selector)
{
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
}

/* Bits shift .. shift + 31 of the run from word `at` on. */
static __device__ __forceinline__ uint32_t pl_shifted(const uint32_t *w, int at, int shift)
{
    return shift ? __funnelshift_r(w[at], w[at + 1], shift) : w[at];
}

/* The state of position j of the run. With `multiply` some shifts of k = 3 go to the multiplier's
 * pipe, which pays where the pipe of shifts and logic is the busier one. */
template <int k, int L, int n, bool multiply>
static __device__ __forceinline__ uint32_t pl_window(const uint32_t *w, int j)
{
    const uint32_t mask = (1u << L) - 1;
    const int at = j * k / 32, bit = j * k % 32;
    if (k == 3) {
        if (bit == 32 - L) return w[at] >> bit;
        if (bit == 0) return w[at] & mask;
        if (bit > 32 - L) return __funnelshift_r(w[at], w[at + 1], bit) & mask;
        if (!multiply) return w[at] >> bit & mask;
        uint32_t top;
        asm("mul.lo.u32 %0, %1, %2;" : "=r"(top) : "r"(w[at]), "r"(1u << (32 - L - bit)));
        return top >> (32 - L);
    }
    const int r = bit % 8, byte = bit / 8;
    if (bit == 32 - L) return w[at] >> bit;
    if (byte == 3 && at + 1 == n) return __funnelshift_r(w[at], w[at + 1], bit) & mask;
    const uint32_t s = pl_shifted(w, at, r);
    if (byte == 0) return s & mask;
    if (L == 12) {
        const uint32_t low = 0x0f0f0f0f;
        if (byte < 3) return pl_permute(s, s & low, 0xcc00 | (5 + byte) << 4 | byte);
        return pl_permute(s, pl_shifted(w, at + 1, r) & low, 0xcc43);
    }
    if (byte < 3) return pl_permute(s, 0, 0x4400 | (byte + 1) << 4 | byte);
    return pl_permute(s, pl_shifted(w, at + 1, r) & mask, 0x6643);
}

static __device__ __forceinline__ uint32_t pl_code(uint32_t state)
{
    return state * 34038481u + 76625530u;
}

/* The x of position j of the run. */
template <int k, int L, int n, bool multiply>
static __device__ __forceinline__ uint32_t pl_x(const uint32_t *w, int j)
{
    return pl_code(pl_window<k, L, n, multiply>(w, j));
}

/* The first word of the run after this lane's, for units (trellis.h): the next quarter's on axis 1,
 * the next eighth's on axis 0; the last one's is the first. All lanes of the warp call it. */
static __device__ __forceinline__ uint32_t pl_next_quarter(uint32_t first, unsigned lane)
{
    return __shfl_sync(0xffffffff, first, (lane & ~3u) | ((lane + 1) & 3));
}

static __device__ __forceinline__ uint32_t pl_next_eighth(uint32_t first, unsigned lane)
{
    return __shfl_sync(0xffffffff, first, (lane + 4) & 31);
}

/* 16 bytes that are read once: past L1. Where `wanted` is false nothing is read, and the result is
 * whatever the registers hold: with a defined one they would have to be kept. */
static __device__ __forceinline__ uint4 pl_load_codes(const uint4 *p, bool wanted = true)
{
    uint4 v;
    asm volatile("{\n.reg .pred wanted;\nsetp.ne.u32 wanted, %5, 0;\n"
                 "@wanted ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p), "r"((uint32_t)wanted));
    return v;
}

#endif
