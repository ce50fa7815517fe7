/* SPDX-License-Identifier: Apache-2.0
 *
 * Trellis weights decoded on the device: the bits of the CPU's expand and decode contracts, for
 * every shape, axis, run of rows, and for rows picked one by one. */
#include "cuda/trellis_expand.h"

#include <string.h>

#include "base/compiler.h"
#include "check_cuda.h"

typedef struct matrix {
    pleach_trellis shape;
    uint32_t *codes;
    uint16_t *scales;
    pl_cuda_trellis device;
} matrix;

static bool make_matrix(check *t, pl_cuda *d, unsigned k, unsigned L, unsigned axis, matrix *w)
{
    static const uint32_t blocks[] = {32, 64, 96, 128, 160, 192, 224, 288, 512, 1024};
    pleach_error err;
    uint32_t T = check_below(t, 2) ? 256 : blocks[check_below(t, PL_COUNT(blocks))];
    w->shape = (pleach_trellis){.bits = k,
                                .state_bits = L,
                                .block = T,
                                .axis = axis,
                                .rows = 1 + check_below(t, 100),
                                .cols = (uint64_t)T * (1 + check_below(t, 5))};
    if (k == 3 && T == 256 && !axis && w->shape.cols % 512 == 0) w->shape.interleaved = 1;
    w->codes = check_buffer(t, 4 * pleach_trellis_words(&w->shape), 4);
    w->scales = check_buffer(t, 2 * w->shape.rows, 2);
    check_fill(t, w->codes, 4 * pleach_trellis_words(&w->shape));
    for (size_t r = 0; r < w->shape.rows; r++) /* any finite number */
        w->scales[r] = (uint16_t)((check_below(t, 2) << 15) | check_below(t, 0x7c00));
    if (pl_cuda_trellis_open(d, &w->shape, w->codes, w->scales, &w->device, &err) == PLEACH_OK)
        return true;
    check_fail(t, "%s", err.message);
    return false;
}

static void check_rows_of(check *t, pl_cuda *d, const matrix *w, bool bf16)
{
    size_t size = bf16 ? 2 : 4, cols = w->shape.cols, rows = w->shape.rows;
    size_t first = check_below(t, (uint32_t)rows), n = 1 + check_below(t, (uint32_t)(rows - first));
    size_t stride = cols + 8 * check_below(t, 3);
    uint8_t *want = check_buffer(t, rows * cols * size, 16), *got, *expected;
    void *dst = check_cuda_buffer(t, d, n * stride * size);
    got = check_buffer(t, n * stride * size, 16);
    expected = check_buffer(t, n * stride * size, 16);
    pleach_status status =
        bf16 ? pleach_trellis_expand(&w->shape, (uint16_t *)(void *)want, w->codes, w->scales)
             : pleach_trellis_decode(&w->shape, (float *)(void *)want, w->codes, w->scales);
    if (status != PLEACH_OK) check_fail(t, "no legal shape");
    if (bf16)
        pl_cuda_trellis_expand(d, &w->device, first, n, dst, stride);
    else
        pl_cuda_trellis_decode(d, &w->device, first, n, dst, stride);
    if (!check_cuda_fetch(t, d, got, dst, n * stride * size)) return;
    memcpy(expected, got, n * stride * size); /* what lies between rows: the guard byte */
    for (size_t i = 0; i < n; i++) {
        memcpy(expected + i * stride * size, want + (first + i) * cols * size, cols * size);
        for (size_t j = cols * size; j < stride * size; j++)
            if (got[i * stride * size + j] != 0xa5) check_fail(t, "row %zu was overrun", i);
    }
    check_same(t, got, expected, n * stride * size);
}

static void check_lookup(check *t, pl_cuda *d, const matrix *w)
{
    bool axis = w->shape.axis == 1;
    size_t cols = w->shape.cols, rows = w->shape.rows, in = axis ? cols - check_below(t, 32) : rows;
    size_t n = 1 + check_below(t, 9);
    int32_t *ids = check_buffer(t, 4 * n, 4);
    float *all = check_buffer(t, 4 * rows * cols, 4), *want = check_buffer(t, 4 * n * in, 4);
    float *got = check_buffer(t, 4 * n * in, 4);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)check_below(t, (uint32_t)(axis ? rows : cols));
    if (pleach_trellis_decode(&w->shape, all, w->codes, w->scales) != PLEACH_OK)
        check_fail(t, "no legal shape");
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < in; j++)
            want[i * in + j] = all[axis ? (size_t)ids[i] * cols + j : j * cols + (size_t)ids[i]];
    float *dst = check_cuda_buffer(t, d, 4 * n * in);
    pl_cuda_trellis_rows(d, &w->device, check_cuda_copy(t, d, ids, 4 * n), n, dst, in);
    if (check_cuda_fetch(t, d, got, dst, 4 * n * in)) check_same(t, got, want, 4 * n * in);
}

/* 17408 x 5120: queue writes it all. */
typedef struct timed {
    pl_cuda *d;
    pl_cuda_trellis w[4];
    void *dst;
} timed;

static void queue_expand(void *user, int i)
{
    timed *b = user;
    const pl_cuda_trellis *w = &b->w[i % 4];
    pl_cuda_trellis_expand(b->d, w, 0, w->shape.rows, b->dst, w->shape.cols);
}

static void bench(check *t, pl_cuda *d, unsigned k, unsigned L, unsigned axis)
{
    timed b = {.d = d};
    pleach_trellis s = {.bits = k, .state_bits = L, .block = 256, .axis = axis, .rows = 17408,
                        .cols = 5120};
    if (!check_benches(t)) return;
    for (int i = 0; i < 4; i++)
        b.w[i] = (pl_cuda_trellis){.shape = s,
                                   .units = true,
                                   .codes = check_cuda_buffer(t, d, 4 * pleach_trellis_words(&s)),
                                   .scales = check_cuda_buffer(t, d, 4 * s.rows)};
    b.dst = check_cuda_buffer(t, d, 2 * s.rows * s.cols);
    check_cuda_bench(t, d, queue_expand, &b, 8, 1e-9 * (double)(s.rows * s.cols), "Gw/s");
    check_cuda_release(t, d);
}

void check_cuda_expand(check *t, const pl_kernels *c, pl_cuda *d)
{
    (void)c;
    for (unsigned axis = 0; axis < 2; axis++)
        for (unsigned k = 2; k <= 4; k++)
            for (unsigned L = 12; L <= 16; L += 4) {
                if (!check_begin(t, true, "cuda_expand_axis%u_k%u_l%u", axis, k, L)) continue;
                for (int round = 0; check_round(t, round, 12); round++) {
                    matrix w;
                    check_release(t);
                    if (!make_matrix(t, d, k, L, axis, &w)) break;
                    check_rows_of(t, d, &w, true);
                    check_rows_of(t, d, &w, false);
                    check_lookup(t, d, &w);
                    pl_cuda_trellis_close(&w.device);
                    check_cuda_release(t, d);
                }
                bench(t, d, k, L, axis);
                check_end(t);
            }
}
