/* SPDX-License-Identifier: Apache-2.0
 *
 * The trellis code without the search: golden files to the bit, legal and illegal geometries, the
 * choice of T, packing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/cpu.h"
#include "base/random.h"
#include "codec/expand.h"
#include "codec/trellis.h"
#include "trellis_golden.h"

static void test_goldens(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof trellis_golden_names / sizeof trellis_golden_names[0]; i++) {
        trellis_golden g = golden_open(trellis_golden_names[i]);
        size_t n = (size_t)(g.t.rows * g.t.cols);
        uint16_t *expanded = malloc(2 * n);
        float *decoded = malloc(4 * n);
        assert_non_null(expanded);
        assert_non_null(decoded);
        assert_int_equal(pleach_trellis_expand(&g.t, expanded, g.codes, g.scales), PLEACH_OK);
        assert_int_equal(pleach_trellis_decode(&g.t, decoded, g.codes, g.scales), PLEACH_OK);
        assert_memory_equal(expanded, golden_data(&g, "expand"), 2 * n);
        assert_memory_equal(decoded, golden_data(&g, "decode"), 4 * n);
        free(expanded);
        free(decoded);
        golden_close(&g);
    }
}

/* Runs of rows, and columns, from bytes at any alignment. */
static void test_parts(void **state)
{
    (void)state;
    pl_kernels k;
    unsigned cpu;
    assert_int_equal(pl_cpu_level(NULL, &cpu), 0);
    pl_kernels_init(&k, cpu);
    for (size_t i = 0; i < sizeof trellis_golden_names / sizeof trellis_golden_names[0]; i++) {
        trellis_golden g = golden_open(trellis_golden_names[i]);
        size_t rows = (size_t)g.t.rows, cols = (size_t)g.t.cols,
               bytes = pleach_trellis_words(&g.t) * 4;
        const float *whole = golden_data(&g, "decode");
        uint8_t *codes = malloc(bytes + 1), *scales = malloc(2 * rows + 1);
        float *some = malloc(4 * rows * cols), *column = malloc(4 * rows);
        assert_true(codes && scales && some && column);
        memcpy(codes + 1, g.codes, bytes);
        memcpy(scales + 1, g.scales, 2 * rows);
        size_t first = rows / 3, n = rows - first;
        pl_trellis_decode_rows(&g.t, &k, some, codes + 1, scales + 1, first, n);
        assert_memory_equal(some, whole + first * cols, 4 * n * cols);
        for (size_t c = 0; c < cols; c += c % 7 + 1) {
            pl_trellis_decode_column(&g.t, column, codes + 1, scales + 1, c);
            for (size_t r = 0; r < rows; r++)
                assert_memory_equal(&column[r], &whole[r * cols + c], 4);
        }
        free(codes);
        free(scales);
        free(some);
        free(column);
        golden_close(&g);
    }
}

static const pleach_trellis legal = {
    .bits = 3, .state_bits = 12, .block = 256, .axis = 0, .rows = 2, .cols = 1024};

#define REFUSED(field, value, word)                                                                \
    do {                                                                                           \
        pleach_trellis t = legal;                                                                  \
        pleach_error err = {0};                                                                    \
        uint16_t untouched = 0x1234;                                                               \
        t.field = (value);                                                                         \
        assert_int_equal(pleach_trellis_check(&t, &err), PLEACH_ERR_SHAPE);                        \
        assert_int_equal(pleach_trellis_check(&t, NULL), PLEACH_ERR_SHAPE);                        \
        assert_non_null(strstr(err.message, word));                                                \
        assert_int_equal(pleach_trellis_expand(&t, &untouched, NULL, NULL), PLEACH_ERR_SHAPE);     \
        assert_int_equal(pleach_trellis_decode(&t, NULL, NULL, NULL), PLEACH_ERR_SHAPE);           \
        assert_int_equal(untouched, 0x1234);                                                       \
    } while (0)

static void test_refusals(void **state)
{
    (void)state;
    assert_int_equal(pleach_trellis_check(&legal, NULL), PLEACH_OK);
    REFUSED(bits, 1, "bits");
    REFUSED(bits, 5, "bits");
    REFUSED(state_bits, 13, "state_bits");
    REFUSED(state_bits, 0, "state_bits");
    REFUSED(block, 0, "block");
    REFUSED(block, 48, "block");
    REFUSED(block, 1056, "block");
    REFUSED(block, UINT32_MAX, "block");
    REFUSED(axis, 2, "axis");
    REFUSED(cols, 0, "cols");
    REFUSED(cols, 1000, "cols");
    REFUSED(interleaved, 2, "interleaved");
    REFUSED(rows, UINT64_MAX, "rows");
    REFUSED(rows, (uint64_t)1 << 60, "rows");
    REFUSED(cols, (uint64_t)1 << 63, "rows");
    pleach_trellis t = legal;
    t.interleaved = 1;
    assert_int_equal(pleach_trellis_check(&t, NULL), PLEACH_OK);
    t.cols = 768;
    assert_int_equal(pleach_trellis_check(&t, NULL), PLEACH_ERR_SHAPE);
    t = legal, t.interleaved = 1, t.bits = 4;
    assert_int_equal(pleach_trellis_check(&t, NULL), PLEACH_ERR_SHAPE);
    t = legal, t.interleaved = 1, t.axis = 1;
    assert_int_equal(pleach_trellis_check(&t, NULL), PLEACH_ERR_SHAPE);
    t = legal, t.interleaved = 1, t.block = 128;
    assert_int_equal(pleach_trellis_check(&t, NULL), PLEACH_ERR_SHAPE);
}

static void test_no_rows(void **state)
{
    (void)state;
    pleach_trellis t = legal;
    t.rows = 0;
    assert_int_equal(pleach_trellis_check(&t, NULL), PLEACH_OK);
    assert_int_equal(pleach_trellis_words(&t), 0);
    assert_int_equal(pleach_trellis_expand(&t, NULL, NULL, NULL), PLEACH_OK);
}

/* The rule in fractions: padded * (1 + 2/T), the longest T of the best. */
static void test_choose_block(void **state)
{
    (void)state;
    static const uint64_t known[][3] = {{576, 192, 576},     {896, 224, 896}, {1536, 256, 1536},
                                        {50257, 256, 50432}, {32, 32, 32},    {127, 128, 128},
                                        {128, 128, 128},     {192, 192, 192}, {33, 64, 64},
                                        {4096, 256, 4096}};
    uint32_t block;
    uint64_t padded;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        assert_int_equal(pleach_trellis_choose_block(known[i][0], &block, &padded, NULL),
                         PLEACH_OK);
        assert_int_equal(block, known[i][1]);
        assert_int_equal(padded, known[i][2]);
    }
    for (uint64_t width = 32; width < 5000; width++) {
        assert_int_equal(pleach_trellis_choose_block(width, &block, &padded, NULL), PLEACH_OK);
        double cost = (double)padded * (1 + 2.0 / block);
        assert_true(padded >= width && padded - width < block && padded % block == 0);
        assert_true(block % 32 == 0 && block >= (width < 128 ? 32 : 128) && block <= 256);
        for (uint32_t T = width < 128 ? 32 : 128; T <= (width < 128 ? 128 : 256); T += 32) {
            double other = (double)((width + T - 1) / T * T) * (1 + 2.0 / T);
            assert_true(cost <= other * (1 + 1e-12));
            assert_true(T <= block || other > cost * (1 + 1e-12));
        }
    }
    pleach_error err;
    assert_int_equal(pleach_trellis_choose_block(31, &block, &padded, &err), PLEACH_ERR_SHAPE);
    assert_non_null(strstr(err.message, "31"));
    assert_int_equal(pleach_trellis_choose_block(UINT64_MAX, &block, &padded, &err),
                     PLEACH_ERR_SHAPE);
}

/* Packing the states of random words gives the words back. */
static void test_pack(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (uint32_t k = 2; k <= 4; k++)
        for (uint32_t L = 12; L <= 16; L += 4)
            for (uint32_t T = 32; T <= 1024; T += 32) {
                pleach_trellis t = {.bits = k, .state_bits = L, .block = T, .rows = 1, .cols = T};
                uint32_t words[PL_TRELLIS_MAX_WORDS], packed[PL_TRELLIS_MAX_WORDS];
                uint16_t states[PL_TRELLIS_MAX_BLOCK];
                size_t n = pl_trellis_block_words(&t);
                for (size_t i = 0; i < n; i++) words[i] = (uint32_t)pl_random_next(&random);
                pl_trellis_states(&t, states, words);
                for (uint32_t i = 0; i < T; i++) /* tail-biting: the ring has no seam */
                    assert_int_equal(states[i] >> k,
                                     states[(i + T - 1) % T] & ((1u << (L - k)) - 1));
                pl_trellis_pack(&t, packed, states);
                assert_memory_equal(packed, words, 4 * n);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),      cmocka_unit_test(test_parts),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_choose_block), cmocka_unit_test(test_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
