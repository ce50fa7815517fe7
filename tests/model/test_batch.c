/* SPDX-License-Identifier: Apache-2.0
 *
 * Continuous batching: every answer is the one that its request would have alone. */
#include <sched.h>

#include "batch_clients.h"
#include "runtime/engine.h"
#include "text_model.h"

/* ---- same answers ---------------------------------------------------------------------------- */

enum { REQUESTS = 10, LONGEST = 300, SHARED = 200 };

/* Prompts of many lengths, most of which begin alike; every second is drawn from. */
static void make_requests(int32_t prompts[REQUESTS][LONGEST], pleach_request requests[REQUESTS])
{
    static const size_t lengths[REQUESTS] = {1, 230, 7, 201, 300, 64, 129, 240, 200, 65};
    for (size_t i = 0; i < REQUESTS; i++) {
        bool own = i == 2 || i == 5;
        for (size_t j = 0; j < lengths[i]; j++)
            prompts[i][j] = (int32_t)((own || j >= SHARED ? (j + 3) * (i + 5) : j * 11) % 251);
        requests[i] = request_of(prompts[i], lengths[i], 5 + 9 * (i % 4));
        if (i % 2) {
            requests[i].generation.sampling.temperature = 1.5f;
            requests[i].generation.sampling.top_p = 0.95f;
            requests[i].generation.sampling.seed = i;
        }
        if (i % 5 == 1) requests[i].generation.sampling.repetition_penalty = 1.3f;
        if (i % 5 == 2) requests[i].generation.sampling.frequency_penalty = 0.5f;
    }
}

/* All requests at once, twice; the second time much is kept. */
static void check_batch(pleach_batch *b, const pleach_request *requests, int32_t (*want)[MOST_IDS],
                        const size_t *n_want)
{
    client c[REQUESTS];
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < REQUESTS; i++) {
            pleach_request r = requests[i];
            client_open(&c[i], b);
            must(client_submit(&c[i], &r, &err));
        }
        for (size_t i = 0; i < REQUESTS; i++) {
            client_wait(&c[i]);
            const answer_log *a = &c[i].answers[0];
            assert_int_equal(a->end.status, PLEACH_OK);
            assert_int_equal(a->end.finish, PLEACH_FINISH_LENGTH);
            assert_int_equal(a->end.prompt_tokens, requests[i].n_prompt);
            assert_int_equal(a->end.new_tokens, a->n);
            assert_int_equal(a->n, n_want[i]);
            assert_memory_equal(a->ids, want[i], a->n * sizeof *a->ids);
            client_close(&c[i]);
        }
    }
}

static void check_model(const char *path, const char *kv, size_t recent, int threads)
{
    static const struct {
        size_t parallel, chunk;
        uint64_t kept;
    } ways[] = {{8, 128, 1 << 30}, {3, 50, 0}, {1, 7, 1 << 20}, {10, 1000, 1 << 18}};
    static int32_t prompts[REQUESTS][LONGEST], want[REQUESTS][MOST_IDS];
    size_t n_want[REQUESTS];
    pleach_request requests[REQUESTS];
    pleach_model *m = open_model(path, NULL, PLEACH_ARITH_INT16, threads);
    pleach_batch_settings set = batch_settings(kv, 1);
    set.session.kv_recent = recent;
    make_requests(prompts, requests);
    for (size_t i = 0; i < REQUESTS; i++)
        n_want[i] = lone_answer(m, &set.session, &requests[i], want[i]);
    for (size_t w = 0; w < PL_COUNT(ways); w++) {
        pleach_batch_info info;
        set.parallel = ways[w].parallel;
        set.chunk = ways[w].chunk;
        set.kept_bytes = ways[w].kept;
        pleach_batch *b = open_batch(m, &set);
        check_batch(b, requests, want, n_want);
        pleach_batch_get_info(b, &info);
        assert_true(info.kept_bytes <= set.kept_bytes);
        if (!set.kept_bytes) assert_int_equal(info.kept, 0);
        pleach_batch_close(b);
    }
    pleach_model_close(m);
}

static void answers_are_those_of_a_lone_request(void **state)
{
    (void)state;
    check_model(CHECKPOINTS "llama-tied", "f32", 128, 1);
    check_model(CHECKPOINTS "llama-tied", "f32", 128, 2);
    check_model(CHECKPOINTS "llama-packed", "bf16", 128, 3);
    check_model(CHECKPOINTS "qwen3-qknorm", "k8v3", 128, 4);
    check_model(CHECKPOINTS "llama-rope3", "k8v3", 64, 2);
    check_model(CHECKPOINTS "llama-packed", "k8v3", 0, 2);
}

static void answers_with_states_too(void **state)
{
    (void)state;
    check_model(CHECKPOINTS "qwen35-hybrid", "f32", 128, 2);
    check_model(CHECKPOINTS "qwen35-hybrid", "k8v3", 64, 3);
    check_model(CHECKPOINTS "qwen35-moe", "f32", 128, 2);
}

static void answers_with_windows_too(void **state)
{
    (void)state;
    check_model(CHECKPOINTS "mistral-swa", "f32", 128, 2);
    check_model(CHECKPOINTS "mistral-swa", "k8v3,1:bf16", 64, 2);
}

/* ---- what is kept ---------------------------------------------------------------------------- */

/* Runs a request to its end; the tokens of its prompt that were kept. */
static size_t cached_of(pleach_batch *b, const int32_t *prompt, size_t n)
{
    client c;
    pleach_request r = request_of(prompt, n, 40);
    client_open(&c, b);
    must(client_submit(&c, &r, &err));
    client_wait(&c);
    assert_int_equal(c.answers[0].end.status, PLEACH_OK);
    size_t cached = c.answers[0].end.cached_tokens;
    client_close(&c);
    return cached;
}

/* Three prompts that share some tokens, the last of them again. Where a cache gives up what a token
 * would see, the second request goes back to what there is and leaves a copy for the third. */
static void check_kept(const char *path, const char *kv, size_t shared, const size_t cached[4])
{
    pleach_model *m = open_model(path, NULL, PLEACH_ARITH_INT16, 2);
    pleach_batch_settings set = batch_settings(kv, 2);
    pleach_batch *b = open_batch(m, &set);
    int32_t ids[300];
    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < 300; j++)
            ids[j] = (int32_t)(j < shared ? j * 7 % 250 : j + PL_MIN(i, (size_t)2));
        assert_int_equal(cached_of(b, ids, 300), cached[i]);
    }
    pleach_batch_close(b);
    pleach_model_close(m);
}

static void beginnings_are_kept(void **state)
{
    (void)state;
    check_kept(CHECKPOINTS "llama-tied", "f32", 200, (const size_t[]){0, 200, 200, 299});
    check_kept(CHECKPOINTS "llama-rope3", "k8v3", 200, (const size_t[]){0, 128, 200, 299});
    check_kept(CHECKPOINTS "mistral-swa", "f32", 100, (const size_t[]){0, 0, 100, 299});
    /* A state goes back to borders alone, not by the one token that is always computed. */
    check_kept(CHECKPOINTS "qwen35-hybrid", "f32", 200, (const size_t[]){0, 192, 200, 256});
}

static void the_least_recently_used_go(void **state)
{
    (void)state;
    pleach_model *m = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_INT16, 2);
    pleach_batch_settings set = batch_settings("f32", 2);
    pleach_cache_info info;
    pleach_batch_info sums;
    int32_t ids[3][10];
    for (int i = 0; i < 30; i++) ids[i / 10][i % 10] = 1 + i / 10;
    pleach_session *s = open_session(m, "f32", 512);
    must(pleach_session_feed(s, ids[0], 10, NULL, &err));
    pleach_session_cache_info(s, &info);
    pleach_session_close(s);
    set.kept_bytes = 2 * info.bytes; /* of a page each */
    pleach_batch *b = open_batch(m, &set);
    assert_int_equal(cached_of(b, ids[0], 10), 0);
    assert_int_equal(cached_of(b, ids[1], 10), 0);
    assert_int_equal(cached_of(b, ids[0], 10), 9);
    assert_int_equal(cached_of(b, ids[2], 10), 0); /* in place of the second */
    assert_int_equal(cached_of(b, ids[0], 10), 9);
    assert_int_equal(cached_of(b, ids[1], 10), 0);
    pleach_batch_get_info(b, &sums);
    assert_int_equal(sums.cached_tokens, 18);
    assert_int_equal(sums.prompt_tokens, 60);
    assert_int_equal(sums.new_tokens, 240);
    assert_int_equal(sums.requests, 6);
    assert_true(sums.kept_bytes <= set.kept_bytes);
    pleach_batch_close(b);
    pleach_model_close(m);
}

/* ---- several answers ------------------------------------------------------------------------- */

static void run_five(const pleach_model *m, size_t parallel, const pleach_request *asked, client *c)
{
    pleach_batch_settings set = batch_settings("f32", parallel);
    pleach_request r = *asked;
    pleach_batch *b = open_batch(m, &set);
    r.answers = 5;
    client_open(c, b);
    must(client_submit(c, &r, &err));
    client_wait(c);
    assert_true(c->ends == 5 && c->lasts == 1);
    pleach_batch_close(b);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(c->answers[i].ends, 1);
        assert_int_equal(c->answers[i].n, r.generation.max_tokens);
        assert_int_equal(c->answers[i].end.finish, PLEACH_FINISH_LENGTH);
    }
}

static void answers_of_one_request_differ(void **state)
{
    (void)state;
    pleach_model *m = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_INT16, 2);
    pleach_batch_settings set = batch_settings("f32", 1);
    static int32_t prompts[REQUESTS][LONGEST], lone[MOST_IDS];
    pleach_request requests[REQUESTS], *r = &requests[1];
    client few, many;
    make_requests(prompts, requests);
    size_t n = lone_answer(m, &set.session, r, lone);
    run_five(m, 2, r, &few);
    run_five(m, 8, r, &many);
    assert_memory_equal(few.answers[0].ids, lone, n * sizeof *lone);
    for (int i = 0; i < 5; i++) {
        assert_memory_equal(few.answers[i].ids, many.answers[i].ids, n * sizeof *lone);
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(few.answers[i].ids, few.answers[j].ids, n * sizeof *lone);
    }
    client_close(&few);
    client_close(&many);
    pleach_model_close(m);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static const int32_t short_prompt[] = {72, 101, 108, 108, 111};

static void cancelling_ends_what_waits_and_what_runs(void **state)
{
    (void)state;
    pleach_model *m = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_INT16, 2);
    pleach_batch_settings set = batch_settings("f32", 1);
    pleach_batch *b = open_batch(m, &set);
    pleach_request r = request_of(short_prompt, 5, 400);
    client runs, waits, stops;
    client_open(&runs, b);
    client_open(&waits, b);
    client_open(&stops, b);
    runs.held = true;
    must(client_submit(&runs, &r, &err));
    client_wait_tokens(&runs, 1);
    r.answers = 3;
    must(client_submit(&waits, &r, &err));
    pleach_batch_cancel(b, waits.ticket);
    pleach_batch_cancel(b, 12345);
    client_release(&runs);
    client_wait(&waits);
    assert_int_equal(waits.ends, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(waits.answers[i].end.finish, PLEACH_FINISH_CANCELLED);
        assert_int_equal(waits.answers[i].end.status, PLEACH_OK);
        assert_int_equal(waits.answers[i].end.new_tokens, 0);
    }
    /* One step later at most. */
    pthread_mutex_lock(&runs.lock);
    runs.held = true;
    size_t before = runs.tokens;
    pthread_mutex_unlock(&runs.lock);
    client_wait_tokens(&runs, before + 1);
    pleach_batch_cancel(b, runs.ticket);
    client_release(&runs);
    client_wait(&runs);
    assert_int_equal(runs.answers[0].end.finish, PLEACH_FINISH_CANCELLED);
    assert_true(runs.tokens == runs.answers[0].end.new_tokens && runs.tokens <= before + 1);
    /* The callback's own word. */
    stops.stop_at = 3;
    r.answers = 1;
    must(client_submit(&stops, &r, &err));
    client_wait(&stops);
    assert_int_equal(stops.answers[0].end.finish, PLEACH_FINISH_CANCELLED);
    assert_int_equal(stops.answers[0].end.new_tokens, 3);
    pleach_batch_cancel(b, stops.ticket);
    client_close(&runs);
    client_close(&waits);
    client_close(&stops);
    pleach_batch_close(b);
    pleach_model_close(m);
}

/* A prompt of single tokens, the logprobs of which say how far it has come. */
static void cancelling_ends_a_prompt(void **state)
{
    (void)state;
    pleach_model *m = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_INT16, 2);
    pleach_batch_settings set = batch_settings("f32", 2);
    set.chunk = 1;
    pleach_batch *b = open_batch(m, &set);
    int32_t ids[LONGEST];
    for (int i = 0; i < LONGEST; i++) ids[i] = i % 200;
    for (int own = 0; own < 2; own++) {
        client c;
        pleach_request r = request_of(ids, LONGEST, 4);
        r.prompt_logprobs = 1;
        client_open(&c, b);
        c.held = !own;
        c.stop_at = own ? 7 : 0;
        must(client_submit(&c, &r, &err));
        client_wait_tokens(&c, 1);
        if (!own) pleach_batch_cancel(b, c.ticket);
        client_release(&c);
        client_wait(&c);
        assert_int_equal(c.prompt->n, own ? 7 : 1);
        assert_int_equal(c.answers[0].end.finish, PLEACH_FINISH_CANCELLED);
        assert_int_equal(c.answers[0].end.status, PLEACH_OK);
        client_close(&c);
    }
    pleach_batch_close(b);
    pleach_model_close(m);
}

static void the_queue_is_bounded_and_closing_ends_all(void **state)
{
    (void)state;
    pleach_model *m = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_INT16, 2);
    pleach_batch_settings set = batch_settings("f32", 2);
    set.queue = 3;
    pleach_batch *b = open_batch(m, &set);
    pleach_request r = request_of(short_prompt, 5, 400);
    client c[6];
    for (size_t i = 0; i < 6; i++) client_open(&c[i], b);
    c[0].held = true;
    must(client_submit(&c[0], &r, &err));
    client_wait_tokens(&c[0], 1);
    for (size_t i = 1; i < 5; i++) must(client_submit(&c[i], &r, &err));
    assert_refused(client_submit(&c[5], &r, &err), PLEACH_ERR_BUSY, "4 requests wait");
    client_release(&c[0]);
    pleach_batch_close(b);
    for (size_t i = 0; i < 5; i++) {
        assert_true(c[i].ends == 1 && c[i].lasts == 1);
        assert_int_equal(c[i].answers[0].end.finish, PLEACH_FINISH_CANCELLED);
    }
    assert_int_equal(c[5].ends, 0);
    for (size_t i = 0; i < 6; i++) client_close(&c[i]);
    pleach_model_close(m);
}

static void the_context_and_max_tokens_end(void **state)
{
    (void)state;
    pleach_model *m = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_INT16, 2);
    pleach_batch_settings set = batch_settings("f32", 3);
    set.session.context = 16;
    pleach_batch *b = open_batch(m, &set);
    const struct {
        size_t n, most, got;
        int no_tokens;
    } cases[] = {{5, 0, 11, 0}, {5, 100, 11, 0}, {15, 4, 1, 0}, {5, 7, 7, 0}, {16, 9, 0, 1}};
    int32_t ids[17] = {1, 2, 3};
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        client c;
        pleach_request r = request_of(ids, cases[i].n, cases[i].most);
        r.no_tokens = cases[i].no_tokens;
        client_open(&c, b);
        must(client_submit(&c, &r, &err));
        client_wait(&c);
        assert_int_equal(c.answers[0].end.finish, PLEACH_FINISH_LENGTH);
        assert_int_equal(c.answers[0].end.new_tokens, cases[i].got);
        assert_int_equal(c.tokens, cases[i].got);
        client_close(&c);
    }
    pleach_batch_close(b);
    pleach_model_close(m);
}

/* ---- grammars -------------------------------------------------------------------------------- */

static void answers_keep_to_their_grammars(void **state)
{
    (void)state;
    static const char *const grammars[] = {"root ::= [a-f]+ \"!\"", "root ::= \"yes\" | \"no\"", NULL};
    folder f = make_model(NULL);
    pleach_model *m = open_model(f.path, NULL, PLEACH_ARITH_INT16, 2);
    pleach_batch_settings set = batch_settings("f32", 4);
    pleach_batch *b = open_batch(m, &set);
    client c[6];
    pleach_request r[6];
    for (size_t i = 0; i < 6; i++) {
        r[i] = request_of(short_prompt, 5, 30);
        r[i].generation.ignore_end = 0;
        r[i].generation.grammar = grammars[i % 3];
        if (i % 3 == 2) r[i].generation.json_schema = "{\"enum\": [\"left\", 12, true]}";
        r[i].generation.sampling.temperature = i < 3 ? 0 : 2;
        client_open(&c[i], b);
        must(client_submit(&c[i], &r[i], &err));
    }
    for (size_t i = 0; i < 6; i++) {
        int32_t want[MOST_IDS];
        client_wait(&c[i]);
        size_t n = lone_answer(m, &set.session, &r[i], want);
        assert_int_equal(c[i].answers[0].end.status, PLEACH_OK);
        assert_int_equal(c[i].answers[0].n, n);
        assert_memory_equal(c[i].answers[0].ids, want, n * sizeof *want);
        if (i % 3) assert_int_equal(c[i].answers[0].end.finish, PLEACH_FINISH_END);
        client_close(&c[i]);
    }
    pleach_batch_close(b);
    pleach_model_close(m);
    remove_folder(&f, files, 4);
}

/* ---- probabilities --------------------------------------------------------------------------- */

/* ln p of all ids, from logits. */
static void log_softmax(const float *logits, size_t vocab, double *out)
{
    double sum = 0;
    for (size_t i = 0; i < vocab; i++) sum += exp((double)logits[i]);
    for (size_t i = 0; i < vocab; i++) out[i] = (double)logits[i] - log(sum);
}

static void check_row(const answer_log *a, size_t at, const float *logits, size_t vocab)
{
    double p[384];
    assert_true(vocab <= PL_COUNT(p));
    log_softmax(logits, vocab, p);
    assert_true(fabs((double)a->logprobs[at] - p[a->ids[at]]) < 1e-5);
    for (size_t i = 0; i < a->n_top; i++) {
        pleach_logprob t = a->top[at][i];
        size_t better = 0;
        assert_true(fabs((double)t.logprob - p[t.id]) < 1e-5);
        for (size_t j = 0; j < vocab; j++)
            better += logits[j] > logits[t.id] || (logits[j] == logits[t.id] && (int32_t)j < t.id);
        assert_int_equal(better, i);
    }
}

static void logprobs_are_those_of_the_logits(void **state)
{
    (void)state;
    enum { N = 50, NEW = 20 };
    pleach_model *m = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_INT16, 2);
    size_t vocab = vocab_of(m);
    float *logits = pl_alloc((N + NEW) * vocab, sizeof *logits);
    pleach_batch_settings set = batch_settings("f32", 4);
    set.chunk = 13;
    pleach_batch *b = open_batch(m, &set);
    int32_t ids[N + NEW];
    for (int i = 0; i < N; i++) ids[i] = i * i % 300;
    for (int way = 0; way < 3; way++) {
        client c;
        pleach_request r = request_of(ids, N, NEW);
        const pleach_logit_bias bias = {3, 2.5f};
        r.logprobs = 1;
        r.prompt_logprobs = way > 0;
        r.top_logprobs = way == 2 ? 20 : 4;
        r.generation.sampling.temperature = way ? 1 : 0;
        r.bias = &bias;
        r.n_bias = way == 2;
        client_open(&c, b);
        must(client_submit(&c, &r, &err));
        client_wait(&c);
        assert_int_equal(c.answers[0].n, NEW);
        assert_int_equal(c.answers[0].n_top, r.top_logprobs);
        memcpy(ids + N, c.answers[0].ids, NEW * sizeof *ids);
        pleach_session *s = open_session(m, "f32", 512);
        must(pleach_session_feed_all(s, ids, N + NEW, 0, logits, &err));
        pleach_session_close(s);
        for (size_t i = 0; i < NEW; i++)
            check_row(&c.answers[0], i, logits + (N + i - 1) * vocab, vocab);
        assert_int_equal(c.prompt->n, way ? N : 0);
        for (size_t i = 1; i < c.prompt->n; i++) {
            assert_int_equal(c.prompt->ids[i], ids[i]);
            check_row(c.prompt, i, logits + (i - 1) * vocab, vocab);
        }
        if (way) assert_true(isnan(c.prompt->logprobs[0]));
        client_close(&c);
    }
    pl_free(logits);
    pleach_batch_close(b);
    pleach_model_close(m);
}

static void biases_lead_and_forbid(void **state)
{
    (void)state;
    pleach_model *m = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_INT16, 2);
    pleach_batch_settings set = batch_settings("f32", 4);
    pleach_batch *b = open_batch(m, &set);
    int32_t plain[MOST_IDS];
    pleach_request r = request_of(short_prompt, 5, 10);
    lone_answer(m, &set.session, &r, plain);
    const pleach_logit_bias lead = {77, 1000}, forbid = {plain[0], -1000};
    for (int way = 0; way < 2; way++) {
        client c;
        r.bias = way ? &forbid : &lead;
        r.n_bias = 1;
        client_open(&c, b);
        must(client_submit(&c, &r, &err));
        client_wait(&c);
        for (size_t i = 0; i < 10; i++)
            assert_true((c.answers[0].ids[i] == r.bias->id) == !way);
        client_close(&c);
    }
    pleach_batch_close(b);
    pleach_model_close(m);
}

/* ---- embeddings ------------------------------------------------------------------------------ */

/* The head is linear: what it makes of the embedding goes with the logits of the last token, or with
 * their mean over all. */
static void embeddings_go_with_the_logits(void **state)
{
    (void)state;
    enum { N = 40 };
    pleach_model *m = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_F32, 2);
    size_t vocab = vocab_of(m), C = m->transformer->config->hidden_size;
    float *logits = pl_alloc(N * vocab, sizeof *logits);
    double *want = pl_calloc(vocab, sizeof *want);
    float row[256], first[2][256];
    int32_t ids[N];
    for (int i = 0; i < N; i++) ids[i] = i * 31 % 380;
    pleach_session *s = open_session(m, "f32", 512);
    must(pleach_session_feed_all(s, ids, N, 0, logits, &err));
    pleach_session_close(s);
    for (size_t chunk = 7; chunk < 80; chunk += 50) {
        pleach_batch_settings set = batch_settings("f32", 2);
        set.chunk = chunk;
        pleach_batch *b = open_batch(m, &set);
        for (int last = 0; last < 2; last++) {
            client c;
            pleach_request r = request_of(ids, N, 0);
            double length = 0, scale = 0, most = 0;
            r.embed = last ? PLEACH_EMBED_LAST : PLEACH_EMBED_MEAN;
            client_open(&c, b);
            c.embedding = C;
            must(client_submit(&c, &r, &err));
            client_wait(&c);
            assert_int_equal(c.tokens, 0);
            assert_int_equal(c.answers[0].end.status, PLEACH_OK);
            const float *e = c.answers[0].embedding;
            for (size_t i = 0; i < C; i++) length += (double)e[i] * (double)e[i];
            assert_true(fabs(length - 1) < 1e-5);
            memset(want, 0, vocab * sizeof *want);
            for (size_t i = last ? N - 1 : 0; i < N; i++)
                for (size_t j = 0; j < vocab; j++)
                    want[j] += (double)logits[i * vocab + j] / (last ? 1 : N);
            for (size_t j = 0; j < vocab; j++) {
                double got = 0;
                pl_linear_row(&m->transformer->embedding, j, row);
                for (size_t i = 0; i < C; i++) got += (double)row[i] * (double)e[i];
                if (j == 0) scale = want[0] / got;
                most = fmax(most, fabs(got * scale - want[j]));
            }
            assert_true(scale > 0 && most < 1e-3 * scale);
            if (chunk == 7)
                memcpy(first[last], e, C * sizeof *e);
            else
                assert_memory_equal(first[last], e, C * sizeof *e);
            client_close(&c);
        }
        pleach_batch_close(b);
    }
    pl_free(logits);
    pl_free(want);
    pleach_model_close(m);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

static void bad_requests_are_refused(void **state)
{
    (void)state;
    pleach_model *m = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_INT16, 1);
    pleach_batch_settings set = batch_settings("f32", 0);
    pleach_batch *b;
    client c;
    assert_refused(pleach_batch_open(m, &set, &b, &err), PLEACH_ERR_ARGUMENT, "0 answers at once");
    assert_null(b);
    set.parallel = 65;
    assert_refused(pleach_batch_open(m, &set, &b, &err), PLEACH_ERR_ARGUMENT, "65 answers");
    set = batch_settings("f33", 2);
    assert_refused(pleach_batch_open(m, &set, &b, &err), PLEACH_ERR_ARGUMENT, "f33");
    set = batch_settings("f32", 2);
    set.session.context = 20;
    b = open_batch(m, &set);
    client_open(&c, b);
    int32_t ids[21] = {0}, bad[] = {1, 384};
    const pleach_logit_bias bias[] = {{384, 1}, {1, NAN}};
    pleach_request r;
#define refused(change, status, part)                                                              \
    do {                                                                                           \
        r = request_of(ids, 5, 4);                                                                 \
        change;                                                                                    \
        assert_refused(client_submit(&c, &r, &err), status, part);                                 \
    } while (0)
    refused(r.n_prompt = 0, PLEACH_ERR_ARGUMENT, "at least one");
    refused(r.n_prompt = 20, PLEACH_ERR_LIMIT, "leaves no room");
    refused(r.n_prompt = 21, PLEACH_ERR_LIMIT, "21 tokens");
    refused((r.prompt = bad, r.n_prompt = 2), PLEACH_ERR_ARGUMENT, "id 384");
    refused(r.answers = 0, PLEACH_ERR_ARGUMENT, "0 answers");
    refused(r.answers = 129, PLEACH_ERR_ARGUMENT, "129 answers");
    refused(r.top_logprobs = 21, PLEACH_ERR_ARGUMENT, "21");
    refused((r.bias = bias, r.n_bias = 1), PLEACH_ERR_ARGUMENT, "id 384");
    refused((r.bias = bias + 1, r.n_bias = 1), PLEACH_ERR_ARGUMENT, "finite");
    refused((r.bias = bias, r.n_bias = SIZE_MAX), PLEACH_ERR_ARGUMENT, "biases");
    refused(r.embed = (pleach_embed)3, PLEACH_ERR_ARGUMENT, "embedding 3");
    refused((r.embed = PLEACH_EMBED_LAST, r.answers = 2), PLEACH_ERR_ARGUMENT, "one answer");
    refused(r.generation.sampling.temperature = -1, PLEACH_ERR_ARGUMENT, "temperature");
    refused(r.generation.sampling.presence_penalty = 2.5f, PLEACH_ERR_ARGUMENT, "presence");
    refused(r.generation.sampling.frequency_penalty = NAN, PLEACH_ERR_ARGUMENT, "frequency");
    refused(r.generation.grammar = "root ::= [a", PLEACH_ERR_FORMAT, "grammar");
    refused(r.generation.json_schema = "{", PLEACH_ERR_FORMAT, "JSON schema");
    refused(r.generation.grammar = "root ::= [a]", PLEACH_ERR_MISSING, "tokenizer");
#undef refused
    assert_int_equal(c.ends, 0);
    client_close(&c);
    pleach_batch_close(b);
    pleach_model_close(m);
}

/* mistral-swa with NaN for the embedding of id 300. */
static void write_broken_weights(const folder *f)
{
    const char *path = CHECKPOINTS "mistral-swa/model.safetensors";
    pl_safetensors *file;
    char *bytes;
    size_t size;
    must(pl_read_file(path, 1 << 26, &bytes, &size, &err));
    must(pl_safetensors_open(path, &file, &err));
    const pl_tensor *t = pl_safetensors_find(file, "model.embed_tokens.weight");
    assert_true(t && t->type == PL_BF16);
    size_t row = t->shape[1] * 2, at = 0;
    while (memcmp(bytes + at, (const char *)t->data + 300 * row, row)) at++;
    memset(bytes + at, 0xff, row);
    char *to = pl_path_join(f->path, "model.safetensors");
    must(pl_write_file(to, bytes, size, &err));
    pl_free(to);
    pl_free(bytes);
    pl_safetensors_close(file);
}

static void one_answer_fails_alone(void **state)
{
    (void)state;
    folder f = make_folder();
    folder_link(&f, "config.json", CHECKPOINTS "mistral-swa/config.json");
    write_broken_weights(&f);
    pleach_model *m = open_model(f.path, NULL, PLEACH_ARITH_F32, 2);
    pleach_batch_settings set = batch_settings("f32", 4);
    pleach_batch *b = open_batch(m, &set);
    client c[4];
    int32_t want[MOST_IDS];
    const int32_t broken[] = {4, 300, 5};
    const pleach_logit_bias lead = {300, 1000}; /* NaN from the second step on */
    pleach_request good = request_of(short_prompt, 5, 60);
    size_t n = lone_answer(m, &set.session, &good, want);
    for (size_t i = 0; i < 4; i++) {
        pleach_request r = i == 1 ? request_of(broken, 3, 60) : good;
        if (i == 2) r.bias = &lead, r.n_bias = 1;
        client_open(&c[i], b);
        must(client_submit(&c[i], &r, &err));
    }
    for (size_t i = 0; i < 4; i++) {
        client_wait(&c[i]);
        const answer_log *a = &c[i].answers[0];
        if (i == 1 || i == 2) {
            assert_int_equal(a->end.status, PLEACH_ERR_DATA);
            assert_non_null(strstr(a->message, "NaN"));
            assert_int_equal(a->end.new_tokens, i - 1);
        } else {
            assert_int_equal(a->end.status, PLEACH_OK);
            assert_int_equal(a->n, n);
            assert_memory_equal(a->ids, want, n * sizeof *want);
        }
        client_close(&c[i]);
    }
    pleach_batch_close(b);
    pleach_model_close(m);
    remove_folder(&f, (const char *const[]){"config.json", "model.safetensors"}, 2);
}

/* ---- many ------------------------------------------------------------------------------------ */

typedef struct storm {
    pleach_batch *batch;
    const pleach_request *requests;
    int32_t (*want)[MOST_IDS];
    const size_t *n_want;
    size_t first, wrong;
} storm;

/* 500 requests, a few at a time; every seventh is cancelled at some time. */
static void *run_storm(void *storm_)
{
    storm *s = storm_;
    enum { AT_ONCE = 5 };
    for (size_t i = s->first; i < s->first + 500; i += AT_ONCE) {
        client c[AT_ONCE];
        for (size_t k = 0; k < AT_ONCE; k++) {
            pleach_request r = s->requests[(i + k) % REQUESTS];
            client_open(&c[k], s->batch);
            while (client_submit(&c[k], &r, NULL) == PLEACH_ERR_BUSY) sched_yield();
            if ((i + k) % 7 == 0) pleach_batch_cancel(s->batch, c[k].ticket);
        }
        for (size_t k = 0; k < AT_ONCE; k++) {
            size_t which = (i + k) % REQUESTS;
            client_wait(&c[k]);
            const answer_log *a = &c[k].answers[0];
            bool whole = a->end.finish == PLEACH_FINISH_LENGTH;
            if ((whole ? a->n != s->n_want[which] : (i + k) % 7 != 0) || a->end.status ||
                memcmp(a->ids, s->want[which], a->n * sizeof *a->ids))
                s->wrong++;
            client_close(&c[k]);
        }
    }
    return NULL;
}

static void a_storm_of_requests_leaves_nothing(void **state)
{
    (void)state;
    static int32_t prompts[REQUESTS][LONGEST], want[REQUESTS][MOST_IDS];
    static const int32_t ids[REQUESTS + 8] = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8};
    size_t n_want[REQUESTS];
    pleach_request requests[REQUESTS];
    pleach_batch_info info;
    pleach_model *m = open_model(CHECKPOINTS "llama-tied", NULL, PLEACH_ARITH_INT16, 2);
    pleach_batch_settings set = batch_settings("f32", 8);
    set.queue = 8;
    set.kept_bytes = 1 << 20;
    make_requests(prompts, requests);
    for (size_t i = 0; i < REQUESTS; i++) {
        requests[i].prompt = ids + i % 3;
        requests[i].n_prompt = 2 + i % 7;
        requests[i].generation.max_tokens = 1 + i;
        n_want[i] = lone_answer(m, &set.session, &requests[i], want[i]);
    }
    pleach_batch *b = open_batch(m, &set);
    pthread_t threads[4];
    storm storms[4];
    for (size_t i = 0; i < 4; i++) {
        storms[i] = (storm){b, requests, want, n_want, 500 * i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, run_storm, &storms[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(storms[i].wrong, 0);
    }
    pleach_batch_get_info(b, &info);
    assert_true(info.kept_bytes <= set.kept_bytes && info.waiting == 0);
    pleach_batch_close(b);
    pleach_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_a_lone_request),
        cmocka_unit_test(answers_with_windows_too),
        cmocka_unit_test(answers_with_states_too),
        cmocka_unit_test(beginnings_are_kept),
        cmocka_unit_test(the_least_recently_used_go),
        cmocka_unit_test(answers_of_one_request_differ),
        cmocka_unit_test(cancelling_ends_what_waits_and_what_runs),
        cmocka_unit_test(cancelling_ends_a_prompt),
        cmocka_unit_test(the_queue_is_bounded_and_closing_ends_all),
        cmocka_unit_test(the_context_and_max_tokens_end),
        cmocka_unit_test(answers_keep_to_their_grammars),
        cmocka_unit_test(logprobs_are_those_of_the_logits),
        cmocka_unit_test(biases_lead_and_forbid),
        cmocka_unit_test(embeddings_go_with_the_logits),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(one_answer_fails_alone),
        cmocka_unit_test(a_storm_of_requests_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
