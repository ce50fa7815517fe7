/* SPDX-License-Identifier: Apache-2.0
 *
 * The trellis encoder: golden codes, quality, determinism, every geometry, rows that break naive
 * encoders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/half.h"
#include "base/random.h"
#include "codec/encoder.h"
#include "codec/trellis.h"
#include "pools.h"
#include "trellis_golden.h"

/* ---- helpers --------------------------------------------------------------------------------- */

static double normal(uint64_t *random)
{
    double r = sqrt(-2 * log(1 - pl_random_unit(random)));
    return r * cos(6.283185307179586 * pl_random_unit(random));
}

typedef struct coded {
    pleach_trellis t;
    size_t n, words;
    float *src, *decoded;
    uint32_t *codes;
    uint16_t *scales;
} coded;

static coded coded_open(pleach_trellis t)
{
    coded c = {.t = t, .n = (size_t)(t.rows * t.cols), .words = pleach_trellis_words(&t)};
    c.src = calloc(c.n, sizeof *c.src);
    c.decoded = calloc(c.n, sizeof *c.decoded);
    c.codes = calloc(c.words, sizeof *c.codes);
    c.scales = calloc(t.rows, sizeof *c.scales);
    assert_true(c.src && c.decoded && c.codes && c.scales);
    return c;
}

static void coded_close(coded *c)
{
    free(c->src);
    free(c->decoded);
    free(c->codes);
    free(c->scales);
}

static void fill_normal(coded *c, uint64_t seed)
{
    for (size_t i = 0; i < c->n; i++) c->src[i] = (float)normal(&seed);
}

/* Encodes, decodes, and returns squared error over power. */
static double encode(coded *c, const pleach_trellis_encode_settings *settings)
{
    pleach_error err;
    if (pleach_trellis_encode(&c->t, c->codes, c->scales, c->src, settings, &err))
        fail_msg("%s", err.message);
    assert_int_equal(pleach_trellis_decode(&c->t, c->decoded, c->codes, c->scales), PLEACH_OK);
    double error = 0, power = 0;
    for (size_t i = 0; i < c->n; i++) {
        double d = (double)c->src[i] - c->decoded[i];
        error += d * d;
        power += (double)c->src[i] * c->src[i];
    }
    return error / power;
}

static pleach_trellis_encode_settings plain_settings(pleach_trellis_search search)
{
    pleach_trellis_encode_settings s;
    pleach_trellis_encode_defaults(&s);
    s.search = search;
    s.scale_search = s.scale_refit = 0;
    return s;
}

/* ---- quality --------------------------------------------------------------------------------- */

/* The f32 search at RMS scale makes the golden codes, bit for bit. */
static void test_golden_codes(void **state)
{
    (void)state;
    pleach_trellis_encode_settings exact = plain_settings(PLEACH_SEARCH_EXACT);
    for (size_t i = 0; i < sizeof trellis_golden_names / sizeof trellis_golden_names[0]; i++) {
        trellis_golden g = golden_open(trellis_golden_names[i]);
        if (golden_data(&g, "w")) {
            coded c = coded_open(g.t);
            memcpy(c.src, golden_data(&g, "w"), c.n * sizeof *c.src);
            encode(&c, &exact);
            assert_memory_equal(c.scales, g.scales, 2 * g.t.rows);
            assert_memory_equal(c.codes, g.codes, 4 * c.words);
            coded_close(&c);
        }
        golden_close(&g);
    }
}

/* Squared error over variance of Gaussian rows, T = 256. The bound of any code is 2^-2k. */
static void test_quality(void **state)
{
    (void)state;
    static const struct {
        uint32_t k, L;
        uint64_t rows;
        double plain, best; /* at most: scale by RMS; scale searched and refitted */
    } table[] = {
        {2, 12, 64, .0755, .0750}, {3, 12, 64, .0200, .0195}, {4, 12, 64, .0056, .0051},
        {2, 16, 16, .0700, .0697}, {3, 16, 16, .0185, .0178}, {4, 16, 16, .0049, .0046},
    };
    pleach_trellis_encode_settings plain = plain_settings(PLEACH_SEARCH_NORMAL);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        coded c = coded_open((pleach_trellis){.bits = table[i].k,
                                              .state_bits = table[i].L,
                                              .block = 256,
                                              .rows = table[i].rows,
                                              .cols = 1024});
        fill_normal(&c, 5);
        double error = encode(&c, &plain), best = encode(&c, NULL);
        print_message("k %u L %2u: %.5f, best scale %.5f\n", table[i].k, table[i].L, error, best);
        assert_true(error <= table[i].plain);
        assert_true(best <= table[i].best);
        assert_true(best <= error * 1.005); /* k = 2: the RMS scale is as good as the best */
        coded_close(&c);
    }
}

/* Rows far from Gaussian gain from the scale's choice; none loses. */
static void test_scale_choice(void **state)
{
    (void)state;
    pleach_trellis_encode_settings plain = plain_settings(PLEACH_SEARCH_NORMAL);
    for (uint32_t k = 2; k <= 4; k++)
        for (int kind = 0; kind < 4; kind++) {
            coded c = coded_open((pleach_trellis){
                .bits = k, .state_bits = 12, .block = 256, .rows = 8, .cols = 1024});
            uint64_t random = 3;
            for (size_t i = 0; i < c.n; i++) {
                double x = normal(&random), u = pl_random_unit(&random);
                c.src[i] = (float)(kind == 0       ? 2 * u - 1
                                   : kind == 1     ? x * x * x
                                   : kind == 2     ? (u < 0.1 ? x : 0)
                                   : i % 1024 == 7 ? 15
                                                   : x);
            }
            double before = encode(&c, &plain), after = encode(&c, NULL);
            assert_true(after < before * (kind == 0 ? 1.03 : 0.99));
            coded_close(&c);
        }
}

/* ---- geometry -------------------------------------------------------------------------------- */

/* Every k, L and T: sane error, decoded rows equal to pleach_trellis_decode's. */
static void test_every_geometry(void **state)
{
    (void)state;
    static const double limit[] = {.095, .027, .0085}; /* of one short block */
    for (uint32_t k = 2; k <= 4; k++)
        for (uint32_t L = 12; L <= 16; L += 4)
            for (uint32_t T = 32; T <= 1024; T += L == 12 ? 32 : 32 * 7) { /* L 16 is slow */
                uint64_t cols = L == 12 ? T * (1 + 512 / T) : T;
                coded c = coded_open((pleach_trellis){
                    .bits = k, .state_bits = L, .block = T, .rows = 2, .cols = cols});
                fill_normal(&c, T + k);
                double error = encode(&c, NULL);
                assert_true(error < limit[k - 2] * (cols < 128 ? 2 : 1));
                assert_true(error > exp2(-2.0 * k) / 2);
                coded_close(&c);
            }
}

/* The interleaved layout holds the same blocks at other places. */
static void test_interleaved(void **state)
{
    (void)state;
    pleach_trellis t = {
        .bits = 3, .state_bits = 12, .block = 256, .axis = 0, .rows = 3, .cols = 1024};
    coded plain = coded_open(t);
    t.interleaved = 1;
    coded inter = coded_open(t);
    fill_normal(&plain, 9);
    fill_normal(&inter, 9);
    encode(&plain, NULL);
    encode(&inter, NULL);
    assert_memory_equal(plain.scales, inter.scales, 2 * t.rows);
    assert_memory_equal(plain.decoded, inter.decoded, 4 * plain.n);
    for (uint64_t row = 0; row < t.rows; row++)
        for (uint64_t block = 0; block < 4; block++)
            assert_memory_equal(plain.codes + (row * 4 + block) * 24,
                                inter.codes + ((block / 2) * t.rows + row) * 48 + block % 2 * 24,
                                96);
    coded_close(&plain);
    coded_close(&inter);
}

/* ---- determinism ----------------------------------------------------------------------------- */

static void test_same_bits(void **state)
{
    (void)state;
    static const struct {
        int threads;
        const char *cpu;
    } ways[] = {{1, NULL}, {2, NULL}, {3, NULL}, {7, NULL}, {0, NULL}, {2, "c"}};
    for (uint32_t k = 2; k <= 4; k++) {
        pleach_trellis t = {.bits = k, .state_bits = 12, .block = 192, .rows = 5, .cols = 576};
        coded first = coded_open(t), again = coded_open(t);
        fill_normal(&first, k);
        fill_normal(&again, k);
        encode(&first, NULL);
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            pleach_trellis_encode_settings s;
            pleach_trellis_encode_defaults(&s);
            s.threads = ways[i].threads;
            s.cpu = ways[i].cpu;
            memset(again.codes, 0x5a, 4 * again.words); /* stale contents do not matter */
            encode(&again, &s);
            assert_memory_equal(first.codes, again.codes, 4 * first.words);
            assert_memory_equal(first.scales, again.scales, 2 * t.rows);
        }
        coded_close(&first);
        coded_close(&again);
    }
}

/* Tiles, and rows one at a time, code as the whole; what they decode to is handed back. */
static void test_tiles(void **state)
{
    (void)state;
    pleach_trellis t = {.bits = 3,
                        .state_bits = 12,
                        .block = 256,
                        .axis = 0,
                        .interleaved = 1,
                        .rows = 7,
                        .cols = 512};
    coded whole = coded_open(t), tiles = coded_open(t);
    fill_normal(&whole, 21);
    memcpy(tiles.src, whole.src, whole.n * sizeof *whole.src);
    encode(&whole, NULL);
    pl_encoder *e;
    pleach_error err;
    assert_int_equal(pl_encoder_open(&e, &t, NULL, pool_of(2), &err), PLEACH_OK);
    static const uint64_t tile[] = {3, 1, 1, 0, 2};
    uint64_t row = 0;
    for (size_t i = 0; i < sizeof tile / sizeof tile[0]; row += tile[i++])
        assert_int_equal(pl_encoder_rows(e, row, tile[i], tiles.codes, tiles.scales,
                                         i == 1 ? tiles.src + row * t.cols /* in place */
                                                : tiles.decoded + row * t.cols,
                                         tiles.src + row * t.cols, &err),
                         PLEACH_OK);
    memcpy(tiles.decoded + 3 * t.cols, tiles.src + 3 * t.cols, 4 * t.cols);
    assert_memory_equal(whole.codes, tiles.codes, 4 * whole.words);
    assert_memory_equal(whole.scales, tiles.scales, 2 * t.rows);
    assert_memory_equal(whole.decoded, tiles.decoded, 4 * whole.n);
    assert_int_equal(pl_encoder_rows(e, 6, 2, tiles.codes, tiles.scales, NULL, tiles.src, &err),
                     PLEACH_ERR_ARGUMENT);
    pl_encoder_close(e);
    coded_close(&whole);
    coded_close(&tiles);
}

/* ---- nasty rows ------------------------------------------------------------------------------ */

enum { NASTY_ROWS = 12, NASTY_COLS = 512 };

static void fill_nasty(coded *c)
{
    float(*row)[NASTY_COLS] = (float(*)[NASTY_COLS])c->src;
    uint64_t random = 1;
    for (size_t i = 0; i < NASTY_COLS; i++) {
        float x = (float)normal(&random);
        row[0][i] = 0;
        row[1][i] = -0.0f;
        row[2][i] = i & 1 ? 1e-40f : -1e-40f;
        row[3][i] = i == 77 ? 1e-30f : 0;
        row[4][i] = i & 1 ? 65000 : -65000;
        row[5][i] = i == 300 ? 1e4f : x;
        row[6][i] = x * 3e4f;
        row[7][i] = x * 3e-8f; /* about the least fp16 scale */
        row[8][i] = 1;
        row[9][i] = i == 0 ? 3.4e5f : 0;
        row[10][i] = x * 1e-30f;
        row[11][i] = x;
    }
}

static void test_nasty_rows(void **state)
{
    (void)state;
    for (uint32_t k = 2; k <= 4; k++)
        for (int search = 0; search <= PLEACH_SEARCH_EXACT; search++) {
            coded c = coded_open((pleach_trellis){
                .bits = k, .state_bits = 12, .block = 256, .rows = NASTY_ROWS, .cols = NASTY_COLS});
            pleach_trellis_encode_settings s;
            pleach_trellis_encode_defaults(&s);
            s.search = (pleach_trellis_search)search;
            fill_nasty(&c);
            encode(&c, &s);
            for (size_t r = 0; r < NASTY_ROWS; r++) {
                double error = 0, power = 0;
                for (size_t i = r * NASTY_COLS; i < (r + 1) * NASTY_COLS; i++) {
                    assert_true(isfinite(c.decoded[i]));
                    error += pow((double)c.src[i] - c.decoded[i], 2);
                    power += pow(c.src[i], 2);
                }
                assert_true(error <= power * 1.000001); /* never worse than a row of zeros */
                if (r == 4 || r == 6 || r == 8 || r == 11) assert_true(error < 0.1 * power);
            }
            assert_int_equal(c.scales[0], 0);
            assert_int_equal(c.scales[1], 0);
            for (size_t i = 0; i < 4 * NASTY_COLS; i++)
                assert_int_equal(pl_f32_bits(c.decoded[i]), 0); /* +0 */
            coded_close(&c);
        }
}

static void test_refusals(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    coded c = coded_open(
        (pleach_trellis){.bits = 4, .state_bits = 12, .block = 64, .rows = 9, .cols = 64});
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        pleach_error err = {0};
        fill_normal(&c, 1);
        c.src[5 * 64 + 63] = c.src[7 * 64] = bad[i];
        assert_int_equal(pleach_trellis_encode(&c.t, c.codes, c.scales, c.src, NULL, &err),
                         PLEACH_ERR_DATA);
        assert_non_null(strstr(err.message, "row 5 "));
        assert_int_equal(pleach_trellis_encode(&c.t, c.codes, c.scales, c.src, NULL, NULL),
                         PLEACH_ERR_DATA);
    }
    pleach_trellis_encode_settings s;
    pleach_trellis_encode_defaults(&s);
    pleach_error err = {0};
    s.cpu = "z80";
    assert_int_equal(pleach_trellis_encode(&c.t, c.codes, c.scales, c.src, &s, &err),
                     PLEACH_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "z80"));
    s.cpu = NULL;
    s.threads = -1;
    assert_int_equal(pleach_trellis_encode(&c.t, c.codes, c.scales, c.src, &s, &err),
                     PLEACH_ERR_ARGUMENT);
    pleach_trellis t = c.t;
    t.block = 48;
    assert_int_equal(pleach_trellis_encode(&t, c.codes, c.scales, c.src, NULL, &err),
                     PLEACH_ERR_SHAPE);
    t = c.t;
    t.rows = 0;
    assert_int_equal(pleach_trellis_encode(&t, NULL, NULL, NULL, NULL, &err), PLEACH_OK);
    coded_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_codes), cmocka_unit_test(test_quality),
        cmocka_unit_test(test_scale_choice), cmocka_unit_test(test_every_geometry),
        cmocka_unit_test(test_interleaved),  cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_tiles),        cmocka_unit_test(test_nasty_rows),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
