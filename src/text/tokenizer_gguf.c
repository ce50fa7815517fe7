/* SPDX-License-Identifier: Apache-2.0
 *
 * A tokenizer from a GGUF file: its metadata is turned into the tokenizer.json and
 * tokenizer_config.json that say the same, and those are read. So there is one reader of
 * tokenizers, and writing a folder from a GGUF source writes exactly what is in use.
 * Source: the GGUF specification in ggml's docs, "Tokenizer". */
#include "tokenizer_parts.h"

#include <stdlib.h>

#include "base/file.h"
#include "byte_tokens.h"
#include "format/gguf.h"

#define KEY(name) "tokenizer.ggml." name
#define BLANK "\xe2\x96\x81"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

/* ---- pre-tokenizers by name ---------------------------------------------------------------- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"

static const char llama3_pattern[] =
    CONTRACTIONS "|" LEAD "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
static const char qwen2_pattern[] =
    CONTRACTIONS "|" LEAD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
static const char tekken_pattern[] = LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER
                                          "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;
static const char gpt4o_pattern[] =
    LEAD UPPER "*" LOWER "+" CONTRACTIONS "?|" LEAD UPPER "+" LOWER "*" CONTRACTIONS
               "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;

/* The names are ggml's; what each stands for is what the tokenizer.json of the models that use it
 * says. A name that is not here is refused: a pattern that is nearly right gives ids that are
 * nearly right. */
static const struct pre_tokenizer {
    const char *name, *pattern; /* NULL: GPT-2's */
    bool digits, nfc, ignore_merges, bos;
} pre_tokenizers[] = {
    {"gpt-2", NULL, false, false, false, false},
    {"smollm", NULL, true, false, false, false},
    {"starcoder", NULL, true, false, false, false},
    {"refact", NULL, true, false, false, false},
    {"llama3", llama3_pattern, false, false, true, true},
    {"llama-v3", llama3_pattern, false, false, true, true},
    {"llama-bpe", llama3_pattern, false, false, true, true},
    {"smaug-bpe", llama3_pattern, false, false, false, true},
    {"qwen2", qwen2_pattern, false, true, false, false},
    {"deepseek-r1-qwen", qwen2_pattern, false, true, false, false},
    {"tekken", tekken_pattern, false, false, true, true},
    {"gpt-4o", gpt4o_pattern, false, false, false, false},
};

/* ---- checked metadata ---------------------------------------------------------------------- */

typedef struct source {
    const pl_gguf *g;
    uint64_t n;        /* tokens */
    bool scores, types; /* there are */
    pleach_error *err;
} source;

/* The array's length is the tokens', its elements are of the type that is asked for. */
static pleach_status check_array(const source *s, const char *key, pl_gguf_type wanted,
                                 const char *type_name, bool needed, bool *there)
{
    pl_gguf_type type;
    uint64_t n;
    *there = pl_gguf_array(s->g, key, &type, &n);
    PL_FAIL_IF(!*there && pl_gguf_has(s->g, key), s->err, PLEACH_ERR_FORMAT, "%s is not an array",
               key);
    PL_FAIL_IF(!*there && needed, s->err, PLEACH_ERR_MISSING, "%s is missing", key);
    if (!*there) return PLEACH_OK;
    PL_FAIL_IF(type != wanted, s->err, PLEACH_ERR_FORMAT, "%s is not an array of %s", key,
               type_name);
    PL_FAIL_IF(n != s->n, s->err, PLEACH_ERR_FORMAT, "%s has %llu elements for %llu tokens", key,
               (unsigned long long)n, (unsigned long long)s->n);
    return PLEACH_OK;
}

static pleach_status check_arrays(source *s, bool sentencepiece)
{
    pl_gguf_type type;
    bool there;
    PL_FAIL_IF(!pl_gguf_array(s->g, KEY("tokens"), &type, &s->n), s->err, PLEACH_ERR_MISSING,
               KEY("tokens") " is missing or no array");
    PL_FAIL_IF(!s->n || s->n >= INT32_MAX / 4, s->err, PLEACH_ERR_FORMAT,
               "a vocabulary of %llu tokens", (unsigned long long)s->n);
    PL_TRY(check_array(s, KEY("tokens"), PL_GGUF_STRING, "strings", true, &there));
    PL_TRY(check_array(s, KEY("token_type"), PL_GGUF_I32, "i32", sentencepiece, &s->types));
    return check_array(s, KEY("scores"), PL_GGUF_F32, "f32", sentencepiece, &s->scores);
}

static int token_type(const source *s, uint64_t i)
{
    int64_t type = NORMAL;
    if (s->types) pl_gguf_array_i64(s->g, KEY("token_type"), i, &type);
    return (int)type;
}

static pl_text token_text(const source *s, uint64_t i)
{
    pl_text text = {"", 0};
    pl_gguf_array_text(s->g, KEY("tokens"), i, &text);
    return text;
}

/* Flags of the file, or the default. */
static bool flag(const source *s, const char *key, bool otherwise)
{
    bool v = otherwise;
    pl_gguf_bool(s->g, key, &v);
    return v;
}

/* Id under a key, or -1. */
static pleach_status token_id(const source *s, const char *key, int32_t *id)
{
    uint64_t v;
    *id = -1;
    if (!pl_gguf_u64(s->g, key, &v) || v == UINT32_MAX) return PLEACH_OK; /* 2^32-1: none */
    PL_FAIL_IF(v >= s->n, s->err, PLEACH_ERR_FORMAT, "%s is %llu in a vocabulary of %llu", key,
               (unsigned long long)v, (unsigned long long)s->n);
    *id = (int32_t)v;
    return PLEACH_OK;
}

/* ---- parts of tokenizer.json --------------------------------------------------------------- */

/* json_pack returns NULL for any failure, and so do the functions that are made of it; a NULL part
 * makes the whole NULL, which is memory or a string that is not UTF-8. */

static json_t *make_added_tokens(const source *s)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < s->n; i++) {
        int type = token_type(s, i);
        pl_text text = token_text(s, i);
        if ((type != CONTROL && type != UNKNOWN && type != USER_DEFINED) || !text.size) continue;
        json_t *token = json_pack("{s:I, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)i,
                                  "content", text.data, text.size, "single_word", 0, "lstrip", 0,
                                  "rstrip", 0, "normalized", 0, "special", type != USER_DEFINED);
        if (json_array_append_new(list, token)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static bool in_vocabulary(const source *s, uint64_t i, bool sentencepiece)
{
    return token_text(s, i).size && (sentencepiece || token_type(s, i) != UNUSED);
}

/* Text to id. Unused tokens of a BPE vocabulary are padding ("[PAD123]") and stand for nothing. */
static json_t *make_vocabulary(const source *s, bool sentencepiece)
{
    json_t *vocab = json_object();
    for (uint64_t i = 0; i < s->n; i++) {
        pl_text text = token_text(s, i);
        if (!in_vocabulary(s, i, sentencepiece)) continue;
        json_t *id = json_integer((json_int_t)i);
        if (json_object_setn_new(vocab, text.data, text.size, id)) {
            json_decref(vocab);
            return NULL;
        }
    }
    return vocab;
}

static json_t *make_byte_merges(const source *s, uint64_t n)
{
    json_t *merges = json_array();
    for (uint64_t i = 0; i < n; i++) {
        pl_text text = {"", 0};
        pl_gguf_array_text(s->g, KEY("merges"), i, &text);
        if (json_array_append_new(merges, json_stringn(text.data, text.size))) {
            json_decref(merges);
            return NULL;
        }
    }
    return merges;
}

/* ---- SentencePiece merges ------------------------------------------------------------------ */

/* SentencePiece merges the pair whose union has the best score. tokenizer.json has a list of pairs
 * by rank: every cut of every piece into two pieces, by score, then as the converter of
 * transformers orders them. */
typedef struct split {
    double score;
    int32_t left, right, whole;
    uint32_t left_size, right_size; /* characters */
} split;

typedef struct splits {
    split *items;
    size_t n, capacity;
} splits;

static int compare_splits(const void *pa, const void *pb)
{
    const split *a = pa, *b = pb;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    if (a->left_size != b->left_size) return a->left_size > b->left_size ? -1 : 1;
    if (a->right_size != b->right_size) return a->right_size > b->right_size ? -1 : 1;
    if (a->whole != b->whole) return a->whole < b->whole ? -1 : 1;
    return a->left < b->left ? -1 : a->left > b->left;
}

static uint32_t count_characters(const char *s, size_t size)
{
    uint32_t n = 0;
    for (size_t i = 0; i < size; i++) n += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n;
}

static pleach_status split_token(const source *s, const pl_vocabulary *v, int32_t whole,
                                 splits *out)
{
    pl_text text = token_text(s, (uint64_t)whole);
    double score = 0;
    pl_gguf_array_f64(s->g, KEY("scores"), (uint64_t)whole, &score);
    for (size_t at = 1; at < text.size; at++) {
        if (((unsigned char)text.data[at] & 0xc0) == 0x80) continue;
        int32_t left = pl_vocabulary_find(v, text.data, at);
        int32_t right = left < 0 ? -1 : pl_vocabulary_find(v, text.data + at, text.size - at);
        if (right < 0) continue;
        if (pl_grow((void **)&out->items, &out->capacity, out->n + 1, sizeof *out->items))
            return pl_fail_memory(s->err, "merges", out->n * sizeof *out->items);
        out->items[out->n++] =
            (split){score, left, right, whole, count_characters(text.data, at),
                    count_characters(text.data + at, text.size - at)};
    }
    return PLEACH_OK;
}

static json_t *merges_of_splits(const source *s, const splits *list)
{
    json_t *merges = json_array();
    for (size_t i = 0; i < list->n; i++) {
        pl_text left = token_text(s, (uint64_t)list->items[i].left);
        pl_text right = token_text(s, (uint64_t)list->items[i].right);
        json_t *pair = json_pack("[s%, s%]", left.data, left.size, right.data, right.size);
        if (json_array_append_new(merges, pair)) {
            json_decref(merges);
            return NULL;
        }
    }
    return merges;
}

static pleach_status make_score_merges(const source *s, json_t **out)
{
    pl_vocabulary v = {0};
    splits list = {0};
    pleach_status status = PLEACH_OK;
    for (uint64_t i = 0; !status && i < s->n; i++) { /* control and byte tokens take no part */
        pl_text text = token_text(s, i);
        if (token_type(s, i) == NORMAL)
            status = pl_vocabulary_add(&v, text.data, text.size, (int32_t)i, s->err);
    }
    for (size_t i = 0; !status && i < s->n; i++)
        if (token_type(s, i) == NORMAL) status = split_token(s, &v, (int32_t)i, &list);
    if (!status && list.n) qsort(list.items, list.n, sizeof *list.items, compare_splits);
    if (!status) *out = merges_of_splits(s, &list);
    pl_free(list.items);
    pl_vocabulary_free(&v);
    return status;
}

/* ---- the two kinds ------------------------------------------------------------------------- */

static pleach_status find_pre_tokenizer(const source *s, const struct pre_tokenizer **out)
{
    pl_text name;
    PL_FAIL_IF(!pl_gguf_text(s->g, KEY("pre"), &name), s->err, PLEACH_ERR_UNSUPPORTED,
               KEY("pre") " is missing: the pre-tokenizer is not known and not guessed");
    for (size_t i = 0; i < PL_COUNT(pre_tokenizers); i++) {
        *out = &pre_tokenizers[i];
        if (strlen((*out)->name) == name.size && !memcmp((*out)->name, name.data, name.size))
            return PLEACH_OK;
    }
    return pl_fail(s->err, PLEACH_ERR_UNSUPPORTED, "pre-tokenizer \"%.*s\" is not supported",
                   (int)PL_MIN(name.size, 64), name.data);
}

static json_t *make_pre_tokenizer(const struct pre_tokenizer *p)
{
    json_t *bytes = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                              "trim_offsets", 1, "use_regex", !p->pattern);
    if (p->pattern)
        return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence",
                         "pretokenizers", "type", "Split", "pattern", "Regex", p->pattern,
                         "behavior", "Isolated", "invert", 0, bytes);
    if (!p->digits) return bytes;
    return json_pack("{s:s, s:[{s:s, s:b}, o]}", "type", "Sequence", "pretokenizers", "type",
                     "Digits", "individual_digits", 1, bytes);
}

static pleach_status make_byte_bpe(const source *s, json_t *root, bool *bos)
{
    const struct pre_tokenizer *pre;
    pl_gguf_type type;
    uint64_t n;
    PL_TRY(find_pre_tokenizer(s, &pre));
    PL_FAIL_IF(!pl_gguf_array(s->g, KEY("merges"), &type, &n) || type != PL_GGUF_STRING, s->err,
               PLEACH_ERR_FORMAT, KEY("merges") " is missing or not an array of strings");
    *bos = pre->bos;
    json_t *model = json_pack(
        "{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
        "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
        "ignore_merges", pre->ignore_merges, "vocab", make_vocabulary(s, false), "merges",
        make_byte_merges(s, n));
    if (pre->nfc)
        json_object_set_new(root, "normalizer", json_pack("{s:s}", "type", "NFC"));
    json_object_set_new(root, "pre_tokenizer", make_pre_tokenizer(pre));
    json_object_set_new(root, "decoder",
                        json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space",
                                  0, "trim_offsets", 1, "use_regex", 1));
    json_object_set_new(root, "model", model);
    return PLEACH_OK;
}

/* The prefix blank goes before every text between control tokens, as in the tokenizer.json of the
 * Llama 2 and Mistral models; a GGUF file does not say whether its model was made the other way. */
static json_t *make_blanks(bool prefix)
{
    json_t *blank = json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ",
                              "content", BLANK);
    if (!prefix) return blank;
    return json_pack("{s:s, s:[{s:s, s:s}, o]}", "type", "Sequence", "normalizers", "type",
                     "Prepend", "prepend", BLANK, blank);
}

static pleach_status make_sentencepiece(const source *s, json_t *root)
{
    bool prefix = flag(s, KEY("add_space_prefix"), true);
    json_t *merges = NULL, *unk = json_null();
    int32_t id;
    PL_TRY(make_score_merges(s, &merges));
    pleach_status status = token_id(s, KEY("unknown_token_id"), &id);
    if (status) {
        json_decref(merges);
        return status;
    }
    for (uint64_t i = 0; id < 0 && i < s->n; i++)
        if (token_type(s, i) == UNKNOWN) id = (int32_t)i;
    if (id >= 0) {
        pl_text text = token_text(s, (uint64_t)id);
        json_decref(unk);
        unk = json_stringn(text.data, text.size);
    }
    json_object_set_new(root, "normalizer", make_blanks(prefix));
    json_object_set_new(
        root, "decoder",
        json_pack("{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}, {s:s, s:s, s:i, s:i}]}", "type",
                  "Sequence", "decoders", "type", "Replace", "pattern", "String", BLANK, "content",
                  " ", "type", "ByteFallback", "type", "Fuse", "type", "Strip", "content", " ",
                  "start", (int)prefix, "stop", 0));
    json_object_set_new(
        root, "model",
        json_pack("{s:s, s:n, s:o, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout",
                  "unk_token", unk, "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                  1, "byte_fallback", 1, "ignore_merges", 0, "vocab", make_vocabulary(s, true),
                  "merges", merges));
    return PLEACH_OK;
}

/* ---- BOS, EOS and the config --------------------------------------------------------------- */

/* Appends {"SpecialToken": ...} to the template and its id to the table. */
static int add_template_token(const source *s, json_t *single, json_t *table, int32_t id)
{
    pl_text text = token_text(s, (uint64_t)id);
    json_t *entry = json_pack("{s:s%, s:[i], s:[s%]}", "id", text.data, text.size, "ids", id,
                              "tokens", text.data, text.size);
    return json_array_append_new(single, json_pack("{s:{s:s%, s:i}}", "SpecialToken", "id",
                                                   text.data, text.size, "type_id", 0)) |
           json_object_setn_new(table, text.data, text.size, entry);
}

static pleach_status make_template(const source *s, json_t *root, bool add_bos, bool add_eos)
{
    int32_t bos, eos;
    PL_TRY(token_id(s, KEY("bos_token_id"), &bos));
    PL_TRY(token_id(s, KEY("eos_token_id"), &eos));
    add_bos = flag(s, KEY("add_bos_token"), add_bos) && bos >= 0;
    add_eos = flag(s, KEY("add_eos_token"), add_eos) && eos >= 0;
    if (!add_bos && !add_eos) return PLEACH_OK;
    json_t *single = json_array(), *table = json_object();
    json_t *pair = json_pack("[{s:{s:s, s:i}}, {s:{s:s, s:i}}]", "Sequence", "id", "A", "type_id",
                             0, "Sequence", "id", "B", "type_id", 1);
    int failed = 0;
    if (add_bos) failed |= add_template_token(s, single, table, bos);
    failed |= json_array_append_new(single, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A",
                                                      "type_id", 0));
    if (add_eos) failed |= add_template_token(s, single, table, eos);
    failed |= json_object_set_new(root, "post_processor",
                                  json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing",
                                            "single", single, "pair", pair, "special_tokens",
                                            table));
    return failed ? pl_fail_memory(s->err, "a post-processor", 0) : PLEACH_OK;
}

static pleach_status make_config(const source *s, json_t *config)
{
    static const char *const roles[][2] = {{"bos_token", KEY("bos_token_id")},
                                           {"eos_token", KEY("eos_token_id")},
                                           {"unk_token", KEY("unknown_token_id")},
                                           {"pad_token", KEY("padding_token_id")}};
    pl_text chat;
    json_object_set_new(config, "tokenizer_class", json_string("PreTrainedTokenizerFast"));
    json_object_set_new(config, "clean_up_tokenization_spaces", json_false());
    for (size_t i = 0; i < PL_COUNT(roles); i++) {
        int32_t id;
        PL_TRY(token_id(s, roles[i][1], &id));
        pl_text text = id >= 0 ? token_text(s, (uint64_t)id) : (pl_text){"", 0};
        if (text.size) json_object_set_new(config, roles[i][0], json_stringn(text.data, text.size));
    }
    if (pl_gguf_text(s->g, "tokenizer.chat_template", &chat))
        PL_FAIL_IF(json_object_set_new(config, "chat_template", json_stringn(chat.data, chat.size)),
                   s->err, PLEACH_ERR_FORMAT, "tokenizer.chat_template is not UTF-8");
    return PLEACH_OK;
}

/* ---- opening and writing ------------------------------------------------------------------- */

static bool is(pl_text text, const char *s)
{
    return text.size == strlen(s) && !memcmp(text.data, s, text.size);
}

static pleach_status make_json(source *s, json_t *root, json_t *config)
{
    pl_text model;
    PL_FAIL_IF(!pl_gguf_text(s->g, KEY("model"), &model), s->err, PLEACH_ERR_MISSING,
               KEY("model") " is missing");
    bool sentencepiece = is(model, "llama"), bos = true;
    PL_FAIL_IF(!sentencepiece && !is(model, "gpt2"), s->err, PLEACH_ERR_UNSUPPORTED,
               "tokenizer model \"%.*s\" is not supported", (int)PL_MIN(model.size, 64),
               model.data);
    PL_TRY(check_arrays(s, sentencepiece));
    json_object_set_new(root, "version", json_string("1.0"));
    json_object_set_new(root, "truncation", json_null());
    json_object_set_new(root, "padding", json_null());
    json_object_set_new(root, "added_tokens", make_added_tokens(s));
    json_object_set_new(root, "normalizer", json_null());
    json_object_set_new(root, "pre_tokenizer", json_null());
    PL_TRY(sentencepiece ? make_sentencepiece(s, root) : make_byte_bpe(s, root, &bos));
    json_object_set_new(root, "post_processor", json_null());
    PL_TRY(make_template(s, root, bos, false));
    PL_FAIL_IF(!json_object_get(root, "model") || !json_object_get(root, "added_tokens") ||
                   !json_object_get(root, "decoder") || !json_object_get(root, "pre_tokenizer"),
               s->err, PLEACH_ERR_FORMAT, "a token is not UTF-8, or memory is short");
    return make_config(s, config);
}

/* A copy of the object as text, in our own memory. */
static pleach_status dump(const json_t *o, char **text, size_t *size, pleach_error *err)
{
    *size = json_dumpb(o, NULL, 0, JSON_COMPACT);
    *text = *size ? pl_alloc(*size + 1, 1) : NULL;
    if (!*text) return pl_fail_memory(err, "a tokenizer's text", *size);
    json_dumpb(o, *text, *size, JSON_COMPACT);
    (*text)[*size] = 0;
    return PLEACH_OK;
}

pleach_status pl_tokenizer_open_gguf(const struct pl_gguf *g, pl_tokenizer **out, pleach_error *err)
{
    source s = {.g = g, .err = err};
    json_t *root = json_object(), *config = json_object();
    pl_tokenizer *t = NULL;
    *out = NULL;
    pleach_status status = root && config ? make_json(&s, root, config)
                                          : pl_fail_memory(err, "a tokenizer", 0);
    if (!status) status = pl_tokenizer_from_json("GGUF tokenizer", root, config, &t, err);
    if (!status) status = dump(root, &t->json, &t->json_size, err);
    if (!status) status = dump(config, &t->config, &t->config_size, err);
    json_decref(root);
    json_decref(config);
    if (status) {
        pl_tokenizer_close(t);
        return status;
    }
    *out = t;
    return PLEACH_OK;
}

static pleach_status write_file(const char *dir, const char *name, const char *text, size_t size,
                                pleach_error *err)
{
    char *path = pl_path_join(dir, name);
    if (!path) return pl_fail_memory(err, "a path", strlen(dir));
    pleach_status status = pl_write_file(path, text, size, err);
    pl_free(path);
    return status;
}

/* The config with the chat template in use, which may have come from a file of its own. */
static pleach_status write_config(const pl_tokenizer *t, const char *dir, pleach_error *err)
{
    json_t *config = t->config ? json_loadb(t->config, t->config_size, JSON_ALLOW_NUL, NULL)
                               : json_object();
    char *text = NULL;
    size_t size = 0;
    if (config && t->chat_template)
        json_object_set_new(config, "chat_template", json_string(t->chat_template));
    pleach_status status = config ? dump(config, &text, &size, err)
                                  : pl_fail_memory(err, "a tokenizer's config", t->config_size);
    if (!status) status = write_file(dir, "tokenizer_config.json", text, size, err);
    pl_free(text);
    json_decref(config);
    return status;
}

pleach_status pl_tokenizer_write(const pl_tokenizer *t, const char *dir, pleach_error *err)
{
    PL_TRY(write_file(dir, "tokenizer.json", t->json, t->json_size, err));
    return write_config(t, dir, err);
}
