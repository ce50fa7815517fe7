/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "pleach/session.h"

enum { VOCAB = 8 };

static const float LOGITS[VOCAB] = {1.0f, 2.0f, 2.0f, -1.0f, 0.5f, -3.0f, 1.5f, 0.0f};

static pleach_sampling defaults(void)
{
    pleach_sampling s;
    pleach_sampling_defaults(&s);
    return s;
}

static int32_t sample_one(pleach_sampler *s, const float *logits, size_t n)
{
    float copy[VOCAB];
    int32_t id = -1;
    memcpy(copy, logits, n * sizeof *copy);
    assert_int_equal(pleach_sample(s, copy, n, NULL, 0, &id, NULL), PLEACH_OK);
    assert_in_range(id, 0, n - 1);
    return id;
}

/* How often each id comes in 20000 draws. */
static void count_draws(const pleach_sampling *set, size_t counts[VOCAB])
{
    pleach_sampler *s;
    assert_int_equal(pleach_sampler_open(set, &s, NULL), PLEACH_OK);
    memset(counts, 0, VOCAB * sizeof *counts);
    for (int i = 0; i < 20000; i++) counts[sample_one(s, LOGITS, VOCAB)]++;
    pleach_sampler_close(s);
}

/* Draws agree with probabilities exp(logit / t) over the ids of `allowed`. */
static void check_draws(const pleach_sampling *set, unsigned allowed)
{
    size_t counts[VOCAB];
    double p[VOCAB], sum = 0;
    count_draws(set, counts);
    for (int i = 0; i < VOCAB; i++) {
        p[i] = allowed >> i & 1 ? exp((double)LOGITS[i] / (double)set->temperature) : 0;
        sum += p[i];
    }
    for (int i = 0; i < VOCAB; i++) {
        if (!(allowed >> i & 1)) assert_int_equal(counts[i], 0);
        /* Four standard deviations of a binomial count. */
        double q = p[i] / sum, expected = 20000 * q, sigma = sqrt(20000 * q * (1 - q));
        assert_true(fabs((double)counts[i] - expected) <= 4 * sigma + 1);
    }
}

static void greedy_takes_the_lowest_of_equals(void **state)
{
    (void)state;
    pleach_sampling set = defaults();
    pleach_sampler *s;
    assert_int_equal(pleach_sampler_open(&set, &s, NULL), PLEACH_OK);
    assert_int_equal(sample_one(s, LOGITS, VOCAB), 1);
    const float only[1] = {-7};
    assert_int_equal(sample_one(s, only, 1), 0);
    pleach_sampler_close(s);
}

static void draws_follow_the_probabilities(void **state)
{
    (void)state;
    pleach_sampling set = defaults();
    set.temperature = 1;
    check_draws(&set, 0xff);
    set.temperature = 0.6f;
    set.seed = 7;
    check_draws(&set, 0xff);
}

static void filters_keep_the_likeliest(void **state)
{
    (void)state;
    pleach_sampling set = defaults();
    set.temperature = 1;
    set.top_k = 3;
    check_draws(&set, 1 << 1 | 1 << 2 | 1 << 6);
    set.top_k = 1; /* the lower of two equals */
    check_draws(&set, 1 << 1);
    set = defaults();
    set.temperature = 1;
    set.top_p = 0.5f; /* 1 and 2 hold 0.59 together, 1 alone 0.29 */
    check_draws(&set, 1 << 1 | 1 << 2);
    set.top_p = 0;
    check_draws(&set, 1 << 1);
    set = defaults();
    set.temperature = 1;
    set.min_p = 0.5f; /* exp(-0.5) = 0.61 stays, exp(-1) = 0.37 goes */
    check_draws(&set, 1 << 1 | 1 << 2 | 1 << 6);
    set.min_p = 1;
    check_draws(&set, 1 << 1 | 1 << 2);
    set = defaults();
    set.temperature = 1;
    set.top_k = 3; /* shares of three: 0.38, 0.38, 0.23 */
    set.top_p = 0.7f;
    check_draws(&set, 1 << 1 | 1 << 2);
    set.top_p = 0.8f;
    check_draws(&set, 1 << 1 | 1 << 2 | 1 << 6);
    set.min_p = 0.9f;
    check_draws(&set, 1 << 1 | 1 << 2);
}

/* Fault G03. */
static void top_k_out_of_range_is_off(void **state)
{
    (void)state;
    const int32_t off[] = {0, -1, VOCAB, VOCAB + 1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        pleach_sampling set = defaults();
        set.temperature = 1;
        set.top_k = off[i];
        check_draws(&set, 0xff);
    }
}

static void seeds_decide_everything(void **state)
{
    (void)state;
    pleach_sampling set = defaults();
    set.temperature = 1.5f;
    set.top_p = 0.9f;
    int same = 0;
    pleach_sampler *a, *b, *c;
    set.seed = 42;
    assert_int_equal(pleach_sampler_open(&set, &a, NULL), PLEACH_OK);
    assert_int_equal(pleach_sampler_open(&set, &b, NULL), PLEACH_OK);
    set.seed = 43;
    assert_int_equal(pleach_sampler_open(&set, &c, NULL), PLEACH_OK);
    for (int i = 0; i < 100; i++) {
        int32_t id = sample_one(a, LOGITS, VOCAB);
        assert_int_equal(id, sample_one(b, LOGITS, VOCAB));
        same += id == sample_one(c, LOGITS, VOCAB);
    }
    assert_true(same < 90);
    pleach_sampler_close(a);
    pleach_sampler_close(b);
    pleach_sampler_close(c);
}

/* Fault G05. */
static void penalty_makes_repeats_less_likely(void **state)
{
    (void)state;
    pleach_sampling set = defaults();
    pleach_sampler *s;
    set.repetition_penalty = 1.5f;
    assert_int_equal(pleach_sampler_open(&set, &s, NULL), PLEACH_OK);
    const int32_t history[] = {2, 0, 2, 99, -5}; /* repeats count once, strangers not at all */
    float logits[3] = {-2, -1, 3};
    int32_t id;
    assert_int_equal(pleach_sample(s, logits, 3, history, 5, &id, NULL), PLEACH_OK);
    assert_true(logits[0] == -3 && logits[1] == -1 && logits[2] == 2);
    assert_int_equal(id, 2);
    pleach_sampler_close(s);

    set.repetition_window = 1; /* sees id 0 alone */
    assert_int_equal(pleach_sampler_open(&set, &s, NULL), PLEACH_OK);
    float again[3] = {3, -1, 3};
    const int32_t recent[] = {2, 0};
    assert_int_equal(pleach_sample(s, again, 3, recent, 2, &id, NULL), PLEACH_OK);
    assert_true(again[0] == 2 && again[2] == 3);
    assert_int_equal(id, 2);
    pleach_sampler_close(s);

    set.repetition_window = 0;
    assert_int_equal(pleach_sampler_open(&set, &s, NULL), PLEACH_OK);
    assert_int_equal(pleach_sample(s, again, 3, recent, 2, &id, NULL), PLEACH_OK);
    assert_true(again[0] == 2 && again[2] == 3);
    pleach_sampler_close(s);
}

/* Fault G01 and its neighbours. */
/* What comes of LOGITS by hand: ids 1 and 2 have 2, 6 has 1.5, 0 has 1, 4 has 0.5. */
static void given_ids_become_less_likely(void **state)
{
    (void)state;
    static const struct {
        float presence, frequency;
        int32_t want[8];
    } cases[] = {
        {0.75f, 0, {1, 2, 6, 1, 1, 1, 1, 1}},   /* 1.25 for 1 and 2, once; 0.75 for 6 */
        {0, 0.5f, {1, 2, 1, 2, 6, 0, 1, 2}},    /* 1, 2: 2 1.5 1; 6: 1.5; 0: 1 */
        {0.5f, 0.25f, {1, 2, 6, 1, 2, 0, 1, 2}}, /* 1, 2: 2 1.25 1; 6: 1.5; 0: 1 */
        {-1, 0, {1, 1, 1, 1, 1, 1, 1, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pleach_sampling set = defaults();
        pleach_sampler *s;
        set.presence_penalty = cases[i].presence;
        set.frequency_penalty = cases[i].frequency;
        assert_int_equal(pleach_sampler_open(&set, &s, NULL), PLEACH_OK);
        for (int k = 0; k < 8; k++) assert_int_equal(sample_one(s, LOGITS, VOCAB), cases[i].want[k]);
        pleach_sampler_close(s);
    }
}

static void bad_settings_are_refused(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY, -1.0f};
    pleach_error err;
    pleach_sampler *s;
    for (size_t i = 0; i < 4; i++)
        for (int field = 0; field < 4; field++) {
            pleach_sampling set = defaults();
            float *fields[] = {&set.temperature, &set.top_p, &set.min_p, &set.repetition_penalty};
            *fields[field] = bad[i];
            assert_int_equal(pleach_sampler_open(&set, &s, &err), PLEACH_ERR_ARGUMENT);
            assert_null(s);
        }
    pleach_sampling set = defaults();
    set.repetition_penalty = 0;
    assert_int_equal(pleach_sampler_open(&set, &s, &err), PLEACH_ERR_ARGUMENT);
    set = defaults();
    set.top_p = 1.01f;
    assert_int_equal(pleach_sampler_open(&set, &s, &err), PLEACH_ERR_ARGUMENT);
    set = defaults();
    set.repetition_window = -2;
    assert_int_equal(pleach_sampler_open(&set, &s, &err), PLEACH_ERR_ARGUMENT);
}

static void bad_logits_are_refused(void **state)
{
    (void)state;
    pleach_sampling set = defaults();
    pleach_sampler *s;
    pleach_error err;
    int32_t id;
    for (int hot = 0; hot < 2; hot++) {
        set.temperature = hot ? 1 : 0;
        assert_int_equal(pleach_sampler_open(&set, &s, NULL), PLEACH_OK);
        float some[3] = {1, NAN, 2}, none[2] = {-INFINITY, -INFINITY}, one[2] = {-INFINITY, 4};
        float tiny[2] = {-1e30f, 1e30f};
        assert_int_equal(pleach_sample(s, some, 3, NULL, 0, &id, &err), PLEACH_ERR_DATA);
        assert_int_equal(pleach_sample(s, none, 2, NULL, 0, &id, &err), PLEACH_ERR_DATA);
        assert_int_equal(pleach_sample(s, none, 0, NULL, 0, &id, &err), PLEACH_ERR_ARGUMENT);
        for (int i = 0; i < 50; i++) {
            assert_int_equal(pleach_sample(s, one, 2, NULL, 0, &id, &err), PLEACH_OK);
            assert_int_equal(id, 1);
            assert_int_equal(pleach_sample(s, tiny, 2, NULL, 0, &id, &err), PLEACH_OK);
            assert_int_equal(id, 1);
        }
        pleach_sampler_close(s);
    }
    set.temperature = 1e-40f; /* as good as greedy, and finite */
    assert_int_equal(pleach_sampler_open(&set, &s, NULL), PLEACH_OK);
    for (int i = 0; i < 50; i++) assert_in_range(sample_one(s, LOGITS, VOCAB), 1, 2);
    pleach_sampler_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(filters_keep_the_likeliest),
        cmocka_unit_test(top_k_out_of_range_is_off),
        cmocka_unit_test(seeds_decide_everything),
        cmocka_unit_test(penalty_makes_repeats_less_likely),
        cmocka_unit_test(given_ids_become_less_likely),
        cmocka_unit_test(bad_settings_are_refused),
        cmocka_unit_test(bad_logits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
