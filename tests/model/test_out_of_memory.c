/* SPDX-License-Identifier: Apache-2.0
 *
 * Running out of memory: each allocation of a piece of work fails in turn, and the work ends with
 * an error, no crash, nothing kept and nothing written; the next attempt with memory succeeds. */
#include "quantised_model.h"
#include "text_model.h"

#include <pthread.h>
#include <sys/stat.h>

/* ---- allocations ----------------------------------------------------------------------------- */

static struct {
    long left; /* allocations until one fails; below 0: none does */
    long made; /* since the start of an attempt */
    bool failed;
} heap = {.left = -1};

static bool refuse(void)
{
    __atomic_add_fetch(&heap.made, 1, __ATOMIC_RELAXED);
    if (__atomic_load_n(&heap.left, __ATOMIC_RELAXED) < 0) return false;
    if (__atomic_fetch_sub(&heap.left, 1, __ATOMIC_RELAXED) != 0) return false;
    heap.failed = true;
    return true;
}

/* The library allocates by this call alone (base/memory.c); the program's own comes first. What
 * jansson allocates is left out: releases up to 2.14 crash when their hash tables cannot grow. */
void *aligned_alloc(size_t alignment, size_t size)
{
    void *p;
    return refuse() || posix_memalign(&p, alignment, size) ? NULL : p;
}

/* ---- attempts -------------------------------------------------------------------------------- */

typedef pleach_status work_fn(pleach_error *err);

/* Fails allocation 0, 1, 2, ... of the work, at most `most` of them evenly spread. */
static void fail_each(const char *name, work_fn *f, long most)
{
    pleach_error err = {0};
    if (f(&err) != PLEACH_OK) fail_msg("%s: %s", name, err.message);
    heap.made = 0;
    if (f(&err) != PLEACH_OK) fail_msg("%s, again: %s", name, err.message);
    long all = heap.made, step = PL_MAX(all / most, 1), unharmed = 0, unreached = 0;
    for (long i = 0; i < all; i += step) {
        memset(&err, 0, sizeof err);
        heap.failed = false;
        heap.left = i;
        pleach_status status = f(&err);
        heap.left = -1;
        if (!heap.failed)
            unreached++; /* buffers grow by what threads and clock make of the work */
        else if (status == PLEACH_OK)
            unharmed++; /* a warning's text, a progress line: work goes on without */
        else if (status != PLEACH_ERR_MEMORY || !*err.message)
            fail_msg("%s, allocation %ld of %ld: status %d, \"%s\"", name, i, all, status,
                     err.message);
    }
    print_message("%s: %ld allocations, every %ld of them failed; %ld did no harm, %ld were not "
                  "reached\n", name, all, step, unharmed, unreached);
    assert_true(unreached * step < PL_MAX(all / 10, 1));
    if (f(&err) != PLEACH_OK) fail_msg("%s, at the end: %s", name, err.message);
}

static int no_text(void *user, const char *text, size_t size)
{
    (void)user;
    (void)text;
    (void)size;
    return 0;
}

/* Opens a model and answers a prompt of six tokens with four. */
static pleach_status answer(const char *path, pleach_error *err)
{
    static const int32_t prompt[] = {1, 2, 3, 4, 5, 6};
    pleach_model *m = NULL;
    pleach_session *s = NULL;
    pleach_model_settings settings;
    pleach_generation g;
    pleach_model_settings_defaults(&settings);
    pleach_generation_defaults(&g);
    settings.threads = 2;
    g.max_tokens = 4;
    g.ignore_end = 1;
    pleach_status status = pleach_model_open(path, &settings, &m, err);
    if (status == PLEACH_OK) status = pleach_session_open(m, NULL, &s, err);
    if (status == PLEACH_OK)
        status = pleach_generate(s, prompt, 6, &g, no_text, NULL, NULL, err);
    pleach_session_close(s);
    pleach_model_close(m);
    return status;
}

/* Tokens fed to a packed cache and its fork, saved, loaded, and taken back past a window. */
static pleach_status keep(pleach_session *s, const char *path, pleach_session **fork,
                          pleach_error *err)
{
    int32_t ids[140];
    for (int i = 0; i < 140; i++) ids[i] = i * 7 % 384;
    PL_TRY(pleach_session_feed(s, ids, 140, NULL, err));
    PL_TRY(pleach_session_fork(s, fork, err));
    PL_TRY(pleach_session_feed(*fork, ids, 60, NULL, err));
    PL_TRY(pleach_session_save(*fork, path, err));
    PL_TRY(pleach_session_load(s, path, err));
    assert_int_equal(pleach_session_position(s), 200);
    PL_TRY(pleach_session_truncate(s, 30, err));
    return pleach_session_feed(s, ids, 70, NULL, err);
}

static pleach_status keep_sessions(pleach_error *err)
{
    const char *path = in_work("session");
    char partial[600];
    pleach_model *m = NULL;
    pleach_session *s = NULL, *fork = NULL;
    pleach_session_settings set;
    pleach_session_settings_defaults(&set);
    set.kv = "k8v3,1:bf16";
    set.kv_recent = 64;
    pleach_status status = pleach_model_open(CHECKPOINTS "mistral-swa", NULL, &m, err);
    if (status == PLEACH_OK) status = pleach_session_open(m, &set, &s, err);
    if (status == PLEACH_OK) status = keep(s, path, &fork, err);
    pleach_session_close(s);
    pleach_session_close(fork);
    pleach_model_close(m);
    unlink(path);
    snprintf(partial, sizeof partial, "%s.partial", path);
    assert_int_not_equal(unlink(partial), 0);
    return status;
}

static folder text_folder;

static pleach_status answer_packed(pleach_error *err)
{
    return answer(CHECKPOINTS "llama-packed", err);
}

static pleach_status answer_text(pleach_error *err)
{
    return answer(text_folder.path, err);
}

static pleach_status score(pleach_error *err)
{
    static const char text[] = "The quick brown fox jumps over the lazy dog, and again it does.";
    pleach_model *m = NULL;
    pleach_eval_settings settings;
    pleach_eval_result result;
    pleach_eval_settings_defaults(&settings);
    settings.context = 16;
    pleach_status status = pleach_model_open(text_folder.path, NULL, &m, err);
    if (status == PLEACH_OK)
        status = pleach_eval(m, m, text, sizeof text - 1, &settings, &result, err);
    pleach_model_close(m);
    return status;
}

static pleach_status encode(pleach_error *err)
{
    static float src[4 * 64];
    static uint32_t codes[4 * 64 * 3 / 32];
    static uint16_t scales[4];
    const pleach_trellis t = {
        .bits = 3, .state_bits = 12, .block = 64, .axis = 1, .rows = 4, .cols = 64};
    for (int i = 0; i < 256; i++) src[i] = (float)(i * 37 % 101 - 50);
    return pleach_trellis_encode(&t, codes, scales, src, NULL, err);
}

/* ---- a batch --------------------------------------------------------------------------------- */

typedef struct ends {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t lasts;
    pleach_status status; /* of an answer that failed */
    pleach_error *err;
} ends;

static void note_end(void *user, const pleach_answer_end *e)
{
    ends *n = user;
    pthread_mutex_lock(&n->lock);
    if (e->status) {
        n->status = e->status;
        snprintf(n->err->message, sizeof n->err->message, "%s", e->message);
    }
    n->lasts += e->last != 0;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

/* Three requests one after the other that share a beginning, with all that one may ask. */
static pleach_status serve_three(pleach_batch *b, pleach_error *err)
{
    int32_t ids[150];
    ends n = {.status = PLEACH_OK, .err = err};
    pthread_mutex_init(&n.lock, NULL);
    pthread_cond_init(&n.changed, NULL);
    for (int i = 0; i < 150; i++) ids[i] = i * 7 % 256;
    for (size_t i = 0; n.status == PLEACH_OK && i < 3; i++) {
        pleach_request r;
        uint64_t ticket = 0;
        pleach_request_defaults(&r);
        r.prompt = ids;
        r.n_prompt = 150 - i;
        r.generation.max_tokens = 4;
        r.generation.ignore_end = 1;
        r.generation.sampling.temperature = (float)i;
        r.generation.sampling.presence_penalty = 0.5f;
        r.generation.grammar = i == 1 ? "root ::= [a-z]+" : NULL;
        r.answers = i == 2 ? 3 : 1;
        r.logprobs = r.top_logprobs = i == 1;
        r.prompt_logprobs = i == 2;
        r.on_end = note_end;
        r.user = &n;
        n.status = pleach_batch_submit(b, &r, &ticket, err);
        pthread_mutex_lock(&n.lock);
        while (n.status == PLEACH_OK && n.lasts <= i) pthread_cond_wait(&n.changed, &n.lock);
        while (n.status != PLEACH_OK && ticket == i + 1 && n.lasts <= i)
            pthread_cond_wait(&n.changed, &n.lock);
        pthread_mutex_unlock(&n.lock);
    }
    pthread_mutex_destroy(&n.lock);
    pthread_cond_destroy(&n.changed);
    return n.status;
}

static pleach_status serve(pleach_error *err)
{
    pleach_model *m = NULL;
    pleach_batch *b = NULL;
    pleach_batch_settings set;
    pleach_model_settings settings;
    pleach_batch_settings_defaults(&set);
    pleach_model_settings_defaults(&settings);
    settings.threads = 2;
    set.session.kv_recent = 64;
    set.parallel = 2;
    set.chunk = 60;
    pleach_status status = pleach_model_open(text_folder.path, &settings, &m, err);
    if (status == PLEACH_OK) status = pleach_batch_open(m, &set, &b, err);
    if (status == PLEACH_OK) status = serve_three(b, err);
    pleach_batch_close(b);
    pleach_model_close(m);
    return status;
}

static bool opens(const char *path)
{
    pleach_model *m = NULL;
    pleach_status status = pleach_model_open(path, NULL, &m, NULL);
    pleach_model_close(m);
    return status == PLEACH_OK;
}

/* What lies under the final name after a failure is whole: clearing up failed. */
static pleach_status quantize(const char *calib, pleach_error *err)
{
    pleach_quantize_settings s;
    struct stat st;
    const char *out = in_work("out");
    pleach_quantize_settings_defaults(&s);
    s.calib = calib;
    s.calib_tokens = 64;
    s.threads = 1;
    s.force = 1;
    s.discard_partial = 1;
    pleach_status status = pleach_quantize(text_folder.path, out, &s, NULL, err);
    long made = heap.made; /* what looking at the result takes is not part of the work */
    heap.left = -1;
    assert_true(stat(out, &st) == 0 ? opens(out) : status != PLEACH_OK);
    heap.made = made;
    char command[1200];
    snprintf(command, sizeof command, "rm -rf '%s' '%s.partial'", out, out);
    assert_int_equal(system(command), 0);
    return status;
}

static pleach_status quantize_plain(pleach_error *err)
{
    return quantize("none", err);
}

static pleach_status quantize_calibrated(pleach_error *err)
{
    return quantize(in_work("calib.txt"), err);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_answers(void **state)
{
    (void)state;
    fail_each("packed model", answer_packed, 400);
    fail_each("model with a tokenizer", answer_text, 400);
}

static void test_sessions(void **state)
{
    (void)state;
    fail_each("sessions kept", keep_sessions, 200);
}

static void test_batch(void **state)
{
    (void)state;
    fail_each("batch", serve, 300);
}

static void test_score(void **state)
{
    (void)state;
    fail_each("score", score, 200);
}

static void test_encode(void **state)
{
    (void)state;
    fail_each("encode", encode, 100);
}

static void test_quantize(void **state)
{
    (void)state;
    fail_each("quantize", quantize_plain, 100);
    fail_each("quantize with calibration", quantize_calibrated, 60);
}

static int set_up_all(void **state)
{
    text_folder = make_model(NULL);
    set_up(state);
    char text[801];
    for (int i = 0; i < 800; i++) text[i] = (char)(' ' + i * 7 % 90);
    folder_write(&work, "calib.txt", (text[800] = 0, text));
    return 0;
}

static int tear_down_all(void **state)
{
    remove_folder(&text_folder, (const char *const[]){"config.json", "model.safetensors",
                                                      "tokenizer.json"}, 3);
    return tear_down(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_score),
        cmocka_unit_test(test_quantize),
    };
    return cmocka_run_group_tests(tests, set_up_all, tear_down_all);
}
