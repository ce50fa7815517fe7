/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of pleach bench share. */
#ifndef BENCH_H
#define BENCH_H

#include <stddef.h>

#include "pleach/session.h"

enum { MOST_REPEATS = 100 };

/* Units per second over the repeats of a measurement. */
typedef struct rate {
    double best, median;
} rate;

/* Sorts the seconds of the repeats. */
rate rate_of(double *seconds, size_t repeats, double amount);

/* Bytes per second that the threads together read from a buffer larger than any cache. Returns an
 * exit status, with a line when it fails. */
int measure_reading(int threads, size_t repeats, rate *roof);
/* The same for writing, by one thread and memset. */
int measure_writing(size_t repeats, rate *roof);

/* Tokens per second of a model's linear layers alone. */
pleach_status measure_linears(const pleach_model *m, size_t tokens, size_t repeats, rate *out,
                              pleach_error *err);

/* Tokens per second together of so many requests side by side, greedy at temperature 0. */
pleach_status measure_streams(const pleach_model *m, const pleach_session_settings *session,
                              size_t streams, size_t tokens, float temperature, size_t repeats,
                              rate *out, pleach_error *err);
/* First tokens per second of a request of `prefix` tokens and 16 of its own: computed whole, and
 * where others that began alike came before. */
pleach_status measure_prefix(const pleach_model *m, const pleach_session_settings *session,
                             size_t prefix, size_t repeats, rate *without, rate *with,
                             pleach_error *err);

typedef struct bench_kernels_options {
    size_t repeats;
    int threads;     /* 0: all */
    const char *cpu; /* a level of this machine, or NULL */
    int json;
} bench_kernels_options;

/* Measures and prints; an exit status. */
int bench_kernels(const bench_kernels_options *options);
/* The same of the kernels of a device, "cuda" or "cuda:1"; there with PLEACH_CUDA alone. */
int bench_kernels_cuda(const char *device, int json);
/* Measures where one way of computing overtakes another (kernels/crossovers.h). */
int bench_tune(const bench_kernels_options *options);

#endif
