/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention by tiles: the query heads that share a key head, at a few positions, walk the keys
 * block by block with a running softmax (Milakov and Gimelshein 2018; FlashAttention). Work is cut
 * into (key head, tile), or into (key head, span of positions) for a single query.
 *
 * On a packed layer all sums are of rotated values: those of recent tokens are rotated as they are
 * read, and each result is un-rotated once.
 *
 * Letters: R rows of a tile, D head dimension. */
#include "attention.h"

#include <math.h>
#include <stdbool.h>
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
    float *q, *prepared;           /* [R][D], [R][D + PL_ATTEND_SUMS] for packed pages */
    float *scores, *keys, *values; /* [R][BLOCK], [BLOCK][D] twice */
    uint32_t *lo, *hi;             /* [R] */
    sums part, total;
} arena;

static size_t align_floats(size_t n) { return (n + 15) / 16 * 16; }

static size_t tile_positions(size_t group) { return group < TILE_ROWS ? TILE_ROWS / group : 1; }

static size_t sums_floats(size_t R, size_t D) { return align_floats(R) * 2 + align_floats(R * D); }

static size_t arena_floats(size_t R, size_t D)
{
    return align_floats(R * D) + align_floats(R * (D + PL_ATTEND_SUMS)) + align_floats(R * BLOCK) +
           2 * align_floats(BLOCK * D) + 2 * align_floats(R) + 2 * sums_floats(R, D);
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
    m.prepared = take(&at, R * (D + PL_ATTEND_SUMS));
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
    size_t arenas = (size_t)pl_pool_threads(c->pool) * arena_floats(tile_positions(group) * group, head_dim);
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
    bool packed;
    pl_turboquant type; /* of a packed layer */
} tile;

static tile make_tile(const pl_attention *a, size_t begin, size_t end, size_t head)
{
    size_t group = a->n_heads / a->n_kv_heads;
    return (tile){.a = a,
                  .begin = begin,
                  .end = end,
                  .R = (end - begin) * group,
                  .group = group,
                  .head = (uint32_t)head,
                  .packed = pl_cache_packed(a->cache, a->layer),
                  .type = pl_kv_code(pl_cache_type(a->cache, a->layer), a->head_dim)};
}

/* Copies the queries in, scaled by 1/sqrt(D), and prepares them for packed pages. */
static void load_queries(const pl_compute *c, const tile *t, const arena *m)
{
    const pl_attention *a = t->a;
    size_t D = a->head_dim;
    float scale = (float)(1 / sqrt((double)D)), *q = m->q;
    for (size_t i = t->begin; i < t->end; i++) {
        const float *src = a->q + (i * a->n_heads + t->head * t->group) * D;
        for (size_t d = 0; d < t->group * D; d++) *q++ = src[d] * scale;
    }
    if (t->packed) c->kernels.attend_prepare(m->prepared, m->q, t->R, &t->type);
}

static void store_results(const pl_compute *c, const tile *t, const sums *s)
{
    const pl_attention *a = t->a;
    size_t D = a->head_dim, r = 0;
    for (size_t i = t->begin; i < t->end; i++)
        for (size_t g = 0; g < t->group; g++, r++) {
            float *dst = a->out + (i * a->n_heads + t->head * t->group + g) * D;
            for (size_t d = 0; d < D; d++) dst[d] = s->out[r * D + d] / s->sum[r];
            if (t->packed) pl_turboquant_unrotate(&c->kernels, dst, a->head_dim);
        }
}

/* What each row sees of the block of n positions at `block`: as the layer stores it, or as recent
 * tokens. Returns whether it is anything. */
static bool set_visible(const tile *t, size_t block, size_t n, bool recent, uint32_t *lo,
                        uint32_t *hi)
{
    const pl_attention *a = t->a;
    bool any = false;
    for (size_t i = t->begin; i < t->end; i++) {
        size_t position = a->position + i, first = first_visible(a, position);
        bool skip = (block >= pl_cache_recent_from(a->cache, a->layer, position)) != recent;
        size_t h = skip || position < block ? 0 : PL_MIN(position + 1 - block, n);
        any = any || h > 0;
        size_t l = first < block ? 0 : PL_MIN(first - block, h);
        for (size_t g = 0; g < t->group; g++) {
            *lo++ = (uint32_t)l;
            *hi++ = (uint32_t)h;
        }
    }
    return any;
}

/* Adds the n positions at b as the layer stores them. */
static void attend_stored(const pl_compute *c, const tile *t, const arena *m, pl_attend_tile *k,
                          size_t b, size_t n)
{
    const pl_attention *a = t->a;
    if (!t->packed) {
        k->q = m->q;
        c->kernels.attend(k, pl_cache_keys(a->cache, a->layer, t->head, b, n, m->keys),
                          pl_cache_values(a->cache, a->layer, t->head, b, n, m->values), n);
        return;
    }
    pl_turboquant type;
    const uint8_t *keys, *values;
    pl_cache_packed_page(a->cache, a->layer, t->head, b, &type, &keys, &values);
    k->q = m->prepared;
    c->kernels.attend_packed(k, &type, keys, values, n);
}

/* Adds the n positions at b of a packed layer as recent tokens. */
static void attend_recent(const pl_compute *c, const tile *t, const arena *m, pl_attend_tile *k,
                          size_t b, size_t n)
{
    const pl_attention *a = t->a;
    size_t D = a->head_dim;
    const float *v = pl_cache_recent_values(a->cache, a->layer, t->head, b, n, m->values);
    if (v != m->values) memcpy(m->values, v, n * D * sizeof *v);
    for (size_t j = 0; j < n; j++)
        pl_turboquant_rotate(&c->kernels, m->values + j * D, a->head_dim);
    k->q = m->q;
    c->kernels.attend(k, pl_cache_recent_keys(a->cache, a->layer, t->head, b, n, m->keys),
                      m->values, n);
}

/* part = the sums over the positions of span `span`. */
static void attend_span(const pl_compute *c, const tile *t, size_t span, const arena *m,
                        const sums *part)
{
    const pl_attention *a = t->a;
    size_t first = first_visible(a, a->position + t->begin) / BLOCK * BLOCK;
    size_t last = a->position + t->end;
    pl_attend_tile k = {.rows = t->R, .dim = a->head_dim, .lo = m->lo, .hi = m->hi,
                        .max = part->max, .sum = part->sum, .out = part->out, .scores = m->scores};
    clear(part, t->R, a->head_dim);
    for (size_t b = PL_MAX(span * SPAN, first); b < PL_MIN((span + 1) * SPAN, last); b += BLOCK) {
        size_t n = PL_MIN((size_t)BLOCK, last - b);
        if (set_visible(t, b, n, false, m->lo, m->hi)) attend_stored(c, t, m, &k, b, n);
        if (set_visible(t, b, n, true, m->lo, m->hi)) attend_recent(c, t, m, &k, b, n);
    }
}

static void attend_tile(const pl_compute *c, const tile *t, const arena *m)
{
    const pl_attention *a = t->a;
    size_t span = first_visible(a, a->position + t->begin) / SPAN;
    load_queries(c, t, m);
    clear(&m->total, t->R, a->head_dim);
    for (; span * SPAN < a->position + t->end; span++) {
        attend_span(c, t, span, m, &m->part);
        merge(&m->total, &m->part, t->R, a->head_dim);
    }
    store_results(c, t, &m->total);
}

static int threads_for(const pl_compute *c, const pl_attention *a)
{
    size_t keys = a->position + (a->n + 1) / 2; /* of a query, on average */
    return pl_compute_threads(c, 2 * a->n * keys * a->n_heads * a->head_dim);
}

/* What the tasks of one call share. */
typedef struct job {
    const pl_compute *c;
    const pl_attention *a;
    size_t group, step, tiles; /* query heads of a key head; positions of a tile, and how many */
    size_t first, spans;       /* of a single query */
    size_t floats;             /* of an arena */
    float *arenas, *parts;     /* [threads], [heads][spans] */
} job;

static arena arena_of(const job *j, int thread)
{
    return take_arena(j->arenas + (size_t)thread * j->floats, j->step * j->group, j->a->head_dim);
}

/* Later tiles see more keys: long tasks first. */
static void run_tile(void *job_, size_t i, int thread)
{
    const job *j = job_;
    const pl_attention *a = j->a;
    size_t begin = (j->tiles - 1 - i / a->n_kv_heads) * j->step;
    size_t end = PL_MIN(begin + j->step, a->n);
    tile t = make_tile(a, begin, end, i % a->n_kv_heads);
    arena m = arena_of(j, thread);
    attend_tile(j->c, &t, &m);
}

static sums part_of(const job *j, size_t head, size_t span)
{
    size_t D = j->a->head_dim;
    float *at = j->parts + (head * j->spans + span) * sums_floats(j->group, D);
    return take_sums(&at, j->group, D);
}

static void run_span(void *job_, size_t i, int thread)
{
    const job *j = job_;
    size_t head = i / j->spans, span = i % j->spans;
    tile t = make_tile(j->a, 0, 1, head);
    arena m = arena_of(j, thread);
    sums part = part_of(j, head, span);
    load_queries(j->c, &t, &m);
    attend_span(j->c, &t, j->first + span, &m, &part);
}

static void add_spans(const job *j)
{
    size_t D = j->a->head_dim;
    arena m = arena_of(j, 0);
    for (uint32_t head = 0; head < j->a->n_kv_heads; head++) {
        tile t = make_tile(j->a, 0, 1, head);
        clear(&m.total, j->group, D);
        for (size_t s = 0; s < j->spans; s++) {
            sums part = part_of(j, head, s);
            merge(&m.total, &part, j->group, D);
        }
        store_results(j->c, &t, &m.total);
    }
}

/* A single query over several spans: the spans side by side, then added in order. */
void pl_attention_run(const pl_compute *c, const pl_attention *a, void *scratch)
{
    int threads = pl_pool_threads(c->pool);
    job j = {.c = c, .a = a, .group = a->n_heads / a->n_kv_heads, .arenas = scratch};
    j.step = tile_positions(j.group);
    j.tiles = (a->n + j.step - 1) / j.step;
    j.floats = arena_floats(j.step * j.group, a->head_dim);
    j.parts = j.arenas + (size_t)threads * j.floats;
    j.first = first_visible(a, a->position) / SPAN;
    j.spans = a->position / SPAN + 1 - j.first;
    bool spans = a->n == 1 && j.spans > 1 && threads > 1;
    size_t tasks = (spans ? j.spans : j.tiles) * a->n_kv_heads;
    pl_pool_run_on(c->pool, threads_for(c, a), tasks, spans ? run_span : run_tile, &j);
    if (spans) add_spans(&j);
}
