/* SPDX-License-Identifier: Apache-2.0 */
#include "trellis_blas.h"

#include <cuda_fp16.h>

#include "blas.h"
#include "codec/trellis.h"
#include "launch.cuh"
#include "trellis_eight.cuh"

enum {
    LIMBS = 2,
    PART = 256,          /* rows of x that are multiplied together */
    PIECE = 64 << 20,    /* bytes of codes that are worked out together */
    MOST_ROWS = 32768,   /* of a launch: the grid's second dimension */
    INPUT_THREADS = 256, /* of a row of x */
    THREADS = 256
};

/* ---- codes ----------------------------------------------------------------------------------- */

/* What is expanded: eights [first_eight, first_eight + eights) of stored rows from first_row on. */
typedef struct expand_task {
    __half *dst; /* [stored rows][8 eights] */
    const uint32_t *codes;
    size_t rows, first_row, row_words; /* rows: of the matrix */
    uint32_t block, blocks, mask, first_eight, eights;
    bool units, axis;
} expand_task;

template <int K>
static __device__ __forceinline__ uint32_t word_of(const expand_task &t, size_t row, uint32_t b,
                                                   uint32_t word)
{
    size_t at = !t.units ? row * t.row_words + b * (t.block / 32 * K) + word
                : t.axis ? pl_unit_word1<K>(t.blocks, row, b, word)
                         : pl_unit_word0<K>(t.rows, row, b, word);
    return __ldg(t.codes + at);
}

template <int K> static __global__ void expand_codes(const expand_task t)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, per_block = t.block / PL_EIGHT;
    uint32_t eight = t.first_eight + i, b = eight / per_block;
    size_t row = t.first_row + blockIdx.y;
    pl_let_next_start();
    pl_wait_for_previous();
    if (i >= t.eights) return;
    pl_eight_place at = pl_eight_find<K>(t.block, t.block / 32 * K, eight % per_block);
    float y[PL_EIGHT];
    pl_eight_decode<K>(y, word_of<K>(t, row, b, at.low), word_of<K>(t, row, b, at.high), at.shift,
                       t.mask);
    alignas(16) __half2 to[4];
#pragma unroll
    for (int j = 0; j < 4; j++) to[j] = __floats2half2_rn(y[2 * j], y[2 * j + 1]);
    ((uint4 *)t.dst)[(size_t)blockIdx.y * t.eights + i] = *(uint4 *)to;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ float block_max(float x)
{
    __shared__ float most[32];
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
    if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = x;
    __syncthreads();
    for (unsigned i = 0; i < blockDim.x / 32; i++) x = fmaxf(x, most[i]);
    return x;
}

/* limbs [parts of x][LIMBS][rows of the part][stride] of row blockIdx.x, and what undoes its power
 * of two; NaN in both for a row that is not finite. */
static __global__ void split_inputs(__half *limbs, float *undo, const float *x, size_t x_stride,
                                    const float *scales, uint32_t in, uint32_t stride, uint32_t M)
{
    uint32_t m = blockIdx.x, part = m / PART, rows = min(M - part * PART, PART);
    const float *row = x + m * x_stride;
    float most = 0;
    bool finite = true;
    pl_let_next_start();
    pl_wait_for_previous();
    for (uint32_t i = threadIdx.x; i < in; i += blockDim.x) {
        float a = scales ? row[i] * scales[i] : row[i];
        finite &= isfinite(a);
        most = fmaxf(most, fabsf(a));
    }
    most = block_max(__syncthreads_and(finite) ? most : 0.0f);
    /* most is in [2^(e - 1), 2^e), or 0 */
    int e = most > 0 ? ilogbf(most) + 1 : 0, up = min(15 - e, 126);
    finite = __syncthreads_and(finite);
    float by = ldexpf(1.0f, up), nan = __int_as_float(0x7fffffff);
    if (threadIdx.x == 0) undo[m] = finite ? ldexpf(1.0f, -up) : nan;
    __half *to = limbs + ((size_t)part * PART * LIMBS + m - part * PART) * stride;
    for (uint32_t i = threadIdx.x; i < stride; i += blockDim.x) {
        float a = i < in && finite ? (scales ? row[i] * scales[i] : row[i]) * by : 0.0f;
        __half high = __float2half_rn(a);
        to[i] = high;
        to[(size_t)rows * stride + i] = __float2half_rn(a - __half2float(high));
    }
}

/* ---- outputs --------------------------------------------------------------------------------- */

typedef struct finish_task {
    float *y;
    size_t y_stride;
    const float *parts, *undo, *scales, *output_scale, *bias;
    uint32_t out;
} finish_task;

static __global__ void finish(finish_task t)
{
    uint32_t o = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, M = gridDim.y;
    pl_let_next_start();
    pl_wait_for_previous();
    if (o >= t.out) return;
    float sum = t.parts[((size_t)M + m) * t.out + o] + t.parts[(size_t)m * t.out + o];
    float unit = 1.0f / PL_TRELLIS_DIVISOR;
    sum = sum * t.undo[m] * (t.scales ? t.scales[o] * unit : unit);
    if (t.output_scale) sum = __fmul_rn(sum, t.output_scale[o]);
    if (t.bias) sum = __fadd_rn(sum, t.bias[o]);
    t.y[m * t.y_stride + o] = sum;
}

/* ---- host ------------------------------------------------------------------------------------ */

pleach_status pl_cuda_trellis_blas_prepare(pl_cuda *d, pleach_error *err)
{
    return pl_cuda_blas_open(d, err);
}

bool pl_cuda_trellis_blas_serves(const pl_cuda *d, const pl_cuda_trellis *w, size_t M)
{
    return d->blas && M >= PL_CUDA_TRELLIS_BLAS_ROWS && w->shape.rows >= 32;
}

/* Scratch: limbs of all rows of x, their undo, codes of a piece, sums of a piece for a part. */
typedef struct layout {
    size_t stride, piece; /* of limbs; outputs of a piece, a multiple of 8 on axis 0 */
    size_t undo, codes, sums, bytes;
} layout;

static size_t up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static layout plan(const pleach_trellis *s, size_t M)
{
    layout l;
    size_t in = s->axis ? s->cols : s->rows, out = s->axis ? s->rows : s->cols;
    size_t most = PIECE / (in * sizeof(__half)) / 8 * 8;
    l.stride = (in + 7) / 8 * 8;
    l.piece = most < 8 ? 8 : most;
    if (s->axis && l.piece > MOST_ROWS) l.piece = MOST_ROWS;
    if (l.piece > out) l.piece = out;
    l.undo = up(LIMBS * M * l.stride * sizeof(__half));
    l.codes = l.undo + up(M * sizeof(float));
    l.sums = l.codes + up(l.piece * in * sizeof(__half));
    l.bytes = l.sums + LIMBS * (M < PART ? M : PART) * l.piece * sizeof(float);
    return l;
}

size_t pl_cuda_trellis_blas_scratch(const pl_cuda *d, const pl_cuda_trellis *w, size_t M)
{
    (void)d;
    return plan(&w->shape, M).bytes;
}

/* n outputs from `first` on: [n][cols] of axis 1, [rows][n] of axis 0. */
static void expand(const pl_cuda *d, const pl_cuda_trellis *w, size_t first, size_t n, __half *dst)
{
    const pleach_trellis *s = &w->shape;
    void (*const kernels[])(expand_task) = {expand_codes<2>, expand_codes<3>, expand_codes<4>};
    size_t rows = s->axis ? n : s->rows;
    expand_task t = {dst,
                     w->codes,
                     s->rows,
                     s->axis ? first : 0,
                     s->cols / 32 * s->bits,
                     s->block,
                     (uint32_t)(s->cols / s->block),
                     (1u << s->state_bits) - 1,
                     s->axis ? 0 : (uint32_t)(first / PL_EIGHT),
                     (uint32_t)((s->axis ? s->cols : n) / PL_EIGHT),
                     w->units,
                     s->axis != 0};
    for (size_t r = 0; r < rows; r += MOST_ROWS) {
        unsigned some = (unsigned)(rows - r < MOST_ROWS ? rows - r : MOST_ROWS);
        pl_launch(d, kernels[s->bits - 2], dim3((t.eights + THREADS - 1) / THREADS, some), THREADS,
                  0, t);
        t.dst += (size_t)some * t.eights * PL_EIGHT;
        t.first_row += some;
    }
}

void pl_cuda_trellis_blas_run(const pl_cuda *d, const pl_cuda_product *p, void *scratch)
{
    const pleach_trellis *s = &p->w->shape;
    layout l = plan(s, p->M);
    uint8_t *base = (uint8_t *)scratch;
    __half *limbs = (__half *)base, *codes = (__half *)(base + l.codes);
    float *undo = (float *)(base + l.undo), *sums = (float *)(base + l.sums);
    size_t all = s->axis ? s->rows : s->cols, in = s->axis ? s->cols : s->rows;
    pl_launch(d, split_inputs, dim3((unsigned)p->M), INPUT_THREADS, 0, limbs, undo, p->x,
              p->x_stride, s->axis ? (const float *)NULL : p->w->scales, (uint32_t)p->in,
              (uint32_t)l.stride, (uint32_t)p->M);
    for (size_t first = 0; first < p->out; first += l.piece) {
        size_t n = all - first < l.piece ? all - first : l.piece;
        size_t some = p->out - first < n ? p->out - first : n; /* without padding */
        expand(d, p->w, first, n, codes);
        for (size_t m = 0; m < p->M; m += PART) {
            size_t M = p->M - m < PART ? p->M - m : PART;
            pl_cuda_blas_codes(d, !s->axis, codes, s->axis ? in : n, limbs + LIMBS * m * l.stride,
                               l.stride, some, LIMBS * M, in, sums);
            finish_task t = {p->y + m * p->y_stride + first,
                             p->y_stride,
                             sums,
                             undo + m,
                             s->axis ? p->w->scales + first : NULL,
                             p->output_scale ? p->output_scale + first : NULL,
                             p->bias ? p->bias + first : NULL,
                             (uint32_t)some};
            pl_launch(d, finish, dim3((unsigned)((some + THREADS - 1) / THREADS), (unsigned)M),
                      THREADS, 0, t);
        }
    }
}
