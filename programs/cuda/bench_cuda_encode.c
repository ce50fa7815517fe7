/* SPDX-License-Identifier: Apache-2.0
 *
 * The trellis search: blocks of 256 Gaussian numbers at the scale that is best for them, many at
 * once and the few of one feature of 4096 outputs. */
#include <math.h>

#include "base/memory.h"
#include "base/random.h"
#include "bench_cuda.h"
#include "cuda/viterbi.h"

enum { T = 256, MANY = 65536, MANY_WIDE = 4224, FEW = 16 };

typedef struct encode {
    bench_cuda *b;
    pl_cuda_viterbi s;
    void *src, *scales, *codes, *sums, *scratch;
} encode;

static void queue_search(void *user, int i)
{
    const encode *e = user;
    (void)i;
    pl_cuda_viterbi_run(e->b->d, &e->s, e->scratch);
}

/* n blocks of N(0, 1) over the factor that suits k. */
static pleach_status fill(encode *e, size_t n, uint32_t k, pleach_error *err)
{
    static const float factor[] = {1, .92f, .88f};
    uint64_t state = 1;
    float *x = pl_alloc(n * T, sizeof *x);
    if (!x) return pl_fail_memory(err, "numbers", n * T * sizeof *x);
    for (size_t i = 0; i < n * T; i++)
        x[i] = factor[k - 2] * (float)(sqrt(-2 * log(1 - pl_random_unit(&state))) *
                                       cos(6.283185307179586 * pl_random_unit(&state)));
    pleach_status status = pl_cuda_upload(e->b->d, e->src, x, n * T * sizeof *x, err);
    for (size_t i = 0; i < n; i++) ((uint16_t *)(void *)x)[i] = 0x3c00; /* 1 */
    if (status == PLEACH_OK) status = pl_cuda_upload(e->b->d, e->scales, x, 2 * n, err);
    pl_free(x);
    return status;
}

static pleach_status prepare(encode *e, size_t n, uint32_t k, uint32_t L, pleach_error *err)
{
    pl_cuda *d = e->b->d;
    PL_TRY(pl_cuda_alloc(d, &e->src, n * T * sizeof(float), "numbers", err));
    PL_TRY(pl_cuda_alloc(d, &e->scales, n * sizeof(uint16_t), "scales", err));
    PL_TRY(pl_cuda_alloc(d, &e->codes, n * T * k / 8, "codes", err));
    PL_TRY(pl_cuda_alloc(d, &e->sums, n * sizeof(pl_cuda_block_sums), "sums", err));
    PL_TRY(pl_cuda_alloc(d, &e->scratch, pl_cuda_viterbi_scratch(d, k, L, T, n), "the search",
                         err));
    PL_TRY(fill(e, n, k, err));
    e->s = (pl_cuda_viterbi){.k = k, .L = L, .T = T, .rows = n, .blocks = 1, .src = e->src,
                             .src_stride = T, .scales = e->scales, .codes = e->codes,
                             .code_stride = T * k / 32, .sums = e->sums};
    return PLEACH_OK;
}

static pleach_status measure(bench_cuda *b, size_t n, uint32_t k, uint32_t L, pleach_error *err)
{
    encode e = {.b = b};
    double seconds = 0;
    pleach_status status = prepare(&e, n, k, L, err);
    if (status == PLEACH_OK) status = bench_cuda_measure(b, queue_search, &e, 1, &seconds, err);
    if (status == PLEACH_OK)
        bench_cuda_add(b, (bench_row){.what = n == FEW ? "encode, 1 row" : "encode", .axis = 1,
                                      .bits = (int)k, .state_bits = (int)L, .M = n,
                                      .seconds = seconds, .units = (double)n * T * 1e-6, .unit = "M weights/s"});
    pl_cuda_free(e.src);
    pl_cuda_free(e.scales);
    pl_cuda_free(e.codes);
    pl_cuda_free(e.sums);
    pl_cuda_free(e.scratch);
    return status;
}

pleach_status bench_cuda_encode(bench_cuda *b, pleach_error *err)
{
    PL_TRY(pl_cuda_viterbi_init(b->d, err));
    for (uint32_t k = 2; k <= 4; k++) PL_TRY(measure(b, MANY, k, 12, err));
    for (uint32_t k = 2; k <= 4; k++) PL_TRY(measure(b, MANY_WIDE, k, 16, err));
    for (uint32_t k = 2; k <= 4; k++) PL_TRY(measure(b, FEW, k, 12, err));
    return PLEACH_OK;
}
