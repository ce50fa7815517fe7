/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools for tests: one for each number of threads, made when first asked for and kept. */
#ifndef PL_TESTS_POOLS_H
#define PL_TESTS_POOLS_H

#include <stdlib.h>

#include "base/pool.h"

enum { MOST_TEST_THREADS = 16 };

static inline pl_pool *pool_of(int threads)
{
    static pl_pool *pools[MOST_TEST_THREADS + 1];
    if (threads > 1 && !pools[threads] && pl_pool_open(threads, &pools[threads], NULL)) abort();
    return pools[threads];
}

#endif
