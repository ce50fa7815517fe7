/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver of calibration. Without a backward pass each block is visited once, on the way
 * forward. With one, the way forward leaves the input of every block on disk, and everything is
 * gathered on the way back, where a block is computed again from its input. */
#include "calibrate.h"

#include <string.h>

#include "base/memory.h"
#include "boundary.h"
#include "gather.h"
#include "loss.h"
#include "statistics_folder.h"
#include "text.h"

enum { LOSS_SLAB = 256, LEAST_SLAB = 16 };

typedef struct calibration {
    const pl_transformer *t;
    const pl_compute *c;
    const int32_t *ids;
    const pl_calibrate_settings *set;
    const char *dir;
    pl_statistics_info info;
    pl_boundary files;
    pl_block block;
    pl_tape tape;
    pl_gather gather;
    float *x, *dx; /* [chunk][C] */
    /* Progress, in multiply-adds. */
    const char *stage;
    uint32_t at;
    size_t passes;
    double active, gathering; /* of a token, in a block: its matrices, its statistics */
    double done, total;
} calibration;

/* ---- size ------------------------------------------------------------------------------------ */

/* Numbers of a block's matrices; active: those that a token meets, of experts the ones it is routed
 * to. */
static double block_weights(const pl_config *g, uint32_t block, bool active)
{
    double sum = 0;
    for (size_t i = 0; i < pl_config_layer_modules(g, block); i++) {
        pl_module m;
        pl_config_layer_module(g, block, i, &m);
        double share = active && m.expert ? (double)g->n_experts_used / g->n_experts : 1;
        sum += share * (double)m.out * (double)m.in;
    }
    return sum;
}

static uint64_t largest_block(const pl_config *g)
{
    double most = 0;
    for (uint32_t i = 0; i < g->n_layers; i++) most = PL_MAX(most, block_weights(g, i, false));
    return (uint64_t)most;
}

static double active_weights(const pl_config *g)
{
    double sum = 0;
    for (uint32_t i = 0; i < g->n_layers; i++) sum += block_weights(g, i, true);
    return sum / g->n_layers;
}

static pl_statistics_info make_info(const pl_config *g, const pl_calibrate_settings *s)
{
    return (pl_statistics_info){.blocks = g->n_layers, .fisher = s->fisher,
                                .output = s->fisher && s->output};
}

static uint64_t rows_memory(const pl_config *g, const pl_calibrate_settings *s)
{
    return 2 * s->chunk * g->hidden_size * sizeof(float);
}

/* Of a visit to a block, without what it gathers. */
static uint64_t block_memory(const pl_config *g, const pl_calibrate_settings *s)
{
    return largest_block(g) * sizeof(float) + pl_tape_memory(g, s->chunk, s->fisher) +
           rows_memory(g, s);
}

static uint64_t gather_limit(const pl_config *g, const pl_calibrate_settings *s)
{
    uint64_t block = block_memory(g, s);
    if (!s->memory) return UINT64_MAX;
    return s->memory > block ? s->memory - block : 0;
}

/* The largest slab that the limit allows, and whether it allows the whole head in f32. */
static uint64_t plan_loss(const pl_config *g, const pl_calibrate_settings *s, size_t *slab,
                          bool *whole)
{
    uint64_t rows = rows_memory(g, s);
    *whole = true;
    *slab = LOSS_SLAB;
    if (s->memory && pl_loss_memory(g, *slab, true) + rows > s->memory) *whole = false;
    while (s->memory && *slab > LEAST_SLAB && pl_loss_memory(g, *slab, *whole) + rows > s->memory)
        *slab /= 2;
    return pl_loss_memory(g, *slab, *whole) + rows;
}

uint64_t pl_calibrate_memory(const pl_config *config, const pl_calibrate_settings *settings)
{
    pl_statistics_info info = make_info(config, settings);
    uint64_t block = block_memory(config, settings) +
                     pl_gather_memory(config, &info, settings->chunk, gather_limit(config, settings));
    size_t slab;
    bool whole;
    return settings->fisher ? PL_MAX(block, plan_loss(config, settings, &slab, &whole)) : block;
}

uint64_t pl_calibrate_disk(const pl_config *config, size_t n, const pl_calibrate_settings *settings)
{
    pl_statistics_info info = make_info(config, settings);
    uint64_t boundary = (uint64_t)n * config->hidden_size * sizeof(float);
    uint64_t boundaries = settings->fisher ? (uint64_t)config->n_layers + 3 : 2;
    return boundary * boundaries + pl_gather_disk(config, &info);
}

/* ---- progress -------------------------------------------------------------------------------- */

static double forward_operations(const calibration *k)
{
    const pl_config *g = k->t->config;
    return k->active + (double)k->set->chunk * g->n_heads * g->head_dim;
}

static double loss_operations(const calibration *k)
{
    return 2.0 * k->t->config->vocab_size * k->t->config->hidden_size;
}

/* Of a token through one block, on the visit that gathers. */
static double gathering_operations(const calibration *k)
{
    double forward = forward_operations(k) * (k->set->fisher ? 3 : 1);
    return forward * (double)k->passes + k->gathering;
}

static void count_operations(calibration *k)
{
    const pl_config *g = k->t->config;
    k->active = active_weights(g);
    k->gathering = pl_gather_operations(g, &k->info);
    k->passes = pl_gather_passes(g, &k->info, k->set->chunk, gather_limit(g, k->set));
    double block = gathering_operations(k) + (k->set->fisher ? forward_operations(k) : 0);
    double ends = k->set->fisher ? loss_operations(k) : 0;
    k->total = (double)k->info.tokens * (block * k->info.blocks + ends);
}

/* Blocks that an earlier call has finished. */
static void count_done(calibration *k, uint32_t blocks, double operations)
{
    k->done += (double)k->info.tokens * blocks * operations;
}

/* After a chunk of n tokens and so many operations for each of them. */
static pleach_status report(calibration *k, size_t n, double operations, pleach_error *err)
{
    k->done += (double)n * operations;
    pl_calibrate_progress p = {.stage = k->stage, .block = k->at, .blocks = k->info.blocks,
                               .share = PL_MIN(k->done / k->total, 1.0)};
    PL_FAIL_IF(k->set->progress && k->set->progress(k->set->user, &p) != 0, err,
               PLEACH_ERR_CANCELLED, "stopped; finished calibration is kept in %s", k->dir);
    return PLEACH_OK;
}

/* ---- a block --------------------------------------------------------------------------------- */

/* Forward or backward through one block, with or without gathering. */
typedef struct visit {
    bool backward, gathers;
    bool writes; /* something comes behind the block */
    pl_map in, gradient;
    pl_output out;
    pl_safetensors_writer *statistics;
} visit;

static size_t chunk_tokens(const calibration *k, size_t first)
{
    return PL_MIN((size_t)k->info.tokens - first, k->set->chunk);
}

/* All chunks once. */
static pleach_status pass(calibration *k, visit *v, bool write, pleach_error *err)
{
    size_t C = k->t->config->hidden_size;
    double operations = v->gathers ? gathering_operations(k) / (double)k->passes
                                   : forward_operations(k);
    for (size_t m = 0, n; m < k->info.tokens; m += n) {
        n = chunk_tokens(k, m);
        pl_boundary_read(&k->files, &v->in, m, n, k->x);
        pl_block_forward(&k->block, &k->tape, k->x, n, write && !v->backward ? k->x : NULL);
        if (v->backward) {
            pl_boundary_read(&k->files, &v->gradient, m, n, k->dx);
            pl_block_backward(&k->block, &k->tape, k->dx, write ? k->dx : NULL);
        }
        if (v->gathers) pl_gather_add(&k->gather, &k->tape);
        if (write)
            PL_TRY(pl_output_write(&v->out, v->backward ? k->dx : k->x, n * C * sizeof(float),
                                   err));
        PL_TRY(report(k, n, operations, err));
    }
    return PLEACH_OK;
}

static pleach_status all_passes(calibration *k, visit *v, pleach_error *err)
{
    bool write = v->writes;
    if (!v->gathers) return pass(k, v, write, err);
    while (pl_gather_next(&k->gather)) {
        PL_TRY(pass(k, v, write, err));
        PL_TRY(pl_gather_append(&k->gather, v->statistics, err));
        write = false;
    }
    return PLEACH_OK;
}

/* The pages of the source that the block's weights were read from. */
static void release_source(const pl_layer *l)
{
    size_t n = pl_layer_linears(l, NULL);
    const pl_linear **linears = pl_alloc(n, sizeof *linears);
    if (!linears) return; /* they stay for now */
    pl_layer_linears(l, linears);
    for (size_t i = 0; i < n; i++)
        pl_map_release(linears[i]->w.weight->data, linears[i]->w.weight->n_bytes);
    pl_free((void *)linears);
}

static pleach_status open_visit(calibration *k, visit *v, uint32_t i, pleach_error *err)
{
    const pl_boundary *b = &k->files;
    PL_TRY(pl_boundary_open(b, PL_BOUNDARY_HIDDEN, i, &v->in, err));
    if (v->backward) PL_TRY(pl_boundary_open(b, PL_BOUNDARY_GRADIENT, i + 1, &v->gradient, err));
    if (v->writes && v->backward)
        PL_TRY(pl_boundary_create(b, PL_BOUNDARY_GRADIENT, i, &v->out, err));
    if (v->writes && !v->backward)
        PL_TRY(pl_boundary_create(b, PL_BOUNDARY_HIDDEN, i + 1, &v->out, err));
    if (v->gathers) PL_TRY(pl_gather_begin(&k->gather, k->dir, i, &v->statistics, err));
    PL_TRY(pl_block_open(&k->block, k->t, k->c, i, err));
    release_source(k->block.layer);
    return PLEACH_OK;
}

/* What comes behind the block is in place before its statistics say that it is done. */
static pleach_status commit_visit(calibration *k, visit *v, uint32_t i, pleach_error *err)
{
    if (v->writes) PL_TRY(pl_output_commit(&v->out, err));
    if (!v->gathers) return PLEACH_OK;
    pl_safetensors_writer *w = v->statistics;
    v->statistics = NULL;
    PL_TRY(pl_gather_commit(&k->gather, w, err));
    pl_boundary_remove(&k->files, PL_BOUNDARY_HIDDEN, i);
    if (v->backward) pl_boundary_remove(&k->files, PL_BOUNDARY_GRADIENT, i + 1);
    return PLEACH_OK;
}

static pleach_status visit_block(calibration *k, uint32_t i, bool backward, pleach_error *err)
{
    visit v = {.backward = backward, .gathers = backward || !k->info.fisher, .out.fd = -1};
    v.writes = backward ? i > 0 : k->info.fisher || i + 1 < k->info.blocks;
    k->at = i;
    pleach_status status = open_visit(k, &v, i, err);
    if (status == PLEACH_OK) status = all_passes(k, &v, err);
    if (status == PLEACH_OK) status = commit_visit(k, &v, i, err);
    pl_block_close(&k->block);
    pl_safetensors_discard(v.statistics);
    pl_output_discard(&v.out);
    pl_map_close(&v.in);
    pl_map_close(&v.gradient);
    return status;
}

/* ---- the ends of the model ------------------------------------------------------------------- */

static pleach_status embed(calibration *k, pleach_error *err)
{
    const pl_tensor *weight = k->t->embedding.w.weight;
    size_t C = k->t->config->hidden_size;
    pl_output out = {.fd = -1};
    pleach_status status = pl_boundary_create(&k->files, PL_BOUNDARY_HIDDEN, 0, &out, err);
    for (size_t m = 0, n; status == PLEACH_OK && m < k->info.tokens; m += n) {
        n = chunk_tokens(k, m);
        pl_embed(k->t, k->c, k->ids + m, n, k->x);
        status = pl_output_write(&out, k->x, n * C * sizeof(float), err);
    }
    pl_map_release(weight->data, weight->n_bytes);
    if (status == PLEACH_OK) return pl_output_commit(&out, err);
    pl_output_discard(&out);
    return status;
}

static pleach_status loss_chunks(calibration *k, const pl_loss *loss, const pl_map *in,
                                 pl_output *out, pleach_error *err)
{
    size_t C = k->t->config->hidden_size;
    for (size_t m = 0, n; m < k->info.tokens; m += n) {
        n = chunk_tokens(k, m);
        pl_target target = {.seed = k->set->seed, .first = m};
        pl_boundary_read(&k->files, in, m, n, k->x);
        pl_loss_gradient(loss, k->x, n, &target, k->dx);
        PL_TRY(pl_output_write(out, k->dx, n * C * sizeof(float), err));
        PL_TRY(report(k, n, loss_operations(k), err));
    }
    return PLEACH_OK;
}

/* From the hidden states behind the last block to the gradient by them. */
static pleach_status visit_loss(calibration *k, pleach_error *err)
{
    const pl_tensor *weight = k->t->head.w.weight;
    pl_map in = {0};
    pl_output out = {.fd = -1};
    pl_loss loss = {0};
    size_t slab;
    bool whole;
    plan_loss(k->t->config, k->set, &slab, &whole);
    pleach_status status = pl_boundary_open(&k->files, PL_BOUNDARY_HIDDEN, k->info.blocks, &in, err);
    if (status == PLEACH_OK)
        status = pl_boundary_create(&k->files, PL_BOUNDARY_GRADIENT, k->info.blocks, &out, err);
    if (status == PLEACH_OK) status = pl_loss_open(&loss, k->t, k->c, slab, whole, err);
    if (status == PLEACH_OK) status = loss_chunks(k, &loss, &in, &out, err);
    if (status == PLEACH_OK) status = pl_output_commit(&out, err);
    if (status == PLEACH_OK) pl_boundary_remove(&k->files, PL_BOUNDARY_HIDDEN, k->info.blocks);
    pl_loss_close(&loss);
    pl_map_release(weight->data, weight->n_bytes);
    pl_output_discard(&out);
    pl_map_close(&in);
    return status;
}

/* ---- the way through ------------------------------------------------------------------------- */

static bool block_done(const calibration *k, uint32_t i)
{
    pl_safetensors *file;
    bool done = pl_statistics_block_open(k->dir, i, k->t->config, &k->info, &file, NULL) == PLEACH_OK;
    pl_safetensors_close(file);
    return done;
}

/* The number of boundaries 0, 1, .. that are there. */
static uint32_t hidden_there(const calibration *k)
{
    uint32_t n = 0;
    while (n <= k->info.blocks && pl_boundary_exists(&k->files, PL_BOUNDARY_HIDDEN, n)) n++;
    return n;
}

/* Memory for visits of blocks. */
static pleach_status open_visits(calibration *k, bool backward, bool gathers, pleach_error *err)
{
    const pl_config *g = k->t->config;
    PL_TRY(pl_tape_open(&k->tape, k->t, k->set->chunk, backward, err));
    if (!gathers) return PLEACH_OK;
    return pl_gather_open(&k->gather, g, k->c, &k->info, k->set->chunk, gather_limit(g, k->set),
                          err);
}

static void close_visits(calibration *k)
{
    pl_tape_close(&k->tape);
    pl_gather_close(&k->gather);
}

static pleach_status go_forward(calibration *k, uint32_t first, pleach_error *err)
{
    k->stage = "forward";
    PL_TRY(open_visits(k, false, !k->info.fisher, err));
    for (uint32_t i = first; i < k->info.blocks; i++) PL_TRY(visit_block(k, i, false, err));
    close_visits(k);
    return PLEACH_OK;
}

static pleach_status go_backward(calibration *k, uint32_t done, pleach_error *err)
{
    k->stage = "backward";
    PL_TRY(open_visits(k, true, true, err));
    for (uint32_t i = done; i-- > 0;) PL_TRY(visit_block(k, i, true, err));
    close_visits(k);
    return PLEACH_OK;
}

/* From the first block that is not done, if its input is there. */
static pleach_status run_plain(calibration *k, pleach_error *err)
{
    uint32_t first = 0;
    while (first < k->info.blocks && block_done(k, first)) first++;
    if (first == k->info.blocks) return PLEACH_OK;
    if (!pl_boundary_exists(&k->files, PL_BOUNDARY_HIDDEN, first)) {
        first = 0;
        PL_TRY(embed(k, err));
    }
    count_done(k, first, gathering_operations(k));
    return go_forward(k, first, err);
}

static pleach_status run_fisher(calibration *k, pleach_error *err)
{
    uint32_t blocks = k->info.blocks, left = blocks, there = hidden_there(k);
    while (left > 0 && block_done(k, left - 1)) left--;
    if (left == 0) return PLEACH_OK;
    /* Blocks from `left` on are done; those before it need their inputs, and the gradient. */
    if (there < left || !pl_boundary_exists(&k->files, PL_BOUNDARY_GRADIENT, left)) {
        if (there == 0) PL_TRY(embed(k, err));
        uint32_t first = there ? there - 1 : 0;
        count_done(k, first, forward_operations(k));
        PL_TRY(go_forward(k, first, err));
        PL_TRY(visit_loss(k, err));
        left = blocks;
    } else {
        count_done(k, blocks, forward_operations(k));
        count_done(k, blocks - left, gathering_operations(k));
        k->done += (double)k->info.tokens * loss_operations(k);
    }
    return go_backward(k, left, err);
}

static pleach_status run_all(calibration *k, pleach_error *err)
{
    size_t row = k->t->config->hidden_size * sizeof(float);
    k->x = pl_alloc(k->set->chunk, row);
    k->dx = pl_alloc(k->set->chunk, row);
    if (!k->x || !k->dx) return pl_fail_memory(err, "a chunk's activations", k->set->chunk * row);
    PL_TRY(k->info.fisher ? run_fisher(k, err) : run_plain(k, err));
    for (uint32_t i = 0; i <= k->info.blocks; i++) {
        pl_boundary_remove(&k->files, PL_BOUNDARY_HIDDEN, i);
        pl_boundary_remove(&k->files, PL_BOUNDARY_GRADIENT, i);
    }
    return PLEACH_OK;
}

pleach_status pl_calibrate_check(const pl_config *config, pleach_error *err)
{
    const char *lacks = config->delta.taps           ? "gated delta nets"
                        : config->final_soft_cap > 0 ? "models with capped logits"
                                                     : NULL;
    PL_FAIL_IF(lacks, err, PLEACH_ERR_UNSUPPORTED,
               "calibration of %s is not supported; --calib none does without", lacks);
    return PLEACH_OK;
}

/* ---- call ------------------------------------------------------------------------------------ */

static pleach_status check_ids(const pl_config *g, const int32_t *ids, size_t n, pleach_error *err)
{
    for (size_t i = 0; i < n; i++)
        PL_FAIL_IF(ids[i] < 0 || (uint32_t)ids[i] >= g->vocab_size, err, PLEACH_ERR_DATA,
                   "token %zu of the calibration text is %d, the model has %u", i, (int)ids[i],
                   g->vocab_size);
    return PLEACH_OK;
}

static pleach_status check_memory(const pl_config *g, const pl_calibrate_settings *s,
                                  pleach_error *err)
{
    uint64_t need = pl_calibrate_memory(g, s);
    PL_FAIL_IF(s->memory && need > s->memory, err, PLEACH_ERR_LIMIT,
               "calibration needs %llu bytes of memory at least, %llu are allowed",
               (unsigned long long)need, (unsigned long long)s->memory);
    return PLEACH_OK;
}

/* Whole chunks, and what is left when it is long enough. */
static size_t usable_tokens(size_t n, size_t chunk)
{
    size_t rest = n % chunk;
    return rest < PL_CALIBRATION_LEAST ? n - rest : n;
}

pleach_status pl_calibrate(const pl_transformer *t, const pl_compute *c, const int32_t *ids,
                           size_t n, const pl_calibrate_settings *settings, const json_t *binding,
                           const char *dir, pleach_error *err)
{
    calibration k = {.t = t, .c = c, .ids = ids, .set = settings, .dir = dir,
                     .info = make_info(t->config, settings)};
    pl_statistics_folder folder;
    k.info.tokens = usable_tokens(n, settings->chunk);
    k.files = (pl_boundary){dir, k.info.tokens, t->config->hidden_size};
    PL_FAIL_IF(k.info.tokens == 0, err, PLEACH_ERR_DATA, "%zu tokens are too few to calibrate on",
               n);
    PL_TRY(pl_calibrate_check(t->config, err));
    PL_TRY(check_ids(t->config, ids, k.info.tokens, err));
    PL_TRY(check_memory(t->config, settings, err));
    PL_TRY(pl_statistics_folder_open(&folder, dir, binding, &k.info, err));
    count_operations(&k);
    pleach_status status = PLEACH_OK;
    if (!folder.head.whole) {
        status = run_all(&k, err);
        if (status == PLEACH_OK) status = pl_statistics_folder_finish(&folder, t->config, err);
        close_visits(&k);
        pl_free(k.x);
        pl_free(k.dx);
    }
    pl_statistics_folder_close(&folder);
    return status;
}
