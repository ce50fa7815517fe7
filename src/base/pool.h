/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool of threads that stay alive between the loops they share.
 *
 *     static void scale_row(void *arg, size_t row, int thread) { ... }
 *     pl_pool_run(pool, rows, scale_row, &job);
 *
 * A loop's units are handed out one by one to whichever thread is free; a result must not depend on
 * who computed it. NULL is a pool of the calling thread alone. */
#ifndef PL_BASE_POOL_H
#define PL_BASE_POOL_H

#include <stddef.h>

#include "error.h"

typedef struct pl_pool pl_pool;

/* Computes unit `unit`. thread is below pl_pool_threads and differs between the units that one call
 * of pl_pool_run has in work at a time: it picks the scratch memory of that call. */
typedef void pl_pool_fn(void *arg, size_t unit, int thread);

/* A pool of `threads` (1 to PL_MAX_THREADS) that counts its caller: one less are started. When the
 * system gives fewer, the pool is smaller. */
pleach_status pl_pool_open(int threads, pl_pool **out, pleach_error *err);
/* Ends the threads; no call may be under way. Accepts NULL. */
void pl_pool_close(pl_pool *p);

/* The most threads that a call uses; 1 for NULL. Constant. */
int pl_pool_threads(const pl_pool *p);

/* fn(arg, u, thread) once for each u < n, in no certain order; returns when all are done. What the
 * caller wrote before is seen by the units, and what they wrote by the caller.
 *
 * A pool serves one call at a time: one made meanwhile by another thread, or from within a unit,
 * computes its units on its own thread, in order. Nobody is waited for who did not begin: when the
 * other threads get no core, the caller does the work. So does it in a forked child, which has none
 * of its parent's threads; a child of a unit that was under way in another thread does so too. */
void pl_pool_run(pl_pool *p, size_t n, pl_pool_fn *fn, void *arg);
/* The same on at most `threads` threads, the caller's included. */
void pl_pool_run_on(pl_pool *p, int threads, size_t n, pl_pool_fn *fn, void *arg);

/* A device for large products (matrix.h), which goes with the pool that they are given: borrowed,
 * NULL for none. Set while no product is under way. */
struct pl_products;
void pl_pool_lend(pl_pool *p, struct pl_products *products);
struct pl_products *pl_pool_products(const pl_pool *p); /* NULL for NULL */

#endif
