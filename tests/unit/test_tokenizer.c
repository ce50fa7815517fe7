/* SPDX-License-Identifier: Apache-2.0
 *
 * Ids equal those of the `tokenizers` package on torture.txt under every supported setting; long
 * and ill-formed texts, holes in the vocabulary and special tokens behave; what is not supported is
 * refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "text_golden.h"
#include "scratch.h"

static pl_tokenizer *open_patched(const char *name, const char *patch)
{
    char file[64];
    snprintf(file, sizeof file, "%s.json", name);
    json_t *root = text_json(file), *change = json_loads(patch, 0, NULL);
    pleach_error err;
    pl_tokenizer *t;
    assert_non_null(change);
    apply_patch(root, change);
    if (open_json(root, NULL, &t, &err)) fail_msg("%s", err.message);
    json_decref(root);
    json_decref(change);
    return t;
}

static pl_ids encode(const pl_tokenizer *t, const char *text, size_t size, unsigned flags)
{
    pl_ids ids = {0};
    pleach_error err;
    if (pl_tokenizer_encode(t, text, size, flags, &ids, &err)) fail_msg("%s", err.message);
    return ids;
}

static void assert_ids(const pl_tokenizer *t, const char *text, unsigned flags,
                       const int32_t *want, size_t n)
{
    pl_ids ids = encode(t, text, strlen(text), flags);
    assert_int_equal(ids.n, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(ids.ids[i], want[i]);
    pl_free(ids.ids);
}

static void assert_round_trip(const pl_tokenizer *t, const char *text, size_t size)
{
    pl_ids ids = encode(t, text, size, 0);
    char *back;
    size_t n;
    assert_int_equal(pl_tokenizer_decode(t, ids.ids, ids.n, true, &back, &n, NULL), PLEACH_OK);
    assert_int_equal(n, size);
    assert_memory_equal(back, text, size);
    pl_free(back);
    pl_free(ids.ids);
}

/* ---- against the reference ----------------------------------------------------------------- */

static uint32_t fnv(const pl_ids *ids)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < ids->n; i++)
        for (int k = 0; k < 4; k++) h = (h ^ ((uint32_t)ids->ids[i] >> 8 * k & 255)) * 16777619u;
    return h;
}

static void check_ids(const pl_tokenizer *t, const char *case_name, const char *text, size_t size,
                      unsigned flags, const json_t *want)
{
    pl_ids ids = encode(t, text, size, flags);
    if ((json_int_t)ids.n != json_integer_value(json_array_get(want, 0)) ||
        fnv(&ids) != (uint32_t)json_integer_value(json_array_get(want, 1)))
        fail_msg("%s: %zu ids, not %lld, or others, for: %.*s", case_name, ids.n,
                 json_integer_value(json_array_get(want, 0)), (int)PL_MIN(size, 200), text);
    pl_free(ids.ids);
}

static void check_case(json_t *c, const char *text, size_t size)
{
    char file[64], name[96];
    const char *flag = json_string_value(json_object_get(c, "flags"));
    unsigned flags = !strcmp(flag, "special") ? PL_ENCODE_SPECIAL
                     : !strcmp(flag, "bos")   ? PL_ENCODE_BOS
                                              : PL_ENCODE_PLAIN;
    snprintf(file, sizeof file, "%s.json", json_string_value(json_object_get(c, "tokenizer")));
    snprintf(name, sizeof name, "%s, %s", file, json_string_value(json_object_get(c, "name")));
    json_t *root = text_json(file), *patch = json_object_get(c, "patch");
    json_t *model = json_object_get(patch, "model"), *base = json_object_get(root, "model");
    if (json_is_string(json_object_get(model, "merges"))) /* a word for the other form (A07) */
        json_object_set_new(model, "merges", merge_pairs(json_object_get(base, "merges")));
    apply_patch(root, patch);
    pl_tokenizer *t;
    pleach_error err;
    if (open_json(root, NULL, &t, &err)) fail_msg("%s: %s", name, err.message);
    json_t *lines = json_object_get(c, "lines"), *ids = json_object_get(c, "ids");
    const char *line = text;
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const char *end = memchr(line, '\n', (size_t)(text + size - line));
        if (!end) end = text + size;
        check_ids(t, name, line, (size_t)(end - line), flags, json_array_get(lines, i));
        line = end + 1;
    }
    check_ids(t, name, text, size, flags, json_object_get(c, "whole"));
    pl_ids got = encode(t, text, size, flags);
    for (size_t i = 0; i < json_array_size(ids); i++)
        assert_int_equal(got.ids[i], json_integer_value(json_array_get(ids, i)));
    pl_free(got.ids);
    pl_tokenizer_close(t);
    json_decref(root);
}

static void ids_equal_the_reference(void **state)
{
    (void)state;
    size_t size;
    char *text = text_read("torture.txt", &size);
    json_t *cases = text_json("tokenizer_cases.json");
    assert_true(json_array_size(cases) > 70);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_case(json_array_get(cases, i), text, size);
    json_decref(cases);
    pl_free(text);
}

/* ---- merges and vocabularies by hand ------------------------------------------------------- */

#define TINY(extra, vocab, merges)                                                                 \
    "{\"added_tokens\":[" extra "],\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab                  \
    "},\"merges\":[" merges "]}}"

static pleach_status open_text(const char *json, pl_tokenizer **t, pleach_error *err)
{
    return pl_tokenizer_open_json("test", json, strlen(json), NULL, 0, t, err);
}

/* A07: the pair form alone can hold a part with a space. */
static void merges_with_spaces_need_pairs(void **state)
{
    (void)state;
    pl_tokenizer *t;
    pleach_error err;
    assert_int_equal(open_text(TINY("", "\"a\":0,\" \":1,\"a \":2,\"b\":3,\"a b\":4",
                                    "[\"a\",\" \"],[\"a \",\"b\"]"), &t, &err), PLEACH_OK);
    assert_ids(t, "a b", 0, (int32_t[]){4}, 1);
    pl_tokenizer_close(t);
    assert_int_equal(open_text(TINY("", "\"a\":0,\" \":1,\"a \":2,\"b\":3,\"a b\":4",
                                    "\"a  \""), &t, &err), PLEACH_ERR_FORMAT);
    assert_non_null(strstr(err.message, "merge 0"));
}

/* A10: holes and ids beyond the vocabulary give nothing; forged ids are refused before tables. */
static void holes_and_huge_ids(void **state)
{
    (void)state;
    pl_tokenizer *t;
    pleach_error err;
    size_t size;
    char *text;
    assert_int_equal(open_text(TINY("", "\"a\":0,\"b\":900,\"\":5", ""), &t, &err), PLEACH_OK);
    assert_int_equal(pl_tokenizer_size(t), 901);
    for (int32_t id = -2; id < 2000; id++) {
        const char *piece = pl_tokenizer_piece(t, id, &size);
        assert_non_null(piece);
        assert_int_equal(size, id == 0 || id == 900);
        assert_false(pl_tokenizer_is_special(t, id));
    }
    int32_t ids[] = {0, 7, INT32_MAX, INT32_MIN, 900};
    assert_int_equal(pl_tokenizer_decode(t, ids, 5, false, &text, &size, &err), PLEACH_OK);
    assert_string_equal(text, "ab");
    pl_free(text);
    pl_tokenizer_close(t);
    assert_int_equal(open_text(TINY("", "\"a\":0,\"b\":2000000000", ""), &t, &err),
                     PLEACH_ERR_FORMAT);
    assert_int_equal(open_text(TINY("", "\"a\":-1", ""), &t, &err), PLEACH_ERR_FORMAT);
    assert_int_equal(open_text(TINY("{\"id\":4000000000,\"content\":\"x\"}", "\"a\":1", ""), &t,
                               &err), PLEACH_ERR_FORMAT);
    /* Two literals of one id both encode to it; it decodes to the first. */
    assert_int_equal(open_text(TINY("", "\"a\":3,\"b\":3", ""), &t, &err), PLEACH_OK);
    assert_ids(t, "ab", 0, (int32_t[]){3, 3}, 2);
    pl_tokenizer_close(t);
}

/* Text never becomes a control token, by whatever way the vocabulary would allow it. */
static void text_is_not_control(void **state)
{
    (void)state;
    pl_tokenizer *t;
    pleach_error err;
    assert_int_equal(
        open_text(TINY("{\"id\":2,\"content\":\"ab\",\"special\":true}",
                       "\"a\":0,\"b\":1,\"ab\":2", "\"a b\""), &t, &err), PLEACH_OK);
    assert_ids(t, "ab", 0, (int32_t[]){0, 1}, 2);
    assert_ids(t, "ab", PL_ENCODE_SPECIAL, (int32_t[]){2}, 1);
    assert_true(pl_tokenizer_is_special(t, 2));
    assert_int_equal(pl_tokenizer_find(t, "ab"), 2);
    pl_tokenizer_close(t);
    static const char unigram[] =
        "{\"added_tokens\":[{\"id\":3,\"content\":\"ab\",\"special\":true}],\"model\":{\"type\":"
        "\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",0],[\"a\",-5],[\"b\",-5],[\"ab\",0]]}}";
    assert_int_equal(open_text(unigram, &t, &err), PLEACH_OK);
    assert_ids(t, "ab", 0, (int32_t[]){1, 2}, 2);
    assert_ids(t, "ab", PL_ENCODE_SPECIAL, (int32_t[]){3}, 1);
    pl_tokenizer_close(t);
}

/* ---- byte fallback and blanks -------------------------------------------------------------- */

/* A01: characters outside the vocabulary are four byte pieces, and come back. */
static void unigram_spells_unknown_characters(void **state)
{
    (void)state;
    static const char text[] = " this is \xf0\x9f\xa6\x99.cpp";
    pl_tokenizer *t = open_patched("unigram", "{}");
    pl_ids ids = encode(t, text, sizeof text - 1, 0);
    int32_t unk = pl_tokenizer_find(t, "<unk>"), first = pl_tokenizer_find(t, "<0xF0>");
    size_t at = 0, size;
    for (size_t i = 0; i < ids.n; i++) {
        assert_int_not_equal(ids.ids[i], unk);
        if (ids.ids[i] == first) at = i;
    }
    assert_true(at > 0 && at + 3 < ids.n);
    assert_int_equal(ids.ids[at + 1], pl_tokenizer_find(t, "<0x9F>"));
    assert_int_equal(ids.ids[at + 3], pl_tokenizer_find(t, "<0x99>"));
    assert_memory_equal(pl_tokenizer_piece(t, unk, &size), "<unk>", 5);
    assert_int_equal(size, 5);
    pl_free(ids.ids);
    pl_tokenizer_close(t);
}

static void bytes_come_back(void **state)
{
    (void)state;
    static const char text[] = "x \xf0\x9f\xa6\x99 caf\xc3\xa9\n\xe6\xbc\xa2  end ";
    pl_tokenizer *byte_bpe = open_patched("byte_bpe", "{}"), *spm = open_patched("spm_bpe", "{}");
    size_t size;
    char *torture = text_read("torture.txt", &size);
    assert_round_trip(byte_bpe, text, sizeof text - 1);
    assert_round_trip(spm, text, sizeof text - 1);
    assert_round_trip(byte_bpe, torture, size);
    assert_round_trip(byte_bpe, " a", 2);
    const char *piece = pl_tokenizer_piece(spm, pl_tokenizer_find(spm, "<0x0A>"), &size);
    assert_int_equal(size, 1);
    assert_int_equal(*piece, '\n');
    pl_free(torture);
    pl_tokenizer_close(byte_bpe);
    pl_tokenizer_close(spm);
}

/* A05: the prefix blank of a text that goes on, or follows a special token, is not doubled. */
static void prefix_space(void **state)
{
    (void)state;
    pl_tokenizer *t = open_patched("spm_bpe", "{\"pre_tokenizer\":{\"type\":\"Metaspace\","
                                              "\"prepend_scheme\":\"first\",\"split\":false}}");
    pl_tokenizer *legacy = open_patched(
        "spm_bpe", "{\"pre_tokenizer\":null,\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":"
                   "[{\"type\":\"Prepend\",\"prepend\":\"\u2581\"},{\"type\":\"Replace\","
                   "\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}]}}");
    int32_t a = pl_tokenizer_find(t, "a"), blank_a = pl_tokenizer_find(t, "\u2581a");
    int32_t bos = pl_tokenizer_find(t, "<s>");
    assert_ids(t, "a", 0, &blank_a, 1);
    assert_ids(t, "a", PL_ENCODE_CONTINUE, &a, 1);
    assert_ids(t, "<s>a", PL_ENCODE_SPECIAL, (int32_t[]){bos, a}, 2);
    assert_ids(legacy, "a", 0, &blank_a, 1);
    assert_ids(legacy, "a", PL_ENCODE_CONTINUE, &a, 1);
    assert_ids(legacy, "<s>a", PL_ENCODE_SPECIAL, (int32_t[]){bos, blank_a}, 2);
    pl_tokenizer_close(t);
    pl_tokenizer_close(legacy);
}

static void ill_formed_text(void **state)
{
    (void)state;
    static const struct { const char *text, *as; } cases[] = {
        {"a\xff" "b", "a\ufffdb"},
        {"\xf0\x9f\xa6", "\ufffd"},             /* a character cut short: one replacement */
        {"\xf0\x9f\xa6" "x", "\ufffdx"},
        {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"}, /* a surrogate */
        {"\xc0\xaf\xe0\x80\xaf", "\ufffd\ufffd\ufffd\ufffd\ufffd"}, /* overlong */
        {"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},           /* past U+10FFFF */
        {"\x80\xbf", "\ufffd\ufffd"},
    };
    pl_tokenizer *t = open_patched("byte_bpe", "{}");
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        pl_ids ids = encode(t, cases[i].as, strlen(cases[i].as), 0);
        assert_ids(t, cases[i].text, 0, ids.ids, ids.n);
        pl_free(ids.ids);
    }
    assert_ids(t, "", PL_ENCODE_BOS, NULL, 0);
    pl_tokenizer_close(t);
}

/* ---- long texts ---------------------------------------------------------------------------- */

static char *repeat(const char *unit, size_t total)
{
    size_t n = strlen(unit);
    char *s = pl_alloc(total + 1, 1);
    assert_non_null(s);
    for (size_t i = 0; i < total; i++) s[i] = unit[i % n];
    return s;
}

/* A08: no text uses up the stack or the pattern's limits; each comes back unharmed. Runs with a
 * small stack, which a recursion once for each character would break. */
static void long_runs(void **state)
{
    (void)state;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_STACK, &limit), 0);
    limit.rlim_cur = 512 * 1024;
    assert_int_equal(setrlimit(RLIMIT_STACK, &limit), 0);
    static const char *const units[] = {"Z", " ", "\n", "\xf0\x9f\x98\x80", "ab", "\xe6\xbc\xa2",
                                        "' ", "e\xcc\x81", "0", "\xcc\x81\xcc\x96"};
    static const char *const names[] = {"byte_bpe", "spm_bpe", "unigram"};
    static const char groups[] =
        "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
        "\"behavior\":\"Isolated\",\"invert\":false,\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|"
        "'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?((?=\\\\p{L})[^a-z])*((?=\\\\p{L})[^A-Z])+|"
        "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?((?=\\\\p{L})[^a-z])+((?=\\\\p{L})[^A-Z])*|"
        "\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|"
        "\\\\s+(?!\\\\S)|\\\\s+\"}},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
        "\"use_regex\":false}]}}";
    for (size_t k = 0; k < 4; k++) {
        pl_tokenizer *t = k < 3 ? open_patched(names[k], "{}") : open_patched("byte_bpe", groups);
        for (size_t i = 0; i < PL_COUNT(units); i++) {
            size_t size = 131072 / strlen(units[i]) * strlen(units[i]);
            char *text = repeat(units[i], size);
            pl_ids ids = encode(t, text, size, 0);
            assert_true(ids.n > 0);
            pl_free(ids.ids);
            /* SentencePiece's first space is the prefix, and its decoder drops it. */
            if (k != 2 && !(k == 1 && *text == ' ')) assert_round_trip(t, text, size);
            pl_free(text);
        }
        pl_tokenizer_close(t);
    }
}

/* A million marks out of order are put in order in linear time. */
static void marks_in_linear_time(void **state)
{
    (void)state;
    pl_tokenizer *t = open_patched("byte_bpe", "{\"normalizer\":{\"type\":\"NFC\"}}");
    char *text = repeat("\xcc\x81\xcc\x96", 1 << 20);
    pl_ids ids = encode(t, text, 1 << 20, 0);
    assert_true(ids.n > 0);
    pl_free(ids.ids);
    pl_free(text);
    pl_tokenizer_close(t);
}

/* ---- BOS, config and writing --------------------------------------------------------------- */

static void config_and_writing(void **state)
{
    (void)state;
    scratch dir;
    pl_tokenizer *t, *again;
    pleach_error err;
    json_t *root = text_json("spm_bpe.json");
    json_t *config = json_loads(
        "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"},\"chat_template\":["
        "{\"name\":\"tool\",\"template\":\"x\"},{\"name\":\"default\",\"template\":\"hi\"}],"
        "\"additional_special_tokens\":[\"qux\"]}", 0, NULL);
    json_array_append_new(json_object_get(root, "added_tokens"),
                          json_pack("{s:i, s:s}", "id", 5000, "content", "qux"));
    assert_int_equal(open_json(root, config, &t, &err), PLEACH_OK);
    assert_int_equal(pl_tokenizer_size(t), 5001);
    assert_int_equal(pl_tokenizer_bos(t), 1);
    assert_int_equal(pl_tokenizer_eos(t), 2);
    assert_true(pl_tokenizer_is_special(t, 5000));
    assert_string_equal(pl_tokenizer_chat_template(t), "hi");
    scratch_open(&dir);
    scratch_text(&dir, "chat_template.jinja", "hello");
    assert_int_equal(pl_tokenizer_write(t, dir.dir, &err), PLEACH_OK);
    assert_int_equal(pl_tokenizer_open_folder(dir.dir, &again, &err), PLEACH_OK);
    assert_string_equal(pl_tokenizer_chat_template(again), "hello"); /* the file of its own wins */
    assert_int_equal(pl_tokenizer_write(again, dir.dir, &err), PLEACH_OK);
    pl_tokenizer_close(again);
    unlink(scratch_path(&dir, "chat_template.jinja"));
    assert_int_equal(pl_tokenizer_open_folder(dir.dir, &again, &err), PLEACH_OK);
    assert_string_equal(pl_tokenizer_chat_template(again), "hello");
    assert_int_equal(pl_tokenizer_eos(again), 2);
    pl_ids ids = encode(t, "one qux two <s>", 15, PL_ENCODE_SPECIAL);
    assert_ids(again, "one qux two <s>", PL_ENCODE_SPECIAL, ids.ids, ids.n);
    pl_free(ids.ids);
    scratch_close(&dir);
    pl_tokenizer_close(again);
    pl_tokenizer_close(t);
    json_decref(config);
    json_decref(root);
}

/* ---- refusals ------------------------------------------------------------------------------ */

static void refused_by_name(void **state)
{
    (void)state;
    static const struct { const char *patch, *word; } cases[] = {
        {"{\"model\":{\"type\":\"WordPiece\"}}", "WordPiece"},
        {"{\"model\":{\"dropout\":0.1}}", "dropout"},
        {"{\"model\":{\"end_of_word_suffix\":\"</w>\"}}", "end_of_word_suffix"},
        {"{\"model\":{\"continuing_subword_prefix\":\"##\"}}", "continuing_subword_prefix"},
        {"{\"model\":{\"unk_token\":\"<none>\"}}", "<none>"},
        {"{\"model\":{\"merges\":[\"qq zz\"]}}", "merge 0"},
        {"{\"normalizer\":{\"type\":\"BertNormalizer\"}}", "BertNormalizer"},
        {"{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"!\"}}", "base64"},
        {"{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"/////w==\"}}",
         "precompiled_charsmap"},
        {"{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}}", "UnicodeScripts"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
         "{\"type\":\"Digits\"}]}}", "after ByteLevel"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":"
         "\"Sideways\"}}", "Sideways"},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"maybe\"}}", "maybe"},
        {"{\"decoder\":{\"type\":\"CTC\"}}", "CTC"},
        {"{\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}}", "Strip"},
        {"{\"post_processor\":{\"type\":\"BertProcessing\"}}", "BertProcessing"},
    };
    static const char *const patterns[] = {"a(", "[a[b]]", "[a&&b]", "\\\\h", "\\\\K", "(?m:a)",
                                           "(*FAIL)", "a{1,3}+", "[\\\\W]", "\\\\1", "a\\\\",
                                           "\\\\p{Nonsense}", "a|(?i)b", "[a", "(?<n", ""};
    pleach_error err;
    pl_tokenizer *t;
    for (size_t i = 0; i < PL_COUNT(cases) + PL_COUNT(patterns); i++) {
        char patch[512];
        const char *word = i < PL_COUNT(cases) ? cases[i].word : "pattern";
        snprintf(patch, sizeof patch,
                 i < PL_COUNT(cases) ? "%s" : "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":"
                                              "{\"Regex\":\"%s\"}}}",
                 i < PL_COUNT(cases) ? cases[i].patch : patterns[i - PL_COUNT(cases)]);
        json_t *root = text_json("byte_bpe.json"), *change = json_loads(patch, 0, NULL);
        assert_non_null(change);
        apply_patch(root, change);
        pleach_status status = open_json(root, NULL, &t, &err);
        if (status != PLEACH_ERR_UNSUPPORTED && status != PLEACH_ERR_FORMAT)
            fail_msg("%s: status %d", patch, status);
        if (!strstr(err.message, word)) fail_msg("%s: %s", patch, err.message);
        assert_null(t);
        json_decref(root);
        json_decref(change);
    }
}

static void malformed_files(void **state)
{
    (void)state;
    static const char *const files[] = {
        "", "[]", "{", "{}", "null", "{\"model\":3}", "{\"model\":{\"type\":\"BPE\"}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"b\"},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[3]}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":1}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":{}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{}]}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\\ud800\":0},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"post_processor\":{"
        "\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\"}}],"
        "\"special_tokens\":{\"s\":{\"ids\":[1]}}}}",
    };
    pleach_error err;
    pl_tokenizer *t;
    for (size_t i = 0; i < PL_COUNT(files); i++) {
        if (open_text(files[i], &t, &err) >= 0) fail_msg("opened: %s", files[i]);
        assert_null(t);
    }
    char *deep = repeat("[", 1 << 20);
    assert_int_equal(open_text(deep, &t, &err), PLEACH_ERR_FORMAT);
    pl_free(deep);
    assert_int_equal(pl_tokenizer_open_folder("/nonexistent", &t, &err), PLEACH_ERR_MISSING);
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_equal_the_reference), cmocka_unit_test(merges_with_spaces_need_pairs),
        cmocka_unit_test(holes_and_huge_ids), cmocka_unit_test(text_is_not_control),
        cmocka_unit_test(unigram_spells_unknown_characters), cmocka_unit_test(bytes_come_back),
        cmocka_unit_test(prefix_space), cmocka_unit_test(ill_formed_text),
        cmocka_unit_test(long_runs), cmocka_unit_test(marks_in_linear_time),
        cmocka_unit_test(config_and_writing), cmocka_unit_test(refused_by_name),
        cmocka_unit_test(malformed_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
