/* SPDX-License-Identifier: Apache-2.0
 *
 * From logits to the next token. All filters keep a prefix of the tokens sorted by logit, so the
 * sorted order is made only as far as it is needed, by popping a heap. */
#include <math.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"
#include "session.h"

typedef struct candidate {
    float logit;
    int32_t id;
    double weight; /* exp((logit - best) / temperature) */
} candidate;

typedef struct given {
    int32_t id;
    uint32_t times;
} given;

struct pleach_sampler {
    pleach_sampling set;
    uint64_t state;
    candidate *heap; /* [vocab] */
    size_t heap_capacity;
    uint8_t *seen; /* [vocab] all zero between calls */
    size_t seen_capacity;
    /* Ids given so far and how often; kept where presence or frequency is penalised. */
    given *given;
    size_t n_given, given_capacity;
};

void pleach_sampling_defaults(pleach_sampling *s)
{
    *s = (pleach_sampling){.top_p = 1, .repetition_penalty = 1, .repetition_window = -1};
}

static pleach_status check_settings(const pleach_sampling *s, pleach_error *err)
{
    /* Written so that NaN fails every test. */
    PL_FAIL_IF(!(s->temperature >= 0 && isfinite(s->temperature)), err, PLEACH_ERR_ARGUMENT,
               "temperature %g: expected a finite number from 0 up", (double)s->temperature);
    PL_FAIL_IF(!(s->top_p >= 0 && s->top_p <= 1), err, PLEACH_ERR_ARGUMENT,
               "top-p %g: expected 0 to 1", (double)s->top_p);
    PL_FAIL_IF(!(s->min_p >= 0 && s->min_p <= 1), err, PLEACH_ERR_ARGUMENT,
               "min-p %g: expected 0 to 1", (double)s->min_p);
    PL_FAIL_IF(!(s->repetition_penalty > 0 && isfinite(s->repetition_penalty)), err,
               PLEACH_ERR_ARGUMENT, "repetition penalty %g: expected a finite number above 0",
               (double)s->repetition_penalty);
    PL_FAIL_IF(s->repetition_window < -1, err, PLEACH_ERR_ARGUMENT,
               "repetition window %d: expected a number of tokens, or -1 for all",
               (int)s->repetition_window);
    PL_FAIL_IF(!(fabsf(s->presence_penalty) <= 2), err, PLEACH_ERR_ARGUMENT,
               "presence penalty %g: expected -2 to 2", (double)s->presence_penalty);
    PL_FAIL_IF(!(fabsf(s->frequency_penalty) <= 2), err, PLEACH_ERR_ARGUMENT,
               "frequency penalty %g: expected -2 to 2", (double)s->frequency_penalty);
    return PLEACH_OK;
}

bool pl_sampling_is_greedy(const pleach_sampling *s)
{
    return s->temperature == 0 && s->repetition_penalty == 1 && s->presence_penalty == 0 &&
           s->frequency_penalty == 0;
}

pleach_status pleach_sampler_open(const pleach_sampling *settings, pleach_sampler **out,
                                  pleach_error *err)
{
    *out = NULL;
    PL_TRY(check_settings(settings, err));
    pleach_sampler *s = pl_calloc(1, sizeof *s);
    if (!s) return pl_fail_memory(err, "sampler", sizeof *s);
    s->set = *settings;
    s->state = settings->seed;
    *out = s;
    return PLEACH_OK;
}

void pleach_sampler_close(pleach_sampler *s)
{
    if (!s) return;
    pl_free(s->heap);
    pl_free(s->seen);
    pl_free(s->given);
    pl_free(s);
}

static pleach_status reserve(pleach_sampler *s, size_t vocab, pleach_error *err)
{
    if (pl_grow((void **)&s->given, &s->given_capacity, s->n_given + 1, sizeof *s->given))
        return pl_fail_memory(err, "sampler", (s->n_given + 1) * sizeof *s->given);
    if (s->set.temperature != 0 &&
        pl_grow((void **)&s->heap, &s->heap_capacity, vocab, sizeof *s->heap))
        return pl_fail_memory(err, "sampler", vocab * sizeof *s->heap);
    if (vocab > s->seen_capacity) {
        pl_free(s->seen);
        s->seen = pl_calloc(vocab, 1);
        s->seen_capacity = s->seen ? vocab : 0;
        if (!s->seen) return pl_fail_memory(err, "sampler", vocab);
    }
    return PLEACH_OK;
}

/* Once for each distinct id of the window: positive logits are divided, others multiplied. */
static void penalise(pleach_sampler *s, float *logits, size_t vocab, const int32_t *history,
                     size_t n)
{
    float penalty = s->set.repetition_penalty;
    size_t window = s->set.repetition_window < 0 ? n : (size_t)s->set.repetition_window;
    if (penalty == 1.0f || n == 0) return;
    const int32_t *first = history + (n > window ? n - window : 0), *end = history + n;
    for (const int32_t *id = first; id < end; id++) {
        if (*id < 0 || (size_t)*id >= vocab || s->seen[*id]) continue;
        s->seen[*id] = 1;
        logits[*id] = logits[*id] > 0 ? logits[*id] / penalty : logits[*id] * penalty;
    }
    for (const int32_t *id = first; id < end; id++)
        if (*id >= 0 && (size_t)*id < vocab) s->seen[*id] = 0;
}

static bool counts(const pleach_sampler *s)
{
    return s->set.presence_penalty != 0 || s->set.frequency_penalty != 0;
}

/* logit -= presence + times * frequency, as OpenAI's API reference has it. */
static void penalise_given(const pleach_sampler *s, float *logits, size_t vocab)
{
    for (const given *g = s->given; g < s->given + s->n_given; g++)
        if ((size_t)g->id < vocab)
            logits[g->id] -=
                s->set.presence_penalty + (float)g->times * s->set.frequency_penalty;
}

/* Room is reserved. */
static void count(pleach_sampler *s, int32_t id)
{
    size_t i = 0;
    while (i < s->n_given && s->given[i].id != id) i++;
    if (i == s->n_given) s->given[s->n_given++] = (given){.id = id};
    s->given[i].times++;
}

/* The first of the largest logits, or -1 when one is NaN or none is finite. */
static int32_t argmax(const float *logits, size_t vocab)
{
    size_t best = 0;
    bool bad = false;
    for (size_t i = 0; i < vocab; i++) {
        bad = bad || isnan(logits[i]);
        if (logits[i] > logits[best]) best = i;
    }
    return bad || !isfinite(logits[best]) ? -1 : (int32_t)best;
}

/* ---- the sorted prefix ----------------------------------------------------------------------- */

static bool before(const candidate *a, const candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void sift_down(candidate *heap, size_t n, size_t i)
{
    candidate moving = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &moving)) break;
        heap[i] = heap[child];
    }
    heap[i] = moving;
}

/* Sorts the best `most` candidates to the array's end, best last; stops early once their weights
 * reach `mass` or the next weighs less than `least`. Returns how many were sorted, at least one. */
static size_t sort_prefix(candidate *c, size_t n, size_t most, double mass, double least)
{
    double covered = 0;
    size_t sorted = 0, left = n;
    for (size_t i = n / 2; i-- > 0;) sift_down(c, n, i);
    while (sorted < most && left > 0) {
        candidate best = c[0];
        if (sorted > 0 && (covered >= mass || best.weight < least)) break;
        c[0] = c[--left];
        sift_down(c, left, 0);
        c[left] = best;
        covered += best.weight;
        sorted++;
    }
    return sorted;
}

/* How many of the n sorted candidates, best last, it takes to reach `share` of their weight. */
static size_t prefix_of_share(const candidate *end, size_t n, double share)
{
    double total = 0, covered = 0;
    for (size_t i = 1; i <= n; i++) total += end[-(ptrdiff_t)i].weight;
    size_t kept = 0;
    while (kept < n && (kept == 0 || covered < share * total))
        covered += end[-(ptrdiff_t)++kept].weight;
    return kept;
}

static int32_t draw(pleach_sampler *s, const candidate *c, size_t n)
{
    double total = 0, covered = 0;
    for (size_t i = 0; i < n; i++) total += c[i].weight;
    double target = pl_random_unit(&s->state) * total;
    for (size_t i = 0; i < n; i++) {
        covered += c[i].weight;
        if (covered > target) return c[i].id;
    }
    while (n > 1 && c[n - 1].weight == 0) n--; /* rounding left the target at the very end */
    return c[n - 1].id;
}

static int32_t sample_filtered(pleach_sampler *s, const float *logits, size_t vocab, int32_t best)
{
    const pleach_sampling *set = &s->set;
    candidate *c = s->heap;
    double total = 0;
    for (size_t i = 0; i < vocab; i++) {
        double w = exp(((double)logits[i] - (double)logits[best]) / (double)set->temperature);
        c[i] = (candidate){logits[i], (int32_t)i, w};
        total += w;
    }
    bool top_k = set->top_k > 0 && (size_t)set->top_k < vocab, top_p = set->top_p < 1;
    if (!top_k && !top_p && set->min_p <= 0) return draw(s, c, vocab);
    /* The best weighs 1, so min-p is a least weight. top-p counts shares of what top-k left: with
     * both, all of top-k's mass has to be known first. */
    double mass = top_p && !top_k ? (double)set->top_p * total : INFINITY;
    double least = top_p && top_k ? 0 : (double)set->min_p;
    const candidate *end = c + vocab;
    size_t n = sort_prefix(c, vocab, top_k ? (size_t)set->top_k : vocab, mass, least);
    if (top_p && top_k) n = prefix_of_share(end, n, (double)set->top_p);
    while (n > 1 && end[-(ptrdiff_t)n].weight < (double)set->min_p) n--;
    return draw(s, end - n, n);
}

pleach_status pleach_sample(pleach_sampler *s, float *logits, size_t vocab, const int32_t *history,
                            size_t n_history, int32_t *id, pleach_error *err)
{
    PL_FAIL_IF(vocab == 0 || vocab > INT32_MAX, err, PLEACH_ERR_ARGUMENT,
               "%zu logits: expected 1 to %d", vocab, INT32_MAX);
    PL_TRY(reserve(s, vocab, err));
    penalise(s, logits, vocab, history, n_history);
    penalise_given(s, logits, vocab);
    int32_t best = argmax(logits, vocab);
    PL_FAIL_IF(best < 0, err, PLEACH_ERR_DATA, "the logits hold NaN or no finite number");
    *id = s->set.temperature == 0 ? best : sample_filtered(s, logits, vocab, best);
    if (counts(s)) count(s, *id);
    return PLEACH_OK;
}
