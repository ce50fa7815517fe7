/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of outer products of a block's activations and gradients. */
#include "gather.h"

#include <math.h>
#include <string.h>

#include "base/matrix.h"
#include "base/memory.h"

/* Squared norms of tokens beyond it would take sums to infinity. */
#define MOST_POWER 1e30f

/* ---- what there is to gather ----------------------------------------------------------------- */

static bool of_outputs(pl_statistic kind)
{
    return kind == PL_STATISTIC_OUTPUT || kind == PL_STATISTIC_POWER;
}

static size_t list_items(const pl_config *config, const pl_statistics_info *info,
                         pl_gather_item items[PL_GATHER_ITEMS])
{
    size_t n = 0;
    for (pl_statistic kind = 0; kind < PL_STATISTIC_KINDS; kind++) {
        if (!pl_statistic_gathered(info, kind)) continue;
        size_t listed = 0;
        for (int i = 0; i < PL_STATISTICS_LINEARS; i++) {
            pl_module m;
            pl_config_module(config, 1 + (size_t)i, &m); /* module 0 is the embedding */
            if (kind == PL_STATISTIC_INPUT && m.input != listed) continue;
            items[n++] = (pl_gather_item){.kind = kind, .index = listed++, .linear = i,
                                          .width = of_outputs(kind) ? m.out : m.in,
                                          .out = m.out};
        }
    }
    return n;
}

static uint64_t square_size(const pl_gather_item *item)
{
    return item->kind == PL_STATISTIC_POWER ? item->width : item->width * item->width;
}

/* The items from `first` on that one pass takes: as many as fit, one at least. */
static size_t pass_end(const pl_gather_item *items, size_t n, size_t first, uint64_t limit,
                       uint64_t *size)
{
    size_t end = first;
    for (*size = 0; end < n && (end == first || *size + square_size(&items[end]) <= limit); end++)
        *size += square_size(&items[end]);
    return end;
}

/* Numbers of the largest pass; how many passes there are. */
static uint64_t plan_passes(const pl_gather_item *items, size_t n, uint64_t limit, size_t *passes)
{
    uint64_t most = 0, size;
    *passes = 0;
    for (size_t first = 0; first < n; ++*passes) {
        first = pass_end(items, n, first, limit, &size);
        most = PL_MAX(most, size);
    }
    return most;
}

static uint64_t widest(const pl_gather_item *items, size_t n)
{
    uint64_t most = 0;
    for (size_t i = 0; i < n; i++) most = PL_MAX(most, items[i].width);
    return most;
}

/* Numbers for the squares of a pass, when `limit` bytes are for everything. */
static uint64_t squares_limit(const pl_gather_item *items, size_t n, size_t chunk, uint64_t limit)
{
    uint64_t rows = chunk * (widest(items, n) + 1), all = limit / sizeof(float);
    return all > rows ? all - rows : 0;
}

uint64_t pl_gather_memory(const pl_config *config, const pl_statistics_info *info, size_t chunk,
                          uint64_t limit)
{
    pl_gather_item items[PL_GATHER_ITEMS];
    size_t n = list_items(config, info, items), passes;
    uint64_t squares = plan_passes(items, n, squares_limit(items, n, chunk, limit), &passes);
    return (squares + chunk * (widest(items, n) + 1)) * sizeof(float);
}

uint64_t pl_gather_disk(const pl_config *config, const pl_statistics_info *info)
{
    pl_gather_item items[PL_GATHER_ITEMS];
    size_t n = list_items(config, info, items);
    uint64_t sum = 8192; /* header and counts */
    for (size_t i = 0; i < n; i++) sum += pl_statistic_size(items[i].kind, items[i].width) * sizeof(float);
    return sum;
}

size_t pl_gather_passes(const pl_config *config, const pl_statistics_info *info, size_t chunk,
                        uint64_t limit)
{
    pl_gather_item items[PL_GATHER_ITEMS];
    size_t n = list_items(config, info, items), passes;
    plan_passes(items, n, squares_limit(items, n, chunk, limit), &passes);
    return passes;
}

/* A symmetric sum in tiles takes a little more than half of the full one. */
double pl_gather_operations(const pl_config *config, const pl_statistics_info *info)
{
    pl_gather_item items[PL_GATHER_ITEMS];
    size_t n = list_items(config, info, items);
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += 0.6 * (double)square_size(&items[i]);
    return sum;
}

pleach_status pl_gather_open(pl_gather *g, const pl_config *config, const pl_compute *c,
                             const pl_statistics_info *info, size_t chunk, uint64_t limit,
                             pleach_error *err)
{
    size_t passes;
    *g = (pl_gather){.c = c, .chunk = chunk};
    g->n = list_items(config, info, g->items);
    g->limit = squares_limit(g->items, g->n, chunk, limit);
    g->memory = pl_alloc(plan_passes(g->items, g->n, g->limit, &passes), sizeof(float));
    g->rows = pl_alloc(chunk, widest(g->items, g->n) * sizeof(float));
    g->scales = pl_alloc(chunk, sizeof(float));
    if (g->memory && g->rows && g->scales) return PLEACH_OK;
    pl_gather_close(g);
    return pl_fail_memory(err, "statistics", pl_gather_memory(config, info, chunk, limit));
}

void pl_gather_close(pl_gather *g)
{
    for (size_t i = g->first; i < g->end; i++)
        pl_matrix_release(g->c->pool, g->items[i].square);
    pl_free(g->memory);
    pl_free(g->rows);
    pl_free(g->scales);
    *g = (pl_gather){0};
}

/* ---- sums ------------------------------------------------------------------------------------ */

bool pl_gather_next(pl_gather *g)
{
    uint64_t size;
    g->first = g->end;
    g->end = pass_end(g->items, g->n, g->first, g->limit, &size);
    float *square = g->memory;
    memset(square, 0, size * sizeof *square);
    for (size_t i = g->first; i < g->end; i++) {
        pl_gather_item *item = &g->items[i];
        item->square = square;
        item->tokens = 0;
        item->weight = 0;
        square += square_size(item);
        if (item->kind != PL_STATISTIC_POWER)
            pl_matrix_hold(g->c->pool, item->square, square_size(item));
    }
    return g->first < g->n;
}

/* Tokens of one item. */
typedef struct tokens_job {
    pl_gather *g;
    const pl_gather_item *item;
    const float *x, *gradient;
} tokens_job;

/* The factor of a token: 1, or |g| for Fisher; -1 for one that is left out. */
static void find_scale(void *job, size_t m, int thread)
{
    const tokens_job *j = job;
    const pl_gather_item *item = j->item;
    pl_dot_f32_fn *dot = j->g->c->kernels.dot_f32;
    bool fisher = item->kind == PL_STATISTIC_FISHER;
    const float *row = j->x + m * item->width, *by = fisher ? j->gradient + m * item->out : NULL;
    float weight = fisher ? dot(by, by, item->out) : 1;
    float power = dot(row, row, item->width);
    bool usable = power <= MOST_POWER && weight <= MOST_POWER && power * weight <= MOST_POWER;
    (void)thread;
    j->g->scales[m] = usable ? sqrtf(weight) : -1;
}

static void find_scales(pl_gather *g, const pl_gather_item *item, const pl_tape *tape,
                        const float *x)
{
    tokens_job job = {g, item, x, tape->gradient[item->linear]};
    pl_pool_run(g->c->pool, tape->n, find_scale, &job);
}

static void scale_row(void *job, size_t m, int thread)
{
    const tokens_job *j = job;
    size_t at = m * j->item->width;
    float s = j->g->scales[m];
    (void)thread;
    for (size_t i = at; i < at + j->item->width; i++) j->g->rows[i] = s < 0 ? 0 : s * j->x[i];
}

/* The tokens to be summed: as they are, or copied with their factors. */
static const float *scale_rows(pl_gather *g, pl_gather_item *item, const float *x, size_t n)
{
    bool plain = item->kind != PL_STATISTIC_FISHER;
    for (size_t m = 0; m < n; m++) {
        float s = g->scales[m];
        plain = plain && s >= 0;
        if (s < 0) continue;
        item->tokens++;
        item->weight += (double)s * (double)s;
    }
    if (plain) return x;
    pl_pool_run(g->c->pool, n, scale_row, &(tokens_job){.g = g, .item = item, .x = x});
    return g->rows;
}

static void add_squares(const pl_gather *g, pl_gather_item *item, const float *x, size_t n)
{
    for (size_t m = 0; m < n; m++) {
        if (g->scales[m] < 0) continue;
        item->tokens++;
        item->weight += 1;
        for (size_t i = 0; i < item->width; i++) {
            float v = x[m * item->width + i];
            item->square[i] += v * v;
        }
    }
}

void pl_gather_add(pl_gather *g, const pl_tape *tape)
{
    for (size_t i = g->first; i < g->end; i++) {
        pl_gather_item *item = &g->items[i];
        const float *x = of_outputs(item->kind) ? tape->gradient[item->linear]
                                                : pl_tape_input(tape, item->linear);
        find_scales(g, item, tape, x);
        if (item->kind == PL_STATISTIC_POWER) add_squares(g, item, x, tape->n);
        else
            pl_gram(g->c->pool, item->width, tape->n, scale_rows(g, item, x, tape->n),
                    item->width, item->square, item->width);
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

/* True if the sum stands for something. */
static bool has_mean(const pl_gather_item *item)
{
    return item->tokens > 0 && item->weight > 0;
}

pleach_status pl_gather_begin(pl_gather *g, const char *dir, uint32_t block,
                              pl_safetensors_writer **out, pleach_error *err)
{
    pl_tensor tensors[PL_GATHER_ITEMS + PL_STATISTIC_KINDS + 1];
    char names[PL_GATHER_ITEMS][PL_STATISTICS_NAME];
    size_t n = 0;
    bool kinds[PL_STATISTIC_KINDS] = {0};
    for (; n < g->n; n++) {
        const pl_gather_item *item = &g->items[n];
        kinds[item->kind] = true;
        tensors[n] = (pl_tensor){
            .name = pl_statistics_tensor_name(item->kind, item->index, names[n]), .type = PL_F32,
            .n_dims = 1, .shape = {pl_statistic_size(item->kind, item->width)}};
    }
    for (pl_statistic kind = 0; kind < PL_STATISTIC_KINDS; kind++)
        if (kinds[kind])
            tensors[n++] = (pl_tensor){.name = pl_statistics_tokens_name(kind), .type = PL_I64,
                                       .n_dims = 1, .shape = {pl_statistic_count(kind)}};
    if (kinds[PL_STATISTIC_FISHER])
        tensors[n++] = (pl_tensor){.name = PL_STATISTICS_GRADIENT, .type = PL_F64, .n_dims = 1,
                                   .shape = {PL_STATISTICS_LINEARS}};
    char *path = pl_statistics_block_path(dir, block, err);
    if (!path) return PLEACH_ERR_MEMORY;
    pleach_status status = pl_safetensors_create(path, tensors, n, out, err);
    pl_free(path);
    g->first = g->end = 0;
    return status;
}

pleach_status pl_gather_append(const pl_gather *g, pl_safetensors_writer *w, pleach_error *err)
{
    for (size_t i = g->first; i < g->end; i++) {
        const pl_gather_item *item = &g->items[i];
        size_t n = item->width;
        double mean = has_mean(item) ? 1 / item->weight : 0;
        pl_matrix_release(g->c->pool, item->square);
        for (size_t row = 0; row < (item->kind == PL_STATISTIC_POWER ? 1 : n); row++) {
            const float *from = item->square + row * n;
            for (size_t j = row; j < n; j++) g->rows[j] = (float)(mean * (double)from[j]);
            PL_TRY(pl_safetensors_append(w, g->rows + row, (n - row) * sizeof(float), err));
        }
    }
    return PLEACH_OK;
}

static pleach_status append_counts(const pl_gather *g, pl_safetensors_writer *w, pleach_error *err)
{
    double gradient[PL_STATISTICS_LINEARS] = {0};
    bool fisher = false;
    for (size_t i = 0; i < g->n; i++) {
        const pl_gather_item *item = &g->items[i];
        int64_t tokens = has_mean(item) ? item->tokens : 0;
        PL_TRY(pl_safetensors_append(w, &tokens, sizeof tokens, err));
        if (item->kind != PL_STATISTIC_FISHER) continue;
        fisher = true;
        if (tokens) gradient[item->index] = item->weight / (double)tokens;
    }
    return fisher ? pl_safetensors_append(w, gradient, sizeof gradient, err) : PLEACH_OK;
}

pleach_status pl_gather_commit(const pl_gather *g, pl_safetensors_writer *w, pleach_error *err)
{
    pleach_status status = append_counts(g, w, err);
    if (status == PLEACH_OK) return pl_safetensors_commit(w, err);
    pl_safetensors_discard(w);
    return status;
}
