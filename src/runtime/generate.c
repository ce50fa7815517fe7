/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation: bring the session to the prompt, then sample, show and append until something ends
 * it. */
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "constraint.h"
#include "session.h"
#include "text/utf8_stream.h"

void pleach_generation_defaults(pleach_generation *g)
{
    *g = (pleach_generation){0};
    pleach_sampling_defaults(&g->sampling);
}

enum { PIECE = 64 }; /* tokens of a prompt between two questions whether to go on */

typedef struct generation {
    pleach_session *session;
    const pleach_generation *set;
    pleach_sampler *sampler;
    pl_grammar *grammar;
    pl_constraint *constraint; /* NULL: none */
    float *logits; /* [vocab]; NULL: the backend finds the likeliest id */
    int32_t best;
    pl_utf8_stream stream;
    pleach_text_fn *on_text;
    void *user;
    bool stopped; /* the callback said so */
} generation;

/* Shows what is whole, and asks whether to go on even when that is nothing. */
static void show(generation *g)
{
    pl_utf8_stream *t = &g->stream;
    if (!g->on_text || g->stopped) return;
    g->stopped = g->on_text(g->user, t->ready ? t->text : "", t->ready) != 0;
    pl_utf8_shift(t);
}

/* wanted: what to choose the next id from. */
static pleach_status feed_ids(generation *g, const int32_t *ids, size_t n, bool wanted,
                              pleach_error *err)
{
    if (wanted && !g->logits) return pl_session_feed_best(g->session, ids, n, &g->best, err);
    return pleach_session_feed(g->session, ids, n, wanted ? g->logits : NULL, err);
}

/* *ended: a grammar's text is whole, and nothing may follow. */
static pleach_status next_id(generation *g, int32_t *id, bool *ended, pleach_error *err)
{
    const int32_t *history;
    size_t n = pleach_session_ids(g->session, &history);
    size_t vocab = g->session->model->transformer->config->vocab_size;
    if (g->constraint) PL_TRY(pl_constraint_apply(g->constraint, g->logits, ended, err));
    if (*ended) return PLEACH_OK;
    if (g->logits) return pleach_sample(g->sampler, g->logits, vocab, history, n, id, err);
    *id = g->best;
    PL_FAIL_IF(*id < 0, err, PLEACH_ERR_DATA, "the logits hold NaN or no finite number");
    return PLEACH_OK;
}

/* Feeds what the session does not hold already. The last id is always computed, for its logits. */
static pleach_status feed_prompt(generation *g, const int32_t *prompt, size_t n, size_t *cached,
                                 pleach_error *err)
{
    pleach_session *s = g->session;
    size_t held = pleach_session_position(s), same = 0;
    PL_FAIL_IF(n == 0, err, PLEACH_ERR_ARGUMENT, "expected a prompt of at least one token");
    PL_FAIL_IF(n > s->context, err, PLEACH_ERR_LIMIT,
               "the prompt has %zu tokens and the context holds %zu", n, s->context);
    while (same < held && same < n - 1 && s->ids[same] == prompt[same]) same++;
    same = pl_cache_reach(s->cache, same); /* what was dropped is computed again below, in pieces */
    PL_TRY(pleach_session_truncate(s, same, err));
    *cached = same;
    size_t most = g->on_text ? PIECE : n;
    for (size_t done = same; done < n && !g->stopped;) {
        size_t piece = PL_MIN(n - done, most);
        bool last = done + piece == n;
        PL_TRY(feed_ids(g, prompt + done, piece, last, err));
        done += piece;
        if (!last) show(g);
    }
    return PLEACH_OK;
}

static pleach_status show_token(generation *g, int32_t id, pleach_error *err)
{
    const pl_tokenizer *t = g->session->model->tokenizer;
    if (t && !pl_tokenizer_is_special(t, id)) {
        size_t size;
        const char *piece = pl_tokenizer_piece(t, id, &size);
        PL_TRY(pl_utf8_push(&g->stream, piece, size, err));
    }
    show(g);
    return PLEACH_OK;
}

static pleach_status show_rest(generation *g, pleach_error *err)
{
    PL_TRY(pl_utf8_finish(&g->stream, err));
    if (g->stream.ready) show(g);
    return PLEACH_OK;
}

static pleach_status generate_tokens(generation *g, pleach_generation_stats *stats,
                                     pleach_error *err)
{
    pleach_session *s = g->session;
    const pleach_model *m = s->model;
    size_t room = s->context - pleach_session_position(s);
    size_t most = g->set->max_tokens ? PL_MIN(g->set->max_tokens, room) : room;
    stats->finish = PLEACH_FINISH_LENGTH;
    while (stats->new_tokens < most && !g->stopped) {
        int32_t id = -1;
        bool ended = false;
        PL_TRY(next_id(g, &id, &ended, err));
        if (ended || (!g->set->ignore_end && pl_model_is_end(m, id))) {
            stats->finish = PLEACH_FINISH_END;
            break;
        }
        if (g->constraint) pl_constraint_take(g->constraint, id);
        PL_TRY(show_token(g, id, err));
        bool last = ++stats->new_tokens == most || g->stopped;
        PL_TRY(feed_ids(g, &id, 1, !last, err));
    }
    PL_TRY(show_rest(g, err));
    if (g->stopped) stats->finish = PLEACH_FINISH_CANCELLED;
    return PLEACH_OK;
}

static pleach_status run(generation *g, const int32_t *prompt, size_t n_prompt,
                         pleach_generation_stats *stats, pleach_error *err)
{
    size_t vocab = g->session->model->transformer->config->vocab_size;
    PL_TRY(pleach_sampler_open(&g->set->sampling, &g->sampler, err));
    bool greedy = pl_sampling_is_greedy(&g->set->sampling);
    PL_TRY(pl_constraint_grammar(g->set->grammar, g->set->json_schema, &g->grammar, err));
    if (g->grammar) PL_TRY(pl_constraint_open(g->session->model, g->grammar, &g->constraint, err));
    if (!greedy || g->constraint || !g->session->model->backend->finds_best) {
        g->logits = pl_alloc(vocab, sizeof *g->logits);
        if (!g->logits) return pl_fail_memory(err, "logits", vocab * sizeof *g->logits);
    }
    double start = pl_seconds();
    PL_TRY(feed_prompt(g, prompt, n_prompt, &stats->cached_tokens, err));
    stats->prompt_tokens = pleach_session_position(g->session);
    double middle = pl_seconds();
    stats->prompt_seconds = middle - start;
    pleach_status status = generate_tokens(g, stats, err);
    stats->generation_seconds = pl_seconds() - middle;
    return status;
}

pleach_status pleach_generate(pleach_session *s, const int32_t *prompt, size_t n_prompt,
                              const pleach_generation *settings, pleach_text_fn *on_text,
                              void *user, pleach_generation_stats *stats, pleach_error *err)
{
    pleach_generation defaults;
    pleach_generation_defaults(&defaults);
    generation g = {.session = s, .set = settings ? settings : &defaults, .on_text = on_text,
                    .user = user};
    pleach_generation_stats result = {0};
    pleach_status status = run(&g, prompt, n_prompt, &result, err);
    pleach_sampler_close(g.sampler);
    pl_constraint_close(g.constraint);
    pl_grammar_close(g.grammar);
    pl_free(g.logits);
    pl_free(g.stream.text);
    if (stats) *stats = result;
    return status;
}
