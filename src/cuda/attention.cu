/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on the device: what is served, scratch, and which kernels run. */
#include <math.h>

#include "attention_tiles.cuh"
#include "hadamard.cuh"
#include "turboquant.h"

using namespace attention;

extern "C" pleach_status pl_cuda_attention_put_open(pl_cuda *d, pleach_error *err);

/* Of a launch: rows, and counters of spans, which lie at the beginning of scratch whatever a call's
 * shape, so that they stay zero between calls. */
enum { ROWS = 64, COUNTERS = 16384 };

extern "C" pleach_status pl_cuda_attention_open(pl_cuda *d, pleach_error *err)
{
    PL_TRY(pl_cuda_turboquant_open(d, err));
    PL_TRY(pl_cuda_attention_put_open(d, err));
    PL_TRY(numbers_open(d, err));
    PL_TRY(packed_open(d, err));
    PL_TRY(tiles_open(d, err));
    return rows_open(d, err);
}

extern "C" pleach_status pl_cuda_attention_check(pl_kv type, uint32_t n_heads, uint32_t n_kv_heads,
                                                 uint32_t head_dim, pleach_error *err)
{
    PL_FAIL_IF(head_dim > PL_CUDA_ATTENTION_MOST_DIM, err, PLEACH_ERR_SHAPE,
               "head size %u: attention on a device takes up to %d", head_dim,
               PL_CUDA_ATTENTION_MOST_DIM);
    PL_FAIL_IF(!n_kv_heads || n_heads % n_kv_heads, err, PLEACH_ERR_SHAPE,
               "%u heads over %u key heads: expected a multiple", n_heads, n_kv_heads);
    PL_FAIL_IF(n_heads > COUNTERS, err, PLEACH_ERR_SHAPE,
               "%u heads: attention on a device takes up to %d", n_heads, COUNTERS);
    return pl_kv_check(type, head_dim, err);
}

static size_t align256(size_t n) { return (n + 255) / 256 * 256; }

static uint32_t spans_of(uint32_t most, size_t positions)
{
    size_t spans = (positions + SPAN_PAGES * PAGE - 1) / (SPAN_PAGES * PAGE) + 1;
    return spans < most ? (uint32_t)spans : most;
}

/* Blocks of key heads and their chunks; and spans, for as many blocks as the device runs at once:
 * one a multiprocessor, or two where rows are many. */
static void set_grid(const pl_cuda *d, rows_args *a, size_t length, uint32_t blocks)
{
    a->group = a->n_heads / a->c.n_kv_heads;
    a->chunks = (a->group + MOST_HEADS - 1) / MOST_HEADS;
    uint32_t most = blocks * (uint32_t)d->sms / (a->c.n_kv_heads * a->chunks);
    a->most_spans = most < 1 ? 1 : most > MOST_SPANS ? (uint32_t)MOST_SPANS : most;
    a->stored_grid = spans_of(a->most_spans, length);
    size_t recent = (size_t)a->c.recent * PAGE;
    a->slots = a->stored_grid;
    if (recent) a->slots += spans_of(MOST_RECENT, recent < length ? recent : length);
}

static size_t rows_of_launch(const rows_args &a, size_t M)
{
    size_t most = COUNTERS / (a.c.n_kv_heads * a.chunks);
    if (most > ROWS) most = ROWS;
    return M < most ? M : most;
}

extern "C" size_t pl_cuda_attention_scratch(const pl_cuda *d, pl_kv type, uint32_t n_heads,
                                            uint32_t n_kv_heads, uint32_t head_dim, size_t M,
                                            size_t length)
{
    rows_args a = {};
    a.c.type = type;
    a.c.n_kv_heads = n_kv_heads;
    a.n_heads = n_heads;
    if (pl_kv_is_packed(type)) a.c.recent = (uint32_t)((length + PAGE - 1) / PAGE);
    set_grid(d, &a, length, 2);
    return sizeof(unsigned) * COUNTERS + align256(sizeof(float) * rows_of_launch(a, M) * n_kv_heads *
                                                  a.chunks * a.slots * part_floats(head_dim));
}

static float score_scale(uint32_t D) { return (float)(M_LOG2E / sqrt((double)D)); }

/* Rows whose heads no block turns by itself. */
static void rotate(const pl_cuda *d, const pl_cuda_attention *call)
{
    size_t n = (size_t)call->n_heads * call->cache.head_dim;
    if (call->rotation.block) pl_cuda_rotate(d, call->out, call->out, n, call->M, &call->rotation);
}

/* Whether what each block has are whole blocks of the rotation, which warps hold. */
static bool turns_here(const rows_args &a, const pl_cuda_rotation &r)
{
    const size_t D = a.c.head_dim, most = a.group < MOST_HEADS ? a.group : (size_t)MOST_HEADS;
    return r.block && r.block <= 256 && D % 8 == 0 && most * D % r.block == 0 &&
           a.group * D % r.block == 0 && pl_aligned16(r.signs) && pl_aligned16(a.out);
}

static void run_tiles(const pl_cuda *d, const pl_cuda_attention *call)
{
    tiles_args a = {};
    a.c = call->cache;
    if (!pl_kv_is_packed(a.c.type)) a.c.recent = 0;
    a.rows = call->rows;
    a.q = call->q;
    a.out = call->out;
    a.M = call->M;
    a.q_stride = call->q_stride;
    a.out_stride = call->out_stride;
    a.group = call->n_heads / a.c.n_kv_heads;
    a.scale = score_scale(a.c.head_dim);
    tiles_run(d, a);
}

extern "C" void pl_cuda_attention_run(const pl_cuda *d, const pl_cuda_attention *call, void *scratch)
{
    if (call->how == PL_CUDA_ATTENTION_TILES && tiles_serve(d, &call->cache)) {
        if (call->M) run_tiles(d, call);
        rotate(d, call);
        return;
    }
    rows_args a = {};
    a.c = call->cache;
    if (!pl_kv_is_packed(a.c.type)) a.c.recent = 0;
    a.n_heads = call->n_heads;
    a.q_stride = call->q_stride;
    a.out_stride = call->out_stride;
    a.scale = score_scale(a.c.head_dim);
    const bool packed = packed_serves(d, a.c.type, a.c.head_dim);
    const bool few = call->how == PL_CUDA_ATTENTION_FEW;
    const bool numbers = numbers_serve(a.c.type, a.c.head_dim);
    set_grid(d, &a, call->length,
             packed ? (few ? 1 : 2) : numbers ? numbers_blocks(a.c.head_dim, few) : 1);
    a.apart = call->apart;
    a.out = call->out;
    if (turns_here(a, call->rotation)) {
        a.rotation = (uint32_t)call->rotation.block;
        a.signs = call->rotation.signs;
    }
    a.arrived = (unsigned *)scratch;
    a.parts = (float *)(a.arrived + COUNTERS);
    for (size_t m = 0, n; m < call->M; m += n) {
        n = rows_of_launch(a, call->M - m);
        a.rows = call->rows + m;
        a.q = call->q + m * a.q_stride;
        a.out = call->out + m * a.out_stride;
        const dim3 grid(a.slots, a.c.n_kv_heads * a.chunks, (unsigned)n);
        if (packed)
            packed_run(d, a, grid, few);
        else if (numbers)
            numbers_run(d, a, grid, few);
        else
            rows_run(d, a, grid);
    }
    if (!a.rotation) rotate(d, call);
}
