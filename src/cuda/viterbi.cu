/* SPDX-License-Identifier: Apache-2.0
 *
 * The search. A team of threads takes a pair of blocks through all steps: each thread owns groups
 * of states, reads the minima of the groups before from shared memory, and keeps its states' values in
 * registers. Three instructions serve a state of both blocks: subtract, square, add and take the
 * minimum. There are no back-pointers: minima go to scratch memory, and the trace recomputes the
 * 2^k candidates of the group it stands in.
 *
 * Minima are held less 1024's fp16 bits, 0x6400, so that adding an error's bits gives the cost, and
 * are lowered at every step by what the step before left in group 0. All wraps are of 16 bits and
 * cancel. */
#include <cuda_fp16.h>

#include "launch.cuh"
#include "viterbi.h"

namespace {

constexpr float kDivisor = 147.800537109375f, kClamp = 4;
constexpr uint32_t kBias = 0x6400, kPinned = 16000; /* cost of groups that a pinned run forbids */
constexpr uint32_t kMost = 0x7fff7fff;

/* A code's numbers, and how a team of THREADS shares its states: thread i has groups
 * R i + R THREADS n + (0 .. R - 1). */
template <int K_, int L_, int THREADS_> struct code {
    static constexpr int K = K_, L = L_, THREADS = THREADS_;
    static constexpr int FAN = 1 << K, GROUPS = 1 << (L - K), MIDS = 1 << (L - 2 * K);
    static constexpr int R = GROUPS / THREADS < 4 ? GROUPS / THREADS : 4;
    static constexpr int N = GROUPS / THREADS / R;
    static constexpr int STATES = FAN * R * N;
    static constexpr int EVERY = K == 2 ? 2 : 1; /* steps from stored minima to the next */
    static constexpr int TEAMS = THREADS == 32 ? 4 : 1; /* of a block */
    /* One more warp traces a pair while the team searches the next one. It comes with three that
     * end at once: registers go from one group of four to the others. */
    static constexpr bool TRACER = THREADS == 512;
    static constexpr int BLOCK = (THREADS + 128 * TRACER) * TEAMS;
    static constexpr int REACH = L == 12 ? 80 : 192; /* numbers before the seam to start with */
    static constexpr float UNIT = K == 2 ? 22 : K == 3 ? 32 : 44;
};

__device__ __forceinline__ int y_of_state(uint32_t s)
{
    return (int)__dp4a(s * 34038481u + 76625530u, 0x01010101u, 0u) - 510;
}

template <class C> __device__ __forceinline__ __half value_of_state(uint32_t s)
{
    return __float2half_rn((float)y_of_state(s) * (C::UNIT / kDivisor));
}

__device__ __forceinline__ uint32_t bits_of(__half2 h)
{
    return *reinterpret_cast<uint32_t *>(&h);
}

template <class C> __device__ __forceinline__ void team_sync()
{
    if (C::THREADS == 32) __syncwarp();
    else asm volatile("bar.sync 1, %0;" ::"n"(C::THREADS) : "memory");
}

/* Team and tracer. */
template <class C> __device__ __forceinline__ void meet()
{
    asm volatile("bar.sync 2, %0;" ::"n"(C::THREADS + 32) : "memory");
}

/* Registers of the calling group of four warps, from now on. */
template <int N, bool MORE> __device__ __forceinline__ void set_registers()
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (MORE) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
    else asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

/* A pair of blocks in the making. Arrays of shared memory but `slots`. */
template <class C> struct team {
    uint32_t *minima; /* [2][GROUPS], block 0 in the low halves */
    __half2 *x;       /* [T] */
    uint32_t *words;  /* [2][T K / 32] */
    uint32_t *slots;  /* [T / EVERY][GROUPS] minima before steps 0, EVERY, ... */
    int T, thread;

    __device__ __forceinline__ int first_group() const { return C::R * thread; }
};

template <int R>
__device__ __forceinline__ void put(uint32_t *to, const uint32_t (&v)[R])
{
    if constexpr (R == 4) *reinterpret_cast<uint4 *>(to) = make_uint4(v[0], v[1], v[2], v[3]);
    else if constexpr (R == 2) *reinterpret_cast<uint2 *>(to) = make_uint2(v[0], v[1]);
    else *to = v[0];
}

/* One number of both blocks, from minima `from` to `to` and, unless NULL, to `slot`. */
template <class C>
__device__ __forceinline__ void step(const __half2 (&v)[C::STATES / 2], __half2 x,
                                     const uint32_t *from, uint32_t *to, uint32_t *slot, int first)
{
    const __half2 bias = __float2half2_rn(1024);
    const uint32_t lower = __vsub2(0x38003800, from[0]); /* - 2 kBias - from[0] */
    from += first >> C::K;
    to += first;
#pragma unroll
    for (int n = 0; n < C::N; n++) {
        uint32_t best[C::R];
#pragma unroll
        for (int c = 0; c < C::FAN; c++) {
            const uint32_t before = from[c * C::MIDS + (C::R * C::THREADS >> C::K) * n];
#pragma unroll
            for (int r = 0; r < C::R; r++) {
                const int s = (n * C::FAN + c) * C::R + r;
                const __half2 w = s % 2 ? __high2half2(v[s / 2]) : __low2half2(v[s / 2]);
                const __half2 d = __hsub2(w, x);
                const uint32_t e = bits_of(__hfma2(d, d, bias));
                best[r] = __viaddmin_s16x2(e, before, c ? best[r] : kMost);
            }
        }
#pragma unroll
        for (int r = 0; r < C::R; r++) best[r] = __viaddmin_s16x2(best[r], lower, kMost);
        put<C::R>(to + C::R * C::THREADS * n, best);
        if (slot) put<C::R>(slot + first + C::R * C::THREADS * n, best);
    }
}

/* Minima that a run starts with, in minima[0] and, if stored, slot 0. seam < 0: all alike. */
template <class C>
__device__ __forceinline__ void start(const team<C> &t, int seam0, int seam1, bool store)
{
    for (int g = t.thread; g < C::GROUPS; g += C::THREADS) {
        const uint32_t a = seam0 < 0 || g == seam0 ? 0 : kPinned;
        const uint32_t b = seam1 < 0 || g == seam1 ? 0 : kPinned;
        const uint32_t m = __vsub2(b << 16 | a, kBias << 16 | kBias);
        t.minima[g] = m;
        if (store) t.slots[g] = m;
    }
    team_sync<C>();
}

/* ---- the trace: one warp, half a warp for each block ----------------------------------------- */

template <class C>
__device__ __forceinline__ int cheapest_group(const team<C> &t, int lane)
{
    int best0 = INT_MAX, best1 = INT_MAX;
    for (int g = lane; g < C::GROUPS; g += 32) {
        const uint32_t m = __vadd2(t.minima[g], kBias << 16 | kBias);
        best0 = min(best0, (int)(m << 16 | g));
        best1 = min(best1, (int)((m & 0xffff0000) | g));
    }
    best0 = __reduce_min_sync(0xffffffff, best0);
    best1 = __reduce_min_sync(0xffffffff, best1);
    return (lane < 16 ? best0 : best1) & 0xffff;
}

template <class C>
__device__ __forceinline__ int error_bits(uint32_t state, __half x)
{
    const __half d = __hsub(value_of_state<C>(state), x);
    return __half_as_short(__hfma(d, d, __float2half_rn(1024)));
}

/* Walks back over a pair, EVERY numbers at a time, and leaves the words of the path. A first walk
 * from the cheapest group gives the group at the seam; a second one from there follows until both
 * blocks have met the first path, where the rest is in the words already, or to the start: a block
 * that then starts elsewhere is `open`. A third kind is pinned. In the registers of one warp. */
template <class C> struct walk {
    enum kind { FIRST, AGAIN, PINNED, NONE };
    const int16_t *slots; /* from the lane's block on */
    const __half *x;
    uint32_t *words;
    int T, i, group, seam;
    uint32_t bits;
    int now;          /* a kind */
    bool write, open;

    static __device__ __forceinline__ int lane() { return threadIdx.x % 32; }
    static __device__ __forceinline__ uint32_t candidate() { return lane() % (C::K == 3 ? 8 : 16); }

    __device__ __forceinline__ void begin(const team<C> &t, kind k, int from, bool writes)
    {
        const int block = lane() / 16;
        T = t.T;
        slots = reinterpret_cast<const int16_t *>(t.slots) + block;
        x = reinterpret_cast<const __half *>(t.x) + block;
        words = t.words + block * (T * C::K / 32);
        group = from;
        write = writes;
        restart(k);
    }

    __device__ __forceinline__ void restart(kind k)
    {
        now = k;
        i = T - C::EVERY;
        bits = 0;
    }

    /* The candidate's state at number i; `later`: at i + 1, two numbers at a time. */
    __device__ __forceinline__ uint32_t state(uint32_t *later) const
    {
        if (C::EVERY == 1) return candidate() << (C::L - C::K) | group;
        *later = (candidate() >> C::K) << (C::L - C::K) | group;
        return (candidate() & (C::FAN - 1)) << (C::L - C::K) | *later >> C::K;
    }

    /* Whether both blocks are where the walk before was at this word's end. */
    __device__ __forceinline__ bool meets(int word) const
    {
        const bool met =
            __all_sync(0xffffffff, group == (int)(words[word] & (C::GROUPS - 1)));
        __syncwarp(); /* before one lane writes it anew */
        return met;
    }

    __device__ __forceinline__ void go()
    {
        uint32_t later;
        const uint32_t first = state(&later);
        int cost = slots[(size_t)(i / C::EVERY) * (2 * C::GROUPS) + 2 * (first >> C::K)] +
                   error_bits<C>(first, x[2 * i]);
        if (C::EVERY == 2) cost += error_bits<C>(later, x[2 * i + 2]) - (int)kBias;
        int key = (int)(int16_t)cost * 16 + (int)candidate();
#pragma unroll
        for (int far = C::K == 3 ? 4 : 8; far; far /= 2)
            key = min(key, __shfl_xor_sync(0xffffffff, key, far));
        const int best = key & 15;
        const int filled = (T - C::EVERY - i) * C::K % 32;
        uint32_t symbols = 0;
#pragma unroll
        for (int e = 0; e < C::EVERY; e++) {
            symbols |= (group & (C::FAN - 1)) << (e * C::K);
            group = (best >> ((C::EVERY - 1 - e) * C::K) & (C::FAN - 1)) << (C::L - 2 * C::K) |
                    group >> C::K;
        }
        bits |= symbols << filled;
        if (filled + C::EVERY * C::K >= 32) {
            const int word = (T - i) * C::K / 32 - 1;
            if (write && lane() % 16 == 0) words[word] = bits;
            bits = symbols >> (32 - filled);
            if (now == AGAIN && i > 0 && i % 32 == 0 && meets(word + 1)) {
                group = seam;
                i = 0;
            }
        }
        i -= C::EVERY;
        if (i < 0) turn();
    }

    /* At the start of the blocks. */
    __device__ __forceinline__ void turn()
    {
        __syncwarp();
        if (now == FIRST) {
            seam = group;
            restart(AGAIN);
        } else {
            if (now == AGAIN) open = group != seam;
            now = NONE;
        }
    }

    __device__ __forceinline__ void to_end()
    {
        while (now != NONE) go();
    }
};

/* Steps over numbers first .. end - 1 (even ones), minima[0] to minima[0]; with STORE slots behind
 * the first are filled. */
template <class C, bool STORE>
__device__ __forceinline__ void forward(const team<C> &t, const __half2 (&v)[C::STATES / 2],
                                        int first, int end)
{
    const int g = t.first_group();
    uint32_t *slot = t.slots;
    for (int i = first; i < end; i += 2) {
        if (C::EVERY == 1) slot += C::GROUPS;
        step<C>(v, t.x[i], t.minima, t.minima + C::GROUPS, STORE && C::EVERY == 1 ? slot : nullptr,
                g);
        team_sync<C>();
        slot += C::GROUPS;
        step<C>(v, t.x[i + 1], t.minima + C::GROUPS, t.minima,
                STORE && i + 2 < end ? slot : nullptr, g);
        team_sync<C>();
    }
}

/* ---- a pair ---------------------------------------------------------------------------------- */

__device__ __forceinline__ float f32_of_fp16(uint16_t bits)
{
    return __half2float(__ushort_as_half(bits));
}

template <class C>
__device__ __forceinline__ __half number(float w, float factor)
{
    return __float2half_rn(fminf(fmaxf(w * factor, -kClamp * C::UNIT), kClamp * C::UNIT));
}

template <class C>
__device__ __forceinline__ void load(const team<C> &t, const pl_cuda_viterbi &s, size_t first,
                                     size_t second)
{
    const float *a = s.src + first / s.blocks * s.src_stride + first % s.blocks * t.T;
    const float *b = s.src + second / s.blocks * s.src_stride + second % s.blocks * t.T;
    const uint16_t scale0 = s.scales[first / s.blocks], scale1 = s.scales[second / s.blocks];
    const float factor0 = scale0 ? C::UNIT / f32_of_fp16(scale0) : 0;
    const float factor1 = scale1 ? C::UNIT / f32_of_fp16(scale1) : 0;
    for (int i = t.thread; i < t.T; i += C::THREADS)
        t.x[i] = __halves2half2(number<C>(a[i], factor0), number<C>(b[i], factor1));
}

/* A block's words, values and sums, by one warp. */
template <class C>
__device__ __forceinline__ void finish(const team<C> &t, const pl_cuda_viterbi &s, size_t index,
                                       int block, int lane)
{
    const int n = t.T * C::K / 32;
    const size_t row = index / s.blocks, at = index % s.blocks;
    const uint32_t *words = t.words + block * n;
    const bool zero = s.scales[row] == 0;
    uint32_t *to = s.codes + row * s.code_stride + at * n;
    const float *src = s.src + row * s.src_stride + at * t.T;
    double wy = 0;
    int yy = 0;
    for (int i = lane; i < n; i += 32) to[i] = zero ? 0xffffffff : words[i];
    for (int i = lane; i < t.T; i += 32) {
        const int bit = (t.T - 1 - i) * C::K, word = bit / 32;
        const uint32_t next = words[word + 1 < n ? word + 1 : 0];
        const uint32_t state = __funnelshift_r(words[word], next, bit) & ((1 << C::L) - 1);
        const int y = zero ? 0 : y_of_state(state);
        wy += (double)src[i] * y;
        yy += y * y;
        if (s.values)
            s.values[row * s.value_stride + at * t.T + i] = (float)y * (1.0f / kDivisor);
    }
    if (!s.sums) return;
#pragma unroll
    for (int far = 16; far; far /= 2) {
        wy += __shfl_xor_sync(0xffffffff, wy, far);
        yy += __shfl_xor_sync(0xffffffff, yy, far);
    }
    if (lane == 0) s.sums[index] = {wy, yy};
}

/* From before the seam to the block's end; minima are kept from the seam on. */
template <class C>
__device__ __forceinline__ void run_free(const team<C> &t, const __half2 (&v)[C::STATES / 2])
{
    start<C>(t, -1, -1, false);
    forward<C, false>(t, v, t.T - min(t.T, C::REACH), t.T);
    for (int g = t.thread; g < C::GROUPS; g += C::THREADS) t.slots[g] = t.minima[g];
    forward<C, true>(t, v, 0, t.T);
}

/* What a team and who traces tell each other about a pair. */
struct ends {
    int last[2], seam[2]; /* groups of both blocks */
    uint32_t open;        /* a bit for each lane of the tracing warp */
};

/* A team's memory. */
template <class C> struct room {
    /* A pair that is traced while the next one is searched has room of its own. */
    static constexpr int PAIRS = C::TRACER ? 2 : 1;
    uint32_t *base, *scratch;
    int T, thread;

    static __host__ __device__ constexpr uint32_t words(uint32_t T) { return 2 * (T * C::K / 32); }
    static __host__ __device__ constexpr size_t shared(uint32_t T)
    {
        return (2 * C::GROUPS + PAIRS * (T + words(T) + 8)) * sizeof(uint32_t);
    }
    static __host__ __device__ constexpr size_t slots(uint32_t T)
    {
        return (size_t)(T / C::EVERY) * C::GROUPS;
    }
    __device__ __forceinline__ uint32_t *place(int turn) const
    {
        return base + 2 * C::GROUPS + turn % PAIRS * (T + words(T) + 8);
    }
    __device__ __forceinline__ team<C> of(int turn) const
    {
        return {base, reinterpret_cast<__half2 *>(place(turn)), place(turn) + T,
                scratch + turn % PAIRS * slots(T), T, thread};
    }
    __device__ __forceinline__ ends *ends_of(int turn) const
    {
        return reinterpret_cast<ends *>(place(turn) + T + words(T));
    }
};

template <class C>
__device__ __forceinline__ void search_pair(const team<C> &t, const __half2 (&v)[C::STATES / 2],
                                            const pl_cuda_viterbi &s, size_t pair, ends *e)
{
    load<C>(t, s, 2 * pair, min(2 * pair + 1, s.rows * s.blocks - 1));
    run_free<C>(t, v);
    if (t.thread >= 32) return;
    const int last = cheapest_group<C>(t, t.thread);
    if (t.thread % 16 == 0) e->last[t.thread / 16] = last;
    __syncwarp();
}

template <class C>
__device__ __forceinline__ void trace(const team<C> &t, int lane, ends *e, walk<C> *w)
{
    w->begin(t, walk<C>::FIRST, e->last[lane / 16], true);
    w->to_end();
    const uint32_t open = __ballot_sync(0xffffffff, w->open);
    if (lane % 16 == 0) e->seam[lane / 16] = w->seam;
    if (lane == 0) e->open = open;
}

/* For the blocks whose path does not close, a run pinned to the group at the seam. */
template <class C>
__device__ __forceinline__ void run_pinned(const team<C> &t, const __half2 (&v)[C::STATES / 2],
                                           const ends *e)
{
    start<C>(t, e->seam[0], e->seam[1], true);
    forward<C, true>(t, v, 0, t.T);
}

template <class C>
__device__ __forceinline__ void trace_pinned(const team<C> &t, int lane, const ends *e, walk<C> *w)
{
    w->begin(t, walk<C>::PINNED, w->seam, e->open >> lane & 1);
    w->to_end();
}

template <class C>
__device__ __forceinline__ void finish_pair(const team<C> &t, const pl_cuda_viterbi &s, size_t pair)
{
    for (int b = t.thread / 32; b < 2; b += C::THREADS == 32 ? 1 : 2)
        if (2 * pair + b < s.rows * s.blocks) finish<C>(t, s, 2 * pair + b, b, t.thread % 32);
}

/* ---- pair after pair ------------------------------------------------------------------------- */

/* Each searched and traced by the team. */
template <class C>
__device__ __forceinline__ void work_alone(const room<C> &r, const __half2 (&v)[C::STATES / 2],
                                           const pl_cuda_viterbi &s, size_t first, size_t stride)
{
    const team<C> t = r.of(0);
    ends *e = r.ends_of(0);
    for (size_t pair = first; 2 * pair < s.rows * s.blocks; pair += stride) {
        walk<C> w;
        search_pair<C>(t, v, s, pair, e);
        if (t.thread < 32) trace<C>(t, t.thread, e, &w);
        team_sync<C>();
        if (e->open) {
            run_pinned<C>(t, v, e);
            if (t.thread < 32) trace_pinned<C>(t, t.thread, e, &w);
            team_sync<C>();
        }
        finish_pair<C>(t, s, pair);
        team_sync<C>();
    }
}

/* A round searches one pair and finishes the one before, which the tracer traces meanwhile; they
 * meet when both are done. */
template <class C>
__device__ __forceinline__ void work_in_rounds(const room<C> &r, const __half2 (&v)[C::STATES / 2],
                                               const pl_cuda_viterbi &s, size_t first,
                                               size_t stride)
{
    const size_t pairs = (s.rows * s.blocks + 1) / 2;
    int turn = 0;
    for (size_t pair = first; pair < pairs + stride; pair += stride, turn ^= 1) {
        if (pair < pairs) search_pair<C>(r.of(turn), v, s, pair, r.ends_of(turn));
        meet<C>();
        if (pair == first) continue;
        if (r.ends_of(turn ^ 1)->open) {
            run_pinned<C>(r.of(turn ^ 1), v, r.ends_of(turn ^ 1));
            meet<C>();
            meet<C>();
        }
        finish_pair<C>(r.of(turn ^ 1), s, pair - stride);
    }
}

template <class C>
__device__ __forceinline__ void trace_in_rounds(const room<C> &r, const pl_cuda_viterbi &s,
                                                size_t first, size_t stride)
{
    const size_t pairs = (s.rows * s.blocks + 1) / 2;
    const int lane = threadIdx.x % 32;
    int turn = 0;
    for (size_t pair = first; pair < pairs + stride; pair += stride, turn ^= 1) {
        const team<C> before = r.of(turn ^ 1);
        ends *e = r.ends_of(turn ^ 1);
        walk<C> w;
        if (pair != first) trace<C>(before, lane, e, &w);
        meet<C>();
        if (pair == first || !e->open) continue;
        meet<C>();
        trace_pinned<C>(before, lane, e, &w);
        meet<C>();
    }
}

template <class C>
__global__ void
__launch_bounds__(C::BLOCK, C::THREADS == 512 ? 1 : 512 / (C::THREADS * C::TEAMS))
    search_kernel(pl_cuda_viterbi s, uint32_t *scratch)
{
    extern __shared__ __align__(16) uint32_t shared[];
    const int T = (int)s.T, number = threadIdx.x / C::THREADS % C::TEAMS;
    const size_t first = blockIdx.x * (size_t)C::TEAMS + number;
    const size_t stride = (size_t)gridDim.x * C::TEAMS;
    const room<C> r = {shared + number * (room<C>::shared(T) / sizeof(uint32_t)),
                       scratch + first * room<C>::PAIRS * room<C>::slots(T), T,
                       (int)threadIdx.x % C::THREADS};
    pl_wait_for_previous();
    if constexpr (C::TRACER) {
        if (threadIdx.x >= C::THREADS) {
            set_registers<64, false>();
            if (threadIdx.x < C::THREADS + 32) trace_in_rounds<C>(r, s, first, stride);
            return;
        }
        set_registers<104, true>();
    }
    __half2 v[C::STATES / 2];
#pragma unroll
    for (int i = 0; i < C::STATES; i += 2) {
        __half two[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int g = (i + j) % C::R, c = (i + j) / C::R % C::FAN, n = (i + j) / C::R / C::FAN;
            two[j] = value_of_state<C>(c * C::GROUPS + C::R * r.thread + C::R * C::THREADS * n + g);
        }
        v[i / 2] = __halves2half2(two[0], two[1]);
    }
    if constexpr (C::TRACER) work_in_rounds<C>(r, v, s, first, stride);
    else work_alone<C>(r, v, s, first, stride);
}

/* ---- launching ------------------------------------------------------------------------------- */

template <class C> size_t teams_of(const pl_cuda *d, uint32_t T, size_t blocks)
{
    const size_t by_shared = d->shared_bytes / (room<C>::shared(T) * C::TEAMS);
    const size_t by_registers = 512 / (C::THREADS * C::TEAMS);
    const size_t resident = by_shared < by_registers ? by_shared : by_registers;
    const size_t most = (size_t)d->sms * (resident ? resident : 1);
    const size_t wanted = ((blocks + 1) / 2 + C::TEAMS - 1) / C::TEAMS;
    return (wanted < most ? wanted : most) * C::TEAMS;
}

template <class C> struct runner {
    static bool fits(const pl_cuda *d, uint32_t T)
    {
        return room<C>::shared(T) * C::TEAMS <= d->shared_bytes;
    }
    static size_t scratch(const pl_cuda *d, uint32_t T, size_t blocks)
    {
        return teams_of<C>(d, T, blocks) * room<C>::PAIRS * room<C>::slots(T) * sizeof(uint32_t);
    }
    static void run(const pl_cuda *d, const pl_cuda_viterbi *s, void *scratch)
    {
        const size_t teams = teams_of<C>(d, s->T, s->rows * s->blocks);
        if (teams == 0) return;
        pl_launch(d, search_kernel<C>, dim3((unsigned)(teams / C::TEAMS)), dim3(C::BLOCK),
                  room<C>::shared(s->T) * C::TEAMS, *s, static_cast<uint32_t *>(scratch));
    }
    static cudaError_t init(const pl_cuda *d)
    {
        return cudaFuncSetAttribute(search_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)d->shared_bytes);
    }
};

/* Few blocks: each pair to 256 threads, for the sake of latency. */
bool is_few(const pl_cuda *d, size_t blocks)
{
    return blocks <= 4 * (size_t)d->sms;
}

/* f is called as f(runner<C>()). */
template <class F> auto with_runner(uint32_t k, uint32_t L, bool few, F f)
{
    if (L == 16)
        return k == 2 ? f(runner<code<2, 16, 512>>()) : k == 3 ? f(runner<code<3, 16, 512>>())
                                                               : f(runner<code<4, 16, 512>>());
    if (few)
        return k == 2 ? f(runner<code<2, 12, 256>>()) : k == 3 ? f(runner<code<3, 12, 256>>())
                                                               : f(runner<code<4, 12, 256>>());
    return k == 2 ? f(runner<code<2, 12, 32>>()) : k == 3 ? f(runner<code<3, 12, 32>>())
                                                          : f(runner<code<4, 12, 32>>());
}

} // namespace

pleach_status pl_cuda_viterbi_init(pl_cuda *d, pleach_error *err)
{
    for (uint32_t k = 2; k <= 4; k++)
        for (uint32_t L = 12; L <= 16; L += 4)
            for (int few = 0; few < 2; few++)
                PL_TRY(pl_cuda_check(with_runner(k, L, few, [&](auto r) { return r.init(d); }),
                                     "preparing the trellis search", err));
    return PLEACH_OK;
}

bool pl_cuda_viterbi_fits(const pl_cuda *d, uint32_t k, uint32_t L, uint32_t T)
{
    return with_runner(k, L, false, [&](auto r) { return r.fits(d, T); }) &&
           with_runner(k, L, true, [&](auto r) { return r.fits(d, T); });
}

size_t pl_cuda_viterbi_scratch(const pl_cuda *d, uint32_t k, uint32_t L, uint32_t T, size_t blocks)
{
    const size_t few = is_few(d, blocks) ? blocks : 4 * (size_t)d->sms;
    const size_t a = with_runner(k, L, true, [&](auto r) { return r.scratch(d, T, few); });
    const size_t b = with_runner(k, L, false, [&](auto r) { return r.scratch(d, T, blocks); });
    return a > b ? a : b;
}

void pl_cuda_viterbi_run(const pl_cuda *d, const pl_cuda_viterbi *s, void *scratch)
{
    const bool few = is_few(d, s->rows * s->blocks);
    with_runner(s->k, s->L, few, [&](auto r) { r.run(d, s, scratch); });
}
