/* SPDX-License-Identifier: Apache-2.0
 *
 * The way to a request's first logits: what is held of its prompt already, then the rest piece by
 * piece, with what clients want to know of it. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "batch.h"
#include "logprobs.h"

/* ---- which ----------------------------------------------------------------------------------- */

static size_t tokens_left(const pl_request *r)
{
    return r->asked.n_prompt - (r->session ? pleach_session_position(r->session) : 0);
}

/* The oldest and the one with the fewest tokens left take turns: a short prompt does not wait for a
 * long one, which goes on all the same. */
static pl_request *next_prompt(pleach_batch *b)
{
    pl_request *next = NULL;
    for (pl_request *r = b->active; r; r = r->next) {
        if (r->prompted) continue;
        if (!next || tokens_left(r) < tokens_left(next)) next = r;
        if (b->oldest_next) break;
    }
    b->oldest_next = !b->oldest_next;
    return next;
}

/* ---- what is held ---------------------------------------------------------------------------- */

/* Whether every token of the prompt has to go through the model for what is asked. */
static bool wants_all(const pleach_request *q)
{
    return q->prompt_logprobs || q->embed == PLEACH_EMBED_MEAN;
}

/* Kept, or of an answer or another prompt under way. The last token is always computed. */
static pl_prefix find_prefix(pleach_batch *b, const pl_request *r)
{
    pl_prefix p = {.session = b->root};
    const int32_t *prompt = r->asked.prompt;
    size_t n = r->asked.n_prompt - 1;
    if (wants_all(&r->asked)) return p;
    for (size_t i = 0; i < b->n_running; i++)
        pl_prefix_consider(&p, b->running[i]->session, prompt, n);
    for (const pl_request *other = b->active; other; other = other->next)
        if (other->session) pl_prefix_consider(&p, other->session, prompt, n);
    pl_kept_find(&b->kept, &p, prompt, n);
    return p;
}

static pleach_status open_prompt(pleach_batch *b, pl_request *r, pleach_error *err)
{
    const pleach_request *q = &r->asked;
    size_t C = b->model->transformer->config->hidden_size;
    r->started = pl_seconds();
    if (q->embed != PLEACH_EMBED_NONE) r->last = pl_alloc(C, sizeof *r->last);
    if (q->embed == PLEACH_EMBED_MEAN) r->hidden = pl_calloc(C, sizeof *r->hidden);
    if (q->prompt_logprobs) r->previous = pl_alloc(b->vocab, sizeof *r->previous);
    if ((q->embed != PLEACH_EMBED_NONE && !r->last) ||
        (q->embed == PLEACH_EMBED_MEAN && !r->hidden) || (q->prompt_logprobs && !r->previous))
        return pl_fail_memory(err, "prompt", b->vocab * sizeof(float));
    pl_prefix p;
    pleach_status status;
    do {
        p = find_prefix(b, r);
        status = pl_session_branch(p.session, p.reach, &r->session, err);
    } while (status == PLEACH_ERR_MEMORY && pl_kept_drop(&b->kept));
    PL_TRY(status);
    r->cached = p.reach;
    r->branch = p.same > p.reach ? p.same : 0;
    return PLEACH_OK;
}

/* ---- one piece ------------------------------------------------------------------------------- */

typedef struct logprob_work {
    const pleach_batch *b;
    const pl_request *r;
    size_t at;                 /* of the first row's token in the prompt */
    pl_distribution *found;    /* of each row */
    pleach_logprob (*top)[PL_MOST_TOP];
} logprob_work;

/* Row i tells of token at + i by the logits before it. */
static const float *row_before(const logprob_work *w, size_t i)
{
    return i ? w->b->logits + (i - 1) * w->b->vocab : w->r->previous;
}

static void find_logprobs(void *work, size_t i, int thread)
{
    logprob_work *w = work;
    size_t n = PL_MIN(w->r->asked.top_logprobs, w->b->vocab);
    (void)thread;
    if (w->at + i == 0) return;
    const float *row = row_before(w, i);
    w->found[i] = pl_distribution_of(row, w->b->vocab);
    pl_logprobs_top(row, w->b->vocab, n, w->top[i]);
    pl_logprobs_normalise(&w->found[i], n, w->top[i]);
}

static pleach_status tell_row(const logprob_work *w, size_t i, pleach_error *err)
{
    const pleach_request *q = &w->r->asked;
    size_t at = w->at + i;
    pleach_token t = {.position = at, .prompt = 1, .id = q->prompt[at], .logprob = NAN};
    if (at > 0) {
        t.logprob = (float)pl_log_probability(&w->found[i], row_before(w, i)[t.id]);
        PL_FAIL_IF(isnan(t.logprob), err, PLEACH_ERR_DATA,
                   "the logits hold NaN or no finite number");
        t.top = w->top[i];
        t.n_top = PL_MIN(q->top_logprobs, w->b->vocab);
    }
    PL_FAIL_IF(q->on_token && q->on_token(q->user, &t), err, PLEACH_ERR_CANCELLED, "cancelled");
    return PLEACH_OK;
}

/* Tells of the n tokens from `at` on, whose logits have come. */
static pleach_status tell_prompt(pleach_batch *b, pl_request *r, size_t at, size_t n,
                                 pleach_error *err)
{
    logprob_work w = {.b = b, .r = r, .at = at};
    pleach_status status = PLEACH_OK;
    w.found = pl_alloc(n, sizeof *w.found);
    w.top = pl_alloc(n, sizeof *w.top);
    if (!w.found || !w.top)
        status = pl_fail_memory(err, "logprobs", n * sizeof *w.top);
    else
        pl_pool_run(b->model->compute.pool, n, find_logprobs, &w);
    for (size_t i = 0; status == PLEACH_OK && i < n; i++) status = tell_row(&w, i, err);
    memcpy(r->previous, b->logits + (n - 1) * b->vocab, b->vocab * sizeof *r->previous);
    pl_free(w.found);
    pl_free(w.top);
    return status;
}

static pleach_status feed_embedding(pleach_batch *b, pl_request *r, const int32_t *ids, size_t n,
                                    pleach_error *err)
{
    size_t C = b->model->transformer->config->hidden_size;
    float *rows = pl_alloc(n, C * sizeof *rows);
    if (!rows) return pl_fail_memory(err, "embedding", n * C * sizeof *rows);
    pleach_status status = pl_session_feed_hidden(r->session, ids, n, rows, err);
    for (size_t i = 0; status == PLEACH_OK && r->hidden && i < n * C; i++)
        r->hidden[i % C] += (double)rows[i];
    if (status == PLEACH_OK) memcpy(r->last, rows + (n - 1) * C, C * sizeof *rows);
    pl_free(rows);
    return status;
}

/* The piece's results; `last` gets what the first token is chosen from. */
static pleach_status feed_piece(pleach_batch *b, pl_request *r, const int32_t *ids, size_t n,
                                bool last, pleach_error *err)
{
    pleach_session *s = r->session;
    if (r->asked.embed != PLEACH_EMBED_NONE) return feed_embedding(b, r, ids, n, err);
    if (r->asked.prompt_logprobs) return pleach_session_feed_all(s, ids, n, 0, b->logits, err);
    if (!last || pl_request_no_tokens(r)) return pleach_session_feed(s, ids, n, NULL, err);
    if (b->model->backend->finds_best && !pl_request_wants_logits(r))
        return pl_session_feed_best(s, ids, n, &r->best, err);
    return pleach_session_feed(s, ids, n, b->logits, err);
}

/* Tokens of the next piece: it ends where others left this prompt, too. */
static size_t piece_size(const pleach_batch *b, const pl_request *r)
{
    size_t at = pleach_session_position(r->session), n = PL_MIN(r->asked.n_prompt - at, b->chunk);
    if (r->asked.prompt_logprobs) n = PL_MIN(n, b->rows);
    return at < r->branch ? PL_MIN(n, r->branch - at) : n;
}

/* A copy as it is now, for who comes later. Not having it is no failure. */
static void keep_copy(pleach_batch *b, const pl_request *r)
{
    pleach_session *copy;
    size_t n = pleach_session_position(r->session);
    if (b->kept.most > 0 && pl_session_branch(r->session, n, &copy, NULL) == PLEACH_OK)
        pl_kept_add(&b->kept, copy);
}

static pleach_status run_piece(pleach_batch *b, pl_request *r, pleach_error *err)
{
    size_t at = pleach_session_position(r->session), n = piece_size(b, r);
    bool last = at + n == r->asked.n_prompt;
    pleach_status status;
    do {
        status = feed_piece(b, r, r->asked.prompt + at, n, last, err);
    } while (status == PLEACH_ERR_MEMORY && pleach_session_position(r->session) == at &&
             pl_kept_drop(&b->kept));
    PL_TRY(status);
    b->sums.prompt_tokens += n;
    if (at + n == r->branch) keep_copy(b, r);
    return r->asked.prompt_logprobs ? tell_prompt(b, r, at, n, err) : PLEACH_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* The embedding, of length 1. */
static void finish_embedding(const pleach_batch *b, pl_request *r)
{
    size_t C = b->model->transformer->config->hidden_size;
    double squares = 0;
    for (size_t i = 0; r->hidden && i < C; i++)
        r->last[i] = (float)(r->hidden[i] / (double)r->asked.n_prompt);
    for (size_t i = 0; i < C; i++) squares += (double)r->last[i] * (double)r->last[i];
    for (size_t i = 0; i < C && squares > 0; i++)
        r->last[i] = (float)((double)r->last[i] / sqrt(squares));
}

/* An answer goes on past where a later request with this prompt would begin: what a window or a
 * block of recent tokens gives up by then is kept here. */
static void keep_prompt(pleach_batch *b, const pl_request *r)
{
    if (pl_cache_forgets(r->session->cache)) keep_copy(b, r);
}

static void finish_prompt(pleach_batch *b, pl_request *r)
{
    size_t bytes = b->vocab * sizeof *r->logits;
    bool best = b->model->backend->finds_best && !pl_request_wants_logits(r);
    float *logits = r->asked.prompt_logprobs ? r->previous : best ? NULL : b->logits;
    r->prompted = pl_seconds();
    b->sums.cached_tokens += r->cached;
    b->sums.prompt_tokens += r->cached;
    if (r->last) finish_embedding(b, r);
    keep_prompt(b, r);
    if (r->asked.answers > 1 && !pl_request_no_tokens(r) && logits) {
        pleach_error err;
        r->logits = pl_alloc(1, bytes);
        if (!r->logits) {
            pl_fail_memory(&err, "logits", bytes);
            pl_request_end_rest(b, r, PLEACH_FINISH_CANCELLED, &err);
            return;
        }
        memcpy(r->logits, logits, bytes);
    }
    pl_answer_begin(b, r, logits, r->best);
}

void pl_batch_prompt(pleach_batch *b)
{
    pleach_error err = {0};
    pl_request *r = next_prompt(b);
    if (!r) return;
    double start = pl_seconds();
    pleach_status status = r->session ? PLEACH_OK : open_prompt(b, r, &err);
    if (status == PLEACH_OK) status = run_piece(b, r, &err);
    b->sums.prompt_seconds += pl_seconds() - start;
    if (status == PLEACH_ERR_CANCELLED)
        pl_request_end_rest(b, r, PLEACH_FINISH_CANCELLED, NULL);
    else if (status != PLEACH_OK)
        pl_request_end_rest(b, r, PLEACH_FINISH_CANCELLED, &err);
    else if (pleach_session_position(r->session) == r->asked.n_prompt)
        finish_prompt(b, r);
}
