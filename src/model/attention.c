/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention by tiles: the query heads that share a key head, at a few positions, walk the keys
 * block by block with a running softmax (Milakov and Gimelshein 2018; FlashAttention). Work is cut
 * into (key head, tile), or into (key head, span of positions) for a single query.
 *
 * Letters: R rows of a tile, D head dimension. */
#include "attention.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/memory.h"

enum {
    BLOCK = PL_ATTEND_BLOCK,
    SPAN = 8 * BLOCK, /* positions summed in one run */
    TILE_ROWS = 32    /* about: as many as keep a tile in the first-level cache */
};
_Static_assert(PL_CACHE_PAGE % BLOCK == 0, "a block of keys lies inside a page");

/* Sums of one tile: what a span leaves, and what spans add up to. */
typedef struct sums {
    float *max, *sum; /* [R] */
    float *out;       /* [R][D] */
} sums;

/* One thread's memory. */
typedef struct arena {
    float *q, *scores, *keys, *values; /* [R][D], [R][BLOCK], [BLOCK][D] twice */
    uint32_t *lo, *hi;                 /* [R] */
    sums part, total;
} arena;

static size_t align_floats(size_t n) { return (n + 15) / 16 * 16; }

static size_t tile_positions(size_t group) { return group < TILE_ROWS ? TILE_ROWS / group : 1; }

static size_t sums_floats(size_t R, size_t D) { return align_floats(R) * 2 + align_floats(R * D); }

static size_t arena_floats(size_t R, size_t D)
{
    return align_floats(R * D) + align_floats(R * BLOCK) + 2 * align_floats(BLOCK * D) +
           2 * align_floats(R) + 2 * sums_floats(R, D);
}

static float *take(float **at, size_t n)
{
    float *p = *at;
    *at += align_floats(n);
    return p;
}

static sums take_sums(float **at, size_t R, size_t D)
{
    sums s;
    s.max = take(at, R);
    s.sum = take(at, R);
    s.out = take(at, R * D);
    return s;
}

static arena take_arena(float *at, size_t R, size_t D)
{
    arena m;
    m.q = take(&at, R * D);
    m.scores = take(&at, R * BLOCK);
    m.keys = take(&at, BLOCK * D);
    m.values = take(&at, BLOCK * D);
    m.lo = (uint32_t *)take(&at, R);
    m.hi = (uint32_t *)take(&at, R);
    m.part = take_sums(&at, R, D);
    m.total = take_sums(&at, R, D);
    return m;
}

size_t pl_attention_scratch(const pl_compute *c, uint32_t n_heads, uint32_t n_kv_heads,
                            uint32_t head_dim, size_t length)
{
    size_t group = n_heads / n_kv_heads, spans = (length + SPAN - 1) / SPAN;
    size_t arenas = (size_t)c->threads * arena_floats(tile_positions(group) * group, head_dim);
    return (arenas + spans * n_kv_heads * sums_floats(group, head_dim)) * sizeof(float);
}

static void clear(const sums *s, size_t R, size_t D)
{
    for (size_t r = 0; r < R; r++) s->max[r] = -INFINITY;
    memset(s->sum, 0, R * sizeof *s->sum);
    memset(s->out, 0, R * D * sizeof *s->out);
}

/* total += part, both with their own maximum. */
static void merge(const sums *total, const sums *part, size_t R, size_t D)
{
    for (size_t r = 0; r < R; r++) {
        if (part->max[r] == -INFINITY) continue; /* saw nothing */
        float max = total->max[r] >= part->max[r] ? total->max[r] : part->max[r];
        float keep = expf(total->max[r] - max), gain = expf(part->max[r] - max);
        float *out = total->out + r * D;
        const float *more = part->out + r * D;
        for (size_t d = 0; d < D; d++) out[d] = out[d] * keep + more[d] * gain;
        total->sum[r] = total->sum[r] * keep + part->sum[r] * gain;
        total->max[r] = max;
    }
}

static size_t first_visible(const pl_attention *a, size_t position)
{
    return a->window && position >= a->window ? position - a->window + 1 : 0;
}

/* Queries [begin, end) of key head `head`, R = (end - begin) * group rows. */
typedef struct tile {
    const pl_attention *a;
    size_t begin, end, R, group;
    uint32_t head;
} tile;

/* Copies the queries in, scaled by 1/sqrt(D). */
static void load_queries(const tile *t, float *q)
{
    const pl_attention *a = t->a;
    size_t D = a->head_dim;
    float scale = (float)(1 / sqrt((double)D));
    for (size_t i = t->begin; i < t->end; i++) {
        const float *src = a->q + (i * a->n_heads + t->head * t->group) * D;
        for (size_t d = 0; d < t->group * D; d++) *q++ = src[d] * scale;
    }
}

static void store_results(const tile *t, const sums *s)
{
    const pl_attention *a = t->a;
    size_t D = a->head_dim, r = 0;
    for (size_t i = t->begin; i < t->end; i++)
        for (size_t g = 0; g < t->group; g++, r++) {
            float *dst = a->out + (i * a->n_heads + t->head * t->group + g) * D;
            for (size_t d = 0; d < D; d++) dst[d] = s->out[r * D + d] / s->sum[r];
        }
}

/* What each row sees of the block of n positions at `block`. */
static void set_visible(const tile *t, size_t block, size_t n, uint32_t *lo, uint32_t *hi)
{
    for (size_t i = t->begin; i < t->end; i++) {
        size_t position = t->a->position + i, first = first_visible(t->a, position);
        size_t h = position < block ? 0 : PL_MIN(position + 1 - block, n);
        size_t l = first < block ? 0 : PL_MIN(first - block, h);
        for (size_t g = 0; g < t->group; g++) {
            *lo++ = (uint32_t)l;
            *hi++ = (uint32_t)h;
        }
    }
}

/* part = the sums over the positions of span `span`. */
static void attend_span(const pl_compute *c, const tile *t, size_t span, const arena *m,
                        const sums *part)
{
    const pl_attention *a = t->a;
    size_t first = first_visible(a, a->position + t->begin) / BLOCK * BLOCK;
    size_t last = a->position + t->end;
    pl_attend_tile k = {.rows = t->R, .dim = a->head_dim, .q = m->q, .lo = m->lo, .hi = m->hi,
                        .max = part->max, .sum = part->sum, .out = part->out, .scores = m->scores};
    clear(part, t->R, a->head_dim);
    for (size_t b = PL_MAX(span * SPAN, first); b < PL_MIN((span + 1) * SPAN, last); b += BLOCK) {
        size_t n = PL_MIN((size_t)BLOCK, last - b);
        set_visible(t, b, n, m->lo, m->hi);
        c->kernels.attend(&k, pl_cache_keys(a->cache, a->layer, t->head, b, n, m->keys),
                          pl_cache_values(a->cache, a->layer, t->head, b, n, m->values), n);
    }
}

static void attend_tile(const pl_compute *c, const tile *t, const arena *m)
{
    const pl_attention *a = t->a;
    size_t span = first_visible(a, a->position + t->begin) / SPAN;
    load_queries(t, m->q);
    clear(&m->total, t->R, a->head_dim);
    for (; span * SPAN < a->position + t->end; span++) {
        attend_span(c, t, span, m, &m->part);
        merge(&m->total, &m->part, t->R, a->head_dim);
    }
    store_results(t, &m->total);
}

static int threads_for(const pl_compute *c, const pl_attention *a, size_t tasks)
{
    size_t keys = a->position + (a->n + 1) / 2; /* of a query, on average */
    int threads = pl_compute_threads(c, 2 * a->n * keys * a->n_heads * a->head_dim);
    return (int)PL_MIN((size_t)threads, tasks);
}

static void run_tiles(const pl_compute *c, const pl_attention *a, float *scratch)
{
    size_t group = a->n_heads / a->n_kv_heads, step = tile_positions(group);
    size_t tiles = (a->n + step - 1) / step, floats = arena_floats(step * group, a->head_dim);
    size_t tasks = tiles * a->n_kv_heads;
    int threads = threads_for(c, a, tasks);
    /* Later tiles see more keys: long tasks first. */
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) if (threads > 1)
    for (size_t i = 0; i < tasks; i++) {
        size_t begin = (tiles - 1 - i / a->n_kv_heads) * step, end = PL_MIN(begin + step, a->n);
        tile t = {a, begin, end, (end - begin) * group, group, (uint32_t)(i % a->n_kv_heads)};
        arena m = take_arena(scratch + (size_t)omp_get_thread_num() * floats, step * group,
                             a->head_dim);
        attend_tile(c, &t, &m);
    }
}

/* A single query over several spans: the spans side by side, then added in order. */
static void run_spans(const pl_compute *c, const pl_attention *a, size_t first, size_t spans,
                      float *scratch)
{
    size_t group = a->n_heads / a->n_kv_heads, D = a->head_dim;
    size_t step = tile_positions(group), floats = arena_floats(step * group, D);
    size_t tasks = spans * a->n_kv_heads, part_floats = sums_floats(group, D);
    float *parts = scratch + (size_t)c->threads * floats;
    int threads = threads_for(c, a, tasks);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) if (threads > 1)
    for (size_t i = 0; i < tasks; i++) {
        tile t = {a, 0, 1, group, group, (uint32_t)(i / spans)};
        arena m = take_arena(scratch + (size_t)omp_get_thread_num() * floats, step * group, D);
        float *at = parts + i * part_floats;
        sums part = take_sums(&at, group, D);
        load_queries(&t, m.q);
        attend_span(c, &t, first + i % spans, &m, &part);
    }
    arena m = take_arena(scratch, step * group, D);
    for (uint32_t head = 0; head < a->n_kv_heads; head++) {
        tile t = {a, 0, 1, group, group, head};
        clear(&m.total, group, D);
        for (size_t s = 0; s < spans; s++) {
            float *at = parts + (head * spans + s) * part_floats;
            sums part = take_sums(&at, group, D);
            merge(&m.total, &part, group, D);
        }
        store_results(&t, &m.total);
    }
}

void pl_attention_run(const pl_compute *c, const pl_attention *a, void *scratch)
{
    size_t first = first_visible(a, a->position) / SPAN;
    size_t spans = a->position / SPAN + 1 - first;
    if (a->n == 1 && spans > 1 && c->threads > 1) run_spans(c, a, first, spans, scratch);
    else run_tiles(c, a, scratch);
}
