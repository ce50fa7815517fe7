/* SPDX-License-Identifier: Apache-2.0
 *
 * pleach bench kernels --device cuda: every kernel of the device beside the memory and bf16. */
#include "bench_cuda.h"

#include <stdio.h>
#include <string.h>

#include "../bench.h"
#include "../console.h"
#include "base/memory.h"
#include "base/random.h"
#include "cuda/read.h"

enum { UPLOAD = 64 << 20, WORKSPACE = 32 << 20, CALLS = 24 };

static bench_cuda_part *const parts[] = {
    bench_cuda_products,
    bench_cuda_half,
    bench_cuda_layers,
    bench_cuda_attention,
    bench_cuda_encode,
};

/* ---- rows ------------------------------------------------------------------------------------ */

static void print_header(const bench_cuda *b)
{
    printf("%s, %d multiprocessors; operands from memory, launches overlap; us\n\n", b->d->name,
           b->d->sms);
    printf("%-16s %13s %4s %2s %2s %4s %9s %9s %9s %9s\n", "", "out x in", "axis", "k", "L", "M",
           "time", "roof", "bf16", "bf16/time");
}

static void print_number(double seconds)
{
    if (seconds > 0)
        printf(" %9.2f", 1e6 * seconds);
    else
        printf(" %9s", "");
}

static void print_row(const bench_row *r)
{
    char shape[32] = "";
    if (r->out) snprintf(shape, sizeof shape, "%zux%zu", r->out, r->in);
    printf("%-16s %13s", r->what, shape);
    if (r->bits)
        printf(" %4d %2d %2d", r->axis, r->bits, r->state_bits);
    else
        printf(" %4s %2s %2s", "", "", "");
    printf(" %4zu", r->M);
    print_number(r->seconds);
    print_number(r->roof_seconds);
    print_number(r->bf16_seconds);
    if (r->bf16_seconds > 0) printf(" %9.2f", r->bf16_seconds / r->seconds);
    if (r->unit) printf("  %.4g %s", r->units / r->seconds, r->unit);
    printf("\n");
    fflush(stdout);
}

static bool json_wanted;

void bench_cuda_add(bench_cuda *b, bench_row row)
{
    if (b->n_rows == BENCH_ROWS) return;
    b->rows[b->n_rows++] = row;
    if (!json_wanted) print_row(&row);
}

static json_t *seconds_json(double seconds)
{
    return seconds > 0 ? json_number(seconds) : json_null();
}

static int print_rows_json(const bench_cuda *b)
{
    json_t *list = json_array();
    for (size_t i = 0; i < b->n_rows; i++) {
        const bench_row *r = &b->rows[i];
        json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:i, s:i, s:i, s:o, s:o, s:o}", "what", r->what,
                              "out", (json_int_t)r->out, "in", (json_int_t)r->in, "M",
                              (json_int_t)r->M, "axis", r->axis, "bits", r->bits, "state_bits",
                              r->state_bits, "seconds", json_number(r->seconds), "roof_seconds",
                              seconds_json(r->roof_seconds), "bf16_seconds",
                              seconds_json(r->bf16_seconds));
        if (r->unit) {
            json_object_set_new(o, "value", json_number(r->units / r->seconds));
            json_object_set_new(o, "unit", json_string(r->unit));
        }
        json_array_append_new(list, o);
    }
    return print_json(json_pack("{s:s, s:i, s:o}", "device", b->d->name, "multiprocessors",
                                b->d->sms, "figures", list));
}

/* ---- measuring ------------------------------------------------------------------------------- */

pleach_status bench_cuda_measure(bench_cuda *b, void (*queue)(void *user, int i), void *user,
                                 int calls, double *seconds, pleach_error *err)
{
    PL_FAIL_IF(interrupted(), err, PLEACH_ERR_CANCELLED, "interrupted");
    return pl_cuda_time(b->d, queue, user, calls, seconds, err);
}

const void *bench_cuda_copy(const bench_cuda *b, size_t bytes, int i)
{
    size_t step = (bytes + 255) / 256 * 256;
    return b->codes + (size_t)i % (BENCH_CODES / step) * step;
}

bench_cuda_product bench_cuda_make_product(const bench_cuda *b, size_t out, size_t in, int axis,
                                           int k, int L, size_t M)
{
    bench_cuda_product p = {.b = b, .bytes = out * in / 8 * (size_t)k};
    p.shape = (pleach_trellis){.bits = (uint32_t)k, .state_bits = (uint32_t)L, .block = 256,
                               .axis = (uint32_t)axis, .rows = axis ? out : in,
                               .cols = axis ? in : out};
    p.p = (pl_cuda_product){.in = in, .out = out, .M = M, .x = b->x, .x_stride = in, .y = b->y,
                            .y_stride = out};
    return p;
}

pl_cuda_trellis bench_cuda_weight(const bench_cuda_product *p, int i)
{
    /* Only read. */
    void *codes = (void *)(uintptr_t)bench_cuda_copy(p->b, p->bytes, i);
    return (pl_cuda_trellis){.shape = p->shape, .units = true, .codes = codes,
                             .scales = p->b->scales};
}

typedef struct reading {
    const bench_cuda *b;
    size_t bytes;
} reading;

static void queue_read(void *user, int i)
{
    const reading *r = user;
    pl_cuda_read(r->b->d, bench_cuda_copy(r->b, r->bytes, i), r->bytes, r->b->y);
}

pleach_status bench_cuda_roof(bench_cuda *b, size_t bytes, double *seconds, pleach_error *err)
{
    reading r = {b, bytes / 16 * 16};
    return bench_cuda_measure(b, queue_read, &r, CALLS, seconds, err);
}

typedef struct gemm {
    bench_cuda *b;
    int out, in, M;
} gemm;

static void queue_gemm(void *user, int i)
{
    const gemm *g = user;
    const float one = 1, zero = 0;
    const void *w = bench_cuda_copy(g->b, 2 * (size_t)g->out * (size_t)g->in, i);
    cublasGemmEx(g->b->cublas, CUBLAS_OP_T, CUBLAS_OP_N, g->out, g->M, g->in, &one, w, CUDA_R_16BF,
                 g->in, g->b->x, CUDA_R_16BF, g->in, &zero, g->b->y, CUDA_R_16BF, g->out,
                 CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

pleach_status bench_cuda_bf16(bench_cuda *b, size_t out, size_t in, size_t M, double *seconds,
                              pleach_error *err)
{
    gemm g = {b, (int)out, (int)in, (int)M};
    queue_gemm(&g, 0); /* what it does once it does not do while captured */
    return bench_cuda_measure(b, queue_gemm, &g, CALLS, seconds, err);
}

/* ---- the run --------------------------------------------------------------------------------- */

static pleach_status allocate(bench_cuda *b, pleach_error *err)
{
    const size_t numbers = (size_t)BENCH_MOST_M * 2 * BENCH_WIDE * sizeof(float);
    void *p[5];
    const size_t sizes[] = {BENCH_CODES, BENCH_WIDE * sizeof(float), numbers, numbers, WORKSPACE};
    for (size_t i = 0; i < PL_COUNT(sizes); i++)
        PL_TRY(pl_cuda_alloc(b->d, &p[i], sizes[i], "what is measured", err));
    b->codes = p[0];
    b->scales = p[1];
    b->x = p[2];
    b->y = p[3];
    b->workspace = p[4];
    return PLEACH_OK;
}

/* Bytes that are as good as any codes; numbers in -1 .. 1 as x, and a hundredth of it as scales. */
static pleach_status fill(bench_cuda *b, uint8_t *host, pleach_error *err)
{
    uint64_t state = 1;
    float *f = (float *)(void *)host;
    for (size_t i = 0; i < UPLOAD; i += 8) {
        uint64_t r = pl_random_next(&state);
        memcpy(host + i, &r, 8);
    }
    for (size_t at = 0; at < BENCH_CODES; at += UPLOAD)
        PL_TRY(pl_cuda_upload(b->d, b->codes + at, host, UPLOAD, err));
    for (size_t i = 0; i < UPLOAD / sizeof *f; i++)
        f[i] = (float)(int32_t)(pl_random_next(&state) >> 32) * 0x1p-31f;
    PL_TRY(pl_cuda_upload(b->d, b->x, f, UPLOAD, err));
    for (size_t i = 0; i < BENCH_WIDE; i++) f[i] *= 0.01f;
    return pl_cuda_upload(b->d, b->scales, f, BENCH_WIDE * sizeof *f, err);
}

static pleach_status prepare(bench_cuda *b, pleach_error *err)
{
    PL_TRY(allocate(b, err));
    uint8_t *host = pl_alloc(UPLOAD, 1);
    if (!host) return pl_fail_memory(err, "random numbers", UPLOAD);
    pleach_status status = fill(b, host, err);
    pl_free(host);
    if (status != PLEACH_OK) return status;
    PL_FAIL_IF(cublasCreate(&b->cublas) != CUBLAS_STATUS_SUCCESS ||
                   cublasSetStream(b->cublas, b->d->stream) != CUBLAS_STATUS_SUCCESS ||
                   cublasSetWorkspace(b->cublas, b->workspace, WORKSPACE) != CUBLAS_STATUS_SUCCESS,
               err, PLEACH_ERR_DEVICE, "cuBLAS does not start");
    return PLEACH_OK;
}

static void release(bench_cuda *b)
{
    if (b->cublas) cublasDestroy(b->cublas);
    pl_cuda_free(b->codes);
    pl_cuda_free(b->scales);
    pl_cuda_free(b->x);
    pl_cuda_free(b->y);
    pl_cuda_free(b->workspace);
    pl_cuda_close(b->d);
    pl_free(b);
}

int bench_kernels_cuda(const char *device, int json)
{
    pleach_error err;
    bench_cuda *b = pl_calloc(1, sizeof *b);
    if (!b) return fail("out of memory: figures");
    json_wanted = json;
    catch_interrupts(false);
    pleach_status status = pl_cuda_open(device, &b->d, &err);
    if (status == PLEACH_OK) {
        b->d->chained = true;
        status = prepare(b, &err);
    }
    if (status == PLEACH_OK && !json) print_header(b);
    for (size_t i = 0; status == PLEACH_OK && i < PL_COUNT(parts); i++) status = parts[i](b, &err);
    int result = status == PLEACH_OK ? EXIT_OK : fail_status(&err);
    if (result == EXIT_OK && json) result = print_rows_json(b);
    if (b->d)
        release(b);
    else
        pl_free(b);
    return result;
}
