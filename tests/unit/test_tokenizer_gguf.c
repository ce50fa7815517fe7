/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers in GGUF metadata: the same ids as the tokenizer.json they came from, written as a
 * folder and read back; arrays of wrong types and lengths are refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "text_golden.h"
#include "scratch.h"
#include "format/gguf.h"
#include "text/buffer.h"

/* ---- a GGUF file of metadata alone --------------------------------------------------------- */

typedef struct image {
    pl_buffer bytes;
    uint64_t values;
} image;

static void put(image *f, const void *p, size_t n)
{
    assert_int_equal(pl_buffer_append(&f->bytes, p, n, NULL), PLEACH_OK);
}

static void u32(image *f, uint32_t v) { put(f, &v, 4); }
static void u64(image *f, uint64_t v) { put(f, &v, 8); }

static void text(image *f, const char *s, size_t n)
{
    u64(f, n);
    put(f, s, n);
}

/* Types by their numbers in the file: 4 u32, 5 i32, 6 f32, 7 bool, 8 string, 9 array, 0 u8. */
static void key(image *f, const char *name, uint32_t type)
{
    char full[96];
    snprintf(full, sizeof full, "tokenizer.%s", name);
    text(f, full, strlen(full));
    u32(f, type);
    f->values++;
}

static void array(image *f, const char *name, uint32_t type, uint64_t n)
{
    key(f, name, 9);
    u32(f, type);
    u64(f, n);
}

static void string(image *f, const char *name, const char *s)
{
    key(f, name, 8);
    text(f, s, strlen(s));
}

static void number(image *f, const char *name, uint32_t v)
{
    key(f, name, 4);
    u32(f, v);
}

static void boolean(image *f, const char *name, uint8_t v)
{
    key(f, name, 7);
    put(f, &v, 1);
}

static pleach_status open_image(const image *f, pl_tokenizer **t, pleach_error *err)
{
    image whole = {0};
    pl_gguf *g;
    put(&whole, "GGUF", 4);
    u32(&whole, 3);
    u64(&whole, 0);
    u64(&whole, f->values);
    put(&whole, f->bytes.data, f->bytes.size);
    if (pl_gguf_open_memory("image", whole.bytes.data, whole.bytes.size, &g, err))
        fail_msg("%s", err->message);
    pleach_status status = pl_tokenizer_open_gguf(g, t, err);
    pl_gguf_close(g);
    pl_free(whole.bytes.data);
    return status;
}

/* ---- byte-level BPE ------------------------------------------------------------------------ */

/* byte_bpe.json as a GGUF file has it. */
static void byte_bpe(image *f, const json_t *root, const char *pre)
{
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *id;
    json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
    json_t *added = json_object_get(root, "added_tokens");
    size_t n = json_object_size(vocab) + 2;
    const char *tokens[2048] = {0}, *literal;
    int32_t types[2048];
    assert_true(n < 2048);
    for (size_t i = 0; i < n; i++) types[i] = 1;
    json_object_foreach (vocab, literal, id) tokens[json_integer_value(id)] = literal;
    for (size_t i = 0; i < json_array_size(added); i++) {
        json_t *token = json_array_get(added, i);
        size_t at = (size_t)json_integer_value(json_object_get(token, "id"));
        tokens[at] = json_string_value(json_object_get(token, "content"));
        types[at] = json_is_true(json_object_get(token, "special")) ? 3 : 4;
    }
    string(f, "ggml.model", "gpt2");
    string(f, "ggml.pre", pre);
    array(f, "ggml.tokens", 8, n);
    for (size_t i = 0; i < n; i++) text(f, tokens[i], strlen(tokens[i]));
    array(f, "ggml.token_type", 5, n);
    put(f, types, n * sizeof *types);
    array(f, "ggml.merges", 8, json_array_size(merges));
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const char *s = json_string_value(json_array_get(merges, i));
        text(f, s, strlen(s));
    }
}

static void assert_same_ids(const pl_tokenizer *a, const pl_tokenizer *b, const char *s,
                            size_t size, unsigned flags)
{
    pl_ids x = {0}, y = {0};
    assert_int_equal(pl_tokenizer_encode(a, s, size, flags, &x, NULL), PLEACH_OK);
    assert_int_equal(pl_tokenizer_encode(b, s, size, flags, &y, NULL), PLEACH_OK);
    assert_int_equal(x.n, y.n);
    if (x.n) assert_memory_equal(x.ids, y.ids, x.n * sizeof *x.ids);
    pl_free(x.ids);
    pl_free(y.ids);
}

static void byte_bpe_and_its_folder(void **state)
{
    (void)state;
    image f = {0};
    pl_tokenizer *t, *json, *folder;
    pleach_error err;
    scratch dir;
    size_t size;
    json_t *root = text_json("byte_bpe.json");
    char *torture = text_read("torture.txt", &size);
    byte_bpe(&f, root, "gpt-2");
    number(&f, "ggml.bos_token_id", 11);
    number(&f, "ggml.eos_token_id", 12);
    boolean(&f, "ggml.add_bos_token", 1);
    string(&f, "chat_template", "{{ messages }}");
    if (open_image(&f, &t, &err)) fail_msg("%s", err.message);
    assert_int_equal(open_json(root, NULL, &json, &err), PLEACH_OK);
    scratch_open(&dir);
    assert_int_equal(pl_tokenizer_write(t, dir.dir, &err), PLEACH_OK);
    if (pl_tokenizer_open_folder(dir.dir, &folder, &err)) fail_msg("%s", err.message);
    for (unsigned flags = 0; flags < 4; flags++)
        assert_same_ids(t, folder, torture, size, flags);
    assert_same_ids(t, json, torture, size, PL_ENCODE_PLAIN);
    assert_same_ids(t, json, torture, size, PL_ENCODE_SPECIAL);
    pl_ids ids = {0};
    assert_int_equal(pl_tokenizer_encode(t, "a", 1, PL_ENCODE_BOS, &ids, &err), PLEACH_OK);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.ids[0], 11);
    assert_int_equal(pl_tokenizer_bos(folder), 11);
    assert_int_equal(pl_tokenizer_eos(folder), 12);
    assert_string_equal(pl_tokenizer_chat_template(folder), "{{ messages }}");
    assert_int_equal(pl_tokenizer_size(folder), pl_tokenizer_size(t));
    pl_free(ids.ids);
    scratch_close(&dir);
    pl_tokenizer_close(folder);
    pl_tokenizer_close(json);
    pl_tokenizer_close(t);
    pl_free(torture);
    pl_free(f.bytes.data);
    json_decref(root);
}

/* A12: every name stands for the pattern of its models; others are refused. */
static void pre_tokenizers_by_name(void **state)
{
    (void)state;
    static const struct { const char *name, *text; size_t parts; } cases[] = {
        /* Digits tell them apart: a run (merged by twos), single ones, threes. */
        {"gpt-2", "777777", 3}, {"smollm", "777777", 6}, {"llama-bpe", "777777", 2},
        {"qwen2", "777777", 6}, {"tekken", "777777", 6}, {"gpt-4o", "777777", 2},
    };
    json_t *root = text_json("byte_bpe.json");
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
    /* 7, 77, 777, 777777 */
    json_object_set_new(vocab, "77", json_integer(1002));
    json_object_set_new(vocab, "777", json_integer(1003));
    json_object_set_new(vocab, "777777", json_integer(1004));
    json_array_append_new(merges, json_string("7 7"));
    json_array_append_new(merges, json_string("77 7"));
    json_array_append_new(merges, json_string("777 777"));
    pl_tokenizer *t;
    pleach_error err;
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        image f = {0};
        pl_ids ids = {0};
        byte_bpe(&f, root, cases[i].name);
        if (open_image(&f, &t, &err)) fail_msg("%s", err.message);
        assert_int_equal(pl_tokenizer_encode(t, cases[i].text, 6, 0, &ids, &err), PLEACH_OK);
        if (ids.n != cases[i].parts) fail_msg("%s: %zu parts", cases[i].name, ids.n);
        pl_free(ids.ids);
        pl_free(f.bytes.data);
        pl_tokenizer_close(t);
    }
    image f = {0};
    byte_bpe(&f, root, "novel-bpe");
    assert_int_equal(open_image(&f, &t, &err), PLEACH_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "novel-bpe"));
    pl_free(f.bytes.data);
    json_decref(root);
}

/* ---- SentencePiece ------------------------------------------------------------------------- */

#define BLANK "\xe2\x96\x81"

static const struct { const char *token; float score; int32_t type; } pieces[] = {
    {"<unk>", 0, 2}, {"<s>", 0, 3}, {"</s>", 0, 3}, {"<0x0A>", 0, 6}, {"<0xC3>", 0, 6},
    {"<0xA9>", 0, 6}, {BLANK, -10, 1}, {"a", -11, 1}, {"b", -12, 1}, {"c", -13, 1},
    {"ab", -1, 1}, {"bc", -2, 1}, {BLANK "a", -3, 1}, {"abc", -4, 1}, {BLANK "abc", -5, 1},
    {"<user>", 0, 4}, {"unused", 0, 5}, {"s", -20, 1}, {"<", -21, 1}, {">", -22, 1}, {"<s", -23, 1},
};

static void sentencepiece_image(image *f, bool prefix)
{
    size_t n = PL_COUNT(pieces);
    string(f, "ggml.model", "llama");
    array(f, "ggml.tokens", 8, n);
    for (size_t i = 0; i < n; i++) text(f, pieces[i].token, strlen(pieces[i].token));
    array(f, "ggml.scores", 6, n);
    for (size_t i = 0; i < n; i++) put(f, &pieces[i].score, 4);
    array(f, "ggml.token_type", 5, n);
    for (size_t i = 0; i < n; i++) put(f, &pieces[i].type, 4);
    boolean(f, "ggml.add_space_prefix", prefix);
    number(f, "ggml.bos_token_id", 1);
    number(f, "ggml.eos_token_id", 2);
}

static void assert_pieces(const pl_tokenizer *t, const char *s, unsigned flags,
                          const char *const *want)
{
    pl_ids ids = {0};
    size_t n = 0;
    assert_int_equal(pl_tokenizer_encode(t, s, strlen(s), flags, &ids, NULL), PLEACH_OK);
    for (; want[n]; n++) {
        assert_true(n < ids.n);
        assert_int_equal(ids.ids[n], pl_tokenizer_find(t, want[n]));
    }
    assert_int_equal(ids.n, n);
    pl_free(ids.ids);
}

static void assert_decodes(const pl_tokenizer *t, int32_t id, const char *want)
{
    char *text;
    size_t size;
    assert_int_equal(pl_tokenizer_decode(t, &id, 1, true, &text, &size, NULL), PLEACH_OK);
    assert_string_equal(text, want);
    pl_free(text);
}

#define PIECES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void sentencepiece(void **state)
{
    (void)state;
    image f = {0}, plain = {0};
    pl_tokenizer *t, *without;
    pleach_error err;
    size_t size;
    sentencepiece_image(&f, true);
    sentencepiece_image(&plain, false);
    if (open_image(&f, &t, &err)) fail_msg("%s", err.message);
    if (open_image(&plain, &without, &err)) fail_msg("%s", err.message);
    assert_pieces(t, "abc", 0, PIECES(BLANK "abc"));
    assert_pieces(without, "abc", 0, PIECES("abc"));
    assert_pieces(t, "abc", PL_ENCODE_CONTINUE, PIECES("abc"));
    assert_pieces(t, "abc", PL_ENCODE_BOS, PIECES("<s>", BLANK "abc")); /* BOS is the default */
    assert_pieces(t, " abc", 0, PIECES(BLANK, BLANK "abc"));
    assert_pieces(without, "\n\xc3\xa9", 0, PIECES("<0x0A>", "<0xC3>", "<0xA9>"));
    assert_pieces(without, "\xe6\xbc\xa2", 0, PIECES("<unk>"));
    assert_pieces(without, "<user>a", 0, PIECES("<user>", "a"));
    assert_pieces(without, "<s>", 0, PIECES("<s", ">"));
    assert_pieces(without, "<s>", PL_ENCODE_SPECIAL, PIECES("<s>"));
    assert_decodes(t, 14, "abc"); /* the prefix space goes again */
    assert_decodes(without, 14, " abc");
    assert_memory_equal(pl_tokenizer_piece(t, 14, &size), " abc", 4);
    assert_int_equal(size, 4);
    pl_tokenizer_close(t);
    pl_tokenizer_close(without);
    pl_free(f.bytes.data);
    pl_free(plain.bytes.data);
}

/* ---- hostile arrays ------------------------------------------------------------------------ */

/* B07: the element type and the length of every array are checked. */
static void wrong_arrays(void **state)
{
    (void)state;
    static const struct {
        const char *model; /* what else is in the file: tokens, scores, types as (type, n) */
        uint32_t tokens, n_tokens, scores, n_scores, types, n_types;
        const char *word;
    } cases[] = {
        {"llama", 5, 3, 6, 3, 5, 3, "tokens"},        {"llama", 8, 3, 5, 3, 5, 3, "scores"},
        {"llama", 8, 3, 6, 2, 5, 3, "scores"},        {"llama", 8, 3, 6, 3, 0, 3, "token_type"},
        {"llama", 8, 3, 6, 3, 5, 4, "token_type"},    {"llama", 8, 3, 0, 0, 5, 3, "scores"},
        {"llama", 8, 0, 6, 0, 5, 0, "0 tokens"},      {"gpt2", 8, 3, 6, 3, 0, 3, "token_type"},
        {"gpt2", 8, 3, 6, 3, 5, 3, "pre"},            {"bert", 8, 3, 6, 3, 5, 3, "bert"},
    };
    static const uint8_t zeros[64];
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4};
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        image f = {0};
        pl_tokenizer *t;
        pleach_error err = {0};
        string(&f, "ggml.model", cases[i].model);
        array(&f, "ggml.tokens", cases[i].tokens, cases[i].n_tokens);
        for (uint32_t k = 0; k < cases[i].n_tokens; k++) {
            if (cases[i].tokens == 8) text(&f, &"abc"[k], 1);
            else u32(&f, k);
        }
        if (cases[i].n_scores) {
            array(&f, "ggml.scores", cases[i].scores, cases[i].n_scores);
            put(&f, zeros, sizes[cases[i].scores] * cases[i].n_scores);
        }
        array(&f, "ggml.token_type", cases[i].types, cases[i].n_types);
        put(&f, zeros, sizes[cases[i].types] * cases[i].n_types);
        assert_true(open_image(&f, &t, &err) < 0);
        if (!strstr(err.message, cases[i].word)) fail_msg("case %zu: %s", i, err.message);
        assert_null(t);
        pl_free(f.bytes.data);
    }
}

static void ids_out_of_range(void **state)
{
    (void)state;
    image f = {0};
    pl_tokenizer *t;
    pleach_error err;
    sentencepiece_image(&f, true);
    number(&f, "ggml.unknown_token_id", 1000);
    assert_int_equal(open_image(&f, &t, &err), PLEACH_ERR_FORMAT);
    assert_non_null(strstr(err.message, "unknown_token_id"));
    pl_free(f.bytes.data);
    f = (image){0};
    assert_int_equal(open_image(&f, &t, &err), PLEACH_ERR_MISSING);
    pl_free(f.bytes.data);
}

/* The real file, where there is one: a known text; and its folder, for tests/cli. */
static void real_model(void **state)
{
    (void)state;
    const char *path = getenv("PLEACH_SMOLLM2"), *dir = getenv("PLEACH_TOKENIZER_OUT");
    if (!path) skip();
    pl_gguf *g;
    pl_tokenizer *t;
    pleach_error err;
    static const int32_t want[] = {19556, 28, 905, 17, 216, 36, 34};
    pl_ids ids = {0};
    if (pl_gguf_open(path, &g, &err)) fail_msg("%s", err.message);
    if (pl_tokenizer_open_gguf(g, &t, &err)) fail_msg("%s", err.message);
    assert_int_equal(pl_tokenizer_size(t), 49152);
    assert_int_equal(pl_tokenizer_encode(t, "Hello, world! 42", 16, 0, &ids, &err), PLEACH_OK);
    assert_int_equal(ids.n, PL_COUNT(want));
    assert_memory_equal(ids.ids, want, sizeof want);
    if (dir) assert_int_equal(pl_tokenizer_write(t, dir, &err), PLEACH_OK);
    pl_free(ids.ids);
    pl_tokenizer_close(t);
    pl_gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_bpe_and_its_folder), cmocka_unit_test(pre_tokenizers_by_name),
        cmocka_unit_test(sentencepiece), cmocka_unit_test(wrong_arrays),
        cmocka_unit_test(ids_out_of_range), cmocka_unit_test(real_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
