/* SPDX-License-Identifier: Apache-2.0
 *
 * Element types: the block types against vectors from the gguf package, bit for bit, and the plain
 * types against their definition. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/half.h"
#include "base/memory.h"
#include "format/safetensors.h"

static void block_types_match_the_reference(void **state)
{
    (void)state;
    pl_safetensors *s;
    pleach_error err;
    const char *path = PLEACH_TEST_DATA "/golden/formats/block_types.safetensors";
    if (pl_safetensors_open(path, &s, &err) != PLEACH_OK) fail_msg("%s", err.message);
    for (int type = PL_Q4_0; type <= PL_Q6_K; type++) {
        const pl_dtype_info *info = pl_dtype_get((pl_dtype)type);
        char name[32];
        snprintf(name, sizeof name, "%s.blocks", info->name);
        const pl_tensor *blocks = pl_safetensors_find(s, name);
        snprintf(name, sizeof name, "%s.values", info->name);
        const pl_tensor *values = pl_safetensors_find(s, name);
        assert_non_null(blocks);
        assert_non_null(values);
        assert_int_equal(blocks->shape[1], info->block_bytes);
        assert_int_equal(values->shape[1], info->block_elements);
        size_t n = values->shape[0] * values->shape[1];
        /* From an odd address as well: file data has no alignment. */
        uint8_t *shifted = pl_alloc(blocks->n_bytes + 1, 1);
        float *got = pl_alloc(n, sizeof *got);
        memcpy(shifted + 1, blocks->data, blocks->n_bytes);
        pl_dequantize_row((pl_dtype)type, shifted + 1, got, n);
        for (size_t i = 0; i < n; i++) {
            uint32_t want;
            memcpy(&want, (const uint8_t *)values->data + 4 * i, 4);
            if (pl_f32_bits(got[i]) != want)
                fail_msg("%s: number %zu is %.9g, expected %.9g", info->name, i, got[i],
                         pl_f32_from_bits(want));
        }
        pl_free(shifted);
        pl_free(got);
    }
    pl_safetensors_close(s);
}

static void plain_types_are_what_they_say(void **state)
{
    (void)state;
    float v[3];
    const uint16_t halves[] = {0x3c00, 0xc000, 0x0001}, bf16[] = {0x3f80, 0xc000, 0x7f80};
    const double doubles[] = {1, -2.5, 1e300};
    const float floats[] = {1, -2, 3};
    const uint8_t e4m3[] = {0x38, 0xc0, 0x01};
    pl_dequantize_row(PL_F16, halves, v, 3);
    assert_true(v[0] == 1 && v[1] == -2 && v[2] == 0x1p-24f);
    pl_dequantize_row(PL_BF16, bf16, v, 3);
    assert_true(v[0] == 1 && v[1] == -2 && isinf(v[2]));
    pl_dequantize_row(PL_F64, doubles, v, 3);
    assert_true(v[0] == 1 && v[1] == -2.5f && isinf(v[2]));
    pl_dequantize_row(PL_F32, floats, v, 3);
    assert_true(v[0] == 1 && v[1] == -2 && v[2] == 3);
    pl_dequantize_row(PL_F8_E4M3, e4m3, v, 3);
    assert_true(v[0] == 1 && v[1] == -2 && v[2] == 0x1p-9f);
}

static void every_type_has_a_size(void **state)
{
    (void)state;
    for (int type = 0; type < PL_DTYPE_COUNT; type++) {
        const pl_dtype_info *info = pl_dtype_get((pl_dtype)type);
        assert_non_null(info->name);
        assert_true(info->block_bytes > 0);
        assert_true(info->block_elements == 1 || info->block_elements == 32 ||
                    info->block_elements == 256);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_types_match_the_reference),
        cmocka_unit_test(plain_types_are_what_they_say),
        cmocka_unit_test(every_type_has_a_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
