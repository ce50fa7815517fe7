/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool: every unit once, indices of threads apart, calls from several threads and from within
 * units, sleeping and waking, forks, and threads that the system refuses. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/pool.h"

#if defined(__has_feature) /* clang's names for what gcc defines */
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__
#elif __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__
#endif
#endif

enum { MOST_UNITS = 1000, MOST_THREADS = 64 };

static pl_pool *open_pool(int threads)
{
    pl_pool *p;
    assert_int_equal(pl_pool_open(threads, &p, NULL), PLEACH_OK);
    return p;
}

static void nap(long microseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000}, NULL);
}

/* Plain memory: that the pool orders what is written and read is for ThreadSanitizer to see. */
typedef struct counts {
    unsigned units[MOST_UNITS], given[MOST_UNITS];
    int most; /* threads that the call may use */
    atomic_int busy[MOST_THREADS], wrong;
} counts;

static void count_unit(void *arg, size_t unit, int thread)
{
    counts *c = arg;
    if (thread < 0 || thread >= c->most || atomic_exchange(&c->busy[thread], 1)) {
        atomic_fetch_add(&c->wrong, 1);
        return;
    }
    c->units[unit] += c->given[unit];
    atomic_store(&c->busy[thread], 0);
}

static void check_call(pl_pool *p, int threads, size_t n)
{
    counts c = {.most = PL_MAX(threads, 1)};
    for (int call = 1; call <= 3; call++) {
        for (size_t i = 0; i < n; i++) c.given[i] = (unsigned)i + 1;
        pl_pool_run_on(p, threads, n, count_unit, &c);
        for (size_t i = 0; i < MOST_UNITS; i++)
            if (c.units[i] != (i < n ? (unsigned)call * ((unsigned)i + 1) : 0)) atomic_store(&c.wrong, 1);
    }
    if (atomic_load(&c.wrong)) fail_msg("%d threads, %zu units: not each once", threads, n);
}

static void test_every_unit_once(void **state)
{
    static const size_t units[] = {0, 1, 2, 3, 7, 64, MOST_UNITS};
    (void)state;
    for (int threads = 1; threads <= 9; threads += threads < 4 ? 1 : 5) {
        pl_pool *p = open_pool(threads);
        assert_int_equal(pl_pool_threads(p), threads);
        for (int most = 1; most <= threads; most++)
            for (size_t i = 0; i < PL_COUNT(units); i++) check_call(p, most, units[i]);
        pl_pool_close(p);
    }
    assert_int_equal(pl_pool_threads(NULL), 1);
    check_call(NULL, 1, 10);
    pl_pool_close(NULL);
}

/* Threads are met spinning, falling asleep and asleep. */
static void test_pauses(void **state)
{
    pl_pool *p = open_pool(3);
    counts c = {.most = 3};
    (void)state;
    for (size_t i = 0; i < MOST_UNITS; i++) c.given[i] = 1;
    for (unsigned call = 0; call < 2000; call++) {
        pl_pool_run(p, 5, count_unit, &c);
        if (call % 4 == 0) nap(call % 7 * 20);
    }
    for (size_t i = 0; i < 5; i++) assert_int_equal(c.units[i], 2000);
    assert_int_equal(atomic_load(&c.wrong), 0);
    pl_pool_close(p);
}

static void test_open_and_close(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        pl_pool *p = open_pool(1 + i % 5);
        if (i % 3) check_call(p, 1 + i % 5, 10);
        if (i % 7 == 0) nap(100);
        pl_pool_close(p);
    }
}

/* ---- calls at once --------------------------------------------------------------------------- */

typedef struct outer {
    pl_pool *p;
    counts inner[20];
} outer;

static void call_within(void *arg, size_t unit, int thread)
{
    outer *o = arg;
    counts *c = &o->inner[unit];
    (void)thread;
    c->most = 1; /* computed by this thread alone */
    for (size_t i = 0; i < 50; i++) c->given[i] = 1;
    pl_pool_run(o->p, 50, count_unit, c);
}

static void test_nested(void **state)
{
    static outer o;
    (void)state;
    o.p = open_pool(4);
    pl_pool_run(o.p, PL_COUNT(o.inner), call_within, &o);
    for (size_t u = 0; u < PL_COUNT(o.inner); u++) {
        assert_int_equal(atomic_load(&o.inner[u].wrong), 0);
        for (size_t i = 0; i < 50; i++) assert_int_equal(o.inner[u].units[i], 1);
    }
    pl_pool_close(o.p);
}

static void *call_often(void *arg)
{
    pl_pool *p = arg;
    size_t failures = 0;
    for (unsigned call = 0; call < 300; call++) {
        counts c = {.most = 3};
        for (size_t i = 0; i < 40; i++) c.given[i] = call;
        pl_pool_run(p, 40, count_unit, &c);
        for (size_t i = 0; i < 40; i++) failures += c.units[i] != call;
        failures += atomic_load(&c.wrong) != 0;
    }
    return (void *)(uintptr_t)failures;
}

static void test_callers_at_once(void **state)
{
    pthread_t callers[4];
    pl_pool *p = open_pool(3);
    (void)state;
    for (size_t i = 0; i < PL_COUNT(callers); i++)
        assert_int_equal(pthread_create(&callers[i], NULL, call_often, p), 0);
    for (size_t i = 0; i < PL_COUNT(callers); i++) {
        void *failures;
        pthread_join(callers[i], &failures);
        assert_null(failures);
    }
    pl_pool_close(p);
}

/* ---- processes ------------------------------------------------------------------------------- */

static int count_ten(pl_pool *p)
{
    counts c = {.most = MOST_THREADS};
    for (size_t i = 0; i < 10; i++) c.given[i] = 1;
    pl_pool_run(p, 10, count_unit, &c);
    int done = 0;
    for (size_t i = 0; i < 10; i++) done += c.units[i] == 1;
    return done == 10 ? 0 : 1;
}

static void check_child(pid_t child)
{
    int status;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_fork(void **state)
{
    pl_pool *p = open_pool(4);
    (void)state;
    assert_int_equal(count_ten(p), 0);
    pid_t child = fork();
    if (child == 0) {
        int wrong = count_ten(p);
        pl_pool_close(p);
#ifndef __SANITIZE_THREAD__ /* it forbids threads here */
        pl_pool *own;
        wrong |= pl_pool_open(3, &own, NULL) != PLEACH_OK || count_ten(own);
        pl_pool_close(own);
#endif
        _exit(wrong);
    }
    check_child(child);
    assert_int_equal(count_ten(p), 0);
    pl_pool_close(p);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they take what they like */
/* Room for some stacks, not for 64. */
static int run_in_little_memory(void)
{
    unsigned long pages = 0;
    pl_pool *p;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%lu", &pages) != 1) return 1;
    fclose(f);
    rlim_t bytes = pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)40 << 20);
    if (setrlimit(RLIMIT_AS, &(struct rlimit){bytes, bytes})) return 2;
    if (pl_pool_open(MOST_THREADS, &p, NULL) != PLEACH_OK) return 3;
    if (pl_pool_threads(p) >= MOST_THREADS) return 4;
    int wrong = count_ten(p);
    pl_pool_close(p);
    return wrong ? 5 : 0;
}

static void test_threads_refused(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) _exit(run_in_little_memory());
    check_child(child);
}
#else
static void test_threads_refused(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_unit_once), cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_open_and_close),  cmocka_unit_test(test_nested),
        cmocka_unit_test(test_callers_at_once), cmocka_unit_test(test_fork),
        cmocka_unit_test(test_threads_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
