/* SPDX-License-Identifier: Apache-2.0
 *
 * Perplexity and distance from a teacher. Both models walk a chunk side by side, a slice of scored
 * positions at a time, so that no more logits are held than two slices. All statistics are in
 * double; tokens are measured in parallel and added in order. */
#include "pleach/eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "evaluation.h"
#include "model/distribution.h"
#include "session.h"

/* Logits of one model held at once: 255 rows of 49152. */
#define SLICE_FLOATS ((size_t)255 * 49152)
/* Memory for a byte of text while it is tokenised and scored, at a token each. */
#define TEXT_BYTES 32

void pleach_eval_settings_defaults(pleach_eval_settings *s)
{
    *s = (pleach_eval_settings){.context = 512, .score = PLEACH_SCORE_ALL, .kv = "f32",
                                .kv_recent = PL_KV_RECENT};
}

/* What one predicted token contributes. */
typedef struct score {
    double nll, teacher_nll, kl;
    bool same_top, finite;
} score;

typedef struct evaluation {
    const pleach_model *model, *teacher; /* teacher may be NULL */
    const pleach_eval_settings *set;
    pleach_session *session, *teacher_session;
    float *logits, *teacher_logits; /* [slice][vocab] */
    size_t vocab, slice;
    int32_t *ids; /* the whole text */
    size_t n_ids;
    score *scores; /* in order */
    size_t n_scores;
} evaluation;

/* ---- one token ------------------------------------------------------------------------------- */

static score score_token(const float *logits, const float *teacher, size_t vocab, int32_t next)
{
    pl_distribution p = pl_distribution_of(logits, vocab), q;
    score s = {.nll = -pl_log_probability(&p, logits[next])};
    if (teacher) {
        q = pl_distribution_of(teacher, vocab);
        s.teacher_nll = -pl_log_probability(&q, teacher[next]);
        for (size_t i = 0; i < vocab; i++) {
            double lq = pl_log_probability(&q, teacher[i]);
            s.kl += exp(lq) * (lq - pl_log_probability(&p, logits[i]));
        }
        s.same_top = p.top == q.top;
    }
    s.finite = isfinite(s.nll) && isfinite(s.teacher_nll) && isfinite(s.kl);
    return s;
}

/* ---- one chunk ------------------------------------------------------------------------------- */

/* Logits after position i of a chunk predict token i + 1; the first position scored. */
static size_t first_scored(const pleach_eval_settings *s)
{
    return s->score == PLEACH_SCORE_SECOND_HALF ? s->context / 2 : 0;
}

static pleach_status feed_slice(evaluation *e, const int32_t *ids, size_t n, bool scored,
                                pleach_error *err)
{
    PL_TRY(pleach_session_feed_all(e->session, ids, n, scored ? 0 : n, scored ? e->logits : NULL,
                                   err));
    if (!e->teacher) return PLEACH_OK;
    return pleach_session_feed_all(e->teacher_session, ids, n, scored ? 0 : n,
                                   scored ? e->teacher_logits : NULL, err);
}

/* Rows of logits, the ids they are to predict, and where scores go. */
typedef struct slice {
    const evaluation *e;
    const int32_t *next;
    score *scores;
} slice;

static void score_row(void *slice_, size_t i, int thread)
{
    const slice *s = slice_;
    const evaluation *e = s->e;
    const float *teacher = e->teacher ? e->teacher_logits + i * e->vocab : NULL;
    (void)thread;
    s->scores[i] = score_token(e->logits + i * e->vocab, teacher, e->vocab, s->next[i]);
}

static pleach_status score_chunk(evaluation *e, const int32_t *ids, pleach_error *err)
{
    size_t first = first_scored(e->set), last = e->set->context - 1; /* positions [first, last) */
    PL_TRY(pleach_session_truncate(e->session, 0, err));
    if (e->teacher) PL_TRY(pleach_session_truncate(e->teacher_session, 0, err));
    PL_TRY(feed_slice(e, ids, first, false, err));
    for (size_t at = first; at < last;) {
        size_t n = PL_MIN(e->slice, last - at);
        score *scores = e->scores + e->n_scores;
        PL_TRY(feed_slice(e, ids + at, n, true, err));
        slice part = {e, ids + at + 1, scores};
        pl_pool_run(e->model->compute.pool, n, score_row, &part);
        for (size_t i = 0; i < n; i++)
            PL_FAIL_IF(!scores[i].finite, err, PLEACH_ERR_DATA,
                       "the logits that predict token %zu of the text are not finite",
                       (size_t)(ids - e->ids) + at + i + 1);
        e->n_scores += n;
        at += n;
    }
    return PLEACH_OK;
}

/* ---- totals ---------------------------------------------------------------------------------- */

/* Mean of one field of all scores, and the standard error of that mean. */
static double mean_of(const evaluation *e, size_t field, double *error)
{
    double sum = 0, squares = 0, n = (double)e->n_scores;
    const char *at = (const char *)e->scores + field;
    for (size_t i = 0; i < e->n_scores; i++) sum += *(const double *)(at + i * sizeof(score));
    double mean = sum / n;
    for (size_t i = 0; i < e->n_scores; i++) {
        double d = *(const double *)(at + i * sizeof(score)) - mean;
        squares += d * d;
    }
    if (error) *error = e->n_scores > 1 ? sqrt(squares / (n - 1) / n) : 0;
    return mean;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nearest rank: the smallest value that 99 % of the tokens do not exceed. */
static pleach_status kl_tail(const evaluation *e, pleach_eval_result *r, pleach_error *err)
{
    size_t n = e->n_scores;
    double *sorted = pl_alloc(n, sizeof *sorted);
    if (!sorted) return pl_fail_memory(err, "evaluation", n * sizeof *sorted);
    for (size_t i = 0; i < n; i++) sorted[i] = e->scores[i].kl;
    qsort(sorted, n, sizeof *sorted, compare_doubles);
    r->kl_p99 = sorted[(99 * n + 99) / 100 - 1];
    r->kl_max = sorted[n - 1];
    pl_free(sorted);
    return PLEACH_OK;
}

static pleach_status summarise(const evaluation *e, pleach_eval_result *r, pleach_error *err)
{
    r->tokens = e->n_scores;
    r->nll = mean_of(e, offsetof(score, nll), &r->nll_error);
    r->perplexity = exp(r->nll);
    r->perplexity_error = r->perplexity * r->nll_error;
    if (!e->teacher) return PLEACH_OK;
    size_t same = 0;
    r->teacher_perplexity = exp(mean_of(e, offsetof(score, teacher_nll), NULL));
    r->kl = mean_of(e, offsetof(score, kl), &r->kl_error);
    for (size_t i = 0; i < e->n_scores; i++) same += e->scores[i].same_top;
    r->same_top = (double)same / (double)e->n_scores;
    return kl_tail(e, r, err);
}

/* ---- the text -------------------------------------------------------------------------------- */

static pleach_status check(const evaluation *e, pleach_error *err)
{
    const pleach_eval_settings *s = e->set;
    const char *path = pl_checkpoint_path(e->model->checkpoint);
    PL_FAIL_IF(s->context < 2, err, PLEACH_ERR_ARGUMENT, "chunks of %zu tokens: expected 2 or more",
               s->context);
    PL_FAIL_IF(s->score != PLEACH_SCORE_ALL && s->score != PLEACH_SCORE_SECOND_HALF, err,
               PLEACH_ERR_ARGUMENT, "unknown scoring %d", (int)s->score);
    PL_FAIL_IF(first_scored(s) + 1 >= s->context, err, PLEACH_ERR_ARGUMENT,
               "chunks of %zu tokens have no second half to score", s->context);
    if (!e->teacher) return PLEACH_OK;
    size_t other = e->teacher->transformer->config->vocab_size;
    PL_FAIL_IF(other != e->vocab, err, PLEACH_ERR_MISMATCH,
               "the teacher %s has a vocabulary of %zu, %s one of %zu",
               pl_checkpoint_path(e->teacher->checkpoint), other, path, e->vocab);
    return PLEACH_OK;
}

static pleach_status tokenize(evaluation *e, const char *text, size_t size, size_t *chunks,
                              pleach_error *err)
{
    const pleach_eval_settings *s = e->set;
    /* A teacher's tokenizer serves when the model has none, as a folder of bare weights. */
    const pleach_model *speaker = e->model->tokenizer || !e->teacher ? e->model : e->teacher;
    PL_TRY(pleach_tokenize(speaker, text, size, PLEACH_TOKENIZE_PLAIN, &e->ids, &e->n_ids, err));
    *chunks = e->n_ids / s->context;
    PL_FAIL_IF(*chunks == 0, err, PLEACH_ERR_ARGUMENT,
               "the text has %zu tokens: too short for one chunk of %zu", e->n_ids, s->context);
    if (s->chunks) *chunks = PL_MIN(*chunks, s->chunks);
    return PLEACH_OK;
}

static pleach_status open_one(const evaluation *e, const pleach_model *m, const char *kv,
                              pleach_session **session, float **logits, pleach_error *err)
{
    pleach_session_settings set;
    pleach_session_settings_defaults(&set);
    set.context = e->set->context;
    set.kv = kv;
    set.kv_recent = e->set->kv_recent;
    PL_TRY(pleach_session_open(m, &set, session, err));
    *logits = pl_alloc(e->slice, e->vocab * sizeof **logits);
    return *logits ? PLEACH_OK
                   : pl_fail_memory(err, "logits", e->slice * e->vocab * sizeof **logits);
}

static size_t slice_rows(size_t vocab, size_t scored)
{
    return PL_MAX(PL_MIN(SLICE_FLOATS / vocab, PL_MIN(scored, (size_t)255)), 1);
}

static pleach_status evaluate(evaluation *e, const char *text, size_t size, pleach_eval_result *r,
                              pleach_error *err)
{
    size_t chunks, scored = e->set->context - 1 - first_scored(e->set);
    PL_TRY(check(e, err));
    PL_TRY(tokenize(e, text, size, &chunks, err));
    e->slice = slice_rows(e->vocab, scored);
    PL_TRY(open_one(e, e->model, e->set->kv, &e->session, &e->logits, err));
    pleach_session_cache_info(e->session, &r->cache);
    if (e->teacher)
        PL_TRY(open_one(e, e->teacher, "f32", &e->teacher_session, &e->teacher_logits, err));
    e->scores = pl_alloc(chunks, scored * sizeof *e->scores);
    if (!e->scores) return pl_fail_memory(err, "evaluation", chunks * scored * sizeof *e->scores);
    for (size_t i = 0; i < chunks; i++) {
        PL_TRY(score_chunk(e, e->ids + i * e->set->context, err));
        r->chunks = i + 1;
        double nll = mean_of(e, offsetof(score, nll), NULL);
        if (e->set->progress && e->set->progress(e->set->user, i + 1, chunks, exp(nll)))
            return pl_fail(err, PLEACH_ERR_CANCELLED, "evaluation cancelled after %zu chunks",
                           i + 1);
    }
    return summarise(e, r, err);
}

pleach_status pleach_eval(const pleach_model *model, const pleach_model *teacher, const char *text,
                          size_t size, const pleach_eval_settings *settings,
                          pleach_eval_result *result, pleach_error *err)
{
    pleach_eval_settings defaults;
    pleach_eval_settings_defaults(&defaults);
    evaluation e = {.model = model, .teacher = teacher, .set = settings ? settings : &defaults,
                    .vocab = model->transformer->config->vocab_size};
    double start = pl_seconds();
    *result = (pleach_eval_result){0};
    pleach_status status = evaluate(&e, text, size, result, err);
    result->seconds = pl_seconds() - start;
    pleach_session_close(e.session);
    pleach_session_close(e.teacher_session);
    pl_free(e.logits);
    pl_free(e.teacher_logits);
    pl_free(e.ids);
    pl_free(e.scores);
    return status;
}

/* ---- memory ---------------------------------------------------------------------------------- */

uint64_t pl_eval_memory(const pl_config *g, const pleach_eval_settings *s, uint64_t text)
{
    size_t scored = s->context - 1 - first_scored(s);
    uint64_t heads = (uint64_t)g->n_heads * g->head_dim, kv = (uint64_t)g->n_kv_heads * g->head_dim;
    uint64_t logits = (uint64_t)slice_rows(g->vocab_size, scored) * g->vocab_size;
    uint64_t cache = 2 * kv * g->n_layers * (s->context + PL_CACHE_PAGE);
    uint64_t rows = s->context * (3 * (uint64_t)g->hidden_size + 2 * heads + 2 * kv +
                                  2 * (uint64_t)g->intermediate_size + g->rope.dims);
    return 2 * (logits + cache + rows) * sizeof(float) + TEXT_BYTES * text;
}
