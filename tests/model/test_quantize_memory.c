/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits of memory that are asked for: each is kept or refused. Runs are processes of their own.
 * test_quantize_limit.c has what the whole command promises and takes. */
#include "wide_model.h"

#include <sys/resource.h>
#include <sys/wait.h>

static pleach_quantize_settings settings(void)
{
    pleach_quantize_settings s;
    pleach_quantize_settings_defaults(&s);
    s.calib = at("calib.txt");
    s.calib_tokens = TOKENS;
    s.fisher = 0;
    s.threads = 2;
    return s;
}

static uint64_t promised(const pleach_quantize_settings *s)
{
    pleach_quantize_summary summary;
    must(pleach_quantize_plan(model.path, s, &summary, &err));
    uint64_t bytes = summary.peak_memory;
    pleach_quantize_summary_free(&summary);
    return bytes;
}

/* The largest resident set of a run, in bytes. */
static uint64_t taken(const pleach_quantize_settings *s, const char *out)
{
    struct rusage usage;
    int status;
    pid_t child = fork();
    if (child == 0) {
        pleach_error err = {0};
        if (pleach_quantize(model.path, out, s, NULL, &err) == PLEACH_OK) _exit(0);
        fprintf(stderr, "%s\n", err.message);
        _exit(1);
    }
    assert_int_equal(wait4(child, &status, 0, &usage), child);
    assert_int_equal(status, 0);
    return (uint64_t)usage.ru_maxrss * 1024;
}

static void assert_kept(uint64_t bytes, uint64_t promise)
{
    print_message("%.1f MB taken, %.1f MB promised\n", (double)bytes * 1e-6,
                  (double)promise * 1e-6);
#ifndef __SANITIZE_ADDRESS__
    if ((double)bytes > 1.1 * (double)promise) fail_msg("more was taken than promised");
#endif
}

/* As little as will do works; half of that is refused, and nothing is begun. */
static void limits_are_kept(void **state)
{
    (void)state;
    pleach_quantize_settings s = settings();
    pleach_error err = {0};
    unsigned long long need;
    s.memory = 1;
    assert_int_equal(pleach_quantize(model.path, at("little"), &s, NULL, &err), PLEACH_ERR_LIMIT);
    assert_int_equal(sscanf(err.message, "--memory: %*f GB (%llu bytes) are needed", &need), 1);
    print_message("%.1f MB needed\n", (double)need * 1e-6);
    s.memory = need / 2;
    assert_int_equal(pleach_quantize(model.path, at("little"), &s, NULL, &err), PLEACH_ERR_LIMIT);
    assert_false(pl_exists(at("little")));
    assert_false(pl_exists(at("little.partial")));
    s.memory = need;
    assert_true(promised(&s) <= need);
    assert_kept(taken(&s, at("little")), need);
}

/* The same without calibration: modules are coded one at a time where two do not fit. */
static void limits_of_coding_are_kept(void **state)
{
    (void)state;
    pleach_quantize_settings s = settings();
    pleach_quantize_summary plan;
    pleach_error err = {0};
    unsigned long long need;
    s.calib = "none";
    uint64_t both = promised(&s);
    s.memory = 1;
    assert_int_equal(pleach_quantize_plan(model.path, &s, &plan, &err), PLEACH_ERR_LIMIT);
    assert_int_equal(sscanf(err.message, "--memory: %*f GB (%llu bytes) are needed", &need), 1);
    assert_true(need < both);
    s.memory = both;
    assert_int_equal(promised(&s), both);
    s.memory = both - 1;
    assert_int_equal(promised(&s), need);
    assert_kept(taken(&s, at("coded")), need);
    s.memory = need - 1;
    assert_int_equal(pleach_quantize(model.path, at("none"), &s, NULL, &err), PLEACH_ERR_LIMIT);
    assert_false(pl_exists(at("none.partial")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(limits_of_coding_are_kept),
    };
    return cmocka_run_group_tests(tests, wide_setup, wide_teardown);
}
