/* SPDX-License-Identifier: Apache-2.0
 *
 * A token for each running answer: one pass for all of them, then each chooses from its row. */
#include "base/clock.h"
#include "base/memory.h"
#include "batch.h"

/* One step's rows. */
typedef struct step {
    pl_sequence *sequences[PL_MOST_PARALLEL];
    size_t n;
    bool logits; /* some answer is chosen from them, or the backend gives nothing else */
    float *rows; /* [n][vocab] */
    size_t vocab;
    int32_t best[PL_MOST_PARALLEL];
} step;

/* Room for one more token of each; who finds none ends. */
static void reserve_all(pleach_batch *b, step *t)
{
    size_t n = b->n_running;
    b->n_running = 0;
    for (size_t i = 0; i < n; i++) {
        pl_sequence *s = b->running[i];
        pleach_error err;
        pleach_status status;
        do {
            status = pl_session_reserve(s->session, &err);
        } while (status == PLEACH_ERR_MEMORY && pl_kept_drop(&b->kept));
        if (status == PLEACH_OK)
            t->sequences[t->n++] = b->running[b->n_running++] = s;
        else
            pl_answer_end(b, s, PLEACH_FINISH_CANCELLED, &err);
    }
}

/* Rows [at, at + n) in one pass. */
static pleach_status run_rows(pleach_batch *b, step *t, size_t at, size_t n, pleach_error *err)
{
    pleach_session *sessions[PL_MOST_PARALLEL];
    int32_t ids[PL_MOST_PARALLEL];
    for (size_t i = 0; i < n; i++) {
        sessions[i] = t->sequences[at + i]->session;
        ids[i] = t->sequences[at + i]->id;
    }
    pleach_status status;
    do {
        status = pl_sessions_step(sessions, ids, n, t->logits ? t->rows + at * t->vocab : NULL,
                                  t->best + at, err);
    } while (status == PLEACH_ERR_MEMORY && pl_kept_drop(&b->kept));
    return status;
}

/* In parts of what the workspace takes. Rows without enough memory are halved down to one, which
 * then fails alone; any other failure is that of all rows of a part. */
static void run_all(pleach_batch *b, step *t)
{
    size_t most = PL_MIN(b->root->batch, t->n);
    for (size_t at = 0; at < t->n;) {
        size_t n = PL_MIN(t->n - at, most);
        pleach_error err = {0};
        pleach_status status = run_rows(b, t, at, n, &err);
        if (status == PLEACH_ERR_MEMORY && n > 1) {
            most = n / 2;
            continue;
        }
        for (size_t i = at; i < at + n; i++) t->sequences[i]->error = err;
        at += n;
    }
}

static void choose_row(void *step_, size_t i, int thread)
{
    step *t = step_;
    (void)thread;
    if (t->sequences[i]->error.code == PLEACH_OK)
        pl_answer_choose(t->sequences[i], t->logits ? t->rows + i * t->vocab : NULL, t->best[i]);
}

void pl_batch_step(pleach_batch *b)
{
    step t = {.rows = b->logits, .vocab = b->vocab};
    double start = pl_seconds();
    reserve_all(b, &t);
    if (t.n == 0) return;
    t.logits = !b->model->backend->finds_best;
    for (size_t i = 0; i < t.n; i++) t.logits |= pl_request_wants_logits(t.sequences[i]->request);
    run_all(b, &t);
    pl_pool_run(b->model->compute.pool, t.n, choose_row, &t);
    b->sums.steps++;
    b->sums.step_seconds += pl_seconds() - start;
    b->n_running = 0;
    for (size_t i = 0; i < t.n; i++)
        if (pl_answer_deliver(b, t.sequences[i])) b->running[b->n_running++] = t.sequences[i];
}
