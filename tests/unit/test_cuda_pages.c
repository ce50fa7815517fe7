/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages of the attention cache between the host's order and a device's: a permutation of bits, and
 * none where no tensor core reads codes as they are stored. Needs no device, but a build with CUDA. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#ifdef PLEACH_CUDA
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/random.h"
#include "cuda/attention.h"
#include "cuda/attention_layout.h"

enum { HEADS = 3 };

static size_t ones(const uint8_t *p, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) n += (size_t)__builtin_popcount(p[i]);
    return n;
}

static void check_type(pl_kv type, uint32_t dim, bool tiled, uint64_t *state)
{
    size_t bytes = pl_cuda_kv_page_bytes(type, HEADS, dim);
    uint8_t *host = malloc(3 * bytes), *device = host + bytes, *back = device + bytes;
    assert_non_null(host);
    for (size_t i = 0; i < bytes; i++) host[i] = (uint8_t)(pl_random_next(state) >> 40);
    pl_cuda_kv_from_host(type, HEADS, dim, device, host);
    pl_cuda_kv_to_host(type, HEADS, dim, back, device);
    assert_memory_equal(back, host, bytes);
    assert_int_equal(ones(device, bytes), ones(host, bytes));
    assert_int_equal(memcmp(device, host, bytes) != 0, tiled);
    free(host);
}

static void test_round_trip(void **unused)
{
    static const uint32_t dims[] = {64, 80, 96, 112, 128, 192, 256, 512};
    static const uint8_t keys[] = {2, 4, 5, 8}, values[] = {2, 3, 4, 5, 8};
    uint64_t state = 1;
    (void)unused;
    for (size_t d = 0; d < PL_COUNT(dims); d++) {
        check_type(PL_KV_F32, dims[d], false, &state);
        check_type(PL_KV_BF16, dims[d], false, &state);
        for (size_t k = 0; k < PL_COUNT(keys); k++)
            for (size_t v = 0; v < PL_COUNT(values); v++)
                check_type(PL_KV_PACKED(keys[k], values[v]), dims[d],
                           pl_cuda_kv_tiled(keys[k], values[v], dims[d]), &state);
    }
}

static void test_refusals(void **unused)
{
    pleach_error err;
    (void)unused;
    assert_int_equal(pl_cuda_attention_check(PL_KV_BF16, 8, 2, 512, &err), PLEACH_OK);
    assert_int_equal(pl_cuda_attention_check(PL_KV_BF16, 8, 2, 513, &err), PLEACH_ERR_SHAPE);
    assert_string_equal(err.message, "head size 513: attention on a device takes up to 512");
    assert_int_equal(pl_cuda_attention_check(PL_KV_BF16, 8, 3, 64, &err), PLEACH_ERR_SHAPE);
    assert_string_equal(err.message, "8 heads over 3 key heads: expected a multiple");
    assert_int_equal(pl_cuda_attention_check(PL_KV_PACKED(8, 3), 8, 2, 40, &err), PLEACH_ERR_SHAPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    return 77;
}
#endif
