/* SPDX-License-Identifier: Apache-2.0
 *
 * Facts told early and asked for late: twenty of them spread over a text, and all told so far asked
 * for at lengths of 512, 1024, ... tokens, each in a fork of the session, with a packed cache
 * beside one in f32. Wants the real model (PLEACH_SMOLLM2) and is skipped without it;
 * PLEACH_RETRIEVAL is the longest text in tokens, 2048 if not said. */
#include "support.h"

enum { FACTS = 20, MOST_LENGTHS = 6 };

/* As unlike one another as such sentences are: a small model confuses twenty of a kind. */
static const struct {
    const char *begin, *word;
} facts[FACTS] = {
    {"The secret number of the vault is", "4817"},
    {"The password of Alice is", "tulip"},
    {"The ship Meridian sailed from", "Lisbon"},
    {"Doctor Harlow named his cat", "Pepper"},
    {"The museum opens every day at", "eleven"},
    {"Bruno's favourite instrument is the", "violin"},
    {"The bridge at Kelso was painted", "yellow"},
    {"My telephone has the number", "5309"},
    {"The best cake of the bakery is made with", "walnuts"},
    {"The train to Geneva leaves from platform", "seven"},
    {"Clara hid the spare key under the", "doormat"},
    {"The old clock was built by Mr", "Simmons"},
    {"The winning horse was called", "Thunder"},
    {"The recipe asks for three spoons of", "cinnamon"},
    {"Elena's new job is in", "Toronto"},
    {"The expedition ran out of", "batteries"},
    {"The wifi network of the library is called", "Bluebird"},
    {"The patient is allergic to", "penicillin"},
    {"The lost suitcase contained a", "trumpet"},
    {"The committee elected as its chairman Mrs", "Delgado"},
};

typedef struct ids {
    int32_t *at;
    size_t n;
} ids;

static ids tokens_of(const pleach_model *m, const char *text, size_t size)
{
    ids t;
    must(pleach_tokenize(m, text, size, PLEACH_TOKENIZE_PLAIN, &t.at, &t.n, &err));
    return t;
}

static void feed_text(const pleach_model *m, pleach_session *s, const char *text, float *logits)
{
    ids t = tokens_of(m, text, strlen(text));
    must(pleach_session_feed(s, t.at, t.n, logits, &err));
    pleach_ids_free(t.at);
}

static void tell(const pleach_model *m, pleach_session *s, int fact)
{
    char text[128];
    snprintf(text, sizeof text, "\n\n%s %s.\n\n", facts[fact].begin, facts[fact].word);
    feed_text(m, s, text, NULL);
}

/* Whether the likeliest tokens are those of the word. */
static bool ask(const pleach_model *m, const pleach_session *told, int fact, float *logits)
{
    char text[128];
    size_t vocab = vocab_of(m);
    pleach_session *s;
    must(pleach_session_fork(told, &s, &err));
    snprintf(text, sizeof text, "\n\n%s", facts[fact].begin);
    feed_text(m, s, text, logits);
    snprintf(text, sizeof text, " %s", facts[fact].word);
    ids t = tokens_of(m, text, strlen(text));
    bool right = true;
    for (size_t i = 0; right && i < t.n; i++) {
        for (size_t j = 0; right && j < vocab; j++)
            right = (int32_t)j == t.at[i] || logits[j] < logits[t.at[i]];
        if (right) must(pleach_session_feed(s, &t.at[i], 1, logits, &err));
    }
    pleach_ids_free(t.at);
    pleach_session_close(s);
    return right;
}

/* Facts recalled at each length, of those told so far. */
static void recall(const pleach_model *m, const char *kv, const ids *text, size_t longest,
                   int right[MOST_LENGTHS])
{
    pleach_session_settings set;
    pleach_session *s;
    float *logits = pl_alloc(vocab_of(m), sizeof *logits);
    pleach_session_settings_defaults(&set);
    set.kv = kv;
    set.context = longest + 64;
    must(pleach_session_open(m, &set, &s, &err));
    size_t length = 512, used = 0;
    int n = 0;
    for (int l = 0; length <= longest; l++, length *= 2) {
        for (;;) {
            size_t at = pleach_session_position(s), next = longest * (size_t)n / FACTS;
            if (n < FACTS && at >= next && at + 40 < length) {
                tell(m, s, n++);
                continue;
            }
            size_t most = PL_MIN(n < FACTS && next > at ? next - at : length, length - at);
            if (most == 0) break;
            must(pleach_session_feed(s, text->at + used, most, NULL, &err));
            used += most;
        }
        right[l] = 0;
        for (int f = 0; f < n; f++) right[l] += ask(m, s, f, logits);
        print_message("%s, %zu tokens: %d of %d facts recalled\n", kv, length, right[l], n);
    }
    pleach_session_close(s);
    pl_free(logits);
}

static void packed_caches_recall_as_much(void **state)
{
    const char *path = getenv("PLEACH_SMOLLM2"), *most = getenv("PLEACH_RETRIEVAL");
    (void)state;
    if (!path || access(path, R_OK) != 0) skip();
    size_t longest = most ? (size_t)atoi(most) : 2048, size;
    assert_true(longest >= 512 && longest <= 8192);
    char *text;
    int plain[MOST_LENGTHS], packed[MOST_LENGTHS];
    pleach_model *m = open_model(path, NULL, PLEACH_ARITH_INT16, 0);
    must(pl_read_file(PLEACH_TEST_DATA "/../bench/eval.txt", 1 << 20, &text, &size, &err));
    ids t = tokens_of(m, text, size);
    recall(m, "f32", &t, longest, plain);
    recall(m, "k8v3", &t, longest, packed);
    for (size_t l = 0; (size_t)512 << l <= longest; l++)
        if (packed[l] + 1 < plain[l]) fail_msg("k8v3 recalls less at %zu tokens", (size_t)512 << l);
    pleach_ids_free(t.at);
    pl_free(text);
    pleach_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(packed_caches_recall_as_much)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
