/* SPDX-License-Identifier: Apache-2.0
 *
 * Embedding, head and loss.
 *
 * Letters: C hidden size, V vocabulary. */
#include "loss.h"

#include <math.h>
#include <string.h>

#include "base/matrix.h"
#include "base/memory.h"
#include "base/random.h"
#include "derivatives.h"
#include "kernels/vector.h"

enum { PIECE = 3072, ROWS_AT_ONCE = 64 }; /* rows of the head */

typedef struct embed_job {
    const pl_transformer *t;
    const int32_t *ids;
    float *x;
} embed_job;

static void embed_row(void *job, size_t m, int thread)
{
    const embed_job *j = job;
    (void)thread;
    pl_transformer_embed(j->t, (uint64_t)j->ids[m], j->x + m * j->t->config->hidden_size);
}

void pl_embed(const pl_transformer *t, const pl_compute *c, const int32_t *ids, size_t n, float *x)
{
    pl_pool_run(c->pool, n, embed_row, &(embed_job){t, ids, x});
}

/* ---- the head's matrix ---------------------------------------------------------------------- */

typedef struct read_job {
    const pl_loss *l;
    size_t first, rows;
    float *to;
} read_job;

static void read_unit(void *job, size_t i, int thread)
{
    const read_job *j = job;
    size_t r = i * ROWS_AT_ONCE, n = PL_MIN(j->rows - r, (size_t)ROWS_AT_ONCE);
    (void)thread;
    pl_weight_rows_f32(&j->l->t->head.w, j->first + r, n,
                       j->to + r * j->l->t->config->hidden_size);
}

static void read_rows(const pl_loss *l, size_t first, size_t rows, float *to)
{
    read_job job = {l, first, rows, to};
    pl_pool_run(l->c->pool, (rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, read_unit, &job);
}

/* Rows [first, first + rows) in f32. */
static const float *piece(const pl_loss *l, size_t first, size_t rows)
{
    if (l->whole) return l->weight + first * l->t->config->hidden_size;
    read_rows(l, first, rows, l->weight);
    return l->weight;
}

static pleach_status read_whole(pl_loss *l, pleach_error *err)
{
    const pl_weight *w = &l->t->head.w;
    if (w->coding == PL_CODING_TRELLIS) return pl_weight_dense_f32(w, l->weight, err);
    read_rows(l, 0, w->out, l->weight);
    return PLEACH_OK;
}

pleach_status pl_loss_open(pl_loss *l, const pl_transformer *t, const pl_compute *c, size_t slab,
                           bool whole, pleach_error *err)
{
    size_t C = t->config->hidden_size, V = t->config->vocab_size;
    whole = whole || t->head.w.coding == PL_CODING_TRELLIS;
    *l = (pl_loss){.t = t, .c = c, .slab = slab, .whole = whole};
    l->weight = pl_alloc(whole ? V : PL_MIN(V, (size_t)PIECE), C * sizeof(float));
    l->normed = pl_alloc(slab, C * sizeof(float));
    l->logits = pl_alloc(slab, V * sizeof(float));
    l->losses = pl_alloc(slab, sizeof *l->losses);
    pleach_status status = PLEACH_OK;
    if (!l->weight || !l->normed || !l->logits || !l->losses)
        status = pl_fail_memory(err, "logits", pl_loss_memory(t->config, slab, whole));
    else if (whole)
        status = read_whole(l, err);
    if (status != PLEACH_OK) pl_loss_close(l);
    return status;
}

void pl_loss_close(pl_loss *l)
{
    pl_free(l->weight);
    pl_free(l->normed);
    pl_free(l->logits);
    pl_free(l->losses);
    *l = (pl_loss){0};
}

uint64_t pl_loss_memory(const pl_config *config, size_t slab, bool whole)
{
    uint64_t C = config->hidden_size, V = config->vocab_size;
    uint64_t rows = whole ? V : PL_MIN(V, (uint64_t)PIECE);
    return (rows * C + slab * (C + V)) * sizeof(float) + slab * sizeof(double);
}

/* ---- forward -------------------------------------------------------------------------------- */

/* Tokens of a slab. */
typedef struct slab_job {
    const pl_loss *l;
    const float *x;
    float *dx;
    const pl_target *target;
    size_t from; /* the slab's first token */
} slab_job;

static void norm_row(void *job, size_t m, int thread)
{
    const slab_job *j = job;
    const pl_transformer *t = j->l->t;
    size_t C = t->config->hidden_size;
    (void)thread;
    j->l->c->kernels.rms_norm(j->l->normed + m * C, j->x + m * C, t->final_norm, C,
                              t->config->rms_norm_eps);
}

/* Of at most a slab. */
static void slab_logits(const pl_loss *l, const float *x, size_t n, float *logits)
{
    size_t C = l->t->config->hidden_size, V = l->t->config->vocab_size;
    const float *bias = l->t->head.bias;
    pl_pool_run(l->c->pool, n, norm_row, &(slab_job){.l = l, .x = x});
    for (size_t first = 0; first < V; first += PIECE) {
        size_t rows = PL_MIN(V - first, (size_t)PIECE);
        pl_matmul(l->c->pool, false, true, n, rows, C, 1, l->normed, C, piece(l, first, rows), C,
                  0, logits + first, V);
    }
    for (size_t m = 0; bias && m < n; m++) l->c->kernels.axpy_f32(logits + m * V, 1, bias, V);
}

void pl_loss_logits(const pl_loss *l, const float *x, size_t n, float *logits)
{
    size_t C = l->t->config->hidden_size, V = l->t->config->vocab_size;
    for (size_t m = 0; m < n; m += l->slab)
        slab_logits(l, x + m * C, PL_MIN(n - m, l->slab), logits + m * V);
}

/* ---- loss ----------------------------------------------------------------------------------- */

static size_t argmax(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* An index drawn from these probabilities. */
static size_t draw(const float *probabilities, size_t n, uint64_t seed, uint64_t token)
{
    uint64_t state = pl_mix64(seed) + token;
    double left = pl_random_unit(&state);
    size_t last = 0;
    for (size_t i = 0; i < n; i++) {
        if (probabilities[i] <= 0) continue;
        last = i;
        left -= (double)probabilities[i];
        if (left < 0) break;
    }
    return last;
}

static double teacher_weight(float log_probability)
{
    return log_probability > -80 ? (double)exp_f32(log_probability) : 0;
}

/* One token's logits z become the gradient by them, softmax(z) - target; returns the loss. */
static double row_gradient(const pl_loss *l, float *z, size_t m, const pl_target *target)
{
    size_t V = l->t->config->vocab_size, best = argmax(z, V);
    const float *teacher = target->teacher ? target->teacher + m * V : NULL;
    float most = z[best];
    double loss = 0, given = 0;
    if (target->labels) {
        given = (double)z[target->labels[m]];
    } else if (teacher) {
        for (size_t v = 0; v < V; v++) {
            double p = teacher_weight(teacher[v]);
            if (p > 0) loss += p * ((double)teacher[v] - (double)z[v]);
            given += p;
        }
    }
    l->c->kernels.softmax(z, V);
    double log_sum = (double)most - log((double)z[best]); /* log of the sum of exp z */
    if (target->labels) {
        z[target->labels[m]] -= 1;
        return log_sum - given;
    }
    if (teacher) {
        for (size_t v = 0; v < V; v++) z[v] -= (float)teacher_weight(teacher[v]);
        return loss + given * log_sum;
    }
    size_t label = draw(z, V, target->seed, target->first + m);
    loss = -log((double)z[label]);
    z[label] -= 1;
    return loss;
}

static void norm_gradient_row(void *job, size_t m, int thread)
{
    const slab_job *j = job;
    const pl_transformer *t = j->l->t;
    size_t C = t->config->hidden_size;
    float *row = j->l->normed + m * C;
    (void)thread;
    pl_rms_norm_gradient(&j->l->c->kernels, row, j->x + m * C, t->final_norm, row, C,
                         t->config->rms_norm_eps);
    memcpy(j->dx + m * C, row, C * sizeof *row);
}

static void slab_gradient(const pl_loss *l, const float *x, size_t n, float *dx)
{
    size_t C = l->t->config->hidden_size, V = l->t->config->vocab_size;
    for (size_t first = 0; first < V; first += PIECE) {
        size_t rows = PL_MIN(V - first, (size_t)PIECE);
        pl_matmul(l->c->pool, false, false, n, C, rows, 1, l->logits + first, V,
                  piece(l, first, rows), C, first > 0, l->normed, C);
    }
    pl_pool_run(l->c->pool, n, norm_gradient_row, &(slab_job){.l = l, .x = x, .dx = dx});
}

static void loss_row(void *job, size_t m, int thread)
{
    const slab_job *j = job;
    const pl_loss *l = j->l;
    (void)thread;
    l->losses[m] = row_gradient(l, l->logits + m * l->t->config->vocab_size, j->from + m, j->target);
}

double pl_loss_gradient(const pl_loss *l, const float *x, size_t n, const pl_target *target,
                        float *dx)
{
    size_t C = l->t->config->hidden_size;
    double sum = 0;
    for (size_t from = 0; from < n; from += l->slab) {
        size_t count = PL_MIN(n - from, l->slab);
        slab_logits(l, x + from * C, count, l->logits);
        pl_pool_run(l->c->pool, count, loss_row, &(slab_job){.l = l, .target = target, .from = from});
        for (size_t m = 0; m < count; m++) sum += l->losses[m];
        if (dx) slab_gradient(l, x + from * C, count, dx + from * C);
    }
    return sum;
}
