/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/memory.h"
#include "kv/cache.h"

enum { LAYERS = 2, HEADS = 3, D = 8, CAPACITY = 200 };

static float number(uint32_t layer, int value, size_t position, size_t head, size_t d)
{
    return (float)(((layer * 2 + (uint32_t)value) * 1000 + position) * 100 + head * 10 + d) * 0.37f;
}

static void append(pl_cache *c, size_t n)
{
    float k[HEADS * D], v[HEADS * D];
    size_t first = pl_cache_length(c);
    assert_int_equal(pl_cache_reserve(c, n, NULL), PLEACH_OK);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (size_t p = first; p < first + n; p++) {
            for (size_t i = 0; i < HEADS * D; i++) {
                k[i] = number(layer, 0, p, i / D, i % D);
                v[i] = number(layer, 1, p, i / D, i % D);
            }
            pl_cache_put(c, layer, p, 1, k, v);
        }
    pl_cache_advance(c, n);
}

static void check_range(const pl_cache *c, pleach_kv type, size_t first, size_t n)
{
    float scratch[CAPACITY * D];
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t head = 0; head < HEADS; head++)
            for (int value = 0; value < 2; value++) {
                const float *got = value ? pl_cache_values(c, layer, head, first, n, scratch)
                                         : pl_cache_keys(c, layer, head, first, n, scratch);
                for (size_t i = 0; i < n * D; i++) {
                    float want = number(layer, value, first + i / D, head, i % D);
                    if (type == PLEACH_KV_BF16) want = pl_bf16_to_f32(pl_f32_to_bf16(want));
                    assert_true(got[i] == want);
                }
            }
}

static void what_went_in_comes_out(void **state)
{
    (void)state;
    for (int type = 0; type < 2; type++) {
        pl_cache *c;
        assert_int_equal(pl_cache_open(LAYERS, HEADS, D, CAPACITY, (pleach_kv)type, &c, NULL),
                         PLEACH_OK);
        append(c, 1);
        append(c, 70);
        append(c, 100);
        assert_int_equal(pl_cache_length(c), 171);
        check_range(c, (pleach_kv)type, 0, 64);
        check_range(c, (pleach_kv)type, 3, 5);
        check_range(c, (pleach_kv)type, 60, 10); /* across pages */
        check_range(c, (pleach_kv)type, 0, 171);
        pl_cache_truncate(c, 65);
        append(c, 3);
        assert_int_equal(pl_cache_length(c), 68);
        check_range(c, (pleach_kv)type, 0, 68);
        assert_int_equal(pl_cache_token_bytes(c), LAYERS * HEADS * D * 2 * (type ? 2 : 4));
        pl_cache_close(c);
    }
}

static void capacity_is_the_limit(void **state)
{
    (void)state;
    pl_cache *c;
    pleach_error err;
    assert_int_equal(pl_cache_open(LAYERS, HEADS, D, CAPACITY, PLEACH_KV_F32, &c, NULL), PLEACH_OK);
    append(c, 150);
    assert_int_equal(pl_cache_reserve(c, 51, &err), PLEACH_ERR_LIMIT);
    assert_int_equal(pl_cache_reserve(c, SIZE_MAX, &err), PLEACH_ERR_LIMIT);
    assert_int_equal(pl_cache_length(c), 150);
    append(c, 50);
    assert_int_equal(pl_cache_reserve(c, 1, &err), PLEACH_ERR_LIMIT);
    assert_int_equal(pl_cache_reserve(c, 0, &err), PLEACH_OK);
    pl_cache_close(c);
    assert_int_equal(pl_cache_open(UINT32_MAX, UINT32_MAX, UINT32_MAX, 1, PLEACH_KV_F32, &c, &err),
                     PLEACH_ERR_SHAPE);
    pl_cache_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_went_in_comes_out),
        cmocka_unit_test(capacity_is_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
