/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on packed pages: against doubles on the decoded pages, rows alone against rows in
 * company, NaN groups, memory beyond the pages; and its speed beside that on bf16. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/half.h"
#include "codec/turboquant.h"

enum {
    P = PL_ATTEND_BLOCK,
    MOST_ROWS = 33,
    MOST_BLOCKS = 3,
    MOST_KEYS = MOST_BLOCKS * P,
    MOST_DIM = PL_TURBOQUANT_MAX_DIM
};

/* Query rows over n positions, of which row r sees [lo[r], hi[r]). */
typedef struct problem {
    pl_turboquant type;
    size_t rows, n;
    float *q;
    uint8_t *keys[MOST_BLOCKS], *values[MOST_BLOCKS]; /* pages */
    float *k, *v; /* [n][dim] decoded, values still rotated */
    uint32_t lo[MOST_ROWS], hi[MOST_ROWS];
} problem;

static size_t blocks_of(const problem *p)
{
    return (p->n + P - 1) / P;
}

/* Numbers of a head: normal ones, or some dimensions far from zero (1), large (2), all far (3). */
static void fill(check *t, float *x, size_t n, size_t dim, uint32_t kind)
{
    float far[MOST_DIM], size[MOST_DIM];
    for (size_t d = 0; d < dim; d++) {
        far[d] = kind == 1 && check_below(t, 16) == 0 ? 100 * (float)check_normal(t) : 0;
        size[d] = kind == 2 && check_below(t, 16) == 0 ? 50 : 1;
        if (kind == 3) far[d] = 300;
    }
    for (size_t i = 0; i < n * dim; i++)
        x[i] = far[i % dim] + size[i % dim] * (float)check_normal(t);
}

static void fill_page(check *t, problem *p, size_t block, uint32_t kind)
{
    float x[P * MOST_DIM];
    size_t dim = p->type.dim, n = PL_MIN(p->n - block * P, (size_t)P);
    pl_turboquant_view keys = pl_turboquant_key_page(&p->type, p->keys[block], P, 0);
    pl_turboquant_view values = pl_turboquant_value_page(&p->type, p->values[block], P, 0);
    pl_kernels k;
    pl_kernels_init(&k, 0);
    fill(t, x, n, dim, kind);
    pl_turboquant_encode_keys(&p->type, &keys, x, dim, n);
    pl_turboquant_plain to = {.data = p->k + block * P * dim, .stride = dim};
    pl_turboquant_decode_keys(&p->type, &keys, &to, n);
    fill(t, x, n, dim, check_below(t, 4));
    pl_turboquant_encode_values(&p->type, &k, &values, x, dim, n);
    to.data = p->v + block * P * dim;
    pl_turboquant_decode_values(&p->type, &k, &values, &to, n, true);
}

static void make_problem(check *t, problem *p)
{
    static const uint8_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 32, 33};
    size_t dim = p->type.dim;
    p->rows = rows[check_below(t, PL_COUNT(rows))];
    p->n = 1 + check_below(t, MOST_KEYS);
    p->q = check_buffer(t, p->rows * dim * 4, 4);
    p->k = check_buffer(t, p->n * dim * 4, 4);
    p->v = check_buffer(t, p->n * dim * 4, 4);
    uint32_t kind = check_below(t, 4);
    float scale = kind == 0 && check_below(t, 2) ? 8 : 1; /* of scores */
    for (size_t i = 0; i < p->rows * dim; i++)
        p->q[i] = (float)check_normal(t) * scale / sqrtf((float)dim);
    for (size_t b = 0; b < blocks_of(p); b++) {
        p->keys[b] = check_buffer(t, P * pl_turboquant_key_bytes(&p->type), 2);
        p->values[b] = check_buffer(t, P * pl_turboquant_value_bytes(&p->type), 2);
        fill_page(t, p, b, kind);
    }
    for (size_t r = 0; r < p->rows; r++) {
        p->hi[r] = 1 + check_below(t, (uint32_t)p->n);
        p->lo[r] = check_below(t, 2) ? 0 : check_below(t, p->hi[r]);
    }
}

/* Rows r0 .. r0 + rows - 1, block by block; out[rows][dim] divided by the sums. */
static void attend(check *t, const pl_kernels *k, const problem *p, size_t r0, size_t rows,
                   float *out)
{
    uint32_t lo[MOST_ROWS], hi[MOST_ROWS];
    float max[MOST_ROWS], sum[MOST_ROWS];
    size_t dim = p->type.dim;
    float *q = check_buffer(t, rows * (dim + PL_ATTEND_SUMS) * 4, 4);
    pl_attend_tile tile = {.rows = rows, .dim = dim, .q = q, .lo = lo, .hi = hi, .max = max,
                           .sum = sum, .out = out};
    tile.scores = check_buffer(t, rows * P * 4, 4);
    k->attend_prepare(q, p->q + r0 * dim, rows, &p->type);
    memset(out, 0, rows * dim * 4);
    for (size_t r = 0; r < rows; r++) {
        max[r] = -INFINITY;
        sum[r] = 0;
    }
    for (size_t b = 0; b < blocks_of(p); b++) {
        uint32_t at = (uint32_t)(b * P), n = (uint32_t)PL_MIN(p->n - at, (size_t)P);
        for (size_t r = 0; r < rows; r++) {
            lo[r] = PL_MIN(p->lo[r0 + r] > at ? p->lo[r0 + r] - at : 0, n);
            hi[r] = PL_MAX(PL_MIN(p->hi[r0 + r] > at ? p->hi[r0 + r] - at : 0, n), lo[r]);
        }
        k->attend_packed(&tile, &p->type, p->keys[b], p->values[b], n);
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t d = 0; d < dim; d++) out[r * dim + d] /= sum[r];
}

/* The row's error over its size. */
static double error_of(const problem *p, size_t r, const float *got)
{
    static double score[MOST_KEYS];
    double max = -INFINITY, sum = 0, error = 0, size = 0;
    size_t dim = p->type.dim;
    for (size_t j = p->lo[r]; j < p->hi[r]; j++) {
        score[j] = 0;
        for (size_t d = 0; d < dim; d++)
            score[j] += (double)p->q[r * dim + d] * (double)p->k[j * dim + d];
        max = fmax(max, score[j]);
    }
    for (size_t j = p->lo[r]; j < p->hi[r]; j++) sum += score[j] = exp(score[j] - max);
    for (size_t d = 0; d < dim; d++) {
        double want = 0;
        for (size_t j = p->lo[r]; j < p->hi[r]; j++)
            want += score[j] / sum * (double)p->v[j * dim + d];
        error += ((double)got[d] - want) * ((double)got[d] - want);
        size += want * want;
    }
    return sqrt(error / size);
}

/* Makes a group of one position NaN, keys or values; the rows that see it become NaN. */
static void check_nan(check *t, const pl_kernels *isa, problem *p, const float *before, float *got)
{
    size_t dim = p->type.dim, j = check_below(t, (uint32_t)p->n), b = j / P;
    size_t group = check_below(t, (uint32_t)pl_turboquant_groups((uint32_t)dim, 32));
    pl_turboquant_view page =
        check_below(t, 2) ? pl_turboquant_key_page(&p->type, p->keys[b], P, j % P)
                          : pl_turboquant_value_page(&p->type, p->values[b], P, j % P);
    ((uint16_t *)page.scales)[group * page.scale_step] = 0x7e00;
    attend(t, isa, p, 0, p->rows, got);
    for (size_t r = 0; r < p->rows && check_good(t); r++) {
        bool sees = p->lo[r] <= j && j < p->hi[r], is_key = page.zeros != NULL;
        size_t d = is_key ? check_below(t, (uint32_t)dim) : 32 * group;
        if (sees && !isnan(got[r * dim + d]))
            check_fail(t, "row %zu sees a NaN at %zu and does not become NaN", r, j);
        if (!sees) check_same(t, got + r * dim, before + r * dim, dim * 4);
    }
}

/* Pages at the edge of readable memory: the results of pages elsewhere. */
static void check_edges(check *t, const pl_kernels *isa, problem *p, const float *want, float *got)
{
    size_t last = blocks_of(p) - 1;
    size_t key_bytes = P * pl_turboquant_key_bytes(&p->type);
    size_t value_bytes = P * pl_turboquant_value_bytes(&p->type);
    uint8_t **page = check_below(t, 2) ? &p->keys[last] : &p->values[last], *was = *page;
    size_t bytes = page == &p->keys[last] ? key_bytes : value_bytes;
    *page = memcpy(check_fenced(t, bytes), was, bytes);
    attend(t, isa, p, 0, p->rows, got);
    check_same(t, got, want, p->rows * p->type.dim * 4);
    *page = was;
}

static void check_type(check *t, const pl_kernels *isa, const pl_turboquant *type, int rounds)
{
    const double limit = 5e-4;
    for (int round = 0; check_round(t, round, rounds); round++) {
        check_release(t);
        problem p = {.type = *type};
        make_problem(t, &p);
        size_t dim = type->dim;
        float *all = check_buffer(t, p.rows * dim * 4, 4), *one = check_buffer(t, dim * 4, 4);
        float *again = check_buffer(t, p.rows * dim * 4, 4);
        attend(t, isa, &p, 0, p.rows, all);
        for (size_t r = 0; r < p.rows && check_good(t); r++) {
            double error = error_of(&p, r, all + r * dim);
            if (!(error < limit)) check_fail(t, "row %zu is off by %.2e of its size", r, error);
        }
        size_t r = check_below(t, (uint32_t)p.rows);
        attend(t, isa, &p, r, 1, one);
        check_same(t, one, all + r * dim, dim * 4);
        check_edges(t, isa, &p, all, again);
        check_nan(t, isa, &p, all, again);
    }
}

static void check_bits(check *t, const pl_kernels *c, const pl_kernels *isa, uint32_t key_bits,
                       uint32_t value_bits)
{
    static const uint32_t dims[] = {64, 80, 96, 112, 128, 192, 256, 512};
    if (!check_begin(t, isa->attend_packed != c->attend_packed, "attend_packed_k%uv%u", key_bits,
                     value_bits))
        return;
    for (size_t d = 0; d < PL_COUNT(dims) && check_good(t); d++)
        check_type(t, isa, &(pl_turboquant){dims[d], key_bits, value_bits}, 8);
    check_end(t);
}

/* ---- speed ----------------------------------------------------------------------------------
 *
 * One query of 32 heads over 8 key heads, the numbers of all heads of 64 positions together as in
 * a cache, on one thread; a run is one key head, each in turn. */

enum { HEADS = 8, ROWS = 4 };

typedef struct cache {
    pl_turboquant type;
    size_t pages;
    uint8_t *packed;           /* [pages][HEADS] a key page and a value page */
    uint16_t *plain;           /* [pages][2][HEADS][P][dim] bf16 */
    size_t key_bytes, value_bytes;
} cache;

static void make_cache(check *t, cache *c, size_t n)
{
    static float x[P * MOST_DIM];
    size_t dim = c->type.dim, numbers = P * dim;
    pl_kernels k;
    pl_kernels_init(&k, 0);
    c->pages = n / P;
    c->key_bytes = P * pl_turboquant_key_bytes(&c->type);
    c->value_bytes = P * pl_turboquant_value_bytes(&c->type);
    c->packed = aligned_alloc(64, c->pages * HEADS * (c->key_bytes + c->value_bytes));
    c->plain = aligned_alloc(64, c->pages * HEADS * 2 * numbers * 2);
    if (!c->packed || !c->plain) abort();
    for (size_t i = 0; i < c->pages * HEADS; i++) {
        uint8_t *page = c->packed + i * (c->key_bytes + c->value_bytes);
        uint16_t *keys = c->plain + (i / HEADS * 2 * HEADS + i % HEADS) * numbers;
        uint16_t *values = keys + HEADS * numbers;
        if (i >= 64) { /* encoding all would take longer than the rest */
            size_t of = i % 64;
            memcpy(page, c->packed + of * (c->key_bytes + c->value_bytes),
                   c->key_bytes + c->value_bytes);
            memcpy(keys, c->plain, 2 * numbers);
            memcpy(values, c->plain, 2 * numbers);
            continue;
        }
        for (size_t j = 0; j < numbers; j++) {
            x[j] = (float)check_normal(t);
            keys[j] = values[j] = pl_f32_to_bf16(x[j]);
        }
        pl_turboquant_view to = pl_turboquant_key_page(&c->type, page, P, 0);
        pl_turboquant_encode_keys(&c->type, &to, x, dim, P);
        to = pl_turboquant_value_page(&c->type, page + c->key_bytes, P, 0);
        pl_turboquant_encode_values(&c->type, &k, &to, x, dim, P);
    }
}

/* The query's rows of one key head and their sums. */
typedef struct row_sums {
    float q[ROWS * MOST_DIM], prepared[ROWS * (MOST_DIM + PL_ATTEND_SUMS)], out[ROWS * MOST_DIM];
    float max[ROWS], sum[ROWS], scores[ROWS * P];
    uint32_t lo[ROWS], hi[ROWS];
} row_sums;

static pl_attend_tile start_rows(row_sums *s, size_t dim, const float *q)
{
    for (size_t r = 0; r < ROWS; r++) {
        s->max[r] = -INFINITY;
        s->sum[r] = 0;
        s->lo[r] = 0;
        s->hi[r] = P;
    }
    memset(s->out, 0, sizeof s->out);
    return (pl_attend_tile){ROWS, dim, q, s->lo, s->hi, s->max, s->sum, s->out, s->scores};
}

static const uint8_t *packed_page(const cache *c, size_t i, size_t head)
{
    return c->packed + (i * HEADS + head) * (c->key_bytes + c->value_bytes);
}

static void run_packed(const pl_kernels *k, const cache *c, row_sums *s, size_t head)
{
    k->attend_prepare(s->prepared, s->q, ROWS, &c->type);
    pl_attend_tile tile = start_rows(s, c->type.dim, s->prepared);
    for (size_t i = 0; i < c->pages; i++) {
        const uint8_t *page = packed_page(c, i, head);
        k->attend_packed(&tile, &c->type, page, page + c->key_bytes, P);
    }
    for (size_t r = 0; r < ROWS; r++)
        pl_turboquant_unrotate(k, s->out + r * c->type.dim, c->type.dim);
}

/* As from a bf16 cache: a page's numbers of one head converted, then attended to. */
static void run_plain(const pl_kernels *k, const cache *c, row_sums *s, size_t head)
{
    static float keys[P * MOST_DIM], values[P * MOST_DIM];
    size_t numbers = P * c->type.dim;
    pl_attend_tile tile = start_rows(s, c->type.dim, s->q);
    for (size_t i = 0; i < c->pages; i++) {
        const uint16_t *k16 = c->plain + (i * 2 * HEADS + head) * numbers;
        const uint16_t *v16 = k16 + HEADS * numbers;
        for (size_t j = 0; j < numbers; j++) keys[j] = pl_bf16_to_f32(k16[j]);
        for (size_t j = 0; j < numbers; j++) values[j] = pl_bf16_to_f32(v16[j]);
        k->attend(&tile, keys, values, P);
    }
}

static uint64_t run_read(const cache *c, size_t head)
{
    uint64_t sum[8] = {0}, x[8];
    for (size_t i = 0; i < c->pages; i++) {
        const uint8_t *page = packed_page(c, i, head);
        for (size_t at = 0; at < c->key_bytes + c->value_bytes; at += sizeof x) {
            memcpy(x, page + at, sizeof x);
            for (size_t j = 0; j < 8; j++) sum[j] += x[j];
        }
    }
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

static void time_cache(check *t, const pl_kernels *isa, pl_turboquant type, size_t n)
{
    if (!check_begin(t, true, "attend_packed_k%uv%u_d%u_n%zu", type.key_bits, type.value_bits,
                     type.dim, n))
        return;
    if (check_benching(t)) {
        static row_sums s;
        volatile uint64_t sink;
        cache c = {.type = type};
        make_cache(t, &c, n);
        for (size_t i = 0; i < ROWS * type.dim; i++) s.q[i] = (float)check_normal(t) * 0.1f;
        size_t h = 0;
        double bytes = (double)(c.pages * (c.key_bytes + c.value_bytes));
        check_timer packed = check_timer_start(t, bytes * 1e-9, "GB/s");
        while (check_timer_next(&packed)) run_packed(isa, &c, &s, h++ % HEADS);
        check_timer plain = check_timer_start(t, (double)n * 1e-6, "M/s bf16");
        while (check_timer_next(&plain)) run_plain(isa, &c, &s, h++ % HEADS);
        check_timer read = check_timer_start(t, bytes * 1e-9, "GB/s read");
        while (check_timer_next(&read)) sink = run_read(&c, h++ % HEADS);
        (void)sink;
        printf("  %.2f ns a position, bf16 %.2f (%.2f times), reading %.2f (1/%.2f)\n",
               1e9 * packed.best / (double)n, 1e9 * plain.best / (double)n,
               plain.best / packed.best, 1e9 * read.best / (double)n, packed.best / read.best);
        free(c.packed);
        free(c.plain);
    }
    check_end(t);
}

void check_packed(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    static const uint32_t key_bits[] = {8, 5, 4, 2}, value_bits[] = {8, 5, 4, 3, 2};
    for (size_t k = 0; k < PL_COUNT(key_bits); k++)
        for (size_t v = 0; v < PL_COUNT(value_bits); v++)
            check_bits(t, c, isa, key_bits[k], value_bits[v]);
    static const pl_turboquant timed[] = {{64, 8, 3}, {128, 8, 3}, {64, 4, 4}, {64, 5, 5},
                                          {64, 8, 8}, {64, 2, 2}};
    for (size_t i = 0; i < PL_COUNT(timed); i++)
        for (size_t n = 8192; n <= 32768; n *= 4)
            if (i < 2 || n == 8192) time_cache(t, isa, timed[i], n);
}
