/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotation kernels: the same bits at every level, and the portable one against the transform's
 * definition in double precision. */
#include "check.h"

#include <math.h>
#include <string.h>

enum { MAX_BLOCK = 2048 };

/* Entry (i, j) of the Sylvester matrix is the parity of i & j. */
static void against_definition(check *t, const float *got, const float *in, const float *signs,
                               size_t block, bool forward)
{
    static double want[MAX_BLOCK], bound[MAX_BLOCK];
    for (size_t i = 0; i < block; i++) {
        double sum = 0, size = 0;
        for (size_t j = 0; j < block; j++) {
            double x = in[j] * (forward && signs ? signs[j] : 1.0);
            sum += __builtin_parityll(i & j) ? -x : x;
            size += fabs(x);
        }
        want[i] = sum / sqrt((double)block) * (!forward && signs ? signs[i] : 1.0);
        bound[i] = 1e-6 * size / sqrt((double)block) + 1e-44;
    }
    check_close(t, got, want, bound, block);
}

static void check_one(check *t, pl_rotate_fn *ref, pl_rotate_fn *fn, bool forward)
{
    for (int round = 0; check_round(t, round, 200); round++) {
        size_t block = (size_t)1 << check_below(t, 12), n = block * check_below(t, 4);
        check_release(t);
        float *in = check_buffer(t, 4 * n, 4), *signs = check_buffer(t, 4 * n, 4);
        float *want = check_buffer(t, 4 * n, 4), *got = check_buffer(t, 4 * n, 4);
        check_fill_f32(t, in, n);
        for (size_t i = 0; i < n; i++) signs[i] = check_below(t, 2) ? 1.0f : -1.0f;
        if (round % 4 == 0) signs = NULL;
        memcpy(want, in, 4 * n);
        memcpy(got, in, 4 * n);
        ref(want, signs, n, block);
        fn(got, signs, n, block);
        check_same(t, got, want, 4 * n);
        if (check_is_reference(t) && n && block <= 256)
            against_definition(t, got, in, signs, block, forward);
    }
    static float x[4096], signs[4096];
    for (size_t i = 0; i < 4096; i++) signs[i] = 1;
    check_bench(t, 4096e-6, "M/s, block 256") fn(x, signs, 4096, 256);
    check_end(t);
}

void check_rotate(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    if (check_begin(t, isa->rotate != c->rotate, "rotate"))
        check_one(t, c->rotate, isa->rotate, true);
    if (check_begin(t, isa->unrotate != c->unrotate, "unrotate"))
        check_one(t, c->unrotate, isa->unrotate, false);
}
