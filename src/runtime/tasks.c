/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiple-choice tasks: each choice is scored by the log likelihood of its tokens after the
 * context, as lm-evaluation-harness does. Context and choice are tokenized together, and the
 * choice's tokens are those beyond as many as the context has alone. What a choice shares with the
 * one before it, the context above all, stays in the session. */
#include "pleach/eval.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "model/distribution.h"
#include "session.h"
#include "task_items.h"

/* Logits held at once: 64 rows of 49152. */
#define SLICE_FLOATS ((size_t)64 * 49152)

void pleach_tasks_settings_defaults(pleach_tasks_settings *s)
{
    *s = (pleach_tasks_settings){.kv = "f32", .kv_recent = PL_KV_RECENT};
}

/* The choice a model takes, by sum and by sum over bytes. */
typedef struct pick {
    size_t sum, norm;
} pick;

typedef struct scorer {
    const pleach_model *model, *speaker; /* whose tokenizer it is */
    pleach_session *session;
    float *logits; /* [slice][vocab] */
    double *log_probabilities; /* [slice] */
    size_t vocab, slice;
    int32_t *ids; /* of the text being scored */
    size_t n_ids, capacity;
} scorer;

/* ---- one choice ------------------------------------------------------------------------------ */

/* The ids of a text, after the begin token where the tokenizer puts one. */
static pleach_status tokenize(scorer *s, const char *text, pleach_error *err)
{
    int32_t *begin, *ids;
    size_t n_begin, n;
    PL_TRY(pleach_tokenize(s->speaker, "", 0, PLEACH_TOKENIZE_BOS, &begin, &n_begin, err));
    bool bos = n_begin > 0 && begin[0] == s->speaker->transformer->config->bos;
    int32_t first = bos ? begin[0] : 0;
    pleach_ids_free(begin);
    PL_TRY(pleach_tokenize(s->speaker, text, strlen(text), PLEACH_TOKENIZE_PLAIN, &ids, &n, err));
    int failed = pl_grow((void **)&s->ids, &s->capacity, n + 1, sizeof *s->ids);
    if (!failed) {
        s->ids[0] = first;
        if (n) memcpy(s->ids + bos, ids, n * sizeof *ids);
        s->n_ids = n + bos;
    }
    pleach_ids_free(ids);
    return failed ? pl_fail_memory(err, "task items", (n + 1) * sizeof *ids) : PLEACH_OK;
}

/* Of token `begin` + i + 1, by logits row i. */
typedef struct slice {
    scorer *s;
    size_t begin;
} slice;

static void score_row(void *slice_, size_t i, int thread)
{
    const slice *part = slice_;
    scorer *s = part->s;
    const float *row = s->logits + i * s->vocab;
    pl_distribution d = pl_distribution_of(row, s->vocab);
    (void)thread;
    s->log_probabilities[i] = pl_log_probability(&d, row[s->ids[part->begin + i + 1]]);
}

/* Adds the log probabilities of ids[at + 1 .. at + n] to *sum, whose logits the session gives. */
static pleach_status score_slice(scorer *s, size_t at, size_t n, double *sum, pleach_error *err)
{
    PL_TRY(pleach_session_feed_all(s->session, s->ids + at, n, 0, s->logits, err));
    slice part = {s, at};
    pl_pool_run(s->model->compute.pool, n, score_row, &part);
    for (size_t i = 0; i < n; i++) *sum += s->log_probabilities[i];
    return PLEACH_OK;
}

/* Log likelihood of the ids from `first` on (first >= 1), reusing what the session holds. */
static pleach_status score_ids(scorer *s, size_t first, double *sum, pleach_error *err)
{
    const int32_t *held;
    size_t n_held = pleach_session_ids(s->session, &held), same = 0;
    while (same < n_held && same < first - 1 && held[same] == s->ids[same]) same++;
    PL_TRY(pleach_session_truncate(s->session, same, err));
    PL_TRY(pleach_session_feed(s->session, s->ids + same, first - 1 - same, NULL, err));
    *sum = 0;
    for (size_t at = first - 1; at + 1 < s->n_ids;) {
        size_t n = PL_MIN(s->slice, s->n_ids - 1 - at);
        PL_TRY(score_slice(s, at, n, sum, err));
        at += n;
    }
    return PLEACH_OK;
}

/* ---- one item -------------------------------------------------------------------------------- */

static pleach_status score_choice(scorer *s, const pl_task_item *item, size_t choice,
                                  size_t n_context, double *sum, pleach_error *err)
{
    size_t context = s->session->context;
    PL_TRY(tokenize(s, item->text[choice], err));
    PL_FAIL_IF(s->n_ids < 2, err, PLEACH_ERR_DATA,
               "line %zu: choice %zu: too little text to score", item->line, choice);
    PL_FAIL_IF(s->n_ids > context, err, PLEACH_ERR_LIMIT,
               "line %zu: choice %zu: %zu tokens, the model holds %zu", item->line, choice,
               s->n_ids, context);
    size_t first = PL_MAX(PL_MIN(n_context, s->n_ids - 1), 1);
    PL_TRY(score_ids(s, first, sum, err));
    PL_FAIL_IF(!isfinite(*sum), err, PLEACH_ERR_DATA,
               "line %zu: choice %zu: the model's logits are not finite", item->line, choice);
    return PLEACH_OK;
}

static pleach_status score_item(scorer *s, const pl_task_item *item, pick *p, pleach_error *err)
{
    double best = -INFINITY, best_norm = -INFINITY;
    PL_TRY(tokenize(s, item->context, err));
    size_t n_context = s->n_ids;
    for (size_t i = 0; i < item->n_choices; i++) {
        double sum = 0, norm;
        PL_TRY(score_choice(s, item, i, n_context, &sum, err));
        norm = sum / (double)item->bytes[i];
        if (sum > best) p->sum = i;
        if (norm > best_norm) p->norm = i;
        best = fmax(best, sum);
        best_norm = fmax(best_norm, norm);
    }
    return PLEACH_OK;
}

/* ---- all items ------------------------------------------------------------------------------- */

static pleach_status open_scorer(scorer *s, const pleach_model *model, const pleach_model *other,
                                 const char *kv, size_t kv_recent, pleach_error *err)
{
    *s = (scorer){.model = model,
                  .speaker = model->tokenizer || !other ? model : other,
                  .vocab = model->transformer->config->vocab_size};
    s->slice = PL_MAX(SLICE_FLOATS / s->vocab, 1);
    pleach_session_settings set;
    pleach_session_settings_defaults(&set);
    set.kv = kv;
    set.kv_recent = kv_recent;
    PL_TRY(pleach_session_open(model, &set, &s->session, err));
    s->logits = pl_alloc(s->slice, s->vocab * sizeof *s->logits);
    s->log_probabilities = pl_alloc(s->slice, sizeof *s->log_probabilities);
    return s->logits && s->log_probabilities
               ? PLEACH_OK
               : pl_fail_memory(err, "logits", s->slice * s->vocab * sizeof *s->logits);
}

static void close_scorer(scorer *s)
{
    pleach_session_close(s->session);
    pl_free(s->logits);
    pl_free(s->log_probabilities);
    pl_free(s->ids);
}

typedef struct tasks {
    const pleach_tasks_settings *set;
    scorer model, teacher;
    bool has_teacher;
    pl_task_item *items;
    size_t n;
    pick *picks, *teacher_picks; /* [n] */
} tasks;

/* Share of 0/1 outcomes and its standard error, by the sample variance. */
static void share(size_t hits, size_t n, double *mean, double *error)
{
    *mean = (double)hits / (double)n;
    *error = n > 1 ? sqrt(*mean * (1 - *mean) / (double)(n - 1)) : 0;
}

static void summarise(const tasks *t, pleach_tasks_result *r)
{
    size_t acc = 0, norm = 0, teacher = 0, teacher_norm = 0, same = 0, same_norm = 0;
    double n = (double)t->n;
    for (size_t i = 0; i < t->n; i++) {
        size_t answer = t->items[i].answer;
        r->choices += t->items[i].n_choices;
        acc += t->picks[i].sum == answer;
        norm += t->picks[i].norm == answer;
        if (!t->has_teacher) continue;
        teacher += t->teacher_picks[i].sum == answer;
        teacher_norm += t->teacher_picks[i].norm == answer;
        same += t->picks[i].sum == t->teacher_picks[i].sum;
        same_norm += t->picks[i].norm == t->teacher_picks[i].norm;
    }
    r->items = t->n;
    share(acc, t->n, &r->acc, &r->acc_error);
    share(norm, t->n, &r->acc_norm, &r->acc_norm_error);
    r->teacher_acc = (double)teacher / n;
    r->teacher_acc_norm = (double)teacher_norm / n;
    r->same_choice = (double)same / n;
    r->same_choice_norm = (double)same_norm / n;
}

static pleach_status score_all(tasks *t, pleach_error *err)
{
    size_t right = 0;
    for (size_t i = 0; i < t->n; i++) {
        PL_TRY(score_item(&t->model, &t->items[i], &t->picks[i], err));
        if (t->has_teacher)
            PL_TRY(score_item(&t->teacher, &t->items[i], &t->teacher_picks[i], err));
        right += t->picks[i].sum == t->items[i].answer;
        if (t->set->progress &&
            t->set->progress(t->set->user, i + 1, t->n, (double)right / (double)(i + 1)))
            return pl_fail(err, PLEACH_ERR_CANCELLED, "stopped after %zu of %zu items", i + 1,
                           t->n);
    }
    return PLEACH_OK;
}

static pleach_status run_tasks(tasks *t, const pleach_model *model, const pleach_model *teacher,
                               const char *lines, size_t size, pleach_error *err)
{
    PL_TRY(pl_task_items_read(lines, size, &t->items, &t->n, err));
    PL_TRY(open_scorer(&t->model, model, teacher, t->set->kv, t->set->kv_recent, err));
    if (teacher) PL_TRY(open_scorer(&t->teacher, teacher, model, "f32", 0, err));
    t->has_teacher = teacher != NULL;
    t->picks = pl_calloc(t->n, sizeof *t->picks);
    t->teacher_picks = pl_calloc(t->n, sizeof *t->teacher_picks);
    if (!t->picks || !t->teacher_picks)
        return pl_fail_memory(err, "task items", 2 * t->n * sizeof *t->picks);
    return score_all(t, err);
}

pleach_status pleach_eval_tasks(const pleach_model *model, const pleach_model *teacher,
                                const char *lines, size_t size,
                                const pleach_tasks_settings *settings, pleach_tasks_result *result,
                                pleach_error *err)
{
    pleach_tasks_settings defaults;
    pleach_tasks_settings_defaults(&defaults);
    tasks t = {.set = settings ? settings : &defaults};
    double start = pl_seconds();
    *result = (pleach_tasks_result){0};
    pleach_status status = run_tasks(&t, model, teacher, lines, size, err);
    if (status == PLEACH_OK) summarise(&t, result);
    result->seconds = pl_seconds() - start;
    close_scorer(&t.model);
    close_scorer(&t.teacher);
    pl_task_items_free(t.items, t.n);
    pl_free(t.picks);
    pl_free(t.teacher_picks);
    return status;
}
