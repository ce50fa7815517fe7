/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layers to measure: several matrices of one shape with random codes, which are as good as
 * any, read one after another from a buffer that no cache holds. */
#ifndef BENCH_LAYERS_H
#define BENCH_LAYERS_H

#include "model/linear.h"

enum {
    WIDE = 17408, /* a feed-forward layer of a 27B model */
    NARROW = 5120,
    MOST_M = 512,           /* activation rows */
    CODE_BYTES = 384 << 20, /* larger than any cache */
    COPIES = 24             /* most matrices in it */
};

/* What all measurements share: the numbers they read and write. */
typedef struct bench_memory {
    pl_compute compute;
    size_t repeats;
    uint8_t *codes;    /* [CODE_BYTES], random */
    uint16_t *scales;  /* [WIDE] fp16 near 0.01 */
    float *x, *y, *y2; /* [MOST_M][WIDE] each */
    uint8_t *scratch;
    size_t scratch_size;
} bench_memory;

pleach_status open_bench_memory(bench_memory *b, size_t repeats, unsigned cpu, pleach_error *err);
void close_bench_memory(bench_memory *b); /* accepts a zeroed one */

typedef void run_fn(void *arg);

/* The best of some runs: `repeats`, but no more than a second's worth. */
double best_seconds(const bench_memory *b, run_fn *run, void *arg);

typedef struct layers {
    bench_memory *memory;
    size_t n, next, M;
    pl_tensor weight[COPIES], scales; /* of affine weights: the biases too */
    pl_linear linear[COPIES];
} layers;

/* Layers like `shape`, `bytes` of weights each. Scales and biases of affine ones are what y2 holds:
 * zeros, until it is written. */
pleach_status open_layers(layers *l, bench_memory *b, const pl_weight *shape, size_t bytes,
                          pleach_error *err);
void close_layers(layers *l);
/* Scratch for up to M rows, grown as needed. */
pleach_status reserve_scratch(bench_memory *b, const layers *l, size_t M, pleach_error *err);

pl_weight trellis_weight(size_t out, size_t in, int axis, int bits, int state_bits);

/* Each applies the next of the layers (or the next two) to M rows; arg is the layers. */
void run_layer(void *arg);
void run_two(void *arg);
void run_swiglu(void *arg);

#endif
