/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool's protocol. A call fills in the job and opens `seats`, one for each thread that may join;
 * it raises `epoch`, on which threads wait, and works itself. When no unit is left it takes back the
 * seats that nobody took and waits for those who had joined. A thread that comes late finds no seat,
 * so nothing waits for threads that the system has not run yet.
 *
 * Waiting is spinning for a short while, which is quicker than the kernel, then sleeping on a futex.
 * Spinning must not take cores from work: there is none in a pool larger than the cores it may use,
 * and a thread that lost its core while it spun sleeps at once for some time after. */
#define _GNU_SOURCE
#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"
#include "threads.h"

enum {
    SPIN_NS = 50 * 1000,      /* longer than the steps between two loops of a layer */
    LOST_NS = 500 * 1000,     /* between two looks at the clock: another thread had the core */
    SLEEPY_NS = 20 * 1000000, /* no spinning for so long after that */
    PAUSES = 16               /* between two looks at the clock */
};

/* A thread's own account of its spinning. */
typedef struct patience {
    int64_t since;  /* when it last had work */
    int64_t sleepy; /* no spinning before this */
} patience;

struct pl_pool {
    int n_workers;
    bool spins;
    pid_t owner; /* the process that has the threads */
    struct pl_products *products;
    pthread_t *workers;

    /* The job; written by the caller while no seat is open. */
    pl_pool_fn *fn;
    void *arg;
    size_t n;

    PL_ALIGNED(PL_ALIGNMENT) atomic_bool busy;
    patience caller;
    PL_ALIGNED(PL_ALIGNMENT) atomic_size_t next; /* unit to hand out */
    PL_ALIGNED(PL_ALIGNMENT) atomic_int seats;   /* open ones; the number taken is the thread's */
    PL_ALIGNED(PL_ALIGNMENT) atomic_uint done;   /* joined threads that have finished; a futex */
    atomic_bool caller_sleeps;
    PL_ALIGNED(PL_ALIGNMENT) atomic_uint epoch;  /* a futex */
    atomic_bool stop;
    PL_ALIGNED(PL_ALIGNMENT) atomic_int sleepers;
};

/* ---- waiting --------------------------------------------------------------------------------- */

static void futex_wait(atomic_uint *word, unsigned value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int threads)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Spins while *word == value; false when that is still so after a while. */
static bool spin(const pl_pool *p, patience *t, atomic_uint *word, unsigned value)
{
    if (!p->spins) return atomic_load(word) != value;
    int64_t last = now_ns();
    if (last < t->sleepy) return atomic_load(word) != value;
    while (last - t->since < SPIN_NS) {
        for (int i = 0; i < PAUSES; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value) return true;
            PL_PAUSE();
        }
        int64_t now = now_ns();
        if (now - last > LOST_NS) {
            t->sleepy = now + SLEEPY_NS;
            break;
        }
        last = now;
    }
    return atomic_load(word) != value;
}

/* ---- working --------------------------------------------------------------------------------- */

static void work(pl_pool *p, int thread)
{
    size_t unit, n = p->n;
    while ((unit = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < n)
        p->fn(p->arg, unit, thread);
}

/* Takes part in the job that is open, if one is. */
static bool join(pl_pool *p)
{
    int seat = atomic_load_explicit(&p->seats, memory_order_relaxed);
    do {
        if (seat == 0) return false;
    } while (!atomic_compare_exchange_weak_explicit(&p->seats, &seat, seat - 1,
                                                    memory_order_acquire, memory_order_relaxed));
    work(p, seat);
    atomic_fetch_add(&p->done, 1);
    if (atomic_load(&p->caller_sleeps)) futex_wake(&p->done, 1);
    return true;
}

static void *worker_main(void *arg)
{
    pl_pool *p = arg;
    patience t = {0};
    unsigned seen = 0;
    while (!atomic_load(&p->stop)) {
        if (join(p)) t.since = now_ns();
        if (!spin(p, &t, &p->epoch, seen)) {
            atomic_fetch_add(&p->sleepers, 1);
            futex_wait(&p->epoch, seen);
            atomic_fetch_sub(&p->sleepers, 1);
        }
        seen = atomic_load(&p->epoch);
    }
    return NULL;
}

/* New epoch; wakes as many sleepers as are wanted beyond the threads that are awake. */
static void call(pl_pool *p, int wanted)
{
    atomic_fetch_add(&p->epoch, 1);
    int asleep = atomic_load(&p->sleepers), more = wanted - (p->n_workers - asleep);
    if (more > 0) futex_wake(&p->epoch, PL_MIN(more, asleep));
}

static void wait_for(pl_pool *p, unsigned joined)
{
    unsigned done;
    if (joined) p->caller.since = now_ns();
    while ((done = atomic_load(&p->done)) != joined) {
        if (spin(p, &p->caller, &p->done, done)) continue;
        atomic_store(&p->caller_sleeps, true);
        futex_wait(&p->done, done);
        atomic_store(&p->caller_sleeps, false);
    }
}

void pl_pool_run_on(pl_pool *p, int threads, size_t n, pl_pool_fn *fn, void *arg)
{
    if ((size_t)threads > n) threads = (int)n;
    if (!p || threads <= 1 || p->n_workers == 0 || atomic_exchange(&p->busy, true)) {
        for (size_t i = 0; i < n; i++) fn(arg, i, 0);
        return;
    }
    int seats = PL_MIN(threads - 1, p->n_workers);
    p->fn = fn;
    p->arg = arg;
    p->n = n;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    atomic_store_explicit(&p->seats, seats, memory_order_release);
    call(p, seats);
    work(p, 0);
    wait_for(p, (unsigned)(seats - atomic_exchange(&p->seats, 0)));
    atomic_store(&p->busy, false);
}

void pl_pool_run(pl_pool *p, size_t n, pl_pool_fn *fn, void *arg)
{
    pl_pool_run_on(p, pl_pool_threads(p), n, fn, arg);
}

/* ---- opening --------------------------------------------------------------------------------- */

int pl_pool_threads(const pl_pool *p) { return p ? p->n_workers + 1 : 1; }

/* Signals are for the program's own threads. */
static void start_workers(pl_pool *p, int wanted)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (p->n_workers < wanted &&
           pthread_create(&p->workers[p->n_workers], NULL, worker_main, p) == 0)
        p->n_workers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

pleach_status pl_pool_open(int threads, pl_pool **out, pleach_error *err)
{
    *out = NULL;
    pl_pool *p = pl_calloc(1, sizeof *p);
    if (!p) return pl_fail_memory(err, "threads", sizeof *p);
    p->workers = pl_alloc((size_t)threads, sizeof *p->workers);
    if (!p->workers) {
        pl_free(p);
        return pl_fail_memory(err, "threads", (size_t)threads * sizeof *p->workers);
    }
    p->owner = getpid();
    p->spins = threads <= pl_default_threads();
    start_workers(p, threads - 1);
    *out = p;
    return PLEACH_OK;
}

void pl_pool_close(pl_pool *p)
{
    if (!p) return;
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->epoch, 1);
    futex_wake(&p->epoch, p->n_workers);
    for (int i = 0; i < p->n_workers && p->owner == getpid(); i++)
        pthread_join(p->workers[i], NULL);
    pl_free(p->workers);
    pl_free(p);
}

void pl_pool_lend(pl_pool *p, struct pl_products *products)
{
    p->products = products;
}

struct pl_products *pl_pool_products(const pl_pool *p)
{
    return p ? p->products : NULL;
}
