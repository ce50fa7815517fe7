/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions over every kind of cache: the same bits however the tokens came and wherever the cache
 * has been, near to an f32 cache, and files that are refused unless they are just right. */
#include "session_ways.h"

#include <fcntl.h>

#include "base/half.h"

static void check_answers(const char *name)
{
    char path[512];
    int32_t ids[PROMPT], want_ids[ANSWER], got_ids[ANSWER];
    make_ids(ids, PROMPT, 7);
    snprintf(path, sizeof path, CHECKPOINTS "%s", name);
    for (size_t t = 0; t < PL_COUNT(types); t++) {
        float *want = NULL, *got = NULL;
        size_t bytes = 0;
        for (int threads = 1; threads <= 8; threads++) {
            pleach_model *m = open_model(path, NULL, PLEACH_ARITH_INT16, threads);
            size_t vocab = vocab_of(m);
            if (!want) {
                bytes = (ANSWER + 1) * vocab * sizeof *want;
                want = pl_alloc(1, bytes);
                got = pl_alloc(1, bytes);
                pleach_session *s = token_by_token(m, types[t], ids, want);
                answer(s, want, vocab, want_ids);
                pleach_session_close(s);
            }
            for (size_t w = threads > 1; w<PL_COUNT(ways); w += threads> 3 ? 2 : 1) {
                pleach_session *s = ways[w](m, types[t], ids, got);
                answer(s, got, vocab, got_ids);
                if (memcmp(got, want, bytes) || memcmp(got_ids, want_ids, sizeof want_ids))
                    fail_msg("%s, %s, %d threads, way %zu: another answer", name, types[t], threads,
                             w);
                pleach_session_close(s);
            }
            pleach_model_close(m);
        }
        pl_free(want);
        pl_free(got);
    }
}

static void the_answer_is_always_the_same(void **state)
{
    (void)state;
    check_answers("qwen3-qknorm");
    check_answers("mistral-swa");
    check_answers("gemma3");
    check_answers("qwen3-moe");
    check_answers("qwen35-hybrid");
}

/* ---- near to f32 ----------------------------------------------------------------------------- */

/* The RMS of the logits' difference over their deviation; of strangers it is 1.4. */
static double distance(const float *a, const float *b, size_t n)
{
    double sum = 0, squares = 0, errors = 0;
    for (size_t i = 0; i < n; i++) {
        double e = (double)a[i] - (double)b[i];
        sum += (double)a[i];
        squares += (double)a[i] * (double)a[i];
        errors += e * e;
    }
    double mean = sum / (double)n;
    return sqrt(errors / (double)n / (squares / (double)n - mean * mean));
}

/* The window's edges, and past them: what a layer dropped is what nobody sees. */
static void a_window_of_64_works_at_its_edges(void **state)
{
    (void)state;
    enum { N = 300 };
    static const size_t lengths[] = {1, 63, 64, 65, 127, 128, 129, 300};
    folder f = make_folder();
    char *text;
    size_t size;
    must(pl_read_file(CHECKPOINTS "mistral-swa/config.json", 1 << 20, &text, &size, &err));
    char *at = strstr(text, "\"sliding_window\": 16");
    assert_non_null(at);
    memcpy(at, "\"sliding_window\": 64", 20);
    folder_write(&f, "config.json", text);
    pl_free(text);
    folder_link(&f, "model.safetensors", CHECKPOINTS "mistral-swa/model.safetensors");
    pleach_model *m = open_model(f.path, NULL, PLEACH_ARITH_INT16, 2);
    size_t vocab = vocab_of(m);
    int32_t ids[N];
    make_ids(ids, N, 3);
    float *plain = pl_alloc(N, vocab * sizeof *plain), *row = pl_alloc(vocab, sizeof *row);
    pleach_session *s = open_kv(m, "f32", N, 512);
    must(pleach_session_feed_all(s, ids, N, 0, plain, &err));
    pleach_session_close(s);
    const struct {
        const char *kv;
        double most;
    } kinds[] = {{"f32", 0},    {"bf16", 0.02},      {"k8v8", 0.04},  {"k8v3", 0.5},
                 {"k4v4", 0.4}, {"k8v3@1000", 0.02}, {"k8v3@64", 0.4}};
    for (size_t k = 0; k < PL_COUNT(kinds); k++) {
        double worst = 0;
        s = open_kv(m, kinds[k].kv, N, 512);
        for (size_t i = 0, l = 0; i < N; i++) {
            must(pleach_session_feed(s, &ids[i], 1, row, &err));
            if (i + 1 != lengths[l]) continue;
            worst = fmax(worst, distance(plain + i * vocab, row, vocab));
            l++;
        }
        print_message("%s: logits off by %.4f of their deviation at most\n", kinds[k].kv, worst);
        assert_true(worst <= kinds[k].most);
        pleach_cache_info info;
        pleach_session_cache_info(s, &info);
        assert_true(info.bytes <= info.context_bytes);
        if (!info.recent) assert_true(info.bytes <= 3 * 64 * info.token_bytes);
        pleach_session_close(s);
    }
    pl_free(plain);
    pl_free(row);
    pleach_model_close(m);
    remove_folder(&f, (const char *const[]){"config.json", "model.safetensors"}, 2);
}

/* What is held while tokens come, at once or one by one, is no more than was said, and longer
 * contexts take no less. */
static void a_cache_takes_no_more_than_it_says(void **state)
{
    (void)state;
    int32_t ids[512];
    make_ids(ids, 512, 5);
    pleach_model *m = open_model(CHECKPOINTS "mistral-swa", NULL, PLEACH_ARITH_INT16, 2);
    const size_t contexts[] = {64, 65, 128, 129, 512}, batches[] = {1, 100, 512};
    for (size_t b = 0; b < PL_COUNT(batches); b++)
        for (size_t i = 0, last = 0; i < PL_COUNT(contexts); i++) {
            pleach_cache_info info;
            pleach_session *s = open_kv(m, "k8v3@128", contexts[i], batches[b]);
            pleach_session_cache_info(s, &info);
            assert_true(info.context_bytes >= last);
            last = info.context_bytes;
            must(pleach_session_feed(s, ids, contexts[i], NULL, &err));
            pleach_session_cache_info(s, &info);
            assert_true(info.bytes <= last);
            if (batches[b] == 512) assert_int_equal(info.bytes, last);
            pleach_session_close(s);
        }
    pleach_error err;
    pleach_session_settings set;
    pleach_session *s;
    pleach_session_settings_defaults(&set);
    set.kv = "k8v3";
    set.kv_recent = SIZE_MAX;
    set.context = 200;
    must(pleach_session_open(m, &set, &s, &err));
    must(pleach_session_feed(s, ids, 200, NULL, &err));
    pleach_session_close(s);
    set.context = SIZE_MAX;
    assert_int_equal(pleach_session_open(m, &set, &s, &err), PLEACH_ERR_SHAPE);
    must(pleach_kv_check(NULL, &err));
    pleach_model_close(m);
}

/* qwen3-qknorm with two channels of every key 32 times as large and those of the query as much
 * smaller: the same function. Channels that a rotation turns together get the same factor. */
static void plant_outliers(const folder *f)
{
    enum { HALF = 32, CHANNEL = 5 };
    const char *source = CHECKPOINTS "qwen3-qknorm/model.safetensors";
    pl_safetensors *s;
    char *bytes, *path = pl_path_join(f->path, "model.safetensors");
    size_t size;
    must(pl_read_file(source, 1 << 28, &bytes, &size, &err));
    must(pl_safetensors_open_memory(source, bytes, size, &s, &err));
    for (size_t i = 0; i < pl_safetensors_count(s); i++) {
        const pl_tensor *t = pl_safetensors_tensor(s, i);
        bool key = strstr(t->name, "k_norm") != NULL;
        if (!key && !strstr(t->name, "q_norm")) continue;
        assert_true(t->type == PL_BF16 && t->n_bytes == 2 * 2 * HALF);
        for (int c = CHANNEL; c < 2 * HALF; c += HALF) {
            uint16_t w, *at = (uint16_t *)(uintptr_t)t->data + c;
            memcpy(&w, at, sizeof w);
            w = pl_f32_to_bf16(pl_bf16_to_f32(w) * (key ? 32 : 1 / 32.0f));
            memcpy(at, &w, sizeof w);
        }
    }
    must(pl_write_file(path, bytes, size, &err));
    pl_safetensors_close(s);
    pl_free(bytes);
    pl_free(path);
    folder_link(f, "config.json", CHECKPOINTS "qwen3-qknorm/config.json");
}

static void outliers_among_keys_are_warned_of(void **state)
{
    (void)state;
    enum { N = 100 };
    const struct {
        const char *kv;
        double most;
        bool warns;
    } kinds[] = {{"f32", 0, false},   {"bf16", 0.02, false}, {"k8v8", 0.1, false},
                 {"k5v8", 0.8, true}, {"k4v8", 1.2, true},   {"k8v8,1:k4v4", 1.2, true}};
    folder f = make_folder();
    plant_outliers(&f);
    pleach_model *m = open_model(CHECKPOINTS "qwen3-qknorm", NULL, PLEACH_ARITH_INT16, 2);
    pleach_model *planted = open_model(f.path, NULL, PLEACH_ARITH_INT16, 2);
    size_t vocab = vocab_of(m);
    float *want = pl_alloc(vocab, sizeof *want), *got = pl_alloc(vocab, sizeof *got);
    int32_t ids[N];
    make_ids(ids, N, 11);
    pleach_session *s = open_kv(m, "f32", N, 512);
    must(pleach_session_feed(s, ids, N, want, &err));
    pleach_session_close(s);
    for (size_t k = 0; k < PL_COUNT(kinds); k++) {
        pleach_cache_info info;
        s = open_kv(planted, kinds[k].kv, N, 512);
        must(pleach_session_feed(s, ids, N, got, &err));
        double off = distance(want, got, vocab);
        print_message("%s: logits off by %.4f of their deviation\n", kinds[k].kv, off);
        assert_true(off <= kinds[k].most);
        pleach_session_cache_info(s, &info);
        assert_true((info.warning != NULL) == kinds[k].warns);
        pleach_session_close(s);
    }
    s = open_kv(m, "k4v4", N, 512);
    pleach_cache_info info;
    pleach_session_cache_info(s, &info);
    assert_null(info.warning);
    pleach_session_close(s);
    s = open_kv(m, "k8v8,1:k2v8", N, 512);
    pleach_session_cache_info(s, &info);
    assert_non_null(strstr(info.warning, "2-bit keys"));
    pleach_session_close(s);
    pl_free(want);
    pl_free(got);
    pleach_model_close(m);
    pleach_model_close(planted);
    remove_folder(&f, (const char *const[]){"config.json", "model.safetensors"}, 2);
}

/* A prompt that shares only its first tokens with what a session holds: `cached` of them are used.
 */
static void check_reuse(const char *name, const char *kv, size_t shared, size_t cached)
{
    char path[512];
    snprintf(path, sizeof path, CHECKPOINTS "%s", name);
    pleach_model *m = open_model(path, NULL, PLEACH_ARITH_INT16, 2);
    pleach_generation set;
    pleach_generation_stats stats;
    int32_t ids[300], other[300];
    make_ids(ids, 300, 1);
    make_ids(other, 300, 2);
    memcpy(other, ids, shared * sizeof *ids);
    pleach_generation_defaults(&set);
    set.max_tokens = 10;
    set.ignore_end = 1;
    pleach_session *used = open_kv(m, kv, 512, 512), *fresh = open_kv(m, kv, 512, 512);
    const int32_t *a, *b;
    must(pleach_generate(used, ids, 300, &set, NULL, NULL, NULL, &err));
    must(pleach_generate(used, other, 250, &set, NULL, NULL, &stats, &err));
    assert_int_equal(stats.cached_tokens, cached);
    must(pleach_generate(fresh, other, 250, &set, NULL, NULL, NULL, &err));
    assert_int_equal(pleach_session_ids(used, &a), 260);
    assert_int_equal(pleach_session_ids(fresh, &b), 260);
    assert_memory_equal(a, b, 260 * sizeof *a);
    pleach_session_close(used);
    pleach_session_close(fresh);
    pleach_model_close(m);
}

static void generation_uses_what_is_left_of_a_prefix(void **state)
{
    (void)state;
    check_reuse("qwen3-qknorm", "k8v3", 200, 200);
    check_reuse("qwen3-qknorm", "k8v3@64", 200, 192); /* to where a block begins */
    check_reuse("qwen3-qknorm", "k8v3@128", 200, 128);
    check_reuse("qwen3-qknorm", "k8v3@1000", 200, 200); /* still the same block */
    check_reuse("mistral-swa", "f32", 20, 0);           /* the window has left it behind */
    check_reuse("mistral-swa", "f32", 249, 249);
}

/* Prompts at the context's end: an answer ends there, and nothing spins. */
static void the_context_ends_an_answer(void **state)
{
    (void)state;
    pleach_model *m = open_model(CHECKPOINTS "qwen3-qknorm", NULL, PLEACH_ARITH_INT16, 2);
    int32_t ids[65];
    make_ids(ids, 65, 1);
    for (size_t n = 62; n <= 65; n++) {
        pleach_session *s = open_kv(m, "k8v3", 64, 512);
        pleach_generation set;
        pleach_generation_stats stats;
        pleach_error err;
        pleach_generation_defaults(&set);
        set.ignore_end = 1;
        set.max_tokens = 1000;
        pleach_status status = pleach_generate(s, ids, n, &set, NULL, NULL, &stats, &err);
        assert_int_equal(status, n <= 64 ? PLEACH_OK : PLEACH_ERR_LIMIT);
        if (n <= 64) {
            assert_int_equal(stats.finish, PLEACH_FINISH_LENGTH);
            assert_int_equal(stats.new_tokens, 64 - n);
            assert_int_equal(pleach_session_position(s), 64);
        }
        pleach_session_close(s);
    }
    pleach_model_close(m);
}

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct saved {
    folder f;
    char *path;
    char *bytes;
    size_t size;
} saved;

static saved save(const pleach_model *m, const char *kv, size_t n)
{
    saved v = {.f = make_folder()};
    int32_t ids[PROMPT];
    make_ids(ids, PROMPT, 7);
    v.path = pl_path_join(v.f.path, "session");
    pleach_session *s = open_kv(m, kv, 512, 512);
    must(pleach_session_feed(s, ids, n, NULL, &err));
    must(pleach_session_save(s, v.path, &err));
    pleach_session_close(s);
    must(pl_read_file(v.path, 1 << 28, &v.bytes, &v.size, &err));
    return v;
}

static void saved_remove(saved *v)
{
    remove_folder(&v->f, (const char *const[]){"session"}, 1);
    pl_free(v->path);
    pl_free(v->bytes);
}

/* The file is refused with these words, and the session is as it was. */
static void refuse(const pleach_model *m, const char *kv, size_t context, const char *path,
                   pleach_status status, const char *part)
{
    const int32_t ids[] = {5, 6, 7}, *held;
    float *want = pl_alloc(vocab_of(m), 4), *got = pl_alloc(vocab_of(m), 4);
    pleach_session *s = open_kv(m, kv, context, 512), *same = open_kv(m, kv, context, 512);
    must(pleach_session_feed(s, ids, 2, NULL, &err));
    must(pleach_session_feed(same, ids, 3, want, &err));
    assert_refused(pleach_session_load(s, path, &err), status, part);
    assert_int_equal(pleach_session_ids(s, &held), 2);
    assert_true(held[0] == 5 && held[1] == 6);
    must(pleach_session_feed(s, ids + 2, 1, got, &err));
    assert_memory_equal(got, want, vocab_of(m) * 4);
    pleach_session_close(s);
    pleach_session_close(same);
    pl_free(want);
    pl_free(got);
}

/* The file with `from` once replaced by as long a `to`. */
static void write_changed(const saved *v, const char *from, const char *to)
{
    size_t n = strlen(from);
    char *copy = pl_alloc(v->size, 1);
    memcpy(copy, v->bytes, v->size);
    for (size_t i = 0; i + n <= v->size; i++)
        if (memcmp(copy + i, from, n) == 0) {
            memcpy(copy + i, to, n);
            must(pl_write_file(v->path, copy, v->size, &err));
            pl_free(copy);
            return;
        }
    fail_msg("no \"%s\" in the file", from);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    pleach_model *m = open_model(CHECKPOINTS "qwen3-qknorm", NULL, PLEACH_ARITH_INT16, 2);
    pleach_model *other = open_model(CHECKPOINTS "llama-rope3", NULL, PLEACH_ARITH_INT16, 2);
    pleach_model *bf16 = open_model(CHECKPOINTS "qwen3-qknorm", NULL, PLEACH_ARITH_BF16, 2);
    folder f = make_folder();
    plant_outliers(&f);
    pleach_model *trained = open_model(f.path, NULL, PLEACH_ARITH_INT16, 2); /* of the same shape */
    saved v = save(m, "k8v3", 100);
    refuse(trained, "k8v3", 512, v.path, PLEACH_ERR_MISMATCH, "another model: expected ");
    refuse(other, "k8v3", 512, v.path, PLEACH_ERR_MISMATCH, "another model: expected ");
    refuse(bf16, "k8v3", 512, v.path, PLEACH_ERR_MISMATCH, "expected bf16, found int16");
    refuse(m, "k8v4", 512, v.path, PLEACH_ERR_MISMATCH, "expected k8v4, found k8v3");
    refuse(m, "k8v3@64", 512, v.path, PLEACH_ERR_MISMATCH, "recent tokens: expected 64, found 0");
    refuse(m, "k8v3,1:f32", 512, v.path, PLEACH_ERR_MISMATCH, "expected k8v3,1:f32, found k8v3");
    refuse(m, "k8v3", 99, v.path, PLEACH_ERR_LIMIT, "100 tokens and the context holds 99");
    refuse(m, "k8v3", 512, CHECKPOINTS "qwen3-qknorm/model.safetensors", PLEACH_ERR_FORMAT,
           "expected the format pleach-session, found pt");
    refuse(m, "k8v3", 512, CHECKPOINTS "qwen3-qknorm/config.json", PLEACH_ERR_FORMAT,
           "config.json");
    refuse(m, "k8v3", 512, "no-such-file", PLEACH_ERR_MISSING, "no-such-file");
    write_changed(&v, "\"version\":\"1\"", "\"version\":\"2\"");
    refuse(m, "k8v3", 512, v.path, PLEACH_ERR_MISMATCH, "version of the session file: expected 1");
    write_changed(&v, "\"kv\":\"k8v3\"", "\"kv\":\"k8v2\""); /* still of the wrong size */
    refuse(m, "k8v2", 512, v.path, PLEACH_ERR_FORMAT, "expected U8 pages");
    write_changed(&v, "layers.1.pages", "layers.9.pages");
    refuse(m, "k8v3", 512, v.path, PLEACH_ERR_FORMAT, "layers.1.pages");
    write_changed(&v, "\"checksum\":\"", "\"checksun\":\"");
    refuse(m, "k8v3", 512, v.path, PLEACH_ERR_MISMATCH, "checksum");
    saved_remove(&v);
    pleach_model_close(m);
    pleach_model_close(other);
    pleach_model_close(bf16);
    pleach_model_close(trained);
    remove_folder(&f, (const char *const[]){"config.json", "model.safetensors"}, 2);
}

/* Loads it: refused, or the very session. */
static bool loads(const pleach_model *m, const saved *v, const int32_t *ids, size_t n)
{
    pleach_session *s = open_kv(m, "k4v2", 512, 512);
    pleach_error err = {0};
    const int32_t *held;
    bool good = pleach_session_load(s, v->path, &err) == PLEACH_OK;
    if (good) {
        assert_int_equal(pleach_session_ids(s, &held), n);
        assert_memory_equal(held, ids, n * sizeof *ids);
    } else {
        assert_true(err.message[0] && pleach_session_position(s) == 0);
    }
    pleach_session_close(s);
    return good;
}

static void write_bytes(const char *path, const char *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT, 0666);
    assert_true(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    enum { N = 70 };
    pleach_model *m = open_model(CHECKPOINTS "qwen3-qknorm", NULL, PLEACH_ARITH_INT16, 1);
    saved v = save(m, "k4v2", N);
    int32_t ids[PROMPT];
    make_ids(ids, PROMPT, 7);
    assert_true(loads(m, &v, ids, N));
    for (size_t cut = 0; cut < v.size; cut += cut < 2000 ? 37 : 4099) {
        write_bytes(v.path, v.bytes, cut);
        assert_false(loads(m, &v, ids, N));
    }
    uint64_t header = 0;
    memcpy(&header, v.bytes, 8);
    size_t data = 8 + header;
    for (size_t at = 0; at < v.size; at += at < data ? 1 : 509) {
        v.bytes[at] ^= 1 << at % 7;
        write_bytes(v.path, v.bytes, v.size);
        /* In the header a key nobody asks for, or a blank, may change. */
        if (loads(m, &v, ids, N) && at >= data) fail_msg("a flipped bit at byte %zu is taken", at);
        v.bytes[at] ^= 1 << at % 7;
    }
    saved_remove(&v);
    pleach_model_close(m);
}

static void every_type_is_saved_and_loaded(void **state)
{
    (void)state;
    static const int keys[] = {8, 5, 4, 2}, values[] = {8, 5, 4, 3, 2};
    pleach_model *m = open_model(CHECKPOINTS "qwen3-qknorm", NULL, PLEACH_ARITH_INT16, 1);
    size_t vocab = vocab_of(m);
    float *want = pl_alloc(vocab, sizeof *want), *got = pl_alloc(vocab, sizeof *got);
    int32_t ids[PROMPT];
    make_ids(ids, PROMPT, 7);
    for (int i = 0; i < 22; i++) {
        char kv[16];
        snprintf(kv, sizeof kv, "k%dv%d@64", keys[i % 4], values[i / 4 % 5]);
        if (i >= 20) snprintf(kv, sizeof kv, "%s", i == 20 ? "f32" : "bf16");
        saved v = save(m, kv, 70);
        pleach_session *s = open_kv(m, kv, 512, 512), *whole = open_kv(m, kv, 512, 512);
        must(pleach_session_load(s, v.path, &err));
        must(pleach_session_feed(s, ids + 70, 80, got, &err));
        must(pleach_session_feed(whole, ids, 150, want, &err));
        assert_memory_equal(got, want, vocab * sizeof *want);
        pleach_session_close(s);
        pleach_session_close(whole);
        saved_remove(&v);
    }
    pl_free(want);
    pl_free(got);
    pleach_model_close(m);
}

static void check_files(const char *path)
{
    pleach_model *m = open_model(path, NULL, PLEACH_ARITH_INT16, 2);
    for (size_t t = 0; t < PL_COUNT(types); t++) {
        saved v = save(m, types[t], 100);
        int32_t ids[PROMPT];
        char *bytes;
        size_t size;
        make_ids(ids, PROMPT, 7);
        pleach_session *s = open_kv(m, types[t], 300, 7);
        must(pleach_session_feed(s, ids + 1, 120, NULL, &err));
        must(pleach_session_truncate(s, 0, &err));
        must(pleach_session_feed(s, ids, 110, NULL, &err));
        must(pleach_session_truncate(s, 100, &err));
        must(pleach_session_save(s, v.path, &err));
        must(pl_read_file(v.path, 1 << 28, &bytes, &size, &err));
        assert_int_equal(size, v.size);
        assert_memory_equal(bytes, v.bytes, size);
        must(pleach_session_truncate(s, 0, &err)); /* nothing is a session too */
        must(pleach_session_save(s, v.path, &err));
        must(pleach_session_feed(s, ids, 9, NULL, &err));
        must(pleach_session_load(s, v.path, &err));
        assert_int_equal(pleach_session_position(s), 0);
        must(pleach_session_feed(s, ids, 9, NULL, &err));
        pl_free(bytes);
        pleach_session_close(s);
        saved_remove(&v);
    }
    pleach_model_close(m);
}

/* Two files of the same tokens are the same bytes, whatever the session did before. */
static void files_depend_on_tokens_alone(void **state)
{
    (void)state;
    check_files(CHECKPOINTS "mistral-swa");
    check_files(CHECKPOINTS "qwen35-hybrid");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_answer_is_always_the_same),
        cmocka_unit_test(a_window_of_64_works_at_its_edges),
        cmocka_unit_test(a_cache_takes_no_more_than_it_says),
        cmocka_unit_test(outliers_among_keys_are_warned_of),
        cmocka_unit_test(generation_uses_what_is_left_of_a_prefix),
        cmocka_unit_test(the_context_ends_an_answer),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(every_type_is_saved_and_loaded),
        cmocka_unit_test(files_depend_on_tokens_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
