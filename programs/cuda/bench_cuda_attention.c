/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over N positions (the shape says N x D): one query of 32 heads over 8 key heads, 32
 * sequences at once, and a prompt. The bf16 column is the same over a bf16 cache. */
#include <stdlib.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "base/random.h"
#include "bench_cuda.h"
#include "cuda/attention.h"

enum { HEADS = 32, KV_HEADS = 8, FILL = 512, MOST_COPIES = 32, MOST_TYPES = 5 };

/* Caches of `rows` sequences each, as many as the L2 does not hold. */
typedef struct caches {
    bench_cuda *b;
    pl_kv type;
    uint32_t D, N, rows;
    size_t table; /* pages of a sequence */
    int copies;
    uint8_t *memory;
    void **pages; /* device [copies][rows][table], scattered */
    pl_cuda_row *fill, *last; /* device: positions of sequence 0; the last of each */
    void *scratch;
    bool prompt;
} caches;

static pl_cuda_kv cache_of(const caches *c, size_t sequence)
{
    return (pl_cuda_kv){.type = c->type, .n_kv_heads = KV_HEADS, .head_dim = c->D,
                        .pages = (void *const *)(c->pages + sequence * c->table),
                        .pages_stride = c->table};
}

static void queue(void *user, int i)
{
    const caches *c = user;
    pl_cuda_attention a = {.cache = cache_of(c, (size_t)(i % c->copies) * c->rows),
                           .rows = c->last, .M = c->rows, .length = c->N, .n_heads = HEADS,
                           .q = c->b->x, .q_stride = (size_t)HEADS * c->D, .out = c->b->y,
                           .out_stride = (size_t)HEADS * c->D,
                           .how = c->rows == 1 ? PL_CUDA_ATTENTION_FEW : PL_CUDA_ATTENTION_ROWS,
                           .apart = c->rows == 1};
    if (c->prompt) { /* the last rows of sequence 0 */
        a.rows = c->fill + c->N - BENCH_MOST_M;
        a.M = BENCH_MOST_M;
        a.how = PL_CUDA_ATTENTION_TILES;
    }
    pl_cuda_attention_run(c->b->d, &a, c->scratch);
}

static void close_caches(caches *c)
{
    pl_cuda_free(c->memory);
    pl_cuda_free(c->pages);
    pl_cuda_free(c->fill);
    pl_cuda_free(c->last);
    pl_cuda_free(c->scratch);
}

/* Pages in no order, as they become in a server. */
static pleach_status make_tables(caches *c, size_t page_bytes, pleach_error *err)
{
    size_t n = (size_t)c->copies * c->rows * c->table;
    uint64_t state = 7;
    void **pages = pl_alloc(n, sizeof *pages);
    if (!pages) return pl_fail_memory(err, "page table", n * sizeof *pages);
    for (size_t i = 0; i < n; i++) pages[i] = c->memory + i * page_bytes;
    for (size_t i = n; i > 1; i--) {
        size_t j = pl_random_next(&state) % i;
        void *p = pages[i - 1];
        pages[i - 1] = pages[j];
        pages[j] = p;
    }
    pleach_status status = pl_cuda_upload(c->b->d, c->pages, pages, n * sizeof *pages, err);
    pl_free(pages);
    return status;
}

static pleach_status make_rows(caches *c, pleach_error *err)
{
    pl_cuda_row *rows = pl_alloc(PL_MAX(c->N, c->rows), sizeof *rows);
    if (!rows) return pl_fail_memory(err, "rows", c->N * sizeof *rows);
    for (uint32_t i = 0; i < c->N; i++) rows[i] = (pl_cuda_row){0, i};
    pleach_status status = pl_cuda_upload(c->b->d, c->fill, rows, c->N * sizeof *rows, err);
    for (uint32_t i = 0; i < c->rows; i++) rows[i] = (pl_cuda_row){i, c->N - 1};
    if (status == PLEACH_OK)
        status = pl_cuda_upload(c->b->d, c->last, rows, c->rows * sizeof *rows, err);
    pl_free(rows);
    return status;
}

static pleach_status open_caches(caches *c, pleach_error *err)
{
    pl_cuda *d = c->b->d;
    size_t page_bytes = pl_cuda_kv_page_bytes(c->type, KV_HEADS, c->D);
    c->table = c->N / PL_CACHE_PAGE;
    size_t bytes = c->rows * c->table * page_bytes, width = (size_t)KV_HEADS * c->D;
    c->copies = (int)PL_MIN((size_t)MOST_COPIES, 2 * d->l2_bytes / bytes + 2);
    size_t scratch = pl_cuda_attention_scratch(d, c->type, HEADS, KV_HEADS, c->D, BENCH_MOST_M, c->N);
    const char *what = "what attention is measured on";
    PL_TRY(pl_cuda_alloc(d, (void **)&c->memory, (size_t)c->copies * bytes, what, err));
    PL_TRY(pl_cuda_alloc(d, (void **)&c->pages,
                         (size_t)c->copies * c->rows * c->table * sizeof *c->pages, what, err));
    PL_TRY(pl_cuda_alloc(d, (void **)&c->fill, c->N * sizeof *c->fill, what, err));
    PL_TRY(pl_cuda_alloc(d, (void **)&c->last, c->rows * sizeof *c->last, what, err));
    PL_TRY(pl_cuda_alloc(d, &c->scratch, scratch, what, err));
    PL_TRY(pl_cuda_check(cudaMemsetAsync(c->scratch, 0, scratch, d->stream), "clearing memory", err));
    PL_TRY(make_tables(c, page_bytes, err));
    PL_TRY(make_rows(c, err));
    for (size_t s = 0; s < (size_t)c->copies * c->rows; s++)
        for (uint32_t at = 0; at < c->N; at += FILL) {
            pl_cuda_kv kv = cache_of(c, s);
            pl_cuda_kv_put(d, &kv, c->fill + at, FILL, c->b->x, width, c->b->x + FILL * width,
                           width, NULL);
        }
    return pl_cuda_sync(d, err);
}

static pleach_status measure(bench_cuda *b, pl_kv type, uint32_t D, uint32_t N, uint32_t rows,
                             bool prompt, double *seconds, size_t *bytes, pleach_error *err)
{
    caches c = {.b = b, .type = type, .D = D, .N = N, .rows = rows, .prompt = prompt};
    pleach_status status = open_caches(&c, err);
    if (status == PLEACH_OK) status = bench_cuda_measure(b, queue, &c, c.copies, seconds, err);
    *bytes = rows * c.table * pl_cuda_kv_page_bytes(type, KV_HEADS, D);
    close_caches(&c);
    return status;
}

static const char *name_of(pl_kv type, bool prompt)
{
    switch (type) {
    case PL_KV_BF16:
        return prompt ? "prompt bf16" : "attention bf16";
    case PL_KV_F32:
        return prompt ? "prompt f32" : "attention f32";
    case PL_KV_PACKED(8, 3):
        return prompt ? "prompt k8v3" : "attention k8v3";
    case PL_KV_PACKED(8, 4):
        return prompt ? "prompt k8v4" : "attention k8v4";
    default:
        return prompt ? "prompt k4v4" : "attention k4v4";
    }
}

static pleach_status measure_types(bench_cuda *b, uint32_t D, uint32_t N, uint32_t rows, bool prompt,
                                   pleach_error *err)
{
    static const pl_kv types[MOST_TYPES] = {PL_KV_BF16, PL_KV_F32, PL_KV_PACKED(8, 3),
                                            PL_KV_PACKED(8, 4), PL_KV_PACKED(4, 4)};
    double bf16 = 0;
    for (size_t i = 0; i < MOST_TYPES; i++) {
        bench_row row = {.what = name_of(types[i], prompt), .out = N, .in = D, .axis = -1,
                         .M = prompt ? (size_t)BENCH_MOST_M : rows};
        size_t bytes;
        PL_TRY(measure(b, types[i], D, N, rows, prompt, &row.seconds, &bytes, err));
        if (types[i] == PL_KV_BF16) bf16 = row.seconds;
        if (!prompt) PL_TRY(bench_cuda_roof(b, bytes, &row.roof_seconds, err));
        row.bf16_seconds = bf16;
        if (prompt) {
            row.units = 4e-12 * D * HEADS * BENCH_MOST_M * (N - BENCH_MOST_M / 2);
            row.unit = "TFLOP/s";
        }
        bench_cuda_add(b, row);
    }
    return PLEACH_OK;
}

pleach_status bench_cuda_attention(bench_cuda *b, pleach_error *err)
{
    PL_TRY(measure_types(b, 128, 8192, 1, false, err));
    PL_TRY(measure_types(b, 128, 32768, 1, false, err));
    PL_TRY(measure_types(b, 128, 131072, 1, false, err));
    PL_TRY(measure_types(b, 128, 2048, 32, false, err));
    PL_TRY(measure_types(b, 64, 32768, 1, false, err));
    PL_TRY(measure_types(b, 256, 32768, 1, false, err));
    return measure_types(b, 128, 8192, 1, true, err);
}
