/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of a device: copies both ways, and a refusal that says what would fit. */
#include <string.h>

#include "check_cuda.h"

static void check_copies(check *t, pl_cuda *d)
{
    if (!check_begin(t, true, "device_copies")) return;
    for (int round = 0; check_round(t, round, 8); round++) {
        check_release(t);
        check_cuda_release(t, d);
        size_t n = 1 + check_below(t, 1 << 20);
        uint8_t *data = check_buffer(t, n, 1), *back = check_buffer(t, n, 1);
        check_cuda_fetch(t, d, back, check_cuda_copy(t, d, data, n), n);
        check_same(t, back, data, n);
    }
    check_cuda_release(t, d);
    check_end(t);
}

static void check_refusal(check *t, pl_cuda *d)
{
    pleach_error err;
    void *p;
    if (!check_begin(t, true, "device_memory")) return;
    if (pl_cuda_alloc(d, &p, d->memory + 1, "everything", &err) != PLEACH_ERR_MEMORY || p)
        check_fail(t, "more than all memory was not refused");
    else if (!strstr(err.message, "everything: needs ") || !strstr(err.message, " are free"))
        check_fail(t, "unexpected words: %s", err.message);
    if (pl_cuda_sync(d, &err) != PLEACH_OK) check_fail(t, "afterwards: %s", err.message);
    check_end(t);
}

void check_cuda_device(check *t, const pl_kernels *c, pl_cuda *d)
{
    (void)c;
    check_copies(t, d);
    check_refusal(t, d);
}
