/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiple-choice tasks with a model of one token a byte: the same choices as sums over whole
 * texts, each run from its start; and lines that are refused. */
#include "text_model.h"

static const char *const contexts[] = {"The sea is", "What comes next: one, two,", "x", "Blue ",
                                       "The sea is deep and"};
static const char *const choices[] = {"blue", " a long way from home", "3", "zq", "the the the",
                                      "deep"};
enum { N_ITEMS = PL_COUNT(contexts), N_CHOICES = PL_COUNT(choices) };

/* Log likelihood of text[first..] by one call over the whole text. */
static double likelihood(const pleach_model *m, const char *text, size_t first)
{
    size_t n = strlen(text), vocab = vocab_of(m);
    int32_t ids[256];
    for (size_t i = 0; i < n; i++) ids[i] = (unsigned char)text[i];
    float *logits = pl_alloc(n, vocab * sizeof *logits);
    pleach_session *s = open_session(m, "f32", 512);
    double sum = 0;
    must(pleach_session_feed_all(s, ids, n, 0, logits, &err));
    for (size_t i = first; i < n; i++) {
        const float *row = logits + (i - 1) * vocab;
        double total = 0;
        for (size_t v = 0; v < vocab; v++) total += exp((double)row[v]);
        sum += (double)row[ids[i]] - log(total);
    }
    pleach_session_close(s);
    pl_free(logits);
    return sum;
}

/* What the model should take, by sum or by sum over bytes. */
static size_t expected(const pleach_model *m, const char *context, bool norm)
{
    double best = -INFINITY;
    size_t pick = 0, n = strlen(context);
    for (size_t c = 0; c < N_CHOICES; c++) {
        char text[256];
        bool blank = context[n - 1] == ' ' || choices[c][0] == ' ';
        snprintf(text, sizeof text, "%s%s%s", context, blank ? "" : " ", choices[c]);
        double sum = likelihood(m, text, context[n - 1] == ' ' ? n - 1 : n);
        if (norm) sum /= (double)strlen(choices[c]);
        if (sum > best) pick = c;
        best = fmax(best, sum);
    }
    return pick;
}

static char *make_lines(const size_t *answers)
{
    char *lines;
    size_t size;
    FILE *f = open_memstream(&lines, &size);
    for (size_t i = 0; i < N_ITEMS; i++) {
        json_t *list = json_array();
        for (size_t c = 0; c < N_CHOICES; c++) json_array_append_new(list, json_string(choices[c]));
        json_t *o = json_pack("{s:s, s:o, s:I, s:s}", "context", contexts[i], "choices", list,
                              "answer", (json_int_t)answers[i], "id", "ignored");
        char *text = json_dumps(o, 0);
        fprintf(f, "%s\r\n%s", text, i % 2 ? "\n   \n" : "");
        free(text);
        json_decref(o);
    }
    fclose(f);
    return lines;
}

static void test_choices(void **state)
{
    (void)state;
    folder f = make_model(NULL);
    pleach_model *m = open_model(f.path, NULL, PLEACH_ARITH_INT16, 2);
    for (int norm = 0; norm <= 1; norm++) {
        size_t answers[N_ITEMS];
        pleach_tasks_result r;
        for (size_t i = 0; i < N_ITEMS; i++) answers[i] = expected(m, contexts[i], norm);
        for (size_t wrong = 0; wrong < 3; wrong++) {
            if (wrong) answers[wrong] = (answers[wrong] + 1) % N_CHOICES;
            char *lines = make_lines(answers);
            must(pleach_eval_tasks(m, m, lines, strlen(lines), NULL, &r, &err));
            free(lines);
            double share = (double)(N_ITEMS - wrong) / N_ITEMS;
            double error = sqrt(share * (1 - share) / (N_ITEMS - 1));
            assert_int_equal(r.items, N_ITEMS);
            assert_int_equal(r.choices, N_ITEMS * N_CHOICES);
            assert_true(fabs((norm ? r.acc_norm : r.acc) - share) < 1e-12);
            assert_true(fabs((norm ? r.acc_norm_error : r.acc_error) - error) < 1e-12);
            assert_true(r.same_choice == 1 && r.same_choice_norm == 1);
            assert_true(r.teacher_acc == r.acc && r.teacher_acc_norm == r.acc_norm);
        }
    }
    pleach_model_close(m);
    remove_folder(&f, (const char *const[]){files[0], files[1], files[3]}, 3);
}

static int stop_at_two(void *user, size_t done, size_t total, double accuracy)
{
    (void)user;
    assert_true(total == N_ITEMS && accuracy >= 0 && accuracy <= 1);
    return done == 2;
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *part;
    } bad[] = {
        {"", "every line is blank"},
        {"\n  \n", "every line is blank"},
        {"{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 0}\n\nnonsense\n", "line 3: "},
        {"[1]", "line 1: expected a JSON object"},
        {"{\"choices\": [\"b\", \"c\"], \"answer\": 0}", "context"},
        {"{\"context\": \"a\", \"question\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 0}", "one of"},
        {"{\"context\": \" \", \"choices\": [\"b\", \"c\"], \"answer\": 0}", "context is empty"},
        {"{\"context\": 3, \"choices\": [\"b\", \"c\"], \"answer\": 0}", "context is an integer"},
        {"{\"context\": \"a\", \"choices\": [\"b\"], \"answer\": 0}", "2 to 64"},
        {"{\"context\": \"a\", \"choices\": \"bc\", \"answer\": 0}", "2 to 64"},
        {"{\"context\": \"a\", \"choices\": [\"b\", 4], \"answer\": 0}", "choice 1 is an integer"},
        {"{\"context\": \"a\", \"choices\": [\"b\", \"\"], \"answer\": 0}", "choice 1 is empty"},
        {"{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 2}", "answer is 2"},
        {"{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": -1}", "answer is -1"},
        {"{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": \"b\"}", "answer is a string"},
        {"{\"context\": \"a\", \"choices\": [\"b\", \"c\"]}", "answer is missing"},
    };
    folder f = make_model(NULL);
    pleach_model *m = open_model(f.path, NULL, PLEACH_ARITH_INT16, 1);
    pleach_tasks_result r;
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        pleach_error err;
        if (pleach_eval_tasks(m, NULL, bad[i].lines, strlen(bad[i].lines), NULL, &r, &err) ==
                PLEACH_OK || !strstr(err.message, bad[i].part))
            fail_msg("%s: \"%s\"", bad[i].lines, err.message);
    }
    static const size_t answers[N_ITEMS];
    char *lines = make_lines(answers);
    pleach_tasks_settings s;
    pleach_tasks_settings_defaults(&s);
    s.progress = stop_at_two;
    assert_int_equal(pleach_eval_tasks(m, NULL, lines, strlen(lines), &s, &r, NULL),
                     PLEACH_ERR_CANCELLED);
    free(lines);
    pleach_model_close(m);
    remove_folder(&f, (const char *const[]){files[0], files[1], files[3]}, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
