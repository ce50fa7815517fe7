/* SPDX-License-Identifier: Apache-2.0
 *
 * The frame of check-kernels: every kernel of one CPU level against the portable one, on the same
 * input, guard areas included, and its speed.
 *
 * A family is one file check_<family>.c with one function
 *
 *   void check_<family>(check *t, const pl_kernels *c, const pl_kernels *isa)
 *
 * named in the list in check.c. It reads
 *
 *   if (!check_begin(t, isa->f != c->f, "f_k%u", k)) return;
 *   for (int round = 0; check_round(t, round, 64); round++) {
 *       check_release(t);
 *       uint8_t *in = check_buffer(t, n, 1), *want = check_buffer(t, m, 1), ...;
 *       check_fill(t, in, n);
 *       memcpy(got, want, m);               // stale output must not leak through
 *       c->f(want, in, n);
 *       isa->f(got, in, n);
 *       check_same(t, got, want, m);
 *   }
 *   check_bench(t, n * 1e-6, "Mw/s") isa->f(got, in, n);
 *   check_end(t);
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

typedef struct check check;
typedef void check_family_fn(check *t, const pl_kernels *c, const pl_kernels *isa);

/* Opens a test of that name. False, and nothing to do, when the filter leaves it out or when the
 * level does not improve the kernel (`improved` false), except at level "c", where the portable
 * kernel meets whatever independent formula the test has. */
bool check_begin(check *t, bool improved, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Prints the verdict and frees the buffers. */
void check_end(check *t);
/* One more round of so many: no difference found so far, and not yet enough of them. */
bool check_round(const check *t, int round, int rounds);
/* No difference found so far in this test. */
bool check_good(const check *t);
/* True at level "c": the place to compare the portable kernel with an independent formula. */
bool check_is_reference(const check *t);

/* True when speeds are wanted and nothing has failed. */
bool check_benches(const check *t);

/* Random numbers from the printed seed. check_below: 0 .. n-1. */
uint64_t check_rnd(check *t);
uint32_t check_below(check *t, uint32_t n);
double check_unit(check *t);   /* [0, 1) */
double check_normal(check *t); /* N(0, 1) */

/* `bytes` bytes of random contents between two guard areas; the start is misaligned by a random
 * multiple of `align` (a power of two, 1 to 64: what the kernel's contract promises). */
void *check_buffer(check *t, size_t bytes, size_t align);
/* Memory that ends, or begins, where reading on is a fault. One at a time, at most 1 MiB. */
uint8_t *check_fenced(check *t, size_t bytes);
/* Frees all buffers of this test, after checking their guards. */
void check_release(check *t);

/* Fills with one of: random bytes, all 0, all 1, one bit set. */
void check_fill(check *t, void *p, size_t bytes);
/* Fills with one of: N(0,1), zeros, +-0, denormals, one huge value, alternating +-max. */
void check_fill_f32(check *t, float *p, size_t n);

/* Fails the test unless the bytes agree; the guards of all buffers are checked too. */
bool check_same(check *t, const void *got, const void *want, size_t bytes);
/* Fails unless |got[i] - want[i]| <= bound[i] for every i; NaN never passes. */
bool check_close(check *t, const float *got, const double *want, const double *bound, size_t n);
/* Fails the test with a text of one's own. */
void check_fail(check *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* True with --bench and no difference found so far. */
bool check_benching(const check *t);

/* check_bench(t, units, "Gw/s") statement;
 * With --bench and a passing test: repeats the statement and prints the best units per second. */
typedef struct check_timer {
    check *t;
    double units, begun, best, deadline;
    const char *label;
    int runs;
} check_timer;
check_timer check_timer_start(check *t, double units, const char *label);
bool check_timer_next(check_timer *timer);
#define check_bench(t, units, label)                                                               \
    for (check_timer timer_ = check_timer_start((t), (units), (label)); check_timer_next(&timer_);)

/* Adds to the line that a passing test prints. */
void check_note(check *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* One per family. */
check_family_fn check_rotate, check_trellis, check_viterbi, check_product, check_vector,
    check_float, check_attention, check_turboquant, check_packed, check_delta;

#endif
