/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests without a network: bodies, fields, messages, keys, and whole answers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/byte_model.h"
#include "server/exchange.h"
#include "server/keys.h"
#include "server/messages.h"
#include "server/params.h"

#define CHECKPOINT PLEACH_TEST_DATA "/golden/checkpoints/llama-tied"

/* ---- bodies ---------------------------------------------------------------------------------- */

static json_t *parse(const char *text, pl_refusal *r)
{
    json_t *body = NULL;
    pl_body_parse(text, strlen(text), &body, r);
    return body;
}

static void test_nesting(void **state)
{
    (void)state;
    for (size_t depth = PL_BODY_DEPTH - 2; depth <= PL_BODY_DEPTH + 2; depth++) {
        char text[600] = "";
        pl_refusal r;
        for (size_t i = 0; i < depth; i++) strcat(text, i ? "[" : "{\"[[[\":");
        if (depth == 1) strcat(text, "0");
        for (size_t i = depth; i-- > 0;) strcat(text, i ? "]" : "}");
        json_t *body = parse(text, &r);
        assert_int_equal(body != NULL, depth <= PL_BODY_DEPTH);
        json_decref(body);
    }
}

static void test_what_is_no_body(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        " ",
                                        "7",
                                        "[]",
                                        "{",
                                        "{\"a\":1,\"a\":2}",
                                        "{\"a\":NaN}",
                                        "{\"a\":1e999}",
                                        "{\"a\":\"\\ud800\"}",
                                        "{} x",
                                        "{\"a\":\"\\u0000\"}",
                                        "{\"a\":99999999999999999999}"};
    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        pl_refusal r = {0};
        assert_null(parse(wrong[i], &r));
        assert_int_equal(r.status, 400);
        assert_true(strlen(r.message) > 10);
    }
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void test_parameters_become_a_request(void **state)
{
    (void)state;
    pl_refusal r;
    pl_params p;
    pleach_request q;
    json_t *body =
        parse("{\"max_completion_tokens\":7,\"max_tokens\":5,\"temperature\":0.5,\"top_k\":3,"
              "\"top_p\":0.25,\"min_p\":0.125,\"seed\":9,\"n\":2,\"presence_penalty\":1,"
              "\"frequency_penalty\":-1,\"repetition_penalty\":1.5,\"logprobs\":true,"
              "\"top_logprobs\":4,\"stop\":[\"a\",\"b\"],\"logit_bias\":{\"3\":-2},"
              "\"stream\":null,\"unknown\":{}}",
              &r);
    assert_int_equal(pl_params_read(body, 10, &p, &r), PLEACH_OK);
    pl_params_request(&p, &q);
    const pleach_sampling *s = &q.generation.sampling;
    assert_int_equal(q.generation.max_tokens, 7);
    assert_true(s->temperature == 0.5f && s->top_k == 3 && s->top_p == 0.25f && s->min_p == 0.125f);
    assert_true(s->presence_penalty == 1 && s->frequency_penalty == -1);
    assert_true(s->repetition_penalty == 1.5f && s->seed == 9);
    assert_true(q.answers == 2 && q.logprobs && q.top_logprobs == 4 && !q.no_tokens);
    assert_true(q.n_bias == 1 && q.bias[0].id == 3 && q.bias[0].bias == -2);
    assert_true(p.n_stop == 2 && !p.stream);
    pl_params_free(&p);
    json_decref(body);
}

static void test_wrong_parameters_are_named(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {{"{\"temperature\":\"1\"}", "temperature"},
                                           {"{\"top_p\":1.01}", "top_p"},
                                           {"{\"n\":0}", "n"},
                                           {"{\"seed\":9.3e18}", "seed"},
                                           {"{\"stop\":[\"\"]}", "stop"},
                                           {"{\"logit_bias\":{\"10\":1}}", "logit_bias"},
                                           {"{\"stream\":1}", "stream"},
                                           {"{\"max_tokens\":2.5}", "max_tokens"},
                                           {"{\"grammar\":1}", "grammar"},
                                           {"{\"response_format\":{}}", "response_format"},
                                           {"{\"stream_options\":1}", "stream_options"}};
    for (size_t i = 0; i < PL_COUNT(wrong); i++) {
        pl_refusal r = {0};
        pl_params p;
        json_t *body = parse(wrong[i][0], &r);
        assert_non_null(body);
        assert_int_not_equal(pl_params_read(body, 10, &p, &r), PLEACH_OK);
        assert_string_equal(r.param, wrong[i][1]);
        assert_non_null(strstr(r.message, wrong[i][1]));
        pl_params_free(&p);
        json_decref(body);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static void test_messages(void **state)
{
    (void)state;
    pl_refusal r;
    json_t *body =
        parse("{\"m\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
              "{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"tool_calls\":"
              "[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}},"
              "{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\"}}]}]}",
              &r);
    json_t *expected =
               parse("{\"m\":[{\"role\":\"system\",\"content\":\"ab\"},{\"role\":\"assistant\","
                     "\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
                     "\"arguments\":{\"x\":1}}},{\"function\":{\"name\":\"f\",\"arguments\":"
                     "\"{\\\"x\"}}]}]}",
                     &r),
           *messages;
    assert_int_equal(pl_messages_read(json_object_get(body, "m"), &messages, &r), PLEACH_OK);
    assert_true(json_equal(messages, json_object_get(expected, "m")));
    json_decref(messages);
    json_decref(expected);
    json_decref(body);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void test_keys(void **state)
{
    (void)state;
    char *keys[] = {"abc", "a-longer-key"};
    const pl_keys some = {.keys = keys, .n = 2}, none = {0};
    assert_true(pl_keys_admit(&none, NULL));
    assert_true(pl_keys_admit(&some, "Bearer abc"));
    assert_true(pl_keys_admit(&some, "bearer a-longer-key"));
    static const char *const wrong[] = {NULL,         "",          "abc",           "Bearer",
                                        "Bearer ",    "Bearer ab", "Bearer abcabc", "Bearer abcd",
                                        "Bearer ABC", "Basic abc"};
    for (size_t i = 0; i < PL_COUNT(wrong); i++) assert_false(pl_keys_admit(&some, wrong[i]));
}

/* ---- answers --------------------------------------------------------------------------------- */

static void ask(pl_exchange *x, pl_server *s, const char *method, const char *path,
                const char *body)
{
    *x = (pl_exchange){.server = s, .method = method, .path = path};
    assert_int_equal(pl_buffer_append(&x->body, body, strlen(body), NULL), PLEACH_OK);
    if (pl_admit(x, NULL, x->body.size) == PLEACH_OK) pl_dispatch(x);
}

static json_t *answer_of(pl_exchange *x, int status)
{
    assert_int_equal(x->status, status);
    json_t *answer = json_loadb(x->out.data, x->out.size, 0, NULL);
    assert_non_null(answer);
    pl_exchange_free(x);
    return answer;
}

static void test_answers(void **state)
{
    pl_server *s = *state;
    pl_exchange x;
    ask(&x, s, "POST", "/v1/completions",
        "{\"prompt\":\"Hi\",\"max_tokens\":3,\"ignore_eos\":true}");
    json_t *answer = answer_of(&x, 200);
    json_t *usage = json_object_get(answer, "usage");
    assert_int_equal(json_integer_value(json_object_get(usage, "prompt_tokens")), 2);
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), 3);
    json_decref(answer);
    static const struct {
        const char *method, *path;
        int status;
    } others[] = {{"GET", "/health", 200},
                  {"POST", "/health", 405},
                  {"GET", "/nowhere", 404},
                  {"POST", "/v1/completions", 400}};
    for (size_t i = 0; i < PL_COUNT(others); i++) {
        ask(&x, s, others[i].method, others[i].path, "");
        json_decref(answer_of(&x, others[i].status));
    }
}

/* The text that the chunks of a stream say. */
static void join(const char *events, char *text)
{
    for (const char *at = events; (at = strstr(at, "data: {"));) {
        const char *end = strstr(at, "\n\n");
        assert_non_null(end);
        json_t *chunk = json_loadb(at + 6, (size_t)(end - at - 6), 0, NULL);
        json_t *choice = json_array_get(json_object_get(chunk, "choices"), 0);
        assert_non_null(choice);
        strcat(text, json_string_value(json_object_get(choice, "text")));
        json_decref(chunk);
        at = end;
    }
}

/* However few bytes are read at a time. */
static void test_a_stream(void **state)
{
    static const char last[] = "\n\ndata: [DONE]\n\n";
    static char bytes[16384], texts[2][256];
    for (size_t i = 0; i < 2; i++) {
        pl_exchange x;
        size_t n = 0;
        ask(&x, *state, "POST", "/v1/completions",
            "{\"prompt\":\"Hi\",\"max_tokens\":5,\"stream\":true,\"temperature\":0}");
        assert_non_null(x.stream);
        for (long got; (got = pl_stream_read(&x, bytes + n, i ? 1 : 1000)) > 0;) n += (size_t)got;
        bytes[n] = 0;
        assert_true(n > sizeof last && strcmp(bytes + n - (sizeof last - 1), last) == 0);
        join(bytes, texts[i]);
        pl_exchange_free(&x);
    }
    assert_string_equal(texts[0], texts[1]);
    assert_true(texts[0][0]);
}

static int open_all(void **state)
{
    pl_server_settings s;
    pl_server_defaults(&s);
    s.batch.session.context = 128;
    return pl_server_prepare(open_byte_model(CHECKPOINT), &s, (pl_server **)state, NULL);
}

static int close_all(void **state)
{
    pl_server *s = *state;
    pleach_model *m = (pleach_model *)s->model;
    pl_server_release(s);
    pleach_model_close(m);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_what_is_no_body),
        cmocka_unit_test(test_parameters_become_a_request),
        cmocka_unit_test(test_wrong_parameters_are_named),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_a_stream),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
