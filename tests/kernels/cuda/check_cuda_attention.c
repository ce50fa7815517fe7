/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on the device: pages have the bytes of the host's cache, results agree with doubles on
 * what that cache decodes to, a row has the same bits alone and in a batch, and NaN reaches the rows
 * that see it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "check_cuda.h"
#include "cuda/attention.h"

enum { SEQUENCES = 5, ROWS = 24, P = PL_CACHE_PAGE };

typedef struct shape {
    pl_kv type;
    uint32_t dim, heads, kv_heads, window, recent; /* recent: pages */
    uint32_t length;                               /* of the longest sequence */
} shape;

typedef struct problem {
    shape s;
    pl_kernels kernels;
    pl_cache *cache[SEQUENCES];
    uint32_t length[SEQUENCES];
    float *k[SEQUENCES], *v[SEQUENCES];
    pl_cuda_kv kv;
    void *pages[SEQUENCES][64], *recent[SEQUENCES][64]; /* device addresses */
    size_t table;                                       /* pages of a sequence */
    pl_cuda_row rows[ROWS];
    size_t M;
    float *q;
    const float *device_q;
    void *scratch;
    float *out; /* device */
    bool hard;  /* scores of tens: what is rounded before the softmax counts for more */
} problem;

static void must(check *t, pleach_status status, const pleach_error *err)
{
    if (status != PLEACH_OK) check_fail(t, "%s", err->message);
}

/* ---- the host's caches ------------------------------------------------------------------------ */

static void make_numbers(check *t, float *x, size_t n, uint32_t dim, uint32_t kind)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)check_normal(t);
        if (kind == 1 && i % dim % 16 == 3) x[i] = 20 + 3 * x[i];
    }
}

static void put_host(check *t, problem *p, int i)
{
    pleach_error err;
    pl_cache_settings s = {.n_layers = 1, .n_kv_heads = p->s.kv_heads, .head_dim = p->s.dim,
                           .capacity = p->s.length + P, .types = &p->s.type, .windows = &p->s.window,
                           .recent = p->s.recent * P, .kernels = &p->kernels};
    if (p->cache[i]) pl_cache_close(p->cache[i]);
    must(t, pl_cache_open(&s, &p->cache[i], &err), &err);
    must(t, pl_cache_reserve(p->cache[i], p->length[i], &err), &err);
    pl_cache_put(p->cache[i], 0, 0, p->length[i], p->k[i], p->v[i]);
    pl_cache_advance(p->cache[i], p->length[i]);
}

static void make_sequences(check *t, problem *p)
{
    for (int i = 0; i < SEQUENCES; i++) {
        p->length[i] = i == 0 ? p->s.length : 1 + check_below(t, p->s.length);
        size_t n = (size_t)p->length[i] * p->s.kv_heads * p->s.dim;
        p->k[i] = check_buffer(t, 4 * n, 4);
        p->v[i] = check_buffer(t, 4 * n, 4);
        uint32_t kind = check_below(t, 4) == 0;
        p->hard = p->hard || kind;
        make_numbers(t, p->k[i], n, p->s.dim, kind);
        make_numbers(t, p->v[i], n, p->s.dim, check_below(t, 2));
        put_host(t, p, i);
    }
}

/* ---- the device's pages ----------------------------------------------------------------------- */

static void shuffle(check *t, uint32_t *x, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = check_below(t, (uint32_t)i);
        uint32_t y = x[i - 1];
        x[i - 1] = x[j];
        x[j] = y;
    }
}

/* Pages of one store, in no order. Returns the device's table. */
static void *const *make_pages(check *t, pl_cuda *d, problem *p, pl_kv type, void *pages[][64])
{
    size_t bytes = pl_cuda_kv_page_bytes(type, p->s.kv_heads, p->s.dim), n = SEQUENCES * p->table;
    uint32_t *order = check_buffer(t, 4 * n, 4);
    void **table = check_buffer(t, n * sizeof *table, 8);
    uint8_t *memory = check_cuda_buffer(t, d, n * bytes);
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    shuffle(t, order, n);
    for (size_t i = 0; i < n; i++)
        table[i] = pages[i / p->table][i % p->table] = memory + order[i] * bytes;
    return check_cuda_copy(t, d, table, n * sizeof *table);
}

/* All tokens of all sequences, in calls of rows in no order. */
static void put_device(check *t, pl_cuda *d, const problem *p)
{
    enum { MOST = 300 };
    size_t n = 0, width = p->s.kv_heads * p->s.dim, k_stride = width + 3, v_stride = width;
    for (int i = 0; i < SEQUENCES; i++) n += p->length[i];
    uint32_t *order = check_buffer(t, 4 * n, 4);
    pl_cuda_row *all = check_buffer(t, n * sizeof *all, 4), *rows;
    float *k, *v;
    for (size_t at = 0, i = 0; i < SEQUENCES; i++)
        for (uint32_t j = 0; j < p->length[i]; j++, at++) {
            all[at] = (pl_cuda_row){(uint32_t)i, j};
            order[at] = (uint32_t)at;
        }
    shuffle(t, order, n);
    rows = check_buffer(t, (n + 1) * sizeof *rows, 4);
    k = check_buffer(t, 4 * (n + 1) * k_stride, 4);
    v = check_buffer(t, 4 * (n + 1) * v_stride, 4);
    for (size_t i = 0; i < n; i++) {
        rows[i] = all[order[i]];
        size_t from = rows[i].position * width;
        memcpy(k + i * k_stride, p->k[rows[i].sequence] + from, 4 * width);
        memcpy(v + i * v_stride, p->v[rows[i].sequence] + from, 4 * width);
    }
    rows[n] = (pl_cuda_row){0, PL_CUDA_NO_ROW};
    const pl_cuda_row *device_rows = check_cuda_copy(t, d, rows, (n + 1) * sizeof *rows);
    const float *device_k = check_cuda_copy(t, d, k, 4 * (n + 1) * k_stride);
    const float *device_v = check_cuda_copy(t, d, v, 4 * (n + 1) * v_stride);
    for (size_t i = 0; i <= n; i += MOST)
        pl_cuda_kv_put(d, &p->kv, device_rows + i, PL_MIN(n + 1 - i, (size_t)MOST),
                       device_k + i * k_stride, k_stride, device_v + i * v_stride, v_stride, NULL);
}

static void check_pages_of(check *t, pl_cuda *d, const problem *p, size_t store, int i, pl_kv type,
                           void *const *pages)
{
    size_t bytes = pl_cuda_kv_page_bytes(type, p->s.kv_heads, p->s.dim);
    size_t kept = pl_cache_kept_pages(p->cache[i], store), all = (p->length[i] + P - 1) / P;
    uint8_t *want = malloc(4 * bytes), *raw = want + bytes, *got = raw + bytes, *again = got + bytes;
    pleach_error err;
    if (bytes != pl_cache_page_bytes(p->cache[i], store)) check_fail(t, "page bytes differ");
    for (size_t j = 0; check_good(t) && j < kept; j++) {
        size_t page = all - kept + j;
        if ((page + 1) * P > p->length[i]) continue; /* what lies behind the end is undefined */
        must(t, pl_cache_get_page(p->cache[i], store, j, want, &err), &err);
        if (!check_cuda_fetch(t, d, raw, pages[page], bytes)) break;
        pl_cuda_kv_to_host(type, p->s.kv_heads, p->s.dim, got, raw);
        pl_cuda_kv_from_host(type, p->s.kv_heads, p->s.dim, again, got);
        check_same(t, again, raw, bytes);
        check_same(t, got, want, bytes);
    }
    free(want);
}

static void check_pages(check *t, pl_cuda *d, const problem *p)
{
    for (int i = 0; check_good(t) && i < SEQUENCES; i++) {
        check_pages_of(t, d, p, 0, i, p->s.type, p->pages[i]);
        if (p->kv.recent) check_pages_of(t, d, p, 1, i, PL_KV_BF16, p->recent[i]);
    }
}

/* ---- rows ------------------------------------------------------------------------------------- */

static int compare_rows(const void *a_, const void *b_)
{
    const pl_cuda_row *a = a_, *b = b_;
    if (a->sequence != b->sequence) return a->sequence < b->sequence ? -1 : 1;
    return a->position < b->position ? -1 : a->position > b->position;
}

/* Rows of all sequences in order: last positions, first ones, any; runs of neighbours. */
static void make_rows(check *t, problem *p)
{
    p->M = ROWS - 1;
    for (size_t m = 0; m < p->M; m++) {
        uint32_t s = check_below(t, SEQUENCES), n = p->length[s], at = check_below(t, n);
        if (m == 0) s = 0, at = p->length[0] - 1;
        if (m == 1) s = 1, at = 0;
        if (m >= 12 && p->rows[m - 1].position + 1 < p->length[p->rows[m - 1].sequence]) {
            s = p->rows[m - 1].sequence;
            at = p->rows[m - 1].position + 1;
        }
        p->rows[m] = (pl_cuda_row){s, at};
    }
    qsort(p->rows, p->M, sizeof *p->rows, compare_rows);
    p->rows[p->M++] = (pl_cuda_row){0, PL_CUDA_NO_ROW};
}

static pl_cuda_attention call_of(check *t, pl_cuda *d, const problem *p, size_t m, size_t M,
                                 size_t length, pl_cuda_attention_class how)
{
    size_t width = (size_t)p->s.heads * p->s.dim;
    const pl_cuda_row *rows = check_cuda_copy(t, d, p->rows + m, M * sizeof *rows);
    return (pl_cuda_attention){.cache = p->kv, .rows = rows, .M = M, .length = length,
                               .n_heads = p->s.heads, .how = how, .q = p->device_q + m * width,
                               .q_stride = width, .out = p->out + m * width, .out_stride = width};
}

static void run(check *t, pl_cuda *d, const problem *p, size_t m, size_t M, size_t length,
                pl_cuda_attention_class how, float *got)
{
    size_t width = (size_t)p->s.heads * p->s.dim;
    pl_cuda_attention a = call_of(t, d, p, m, M, length, how);
    pl_cuda_attention_run(d, &a, p->scratch);
    check_cuda_fetch(t, d, got, a.out, 4 * M * width);
}

static void make_problem(check *t, pl_cuda *d, problem *p)
{
    size_t width = (size_t)p->s.heads * p->s.dim;
    p->table = (p->s.length + P - 1) / P;
    make_sequences(t, p);
    bool recent = pl_kv_is_packed(p->s.type) && p->s.recent;
    p->kv = (pl_cuda_kv){.type = p->s.type, .n_kv_heads = p->s.kv_heads, .head_dim = p->s.dim,
                         .window = p->s.window, .pages_stride = p->table};
    p->kv.recent = recent ? (uint32_t)(pl_cache_recent(p->cache[0]) / P) : 0;
    p->kv.pages = make_pages(t, d, p, p->s.type, p->pages);
    if (recent) p->kv.recent_pages = make_pages(t, d, p, PL_KV_BF16, p->recent);
    put_device(t, d, p);
    make_rows(t, p);
    p->q = check_buffer(t, 4 * p->M * width, 4);
    float size = check_below(t, 3) ? 1 : 4;
    p->hard = p->hard || size > 1;
    for (size_t i = 0; i < p->M * width; i++) p->q[i] = size * (float)check_normal(t);
    p->device_q = check_cuda_copy(t, d, p->q, 4 * p->M * width);
    size_t scratch = pl_cuda_attention_scratch(d, p->s.type, p->s.heads, p->s.kv_heads, p->s.dim,
                                               p->M, p->s.length + 1000);
    void *zeros = calloc(1, scratch);
    p->scratch = check_cuda_copy(t, d, zeros, scratch);
    free(zeros);
    p->out = check_cuda_buffer(t, d, 4 * p->M * width);
}

static void close_caches(problem *p)
{
    for (int i = 0; i < SEQUENCES; i++) {
        pl_cache_close(p->cache[i]);
        p->cache[i] = NULL;
    }
}

/* ---- against doubles --------------------------------------------------------------------------- */

static size_t first_of(const problem *p, size_t position)
{
    return p->s.window && position >= p->s.window ? position - p->s.window + 1 : 0;
}

/* Keys (values) that the query at `position` sees, as f32 [position + 1 - first][D]. */
static void read_cache(const problem *p, const pl_cache *c, uint32_t head, size_t position,
                       bool values, float *dst)
{
    size_t first = first_of(p, position), n = position + 1, D = p->s.dim;
    size_t from = PL_MAX(PL_MIN(pl_cache_recent_from(c, 0, position), n), first);
    const float *x;
    for (size_t j = first; j < n; j++) {
        float *to = dst + (j - first) * D;
        if (j < from) x = (values ? pl_cache_values : pl_cache_keys)(c, 0, head, j, 1, to);
        else
            x = (values ? pl_cache_recent_values : pl_cache_recent_keys)(c, 0, head, j, 1, to);
        if (x != to) memcpy(to, x, 4 * D);
    }
}

/* The row's worst error over its RMS. */
static double error_of_head(const problem *p, const float *keys, const float *values, size_t n,
                            const float *q, const float *got, double *score)
{
    double max = -INFINITY, sum = 0, worst = 0, size = 0;
    size_t D = p->s.dim;
    for (size_t j = 0; j < n; j++) {
        score[j] = 0;
        for (size_t e = 0; e < D; e++) score[j] += (double)q[e] * (double)keys[j * D + e];
        score[j] /= sqrt((double)D);
        max = fmax(max, score[j]);
    }
    for (size_t j = 0; j < n; j++) sum += score[j] = exp(score[j] - max);
    for (size_t e = 0; e < D; e++) {
        double want = 0;
        for (size_t j = 0; j < n; j++) want += score[j] / sum * (double)values[j * D + e];
        size += want * want;
        worst += ((double)got[e] - want) * ((double)got[e] - want);
    }
    return sqrt(worst / size);
}

static void check_rows(check *t, const problem *p, const float *got, const char *how, double bound,
                       double *worst)
{
    size_t D = p->s.dim, group = p->s.heads / p->s.kv_heads;
    float *keys = check_buffer(t, 4 * p->s.length * D, 4), *values = check_buffer(t, 4 * p->s.length * D, 4);
    double *score = check_buffer(t, 8 * p->s.length, 8);
    for (size_t m = 0; check_good(t) && m + 1 < p->M; m++) {
        pl_cuda_row row = p->rows[m];
        uint32_t head = check_below(t, p->s.kv_heads);
        size_t n = row.position + 1 - first_of(p, row.position);
        read_cache(p, p->cache[row.sequence], head, row.position, false, keys);
        read_cache(p, p->cache[row.sequence], head, row.position, true, values);
        for (size_t g = 0; g < group; g++) {
            size_t at = (m * p->s.heads + head * group + g) * D;
            double error = error_of_head(p, keys, values, n, p->q + at, got + at, score);
            *worst = fmax(*worst, error);
            if (!(error <= bound)) {
                check_fail(t, "%s: sequence %u of %u, position %u, head %zu: error %.3g", how,
                           row.sequence, p->length[row.sequence], row.position, head * group + g, error);
                return;
            }
        }
    }
}

/* ---- NaN --------------------------------------------------------------------------------------- */

static bool sees(const problem *p, pl_cuda_row row, uint32_t sequence, size_t position)
{
    return row.sequence == sequence && row.position != PL_CUDA_NO_ROW && position <= row.position &&
           position >= first_of(p, row.position);
}

static void check_nan(check *t, pl_cuda *d, problem *p, const float *before,
                      pl_cuda_attention_class how, float *got)
{
    size_t D = p->s.dim, group = p->s.heads / p->s.kv_heads, width = p->s.heads * D;
    uint32_t s = p->rows[check_below(t, (uint32_t)p->M - 1)].sequence;
    size_t j = check_below(t, p->length[s]), head = check_below(t, p->s.kv_heads);
    float *x = (check_below(t, 2) ? p->k : p->v)[s] + (j * p->s.kv_heads + head) * D;
    x[check_below(t, (uint32_t)D)] = NAN;
    put_device(t, d, p);
    run(t, d, p, 0, p->M, p->s.length, how, got);
    for (size_t m = 0; check_good(t) && m + 1 < p->M; m++)
        for (size_t h = 0; check_good(t) && h < p->s.heads; h++) {
            bool reached = false;
            const float *row = got + m * width + h * D;
            for (size_t e = 0; e < D; e++) reached = reached || isnan(row[e]);
            bool want = h / group == head && sees(p, p->rows[m], s, j);
            if (reached != want)
                check_fail(t, "NaN at %zu %s the row at %u", j, want ? "misses" : "reaches",
                           p->rows[m].position);
            else if (!want)
                check_same(t, row, before + m * width + h * D, 4 * D);
        }
}

/* ---- what follows and what comes before ------------------------------------------------------- */

/* Rotated for the layer that reads it: the bits of the rotation of what it is without. */
static void check_rotated(check *t, pl_cuda *d, const problem *p, const float *plain,
                          pl_cuda_attention_class how, float *got)
{
    size_t width = (size_t)p->s.heads * p->s.dim, n = p->M - 1, block = 2;
    float *signs = check_buffer(t, 4 * width, 4), *want = check_buffer(t, 4 * n * width, 4);
    while (width % (2 * block) == 0 && block < 512 && check_below(t, 10)) block *= 2;
    for (size_t i = 0; i < width; i++) signs[i] = check_below(t, 2) ? 1.0f : -1.0f;
    memcpy(want, plain, 4 * n * width);
    for (size_t m = 0; m < n; m++) p->kernels.rotate(want + m * width, signs, width, block);
    pl_cuda_attention a = call_of(t, d, p, 0, n, p->s.length, how);
    a.rotation = (pl_cuda_rotation){check_cuda_copy(t, d, signs, 4 * width), block};
    pl_cuda_attention_run(d, &a, p->scratch);
    if (check_cuda_fetch(t, d, got, a.out, 4 * n * width)) check_same(t, got, want, 4 * n * width);
}

static void put_one(check *t, pl_cuda *d, const problem *p, size_t m, const float *k,
                    const float *v)
{
    size_t width = p->s.kv_heads * p->s.dim;
    const pl_cuda_row *row = check_cuda_copy(t, d, &p->rows[m], sizeof *row);
    const float *device_k = check_cuda_copy(t, d, k, 4 * width);
    const float *device_v = check_cuda_copy(t, d, v, 4 * width);
    pl_cuda_kv_put(d, &p->kv, row, 1, device_k, width, device_v, width, NULL);
}

/* A row's own token is stored by the kernel before, which may still run. */
static void check_fresh(check *t, pl_cuda *d, const problem *p, size_t m, const float *want,
                        pl_cuda_attention_class how, float *got)
{
    size_t width = (size_t)p->s.heads * p->s.dim, kv_width = p->s.kv_heads * p->s.dim;
    size_t at = p->rows[m].position * kv_width;
    const float *k = p->k[p->rows[m].sequence] + at, *v = p->v[p->rows[m].sequence] + at;
    float *other = check_buffer(t, 4 * kv_width, 4);
    for (size_t i = 0; i < kv_width; i++) other[i] = (float)check_normal(t);
    pl_cuda_attention a = call_of(t, d, p, m, 1, p->s.length, how);
    put_one(t, d, p, m, other, other);
    check_cuda_fetch(t, d, got, a.out, 4 * width);
    a.apart = true;
    d->chained = true;
    put_one(t, d, p, m, k, v);
    pl_cuda_attention_run(d, &a, p->scratch);
    d->chained = false;
    if (check_cuda_fetch(t, d, got, a.out, 4 * width)) check_same(t, got, want, 4 * width);
}

/* ---- the tests --------------------------------------------------------------------------------- */

static double check_class(check *t, pl_cuda *d, problem *p, pl_cuda_attention_class how,
                          const char *name)
{
    size_t width = (size_t)p->s.heads * p->s.dim, bytes = 4 * p->M * width;
    float *got = check_buffer(t, bytes, 4), *again = check_buffer(t, bytes, 4);
    double bound = pl_kv_is_packed(p->s.type) ? 6e-4 : 3e-5, worst = 0;
    if (p->hard) bound = pl_kv_is_packed(p->s.type) ? 2e-3 : 3e-4;
    memset(again, 0x55, bytes);
    check_cuda_fetch(t, d, again, memcpy(again, again, 0), 0);
    run(t, d, p, 0, p->M, p->s.length, how, got);
    check_rows(t, p, got, name, bound, &worst);
    for (int i = 0; check_good(t) && i < 4; i++) { /* alone, and with room for more */
        size_t m = check_below(t, (uint32_t)p->M - 1);
        run(t, d, p, m, 1, p->s.length + (i % 2 ? 1000 : 0), how, again);
        for (size_t e = 0; check_good(t) && e < width; e++)
            if (memcmp(again + e, got + m * width + e, 4) != 0)
                check_fail(t, "%s: sequence %u, position %u alone: number %zu is %.9g, not %.9g", name,
                           p->rows[m].sequence, p->rows[m].position, e, again[e], got[m * width + e]);
    }
    for (int i = 0; check_good(t) && i < 3; i++) {
        size_t m = check_below(t, (uint32_t)p->M - 1);
        check_fresh(t, d, p, m, got + m * width, how, again);
    }
    if (check_good(t)) check_rotated(t, d, p, got, how, again);
    if (check_good(t)) check_nan(t, d, p, got, how, again);
    return worst;
}

static void check_shape(check *t, pl_cuda *d, const pl_kernels *c, const shape *s)
{
    char name[PL_KV_NAME_SIZE];
    double rows = 0, tiles = 0;
    if (!check_begin(t, true, "attention_%s_d%u_%u_%u_w%u_r%u_n%u", pl_kv_name(s->type, name), s->dim,
                     s->heads, s->kv_heads, s->window, s->recent, s->length))
        return;
    for (int round = 0; check_round(t, round, 4); round++) {
        check_release(t);
        check_cuda_release(t, d);
        problem *p = calloc(1, sizeof *p);
        p->s = *s;
        p->kernels = *c;
        make_problem(t, d, p);
        check_pages(t, d, p);
        if (round % 4 == 0)
            rows = fmax(rows, check_class(t, d, p, PL_CUDA_ATTENTION_ROWS, "rows"));
        else if (round % 4 == 2)
            rows = fmax(rows, check_class(t, d, p, PL_CUDA_ATTENTION_FEW, "few"));
        else
            tiles = fmax(tiles, check_class(t, d, p, PL_CUDA_ATTENTION_TILES, "tiles"));
        close_caches(p);
        free(p);
    }
    check_cuda_release(t, d);
    check_note(t, "error %.1e, in tiles %.1e", rows, tiles);
    check_end(t);
}

/* ---- speed ------------------------------------------------------------------------------------- */

typedef struct timed {
    pl_cuda *d;
    pl_cuda_attention a[64];
    void *scratch;
} timed;

static void queue(void *user, int i)
{
    timed *u = user;
    pl_cuda_attention_run(u->d, &u->a[i], u->scratch);
}

/* Rows at the end of M sequences of n tokens, or M of one, in as many caches as the L2 does not
 * hold. */
static void time_rows(check *t, pl_cuda *d, pl_kv type, uint32_t D, uint32_t heads, uint32_t kv_heads,
                      uint32_t rows_wanted, uint32_t n, pl_cuda_attention_class how)
{
    enum { FILL = 1024 };
    char name[PL_KV_NAME_SIZE];
    const uint32_t M = how == PL_CUDA_ATTENTION_TILES ? 1 : rows_wanted; /* sequences */
    if (!check_begin(t, true, "attention_bench%s_%s_d%u_m%u_n%u",
                     how == PL_CUDA_ATTENTION_TILES ? "_tiles" : "", pl_kv_name(type, name), D,
                     rows_wanted, n))
        return;
    if (!check_benching(t)) {
        check_end(t);
        return;
    }
    size_t bytes = pl_cuda_kv_page_bytes(type, kv_heads, D), table = (n + P - 1) / P;
    size_t width = kv_heads * D, all = M * table * bytes;
    int copies = (int)PL_MIN((size_t)64, 2 * d->l2_bytes / all + 2);
    size_t total = (size_t)copies * M * table;
    uint8_t *memory = check_cuda_buffer(t, d, total * bytes);
    void **pages = check_buffer(t, total * sizeof *pages, 8);
    uint32_t *order = check_buffer(t, 4 * total, 4);
    for (size_t i = 0; i < total; i++) order[i] = (uint32_t)i;
    shuffle(t, order, total);
    for (size_t i = 0; i < total; i++) pages[i] = memory + order[i] * bytes;
    void *const *device_pages = check_cuda_copy(t, d, pages, total * sizeof *pages);
    float *x = check_buffer(t, 4 * FILL * width, 4), *q = check_buffer(t, 4 * rows_wanted * heads * D, 4);
    for (size_t i = 0; i < FILL * width; i++) x[i] = (float)check_normal(t);
    for (size_t i = 0; i < (size_t)rows_wanted * heads * D; i++) q[i] = (float)check_normal(t);
    const float *device_x = check_cuda_copy(t, d, x, 4 * FILL * width);
    const float *device_q = check_cuda_copy(t, d, q, 4 * rows_wanted * heads * D);
    pl_cuda_row *rows = check_buffer(t, (n + M) * sizeof *rows, 4);
    for (uint32_t i = 0; i < n; i++) rows[i] = (pl_cuda_row){0, i};
    for (uint32_t i = 0; i < M; i++) rows[n + i] = (pl_cuda_row){i, n - 1};
    const pl_cuda_row *device_rows = check_cuda_copy(t, d, rows, (n + M) * sizeof *rows);
    size_t scratch = pl_cuda_attention_scratch(d, type, heads, kv_heads, D, rows_wanted, n);
    void *zeros = calloc(1, scratch);
    timed *u = calloc(1, sizeof *u);
    u->d = d;
    u->scratch = check_cuda_copy(t, d, zeros, scratch);
    float *out = check_cuda_buffer(t, d, 4 * (size_t)rows_wanted * heads * D);
    for (int i = 0; i < copies; i++) {
        pl_cuda_kv kv = {.type = type, .n_kv_heads = kv_heads, .head_dim = D,
                         .pages = device_pages + (size_t)i * M * table, .pages_stride = table};
        u->a[i] = (pl_cuda_attention){.cache = kv, .rows = device_rows + n, .M = M, .length = n,
                                      .n_heads = heads, .q = device_q, .q_stride = (size_t)heads * D,
                                      .out = out, .out_stride = (size_t)heads * D, .how = how};
        if (how == PL_CUDA_ATTENTION_TILES) {
            u->a[i].rows = device_rows + n - rows_wanted;
            u->a[i].M = rows_wanted;
        }
        for (uint32_t s = 0; s < M; s++) {
            kv.pages = device_pages + ((size_t)i * M + s) * table;
            for (uint32_t at = 0; at < n; at += FILL)
                pl_cuda_kv_put(d, &kv, device_rows + at, PL_MIN(n - at, (uint32_t)FILL), device_x, width,
                               device_x, width, NULL);
        }
    }
    d->chained = true; /* as in a model */
    if (how == PL_CUDA_ATTENTION_TILES)
        check_cuda_bench(t, d, queue, u, copies,
                         4e-12 * D * heads * rows_wanted * (n - rows_wanted / 2), "TFLOP/s");
    else
        check_cuda_bench(t, d, queue, u, copies, 1e-12 * (double)all, "TB/s");
    d->chained = false;
    free(zeros);
    free(u);
    check_cuda_release(t, d);
    check_end(t);
}

static void time_all(check *t, pl_cuda *d)
{
    static const pl_kv types[] = {PL_KV_PACKED(8, 3), PL_KV_BF16, PL_KV_F32, PL_KV_PACKED(8, 4),
                                  PL_KV_PACKED(4, 4), PL_KV_PACKED(4, 2)};
    const pl_cuda_attention_class rows = PL_CUDA_ATTENTION_ROWS, tiles = PL_CUDA_ATTENTION_TILES,
                                  few = PL_CUDA_ATTENTION_FEW;
    for (size_t i = 0; i < PL_COUNT(types); i++) {
        time_rows(t, d, types[i], 128, 32, 8, 1, 8192, few);
        time_rows(t, d, types[i], 128, 32, 8, 1, 32768, few);
        time_rows(t, d, types[i], 128, 32, 8, 1, 131072, few);
    }
    time_rows(t, d, types[0], 128, 32, 8, 32, 2048, rows);
    time_rows(t, d, types[1], 128, 32, 8, 32, 2048, rows);
    time_rows(t, d, types[0], 64, 32, 8, 1, 32768, few);
    time_rows(t, d, types[0], 256, 16, 8, 1, 32768, few);
    for (size_t i = 0; i < 3; i++) time_rows(t, d, types[i], 128, 32, 8, 512, 8192, tiles);
}

void check_cuda_attention(check *t, const pl_kernels *c, pl_cuda *d)
{
    static const shape shapes[] = {
        {PL_KV_F32, 64, 9, 3, 0, 0, 700},         {PL_KV_F32, 128, 8, 2, 100, 0, 700},
        {PL_KV_F32, 40, 4, 4, 0, 0, 300},         {PL_KV_F32, 20, 6, 1, 33, 0, 300},
        {PL_KV_F32, 256, 8, 1, 0, 0, 300},        {PL_KV_F32, 512, 4, 1, 0, 0, 200},
        {PL_KV_BF16, 128, 32, 8, 0, 0, 1300},     {PL_KV_BF16, 80, 10, 2, 0, 0, 300},
        {PL_KV_BF16, 36, 4, 2, 70, 0, 300},       {PL_KV_BF16, 256, 4, 2, 0, 0, 300},
        {PL_KV_PACKED(8, 3), 64, 9, 3, 0, 2, 700},  {PL_KV_PACKED(8, 3), 128, 32, 8, 0, 2, 1300},
        {PL_KV_PACKED(8, 3), 128, 8, 2, 0, 0, 2700}, {PL_KV_PACKED(8, 3), 256, 5, 1, 0, 1, 700},
        {PL_KV_PACKED(8, 4), 128, 8, 2, 200, 0, 700}, {PL_KV_PACKED(8, 4), 64, 4, 4, 0, 3, 700},
        {PL_KV_PACKED(8, 2), 128, 4, 1, 90, 1, 700}, {PL_KV_PACKED(8, 2), 256, 4, 2, 0, 0, 700},
        {PL_KV_PACKED(4, 4), 128, 8, 2, 0, 0, 700}, {PL_KV_PACKED(4, 4), 256, 2, 1, 0, 2, 300},
        {PL_KV_PACKED(4, 2), 128, 8, 2, 0, 2, 700}, {PL_KV_PACKED(4, 3), 64, 7, 1, 0, 0, 700},
        {PL_KV_PACKED(4, 2), 64, 2, 2, 65, 0, 300}, {PL_KV_PACKED(4, 3), 256, 8, 2, 0, 0, 300},
        {PL_KV_PACKED(8, 3), 80, 4, 2, 0, 2, 300},  {PL_KV_PACKED(5, 5), 96, 4, 2, 0, 0, 300},
        {PL_KV_PACKED(2, 8), 112, 4, 1, 0, 1, 300}, {PL_KV_PACKED(8, 8), 192, 4, 2, 50, 0, 300},
        {PL_KV_PACKED(8, 4), 512, 2, 1, 0, 1, 200}, {PL_KV_PACKED(5, 3), 128, 4, 2, 0, 2, 300},
    };
    for (size_t i = 0; i < PL_COUNT(shapes); i++) check_shape(t, d, c, &shapes[i]);
    time_all(t, d);
}
