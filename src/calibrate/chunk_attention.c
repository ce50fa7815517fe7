/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of a chunk. Positions are cut into tiles; a tile of queries sees a run of whole tiles
 * of keys, in which what lies beyond the diagonal or the window is zero.
 *
 * Letters: D head size, Q and K distances between positions of q and of k, S [n][n] of one head. */
#include "chunk_attention.h"

#include <math.h>
#include <string.h>

#include "base/matrix.h"

enum { TILE = 64, KEYS_AT_ONCE = 4 * TILE };

typedef struct span {
    size_t first, end;
} span;

static size_t tiles_of(const pl_chunk_attention *a)
{
    return (a->n + TILE - 1) / TILE;
}

static size_t tile_end(const pl_chunk_attention *a, size_t first)
{
    return PL_MIN(a->n, first + TILE);
}

/* Keys, in whole tiles, that the queries of the tile at `first` see. */
static span keys_seen(const pl_chunk_attention *a, size_t first)
{
    span s = {0, tile_end(a, first)};
    if (a->window && first + 1 > a->window) s.first = (first + 1 - a->window) / TILE * TILE;
    return s;
}

/* Queries, in whole tiles, that see a key of the tile at `first`. */
static span queries_seeing(const pl_chunk_attention *a, size_t first)
{
    span s = {first, a->n};
    if (a->window && a->n - first > a->window) {
        size_t last = tile_end(a, first) - 1 + (a->window - 1); /* the last query */
        s.end = PL_MIN(a->n, (last / TILE + 1) * TILE);
    }
    return s;
}

static float score_scale(const pl_chunk_attention *a)
{
    return 1.0f / sqrtf((float)a->head_dim);
}

/* Row `query` of S, keys from seen.first: softmax of those it sees, zero elsewhere. */
static void softmax_row(const pl_chunk_attention *a, float *row, size_t query, span seen)
{
    size_t from = a->window && query + 1 > a->window ? query + 1 - a->window : 0;
    from = PL_MAX(from, seen.first);
    memset(row + seen.first, 0, (from - seen.first) * sizeof *row);
    a->c->kernels.softmax(row + from, query + 1 - from);
    memset(row + query + 1, 0, (seen.end - query - 1) * sizeof *row);
}

/* What the tiles of one step share. */
typedef struct tiles_job {
    const pl_chunk_attention *a;
    size_t tiles; /* of each head */
    const float *from;
    float *to;
} tiles_job;

/* Long ones first. */
static void forward_tile(void *job, size_t i, int thread)
{
    const tiles_job *j = job;
    const pl_chunk_attention *a = j->a;
    size_t head = i / j->tiles, first = (j->tiles - 1 - i % j->tiles) * TILE;
    (void)thread;
    size_t D = a->head_dim, Q = a->n_heads * D, K = a->n_kv_heads * D, n = a->n;
    size_t shared = head / (a->n_heads / a->n_kv_heads) * D, rows = tile_end(a, first) - first;
    span seen = keys_seen(a, first);
    size_t keys = seen.end - seen.first;
    float *S = a->probabilities + (head * n + first) * n;
    pl_matmul(NULL, false, true, rows, keys, D, score_scale(a), a->q + first * Q + head * D, Q,
              a->k + seen.first * K + shared, K, 0, S + seen.first, n);
    for (size_t r = 0; r < rows; r++) softmax_row(a, S + r * n, first + r, seen);
    pl_matmul(NULL, false, false, rows, D, keys, 1, S + seen.first, n, a->v + seen.first * K + shared,
              K, 0, a->mixed + first * Q + head * D, Q);
}

void pl_chunk_attention_forward(const pl_chunk_attention *a)
{
    tiles_job job = {.a = a, .tiles = tiles_of(a)};
    pl_pool_run(a->c->pool, a->n_heads * job.tiles, forward_tile, &job);
}

/* to[keys] = sum over the heads that share it of S^T from[queries]: the gradients by v and k. */
static void gather_tile(void *job, size_t i, int thread)
{
    const tiles_job *j = job;
    const pl_chunk_attention *a = j->a;
    size_t kv_head = i / j->tiles, first = i % j->tiles * TILE;
    const float *from = j->from;
    float *to = j->to;
    (void)thread;
    size_t D = a->head_dim, Q = a->n_heads * D, K = a->n_kv_heads * D, n = a->n;
    size_t group = a->n_heads / a->n_kv_heads, rows = tile_end(a, first) - first;
    span seen = queries_seeing(a, first);
    for (size_t h = 0; h < group; h++) {
        size_t head = kv_head * group + h;
        pl_matmul(NULL, true, false, rows, D, seen.end - seen.first, 1,
                  a->probabilities + (head * n + seen.first) * n + first, n,
                  from + seen.first * Q + head * D, Q, h > 0, to + first * K + kv_head * D, K);
    }
}

static void gather(const pl_chunk_attention *a, const float *from, float *to)
{
    tiles_job job = {a, tiles_of(a), from, to};
    pl_pool_run(a->c->pool, a->n_kv_heads * job.tiles, gather_tile, &job);
}

/* Probabilities become the gradient by the scores before scaling, times the scale:
 * S (dS - sum S dS) / sqrt(D), where dS = dmixed v^T and sum S dS = mixed . dmixed. */
static void score_gradient(const pl_chunk_attention *a, const float *dmixed, size_t head,
                           size_t first)
{
    size_t D = a->head_dim, Q = a->n_heads * D, K = a->n_kv_heads * D, n = a->n;
    size_t shared = head / (a->n_heads / a->n_kv_heads) * D, rows = tile_end(a, first) - first;
    span seen = keys_seen(a, first);
    float *S = a->probabilities + (head * n + first) * n, scale = score_scale(a);
    float part[TILE * KEYS_AT_ONCE], sums[TILE];
    for (size_t r = 0; r < rows; r++) {
        size_t at = (first + r) * Q + head * D;
        sums[r] = a->c->kernels.dot_f32(a->mixed + at, dmixed + at, D);
    }
    for (size_t from = seen.first; from < seen.end; from += KEYS_AT_ONCE) {
        size_t keys = PL_MIN(seen.end - from, (size_t)KEYS_AT_ONCE);
        pl_matmul(NULL, false, true, rows, keys, D, 1, dmixed + first * Q + head * D, Q,
                  a->v + from * K + shared, K, 0, part, KEYS_AT_ONCE);
        for (size_t r = 0; r < rows; r++) {
            float *PL_RESTRICT row = S + r * n + from;
            for (size_t j = 0; j < keys; j++)
                row[j] *= (part[r * KEYS_AT_ONCE + j] - sums[r]) * scale;
        }
    }
}

static void query_gradient(const pl_chunk_attention *a, size_t head, size_t first, float *dq)
{
    size_t D = a->head_dim, Q = a->n_heads * D, K = a->n_kv_heads * D, n = a->n;
    size_t shared = head / (a->n_heads / a->n_kv_heads) * D;
    span seen = keys_seen(a, first);
    pl_matmul(NULL, false, false, tile_end(a, first) - first, D, seen.end - seen.first, 1,
              a->probabilities + (head * n + first) * n + seen.first, n,
              a->k + seen.first * K + shared, K, 0, dq + first * Q + head * D, Q);
}

/* From the gradient by what was mixed to that by the queries. Long ones first. */
static void backward_tile(void *job, size_t i, int thread)
{
    const tiles_job *j = job;
    size_t head = i / j->tiles, first = (j->tiles - 1 - i % j->tiles) * TILE;
    (void)thread;
    score_gradient(j->a, j->from, head, first);
    query_gradient(j->a, head, first, j->to);
}

void pl_chunk_attention_backward(const pl_chunk_attention *a, const float *dmixed, float *dq,
                                 float *dk, float *dv)
{
    tiles_job job = {a, tiles_of(a), dmixed, dq};
    gather(a, dmixed, dv);
    pl_pool_run(a->c->pool, a->n_heads * job.tiles, backward_tile, &job);
    gather(a, a->q, dk);
}
