/* SPDX-License-Identifier: Apache-2.0
 *
 * One answer: chosen token by token, handed over, ended. */
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "batch.h"
#include "logprobs.h"

bool pl_request_wants_logits(const pl_request *r)
{
    return !pl_sampling_is_greedy(&r->asked.generation.sampling) || r->grammar ||
           r->asked.n_bias || r->asked.logprobs;
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* The answer's own draws: the first has the seed that was asked for. */
static uint64_t seed_of(uint64_t seed, size_t answer)
{
    return answer ? pl_mix64(seed + answer * 0x9e3779b97f4a7c15u) : seed;
}

static pleach_status choose(pl_sequence *s, float *logits, pleach_error *err)
{
    const pleach_request *q = &s->request->asked;
    size_t vocab = s->session->model->transformer->config->vocab_size, n;
    const int32_t *history;
    n = pleach_session_ids(s->session, &history);
    for (size_t i = 0; i < q->n_bias; i++) logits[q->bias[i].id] += q->bias[i].bias;
    if (s->constraint) PL_TRY(pl_constraint_apply(s->constraint, logits, &s->ended, err));
    if (s->ended) return PLEACH_OK;
    return pleach_sample(s->sampler, logits, vocab, history, n, &s->id, err);
}

static void choose_with_logprobs(pl_sequence *s, const float *logits)
{
    size_t vocab = s->session->model->transformer->config->vocab_size;
    size_t n = s->request->asked.top_logprobs;
    memcpy(s->row, logits, vocab * sizeof *logits);
    if (choose(s, s->row, &s->error) != PLEACH_OK || s->ended) return;
    pl_distribution d = pl_distribution_of(logits, vocab);
    s->logprob = (float)pl_log_probability(&d, logits[s->id]);
    pl_logprobs_top(logits, vocab, PL_MIN(n, vocab), s->top);
    pl_logprobs_normalise(&d, PL_MIN(n, vocab), s->top);
}

void pl_answer_choose(pl_sequence *s, float *logits, int32_t best)
{
    s->error.code = PLEACH_OK;
    s->id = best;
    if (!logits) {
        if (best < 0)
            pl_fail(&s->error, PLEACH_ERR_DATA, "the logits hold NaN or no finite number");
    } else if (s->row) {
        choose_with_logprobs(s, logits);
    } else {
        pleach_status status = choose(s, logits, &s->error);
        (void)status; /* it is in the error */
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Tells the end of answer `index` and counts it. */
static void tell_end(pleach_batch *b, pl_request *r, size_t index, bool had_place,
                     size_t new_tokens, pleach_finish finish, const pleach_error *why)
{
    double now = pl_seconds();
    bool failed = why && why->code != PLEACH_OK;
    pleach_answer_end e = {.answer = index,
                           .last = ++r->ended == r->asked.answers,
                           .finish = finish,
                           .status = failed ? why->code : PLEACH_OK,
                           .message = failed ? why->message : NULL,
                           .prompt_tokens = r->asked.n_prompt,
                           .cached_tokens = r->cached,
                           .new_tokens = new_tokens,
                           .queue_seconds = (r->started ? r->started : now) - r->submitted,
                           .embedding = failed || finish == PLEACH_FINISH_CANCELLED ? NULL
                                                                                    : r->last};
    if (r->started) e.prompt_seconds = (r->prompted ? r->prompted : now) - r->started;
    if (r->prompted) e.generation_seconds = now - r->prompted;
    if (e.last) b->sums.requests++;
    b->ended = true;
    pl_batch_publish_end(b, had_place);
    if (r->asked.on_end) r->asked.on_end(r->asked.user, &e);
}

static void close_sequence(pl_sequence *s)
{
    pleach_session_close(s->session);
    pleach_sampler_close(s->sampler);
    pl_constraint_close(s->constraint);
    pl_free(s->row);
    pl_free(s);
}

void pl_answer_end(pleach_batch *b, pl_sequence *s, pleach_finish finish, const pleach_error *why)
{
    pl_request *r = s->request;
    if (!why || why->code == PLEACH_OK) {
        pl_kept_add(&b->kept, s->session);
        s->session = NULL;
    }
    tell_end(b, r, s->index, true, s->new_tokens, finish, why);
    close_sequence(s);
    if (r->ended == r->asked.answers) pl_batch_forget(b, r);
}

void pl_request_end_rest(pleach_batch *b, pl_request *r, pleach_finish finish,
                         const pleach_error *why)
{
    if (r->session && (!why || why->code == PLEACH_OK)) {
        pl_kept_add(&b->kept, r->session);
        r->session = NULL;
    }
    while (r->begun < r->asked.answers) tell_end(b, r, r->begun++, false, 0, finish, why);
    if (r->ended == r->asked.answers) pl_batch_forget(b, r);
}

/* ---- handing over ---------------------------------------------------------------------------- */

static bool on_token(const pl_sequence *s)
{
    const pleach_request *q = &s->request->asked;
    size_t vocab = s->session->model->transformer->config->vocab_size;
    pleach_token t = {.answer = s->index, .position = s->new_tokens, .id = s->id};
    if (q->logprobs) {
        t.logprob = s->logprob;
        t.top = s->top;
        t.n_top = PL_MIN(q->top_logprobs, vocab);
    }
    return !q->on_token || q->on_token(q->user, &t) == 0;
}

bool pl_answer_deliver(pleach_batch *b, pl_sequence *s)
{
    const pleach_generation *g = &s->request->asked.generation;
    pleach_finish finish;
    if (s->error.code != PLEACH_OK) {
        pl_answer_end(b, s, PLEACH_FINISH_CANCELLED, &s->error);
        return false;
    }
    if (s->ended || (!g->ignore_end && pl_model_is_end(b->model, s->id))) {
        finish = PLEACH_FINISH_END;
    } else {
        if (s->constraint) pl_constraint_take(s->constraint, s->id);
        bool goes_on = on_token(s);
        b->sums.new_tokens++;
        s->new_tokens++;
        if (goes_on && s->new_tokens < s->most) return true;
        finish = goes_on ? PLEACH_FINISH_LENGTH : PLEACH_FINISH_CANCELLED;
    }
    pl_answer_end(b, s, finish, NULL);
    return false;
}

/* ---- the beginning --------------------------------------------------------------------------- */

/* The last answer takes the prompt's session, those before it a copy. */
static pleach_status take_session(pl_request *r, pl_sequence *s, pleach_error *err)
{
    if (r->begun < r->asked.answers)
        return pl_session_branch(r->session, pleach_session_position(r->session), &s->session, err);
    s->session = r->session;
    r->session = NULL;
    return PLEACH_OK;
}

static pleach_status open_parts(pleach_batch *b, pl_sequence *s, pleach_error *err)
{
    const pleach_request *q = &s->request->asked;
    pleach_sampling sampling = q->generation.sampling;
    sampling.seed = seed_of(sampling.seed, s->index);
    PL_TRY(pleach_sampler_open(&sampling, &s->sampler, err));
    if (s->request->grammar)
        PL_TRY(pl_constraint_open(b->model, s->request->grammar, &s->constraint, err));
    if (q->logprobs) s->row = pl_alloc(b->vocab, sizeof *s->row);
    if (q->logprobs && !s->row) return pl_fail_memory(err, "logits", b->vocab * sizeof *s->row);
    pleach_status status;
    do {
        status = take_session(s->request, s, err);
    } while (status == PLEACH_ERR_MEMORY && pl_kept_drop(&b->kept));
    return status;
}

static pleach_status open_sequence(pleach_batch *b, pl_request *r, pl_sequence **out,
                                   pleach_error *err)
{
    pl_sequence *s = *out = pl_calloc(1, sizeof *s);
    if (!s) return pl_fail_memory(err, "answer", sizeof *s);
    size_t room = b->root->context - r->asked.n_prompt, most = r->asked.generation.max_tokens;
    s->request = r;
    s->index = r->begun++;
    s->most = pl_request_no_tokens(r) ? 0 : most ? PL_MIN(most, room) : room;
    pleach_status status = open_parts(b, s, err);
    if (status != PLEACH_OK) {
        close_sequence(s);
        *out = NULL;
        r->begun--;
    }
    return status;
}

void pl_answer_begin(pleach_batch *b, pl_request *r, float *logits, int32_t best)
{
    pl_sequence *s;
    pleach_error err = {0};
    if (open_sequence(b, r, &s, &err) != PLEACH_OK) {
        pl_request_end_rest(b, r, PLEACH_FINISH_CANCELLED, &err);
        return;
    }
    if (s->most == 0) {
        pl_answer_end(b, s, PLEACH_FINISH_LENGTH, NULL);
        return;
    }
    pl_answer_choose(s, logits, best);
    if (pl_answer_deliver(b, s)) b->running[b->n_running++] = s;
}
