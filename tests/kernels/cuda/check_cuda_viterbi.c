/* SPDX-License-Identifier: Apache-2.0
 *
 * The trellis search on the device: codes that stand for the values and sums reported, the squared
 * error against the exact search's, the same bits alone and in company, and nothing written
 * outside. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "check_cuda.h"
#include "codec/trellis.h"
#include "codec/viterbi.h"
#include "cuda/viterbi.h"

enum { KINDS = 8 };

/* One search of rows x blocks blocks and what comes of it. */
typedef struct search {
    pl_cuda_viterbi s;
    pleach_trellis shape; /* of one block */
    size_t n, words;      /* blocks; words of one */
    float *src, *values;  /* host, as on the device */
    uint16_t *scales;
    uint32_t *codes;
    pl_cuda_block_sums *sums;
} search;

/* Numbers of a block in units of its scale. */
static void fill_block(check *t, float *x, size_t n, uint32_t kind)
{
    for (size_t i = 0; i < n; i++) {
        double g = check_normal(t);
        x[i] = (float)(kind == 1   ? 0
                       : kind == 2 ? (i & 2 ? 1e30 : -1e30)
                       : kind == 3 ? (i & 1 ? 3.9 : -3.9)
                       : kind == 4 ? g / (check_unit(t) + .05)
                       : kind == 5 ? 1e-30 * g
                       : kind == 6 ? 3.5
                                   : .88 * g);
    }
}

static void make(check *t, search *s, uint32_t k, uint32_t L, uint32_t T, size_t rows,
                 size_t blocks, bool nasty)
{
    const size_t cols = blocks * T;
    *s = (search){.shape = {.bits = k, .state_bits = L, .block = T, .axis = 1, .rows = 1,
                            .cols = T},
                  .n = rows * blocks, .words = (size_t)T * k / 32};
    s->s = (pl_cuda_viterbi){.k = k, .L = L, .T = T, .rows = rows, .blocks = blocks,
                             .src_stride = cols + 4 * check_below(t, 3),
                             .code_stride = blocks * s->words + check_below(t, 3),
                             .value_stride = cols + check_below(t, 5)};
    s->src = check_buffer(t, 4 * rows * s->s.src_stride, 4);
    s->values = check_buffer(t, 4 * rows * s->s.value_stride, 4);
    s->codes = check_buffer(t, 4 * rows * s->s.code_stride, 4);
    s->scales = check_buffer(t, 2 * rows, 2);
    s->sums = check_buffer(t, s->n * sizeof *s->sums, 8);
    for (size_t r = 0; r < rows; r++) {
        const float scale = (float)pow(2, 20 * check_unit(t) - 14);
        s->scales[r] = nasty && r % 7 == 3 ? 0 : pl_f32_to_fp16(scale);
        for (size_t i = 0; i < s->s.src_stride; i++) s->src[r * s->s.src_stride + i] = 0;
        for (size_t b = 0; b < blocks; b++) {
            float *x = s->src + r * s->s.src_stride + b * T;
            fill_block(t, x, T, nasty ? check_below(t, KINDS) : 0);
            for (uint32_t i = 0; i < T; i++) x[i] *= pl_fp16_to_f32(s->scales[r]);
        }
    }
}

/* On the device; scratch is the least that may be given. */
static void run(check *t, pl_cuda *d, search *s, bool in_place)
{
    pl_cuda_viterbi on = s->s;
    const size_t value_bytes = 4 * on.rows * (in_place ? on.src_stride : on.value_stride);
    on.src = check_cuda_copy(t, d, s->src, 4 * on.rows * on.src_stride);
    on.scales = check_cuda_copy(t, d, s->scales, 2 * on.rows);
    uint32_t *codes = check_cuda_copy(t, d, s->codes, 4 * on.rows * on.code_stride);
    float *values = in_place ? (float *)(uintptr_t)on.src
                             : check_cuda_copy(t, d, s->values, value_bytes);
    pl_cuda_block_sums *sums = check_cuda_buffer(t, d, s->n * sizeof *sums);
    if (in_place) on.value_stride = s->s.value_stride = on.src_stride;
    on.codes = codes;
    on.values = values;
    on.sums = sums;
    void *scratch =
        check_cuda_buffer(t, d, pl_cuda_viterbi_scratch(d, on.k, on.L, on.T, on.rows * on.blocks));
    pl_cuda_viterbi_run(d, &on, scratch);
    if (in_place) s->values = check_buffer(t, value_bytes, 4);
    check_cuda_fetch(t, d, s->codes, codes, 4 * on.rows * on.code_stride);
    check_cuda_fetch(t, d, s->values, values, value_bytes);
    check_cuda_fetch(t, d, s->sums, sums, s->n * sizeof *sums);
    check_cuda_release(t, d);
}

static const uint32_t *codes_of(const search *s, size_t i)
{
    return s->codes + i / s->s.blocks * s->s.code_stride + i % s->s.blocks * s->words;
}

static const float *numbers_of(const search *s, size_t i)
{
    return s->src + i / s->s.blocks * s->s.src_stride + i % s->s.blocks * s->s.T;
}

static void check_zero_row(check *t, const search *s, size_t i, const float *values)
{
    for (size_t w = 0; w < s->words; w++)
        if (codes_of(s, i)[w] != UINT32_MAX) check_fail(t, "block %zu: scale 0, other codes", i);
    for (uint32_t j = 0; j < s->s.T; j++)
        if (values[j] != 0) check_fail(t, "block %zu: scale 0, values of %g", i, values[j]);
    if (s->sums[i].wy != 0 || s->sums[i].yy != 0) check_fail(t, "block %zu: scale 0, sums", i);
}

/* Values and sums are those of the codes. Returns the squared error in units of the scale. */
static double check_block(check *t, const search *s, size_t i)
{
    uint16_t states[PL_TRELLIS_MAX_BLOCK];
    float want[PL_TRELLIS_MAX_BLOCK];
    const uint32_t T = s->s.T;
    const uint16_t scale = s->scales[i / s->s.blocks];
    const float *x = numbers_of(s, i);
    const float *values = s->values + i / s->s.blocks * s->s.value_stride + i % s->s.blocks * T;
    double wy = 0, size = 0, error = 0;
    int64_t yy = 0;
    if (scale == 0) {
        check_zero_row(t, s, i, values);
        return 0;
    }
    pl_trellis_states(&s->shape, states, codes_of(s, i));
    pl_trellis_decode_states(want, states, T, 1);
    for (uint32_t j = 0; j < T; j++) {
        const int32_t y = pl_trellis_y(states[j]);
        const double e = x[j] / (double)pl_fp16_to_f32(scale) - y / (double)PL_TRELLIS_DIVISOR;
        wy += (double)x[j] * y;
        size += fabs((double)x[j] * y);
        yy += y * y;
        error += e * e;
    }
    check_same(t, values, want, 4 * T);
    if (s->sums[i].yy != yy) check_fail(t, "block %zu: yy %lld, expected %lld", i,
                                        (long long)s->sums[i].yy, (long long)yy);
    if (!(fabs(s->sums[i].wy - wy) <= 1e-13 * size))
        check_fail(t, "block %zu: wy %.17g, expected %.17g", i, s->sums[i].wy, wy);
    return error;
}

static double exact_error(check *t, const search *s, size_t i, void *scratch)
{
    float x[PL_TRELLIS_MAX_BLOCK];
    uint16_t states[PL_TRELLIS_MAX_BLOCK];
    uint32_t words[PL_TRELLIS_MAX_WORDS];
    double error = 0;
    (void)t;
    for (uint32_t j = 0; j < s->s.T; j++)
        x[j] = numbers_of(s, i)[j] / pl_fp16_to_f32(s->scales[i / s->s.blocks]);
    pl_viterbi_exact(states, x, s->s.k, s->s.L, s->s.T, scratch);
    pl_trellis_pack(&s->shape, words, states);
    pl_trellis_states(&s->shape, states, words);
    for (uint32_t j = 0; j < s->s.T; j++) {
        const double e = x[j] - pl_trellis_y(states[j]) / (double)PL_TRELLIS_DIVISOR;
        error += e * e;
    }
    return error;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void check_shapes(check *t, pl_cuda *d, uint32_t k, uint32_t L)
{
    search s;
    for (int round = 0; check_round(t, round, L == 16 ? 8 : 24); round++) {
        const uint32_t T = 32 * (1 + (round % 3 ? check_below(t, 32) : check_below(t, 8)));
        const size_t rows = 1 + check_below(t, 9), blocks = 1 + check_below(t, round % 4 ? 4 : 40);
        check_release(t);
        make(t, &s, k, L, T, rows, blocks, true);
        run(t, d, &s, round % 2);
        for (size_t i = 0; i < s.n && check_good(t); i++) check_block(t, &s, i);
    }
}

/* Blocks of both kernels, few and many, against the exact search; the first are searched again
 * among others. */
static void check_error(check *t, pl_cuda *d, uint32_t k, uint32_t L)
{
    const size_t some = L == 16 ? 6 : 96, many = L == 16 ? 6 : (size_t)d->sms * 5;
    void *scratch = malloc(pl_viterbi_exact_scratch(L, 256));
    double ours = 0, exact = 0;
    search few, all;
    if (!scratch) abort();
    check_release(t);
    make(t, &all, k, L, 256, many, 1, false);
    few = all;
    few.s.rows = few.n = some;
    few.codes = check_buffer(t, 4 * some * few.s.code_stride, 4);
    few.values = check_buffer(t, 4 * some * few.s.value_stride, 4);
    few.sums = check_buffer(t, some * sizeof *few.sums, 8);
    run(t, d, &few, false);
    run(t, d, &all, false);
    for (size_t i = 0; i < some && check_good(t); i++) {
        ours += check_block(t, &few, i);
        exact += exact_error(t, &few, i, scratch);
        if (memcmp(codes_of(&few, i), codes_of(&all, i), 4 * few.words))
            check_fail(t, "block %zu: other codes in company", i);
    }
    if (check_good(t)) check_note(t, "error / exact %.5f", ours / exact);
    if (!(ours <= (L == 16 ? 1.01 : 1.002) * exact))
        check_fail(t, "error %.5f times the exact search's", ours / exact);
    free(scratch);
}

typedef struct bench {
    pl_cuda *d;
    pl_cuda_viterbi s;
    void *scratch;
} bench;

static void queue(void *user, int i)
{
    const bench *b = user;
    (void)i;
    pl_cuda_viterbi_run(b->d, &b->s, b->scratch);
}

static void measure(check *t, pl_cuda *d, uint32_t k, uint32_t L, size_t n)
{
    search s;
    if (!check_benching(t)) return;
    check_release(t);
    make(t, &s, k, L, 256, n, 1, false);
    bench b = {d, s.s, NULL};
    b.s.src = check_cuda_copy(t, d, s.src, 4 * n * s.s.src_stride);
    b.s.scales = check_cuda_copy(t, d, s.scales, 2 * n);
    b.s.codes = check_cuda_buffer(t, d, 4 * n * s.s.code_stride);
    b.s.sums = check_cuda_buffer(t, d, n * sizeof *s.sums);
    b.scratch = check_cuda_buffer(t, d, pl_cuda_viterbi_scratch(d, k, L, 256, n));
    check_cuda_bench(t, d, queue, &b, 1, 256e-6 * (double)n, "M weights/s");
    check_cuda_release(t, d);
}

void check_cuda_viterbi(check *t, const pl_kernels *c, pl_cuda *d)
{
    pleach_error err;
    (void)c;
    if (pl_cuda_viterbi_init(d, &err) != PLEACH_OK) abort();
    for (uint32_t L = 12; L <= 16; L += 4)
        for (uint32_t k = 2; k <= 4; k++) {
            if (!check_begin(t, true, "viterbi_k%u_l%u", k, L)) continue;
            check_shapes(t, d, k, L);
            check_error(t, d, k, L);
            measure(t, d, k, L, L == 16 ? 1056 : 65536);
            if (L == 12) measure(t, d, k, L, 16);
            check_end(t);
        }
}
