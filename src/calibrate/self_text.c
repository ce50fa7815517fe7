/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequences that the model writes side by side.
 *
 * Letters: V vocabulary. */
#include "self_text.h"

#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "text.h"
#include "text/chat.h"

/* A model that was made to talk ends a text that is no talk at once: not before so many tokens. */
enum { MOST_PARALLEL = 64, LEAST_TEXT = 128 };
#define LEAST_SHARE 0.05f /* of the best token's probability (min-p) */
#define CACHE_BYTES ((uint64_t)1 << 30) /* where no limit is set */

/* How texts begin and go on. */
typedef struct opening {
    pl_ids question;  /* what comes before a question; none: no chat format */
    pl_ids answer;    /* what comes between a question and its answer */
    int32_t bos;      /* -1: none */
    int32_t end[PL_MAX_END_TOKENS + 1];
    size_t n_end;
    size_t ordinary;  /* ids below it may begin a text */
} opening;

typedef enum part { PART_TEXT, PART_QUESTION, PART_ANSWER } part;

/* A sequence in work. */
typedef struct sequence {
    pl_cache *cache;
    uint64_t random;
    bool chat;
    part part;
    const pl_ids *given; /* ids to be taken before the model goes on, from `at` */
    size_t at;
    int32_t first;       /* of a text: BOS or a random token; -1: taken */
    bool drawn;          /* the last token was the model's choice */
    int32_t *ids;        /* [length] */
    size_t length, n, begun; /* begun: where the text in work begins */
} sequence;

/* ---- openings ---------------------------------------------------------------------------------- */

static pleach_status encode_question(const pl_tokenizer *t, const char *text, pl_ids *out,
                                     pleach_error *err)
{
    const pleach_message message = {"user", text};
    return pl_chat_encode(t, &message, 1, out, err);
}

static bool is_end(const opening *o, int32_t id)
{
    for (size_t i = 0; i < o->n_end; i++)
        if (o->end[i] == id) return true;
    return false;
}

static void add_end(opening *o, int32_t id, uint32_t vocabulary)
{
    if (id >= 0 && (uint32_t)id < vocabulary && !is_end(o, id)) o->end[o->n_end++] = id;
}

/* What two questions have in common is the format's own. The end token after a question is left to
 * the model. */
static pleach_status split_format(const pl_tokenizer *t, opening *o, pleach_error *err)
{
    pl_ids a = {0}, b = {0};
    pleach_status status = encode_question(t, "A", &a, err);
    if (status == PLEACH_OK) status = encode_question(t, "7", &b, err);
    size_t before = 0, after = 0, shorter = PL_MIN(a.n, b.n);
    while (before < shorter && a.ids[before] == b.ids[before]) before++;
    while (after < shorter - before && a.ids[a.n - 1 - after] == b.ids[b.n - 1 - after]) after++;
    if (after > 0 && is_end(o, a.ids[a.n - after])) after--;
    if (status == PLEACH_OK) status = pl_ids_append(&o->question, a.ids, before, err);
    if (status == PLEACH_OK) status = pl_ids_append(&o->answer, a.ids + a.n - after, after, err);
    pl_free(a.ids);
    pl_free(b.ids);
    return status;
}

static pleach_status find_opening(const pl_transformer *t, const pl_tokenizer *tokenizer,
                                  opening *o, pleach_error *err)
{
    const pl_config *g = t->config;
    int32_t eos = pl_tokenizer_eos(tokenizer);
    for (uint32_t i = 0; i < g->n_end_tokens; i++) add_end(o, g->end_tokens[i], g->vocab_size);
    add_end(o, eos, g->vocab_size);
    o->ordinary = PL_MIN(pl_tokenizer_size(tokenizer), (size_t)g->vocab_size);
    PL_TRY(pl_calibration_bos(tokenizer, &o->bos, err));
    if (!pl_tokenizer_chat_template(tokenizer)) return PLEACH_OK;
    /* A template that refuses a plain question is as good as none. */
    pleach_status status = split_format(tokenizer, o, err);
    return status == PLEACH_ERR_MEMORY ? status : PLEACH_OK;
}

/* ---- one sequence ------------------------------------------------------------------------------ */

/* A token at random, none that is special if some others are tried. */
static int32_t random_token(const pl_tokenizer *t, const opening *o, uint64_t *random)
{
    int32_t id = 0;
    for (int tries = 0; tries < 100; tries++) {
        id = (int32_t)(pl_random_next(random) % o->ordinary);
        if (!pl_tokenizer_is_special(t, id)) break;
    }
    return id;
}

static void begin_text(const pl_tokenizer *t, const opening *o, sequence *s)
{
    s->part = s->chat ? PART_QUESTION : PART_TEXT;
    s->given = s->chat ? &o->question : NULL;
    s->at = 0;
    s->begun = s->n;
    s->first = s->chat ? -1 : o->bos >= 0 ? o->bos : random_token(t, o, &s->random);
}

/* From probabilities [V], of those that are not far below the best. Small models wander off for
 * good once they have drawn what they hardly believe in. */
static int32_t draw(const float *probabilities, size_t V, uint64_t *random)
{
    float best = 0;
    double total = 0;
    size_t last = 0;
    for (size_t i = 0; i < V; i++) best = PL_MAX(best, probabilities[i]);
    for (size_t i = 0; i < V; i++)
        if (probabilities[i] >= LEAST_SHARE * best) total += (double)probabilities[i];
    double left = pl_random_unit(random) * total;
    for (size_t i = 0; i < V && left >= 0; i++) {
        if (!(probabilities[i] >= LEAST_SHARE * best)) continue;
        last = i;
        left -= (double)probabilities[i];
    }
    return (int32_t)last;
}

/* The next token of a sequence; logits become probabilities. */
static int32_t next_token(const pl_compute *c, const opening *o, sequence *s, float *logits,
                          size_t V)
{
    int32_t first = s->first;
    s->first = -1;
    s->drawn = false;
    if (first >= 0) return first;
    if (s->given && s->at < s->given->n) return s->given->ids[s->at++];
    s->drawn = true;
    c->kernels.softmax(logits, V);
    for (size_t i = 0; s->part == PART_TEXT && s->n < s->begun + LEAST_TEXT && i < o->n_end; i++)
        logits[o->end[i]] = 0;
    return draw(logits, V, &s->random);
}

/* After a token that the model has chosen to end with. */
static void go_on(const pl_tokenizer *t, const opening *o, sequence *s)
{
    if (s->part != PART_QUESTION) {
        begin_text(t, o, s);
        return;
    }
    s->part = PART_ANSWER;
    s->given = &o->answer;
    s->at = 0;
}

/* ---- sequences side by side -------------------------------------------------------------------- */

typedef struct writer {
    const pl_transformer *t;
    const pl_compute *c;
    const pl_tokenizer *tokenizer;
    const pl_self_text_settings *set;
    opening opening;
    sequence sequences[MOST_PARALLEL];
    size_t n;
    pl_workspace *workspace;
    float *logits; /* [parallel][V] */
    size_t done;   /* tokens */
} writer;

static pleach_status open_sequence(writer *w, sequence *s, size_t number, int32_t *ids,
                                   size_t length, pleach_error *err)
{
    const pl_config *g = w->t->config;
    *s = (sequence){.random = pl_mix64(w->set->seed) + pl_mix64(number + 1), .ids = ids,
                    .length = length, .chat = w->opening.question.n > 0 && number % 2 == 0};
    begin_text(w->tokenizer, &w->opening, s);
    pl_cache_settings set = {.n_layers = g->n_layers, .n_kv_heads = g->n_kv_heads,
                             .head_dim = g->head_dim, .capacity = length};
    return pl_cache_open(&set, &s->cache, err);
}

/* Drops the sequences that are done; a shorter one can only be the last. */
static void drop_finished(writer *w)
{
    while (w->n > 0 && w->sequences[w->n - 1].n == w->sequences[w->n - 1].length)
        pl_cache_close(w->sequences[--w->n].cache);
}

typedef struct tokens_job {
    writer *w;
    int32_t *ids; /* of each sequence */
} tokens_job;

static void draw_token(void *job, size_t i, int thread)
{
    const tokens_job *j = job;
    writer *w = j->w;
    size_t V = w->t->config->vocab_size;
    (void)thread;
    j->ids[i] = next_token(w->c, &w->opening, &w->sequences[i], w->logits + i * V, V);
}

static pleach_status step(writer *w, pleach_error *err)
{
    int32_t ids[MOST_PARALLEL];
    pl_cache *caches[MOST_PARALLEL];
    pl_pool_run(w->c->pool, w->n, draw_token, &(tokens_job){w, ids});
    for (size_t i = 0; i < w->n; i++) {
        sequence *s = &w->sequences[i];
        s->ids[s->n++] = ids[i];
        caches[i] = s->cache;
        if (s->drawn && is_end(&w->opening, ids[i])) go_on(w->tokenizer, &w->opening, s);
        PL_TRY(pl_cache_reserve(s->cache, 1, err));
    }
    PL_TRY(pl_transformer_step(w->c, w->workspace, caches, ids, w->n, w->logits, err));
    w->done += w->n;
    PL_FAIL_IF(w->set->progress &&
                   w->set->progress(w->set->user, (double)w->done / (double)w->set->tokens) != 0,
               err, PLEACH_ERR_CANCELLED, "stopped while the model wrote its calibration text");
    return PLEACH_OK;
}

/* The sequences from `first` on, as many as are written at once. */
static pleach_status write_group(writer *w, size_t first, int32_t *ids, pleach_error *err)
{
    const pl_self_text_settings *set = w->set;
    size_t all = (set->tokens + set->chunk - 1) / set->chunk;
    for (size_t i = first; i < PL_MIN(all, first + set->parallel); i++) {
        size_t length = PL_MIN(set->chunk, set->tokens - i * set->chunk);
        PL_TRY(open_sequence(w, &w->sequences[w->n++], i, ids + i * set->chunk, length, err));
    }
    while (w->n > 0) {
        PL_TRY(step(w, err));
        drop_finished(w);
    }
    return PLEACH_OK;
}

static pleach_status write_all(writer *w, pl_ids *out, pleach_error *err)
{
    const pl_self_text_settings *set = w->set;
    pleach_status status = PLEACH_OK;
    PL_TRY(find_opening(w->t, w->tokenizer, &w->opening, err));
    PL_TRY(pl_workspace_open(w->t, w->c, set->parallel, &w->workspace, err));
    w->logits = pl_calloc(set->parallel, w->t->config->vocab_size * sizeof(float));
    int32_t *ids = pl_alloc(set->tokens, sizeof *ids);
    if (!w->logits || !ids)
        status = pl_fail_memory(err, "calibration text",
                                pl_self_text_memory(w->t->config, set->chunk, set->parallel));
    for (size_t i = 0; status == PLEACH_OK && i * set->chunk < set->tokens; i += set->parallel)
        status = write_group(w, i, ids, err);
    if (status == PLEACH_OK) status = pl_ids_append(out, ids, set->tokens, err);
    pl_free(ids);
    return status;
}

pleach_status pl_self_text(const pl_transformer *t, const pl_compute *c,
                           const pl_tokenizer *tokenizer, const pl_self_text_settings *settings,
                           pl_ids *out, pleach_error *err)
{
    writer w = {.t = t, .c = c, .tokenizer = tokenizer, .set = settings};
    pleach_status status = write_all(&w, out, err);
    while (w.n > 0) pl_cache_close(w.sequences[--w.n].cache);
    pl_workspace_close(w.workspace);
    pl_free(w.logits);
    pl_free(w.opening.question.ids);
    pl_free(w.opening.answer.ids);
    return status;
}

/* ---- memory ------------------------------------------------------------------------------------ */

/* Cache, activations and logits of one sequence. */
static uint64_t sequence_memory(const pl_config *g, size_t chunk)
{
    uint64_t D = g->head_dim, kv = 2 * (uint64_t)g->n_kv_heads * D, pages = chunk + PL_CACHE_PAGE;
    uint64_t row = 8 * (uint64_t)g->hidden_size + 4 * g->n_heads * D + 2 * kv +
                   6 * (uint64_t)g->intermediate_size + g->vocab_size;
    return (kv * g->n_layers * pages + row) * sizeof(float);
}

size_t pl_self_text_parallel(const pl_config *config, size_t chunk, uint64_t limit)
{
    uint64_t n = (limit ? limit : CACHE_BYTES) / sequence_memory(config, chunk);
    return n < 1 ? 1 : n > MOST_PARALLEL ? MOST_PARALLEL : (size_t)n;
}

uint64_t pl_self_text_memory(const pl_config *config, size_t chunk, size_t parallel)
{
    return parallel * sequence_memory(config, chunk);
}
