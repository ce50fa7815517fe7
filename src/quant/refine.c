/* SPDX-License-Identifier: Apache-2.0
 *
 * The descent: batches of chunks go forward a block at a time, each block's weights made from codes
 * and multipliers when their turn comes, then backward the same way. */
#include "refine.h"

#include <math.h>
#include <string.h>

#include "base/matrix.h"
#include "base/memory.h"
#include "base/random.h"
#include "calibrate/block.h"
#include "calibrate/loss.h"
#include "model/distribution.h"
#include "scales.h"

enum { SLAB = 256, WARM_UP = 5 };

typedef struct refiner {
    const pl_transformer *source, *coded;
    const pl_compute *c;
    const pl_refine_settings *s;
    const int32_t *ids;
    size_t n_chunks, C, vocab;
    uint32_t n_layers;
    size_t *order;  /* [n_train] chunks in this epoch's order */
    size_t n_train, n_held;
    size_t *held;
    float *target;  /* [n_chunks][chunk][C] final hidden states of the source */
    float *states;  /* [n_layers + 1][batch][chunk][C] of the coded model */
    float *teacher; /* [SLAB][vocab] */
    float *block_gradients[PL_BLOCK_LINEARS]; /* [out][in] each */
    pl_loss source_loss, coded_loss;
    pl_tape tape;
    pl_scales scales;
    double rate;
    double done, total; /* chunks through one model, forward or backward */
} refiner;

static size_t chunk_size(const refiner *r)
{
    return r->s->chunk * r->C;
}

static const int32_t *chunk_ids(const refiner *r, size_t chunk)
{
    return r->ids + chunk * r->s->chunk;
}

static float *state(const refiner *r, uint32_t layer, size_t i)
{
    return r->states + (layer * r->s->batch + i) * chunk_size(r);
}

static pleach_status advance(refiner *r, double work, pleach_error *err)
{
    r->done += work;
    PL_FAIL_IF(r->s->progress && r->s->progress(r->s->user, fmin(r->done / r->total, 1)) != 0, err,
               PLEACH_ERR_CANCELLED, "stopped; the work done so far is kept");
    return PLEACH_OK;
}

/* ---- forward -------------------------------------------------------------------------------- */

/* The final hidden states of the source for every chunk. */
static pleach_status run_source(refiner *r, pleach_error *err)
{
    for (size_t i = 0; i < r->n_chunks; i++)
        pl_embed(r->source, r->c, chunk_ids(r, i), r->s->chunk, r->target + i * chunk_size(r));
    for (uint32_t layer = 0; layer < r->n_layers; layer++) {
        pl_block b;
        PL_TRY(pl_block_open(&b, r->source, r->c, layer, err));
        for (size_t i = 0; i < r->n_chunks; i++) {
            float *x = r->target + i * chunk_size(r);
            pl_block_forward(&b, &r->tape, x, r->s->chunk, x);
        }
        pl_block_close(&b);
        PL_TRY(advance(r, (double)r->n_chunks / r->n_layers, err));
    }
    return PLEACH_OK;
}

/* states of n <= batch chunks, every block's input kept. */
static pleach_status run_coded(refiner *r, const size_t *chunks, size_t n, pleach_error *err)
{
    for (size_t i = 0; i < n; i++)
        pl_embed(r->coded, r->c, chunk_ids(r, chunks[i]), r->s->chunk, state(r, 0, i));
    for (uint32_t layer = 0; layer < r->n_layers; layer++) {
        pl_block b;
        PL_TRY(pl_block_open(&b, r->coded, r->c, layer, err));
        pl_scales_apply(&r->scales, &b, layer);
        for (size_t i = 0; i < n; i++)
            pl_block_forward(&b, &r->tape, state(r, layer, i), r->s->chunk,
                             state(r, layer + 1, i));
        pl_block_close(&b);
    }
    return advance(r, (double)n, err);
}

/* ---- loss ----------------------------------------------------------------------------------- */

typedef struct logits_job {
    float *logits;
    size_t vocab;
} logits_job;

static void log_probability_row(void *job, size_t m, int thread)
{
    const logits_job *j = job;
    float *row = j->logits + m * j->vocab;
    pl_distribution d = pl_distribution_of(row, j->vocab);
    (void)thread;
    for (size_t i = 0; i < j->vocab; i++) row[i] = (float)pl_log_probability(&d, row[i]);
}

static void to_log_probabilities(const refiner *r, float *logits, size_t n)
{
    logits_job job = {logits, r->vocab};
    pl_pool_run(r->c->pool, n, log_probability_row, &job);
}

/* Sum of KL over chunk number `chunk`, whose final states are x, and its gradient dx: x or NULL. */
static double loss(const refiner *r, size_t chunk, const float *x, float *dx)
{
    double sum = 0;
    for (size_t m = 0; m < r->s->chunk; m += SLAB) {
        size_t n = PL_MIN(r->s->chunk - m, (size_t)SLAB);
        pl_target target = {.teacher = r->teacher};
        pl_loss_logits(&r->source_loss, r->target + chunk * chunk_size(r) + m * r->C, n,
                       r->teacher);
        to_log_probabilities(r, r->teacher, n);
        sum += pl_loss_gradient(&r->coded_loss, x + m * r->C, n, &target,
                                dx ? dx + m * r->C : NULL);
    }
    return sum;
}

static pleach_status held_out_loss(refiner *r, double *out, pleach_error *err)
{
    double sum = 0;
    for (size_t i = 0; i < r->n_held; i += r->s->batch) {
        size_t n = PL_MIN(r->n_held - i, r->s->batch);
        PL_TRY(run_coded(r, r->held + i, n, err));
        for (size_t j = 0; j < n; j++)
            sum += loss(r, r->held[i + j], state(r, r->n_layers, j), NULL);
    }
    *out = sum / (double)(r->n_held * r->s->chunk);
    return PLEACH_OK;
}

/* ---- backward ------------------------------------------------------------------------------- */

/* Adds one chunk's part of the gradients by the block's weights. */
static void add_weight_gradients(const refiner *r, const pl_block *b, bool first)
{
    for (int i = 0; i < PL_BLOCK_LINEARS; i++)
        pl_matmul(r->c->pool, true, false, b->out[i], b->in[i], r->tape.n, 1,
                  r->tape.gradient[i], b->out[i], pl_tape_input(&r->tape, i), b->in[i], !first,
                  r->block_gradients[i], b->in[i]);
}

static pleach_status block_backward(refiner *r, uint32_t layer, size_t n, pleach_error *err)
{
    pl_block b;
    PL_TRY(pl_block_open(&b, r->coded, r->c, layer, err));
    pl_scales_apply(&r->scales, &b, layer);
    for (size_t i = 0; i < n; i++) {
        float *d = state(r, r->n_layers, i);
        pl_block_forward(&b, &r->tape, state(r, layer, i), r->s->chunk, NULL);
        pl_block_backward(&b, &r->tape, d, layer ? d : NULL);
        add_weight_gradients(r, &b, i == 0);
    }
    pleach_status status = PLEACH_OK;
    for (int i = 0; status == PLEACH_OK && i < PL_BLOCK_LINEARS; i++)
        status = pl_scales_add_gradient(&r->scales, &b, layer, i, r->block_gradients[i], err);
    pl_block_close(&b);
    return status;
}

static pleach_status step(refiner *r, const size_t *chunks, size_t n, double rate,
                          pleach_error *err)
{
    PL_TRY(run_coded(r, chunks, n, err));
    float scale = 1 / (float)(n * r->s->chunk);
    for (size_t i = 0; i < n; i++) {
        float *x = state(r, r->n_layers, i);
        loss(r, chunks[i], x, x);
        for (size_t j = 0; j < chunk_size(r); j++) x[j] *= scale;
    }
    for (uint32_t layer = r->n_layers; layer-- > 0;) PL_TRY(block_backward(r, layer, n, err));
    pl_scales_step(&r->scales, rate);
    return advance(r, 3.0 * (double)n, err);
}

/* ---- epochs --------------------------------------------------------------------------------- */

static void shuffle(refiner *r, int epoch)
{
    uint64_t random = pl_mix64(r->s->seed + (uint64_t)epoch);
    for (size_t i = r->n_train; i > 1; i--) {
        size_t j = (size_t)(pl_random_next(&random) % i), t = r->order[i - 1];
        r->order[i - 1] = r->order[j];
        r->order[j] = t;
    }
}

static double rate_at(const refiner *r, size_t step, size_t steps)
{
    double cosine = 0.5 * (1 + cos(3.14159265358979323846 * (double)step / (double)steps));
    return r->rate * cosine * fmin(1, (double)(step + 1) / WARM_UP);
}

static pleach_status descend(refiner *r, float *best, pl_refine_result *result, pleach_error *err)
{
    size_t per_epoch = (r->n_train + r->s->batch - 1) / r->s->batch;
    memcpy(best, r->scales.value, r->scales.n * sizeof *best);
    PL_TRY(held_out_loss(r, &result->before, err));
    result->after = result->before;
    r->rate = r->s->rate * sqrt(result->before);
    for (int epoch = 0; epoch < r->s->epochs; epoch++) {
        shuffle(r, epoch);
        for (size_t i = 0; i < per_epoch; i++) {
            size_t at = i * r->s->batch;
            PL_TRY(step(r, r->order + at, PL_MIN(r->n_train - at, r->s->batch),
                        rate_at(r, (size_t)epoch * per_epoch + i,
                                (size_t)r->s->epochs * per_epoch),
                        err));
        }
        double now;
        PL_TRY(held_out_loss(r, &now, err));
        if (!(now < result->after)) continue;
        memcpy(best, r->scales.value, r->scales.n * sizeof *best);
        result->after = now;
        result->kept = epoch + 1;
    }
    memcpy(r->scales.value, best, r->scales.n * sizeof *best);
    return PLEACH_OK;
}

/* ---- call ----------------------------------------------------------------------------------- */

static void choose_chunks(refiner *r)
{
    for (size_t i = 0; i < r->n_chunks; i++) {
        bool held = i % r->s->held_out == r->s->held_out - 1 ||
                    (i == r->n_chunks - 1 && r->n_held == 0);
        if (held) r->held[r->n_held++] = i;
        else r->order[r->n_train++] = i;
    }
}

pl_refine_settings pl_refine_plan(const pl_plan *plan)
{
    return (pl_refine_settings){.epochs = plan->settings.refine,
                                .which = PL_SCALES_OUTPUT | PL_SCALES_INPUT,
                                .rate = 2.6e-3,
                                .chunk = PL_MIN(plan->config->context_length, 512u),
                                .batch = 4,
                                .held_out = 8,
                                .seed = 1};
}

/* True if the head's matrix is in f32 whole. */
static bool keeps_head(const pl_config *g)
{
    return (uint64_t)g->vocab_size * g->hidden_size <= (uint64_t)1 << 27;
}

uint64_t pl_refine_memory(const pl_config *config, const pl_refine_settings *s, size_t n)
{
    uint64_t chunks = n / s->chunk + (config->n_layers + 1) * s->batch, block = 0;
    for (size_t i = 0; i < PL_BLOCK_LINEARS; i++) {
        pl_module m;
        pl_config_module(config, 1 + i, &m); /* module 0 is the embedding */
        block += m.out * m.in;
    }
    return (chunks * s->chunk * config->hidden_size + 2 * block +
            (uint64_t)SLAB * config->vocab_size) * sizeof(float) +
           pl_tape_memory(config, s->chunk, true) +
           2 * pl_loss_memory(config, SLAB, keeps_head(config));
}

static pleach_status open(refiner *r, pleach_error *err)
{
    size_t chunk = r->s->chunk;
    const pl_config *g = r->coded->config;
    r->C = g->hidden_size;
    r->vocab = g->vocab_size;
    r->n_layers = g->n_layers;
    r->order = pl_alloc(r->n_chunks, sizeof *r->order);
    r->held = pl_alloc(r->n_chunks, sizeof *r->held);
    r->target = pl_alloc(r->n_chunks, chunk_size(r) * sizeof(float));
    r->states = pl_alloc((r->n_layers + 1) * r->s->batch, chunk_size(r) * sizeof(float));
    r->teacher = pl_alloc(SLAB, r->vocab * sizeof(float));
    bool whole = r->order && r->held && r->target && r->states && r->teacher;
    const pl_linear *linears[PL_BLOCK_LINEARS];
    pl_layer_linears(&r->coded->layers[0], linears);
    for (int i = 0; i < PL_BLOCK_LINEARS; i++) {
        size_t size = linears[i]->w.out * linears[i]->w.in;
        r->block_gradients[i] = pl_alloc(size, sizeof(float));
        whole = whole && r->block_gradients[i];
    }
    if (!whole)
        return pl_fail_memory(err, "refining",
                              pl_refine_memory(g, r->s, r->n_chunks * r->s->chunk));
    choose_chunks(r);
    PL_TRY(pl_tape_open(&r->tape, r->coded, chunk, true, err));
    PL_TRY(pl_loss_open(&r->source_loss, r->source, r->c, SLAB, keeps_head(g), err));
    PL_TRY(pl_loss_open(&r->coded_loss, r->coded, r->c, SLAB, keeps_head(g), err));
    return pl_scales_open(&r->scales, r->coded, r->s->which, err);
}

static void close(refiner *r)
{
    for (int i = 0; i < PL_BLOCK_LINEARS; i++) pl_free(r->block_gradients[i]);
    pl_scales_close(&r->scales);
    pl_loss_close(&r->coded_loss);
    pl_loss_close(&r->source_loss);
    pl_tape_close(&r->tape);
    pl_free(r->teacher);
    pl_free(r->states);
    pl_free(r->target);
    pl_free(r->held);
    pl_free(r->order);
}

static pleach_status refine(refiner *r, const char *path, pl_refine_result *result,
                            pleach_error *err)
{
    PL_TRY(open(r, err));
    PL_FAIL_IF(r->scales.n == 0 || r->n_train == 0, err, PLEACH_ERR_ARGUMENT, "refining: %s",
               r->n_train ? "the model has no scales to fit"
                          : "too little text for a chunk to fit to beside one held out");
    r->total = (double)r->n_chunks + (double)r->n_held +
               r->s->epochs * (4.0 * (double)r->n_train + (double)r->n_held);
    float *best = pl_alloc(r->scales.n, sizeof *best);
    if (!best) return pl_fail_memory(err, "refining", r->scales.n * sizeof *best);
    pleach_status status = run_source(r, err);
    if (status == PLEACH_OK) status = descend(r, best, result, err);
    pl_free(best);
    result->tokens = r->n_train * r->s->chunk;
    double note[] = {result->before, result->after, result->kept, (double)result->tokens};
    if (status == PLEACH_OK)
        status = pl_scales_write(&r->scales, path, note, PL_COUNT(note), err);
    return status;
}

bool pl_refine_read_result(const pl_safetensors *file, pl_refine_result *result)
{
    const pl_tensor *t = pl_safetensors_find(file, PL_SCALES_NOTE);
    double note[4];
    if (!t || t->type != PL_F64 || t->n_bytes != sizeof note) return false;
    memcpy(note, t->data, sizeof note);
    *result = (pl_refine_result){.before = note[0], .after = note[1], .kept = (int)note[2],
                                 .tokens = (size_t)note[3]};
    return true;
}

pleach_status pl_refine(const pl_transformer *source, const pl_transformer *coded,
                        const pl_compute *c, const int32_t *ids, size_t n,
                        const pl_refine_settings *settings, const char *path,
                        pl_refine_result *result, pleach_error *err)
{
    refiner r = {.source = source, .coded = coded, .c = c, .s = settings, .ids = ids,
                 .n_chunks = n / settings->chunk};
    *result = (pl_refine_result){0};
    PL_FAIL_IF(r.n_chunks == 0, err, PLEACH_ERR_ARGUMENT,
               "refining: %zu tokens, expected at least %zu", n, settings->chunk);
    pleach_status status = refine(&r, path, result, err);
    close(&r);
    return status;
}
