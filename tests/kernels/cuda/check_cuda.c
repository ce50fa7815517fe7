/* SPDX-License-Identifier: Apache-2.0 */
#include "check_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 4096, BUFFERS = 96, GUARD_BYTE = 0xa5 };

static struct {
    uint8_t *base;
    size_t bytes;
} buffers[BUFFERS];
static int n_buffers;

static void must(pleach_status status, const pleach_error *err)
{
    if (status == PLEACH_OK) return;
    fprintf(stderr, "check-kernels: %s\n", err->message);
    exit(1);
}

/* The end of the second guard is what fills up to 256 bytes: a byte too many is noticed. */
void *check_cuda_buffer(check *t, pl_cuda *d, size_t bytes)
{
    pleach_error err;
    void *base;
    (void)t;
    if (n_buffers == BUFFERS) {
        fprintf(stderr, "check-kernels: more than %d device buffers\n", BUFFERS);
        abort();
    }
    must(pl_cuda_alloc(d, &base, bytes + 2 * GUARD, "a test's buffer", &err), &err);
    must(pl_cuda_check(cudaMemsetAsync(base, GUARD_BYTE, bytes + 2 * GUARD, d->stream), "filling",
                       &err),
         &err);
    buffers[n_buffers].base = base;
    buffers[n_buffers++].bytes = bytes;
    return (uint8_t *)base + GUARD;
}

void *check_cuda_copy(check *t, pl_cuda *d, const void *data, size_t bytes)
{
    pleach_error err;
    void *p = check_cuda_buffer(t, d, bytes);
    must(pl_cuda_upload(d, p, data, bytes, &err), &err);
    return p;
}

bool check_cuda_fetch(check *t, pl_cuda *d, void *dst, const void *src, size_t bytes)
{
    pleach_error err;
    if (pl_cuda_download(d, dst, src, bytes, &err) != PLEACH_OK) check_fail(t, "%s", err.message);
    return check_good(t);
}

static void check_guard(check *t, pl_cuda *d, int i, size_t at, long name)
{
    uint8_t guard[GUARD];
    if (!check_cuda_fetch(t, d, guard, buffers[i].base + at, GUARD)) return;
    for (int j = 0; j < GUARD; j++)
        if (guard[j] != GUARD_BYTE) {
            check_fail(t, "device buffer %d of %zu bytes: byte %ld outside it was overwritten", i,
                       buffers[i].bytes, name + j);
            return;
        }
}

void check_cuda_release(check *t, pl_cuda *d)
{
    for (int i = 0; i < n_buffers; i++) {
        check_guard(t, d, i, 0, -GUARD);
        check_guard(t, d, i, GUARD + buffers[i].bytes, (long)buffers[i].bytes);
        pl_cuda_free(buffers[i].base);
    }
    n_buffers = 0;
}

void check_cuda_bench(check *t, pl_cuda *d, void (*queue)(void *user, int i), void *user, int calls,
                      double units, const char *label)
{
    pleach_error err;
    double seconds;
    if (!check_benching(t)) return;
    if (pl_cuda_time(d, queue, user, calls, &seconds, &err) != PLEACH_OK)
        check_fail(t, "%s", err.message);
    else if (units > 0)
        check_note(t, "%8.2f us %9.2f %s", 1e6 * seconds, units / seconds, label);
    else
        check_note(t, "%8.2f us", 1e6 * seconds);
}

static check_cuda_fn *const families[] = {
    check_cuda_device,
    check_cuda_trellis,
    check_cuda_rotate,
    check_cuda_vector,
    check_cuda_any,
    check_cuda_dense,
    check_cuda_affine,
    check_cuda_linear,
    check_cuda_viterbi,
    check_cuda_coder,
    check_cuda_products,
    check_cuda_limbs,
    check_cuda_turboquant,
    check_cuda_attention,
    check_cuda_expand,
    check_cuda_half,
};

void check_cuda(check *t, const pl_kernels *c, pl_cuda *d)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) families[i](t, c, d);
}
