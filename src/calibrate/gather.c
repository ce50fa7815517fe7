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

/* The items of a block; NULL counts them. */
static size_t list_items(const pl_config *config, uint32_t block, const pl_statistics_info *info,
                         pl_gather_item *items)
{
    size_t n = 0;
    for (pl_statistic kind = 0; kind < PL_STATISTIC_KINDS; kind++) {
        if (!pl_statistic_gathered(info, kind)) continue;
        size_t listed = 0;
        for (size_t i = 0; i < pl_config_layer_modules(config, block); i++) {
            pl_module m;
            pl_config_layer_module(config, block, i, &m);
            if (kind == PL_STATISTIC_INPUT && m.input != listed) continue;
            if (items)
                items[n] = (pl_gather_item){.kind = kind, .module = m, .out = m.out,
                                            .width = of_outputs(kind) ? m.out : m.in};
            n++;
            listed++;
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

/* Numbers for the squares of a pass, when `limit` bytes are for everything. */
static uint64_t squares_limit(uint64_t widest_row, size_t chunk, uint64_t limit)
{
    uint64_t rows = chunk * (widest_row + 1), all = limit / sizeof(float);
    return all > rows ? all - rows : 0;
}

/* What the planning functions want to know of all blocks. Blocks of one make are looked at once. */
typedef struct plan {
    uint64_t squares; /* numbers in the largest pass */
    uint64_t widest, disk;
    size_t passes, most_items;
    double operations;
} plan;

static bool same_make(const pl_config *g, uint32_t a, uint32_t b)
{
    return memcmp(&g->layer[a], &g->layer[b], sizeof g->layer[a]) == 0;
}

static plan add_block(plan p, const pl_gather_item *items, size_t n, size_t chunk, uint64_t limit,
                      uint32_t times)
{
    size_t passes;
    uint64_t disk = 8192; /* header and counts */
    uint64_t squares = plan_passes(items, n, squares_limit(p.widest, chunk, limit), &passes);
    p.squares = PL_MAX(p.squares, squares);
    p.passes = PL_MAX(p.passes, passes);
    p.most_items = PL_MAX(p.most_items, n);
    for (size_t i = 0; i < n; i++) {
        disk += pl_statistic_size(items[i].kind, items[i].width) * sizeof(float);
        /* A symmetric sum in tiles takes a little more than half of the full one. */
        p.operations += 0.6 * (double)square_size(&items[i]) * times;
    }
    p.disk += disk * times;
    return p;
}

static uint64_t widest(const pl_config *config, const pl_statistics_info *info)
{
    uint64_t most = 0;
    for (uint32_t layer = 0; layer < config->n_layers; layer++)
        for (size_t i = 0; i < pl_config_layer_modules(config, layer); i++) {
            pl_module m;
            pl_config_layer_module(config, layer, i, &m);
            most = PL_MAX(most, info->fisher ? PL_MAX(m.in, m.out) : m.in);
        }
    return most;
}

/* False: no memory. */
static bool plan_all(const pl_config *config, const pl_statistics_info *info, size_t chunk,
                     uint64_t limit, plan *p)
{
    *p = (plan){.widest = widest(config, info)};
    for (uint32_t i = 0; i < config->n_layers; i++) {
        uint32_t times = 0, before = 0;
        while (before < i && !same_make(config, before, i)) before++;
        if (before < i) continue;
        for (uint32_t j = i; j < config->n_layers; j++) times += same_make(config, i, j);
        size_t n = list_items(config, i, info, NULL);
        pl_gather_item *items = pl_alloc(n, sizeof *items);
        if (!items) return false;
        list_items(config, i, info, items);
        *p = add_block(*p, items, n, chunk, limit, times);
        pl_free(items);
    }
    p->operations /= config->n_layers;
    return true;
}

uint64_t pl_gather_memory(const pl_config *config, const pl_statistics_info *info, size_t chunk,
                          uint64_t limit)
{
    plan p;
    if (!plan_all(config, info, chunk, limit, &p)) return UINT64_MAX / 4;
    return (p.squares + chunk * (p.widest + 1)) * sizeof(float);
}

uint64_t pl_gather_disk(const pl_config *config, const pl_statistics_info *info)
{
    plan p;
    return plan_all(config, info, 1, UINT64_MAX, &p) ? p.disk : UINT64_MAX / 4;
}

size_t pl_gather_passes(const pl_config *config, const pl_statistics_info *info, size_t chunk,
                        uint64_t limit)
{
    plan p;
    return plan_all(config, info, chunk, limit, &p) ? p.passes : 1;
}

double pl_gather_operations(const pl_config *config, const pl_statistics_info *info)
{
    plan p;
    return plan_all(config, info, 1, UINT64_MAX, &p) ? p.operations : 0;
}

pleach_status pl_gather_open(pl_gather *g, const pl_config *config, const pl_compute *c,
                             const pl_statistics_info *info, size_t chunk, uint64_t limit,
                             pleach_error *err)
{
    plan p;
    *g = (pl_gather){.c = c, .config = config, .info = *info, .chunk = chunk};
    if (plan_all(config, info, chunk, limit, &p)) {
        g->limit = squares_limit(p.widest, chunk, limit);
        g->items = pl_calloc(p.most_items, sizeof *g->items);
        g->memory = pl_alloc(p.squares, sizeof(float));
        g->rows = pl_alloc(chunk, p.widest * sizeof(float));
        g->scales = pl_alloc(chunk, sizeof(float));
    }
    if (g->items && g->memory && g->rows && g->scales) return PLEACH_OK;
    pl_gather_close(g);
    return pl_fail_memory(err, "statistics", pl_gather_memory(config, info, chunk, limit));
}

void pl_gather_close(pl_gather *g)
{
    for (size_t i = g->first; i < g->end; i++)
        pl_matrix_release(g->c->pool, g->items[i].square);
    pl_free(g->items);
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
    tokens_job job = {g, item, x, tape->gradient[item->module.index]};
    pl_pool_run(g->c->pool, tape->rows[item->module.index], find_scale, &job);
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
        size_t linear = item->module.index, n = tape->rows[linear];
        const float *x = of_outputs(item->kind) ? tape->gradient[linear]
                                                : pl_tape_input(tape, linear);
        if (n == 0) continue; /* an expert that nobody asked */
        find_scales(g, item, tape, x);
        if (item->kind == PL_STATISTIC_POWER) add_squares(g, item, x, n);
        else
            pl_gram(g->c->pool, item->width, n, scale_rows(g, item, x, n), item->width,
                    item->square, item->width);
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

/* True if the sum stands for something. */
static bool has_mean(const pl_gather_item *item)
{
    return item->tokens > 0 && item->weight > 0;
}

/* The tensors of a block's file, and their names. */
static size_t list_tensors(const pl_gather *g, uint32_t block, pl_tensor *tensors,
                           char (*names)[PL_STATISTICS_NAME])
{
    size_t n = 0;
    bool kinds[PL_STATISTIC_KINDS] = {0};
    for (; n < g->n; n++) {
        const pl_gather_item *item = &g->items[n];
        kinds[item->kind] = true;
        tensors[n] = (pl_tensor){
            .name = pl_statistics_tensor_name(item->kind, &item->module, names[n]), .type = PL_F32,
            .n_dims = 1, .shape = {pl_statistic_size(item->kind, item->width)}};
    }
    for (pl_statistic kind = 0; kind < PL_STATISTIC_KINDS; kind++)
        if (kinds[kind])
            tensors[n++] =
                (pl_tensor){.name = pl_statistics_tokens_name(kind), .type = PL_I64, .n_dims = 1,
                            .shape = {pl_statistic_count(g->config, block, kind)}};
    if (kinds[PL_STATISTIC_FISHER])
        tensors[n++] =
            (pl_tensor){.name = PL_STATISTICS_GRADIENT, .type = PL_F64, .n_dims = 1,
                        .shape = {pl_statistic_count(g->config, block, PL_STATISTIC_FISHER)}};
    return n;
}

pleach_status pl_gather_begin(pl_gather *g, const char *dir, uint32_t block,
                              pl_safetensors_writer **out, pleach_error *err)
{
    g->n = list_items(g->config, block, &g->info, g->items);
    g->first = g->end = 0;
    pl_tensor *tensors = pl_alloc(g->n + PL_STATISTIC_KINDS + 1, sizeof *tensors);
    char(*names)[PL_STATISTICS_NAME] = pl_alloc(g->n, sizeof *names);
    char *path = pl_statistics_block_path(dir, block, err);
    pleach_status status = PLEACH_OK;
    if (!tensors || !names || !path)
        status = pl_fail_memory(err, "statistics", g->n * (sizeof *tensors + sizeof *names));
    if (status == PLEACH_OK) {
        size_t n = list_tensors(g, block, tensors, names);
        status = pl_safetensors_create(path, tensors, n, out, err);
    }
    pl_free(tensors);
    pl_free(names);
    pl_free(path);
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
    for (size_t i = 0; i < g->n; i++) {
        const pl_gather_item *item = &g->items[i];
        int64_t tokens = has_mean(item) ? item->tokens : 0;
        PL_TRY(pl_safetensors_append(w, &tokens, sizeof tokens, err));
    }
    for (size_t i = 0; i < g->n; i++) {
        const pl_gather_item *item = &g->items[i];
        double gradient = has_mean(item) ? item->weight / (double)item->tokens : 0;
        if (item->kind == PL_STATISTIC_FISHER)
            PL_TRY(pl_safetensors_append(w, &gradient, sizeof gradient, err));
    }
    return PLEACH_OK;
}

pleach_status pl_gather_commit(const pl_gather *g, pl_safetensors_writer *w, pleach_error *err)
{
    pleach_status status = append_counts(g, w, err);
    if (status == PLEACH_OK) return pl_safetensors_commit(w, err);
    pl_safetensors_discard(w);
    return status;
}
