/* SPDX-License-Identifier: Apache-2.0
 *
 * Grammars and schemas take what they should and nothing else, token masks agree with taking the
 * tokens one by one, and no grammar harms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "base/random.h"
#include "grammar/grammar.h"

/* Whether all of the text is taken and may end there. */
static bool takes(const pl_grammar *g, const char *text, size_t size)
{
    pl_matcher *m;
    pleach_error err;
    if (pl_matcher_open(g, &m, &err)) fail_msg("%s", err.message);
    bool yes = pl_matcher_take(m, text, size) && pl_matcher_may_end(m);
    /* Byte by byte is the same. */
    pl_matcher_restart(m);
    bool each = true;
    for (size_t i = 0; i < size && each; i++) each = pl_matcher_take(m, text + i, 1);
    assert_int_equal(each && pl_matcher_may_end(m), yes);
    pl_matcher_close(m);
    return yes;
}

typedef struct grammar_case {
    const char *grammar;
    const char *good[6], *bad[6];
} grammar_case;

static void check_texts(const pl_grammar *g, const grammar_case *c)
{
    for (size_t i = 0; i < PL_COUNT(c->good) && c->good[i]; i++)
        if (!takes(g, c->good[i], strlen(c->good[i])))
            fail_msg("%s\ndoes not take %s", c->grammar, c->good[i]);
    for (size_t i = 0; i < PL_COUNT(c->bad) && c->bad[i]; i++)
        if (takes(g, c->bad[i], strlen(c->bad[i]))) fail_msg("%s\ntakes %s", c->grammar, c->bad[i]);
}

/* ---- GBNF ------------------------------------------------------------------------------------ */

static void gbnf_takes_its_texts(void **state)
{
    (void)state;
    static const grammar_case cases[] = {
        {"root ::= \"a\" | \"bc\"", {"a", "bc"}, {"", "b", "ab", "abc"}},
        {"root ::= x+ y? # all\nx ::= [a-c]\ny ::= \"!\"\n", {"a", "abc!", "c!"}, {"", "!", "a!!"}},
        {"root ::= (\"a\" | \"b\")* \"c\"", {"c", "abbac"}, {"", "ab", "cc"}},
        {"root ::=\n  \"a\"\n  | \"b\"\n\n", {"a", "b"}, {"ab", ""}},
        {"root ::= [^a-y\"]{2,3}", {"zz", "z\xc3\xa9z", "AB"}, {"z", "zzzz", "za", "\"\""}},
        {"root ::= .{3}", {"abc", "\xe6\x97\xa5\xf0\x9f\x98\x80z"}, {"ab", "abcd", "ab\xff"}},
        {"root ::= \"\\x41\\u00e9\\n\\\"\\\\\"", {"A\xc3\xa9\n\"\\"}, {"A"}},
        {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "())", ")("}},
        {"root ::= [\\u0400-\\u04FF\\U0001F600-\\U0001F64F]+",
         {"\xd0\x96", "\xf0\x9f\x98\x80"},
         {"a", "\xf0\x9f\x99\x90", "\xd0"}},
        {"root ::= e (\"+\" e)*\ne ::= [0-9]+ | \"(\" root \")\"",
         {"1+(2+3)", "12", "((1))"},
         {"1+", "()", "(1"}},
        {"root ::= \"a\"{2} \"b\"{,2} \"c\"{1,}", {"aac", "aabbccc"}, {"ac", "aabbbc", "aa"}},
        {"root ::= (\"\" | \"a\"?)* \"b\"", {"b", "aab"}, {"a", "ba"}},
        {"root ::= [-a] [a-] [\\]^]", {"-a]", "a-^"}, {"b-]"}},
        {"root ::= \"n=\" %json {\"type\":\n\"integer\"} string | %json{\"enum\": [\"a\", null]}+\n"
         "string ::= \";\"",
         {"n=-12;", "\"a\"", "null\"a\""},
         {"n=", "n=1", "n=1.5;", "a"}},
        {"root ::= %json true \"!\" | %json {\"$ref\": \"#/$defs/x\", \"$defs\": {\"x\": {\"const\": 7}}}",
         {"[1, \"x\"]!", "{}!", "7"},
         {"8", "!"}},
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        pl_grammar *g;
        pleach_error err;
        if (pl_grammar_parse(cases[i].grammar, strlen(cases[i].grammar), &g, &err))
            fail_msg("%s\n%s", cases[i].grammar, err.message);
        check_texts(g, &cases[i]);
        pl_grammar_close(g);
    }
}

static void bad_grammars_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *words;
    } cases[] = {
        {"", "there is no rule root"},
        {"root ::= x", "there is no rule x"},
        {"a ::= \"b\"", "there is no rule root"},
        {"root ::= \"a", "line 1: expected \" at the end of a literal"},
        {"root ::= \"a\"\nroot ::= \"b\"", "rule root is there already"},
        {"root ::= root \"a\"", "rule root begins with itself"},
        {"root ::= x\nx ::= \"\" y\ny ::= x | \"b\"", "begins with itself"},
        {"root ::= (\"a\"", "line 1: expected )"},
        {"root ::= [z-a]", "no less than its begin"},
        {"root ::= \"a\"{3,2}", "expected {m}, {m,} or {m,n}"},
        {"root ::= \"a\"{99999}", "no more than 10000"},
        {"root = \"a\"", "line 1: expected ::=, found '= \"a\"'"},
        {"\n\nroot ::= $", "line 3: expected the rule's end"},
        {"root ::= \"\\q\"", "expected an escape"},
        {"root ::= \"\\ud800\"", "a character's number"},
        {"root ::= \"\xff\"", "a character of UTF-8"},
        {"root ::= \"a\"\nx ::= %json {\"type\"}", "line 2: %json, line 1: "},
        {"root ::= %json {\"type\": \"thing\"}", "there is no type \"thing\""},
        {"root ::= %json {} x", "there is no rule x"},
        {"root ::= %json {}\n\n\ny ::= $", "line 4: "},
        {"root ::= ((((\"a\"{1000}){1000}){1000}){1000})", "too large"},
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        pl_grammar *g;
        pleach_error err = {0};
        assert_int_not_equal(pl_grammar_parse(cases[i].grammar, strlen(cases[i].grammar), &g, &err),
                             PLEACH_OK);
        assert_null(g);
        if (!strstr(err.message, cases[i].words)) fail_msg("%s\n%s", cases[i].grammar, err.message);
    }
    char deep[6000] = "root ::= ";
    for (size_t i = strlen(deep); i + 1 < sizeof deep; i++) deep[i] = '(';
    pl_grammar *g;
    assert_int_equal(pl_grammar_parse(deep, strlen(deep), &g, NULL), PLEACH_ERR_FORMAT);
}

/* ---- schemas --------------------------------------------------------------------------------- */

static void schemas_take_their_values(void **state)
{
    (void)state;
    static const grammar_case cases[] = {
        {"null",
         {"{}", "{\"a\": [1, -2.5e3, \"x\\u00e9\\n\", null, true]}", "{ \"a\":{} }"},
         {"[]", "1", "{\"a\"}", "{\"a\": 01}", "{\"a\": \"\n\"}", "{,}"}},
        {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": "
         "{\"type\": "
         "\"string\"}, \"c\": {\"type\": \"boolean\"}}, \"required\": [\"b\"]}",
         {"{\"b\": \"x\"}", "{\"a\": 1,\"b\": \"\"}", "{\"a\":1, \"b\":\"\", \"c\":true}",
          "{\"b\": \"\", \"c\": false}"},
         {"{}", "{\"a\": 1}", "{\"b\": 1}", "{\"b\": \"\", \"a\": 1}", "{\"b\": \"\", \"d\": 1}",
          "{\"b\": \"\",}"}},
        {"{\"properties\": {\"a\": {}}, \"additionalProperties\": {\"type\": \"number\"}}",
         {"{}", "{\"a\": [], \"z\": 1.5}", "{\"z\": 1}", "{\"z\": 1, \"y\": 2}"},
         {"{\"z\": []}", "{\"z\": 1 \"y\": 2}"}},
        {"{\"type\": \"array\", \"items\": {\"type\": \"null\"}, \"minItems\": 1, \"maxItems\": 3}",
         {"[null]", "[null, null,null]"},
         {"[]", "[null,null,null,null]", "[1]"}},
        {"{\"prefixItems\": [{\"type\": \"string\"}, {\"const\": {\"k\": 1}}]}",
         {"[\"a\", {\"k\":1}]"},
         {"[\"a\"]", "[\"a\", {\"k\":2}]"}},
        {"{\"enum\": [\"a\", 2, null, [1]]}", {"\"a\"", "2", "null", "[1]"}, {"a", "\"b\"", "3"}},
        {"{\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"boolean\"}]}",
         {"1", "-20", "true"},
         {"1.5", "\"\"", "-", "01"}},
        {"{\"type\": [\"string\", \"null\"], \"maxLength\": 2}",
         {"null", "\"ab\"", "\"\\n\\u0041\""},
         {"\"abc\"", "1"}},
        {"{\"type\": \"integer\", \"minimum\": 17, \"maximum\": 205}",
         {"17", "99", "100", "205"},
         {"16", "206", "7", "1000", "-20", "017"}},
        {"{\"type\": \"integer\", \"minimum\": -12, \"exclusiveMaximum\": 5}",
         {"-12", "-9", "0", "4"},
         {"-13", "5", "-100", "-0", "10"}},
        {"{\"type\": \"integer\", \"exclusiveMinimum\": 99}",
         {"100", "101", "5000", "123456789"},
         {"99", "9", "0", "-100"}},
        {"{\"type\": \"string\", \"format\": \"date-time\"}",
         {"\"2026-11-30T21:00:00Z\"", "\"2026-11-30T21:00:00.5+01:00\""},
         {"\"2026-11-30\"", "\"\""}},
        {"{\"type\": \"string\", \"format\": \"uuid\"}",
         {"\"01234567-89ab-cdef-0123-456789ABCDEF\""},
         {"\"0123456789abcdef\""}},
        {"{\"$ref\": \"#/$defs/tree\", \"$defs\": {\"tree\": {\"type\": \"object\", "
         "\"properties\": "
         "{\"v\": {\"type\": \"integer\"}, \"next\": {\"anyOf\": [{\"type\": \"null\"}, {\"$ref\": "
         "\"#/$defs/tree\"}]}}, \"required\": [\"v\", \"next\"]}}}",
         {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"},
         {"{\"v\":1}", "{\"v\":1,\"next\":1}"}},
        {"{\"properties\": {\"q\\\"\\u00e9\": {\"const\": \"\\u2603\"}}, \"required\": "
         "[\"q\\\"\\u00e9\"]}",
         {"{\"q\\\"\xc3\xa9\":\"\xe2\x98\x83\"}"},
         {"{}"}},
        {"{\"title\": \"anything\", \"description\": \"at all\"}",
         {"1", "[]", "{\"a\": {}}", "\"\""},
         {"", "x"}},
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        pl_grammar *g;
        pleach_error err;
        json_t *schema = json_loads(cases[i].grammar, JSON_DECODE_ANY, NULL);
        assert_non_null(schema);
        if (pl_grammar_from_schema(json_is_null(schema) ? NULL : schema, &g, &err))
            fail_msg("%s\n%s", cases[i].grammar, err.message);
        check_texts(g, &cases[i]);
        pl_grammar_close(g);
        json_decref(schema);
    }
}

/* Every integer round the bounds, for many bounds. */
static void integers_between_bounds(void **state)
{
    (void)state;
    static const int bounds[][2] = {{0, 0},  {0, 9},    {5, 5},     {-5, 5},  {-3, -1},
                                    {8, 12}, {95, 105}, {-101, 99}, {10, 99}, {199, 1002}};
    for (size_t i = 0; i < PL_COUNT(bounds); i++) {
        json_t *schema = json_pack("{s:s, s:i, s:i}", "type", "integer", "minimum", bounds[i][0],
                                   "maximum", bounds[i][1]);
        pl_grammar *g;
        assert_int_equal(pl_grammar_from_schema(schema, &g, NULL), PLEACH_OK);
        for (int v = bounds[i][0] - 30; v <= bounds[i][1] + 30; v++) {
            char text[16];
            snprintf(text, sizeof text, "%d", v);
            if (takes(g, text, strlen(text)) != (v >= bounds[i][0] && v <= bounds[i][1]))
                fail_msg("%d in %d to %d", v, bounds[i][0], bounds[i][1]);
        }
        pl_grammar_close(g);
        json_decref(schema);
    }
}

static void bad_schemas_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *words;
    } cases[] = {
        {"[]", "expected an object or true"},
        {"{\"type\": \"text\"}", "there is no type \"text\""},
        {"{\"type\": \"string\", \"pattern\": \"a+\"}", "the keyword \"pattern\" is not supported"},
        {"{\"type\": \"string\", \"format\": \"email\"}", "the format \"email\" is not supported"},
        {"{\"type\": \"number\", \"minimum\": 1}", "\"minimum\" is not supported"},
        {"{\"not\": {}}", "the keyword \"not\" is not supported"},
        {"{\"allOf\": [{}, {}]}", "the keyword \"allOf\" is not supported"},
        {"{\"$ref\": \"#/$defs/x\"}", "nothing is at #/$defs/x"},
        {"{\"$ref\": \"http://x/y\"}", "a reference outside the schema"},
        {"{\"$ref\": \"#\"}", "begins with itself"},
        {"{\"type\": \"object\", \"required\": [\"x\"]}", "required \"x\" is no property"},
        {"{\"type\": \"integer\", \"minimum\": 2, \"maximum\": 1}", "there is no integer"},
        {"{\"type\": \"array\", \"minItems\": -1}", "\"minItems\" is no number"},
        {"{\"type\": \"array\", \"minItems\": 3, \"maxItems\": 2}",
         "minItems 3 is over maxItems 2"},
        {"{\"enum\": []}", "no list with something in it"},
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        json_t *schema = json_loads(cases[i].schema, JSON_DECODE_ANY, NULL);
        pl_grammar *g;
        pleach_error err = {0};
        assert_int_not_equal(pl_grammar_from_schema(schema, &g, &err), PLEACH_OK);
        assert_null(g);
        if (!strstr(err.message, cases[i].words)) fail_msg("%s\n%s", cases[i].schema, err.message);
        json_decref(schema);
    }
}

/* ---- masks ----------------------------------------------------------------------------------- */

enum { TOKENS = 600 };

/* A vocabulary of all bytes and of random pieces of JSON. */
static void make_tokens(char (*pieces)[12], const char **at, size_t *sizes)
{
    static const char letters[] = "{}[]\",: 0123456789.-eabtruefalsn\\\n\xc3\xa9";
    uint64_t random = 7;
    for (size_t i = 0; i < TOKENS; i++) {
        sizes[i] = i < 256 ? 1 : pl_random_next(&random) % 8;
        for (size_t k = 0; k < sizes[i]; k++)
            pieces[i][k] =
                i < 256 ? (char)i : letters[pl_random_next(&random) % (sizeof letters - 1)];
        at[i] = pieces[i];
    }
}

/* Random walks: at every place the mask says what taking each token alone says. */
static void masks_agree_with_taking(void **state)
{
    (void)state;
    static char pieces[TOKENS][12];
    const char *at[TOKENS];
    size_t sizes[TOKENS];
    uint32_t allowed[(TOKENS + 31) / 32];
    uint64_t random = 11;
    pl_token_list *tokens;
    pl_grammar *g;
    pl_matcher *m, *alone;
    make_tokens(pieces, at, sizes);
    assert_int_equal(pl_token_list_make(at, sizes, TOKENS, &tokens, NULL), PLEACH_OK);
    assert_int_equal(pl_grammar_from_schema(NULL, &g, NULL), PLEACH_OK);
    assert_int_equal(pl_matcher_open(g, &m, NULL), PLEACH_OK);
    assert_int_equal(pl_matcher_open(g, &alone, NULL), PLEACH_OK);
    for (int walk = 0; walk < 20; walk++) {
        char text[1024];
        size_t n = 0;
        pl_matcher_restart(m);
        for (int taken = 0; taken < 60 && n + 12 < sizeof text; taken++) {
            uint32_t choice[TOKENS], choices = 0;
            pl_matcher_mask(m, tokens, allowed);
            for (uint32_t i = 0; i < TOKENS; i++) {
                pl_matcher_restart(alone);
                assert_true(pl_matcher_take(alone, text, n));
                bool may = sizes[i] && pl_matcher_take(alone, pieces[i], sizes[i]);
                assert_int_equal(allowed[i / 32] >> i % 32 & 1, may);
                if (may) choice[choices++] = i;
            }
            if (!choices) {
                assert_true(pl_matcher_may_end(m));
                break;
            }
            uint32_t i = choice[pl_random_next(&random) % choices];
            assert_true(pl_matcher_take(m, pieces[i], sizes[i]));
            memcpy(text + n, pieces[i], sizes[i]);
            n += sizes[i];
        }
    }
    pl_matcher_close(alone);
    pl_matcher_close(m);
    pl_grammar_close(g);
    pl_token_list_close(tokens);
}

/* More states than are kept: what is forgotten is made again. */
static void many_states(void **state)
{
    (void)state;
    static const char text[] = "root ::= ([a-z]{0,9000} \"1\")*";
    pl_grammar *g;
    pl_matcher *m;
    pleach_error err;
    if (pl_grammar_parse(text, strlen(text), &g, &err)) fail_msg("%s", err.message);
    assert_int_equal(pl_matcher_open(g, &m, NULL), PLEACH_OK);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 9000; i++) assert_true(pl_matcher_take(m, "q", 1));
        assert_false(pl_matcher_take(m, "q", 1));
        assert_false(pl_matcher_may_end(m));
        assert_true(pl_matcher_take(m, "1", 1));
        assert_true(pl_matcher_may_end(m));
    }
    pl_matcher_restart(m);
    assert_true(pl_matcher_may_end(m));
    pl_matcher_close(m);
    pl_grammar_close(g);
}

static void nested_without_end(void **state)
{
    (void)state;
    pl_grammar *g;
    pl_matcher *m;
    int depth = 0;
    assert_int_equal(pl_grammar_from_schema(NULL, &g, NULL), PLEACH_OK);
    assert_int_equal(pl_matcher_open(g, &m, NULL), PLEACH_OK);
    assert_true(pl_matcher_take(m, "{\"a\":", 5));
    while (depth < 100000 && pl_matcher_take(m, "[", 1)) depth++;
    assert_true(depth > 100 && depth < 100000);
    for (; depth; depth--) assert_true(pl_matcher_take(m, "]", 1));
    assert_true(pl_matcher_take(m, "}", 1));
    assert_true(pl_matcher_may_end(m));
    pl_matcher_close(m);
    pl_grammar_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gbnf_takes_its_texts),
        cmocka_unit_test(bad_grammars_are_refused),
        cmocka_unit_test(schemas_take_their_values),
        cmocka_unit_test(integers_between_bounds),
        cmocka_unit_test(bad_schemas_are_refused),
        cmocka_unit_test(masks_agree_with_taking),
        cmocka_unit_test(many_states),
        cmocka_unit_test(nested_without_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
