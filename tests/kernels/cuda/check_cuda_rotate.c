/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotations on a device: the bits of the portable kernels. */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "check_cuda.h"
#include "cuda/rotate.h"

static void rotate_rows(const pl_kernels *c, float *x, const float *signs, size_t n, size_t M,
                        size_t block, bool forward)
{
    for (size_t m = 0; m < M; m++) (forward ? c->rotate : c->unrotate)(x + m * n, signs, n, block);
}

static void check_one(check *t, const pl_kernels *c, pl_cuda *d, bool forward)
{
    for (int round = 0; check_round(t, round, 60); round++) {
        check_release(t);
        check_cuda_release(t, d);
        size_t block = (size_t)1 << check_below(t, 15), most = PL_MAX(20000 / block, (size_t)1);
        size_t n = block * (1 + check_below(t, (uint32_t)most)), M = 1 + check_below(t, 4);
        float *x = check_buffer(t, 4 * n * M, 4), *got = check_buffer(t, 4 * n * M, 4);
        float *signs = check_buffer(t, 4 * n, 4), *scale = check_buffer(t, 4 * n, 4);
        float *bias = check_buffer(t, 4 * n, 4);
        for (size_t m = 0; m < M; m++) check_fill_f32(t, x + m * n, n);
        for (size_t i = 0; i < n; i++) {
            signs[i] = check_below(t, 2) ? 1.0f : -1.0f;
            scale[i] = (float)check_normal(t);
            bias[i] = (float)check_normal(t);
        }
        bool in_place = !forward || check_below(t, 2), finish = !forward && check_below(t, 2);
        float *dx = check_cuda_copy(t, d, x, 4 * n * M);
        float *dy = in_place ? dx : check_cuda_buffer(t, d, 4 * n * M);
        pl_cuda_rotation r = {round % 4 ? check_cuda_copy(t, d, signs, 4 * n) : NULL, block};
        rotate_rows(c, x, r.signs ? signs : NULL, n, M, block, forward);
        for (size_t i = 0; finish && i < n * M; i++) {
            float scaled = x[i] * scale[i % n];
            x[i] = scaled + bias[i % n];
        }
        if (forward)
            pl_cuda_rotate(d, dy, dx, n, M, &r);
        else
            pl_cuda_unrotate(d, dy, n, M, &r, finish ? check_cuda_copy(t, d, scale, 4 * n) : NULL,
                             finish ? check_cuda_copy(t, d, bias, 4 * n) : NULL);
        if (check_cuda_fetch(t, d, got, dy, 4 * n * M) && !check_same(t, got, x, 4 * n * M))
            check_fail(t, "n %zu, block %zu, M %zu", n, block, M);
    }
}

typedef struct problem {
    pl_cuda *d;
    float *x;
    pl_cuda_rotation r;
    size_t n, M;
} problem;

static void queue(void *user, int i)
{
    const problem *p = user;
    (void)i;
    pl_cuda_rotate(p->d, p->x, p->x, p->n, p->M, &p->r);
}

static void bench(check *t, pl_cuda *d, size_t n, size_t M, size_t block)
{
    problem p = {.d = d, .n = n, .M = M, .r.block = block};
    char label[64];
    snprintf(label, sizeof label, "GB/s %zu x %zu, block %zu", M, n, block);
    check_cuda_release(t, d);
    p.x = check_cuda_buffer(t, d, 4 * n * M);
    p.r.signs = check_cuda_buffer(t, d, 4 * n);
    check_cuda_bench(t, d, queue, &p, 20, 8e-9 * (double)(n * M), label);
}

void check_cuda_rotate(check *t, const pl_kernels *c, pl_cuda *d)
{
    if (check_begin(t, true, "rotate")) {
        check_one(t, c, d, true);
        bench(t, d, 5120, 1, 256);
        bench(t, d, 4096, 1, 4096);
        bench(t, d, 5120, 512, 256);
        bench(t, d, 5120, 2048, 1024);
        check_cuda_release(t, d);
        check_end(t);
    }
    if (check_begin(t, true, "unrotate")) {
        check_one(t, c, d, false);
        check_cuda_release(t, d);
        check_end(t);
    }
}
