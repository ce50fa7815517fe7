/* SPDX-License-Identifier: Apache-2.0
 *
 * Continuous batching: every answer is the one that its request would have alone. */
#include "batch_clients.h"
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

static void answers_with_windows_too(void **state)
{
    (void)state;
    check_model(CHECKPOINTS "mistral-swa", "f32", 128, 2);
    check_model(CHECKPOINTS "mistral-swa", "k8v3,1:bf16", 64, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_a_lone_request),
        cmocka_unit_test(answers_with_windows_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
