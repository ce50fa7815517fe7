/* SPDX-License-Identifier: Apache-2.0
 *
 * One multiplication for the expand contract: all 65536 fp16 scales by all 1021 values of y. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "codec/trellis.h"
#include "kernels/expand_factor.h"

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* How many y fail: another bf16 number than the contract's, or a product half-way between two. */
static int failures(float scale)
{
    float factor = pl_expand_factor(scale);
    int n = 0;
    for (int y = -510; y <= 510; y++) {
        uint32_t product = bits_of((float)y * factor);
        uint16_t want = pl_f32_to_bf16((float)y / PL_TRELLIS_DIVISOR * scale);
        n += (product & 0xffff) == 0x8000 || (uint16_t)((product + 0x8000) >> 16) != want;
    }
    return n;
}

static void every_scale(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        float scale = pl_fp16_to_f32((uint16_t)h);
        if (isnan(scale)) {
            assert_false(pl_has_expand_factor(scale));
            assert_true(isnan(pl_expand_factor(scale)));
            continue;
        }
        assert_int_equal(pl_has_expand_factor(scale), scale > 0 && !isinf(scale));
        assert_int_equal(bits_of(pl_expand_factor(scale)) & 7, 0); /* 21 bits */
        if (isinf(scale))
            assert_true(isinf(pl_expand_factor(scale)));
        else
            assert_int_equal(failures(scale), 0);
    }
}

static void other_scales(void **state)
{
    (void)state;
    static const float none[] = {0.0f,   -1.0f,     0x1p-25f,        65536.0f,
                                 1e-40f, INFINITY,  0x1.002p0f,      0x1.ffcp15f + 0x1p2f,
                                 -0.0f,  -INFINITY, 0x1.000002p-14f, 3e38f};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_false(pl_has_expand_factor(none[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_scale),
                                       cmocka_unit_test(other_scales)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
