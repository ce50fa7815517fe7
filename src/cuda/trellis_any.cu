/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread decodes eight neighbouring weights of a stored row at a time: k bytes and the bits that
 * follow, which two words always hold. Words are read from where they lie, as stored or in units.
 *
 * Axis 1: a warp has four stored rows and walks along them, its lanes at 32 neighbouring eights.
 * Axis 0: a thread has eight or 32 outputs and walks down the stored rows. */
#include "trellis_any.h"

#include <cstddef>
#include <cstring>

#include "codec/trellis.h"
#include "launch.cuh"
#include "trellis_decode.cuh"
#include "trellis_eight.cuh"

enum {
    WARP = 32,
    EIGHT = PL_EIGHT,
    MOST_ROWS = 64,  /* activation rows of one launch */
    MOST_TASKS = 4,  /* products of one launch */
    ROWS1 = 4,       /* axis 1: stored rows of a warp */
    WARPS1 = 8,      /* axis 1: warps of a thread block */
    THREADS0 = 512,  /* axis 0: eights that a thread block decodes at a time */
    SPLIT0 = 1536,   /* axis 0: most stored rows of a thread block: 48 KB for eight rows of x */
    UNIT_WORDS = 128 /* of a unit, times k */
};

typedef struct task {
    const uint32_t *codes;
    const float *scales, *x, *output_scale, *bias;
    float *y, *partials; /* partials [splits][M][out], axis 0 with more than one split */
    size_t x_stride, y_stride, rows, row_words;
    uint32_t in, out, block, block_words, blocks, mask;
    bool units, vector; /* vector: rows of x are 16-byte aligned */
    uint32_t along;     /* axis 1: warps along a stored row; axis 0: eights in a tile of outputs */
    uint32_t log;       /* along is 2^log on axis 0 */
    uint32_t tiles, splits, split; /* axis 0: of outputs, of stored rows, and rows in one */
} task;

typedef struct tasks {
    task t[MOST_TASKS];
    uint32_t first[MOST_TASKS + 1]; /* thread block of each */
    uint32_t n, M;
} tasks;

static __device__ __forceinline__ uint32_t find_task(const tasks &all)
{
    uint32_t i = 0;
    while (i + 1 < all.n && blockIdx.x >= all.first[i + 1]) i++;
    return i;
}

typedef pl_eight_place place;

template <int K> static __device__ __forceinline__ place find(const task &t, uint32_t eight)
{
    return pl_eight_find<K>(t.block, t.block_words, eight);
}

static __device__ __forceinline__ float finish(const task &t, float sum, uint32_t out)
{
    if (t.output_scale) sum = __fmul_rn(sum, t.output_scale[out]);
    return t.bias ? __fadd_rn(sum, t.bias[out]) : sum;
}

/* ---- axis 1 ---------------------------------------------------------------------------------- */

template <int K>
static __device__ __forceinline__ void load1(uint32_t words[ROWS1][2], const task &t, size_t row,
                                             const uint32_t step[ROWS1], uint32_t b,
                                             const place &at)
{
    const uint32_t *low, *high;
    if (t.units) {
        low = t.codes + pl_unit_word1<K>(t.blocks, row, b, at.low);
        high = t.codes + pl_unit_word1<K>(t.blocks, row, b, at.high);
    } else {
        low = t.codes + row * t.row_words + b * t.block_words + at.low;
        high = low - at.low + at.high;
    }
#pragma unroll
    for (int r = 0; r < ROWS1; r++) {
        words[r][0] = __ldg(low + step[r]);
        words[r][1] = __ldg(high + step[r]);
    }
}

static __device__ __forceinline__ void load_x(float x[EIGHT], const task &t, const float *row,
                                              uint32_t at)
{
    if (t.vector && at + EIGHT <= t.in) {
        float4 a = *(const float4 *)(row + at), b = *(const float4 *)(row + at + 4);
        x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
        x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < EIGHT; i++) x[i] = at + i < t.in ? row[at + i] : 0.0f;
}

/* An eight of four stored rows meets MT rows of x. */
template <int K, int MT>
static __device__ __forceinline__ void
multiply1(float sum[ROWS1][MT], const task &t, const uint32_t words[ROWS1][2], uint32_t shift,
          const float *x, const uint32_t x_row[MT], uint32_t at)
{
    float w[ROWS1][EIGHT];
#pragma unroll
    for (int r = 0; r < ROWS1; r++)
        pl_eight_decode<K>(w[r], words[r][0], words[r][1], shift, t.mask);
#pragma unroll
    for (int m = 0; m < MT; m++) {
        float a[EIGHT];
        load_x(a, t, x + x_row[m] * t.x_stride, at);
#pragma unroll
        for (int i = 0; i < EIGHT; i++)
#pragma unroll
            for (int r = 0; r < ROWS1; r++) sum[r][m] = fmaf(w[r][i], a[i], sum[r][m]);
    }
}

template <int MT>
static __device__ __forceinline__ void store1(float sum[ROWS1][MT], const task &t, size_t first,
                                              uint32_t m0, uint32_t M)
{
    __shared__ float parts[WARPS1][ROWS1 * MT];
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, groups = WARPS1 / t.along;
#pragma unroll
    for (int r = 0; r < ROWS1; r++)
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int lanes = 16; lanes; lanes /= 2)
                sum[r][m] += __shfl_xor_sync(~0u, sum[r][m], lanes);
            if (lane == 0) parts[warp][r * MT + m] = sum[r][m];
        }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < groups * ROWS1 * MT; i += blockDim.x) {
        uint32_t group = i / (ROWS1 * MT), r = i / MT % ROWS1, m = i % MT;
        size_t row = first + group * ROWS1 + r;
        float total = 0;
        for (uint32_t w = 0; w < t.along; w++) total += parts[group * t.along + w][r * MT + m];
        if (row >= t.out || m0 + m >= M) continue;
        total *= __ldg(t.scales + row) * (1.0f / PL_TRELLIS_DIVISOR);
        t.y[(m0 + m) * t.y_stride + row] = finish(t, total, (uint32_t)row);
    }
}

template <int K, int MT>
static __global__ void __launch_bounds__(WARPS1 *WARP, MT > 1 ? 2 : 3)
    axis1(const __grid_constant__ tasks all)
{
    uint32_t which = find_task(all), tile = blockIdx.x - all.first[which], m0 = blockIdx.y * MT;
    const task &t = all.t[which];
    uint32_t warp = threadIdx.x / WARP, eights = (t.in + EIGHT - 1) / EIGHT;
    uint32_t per_block = t.block / EIGHT, stride = t.along * WARP;
    size_t first = (size_t)tile * (WARPS1 / t.along) * ROWS1;
    size_t row = first + warp / t.along * ROWS1;
    uint32_t at = warp % t.along * WARP + threadIdx.x % WARP, x_row[MT];
    uint32_t step[ROWS1], b = at / per_block, c = at % per_block, words[ROWS1][2], next[ROWS1][2];
    float sum[ROWS1][MT] = {};
    if (row >= t.rows) row = 0; /* a warp beyond the end computes what nobody stores */
    for (int r = 0; r < ROWS1; r++)
        step[r] = row + r < t.rows ? r * (t.units ? 16 : (uint32_t)t.row_words) : 0;
    for (int m = 0; m < MT; m++) x_row[m] = min(m0 + m, all.M - 1);
    place here = find<K>(t, c);
    pl_let_next_start();
    if (at < eights) load1<K>(next, t, row, step, b, here);
    pl_wait_for_previous();
    while (at < eights) {
        uint32_t now = at, shift = here.shift;
        memcpy(words, next, sizeof words);
        at += stride;
        b += stride / per_block;
        c += stride % per_block;
        if (c >= per_block) {
            c -= per_block;
            b++;
        }
        here = find<K>(t, c);
        if (at < eights) load1<K>(next, t, row, step, b, here);
        multiply1<K, MT>(sum, t, words, shift, t.x, x_row, EIGHT * now);
    }
    store1<MT>(sum, t, first, m0, all.M);
}

/* ---- axis 0 ---------------------------------------------------------------------------------- */

/* A thread has `EIGHTS` neighbouring eights of outputs: four, whose windows lie at places known in
 * advance, where there are few rows of x and many thread blocks, else one. A thread block has a
 * tile of t.along eights and 512 / t.along runs of stored rows: run r has rows r, r + runs, ... of
 * its split, whatever EIGHTS is. */
template <int K, int EIGHTS, int MT> struct run0 {
    enum {
        THREADS = THREADS0 / EIGHTS,
        OWN = EIGHT * EIGHTS, /* outputs */
        WORDS = EIGHTS == 1 ? 2 : K + 1,
        DEPTH = MT == 4 ? 2 : 4, /* stored rows that it reads ahead */
        STRIDE = OWN + 4         /* of a thread's sums in shared memory: banks */
    };
};

/* A word of a block. Those of a column lie a constant apart for rows 16 apart. */
template <int K>
static __device__ __forceinline__ size_t word0(const task &t, size_t row, uint32_t b, uint32_t word)
{
    if (!t.units) return row * t.row_words + b * t.block_words + word;
    return pl_unit_word0<K>(t.rows, row, b, word);
}

/* x * scale of the split's rows, [row][MT], zeros up to `padded`. */
template <int MT>
static __device__ __forceinline__ void load_inputs(float *a, const task &t, size_t first,
                                                   uint32_t rows, uint32_t padded, uint32_t m0,
                                                   uint32_t M)
{
#pragma unroll
    for (int m = 0; m < MT; m++) {
        const float *x = t.x + min(m0 + m, M - 1) * t.x_stride + first;
        for (uint32_t r = threadIdx.x; r < padded; r += blockDim.x)
            a[r * MT + m] = r < rows ? x[r] * __ldg(t.scales + first + r) : 0.0f;
    }
}

template <int MT> static __device__ __forceinline__ void load_row(float x[MT], const float *a)
{
    if (MT % 4 == 0) {
#pragma unroll
        for (int m = 0; m < MT; m += 4) *(float4 *)(x + m) = *(const float4 *)(a + m);
    } else {
#pragma unroll
        for (int m = 0; m < MT; m++) x[m] = a[m];
    }
}

/* A thread's weights of one stored row meet MT rows of x. */
template <int K, int L, int EIGHTS, int MT>
static __device__ __forceinline__ void add0(float sum[][MT], const uint32_t *words, uint32_t shift,
                                            uint32_t mask, const float *a)
{
    alignas(16) float x[MT];
    load_row<MT>(x, a);
    if constexpr (EIGHTS == 1) {
        float w[EIGHT];
        pl_eight_decode<K>(w, words[0], words[1], shift, mask);
#pragma unroll
        for (int i = 0; i < EIGHT; i++)
#pragma unroll
            for (int m = 0; m < MT; m++) sum[i][m] = fmaf(w[i], x[m], sum[i][m]);
    } else {
#pragma unroll
        for (int j = 0; j < EIGHT * EIGHTS; j++) {
            uint32_t bits = __dp4a(pl_x<K, L, K, false>(words, j), 0x01010101u, 0x4b000000u);
            float w = __uint_as_float(bits) - (8388608.0f + 510.0f);
            int i = EIGHT * EIGHTS - 1 - j;
#pragma unroll
            for (int m = 0; m < MT; m++) sum[i][m] = fmaf(w, x[m], sum[i][m]);
        }
    }
}

/* Runs of the thread block added through shared memory, eight by eight and then those sums. */
template <int EIGHTS, int MT>
static __device__ __forceinline__ void store0(float *shared, const float sum[][MT], const task &t,
                                              uint32_t tile, uint32_t split, uint32_t m0,
                                              uint32_t M)
{
    typedef run0<2, EIGHTS, MT> run;
    uint32_t log = t.log + 3, width = 1u << log, lanes = t.along / EIGHTS;
    float *own = shared + threadIdx.x * run::STRIDE, *eights = shared + run::THREADS * run::STRIDE;
#pragma unroll
    for (int m = 0; m < MT; m++) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < run::OWN; i += 4)
            *(float4 *)(own + i) =
                make_float4(sum[i][m], sum[i + 1][m], sum[i + 2][m], sum[i + 3][m]);
        __syncthreads();
#pragma unroll
        for (uint32_t i = threadIdx.x; i < THREADS0; i += run::THREADS) {
            uint32_t column = i & (width - 1), first = (i >> log) * EIGHT;
            const float *from =
                shared + (first * lanes + column / run::OWN) * run::STRIDE + column % run::OWN;
            float total = 0;
#pragma unroll
            for (int r = 0; r < EIGHT; r++) total += from[r * lanes * run::STRIDE];
            eights[i] = total;
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < width; i += run::THREADS) {
            uint32_t out = tile * width + i;
            float total = 0;
            if (out >= t.out || m0 + m >= M) continue;
            for (uint32_t r = i; r < THREADS0; r += width) total += eights[r];
            if (t.splits > 1)
                t.partials[((size_t)split * M + m0 + m) * t.out + out] = total;
            else
                t.y[(m0 + m) * t.y_stride + out] =
                    finish(t, total * (1.0f / PL_TRELLIS_DIVISOR), out);
        }
    }
}

/* L is looked at where EIGHTS is more than 1, else t.mask. */
template <int K, int L, int EIGHTS, int MT>
static __global__ void __launch_bounds__(THREADS0 / EIGHTS,
                                         EIGHTS > 1 ? (MT > 1 ? 3 : 5) : (MT > 4 ? 1 : 2))
    axis0(const __grid_constant__ tasks all)
{
    typedef run0<K, EIGHTS, MT> own;
    extern __shared__ float4 memory[];
    float *shared = (float *)memory;
    uint32_t which = find_task(all), job = blockIdx.x - all.first[which], m0 = blockIdx.y * MT;
    const task &t = all.t[which];
    uint32_t tile = job % t.tiles, split = job / t.tiles, runs = THREADS0 >> t.log;
    uint32_t lanes = t.along / EIGHTS, run = threadIdx.x * EIGHTS >> t.log;
    size_t first = (size_t)split * t.split;
    uint32_t rows = (uint32_t)min((size_t)t.split, t.rows - first);
    uint32_t padded = (rows + runs - 1) & ~(runs - 1);
    uint32_t eight = tile * t.along + (threadIdx.x & (lanes - 1)) * EIGHTS;
    uint32_t per_block = t.block / EIGHT, eights = t.blocks * per_block;
    if (eight >= eights) eight = eights - EIGHTS; /* computed, but not stored */
    uint32_t b = eight / per_block;
    /* The lowest bit is the last number's. */
    uint32_t bit = (t.block - own::OWN - EIGHT * (eight % per_block)) * K, word = bit / 32;
    size_t begin = first + min(run, rows - 1);
    const uint32_t *base = t.codes + word0<K>(t, begin, b, word);
    int32_t apart[own::WORDS];
#pragma unroll
    for (int i = 0; i < own::WORDS; i++) {
        uint32_t at = word + i < t.block_words ? word + i : word + i - t.block_words;
        apart[i] = (int32_t)(t.codes + word0<K>(t, begin, b, at) - base);
    }
    uint32_t step = t.units ? runs / 16 * UNIT_WORDS * K : runs * (uint32_t)t.row_words;
    uint32_t last = (rows - 1 >= run ? (rows - 1 - run) >> (9 - t.log) : 0) * step, at = 0;
    uint32_t ring[own::DEPTH][own::WORDS];
    float sum[own::OWN][MT] = {};
    /* Beyond the split's end the last row is read again and meets zeros. */
    auto load = [&](int slot) {
#pragma unroll
        for (int i = 0; i < own::WORDS; i++) ring[slot][i] = __ldg(base + (int32_t)at + apart[i]);
        at = min(at + step, last);
    };
    pl_let_next_start();
#pragma unroll
    for (int i = 0; i < own::DEPTH; i++) load(i);
    pl_wait_for_previous();
    load_inputs<MT>(shared, t, first, rows, padded, m0, all.M);
    __syncthreads();
    for (uint32_t r = run; r < padded; r += own::DEPTH * runs) {
#pragma unroll
        for (int i = 0; i < own::DEPTH; i++) {
            uint32_t words[own::WORDS];
            if (r + i * runs >= padded) break;
            memcpy(words, ring[i], sizeof words);
            load(i);
            add0<K, L, EIGHTS, MT>(sum, words, bit % 32, t.mask, shared + (r + i * runs) * MT);
        }
    }
    store0<EIGHTS, MT>(shared, sum, t, tile, split, m0, all.M);
}

/* Splits of axis 0, in their order. */
static __global__ void add_splits(const __grid_constant__ tasks all)
{
    const task &t = all.t[blockIdx.z];
    uint32_t out = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y;
    pl_let_next_start();
    pl_wait_for_previous();
    if (t.splits == 1 || out >= t.out) return;
    const float *from = t.partials + (size_t)m * t.out + out;
    float total = 0;
#pragma unroll 4
    for (uint32_t s = 0; s < t.splits; s++) total += from[(size_t)s * all.M * t.out];
    t.y[m * t.y_stride + out] = finish(t, total * (1.0f / PL_TRELLIS_DIVISOR), out);
}

/* ---- host ------------------------------------------------------------------------------------ */

/* Axis 1: warps along a row, until there are enough of them or nothing is left to share. */
static void plan1(const pl_cuda *d, task *t)
{
    size_t eights = (t->in + EIGHT - 1) / EIGHT, groups = (t->rows + ROWS1 - 1) / ROWS1;
    t->along = 1;
    while (t->along < WARPS1 && groups * t->along < (size_t)d->sms * 16 && eights > WARP * t->along)
        t->along *= 2;
    size_t per_tile = WARPS1 / t->along * ROWS1;
    t->tiles = (uint32_t)((t->rows + per_tile - 1) / per_tile);
    t->splits = 1;
}

/* Axis 0: whether so many thread blocks fill the device although they are of four warps. */
static bool is_wide(const pl_cuda *d, size_t blocks)
{
    return blocks >= 4 * (size_t)d->sms;
}

/* Axis 0: about the time of tiles of so many eights in so many splits, in nanoseconds of an H200
 * and for one row of x: what the busiest multiprocessor issues, and a second launch for splits. */
static double cost0(const pl_cuda *d, const task *t, size_t along, size_t splits)
{
    size_t eights = (t->out + EIGHT - 1) / EIGHT, blocks = (eights + along - 1) / along * splits;
    size_t runs = THREADS0 / along, split = (t->rows + splits - 1) / splits;
    size_t rounds = (blocks + (size_t)d->sms - 1) / (size_t)d->sms;
    double rows = (double)((split + runs - 1) / runs);
    double block = is_wide(d, blocks) ? 120 * rows + 300 : 220 * rows + 700;
    return (double)rounds * block * (along < 16 ? 1.1 : 1.0) +
           (splits > 1 ? 1500 + 20 * (double)splits : 0);
}

static void plan0(const pl_cuda *d, task *t)
{
    size_t eights = (t->out + EIGHT - 1) / EIGHT, best = 1;
    size_t least = (t->rows + SPLIT0 - 1) / SPLIT0, most = t->rows / 128;
    double time = 1e300;
    for (size_t along = WARP; along >= 4; along /= 2)
        for (size_t s = least; s <= (most > least ? most : least) && s < least + 16; s++)
            if (cost0(d, t, along, s) < time) {
                time = cost0(d, t, along, s);
                t->along = (uint32_t)along;
                best = s;
            }
    while (1u << t->log < t->along) t->log++;
    t->tiles = (uint32_t)((eights + t->along - 1) / t->along);
    t->split = (uint32_t)((t->rows + best - 1) / best + 15) / 16 * 16;
    t->splits = (uint32_t)((t->rows + t->split - 1) / t->split);
}

static task describe(const pl_cuda *d, const pl_cuda_product *p)
{
    const pleach_trellis *s = &p->w->shape;
    task t = {};
    t.codes = p->w->codes;
    t.scales = p->w->scales;
    t.x = p->x;
    t.output_scale = p->output_scale;
    t.bias = p->bias;
    t.y = p->y;
    t.x_stride = p->x_stride;
    t.y_stride = p->y_stride;
    t.rows = s->rows;
    t.row_words = s->cols / 32 * s->bits;
    t.in = (uint32_t)p->in;
    t.out = (uint32_t)p->out;
    t.block = s->block;
    t.block_words = s->block / 32 * s->bits;
    t.blocks = (uint32_t)(s->cols / s->block);
    t.mask = (1u << s->state_bits) - 1;
    t.units = p->w->units;
    t.vector = (uintptr_t)p->x % 16 == 0 && p->x_stride % 4 == 0;
    (s->axis ? plan1 : plan0)(d, &t);
    return t;
}

bool pl_cuda_trellis_any_serves(const pl_cuda *d, const pl_cuda_trellis *w, size_t M)
{
    (void)d;
    (void)w;
    (void)M;
    return true;
}

static size_t partial_bytes(const task *t, size_t M)
{
    size_t rows = M < MOST_ROWS ? M : MOST_ROWS;
    return t->splits > 1 ? (t->splits * rows * t->out * sizeof(float) + 255) / 256 * 256 : 0;
}

size_t pl_cuda_trellis_any_scratch(const pl_cuda *d, const pl_cuda_trellis *w, size_t M)
{
    pl_cuda_product p = {};
    p.w = w;
    p.out = w->shape.axis ? w->shape.rows : w->shape.cols;
    p.in = w->shape.axis ? w->shape.cols : w->shape.rows;
    task t = describe(d, &p);
    return partial_bytes(&t, M);
}

typedef void kernel(tasks);

template <int K> static kernel *choose_rows(unsigned axis, unsigned L, unsigned MT, bool wide)
{
    kernel *const one[4] = {axis1<K, 1>, axis1<K, 2>, axis1<K, 4>, axis1<K, 8>};
    kernel *const zero[4] = {axis0<K, 0, 1, 1>, axis0<K, 0, 1, 2>, axis0<K, 0, 1, 4>,
                             axis0<K, 0, 1, 8>};
    kernel *const zero_wide[2][2] = {{axis0<K, 12, 4, 1>, axis0<K, 12, 4, 2>},
                                     {axis0<K, 16, 4, 1>, axis0<K, 16, 4, 2>}};
    unsigned i = MT == 1 ? 0 : MT == 2 ? 1 : MT == 4 ? 2 : 3;
    return axis ? one[i] : wide ? zero_wide[L == 16][i] : zero[i];
}

static kernel *choose(const pleach_trellis *s, unsigned MT, bool wide)
{
    return s->bits == 2   ? choose_rows<2>(s->axis, s->state_bits, MT, wide)
           : s->bits == 3 ? choose_rows<3>(s->axis, s->state_bits, MT, wide)
                          : choose_rows<4>(s->axis, s->state_bits, MT, wide);
}

/* Shared memory of axis 0: the inputs of a split, or all threads' sums for one row of x. */
static size_t shared0(const task *t, unsigned MT, unsigned eights)
{
    size_t runs = THREADS0 / t->along, rows = (t->split + runs - 1) / runs * runs;
    size_t sums = THREADS0 / eights * (EIGHT * eights + 4) + THREADS0;
    return (rows * MT > sums ? rows * MT : sums) * sizeof(float);
}

static void launch(const pl_cuda *d, const tasks &all, const pleach_trellis *s)
{
    unsigned MT = all.M > 4 ? 8 : all.M > 2 ? 4 : all.M;
    dim3 grid(all.first[all.n], (all.M + MT - 1) / MT);
    bool wide = !s->axis && MT <= 2 && is_wide(d, grid.x);
    unsigned eights = wide ? 4 : 1, threads = s->axis ? WARPS1 * WARP : THREADS0 / eights;
    size_t shared = 0, out = 0;
    for (uint32_t i = 0; !s->axis && i < all.n; i++) {
        size_t own = shared0(&all.t[i], MT, eights);
        shared = own > shared ? own : shared;
        if (all.t[i].splits > 1 && all.t[i].out > out) out = all.t[i].out;
    }
    pl_launch(d, choose(s, MT, wide), grid, threads, shared, all);
    if (out)
        pl_launch(d, add_splits, dim3((unsigned)((out + 255) / 256), all.M, all.n), 256, 0, all);
}

static bool same_kernel(const pleach_trellis *a, const pleach_trellis *b)
{
    return a->axis == b->axis && a->bits == b->bits && a->state_bits == b->state_bits;
}

/* Rows [m, m + M) of those of n products that go together with the first of them that is left. */
static void run_some(const pl_cuda *d, const pl_cuda_product *p, size_t n, bool *done, size_t m,
                     size_t M, uint8_t *scratch)
{
    const pleach_trellis *s = NULL;
    tasks all = {};
    all.M = (uint32_t)M;
    for (size_t i = 0; i < n && all.n < MOST_TASKS; i++) {
        const pleach_trellis *own = &p[i].w->shape;
        if (done[i] || (s && !same_kernel(own, s))) continue;
        s = own;
        done[i] = true;
        task t = describe(d, &p[i]);
        t.x += m * t.x_stride;
        t.y += m * t.y_stride;
        t.partials = (float *)scratch;
        scratch += partial_bytes(&t, M);
        all.first[all.n + 1] = all.first[all.n] + t.tiles * t.splits;
        all.t[all.n++] = t;
    }
    launch(d, all, s);
}

void pl_cuda_trellis_any_run_all(const pl_cuda *d, const pl_cuda_product *p, size_t n,
                                 void *scratch)
{
    for (size_t m = 0; n && m < p[0].M; m += MOST_ROWS) {
        size_t M = p[0].M - m < MOST_ROWS ? p[0].M - m : MOST_ROWS;
        for (size_t i = 0; i < n; i += 8) {
            size_t some = n - i < 8 ? n - i : 8;
            bool done[8] = {};
            for (size_t j = 0; j < some; j++)
                if (!done[j]) run_some(d, p + i, some, done, m, M, (uint8_t *)scratch);
        }
    }
}

void pl_cuda_trellis_any_run(const pl_cuda *d, const pl_cuda_product *p, void *scratch)
{
    pl_cuda_trellis_any_run_all(d, p, 1, scratch);
}
