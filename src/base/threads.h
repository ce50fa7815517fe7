/* SPDX-License-Identifier: Apache-2.0
 *
 * How many threads this process may use. The threads themselves are pool.h's. */
#ifndef PL_BASE_THREADS_H
#define PL_BASE_THREADS_H

#define PL_MAX_THREADS 256

/* Cores in the affinity mask, lowered to the cgroup's CPU quota (rounded up); at least 1. */
int pl_default_threads(void);

#endif
