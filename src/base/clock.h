/* SPDX-License-Identifier: Apache-2.0
 *
 * Seconds on a clock that never goes back; differences mean something. */
#ifndef PL_BASE_CLOCK_H
#define PL_BASE_CLOCK_H

#include <time.h>

static inline double pl_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
