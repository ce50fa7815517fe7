/* SPDX-License-Identifier: Apache-2.0
 *
 * The library against the second decoder of docs/reference, which is written from docs/format.md
 * alone: every geometry on random words, to the bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/random.h"
#include "pleach/trellis.h"
#include "reference/decoder.h"

/* Both contracts of one geometry. Scales: a normal one, denormal, zero, negative. */
static void compare_geometry(uint32_t k, uint32_t L, uint32_t T, uint32_t interleaved,
                             uint64_t *random)
{
    enum { ROWS = 4 };
    static const uint16_t scales[ROWS] = {0x3a57, 0x0003, 0x0000, 0xb123};
    pleach_trellis t = {.bits = k, .state_bits = L, .block = T, .axis = 0,
                        .interleaved = interleaved, .rows = ROWS, .cols = 4 * T};
    ref_trellis ref = {.k = k, .L = L, .T = T, .interleaved = interleaved, .rows = ROWS,
                       .cols = 4 * T};
    size_t n = ROWS * 4 * T, n_words = pleach_trellis_words(&t);
    uint32_t *words = calloc(n_words, sizeof *words);
    uint16_t *expanded = calloc(n, sizeof *expanded);
    float *decoded = calloc(n, sizeof *decoded);
    assert_non_null(words);
    assert_non_null(expanded);
    assert_non_null(decoded);
    for (size_t i = 0; i < n_words; i++) words[i] = (uint32_t)pl_random_next(random);

    assert_int_equal(pleach_trellis_decode(&t, decoded, words, scales), PLEACH_OK);
    assert_int_equal(pleach_trellis_expand(&t, expanded, words, scales), PLEACH_OK);
    for (uint64_t r = 0; r < t.rows; r++)
        for (uint64_t c = 0; c < t.cols; c++) {
            float d = ref_number(&ref, words, scales, r, c, REF_DECODE);
            float e = ref_number(&ref, words, scales, r, c, REF_EXPAND);
            assert_int_equal(pl_f32_bits(decoded[r * t.cols + c]), pl_f32_bits(d));
            assert_int_equal(pl_f32_bits(pl_bf16_to_f32(expanded[r * t.cols + c])), pl_f32_bits(e));
        }
    free(words);
    free(expanded);
    free(decoded);
}

static void test_every_geometry(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (uint32_t k = 2; k <= 4; k++)
        for (uint32_t L = 12; L <= 16; L += 4)
            for (uint32_t T = 32; T <= 1024; T += 32) compare_geometry(k, L, T, 0, &random);
    compare_geometry(3, 12, 256, 1, &random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_geometry)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
